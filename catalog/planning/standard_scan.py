"""Finds the files of a standard client's scan, once it is known that the client can have them.

`catalog.planning.standard` authorizes; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from catalog.audit.outcomes import note
from catalog.authorization.columns import resolve
from catalog.iceberg.filter_values import filtered_columns, typed
from catalog.iceberg.manifests import ManifestListEntry
from catalog.iceberg.partition_values import ListedPartitions
from catalog.planning.file_statistics import FileStatistics
from catalog.planning.increments import appends, end_of
from catalog.planning.masks import weakened
from catalog.planning.opening import snapshot_of
from catalog.planning.prune import Pruner
from catalog.planning.residuals import Residuals
from catalog.planning.rows import empty_rows
from catalog.planning.scan_files import ScanFiles
from catalog.planning.standard_request import StandardScan
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from policy.errors import RequestInvalid
from policy.restrictions.model import Restriction
from policy.restrictions.predicate import TRUE

#: Metadata columns of Iceberg, which clients select like columns of the table.
_METADATA_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
_ALL: Final = AlwaysTrue()
_DATA: Final = 0


@dataclass(frozen=True, slots=True)
class StandardPlan:
    """A plan, or a part of one.

    Attributes:
        plan_tasks: the parts to fetch.
        files: data files, then the delete files that apply to them; see `catalog.planning.rows`.
        data_files: the number of data files that the client gets.
        left: what is left of the filter in their partitions; None without files.
        statistics: JSON members of each data file; None if nobody asked for them.
        plan_id: of a plan that is answered in parts; else None.
    """

    plan_tasks: tuple[str, ...]
    files: pa.Table
    data_files: int = 0
    left: Left | None = None
    statistics: Sequence[Mapping[str, object]] | None = None
    plan_id: str | None = None

    def paths(self) -> list[str]:
        """Return the files that the client gets: data files, and the delete files that apply to them."""
        rest = pc.not_equal(self.files["content"], _DATA)
        deletes: list[str] = self.files["file_path"].filter(rest).to_pylist()
        return [*self.files["file_path"].slice(0, self.data_files).to_pylist(), *deletes]


class Left:
    """What is left of a scan's filter in the partitions of its files."""

    def __init__(self, ready: ReadyScan) -> None:
        metadata = ready.table.metadata
        self._values = ready.partitions.values
        self._residuals = Residuals(
            ready.schema,
            metadata.specs(),
            ready.filter,
            frozenset(metadata.schema().field_ids),
            case_sensitive=ready.scan.case_sensitive,
        )
        self._found: dict[tuple[int, str], BooleanExpression] = {}

    def of(self, spec_id: int, partition: str) -> BooleanExpression:
        """Return what is left of the filter in a partition, by its spec and its text in a plan."""
        key = (spec_id, partition)
        if key not in self._found:
            self._found[key] = self._residuals.of(spec_id, self._values.get(key, ()))
        return self._found[key]


@dataclass(frozen=True, slots=True)
class ReadyScan:
    """A scan that is ready to be planned.

    Attributes:
        table: the table.
        scan: what is asked for, with its snapshots and schema.
        schema: the schema that its names are of.
        sources: the snapshots that are read.
        filter: the filter, without conditions on masked columns.
        counts: whether the rows that files have are those that the client shows.
        files: finds the files.
        partitions: their partitions.
        statistics: their statistics; None if nobody asked for them.
    """

    table: LoadedTable
    scan: StandardScan
    schema: Schema
    sources: Sequence[Snapshot]
    filter: BooleanExpression
    counts: bool
    files: ScanFiles
    partitions: ListedPartitions
    statistics: FileStatistics | None

    @classmethod
    def of(
        cls,
        reader: SnapshotReader,
        table: LoadedTable,
        restriction: Restriction,
        scan: StandardScan,
        statistics: FileStatistics | None,
    ) -> Self:
        """Prepare a scan.

        Args:
            reader: opens manifests.
            table: the table.
            restriction: what the client enforces.
            scan: what is asked for, with its snapshots and schema (`pinned`).
            statistics: takes the statistics of the files; None if nobody asked for them.

        Raises:
            RequestInvalid: a column or snapshot that the table does not have.
        """
        specs, schema = table.metadata.specs(), schema_of(table, scan)
        scan = replace(scan, filter=typed(scan.filter, schema, case_sensitive=scan.case_sensitive))
        request = scan.to_request()
        if scan.is_incremental:
            sources = appends(table, request, end_of(table, request))
        else:
            current = snapshot_of(table, request)
            sources = [current] if current else []
        columns = None if scan.columns is None else columns_among(schema, scan.columns)
        read = resolve(table, schema, columns, scan.filter, case_sensitive=scan.case_sensitive)
        masked = frozenset(restriction.masks)
        row_filter = weakened(scan.filter, schema, masked, case_sensitive=scan.case_sensitive)
        partitions = ListedPartitions(specs, table.metadata.schema())
        pruner = Pruner(schema, specs, row_filter, case_sensitive=scan.case_sensitive)
        files = ScanFiles(reader, table, schema, request, partitions, pruner, statistics=statistics)
        note("columns", ", ".join(schema.find_column_name(each) or "" for each in read.top_level))
        note("snapshot", scan.end_snapshot_id or scan.snapshot_id)
        if scan.is_incremental:
            note("start", scan.start_snapshot_id)
        counts = restriction.row_filter == TRUE
        return cls(table, scan, schema, sources, row_filter, counts, files, partitions, statistics)

    def listed(self) -> list[ManifestListEntry]:
        """Return the manifests of the scan, in an order that stays."""
        return self.files.listed(self.sources)

    def planned(self, listed: Sequence[ManifestListEntry], places: Sequence[int]) -> StandardPlan:
        """Return the files of some manifests.

        Args:
            listed: all manifests of the scan.
            places: the positions of those whose data files are planned.

        Raises:
            LocationNotAllowed, MetadataTampered, MetadataInvalid: see `SnapshotReader.open`.
        """
        files = empty_rows()
        if self.sources:
            files, _ = self.files.rows(self.sources, listed, [listed[place] for place in places])
        left = Left(self)
        count = self._enough(files, left)
        note("files", count)
        note("rows", pc.sum(files["record_count"].slice(0, count)).as_py() or 0)
        members = None if self.statistics is None else self.statistics.members
        return StandardPlan((), files, count, left, members)

    def _enough(self, files: pa.Table, left: Left) -> int:
        """Return how many of the data files have enough rows for the client.

        Only files count whose rows the client keeps all: no condition is left, and no delete file applies.
        """
        data: int = pc.sum(pc.equal(files["content"], _DATA)).as_py() or 0
        wanted = self.scan.min_rows
        if not wanted or not self.counts:
            return data
        columns = (files[name].to_pylist() for name in ("spec_id", "partition", "deletes", "record_count"))
        rows = 0
        for place, (spec_id, partition, deletes, records) in enumerate(zip(*columns, strict=True)):
            if place == data or rows >= wanted:
                return place
            if deletes is None and left.of(spec_id, partition) == _ALL:
                rows += records
        return data


