"""Reads the files of one plan: the wanted rows, in batches or at once, or their number.

Rows are filtered again after they were read, since plans and statistics leave out whole files and row groups
alone. Under a row filter or masks of policies that filter sees what the user does: visible rows, and masked
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import NestedField

from catalog.base.progress import Progress
from catalog.client import filters
from catalog.client.batches import rebatched
from catalog.client.columns import arrow_schema
from catalog.client.deletes import DeletedRows
from catalog.client.errors import TableChanged
from catalog.client.files import opened
from catalog.client.late_materialization import Sieve
from catalog.client.plan import Plan, PlannedFile
from catalog.client.restricted import Restricted
from catalog.iceberg.selection import all_ids, with_entries
from catalog.storage.base import Storage
from policy.errors import RequestInvalid
from policy.nearest import did_you_mean, listed

_ANSWER = TypeVar("_ANSWER")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a table.

    Attributes:
        columns: names of columns, nested ones dotted; None for all.
        filter: rows that are wanted.
        case_sensitive: whether names are.
        limit: how many rows at the most; None for all.
    """

    columns: tuple[str, ...] | None
    filter: BooleanExpression
    case_sensitive: bool = True
    limit: int | None = None


class Run:
    """One reading by a plan.

    Args:
        storage: where the files lie.
        plan: the plan.
        again: asks for the plan again.
        wanted: what is read of it.
        progress: whether a bar can be shown.
    """

    def __init__(
        self, storage: Storage, plan: Plan, again: Callable[[], Plan], wanted: Wanted, *, progress: bool
    ) -> None:
        self._storage = storage
        self._plan = plan
        self._again = again
        self._limit = wanted.limit
        self._until = monotonic() + plan.valid_ms / 1000
        self.columns = chosen(plan.schema, wanted.columns, wanted.case_sensitive)
        names = None if wanted.columns is None else (*wanted.columns, *filters.terms(wanted.filter))
        self._read = chosen(plan.schema, names, wanted.case_sensitive)
        schema = Schema(*self._read)
        self._bound = filters.bound(wanted.filter, schema, case_sensitive=wanted.case_sensitive)
        self._keep = None if self._bound is None else filters.row_filter(self._bound, schema)
        self._sieve = None
        self._skipping = self._bound
        self._restricted = None
        if plan.restriction:
            self._restricted = Restricted(plan.restriction, self._read, plan.schema)
            self._skipping = _told(self._bound, self._restricted.masked)
        elif self._bound is not None and self._keep is not None:
            self._sieve = Sieve.of(self._read, self._bound, self._keep)
        self._hides = self._restricted is not None and self._restricted.hides_rows
        self._progress = progress and not self._hides

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The wanted rows, file after file; a plan that has grown old is asked for again first."""
        if self._limit == 0:
            return
        self._renew()
        left = self._limit
        deleted = DeletedRows(self._plan, self._storage)
        with self._bar() as bar:
            for file in self._plan.files:
                for batch in self._batches_of(file, deleted, bar, left):
                    yield batch if left is None else batch.slice(0, left)
                    left = None if left is None else left - batch.num_rows
                    if left is not None and left <= 0:
                        return

    def at_once(self) -> list[pa.RecordBatch]:
        """The same, several files at a time where all rows are wanted."""
        if self._limit is not None:
            return list(self.batches())
        found = self._of_each(lambda file, deleted, bar: list(self._batches_of(file, deleted, bar)))
        return [batch for each in found for batch in each]

    def count(self) -> int:
        """The number of the wanted rows.

        A file is only read if a filter applies, or rows of it are deleted. Of others the sealed manifest has
        the number.
        """
        counts = self._of_each(self._count_of)
        return sum(counts) if self._limit is None else min(self._limit, sum(counts))

    def _count_of(self, file: PlannedFile, deleted: DeletedRows, bar: Progress) -> int:
        if self._keep is None and not self._hides and not file.deletes:
            bar.advance(file.records)
            return file.records
        return sum(each.num_rows for each in self._read_of(file, deleted, bar))

    def _of_each(self, work: Callable[[PlannedFile, DeletedRows, Progress], _ANSWER]) -> list[_ANSWER]:
        """Do something with each file, several at a time."""
        deleted = DeletedRows(self._plan, self._storage)
        with self._bar() as bar, ThreadPoolExecutor(pa.cpu_count()) as pool:
            begun = [pool.submit(work, each, deleted, bar) for each in self._plan.files]
            try:
                return [each.result() for each in begun]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _bar(self) -> Progress:
        rows = sum(each.records for each in self._plan.files)
        return Progress(f"Reading {self._plan.table}", rows, shown=self._progress)

    def _batches_of(
        self, file: PlannedFile, deleted: DeletedRows, bar: Progress, most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        batches = self._read_of(file, deleted, bar, most)
        return rebatched(batches) if self._hides else batches

    def _read_of(
        self, file: PlannedFile, deleted: DeletedRows, bar: Progress, most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The wanted rows of a file as its row groups have them.

        Args:
            most: the number of rows that is enough; there can be more.
        """
        gone = deleted.of(file)
        equal = deleted.equality_of(file)
        shown = self._read if self._restricted is None else self._restricted.read
        read = shown if equal is None else equal.beside(shown)
        if self._keep is not None or self._hides or file.deletes:
            most = None
        with opened(self._plan, file, self._storage, read, bar.advance) as source:
            if self._sieve is not None and equal is None:
                for rows in self._sieve.rows(source, gone):
                    yield from _narrowed(rows, self.columns).to_batches()
                return
            for start, rows in source.row_groups(read, self._skipping, most):
                left = rows if gone is None else rows.filter(gone.kept(start, start + rows.num_rows))
                if equal is not None:
                    left = left.filter(equal.kept(left, read))
                yield from self._wanted(self._shown(left, read)).to_batches()

    def _shown(self, rows: pa.Table, fields: Sequence[NestedField]) -> pa.Table:
        """The rows and columns that the user's filter may look at."""
        if self._restricted is not None:
            return self._restricted.shown(rows, fields)
        return rows if fields is self._read else _narrowed(rows, self._read)

    def _renew(self) -> None:
        """Ask for the plan again if it has grown old."""
        if monotonic() <= self._until:
            return
        renewed = self._again()
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


