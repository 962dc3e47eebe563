"""Plans which position delete files an engine has to rewrite.

These are small ones, dangling ones, and those whose encryption is an earlier one.

- The caller can do what a rewrite of data files takes (`rewrites`).
- Which files are rewritten, and in what groups, `compaction` decides. A delete file has to be rewritten if it
  applies to no data file (`dangling`), or if its encryption differs from the table's.
- Where the table asks for one delete file for each data file, a file that is already so is left alone.
- A group names the data files that its delete files can apply to, with their data sequence numbers. The
  engine leaves out positions of other files, and of files that are newer than the delete file.
- Nothing is stored between requests, as for data files.

Source: Apache Iceberg's `RewritePositionDeleteFilesSparkAction`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import partition_sources
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.iceberg.manifests import data_files
from catalog.iceberg.partition_values import ShownPartitions
from catalog.maintenance.census import Census
from catalog.maintenance.compaction import Candidate, Compaction, Pace
from catalog.maintenance.rewrites import by_content, heads_of, opened
from catalog.planning.rows import POSITION_DELETES, planned_rows
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest
from catalog.writes.applying import only_file, path_bounds
from catalog.writes.dangling import dangling
from catalog.writes.delete_files import settings_of
from catalog.writes.scopes import Files, RowsOfFilter

_PER_FILE: Final = "file"
_READ: Final = ("sequence_number", "file_sequence_number", "partition")


@dataclass(frozen=True, slots=True)
class DataFilesOfPartition:
    """Live data files of one partition that delete files of a group can apply to.

    Attributes:
        spec_id: the partition spec of these files and of their delete files.
        partition: their partition values, as a plan shows them.
        paths: the data files.
        sequence_numbers: of each, its data sequence number.
    """

    spec_id: int
    partition: str
    paths: tuple[str, ...]
    sequence_numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Position delete files to rewrite in one commit.

    Attributes:
        branch: the branch they are live on.
        snapshot_id: its head, from which they are to be read.
        paths: the files.
        sizes: of each, its bytes.
        sequence_numbers: of each, its data sequence number.
        outputs: how many tasks are to write the new files.
        partitions: the data files that they can apply to.
    """

    branch: str
    snapshot_id: int
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    sequence_numbers: tuple[int, ...]
    outputs: int
    partitions: tuple[DataFilesOfPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteRewrites:
    """The position delete files of a branch to rewrite.

    Attributes:
        groups: the next groups.
        sequence_number: the table's last one, for the next request.
        total: the number of all groups.
        pace: how they are to be committed.
    """

    groups: tuple[DeleteGroup, ...]
    sequence_number: int
    total: int
    pace: Pace


@dataclass(frozen=True, slots=True)
class DeleteRewriteRequest:
    """What to rewrite; see `RewriteRequest`."""

    max_groups: int
    options: Mapping[str, str] = field(default_factory=dict)
    branch: str = MAIN_BRANCH
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    case_sensitive: bool = True
    without: Collection[str] = ()
    sequence_number: int | None = None


class DeleteRewriter:
    """Plans rewrites of position delete files.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def groups(self, caller: Caller, name: TableName, request: DeleteRewriteRequest) -> DeleteRewrites:
        """Return the next groups of position delete files to rewrite.

        Args:
            caller: who is going to rewrite.
            name: the table.
            request: what to rewrite.

        Raises:
            as `Rewriter.groups`.
        """
        sensitive = request.case_sensitive
        with opened(self._context, caller, name, request.row_filter, case_sensitive=sensitive) as table:
            compaction = Compaction.of_deletes(request.options, table.name)
            last = table.metadata.next_sequence_number() - 1
            heads = [] if table.metadata.current_snapshot() is None else heads_of(table, request.branch)
            looked = [_Head(self._context, table, head, request) for _, head in heads]
            found = [(each, group) for each in looked for group in each.groups(compaction)]
            groups = tuple(each.described(group, compaction) for each, group in found[: request.max_groups])
            return DeleteRewrites(groups, last, len(found), compaction.pace)


@dataclass(frozen=True, slots=True)
class _Delete:
    """A live position delete file.

    Attributes:
        file: its entry.
        number: its data sequence number.
        added: the sequence number of the snapshot that added it.
        place: its partition spec and partition, as a plan shows it.
        must: whether it has to be rewritten.
        wanted: whether it can be rewritten.
    """

    file: DataFile
    number: int
    added: int
    place: tuple[int, str]
    must: bool
    wanted: bool

    @property
    def only(self) -> str | None:
        """Return the data file that it is for; None if it can be for several."""
        return only_file(self.file)


class _Head:
    """The position delete files of a branch's head."""

    def __init__(
        self, context: ServiceContext, table: LoadedTable, head: Snapshot, request: DeleteRewriteRequest
    ) -> None:
        self._context, self._table, self._head, self._request = context, table, head, request
        schema = table.metadata.schema()
        self._shown = ShownPartitions(table.metadata.specs(), schema, partition_sources(table))
        self._data, deletes = by_content(context.reader, table, head)
        self._deletes = {each.file.file_path: each for each in self._found(deletes)}

    def groups(self, compaction: Compaction) -> list[list[Candidate]]:
        """Return the groups of files to rewrite."""
        settled = frozenset() if compaction.rewrite_all else self._settled()
        files = [
            Candidate(path, each.file.file_size_in_bytes, each.file.record_count, _key(each.place), each.must)
            for path, each in self._deletes.items()
            if each.wanted and (each.must or path not in settled)
        ]
        return compaction.groups(files)

    def described(self, files: Sequence[Candidate], compaction: Compaction) -> DeleteGroup:
        """Return a group with the data files that its delete files can apply to."""
        group = [self._deletes[file.path] for file in files]
        return DeleteGroup(
            self._request.branch,
            self._head.snapshot_id,
            tuple(file.path for file in files),
            tuple(file.size for file in files),
            tuple(each.number for each in group),
            compaction.outputs(sum(file.size for file in files)),
            tuple(self._data_files(group)),
        )

    def _found(self, manifests: Sequence[OpenManifest]) -> Iterator[_Delete]:
        request, table = self._request, self._table
        if not manifests:
            return
        census = Census(self._context.reader, table)
        loose = frozenset(
            dangling(self._context.reader, table, self._context.reader.manifests(table, self._head))
        )
        scope = RowsOfFilter(
            self._context.keyring, table, request.row_filter, case_sensitive=request.case_sensitive
        )
        for manifest in manifests:
            spec_id = manifest.listed.partition_spec_id
            inside = scope.touches(Files.live(manifest))
            positions = pc.equal(manifest.entries["content"], POSITION_DELETES)
            some = Files(manifest, Files.live(manifest).chosen & np.asarray(positions))
            rows = planned_rows(some.entries, manifest.listed, self._shown)
            columns = (
                data_files(manifest.decoded, some.numbers, spec_id),
                *(rows[name].to_pylist() for name in _READ),
                census.old(some.entries).to_pylist(),
                inside[some.chosen].tolist(),
            )
            for file, number, added, partition, old, touched in zip(*columns, strict=True):
                path = file.file_path
                late = request.sequence_number is not None and added > request.sequence_number
                wanted = touched and not late and path not in request.without
                must = old or path in loose
                yield _Delete(file, number, added, (spec_id, partition), must, wanted)

    def _settled(self) -> frozenset[str]:
        """Return the delete files that would be written as they are: each the only one of its data file."""
        if settings_of(self._table)["granularity"] != _PER_FILE:
            return frozenset()
        mixed = {each.place for each in self._deletes.values() if each.only is None}
        count = Counter(each.only for each in self._deletes.values())
        return frozenset(
            path
            for path, each in self._deletes.items()
            if each.only is not None and count[each.only] == 1 and each.place not in mixed
        )

    def _data_files(self, group: Sequence[_Delete]) -> Iterator[DataFilesOfPartition]:
        """Yield the live data files that delete files of a group can apply to, by partition."""
        reach: dict[tuple[int, str], _Reach] = defaultdict(_Reach)
        for each in group:
            reach[each.place].add(each)
        found: dict[tuple[int, str], list[tuple[str, int]]] = defaultdict(list)
        for manifest in self._data:
            spec_id = manifest.listed.partition_spec_id
            if all(place[0] != spec_id for place in reach):
                continue
            rows = planned_rows(Files.live(manifest).entries, manifest.listed, self._shown)
            columns = (rows[name].to_pylist() for name in ("partition", "file_path", "sequence_number"))
            for partition, path, number in zip(*columns, strict=True):
                place = (spec_id, partition)
                if place in reach and reach[place].covers(path, number):
                    found[place].append((path, number))
        for (spec_id, partition), files in found.items():
            paths, numbers = zip(*files, strict=True)
            yield DataFilesOfPartition(spec_id, partition, paths, numbers)


class _Reach:
    """The data files that some delete files of a partition can apply to, or some more."""

    def __init__(self) -> None:
        self._only: set[str] = set()
        self._lowest: bytes | None = None
        self._highest: bytes | None = b""
        self._several = False
        self._latest = -1

    def add(self, delete: _Delete) -> None:
        """Add a delete file."""
        self._latest = max(self._latest, delete.number)
        if delete.only is not None:
            self._only.add(delete.only)
            return
        lower, upper = path_bounds(delete.file)
        known = self._lowest if self._several else lower
        self._lowest = None if lower is None or known is None else min(known, lower)
        self._highest = None if upper is None or self._highest is None else max(self._highest, upper)
        self._several = True

    def covers(self, path: str, number: int) -> bool:
        """Return whether one of them can apply to a data file."""
        if number > self._latest:
            return False
        return path in self._only or (self._several and self._is_between(path.encode()))

    def _is_between(self, path: bytes) -> bool:
        return (self._lowest is None or self._lowest <= path) and (
            self._highest is None or path <= self._highest
        )


def _key(place: tuple[int, str]) -> str:
    return f"{place[0]} {place[1]}"
