"""Converts appended rows to the table's schema.

Columns are found by name. One that the table does not have is refused, one that the rows do not have is null;
types are widened as Iceberg promotes them. Nothing is rounded or cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from catalog.client.columns import FileColumns, arrow_schema, with_id
from catalog.client.errors import DataFileDamaged
from catalog.client.nested import as_written, null_where_none
from catalog.iceberg.selection import inner_fields
from policy.errors import RequestInvalid
from policy.nearest import did_you_mean, listed


def batches_of(given: Any) -> Iterator[pa.RecordBatch]:
    """Batches of what a user appends: a table, a batch, a reader, or anything with Arrow's stream interface.

    Raises:
        RequestInvalid: it is none of them.
    """
    if isinstance(given, pa.RecordBatch):
        return iter((given,))
    if isinstance(given, pa.Table):
        return iter(given.to_batches())
    if isinstance(given, pa.RecordBatchReader):
        return iter(given)
    if hasattr(given, "__arrow_c_stream__"):
        return iter(pa.RecordBatchReader.from_stream(given))
    raise RequestInvalid(
        f"Cannot append rows of the type {type(given).__name__}.",
        rule="rows",
        hint="Pass a pyarrow.Table, a RecordBatchReader, or a DataFrame of pandas or Polars.",
    )


class Fitting:
    """Makes rows fit a table.

    Args:
        fields: the table's columns.
        table: its dotted name.
    """

    def __init__(self, fields: Sequence[NestedField], table: str) -> None:
        self._fields = fields
        self._table = table
        self.schema = arrow_schema(fields, ids=True)

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the table's columns and types, field ids in the schema.

        Raises:
            RequestInvalid: a column that the table does not have, or that it needs, or of another type.
        """
        try:
            known = self._named(list(batch.schema), self._fields)
            table = pa.Table.from_arrays(batch.columns, schema=pa.schema(known))
            fitted = FileColumns(table.schema).project(table, self._fields).combine_chunks()
        except DataFileDamaged as error:
            raise self._unfit(error.message, error.rule) from error
        arrays = [
            column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in fitted.columns
        ]
        for array, field in zip(arrays, self._fields, strict=True):
            missing = null_where_none(array, field)
            if missing is not None:
                raise self._unfit(
                    f"The column {missing.name} contains null, but the table requires a value.",
                    "required-column",
                )
        return pa.RecordBatch.from_arrays(
            [
                self._valid(as_written(array, each.type), each)
                for array, each in zip(arrays, self.schema, strict=True)
            ],
            schema=self.schema,
        )

    def _valid(self, values: pa.Array, field: pa.Field) -> pa.Array:
        """Arrow takes what other programs hand over as it is."""
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise self._unfit(
                f"The column {field.name} contains a value that its type cannot hold ({error}).", "values"
            ) from error
        return values

    def _named(self, given: Sequence[pa.Field], fields: Sequence[NestedField]) -> list[pa.Field]:
        """The fields given, with the ids of the table's fields of these names."""
        known = {each.name: each for each in fields}
        names = [each.name for each in given]
        unknown = [each for each in names if each not in known]
        if unknown or len(set(names)) < len(names):
            raise self._unfit(_misnamed(names, unknown, list(known)), "columns")
        return [self._marked(each, known[each.name]) for each in given]

    def _marked(self, given: pa.Field, wanted: NestedField) -> pa.Field:
        """A field with the id of its like; whether it holds null is seen by its values."""
        kind = self._marked_type(given.type, wanted.field_type)
        nullable = not wanted.required or pa.types.is_null(kind)
        return with_id(pa.field(given.name, kind, nullable), wanted.field_id)

    def _marked_type(self, given: pa.DataType, wanted: IcebergType) -> pa.DataType:
        if isinstance(wanted, StructType) and pa.types.is_struct(given):
            return pa.struct(self._named(list(given), wanted.fields))
        if isinstance(wanted, ListType) and pa.types.is_list(given):
            return pa.list_(self._marked(given.value_field, wanted.element_field))
        if isinstance(wanted, ListType) and pa.types.is_large_list(given):
            return pa.large_list(self._marked(given.value_field, wanted.element_field))
        if isinstance(wanted, MapType) and pa.types.is_map(given):
            key, value = inner_fields(wanted)
            return pa.map_(self._marked(given.key_field, key), self._marked(given.item_field, value))
        return given

    def _unfit(self, problem: str, rule: str | None) -> RequestInvalid:
        return RequestInvalid(
            f"The rows do not match the table's schema: {problem}",
            table=self._table,
            rule=rule,
            hint="Use the names and types of the table's columns.",
        )


def _misnamed(names: Sequence[str], unknown: Sequence[str], known: Sequence[str]) -> str:
    if unknown:
        nearest = did_you_mean(unknown[0], known)
        return f"The table has no column {listed(unknown)}. {nearest}Columns: {listed(known)}."
    repeated = dict.fromkeys(each for each in names if names.count(each) > 1)
    return f"The column {', '.join(repeated)} is given more than once."
