"""Answers what a user asks of a metadata table, page by page.

- `snapshots`, `history`, `refs` and `metadata_log_entries` take what loading the table takes. All others also
  need SELECT, unmasked, on a column of the table, as a scan does. `sight` decides what is shown.
- A page of files reads the manifests from where it begins, and stops as soon as it has enough rows: no more
  than that is in memory, whatever the number of files. `partitions` counts all files of the snapshot at once.
- `all_…` tables read the manifests of every retained snapshot, each manifest once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StructType

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Authorizer, Caller, Records
from catalog.authorization.shown import SummaryRule
from catalog.authorization.table_access import sees_paths
from catalog.base.errors import NoSuchTable, TableExists
from catalog.base.identifiers import MAX_LEVELS, MAX_NAMESPACE_LENGTH, TableName
from catalog.context import ServiceContext
from catalog.iceberg.manifests import ManifestContent, ManifestListEntry
from catalog.metadata_tables import history
from catalog.metadata_tables.arrow import arrow_field, struct_array
from catalog.metadata_tables.files import FileRows, Part, Partitions
from catalog.metadata_tables.kinds import (
    OF_DATA,
    OF_DELETES,
    OF_ENTRIES,
    OF_METADATA,
    OF_SNAPSHOT,
    MetadataTable,
)
from catalog.metadata_tables.manifests import ManifestRows
from catalog.metadata_tables.metrics import MAPS
from catalog.metadata_tables.pages import Page, PageRequest, Position, no_page_token, state_of
from catalog.metadata_tables.partitions import PartitionRows
from catalog.metadata_tables.schemas import has, schema_of, selected
from catalog.metadata_tables.sight import ACTION, Sight, require_column, require_load, sight_of
from catalog.planning.gathering import Gathered, gathered
from catalog.planning.opening import opened, require_sight, snapshot_of
from catalog.reading.loading import LoadedTable
from catalog.snapshot_checks.entries import DELETED
from policy.errors import NotSupportedYet, RequestInvalid
from policy.privileges.operations import required

#: Entries of a page, deleted ones too, and values in its columns with a value for each column of the table.
_PAGE_ROWS: Final = 8192
_PAGE_VALUES: Final = 400_000
#: Manifests whose seals are looked up together.
_OPENED_TOGETHER: Final = 64


class MetadataTables:
    """Answers metadata tables.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def page(self, caller: Caller, name: TableName, request: PageRequest) -> Page:
        """Return a page of a metadata table.

        Raises:
            NotAuthorized: the user sees no column of the table.
            RequestInvalid: a column or snapshot that there is not, or a page token that is none.
            NotSupportedYet: an earlier snapshot of a metadata table that is of all snapshots.
            ConcurrentModification: the table was changed since the first page.
            TableExists: there is a table of the metadata table's name, which the user can see.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: the table breaks a rule.
            EncryptionPolicyViolation, DecryptionRefused, KeyNotUsable, KmsUnavailable: encrypted statistics
                are asked for, and cannot be opened.
        """
        with Records() as records:
            return self._page(caller, name, request, records)

    def _page(self, caller: Caller, name: TableName, request: PageRequest, records: Records) -> Page:
        authorizer = self._context.authorizer.settled(records)
        on = self._context.on(caller, name)
        require_sight(authorizer, caller, name, on, ACTION)
        with authorizer.recorded(caller, ACTION, str(name), show_path=sees_paths(authorizer, on)):
            table = opened(self._context, authorizer, caller, name, on, ACTION)
            if request.token is None:
                self._refuse_real(authorizer, caller, name, request.kind)
            snapshot = _snapshot(table, request)
            columns = _columns(table, request, Sight.everything(table))
            sight = self._sight(authorizer, caller, table, request, columns)
            columns = _columns(table, request, sight)
            reading = _Reading(self._context, table, snapshot, request.kind, columns, sight)
            position = Position.parse(request.token, state_of(table, reading.pinned), table.name)
            batches, following = reading.page(position) if request.rows else ((), None)
            note("metadata table", request.kind.value)
            return Page(
                table=table,
                kind=request.kind,
                columns=columns,
                snapshot_id=reading.pinned,
                principal=caller.principal.name,
                policy_version=authorizer.policies().version,
                valid_ms=self._context.settings.plan_valid_ms,
                hidden=tuple(_hidden(table, columns, sight)),
                batches=tuple(batches),
                schema=reading.schema,
                next_token=None if following is None else following.token,
            )

    def _refuse_real(
        self, authorizer: Authorizer, caller: Caller, name: TableName, kind: MetadataTable
    ) -> None:
        """Refuse a metadata table whose name is that of a table, as Iceberg does. Only users with a privilege
        on that table are told of it."""
        if len(name.namespace) >= MAX_LEVELS or len(str(name)) > MAX_NAMESPACE_LENGTH:
            return
        real = TableName((*name.namespace, name.name), kind.value)
        if not authorizer.decide(required("table.exists", self._context.on(caller, real))).allowed:
            return
        with suppress(NoSuchTable):
            self._context.loader.record(real)
            raise TableExists(
                f"{real} is a table, and not the metadata table {kind} of {name}.",
                table=str(real),
                rule="metadata-table",
                hint="Load the table.",
            )

    def _sight(
        self,
        authorizer: Authorizer,
        caller: Caller,
        table: LoadedTable,
        request: PageRequest,
        columns: StructType,
    ) -> Sight:
        described = has(columns, *MAPS, "readable_metrics")
        sight = sight_of(authorizer, caller, table, None if described else frozenset())
        if request.kind in OF_METADATA:
            require_load(authorizer, caller, table)
        else:
            require_column(authorizer, caller, table, sight)
        return sight


