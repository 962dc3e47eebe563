"""A scan of a table: columns, filter, snapshot, and the methods that read it.

Each run asks the catalog for a plan of its own, as the user: what was taken away meanwhile refuses it.
Columns and filters are sent as they are; the catalog decides before PyArrow sees anything. Rows are filtered
again after they were read, since plans and statistics leave out whole files and row groups alone. Under a row
filter or masks of policies that filter sees what the user does: visible rows, and masked values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField

from catalog.base.identifiers import TableName
from catalog.client import filters, frames
from catalog.client import plan as plans
from catalog.client.batches import rebatched
from catalog.client.columns import arrow_schema
from catalog.client.deletes import DeletedRows
from catalog.client.errors import TableChanged
from catalog.client.files import opened
from catalog.client.http import CatalogClient, table_path
from catalog.client.late_materialization import Sieve
from catalog.client.plan import Plan, PlannedFile
from catalog.client.restricted import Restricted
from catalog.iceberg.selection import all_ids, with_entries
from catalog.storage.base import Storage
from policy.errors import RequestInvalid


@dataclass(frozen=True, slots=True)
class Scan:
    """What is to be read; nothing is asked or read before one of the methods is called.

    Attributes:
        table: the table.
        columns: names of columns, nested ones dotted; None for all.
        filter: rows that are wanted.
        snapshot_id: the snapshot, or
        ref: the branch or tag, or
        as_of_ms: the time, in milliseconds since 1970, as of which to read; by default the current snapshot.
        case_sensitive: whether names are.
    """

    client: CatalogClient = field(repr=False)
    storage: Storage = field(repr=False)
    table: TableName
    columns: tuple[str, ...] | None
    filter: BooleanExpression
    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None
    case_sensitive: bool = True

    def to_arrow(self) -> pa.Table:
        """All wanted rows.

        Raises:
            NotAuthorized: a column, or a key, is not granted.
            RequestInvalid: a column, snapshot, branch or tag that the table does not have.
            LocationNotAllowed, DecryptionRefused, DataFileDamaged, DataFileMissing: a file that is not read.
            CatalogUnavailable, KmsUnavailable, StorageUnavailable: a part does not answer.
        """
        run = _Run(self, self._plan())
        return pa.Table.from_batches(run.at_once(), arrow_schema(run.columns))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The wanted rows in batches, file after file; errors as in `to_arrow`, also in between."""
        with self.to_reader() as reader:
            yield from reader

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of the wanted rows in batches; errors as in `to_arrow`, also while it is read."""
        run = _Run(self, self._plan())
        return pa.RecordBatchReader.from_batches(arrow_schema(run.columns), run.batches())

    def to_pandas(self) -> Any:
        """All wanted rows as a DataFrame of pandas; errors as in `to_arrow`.

        Raises:
            NotSupportedYet: pandas is not installed.
        """
        return frames.to_pandas(self.to_arrow(), str(self.table))

    def to_polars(self) -> Any:
        """All wanted rows as a DataFrame of Polars; errors as in `to_arrow`.

        Raises:
            NotSupportedYet: Polars is not installed.
        """
        return frames.to_polars(self.to_arrow(), str(self.table))

    def _plan(self) -> Plan:
        body: dict[str, Any] = {
            "snapshot-id": self.snapshot_id,
            "ref": self.ref,
            "as-of-ms": self.as_of_ms,
            "case-sensitive": self.case_sensitive,
        }
        body = {name: value for name, value in body.items() if value is not None}
        if self.columns is not None:
            body["columns"] = list(dict.fromkeys([*self.columns, *filters.terms(self.filter)]))
        if self.client.is_engine:
            body["enforces"] = ["read-restrictions"]
        pushed = filters.to_json(self.filter)
        if pushed is not None:
            body["filter"] = pushed
        with self.client.stream(table_path(self.table, "plan"), body) as stream:
            return plans.parse(stream)


class _Run:
    """One reading of a scan."""

    def __init__(self, scan: Scan, plan: Plan) -> None:
        self._scan = scan
        self._plan = plan
        self._until = monotonic() + plan.valid_ms / 1000
        self.columns = _chosen(plan.schema, scan.columns, scan.case_sensitive)
        names = None if scan.columns is None else (*scan.columns, *filters.terms(scan.filter))
        self._read = _chosen(plan.schema, names, scan.case_sensitive)
        schema = Schema(*self._read)
        self._bound = filters.bound(scan.filter, schema, case_sensitive=scan.case_sensitive)
        self._keep = None if self._bound is None else filters.row_filter(self._bound, schema)
        self._sieve = None
        self._skipping = self._bound
        self._restricted = None
        if plan.restriction:
            self._restricted = Restricted(plan.restriction, self._read, plan.schema)
            self._skipping = _told(self._bound, self._restricted.masked)
        elif self._bound is not None and self._keep is not None:
            self._sieve = Sieve.of(self._read, self._bound, self._keep)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The wanted rows, file after file; a plan that has grown old is asked for again first."""
        self._renew()
        deleted = DeletedRows(self._plan, self._scan.storage)
        for file in self._plan.files:
            yield from self._batches_of(file, deleted)

    def at_once(self) -> list[pa.RecordBatch]:
        """The same, several files at a time."""
        deleted = DeletedRows(self._plan, self._scan.storage)
        with ThreadPoolExecutor(pa.cpu_count()) as pool:
            reading = [pool.submit(self._all_of, each, deleted) for each in self._plan.files]
            try:
                return [batch for each in reading for batch in each.result()]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _batches_of(self, file: PlannedFile, deleted: DeletedRows) -> Iterator[pa.RecordBatch]:
        batches = self._read_of(file, deleted)
        hides = self._restricted is not None and self._restricted.hides_rows
        return rebatched(batches) if hides else batches

    def _read_of(self, file: PlannedFile, deleted: DeletedRows) -> Iterator[pa.RecordBatch]:
        """The wanted rows of a file as its row groups have them."""
        gone = deleted.of(file)
        equal = deleted.equality_of(file)
        shown = self._read if self._restricted is None else self._restricted.read
        read = shown if equal is None else equal.beside(shown)
        with opened(self._plan, file, self._scan.storage, read) as source:
            if self._sieve is not None and equal is None:
                for rows in self._sieve.rows(source, gone):
                    yield from _narrowed(rows, self.columns).to_batches()
                return
            for start, rows in source.row_groups(read, self._skipping):
                left = rows if gone is None else rows.filter(gone.kept(start, start + rows.num_rows))
                if equal is not None:
                    left = left.filter(equal.kept(left, read))
                yield from self._wanted(self._shown(left, read)).to_batches()

    def _shown(self, rows: pa.Table, fields: Sequence[NestedField]) -> pa.Table:
        """The rows and columns that the user's filter may look at."""
        if self._restricted is not None:
            return self._restricted.shown(rows, fields)
        return rows if fields is self._read else _narrowed(rows, self._read)

    def _all_of(self, file: PlannedFile, deleted: DeletedRows) -> list[pa.RecordBatch]:
        return list(self._batches_of(file, deleted))

    def _renew(self) -> None:
        """Ask for the plan again if it has grown old."""
        if monotonic() <= self._until:
            return
        renewed = self._scan._plan()
        before = self._plan
        if (renewed.schema, renewed.restriction) != (before.schema, before.restriction):
            raise TableChanged(
                "The table was changed after the scan was planned.",
                table=self._plan.table,
                rule="table-changed",
                hint="Run the scan again.",
            )
        self._plan = renewed

    def _wanted(self, rows: pa.Table) -> pa.Table:
        kept = rows if self._keep is None else rows.filter(self._keep)
        return kept if self._read == self.columns else _narrowed(kept, self.columns)