def schema_of(table: LoadedTable, scan: StandardScan) -> Schema:
    """Return the schema that the names of a scan are of."""
    return table.metadata.schema_by_id(scan.schema_id or 0) or table.metadata.schema()


def pinned(table: LoadedTable, scan: StandardScan) -> StandardScan:
    """Return the scan with the snapshot that it reads, and the schema that its names are of.

    Raises:
        RequestInvalid: there is no such snapshot, or a name is of two columns.
    """
    request, metadata = scan.to_request(), table.metadata
    snapshot = end_of(table, request) if scan.is_incremental else snapshot_of(table, request)
    schema = metadata.schema()
    if scan.use_snapshot_schema and snapshot is not None and snapshot.schema_id is not None:
        schema = _meant(table, scan, metadata.schema_by_id(snapshot.schema_id) or schema)
    if not scan.is_incremental and snapshot is not None:
        scan = replace(scan, snapshot_id=snapshot.snapshot_id)
    return replace(scan, schema_id=schema.schema_id)


def _meant(table: LoadedTable, scan: StandardScan, of_snapshot: Schema) -> Schema:
    """Return the schema that the names are of, where a scan says that they are of its snapshot's schema.

    Iceberg's Java library 1.11 says so of every scan in Spark, whose names are those of the current schema
    unless it reads the past. The current schema is meant if it has all names.

    Raises:
        RequestInvalid: both have them, and files would be found by different columns.
    """
    decisive = {*filtered_columns(scan.filter), *scan.stats_fields}
    found = []
    for schema in (table.metadata.schema(), of_snapshot):
        names = {*decisive, *columns_among(schema, scan.columns or ())}
        fields = {name: _field_id(schema, name, scan.case_sensitive) for name in names}
        if None not in fields.values():
            found.append((schema, {name: fields[name] for name in decisive}))
    if len(found) == 2 and found[0][1] != found[1][1]:
        name = min(name for name in decisive if found[0][1][name] != found[1][1][name])
        raise RequestInvalid(
            f"Column {name} of the snapshot's schema is another one than column {name} of the table.",
            table=table.name,
            rule="ambiguous-column",
            hint="Send use-snapshot-schema=false, or plan the scan in the client.",
        )
    return found[0][0] if found else of_snapshot


def _field_id(schema: Schema, name: str, case_sensitive: bool) -> int | None:
    try:
        return schema.find_field(name, case_sensitive).field_id
    except ValueError:
        return None


def is_there(table: LoadedTable, scan: StandardScan) -> bool:
    """Return whether the table still has the snapshots and the schema of a scan."""
    snapshots = (scan.snapshot_id, scan.start_snapshot_id, scan.end_snapshot_id)
    metadata = table.metadata
    return metadata.schema_by_id(scan.schema_id or 0) is not None and all(
        metadata.snapshot_by_id(each) is not None for each in snapshots if each is not None
    )


def columns_among(schema: Schema, names: Sequence[str]) -> list[str]:
    """Return the names that are not metadata columns; a column of the table stands for itself."""
    own = {each.name for each in schema.fields}
    return [
        each for each in names if (first := each.partition(".")[0]) in own or first not in _METADATA_COLUMNS
    ]


def parts_of(
    listed: Sequence[ManifestListEntry], data: Sequence[ManifestListEntry], limit: int
) -> list[tuple[int, ...]]:
    """Group manifests, so that each group has at most `limit` files, or is one manifest.

    Returns:
        their positions in the list.
    """
    places = {id(each): place for place, each in enumerate(listed)}
    parts: list[list[int]] = []
    room = 0
    for each in data:
        files = _files_of(each, limit)
        if not parts or files > room:
            parts.append([])
            room = limit
        parts[-1].append(places[id(each)])
        room -= files
    return [tuple(each) for each in parts]


def _files_of(listed: ManifestListEntry, limit: int) -> int:
    """Return how many live files a manifest has; `limit` if the list does not say."""
    added, existing = listed.added_files_count, listed.existing_files_count
    return limit if added is None or existing is None else added + existing
