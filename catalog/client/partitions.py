"""Computes the partition of each row by the table's partition spec.

Transforms are worked out once for each distinct value of a batch.

Source: Iceberg table specification, "Partitioning" and "Appendix D: Single-value serialization".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, PrimitiveType, StructType

from catalog.iceberg.single_values import value_to_json
from catalog.iceberg.transforms import exact
from policy.errors import RequestInvalid


class Part(NamedTuple):
    """The rows of a batch that belong to one partition.

    Attributes:
        key: tells partitions apart.
        values: by partition field name, in Iceberg's single-value JSON.
        rows: the rows.
    """

    key: tuple[str, ...]
    values: dict[str, Any]
    rows: pa.RecordBatch


class Partitioner:
    """Splits batches by partition.

    Args:
        spec: the partition spec.
        schema: the table's columns.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._fields = [_Field(each, schema) for each in spec.fields]

    def parts(self, batch: pa.RecordBatch) -> Iterator[Part]:
        """The rows of a batch by partition.

        Raises:
            RequestInvalid: a value that no partition can have.
        """
        if not self._fields:
            yield Part((), {}, batch)
            return
        found = [each.of(batch) for each in self._fields]
        codes = np.stack([codes for codes, _ in found], axis=1)
        unique, inverse = np.unique(codes, axis=0, return_inverse=True)
        for number, picked in enumerate(unique):
            values = {
                each.name: known[code]
                for each, (_, known), code in zip(self._fields, found, picked, strict=True)
            }
            rows = batch.filter(pa.array(inverse.reshape(-1) == number))
            yield Part(tuple(map(repr, values.values())), values, rows)


class _Field:
    """One field of a partition spec."""

    def __init__(self, field: PartitionField, schema: Schema) -> None:
        source = schema.find_field(field.source_id)
        self.name = field.name
        self._way = _way(schema.as_struct(), field.source_id)
        self._transform = exact(field.transform).transform(source.field_type)
        self._result = cast(PrimitiveType, field.transform.result_type(source.field_type))

    def of(self, batch: pa.RecordBatch) -> tuple[np.ndarray[Any, Any], list[Any]]:
        """For each row the number of its value, and the values in JSON's form."""
        column = batch.column(self._way[0])
        for name in self._way[1:]:
            column = pc.struct_field(column, name)
        encoded = pc.dictionary_encode(_plain(column), null_encoding="encode")
        texts: dict[str, int] = {}
        values: list[Any] = []
        codes = []
        for value in encoded.dictionary.to_pylist():
            result = self._json(value)
            codes.append(texts.setdefault(repr(result), len(values)))
            if codes[-1] == len(values):
                values.append(result)
        return np.array(codes, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)], values

    def _json(self, value: Any) -> Any:
        """A value's partition, in JSON's form."""
        result = self._transform(value)
        if isinstance(result, float) and not math.isfinite(result):
            raise self._unnamed(result)
        if isinstance(self._result, IntegerType) and result is not None and not -(2**31) <= result < 2**31:
            raise self._unnamed(f"{result}, which does not fit in 32 bits")
        return None if result is None else value_to_json(self._result, result)

    def _unnamed(self, what: object) -> RequestInvalid:
        return RequestInvalid(
            f"The partition field {self.name} cannot have the value {what}.",
            rule="partition",
            hint="Remove these rows, or partition the table by another column.",
        )


def _way(struct: StructType, field_id: int) -> tuple[str, ...]:
    """The names from the top to a field that is nested in structs alone."""
    for each in struct.fields:
        if each.field_id == field_id:
            return (each.name,)
        if isinstance(each.field_type, StructType):
            below = _way(each.field_type, field_id)
            if below:
                return (each.name, *below)
    return ()


def _plain(column: pa.Array) -> pa.Array:
    """Dates and times as whole numbers, which is how transforms take them."""
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.cast(pa.int64())
    return column