def chosen(schema: Schema, names: Sequence[str] | None, case_sensitive: bool) -> tuple[NestedField, ...]:
    """Columns of a schema by name, in the order in which they are named first.

    Raises:
        RequestInvalid: the schema has no such column.
    """
    if names is None:
        return schema.as_struct().fields
    try:
        order = [schema.find_field(each, case_sensitive).field_id for each in names]
    except ValueError as error:
        raise _unknown(schema, names, case_sensitive) from error
    picked = prune_columns(schema, set(with_entries(schema, order))).as_struct().fields
    parents = {below: each.field_id for each in picked for below in all_ids((each,))}
    first = {
        field_id: place for place, field_id in reversed(list(enumerate(map(parents.__getitem__, order))))
    }
    return tuple(sorted(picked, key=lambda each: first[each.field_id]))


def _unknown(schema: Schema, names: Sequence[str], case_sensitive: bool) -> RequestInvalid:
    """The refusal of a name that the schema does not have."""
    known = schema.column_names
    there = set(known) if case_sensitive else {each.lower() for each in known}
    name = next(each for each in names if (each if case_sensitive else each.lower()) not in there)
    return RequestInvalid(
        f"Column {name!r} does not exist.",
        rule="column",
        hint=f"{did_you_mean(name, known)}Columns: {listed(each.name for each in schema.fields)}.",
    )


def _narrowed(rows: pa.Table, wanted: Sequence[NestedField]) -> pa.Table:
    """Some columns of rows, nested ones too."""
    schema = arrow_schema(wanted)
    columns = [_part(rows.column(each.name), each.type) for each in schema]
    if not columns:
        return rows.select([])
    return pa.table(columns, schema=schema)


def _part(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)
