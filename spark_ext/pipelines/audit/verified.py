"""Reads files through the guarded reader, which checks what needs keys: footers, column keys, pages, digests.

- The catalog decides: a user without SELECT on all columns reads nothing, and the table counts as not read.
- Each file is read once, at a snapshot that lists it: the head of a branch or tag, or else the snapshot that
  added it. The delete files that apply to it there are read with it.
- Each row becomes the length of a text of all its values, and one number is returned: Spark decodes each page
  of each column for it, nested ones too, and values go nowhere. A count would be answered from footers.
- A group of files that is refused is halved, until the file that is the matter is alone: it becomes a
  finding, and the others are read. An error that is the same for several files becomes one finding.
- A file is a finding if it is refused twice: executors and connections can be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyspark.errors import PySparkException

from policy.identifiers import TableName
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.options import chosen
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.failures import concerns_all, condition, passes, reason
from spark_ext.pipelines.lake import Lake

_AT_ONCE: Final = 200
_MOST_HALVED: Final = 200
_DENIED: Final = "NOT_AUTHORIZED"
_DATA: Final = 0
_DELETED: Final = 2


class Group(NamedTuple):
    """Files of one snapshot.

    Attributes:
        snapshot: its id.
        ref: a branch or tag that it is the head of.
        paths: the files.
    """

    snapshot: int
    ref: str | None
    paths: Sequence[str]

    def halves(self) -> tuple[Group, Group]:
        """Return the first half of the files, and the others."""
        middle = len(self.paths) // 2
        return self._replace(paths=self.paths[:middle]), self._replace(paths=self.paths[middle:])


def verify(lake: Lake, name: TableName, share: float, found: Partial) -> None:
    """Read a share of a table's files, the same ones each time.

    Args:
        lake: the lake.
        name: the table.
        share: of the files, from 0 to 1.
        found: what is wrong is added to it.

    Raises:
        PySparkException: an error that concerns all tables.
    """
    table = lake.name(name)
    try:
        groups = list(_groups(lake, table, share, found))
    except PySparkException as error:
        _refused(error, found)
        return
    reader = _Reader(lake, table, found)
    for group in groups:
        if not found.counts["not-read"]:
            reader.read(group)


def _groups(lake: Lake, table: str, share: float, found: Partial) -> Iterator[Group]:
    heads: dict[int, str] = {}
    for row in lake.sql(f"SELECT name, snapshot_id FROM {table}.refs ORDER BY name"):
        heads.setdefault(row["snapshot_id"], row["name"])
        found.counts["read-refs"] += 1
    seen: set[str] = set()
    for snapshot, ref in heads.items():
        rows = lake.sql(f"SELECT content, file_path AS path FROM {table}.files VERSION AS OF {snapshot}")
        paths = _chosen((row["path"] for row in rows if row["content"] == _DATA), share, seen)
        yield from _split(snapshot, ref, paths)
    yield from _earlier(lake, table, share, seen, found)


def _earlier(lake: Lake, table: str, share: float, seen: set[str], found: Partial) -> Iterator[Group]:
    """Files that no branch or tag lists any more, at the snapshots that added them."""
    retained = {row["snapshot_id"] for row in lake.sql(f"SELECT snapshot_id FROM {table}.snapshots")}
    rows = lake.sql(
        f"SELECT DISTINCT snapshot_id, data_file.file_path AS path FROM {table}.all_entries "
        f"WHERE status < {_DELETED} AND data_file.content = {_DATA} ORDER BY snapshot_id"
    )
    by_snapshot: dict[int, list[str]] = {}
    for row in rows:
        by_snapshot.setdefault(row["snapshot_id"], []).append(row["path"])
    for snapshot, paths in by_snapshot.items():
        mine = _chosen(paths, share, seen)
        if snapshot in retained:
            yield from _split(snapshot, None, mine)
        else:
            found.counts["unread-files"] += len(mine)


def _chosen(paths: Iterable[str], share: float, seen: set[str]) -> list[str]:
    mine = sorted({path for path in paths if path not in seen and chosen(path, share)})
    seen.update(mine)
    return mine


def _split(snapshot: int, ref: str | None, paths: Sequence[str]) -> Iterator[Group]:
    for start in range(0, len(paths), _AT_ONCE):
        yield Group(snapshot, ref, paths[start : start + _AT_ONCE])


@dataclass
class _Reader:
    """Reads the files of one table.

    Attributes:
        left: statements that are still run to find the files that are the matter.
        told: what was said of files before.
    """

    lake: Lake
    table: str
    found: Partial
    left: int = _MOST_HALVED
    told: set[str] = field(default_factory=set)

    def read(self, group: Group, *, again: bool = False) -> None:
        """Read a group, `again` or for the first time, and add what is wrong with its files."""
        named = ", ".join(map(_text, group.paths))
        statement = (
            f"SELECT max(length(to_json(struct(*)))) FROM {self.table} VERSION AS OF {group.snapshot} "
            f"WHERE _file IN ({named})"
        )
        try:
            self.lake.sql(statement)
        except PySparkException as error:
            self._failed(error, group, again=again)
        else:
            self.found.counts["read-files"] += len(group.paths)

    def _failed(self, error: PySparkException, group: Group, *, again: bool) -> None:
        if not _is_of_files(error):
            _refused(error, self.found)
        elif len(group.paths) > 1 and self.left > 0:
            self.left -= 2
            for half in group.halves():
                self.read(half)
        elif not again and self.left > 0:
            self.left -= 1
            self.read(group, again=True)
        else:
            self.found.counts["unread-files"] += len(group.paths) - 1
            self._tell(reason(error), group)

    def _tell(self, text: str, group: Group) -> None:
        if text in self.told:
            return
        self.told.add(text)
        (path, *others) = group.paths
        # Of another file, such as a delete file, the text says the name.
        known = not others and path.rpartition("/")[2] in text
        about = {"snapshot": group.snapshot, "ref": group.ref, "path": path if known else None}
        self.found.add(rules.UNREADABLE, text, **about)


def _is_of_files(error: PySparkException) -> bool:
    """Whether an error is of one file or several, so that others can be read."""
    return not (concerns_all(error) or condition(error) == _DENIED or passes(error))


def _refused(error: PySparkException, found: Partial) -> None:
    """Take an error that is of no file.

    Raises:
        PySparkException: an error that concerns all tables.
    """
    if concerns_all(error):
        raise error
    if condition(error) == _DENIED:
        found.counts["not-read"] += 1
    elif passes(error):
        found.failed.append(reason(error))
    else:
        found.add(rules.UNREADABLE, reason(error))


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