def _snapshot(table: LoadedTable, request: PageRequest) -> Snapshot | None:
    if request.kind in OF_SNAPSHOT:
        return snapshot_of(table, request)
    if request.chooses_snapshot:
        raise NotSupportedYet(
            f"The metadata table {request.kind} is not of one snapshot, so it has no earlier state.",
            table=table.name,
            rule="metadata-table",
            hint="Leave the snapshot out.",
        )
    return None


def _columns(table: LoadedTable, request: PageRequest, sight: Sight) -> StructType:
    struct = schema_of(request.kind, table.metadata, paths=sight.paths, sources=sight.sources)
    try:
        return selected(struct, request.columns)
    except KeyError as unknown:
        raise RequestInvalid(
            f"The metadata table {request.kind} has no column {unknown.args[0]!a:.80}.",
            table=table.name,
            rule="column",
            hint="Use the names in the schema of the metadata table.",
        ) from None


def _hidden(table: LoadedTable, columns: StructType, sight: Sight) -> Iterator[str]:
    for name in ("file_path", "referenced_data_file"):
        if not sight.paths and has(columns, name):
            yield name
    if has(columns, "partition"):
        yield from (f"partition.{each}" for each in Partitions(table, sight).hidden)


class _Reading:
    """Reads the rows of one metadata table.

    Args:
        context: the parts that services share.
        table: the table.
        snapshot: the snapshot; None for a table without rows, or a metadata table that is of none.
        kind: the metadata table.
        columns: those that are asked for.
        sight: what is shown.
    """

    def __init__(
        self,
        context: ServiceContext,
        table: LoadedTable,
        snapshot: Snapshot | None,
        kind: MetadataTable,
        columns: StructType,
        sight: Sight,
    ) -> None:
        self._reader = context.reader
        self._table = table
        self._snapshot = snapshot
        self._kind = kind
        self._columns = columns
        self._sight = sight
        self._files = FileRows(context.keyring, table, sight)
        self.schema = pa.schema([arrow_field(each) for each in columns.fields])

    @property
    def pinned(self) -> int | None:
        """The snapshot that the rows are of, whatever comes later."""
        return None if self._snapshot is None else self._snapshot.snapshot_id

    def page(self, position: Position) -> tuple[Iterable[pa.RecordBatch], Position | None]:
        """Return the rows from a position on, and where the next page begins."""
        match self._kind:
            case kind if kind in OF_METADATA:
                rows = history.rows_of(kind, self._table, SummaryRule(self._sight.rows, self._sight.sources))
                return [self._batch(list(rows))], None
            case MetadataTable.MANIFESTS:
                rows = ManifestRows(self._table.metadata, self._sight).rows(self._listed())
                return [self._batch(list(rows))], None
            case MetadataTable.ALL_MANIFESTS:
                return self._all_manifests(position)
            case MetadataTable.PARTITIONS:
                return [self._partitions()], None
            case MetadataTable.POSITION_DELETES:
                raise NotSupportedYet(
                    "The rows of position_deletes are in delete files, which the catalog does not read.",
                    table=self._table.name,
                    rule="metadata-table",
                    hint="Ask for a plan of position deletes.",
                )
            case _:
                return self._entries(position)

    def _batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return rows by name as a batch."""
        arrays = [pa.array([each.get(kind.name) for each in rows], kind.type) for kind in self.schema]
        return self._of(arrays, len(rows))

    def _of(self, arrays: Sequence[pa.Array], count: int) -> pa.RecordBatch:
        if not arrays:
            return pa.RecordBatch.from_struct_array(struct_array(StructType(), (), count))
        return pa.RecordBatch.from_arrays(list(arrays), schema=self.schema)

    def _listed(self) -> Sequence[ManifestListEntry]:
        """Return the manifests of the snapshot, or of all snapshots, each once."""
        if self._kind in OF_SNAPSHOT:
            snapshots = [] if self._snapshot is None else [self._snapshot]
        else:
            snapshots = self._table.metadata.snapshots
        found: dict[str, ManifestListEntry] = {}
        for snapshot in snapshots:
            for each in self._reader.manifests(self._table, snapshot):
                found.setdefault(each.manifest_path, each)
        return [each for each in found.values() if self._has_files(each)]

    def _has_files(self, listed: ManifestListEntry) -> bool:
        if self._kind in OF_DATA:
            return listed.content is ManifestContent.DATA
        return self._kind not in OF_DELETES or listed.content is ManifestContent.DELETES

    def _all_manifests(self, position: Position) -> tuple[Iterable[pa.RecordBatch], Position | None]:
        makes, snapshots = ManifestRows(self._table.metadata, self._sight), self._table.metadata.snapshots
        rows: list[Any] = []
        at = position.outer
        while at < len(snapshots) and len(rows) < _PAGE_ROWS:
            listed = self._reader.manifests(self._table, snapshots[at])
            rows += makes.rows(listed, snapshots[at].snapshot_id)
            at += 1
        return [self._batch(rows)], position.at(at) if at < len(snapshots) else None

    def _partitions(self) -> pa.RecordBatch:
        partitions = Partitions(self._table, self._sight)
        counted = PartitionRows(self._table.metadata, partitions)
        for files in self._gathered(self._listed()):
            counted.add(self._part(files))
        rows, values = list(counted.rows()), counted.values()
        struct = next((each for each in self._columns.fields if each.name == "partition"), None)
        arrays = []
        for kind in self.schema:
            if struct is not None and kind.name == "partition" and isinstance(struct.field_type, StructType):
                arrays.append(_partition(struct.field_type, partitions.names, values, len(rows)))
            else:
                arrays.append(pa.array([each[kind.name] for each in rows], kind.type))
        return self._of(arrays, len(rows))

    def _gathered(self, listed: Sequence[ManifestListEntry]) -> Iterator[Gathered]:
        """Return the entries of manifests, small ones together."""
        return gathered(self._reader.open(self._table, listed))

    def _part(self, files: Gathered, first: int = 0, count: int | None = None) -> Part:
        """Return those of some entries that are shown: live ones, or all of them."""
        entries, statistics = files.entries.slice(first, count), files.decoded.statistics.slice(first, count)
        if self._kind in OF_ENTRIES:
            return Part(files.listed, entries, statistics)
        live = pc.not_equal(entries["status"], DELETED)
        return Part(files.listed, entries.filter(live), statistics.filter(live))

    def _entries(self, position: Position) -> tuple[Iterable[pa.RecordBatch], Position | None]:
        listed, left = self._listed(), self._page_rows
        batches: list[pa.RecordBatch] = []
        at, row = position.outer, position.row
        while at < len(listed):
            for files in self._gathered(listed[at : at + _OPENED_TOGETHER]):
                if row > 0 and row >= len(files.manifests[0].decoded):
                    # Rows that are not there would count as room in the page.
                    raise no_page_token(self._table.name)
                part = self._part(files, row, left)
                batches.append(self._of(self._files.columns(self._columns, part), len(part.entries)))
                until = min(row + left, len(files.entries))
                left -= until - row
                for size in (len(each.decoded) for each in files.manifests):
                    if until < size:
                        return batches, position.at(at, until)
                    at, until = at + 1, until - size
                row = 0
                if left <= 0 and at < len(listed):
                    return batches, position.at(at)
        return batches, None

    @property
    def _page_rows(self) -> int:
        """How many rows a page has; fewer where each has values of many columns."""
        if not has(self._columns, *MAPS, "readable_metrics"):
            return _PAGE_ROWS
        columns = len(self._table.metadata.schema().field_ids)
        return max(1, min(_PAGE_ROWS, _PAGE_VALUES // max(columns, 1)))


def _partition(
    kind: StructType, names: Sequence[str], values: Sequence[pa.ChunkedArray], count: int
) -> pa.StructArray:
    by_name = dict(zip(names, values, strict=True)) if values else {}
    find: Callable[[str, pa.DataType], pa.Array] = partial(_found, by_name, count)
    arrays = [find(each.name, arrow_field(each).type) for each in kind.fields]
    return struct_array(kind, arrays, count)


def _found(by_name: dict[str, pa.ChunkedArray], count: int, name: str, kind: pa.DataType) -> pa.Array:
    return by_name[name].combine_chunks() if name in by_name else pa.nulls(count, kind)
