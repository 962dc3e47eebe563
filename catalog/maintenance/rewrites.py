"""Plans which files an engine has to rewrite, so that all files match the table's current epoch.

- The caller can write, and can read every column and row unmasked: a column or row that is hidden from the
  reader would be lost. The scan plans of the rewrite check this again.
- Files are in groups, each for one commit: a rewrite that is interrupted loses one group. Files of a
  partition are together. A group has at most the requested number of bytes, unless it has one file.
- If the table sets `write.format.default`, files of another format are rewritten too.
- A file with deleted rows is not rewritten, but counted and named: a `replace` keeps the number of rows.
- A caller who finds unreadable files requests groups without them, so that they do not block other files.
- Nothing is stored between requests. The table alone decides what is left, so that a rewrite continues where
  the previous one stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.snapshots import Snapshot

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import authorize, resolve, view_of
from catalog.authorization.table_access import require_on
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.iceberg.manifests import ManifestContent
from catalog.iceberg.metadata import require_written_version
from catalog.iceberg.partition_values import ShownPartitions
from catalog.maintenance.census import Census, heads, open_head
from catalog.planning.deletes import Deletes
from catalog.planning.rows import empty_rows, planned_rows
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, SnapshotReader
from catalog.snapshot_checks.entries import DELETED, alive
from policy.encryption.file_formats import WRITE_FORMAT
from policy.errors import RequestInvalid

ACTION: Final = "table.rewrite"

#: Maximum number of files in a group: its plan and its commit name each of them.
_MOST_FILES: Final = 5_000
#: How many of the files that cannot be rewritten are named.
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Files to rewrite in one commit.

    Attributes:
        branch: the branch they are live on.
        snapshot_id: its head, from which they are to be read.
        paths: the files.
        sizes: of each, its bytes.
        records: their rows.
    """

    branch: str
    snapshot_id: int
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    records: int


@dataclass(frozen=True, slots=True)
class Rewrites:
    """The files of a table to rewrite.

    Attributes:
        groups: the next groups.
        files, bytes: all at the heads of the branches looked at that is to be rewritten, in groups or not.
        held_files: those of them that cannot be rewritten here: files with deleted rows, and delete files.
        held: where the first of these are.
    """

    groups: tuple[RewriteGroup, ...] = ()
    files: int = 0
    bytes: int = 0
    held_files: int = 0
    held: tuple[str, ...] = ()


