"""Finds the equality deletes that apply to data files, and the columns that they compare.

- An equality delete applies to data files with a smaller sequence number that have its partition spec and
  partition values. One of an unpartitioned spec applies to the files of every partition.
- It is left out for a file whose statistics show that no row can be equal. Only statistics in the manifest
  count, so it always applies to encrypted columns.
- A column that was dropped since then is still compared. Its type is that of the scan's schema, else of the
  current one, else of the newest one that has it.

Source: Iceberg table specification, "Equality Delete Files" and "Scan Planning".
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType, StructType

from catalog.iceberg.bounds import Mask, bounds_of
from catalog.iceberg.manifests import DecodedManifest, FieldStatistics
from catalog.iceberg.partition_keys import partition_of
from catalog.reading.loading import LoadedTable
from policy.errors import MetadataInvalid

#: Their bounds leave out NaN, and take both zeros for one.
_UNBOUNDED: Final = (FloatType, DoubleType)


class EqualityColumns:
    """Finds the columns that equality deletes compare.

    Args:
        table: the table.
        schema: the schema of the scan.
    """

    def __init__(self, table: LoadedTable, schema: Schema) -> None:
        self._table = table
        metadata = table.metadata
        newest = sorted(metadata.schemas, key=lambda each: each.schema_id, reverse=True)
        self._ways = [_ways(each) for each in (schema, metadata.schema(), *newest)]
        self._way = cache(self._found)

    def type_of(self, field_id: int) -> PrimitiveType:
        """Return the type of a column.

        Raises:
            MetadataInvalid: no schema has it, or it is not a primitive column, nested in structs at most.
        """
        kind = self._way(field_id)[-1].field_type
        assert isinstance(kind, PrimitiveType)
        return kind

    def schema(self, field_ids: Iterable[int]) -> Schema:
        """Return a schema of some columns, nested ones in their structs; all are optional."""
        fields: dict[int, NestedField] = {}
        for field_id in sorted(field_ids):
            outer, *inner = self._way(field_id)
            found = _nested(outer, inner)
            fields[outer.field_id] = _merged(fields.get(outer.field_id, found), found)
        return Schema(*fields.values())

    def _found(self, field_id: int) -> tuple[NestedField, ...]:
        for ways in self._ways:
            if field_id in ways:
                return ways[field_id]
        raise MetadataInvalid(
            f"An equality delete compares the field id {field_id}, which is no primitive column of any "
            "schema of the table.",
            table=self._table.name,
            rule="equality-ids",
            hint="Remove the delete file with the engine that wrote it.",
        )


def _ways(schema: Schema) -> dict[int, tuple[NestedField, ...]]:
    """Return by id the primitive columns of a schema that no list or map holds, each with its structs."""
    found = {}
    left: list[tuple[NestedField, ...]] = [(each,) for each in schema.fields]
    while left:
        way = left.pop()
        kind = way[-1].field_type
        if isinstance(kind, StructType):
            left += [(*way, inner) for inner in kind.fields]
        elif isinstance(kind, PrimitiveType):
            found[way[-1].field_id] = way
    return found


def _nested(outer: NestedField, inner: Sequence[NestedField]) -> NestedField:
    """Return a column with one field of it, both optional."""
    kind = outer.field_type if not inner else StructType(_nested(inner[0], inner[1:]))
    return NestedField(outer.field_id, outer.name, kind, required=False)


def _merged(one: NestedField, other: NestedField) -> NestedField:
    """Return a column with the fields of both."""
    if not isinstance(one.field_type, StructType) or not isinstance(other.field_type, StructType):
        return one
    fields = {each.field_id: each for each in one.field_type.fields}
    for each in other.field_type.fields:
        fields[each.field_id] = _merged(fields.get(each.field_id, each), each)
    return NestedField(one.field_id, one.name, StructType(*fields.values()), required=False)


@dataclass(frozen=True, slots=True)
class _Range:
    """What the values of a column in a delete file lie between; None for an end that is not known."""

    kind: PrimitiveType
    lower: Any
    upper: Any
    has_null: bool

    def may_hold(self, statistics: FieldStatistics) -> Mask:
        """Return which files can have a value that is in the delete file."""
        lower, upper = bounds_of(self.kind, statistics.lower), bounds_of(self.kind, statistics.upper)
        apart = np.zeros(len(statistics.lower), np.bool_)
        if lower is not None and self.upper is not None:
            apart |= lower.above(self.upper)
        if upper is not None and self.lower is not None:
            apart |= upper.below(self.lower)
        if not self.has_null:
            return ~apart
        without_null: Mask = np.asarray(pc.fill_null(pc.equal(statistics.null_counts, 0), False))
        return ~(apart & without_null)


@dataclass(frozen=True, slots=True)
class _Delete:
    """An equality delete: its row among the delete files, and the ranges of its columns."""

    number: int
    ranges: Mapping[int, _Range]


@dataclass(slots=True)
class _BySequence:
    """Deletes by their sequence numbers, ascending."""

    found: list[tuple[int, _Delete]] = field(default_factory=list)

    def after(self, sequence_number: int) -> list[_Delete]:
        """Return the deletes with greater sequence numbers."""
        start = bisect_right(self.found, sequence_number, key=lambda each: each[0])
        return [each for _, each in self.found[start:]]

    def add(self, sequence_number: int, delete: _Delete) -> None:
        """Add a delete."""
        start = bisect_right(self.found, sequence_number, key=lambda each: each[0])
        self.found.insert(start, (sequence_number, delete))


class EqualityDeletes:
    """The equality deletes of a snapshot.

    Args:
        columns: finds their columns.
        specs: the table's partition specs by id.

    Attributes:
        field_ids: every column that one of them compares.
    """

    def __init__(self, columns: EqualityColumns, specs: Mapping[int, PartitionSpec]) -> None:
        self._columns = columns
        self._specs = specs
        self._everywhere = _BySequence()
        self._by_partition: dict[tuple[int, str], _BySequence] = defaultdict(_BySequence)
        self.field_ids: frozenset[int] = frozenset()

    def add(self, number: int, file: DataFile, sequence_number: int) -> None:
        """Add a delete file.

        Args:
            number: its row among the delete files.
            file: the file.
            sequence_number: its data sequence number.

        Raises:
            MetadataInvalid: it compares no column, or one that cannot be compared.
        """
        if not file.equality_ids:
            raise MetadataInvalid(
                "An equality delete does not say which columns it compares.",
                path=file.file_path,
                rule="equality-ids",
                hint="Remove the delete file with the engine that wrote it.",
            )
        self.field_ids |= set(file.equality_ids)
        ranges = {each: self._range(file, each) for each in file.equality_ids}
        fields = self._specs[file.spec_id].fields
        everywhere = all(isinstance(each.transform, VoidTransform) for each in fields)
        held = self._everywhere if everywhere else self._by_partition[partition_of(file)]
        held.add(sequence_number, _Delete(number, ranges))

    def applying(self, file: DataFile, sequence_number: int) -> list[int]:
        """Return the deletes that apply to a data file, whatever its statistics say."""
        return [each.number for each in self._older_than(file, sequence_number)]

    def pruned(
        self, files: Sequence[DataFile], numbers: Sequence[int], decoded: DecodedManifest, rows: Sequence[int]
    ) -> list[list[int]]:
        """Return for each data file the deletes that apply to it and that can delete rows of it.

        Args:
            files: the data files.
            numbers: their data sequence numbers.
            decoded: the manifest that they come from.
            rows: their row numbers in it.
        """
        found = [self._older_than(*each) for each in zip(files, numbers, strict=True)]
        distinct = {each.number: each for deletes in found for each in deletes}
        if not distinct:
            return [[] for _ in files]
        index = pa.array(rows, pa.int64())
        statistics = {
            field_id: FieldStatistics(
                *(getattr(each, name).take(index) for name in FieldStatistics.__dataclass_fields__)
            )
            for field_id, each in decoded.stats(self.field_ids).items()
        }
        may = {number: _may_delete(each, statistics, len(rows)) for number, each in distinct.items()}
        return [
            [each.number for each in deletes if may[each.number][row]] for row, deletes in enumerate(found)
        ]

    def _older_than(self, file: DataFile, sequence_number: int) -> list[_Delete]:
        of_partition = self._by_partition.get(partition_of(file), _BySequence())
        return self._everywhere.after(sequence_number) + of_partition.after(sequence_number)

    def _range(self, file: DataFile, field_id: int) -> _Range:
        kind = self._columns.type_of(field_id)
        lower, upper = (
            _value(kind, (bounds or {}).get(field_id)) for bounds in (file.lower_bounds, file.upper_bounds)
        )
        return _Range(kind, lower, upper, (file.null_value_counts or {}).get(field_id) != 0)


def _may_delete(delete: _Delete, statistics: Mapping[int, FieldStatistics], rows: int) -> Mask:
    may = np.ones(rows, np.bool_)
    for field_id, each in delete.ranges.items():
        may &= each.may_hold(statistics[field_id])
    return may


def _value(kind: PrimitiveType, bound: bytes | None) -> Any:
    """Return the value of a bound; None if it is missing, or not of that type."""
    if bound is None or isinstance(kind, _UNBOUNDED):
        return None
    try:
        return from_bytes(kind, bound)
    except (ValueError, TypeError, ArithmeticError, struct.error):
        return None
