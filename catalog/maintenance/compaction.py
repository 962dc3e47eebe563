"""Decides which data files or position delete files are rewritten, and in what groups: no I/O.

- A file is a candidate if its size is outside of the wanted range, if many of its rows are deleted, or if it
  has to be rewritten anyway: its encryption or format differs from the table's.
- Candidates of a partition are put into bins. A bin is rewritten if it has enough files or bytes; of any
  other bin, only the files that have to be.
- Bins are combined into groups of at most the given size. Each group is one commit.
- Bins of delete files are combined up to the size of one new file, so that a partition gets as few as it can.

Source: Apache Iceberg's `SizeBasedFileRewritePlanner`, `BinPackRewriteFilePlanner` and
`BinPackRewritePositionDeletePlanner`, whose options these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, TypeVar

from policy.errors import NotSupportedYet, RequestInvalid

_Item = TypeVar("_Item")

#: Maximum number of files in a group: its plan and its commit name each of them.
MOST_FILES: Final = 5_000
_LARGEST: Final = 2**63 - 1
_GROUP: Final = 100 * 2**30
#: `write.delete.target-file-size-bytes` of Iceberg.
_DELETES_TARGET: Final = 64 * 2**20
_ORDERS: Final = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")
_MOST_CONCURRENT: Final = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live file of a branch.

    Attributes:
        path: its location.
        size: in bytes.
        records: its rows.
        partition: files with the same value can be in one bin; None for files of earlier partition specs.
        must: whether it has to be rewritten, whatever its size.
        deletes: the number of delete files that apply to it.
        deleted: rows that position delete files for this file alone delete.
    """

    path: str
    size: int
    records: int
    partition: str | None
    must: bool = False
    deletes: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How groups are rewritten and committed; the engine does it.

    Attributes:
        partial: whether what can be rewritten is committed, though something else cannot.
        commits: at most as many commits; None for one for each group.
        concurrent: groups that are rewritten at the same time.
    """

    partial: bool = True
    commits: int | None = None
    concurrent: int = 1

    @classmethod
    def parse(cls, read: _Options) -> Pace:
        """Parse the options of both procedures."""
        partial = read.flag("partial-progress.enabled", default=True)
        commits = read.optional("partial-progress.max-commits")
        concurrent = read.number("max-concurrent-file-group-rewrites", 1)
        if concurrent > _MOST_CONCURRENT:
            raise read.refused(
                "max-concurrent-file-group-rewrites", str(concurrent), f"at most {_MOST_CONCURRENT}"
            )
        if commits is not None and not partial:
            raise read.refused(
                "partial-progress.max-commits",
                str(commits),
                "left out where partial-progress.enabled is false",
            )
        return cls(partial, commits if partial else 1, concurrent)


@dataclass(frozen=True, slots=True)
class Compaction:
    """Which files are rewritten, and in what groups. Sizes are in bytes.

    Attributes:
        target: the size of new files.
        smallest, largest: files in this range are left alone.
        min_files: a bin with as many files is rewritten.
        rewrite_all: rewrite all files.
        delete_files: rewrite files with as many delete files.
        delete_ratio: rewrite files of whose rows this share is deleted.
        group_bytes, group_files: at most in a group.
        order: which groups come first.
        dangling: whether delete files that apply to no file any more are removed.
        combined: bytes up to which bins are combined; None for those of a group.
        pace: how groups are committed.
    """

    target: int
    smallest: int
    largest: int
    min_files: int = 5
    rewrite_all: bool = False
    delete_files: int = _LARGEST
    delete_ratio: float = 0.3
    group_bytes: int = _GROUP
    group_files: int = MOST_FILES
    order: str = "none"
    dangling: bool = True
    combined: int | None = None
    pace: Pace = field(default_factory=Pace)

    @property
    def file_size(self) -> int:
        """Return the size at which a writer ends a file, so that no small remainder is left."""
        return self.target + (self.largest - self.target) // 2

    @classmethod
    def parse(cls, options: Mapping[str, str], target: int, spec_id: int, table: str) -> Compaction:
        """Parse the options of `rewrite_data_files`.

        Args:
            options: as given.
            target: `write.target-file-size-bytes` of the table.
            spec_id: its partition spec.
            table: dotted name, for errors.

        Raises:
            NotSupportedYet: an option without effect here.
            RequestInvalid: a value that is not valid.
        """
        read = _Options(options, table)
        found = replace(
            cls._sized(read, target),
            rewrite_all=read.flag("rewrite-all", default=False),
            delete_files=read.number("delete-file-threshold", _LARGEST, least=0),
            delete_ratio=read.share("delete-ratio-threshold", 0.3),
            group_files=min(read.number("max-file-group-input-files", MOST_FILES), MOST_FILES),
            dangling=read.flag("remove-dangling-deletes", default=True),
        )
        read.fixed("output-spec-id", str(spec_id), "New files have the table's partition spec.")
        read.fixed(
            "use-starting-sequence-number", "false", "New files have the sequence number of their commit."
        )
        read.refuse_others("rewrite_data_files")
        return found

    @classmethod
    def of_deletes(cls, options: Mapping[str, str], table: str) -> Compaction:
        """Parse the options of `rewrite_position_delete_files`.

        Args:
            options: as given.
            table: dotted name, for errors.

        Raises:
            NotSupportedYet: an option without effect here.
            RequestInvalid: a value that is not valid.
        """
        read = _Options(options, table)
        found = replace(
            cls._sized(read, _DELETES_TARGET), rewrite_all=read.flag("rewrite-all", default=False)
        )
        read.refuse_others("rewrite_position_delete_files")
        return replace(found, combined=min(found.target, found.group_bytes))

    @classmethod
    def _sized(cls, read: _Options, target: int) -> Compaction:
        """Parse the options that both procedures have."""
        wanted = read.number("target-file-size-bytes", target)
        found = cls(
            wanted,
            read.number("min-file-size-bytes", wanted * 3 // 4, least=0),
            read.number("max-file-size-bytes", wanted * 9 // 5),
            read.number("min-input-files", 5),
            group_bytes=read.number("max-file-group-size-bytes", _GROUP),
            order=read.choice("rewrite-job-order", _ORDERS),
            pace=Pace.parse(read),
        )
        if not found.smallest < found.target < found.largest:
            raise read.refused(
                "target-file-size-bytes",
                str(found.target),
                f"a size between min-file-size-bytes ({found.smallest}) and "
                f"max-file-size-bytes ({found.largest})",
            )
        return found

    def outputs(self, size: int) -> int:
        """Return how many files are written in place of files of this size."""
        if size < self.target:
            return 1
        less, rest = divmod(size, self.target)
        spread = min(self.target * 11 // 10, self.file_size)
        return less if rest == 0 or (rest <= self.smallest and size // less < spread) else less + 1

    def is_candidate(self, file: Candidate) -> bool:
        """Return whether a file is rewritten if its bin is."""
        wrong = not self.smallest <= file.size <= self.largest
        return self.rewrite_all or file.must or wrong or self._has_deletes(file)

    def groups(self, files: Iterable[Candidate]) -> list[list[Candidate]]:
        """Return the groups of files to rewrite, in their order: first those with files that have to be."""

        def partition(file: Candidate) -> tuple[bool, str]:
            return file.partition is None, file.partition or ""

        ordered = sorted(filter(self.is_candidate, files), key=partition)
        most = self.group_bytes
        bins = (one for _, some in groupby(ordered, partition) for one in self._packed(some, most, _size_of))
        chosen = filter(None, map(self._chosen, bins))
        together = self._packed(chosen, self.combined or most, _sizes_of, len)
        groups = [[file for one in some for file in one] for some in together]
        groups.sort(key=lambda group: not any(file.must for file in group))
        sign = -1 if self.order.endswith("desc") else 1
        if self.order.startswith("bytes"):
            groups.sort(key=lambda group: sign * _sizes_of(group))
        elif self.order.startswith("files"):
            groups.sort(key=lambda group: sign * len(group))
        return groups

    def _chosen(self, files: list[Candidate]) -> list[Candidate]:
        size, several = _sizes_of(files), len(files) > 1
        whole = (
            self.rewrite_all
            or (several and (len(files) >= self.min_files or size > self.target))
            or size > self.largest
            or any(map(self._has_deletes, files))
        )
        return files if whole else [file for file in files if file.must]

    def _has_deletes(self, file: Candidate) -> bool:
        ratio = min(file.deleted, file.records) / file.records if file.records else 0.0
        return file.deletes > 0 and (file.deletes >= self.delete_files or ratio >= self.delete_ratio)

    def _packed(
        self,
        items: Iterable[_Item],
        most: int,
        size: Callable[[_Item], int],
        count: Callable[[_Item], int] = lambda _: 1,
    ) -> Iterator[list[_Item]]:
        """Put neighbours together, as far as a group can hold them."""
        held: list[_Item] = []
        bytes_held = files_held = 0
        for item in items:
            more, further = size(item), count(item)
            full = bytes_held + more > most or files_held + further > self.group_files
            if held and full:
                yield held
                held, bytes_held, files_held = [], 0, 0
            held.append(item)
            bytes_held, files_held = bytes_held + more, files_held + further
        if held:
            yield held


def _size_of(file: Candidate) -> int:
    return file.size


def _sizes_of(files: Sequence[Candidate]) -> int:
    return sum(map(_size_of, files))


class _Options:
    """Reads the options of one call."""

    def __init__(self, options: Mapping[str, str], table: str) -> None:
        self._options = options
        self._table = table
        self._known: set[str] = set()

    def number(self, name: str, default: int, least: int = 1) -> int:
        """A whole number."""
        value = self._value(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and least <= int(value[:20]) <= _LARGEST):
            raise self.refused(name, value, f"a whole number from {least}")
        return int(value)

    def optional(self, name: str) -> int | None:
        """A whole number from 1, or None."""
        return None if self._value(name) is None else self.number(name, 1)

    def share(self, name: str, default: float) -> float:
        """A number above 0, at most 1."""
        value = self._value(name)
        try:
            found = default if value is None else float(value)
        except ValueError:
            found = 0.0
        if not 0 < found <= 1:
            raise self.refused(name, str(value), "a number above 0, at most 1")
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """Return `true` or `false`."""
        return self.choice(name, (str(default).lower(), str(not default).lower())) == "true"

    def choice(self, name: str, among: Sequence[str]) -> str:
        """One of the given values; the first by default."""
        value = (self._value(name) or among[0]).lower()
        if value not in among:
            raise self.refused(name, value, f"one of {', '.join(among)}")
        return value

    def fixed(self, name: str, only: str, why: str) -> None:
        """Refuse any other value."""
        value = self._value(name)
        if value is not None and value.lower() != only:
            raise NotSupportedYet(
                f"The option {name} cannot be {value[:80]!r}. {why}",
                table=self._table,
                rule="rewrite-option",
                hint=f"Remove the option, or set it to {only}.",
            )

    def refuse_others(self, procedure: str) -> None:
        """Refuse options that were not read."""
        other = min(self._options.keys() - self._known, default=None)
        if other is not None:
            raise NotSupportedYet(
                f"The option {other[:80]!r} of {procedure} is not supported.",
                table=self._table,
                rule="rewrite-option",
                hint=f"Remove it. Supported options: {', '.join(sorted(self._known))}.",
            )

    def refused(self, name: str, value: str, wanted: str) -> RequestInvalid:
        """Return the refusal of a value."""
        return RequestInvalid(
            f"The option {name} is {value[:80]!r}, but must be {wanted}.",
            table=self._table,
            rule="rewrite-option",
        )

    def _value(self, name: str) -> str | None:
        self._known.add(name)
        return self._options.get(name)