def _told(bound: BooleanExpression | None, masked: frozenset[int]) -> BooleanExpression | None:
    """The filter by which row groups are left out; None if it looks at masked columns."""
    return bound if bound is not None and masked.isdisjoint(extract_field_ids(bound)) else None


def _chosen(schema: Schema, names: Sequence[str] | None, case_sensitive: bool) -> tuple[NestedField, ...]:
    """Columns of a schema by name, in the order in which they are named first.

    Raises:
        RequestInvalid: the schema has no such column.
    """
    if names is None:
        return schema.as_struct().fields
    try:
        order = [schema.find_field(each, case_sensitive).field_id for each in names]
    except ValueError as error:
        raise RequestInvalid(
            f"The scan names a column that does not exist: {error}.",
            rule="columns",
            hint=f"Columns: {', '.join(each.name for each in schema.fields)}.",
        ) from error
    picked = prune_columns(schema, set(with_entries(schema, order))).as_struct().fields
    parents = {below: each.field_id for each in picked for below in all_ids((each,))}
    first = {
        field_id: place for place, field_id in reversed(list(enumerate(map(parents.__getitem__, order))))
    }
    return tuple(sorted(picked, key=lambda each: first[each.field_id]))


def _narrowed(rows: pa.Table, wanted: Sequence[NestedField]) -> pa.Table:
    """Some columns of rows, nested ones too."""
    schema = arrow_schema(wanted)
    columns = [_part(rows.column(each.name), each.type) for each in schema]
    if not columns:
        return rows.select([])
    return pa.table(columns, schema=schema)


def _part(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)