class Rewriter:
    """Plans rewrites.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def groups(
        self,
        caller: Caller,
        name: TableName,
        *,
        max_bytes: int,
        max_groups: int,
        branch: str | None = None,
        without: Collection[str] = (),
    ) -> Rewrites:
        """Return the next groups of files to rewrite, and the number and size of all that are left.

        Args:
            caller: who is going to rewrite.
            name: the table.
            max_bytes: bytes of a group.
            max_groups: how many groups are answered.
            branch: the branch to look at; None for all.
            without: files that are to be in no group.

        Raises:
            NotAuthorized: UPDATE on the table and unmasked SELECT on all of its columns are needed; `release`
                on its keys too, unless an engine asks.
            RequestInvalid: there is no such branch.
            NotSupportedYet: a branch has deletion vectors.
            MetadataUnsealed, MetadataTampered, LocationNotAllowed, DecryptionRefused: the table cannot be
                trusted.
        """
        authorizer = self._context.authorizer.settled()
        require_on(authorizer, caller, ACTION, str(name), self._context.on(caller, name))
        with authorizer.recorded(caller, ACTION, str(name), show_path=False):
            table = self._context.loader.load_sealed(name)
            require_written_version(table.metadata, table.name)
            schema = table.metadata.schema()
            columns = resolve(table, schema, None, AlwaysTrue(), case_sensitive=True)
            authorize(authorizer, caller, table, view_of(authorizer, caller, table).reads(columns.names))
            looked = [_OldFiles(self._context.reader, table, *each) for each in _heads(table, branch)]
        groups = (group for old in looked for group in old.packed(max_bytes, without))
        held = [path for old in looked for path in old.held]
        return Rewrites(
            tuple(islice(groups, max_groups)),
            sum(old.count for old in looked),
            sum(old.bytes for old in looked),
            len(held),
            tuple(held[:_SHOWN]),
        )


def _heads(table: LoadedTable, branch: str | None) -> list[tuple[str, Snapshot]]:
    """Return the requested branches with their heads."""
    found = heads(table.metadata)
    if branch is None:
        return found
    return [each for each in found if each[0] == branch] or _no_such(branch, table)


def _no_such(branch: str, table: LoadedTable) -> NoReturn:
    raise RequestInvalid(
        f"The table has no branch {branch[:80]!r}.",
        table=table.name,
        rule="branch",
        hint="Leave the branch out to rewrite all branches.",
    )


class _OldFiles:
    """The files at the head of a branch whose encryption or format differs from the table's.

    Attributes:
        count, bytes: all of them.
        held: paths of those that cannot be rewritten.
    """

    def __init__(self, reader: SnapshotReader, table: LoadedTable, branch: str, head: Snapshot) -> None:
        schema = table.metadata.schema()
        self._branch, self._head = branch, head
        self._census = Census(reader, table)
        self._format = table.metadata.properties.get(WRITE_FORMAT)
        self._shown = ShownPartitions(table.metadata.specs(), schema, frozenset(schema.field_ids))
        data: list[OpenManifest] = []
        deletes: list[OpenManifest] = []
        for each in open_head(reader, table, head):
            (data if each.listed.content is ManifestContent.DATA else deletes).append(each)
        applied = Deletes(deletes, table, schema, self._shown) if deletes else None
        old = [self._old(each, applied) for each in data]
        rows = pa.concat_tables([empty_rows(), *old])
        beside = [alive(each.entries).filter(self._census.old(alive(each.entries))) for each in deletes]
        self.count = rows.num_rows + sum(each.num_rows for each in beside)
        sizes = [rows["file_size_in_bytes"], *(each["file_size_in_bytes"] for each in beside)]
        self.bytes: int = sum(pc.sum(each).as_py() or 0 for each in sizes)
        self._free = rows.filter(pc.is_null(rows["deletes"]))
        held = [rows.filter(pc.is_valid(rows["deletes"])), *beside]
        self.held: list[str] = [path for each in held for path in each["file_path"].to_pylist()]

    def packed(self, max_bytes: int, without: Collection[str]) -> Iterator[RewriteGroup]:
        """Group the files that can be rewritten, with the files of a partition together."""
        left_out = pc.is_in(self._free["file_path"], value_set=pa.array(without, pa.string()))
        ordered = self._free.filter(pc.invert(left_out)).sort_by(
            [("spec_id", "ascending"), ("partition", "ascending")]
        )
        names = ("file_path", "file_size_in_bytes", "record_count")
        rows = list(zip(*(ordered[name].to_pylist() for name in names), strict=True))
        first = size = 0
        for at, (_, length, _) in enumerate(rows):
            if at > first and (size + length > max_bytes or at - first == _MOST_FILES):
                yield _group(self._branch, self._head, rows[first:at])
                first, size = at, 0
            size += length
        if rows:
            yield _group(self._branch, self._head, rows[first:])

    def _old(self, manifest: OpenManifest, deletes: Deletes | None) -> pa.Table:
        live = pc.not_equal(manifest.entries["status"], DELETED)
        mask = pc.and_(live, pc.or_(self._census.old(manifest.entries), self._otherwise(manifest.entries)))
        rows = planned_rows(manifest.entries.filter(mask), manifest.listed, self._shown)
        if deletes is None:
            return rows
        spec_id = manifest.listed.partition_spec_id
        # The commit of the rewrite does not look at statistics either.
        return deletes.attach(
            rows, manifest.decoded, spec_id, pc.indices_nonzero(mask).to_pylist(), by_statistics=False
        )

    def _otherwise(self, entries: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Return one flag per file: whether its format differs from the table's."""
        if self._format is None:
            return pa.repeat(False, entries.num_rows)
        return pc.not_equal(pc.utf8_lower(entries["file_format"]), self._format.lower())


def _group(branch: str, head: Snapshot, files: Sequence[tuple[str, int, int]]) -> RewriteGroup:
    paths, sizes, records = zip(*files, strict=True)
    return RewriteGroup(branch, head.snapshot_id, paths, sizes, sum(records))
