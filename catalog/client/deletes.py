"""Applies delete files.

A delete file is opened as data files are: checked against the allowed list and its own epoch. Each is read
once a scan.

- A position delete names paths and positions.
- An equality delete has rows. A row of a data file that has the same values in some columns is deleted. NULL
  equals NULL, NaN equals NaN, and the two zeros differ, as in Iceberg's own readers.

Source: Iceberg table specification, "Position Delete Files" and "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType, NestedField, StringType

from catalog.client import picked_fields
from catalog.client.columns import arrow_schema
from catalog.client.files import opened
from catalog.client.plan import Plan, PlannedFile
from catalog.storage.base import Storage

_COLUMNS: Final = (
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)


@dataclass(frozen=True, slots=True)
class Positions:
    """The deleted rows of one file, counted from 0, ascending."""

    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]

    def kept(self, start: int, end: int) -> pa.Array:
        """Which of the rows from `start` to before `end` are left."""
        mask = np.ones(end - start, dtype=bool)
        first, last = np.searchsorted(self.numbers, (start, end))
        mask[self.numbers[first:last] - start] = False
        return pa.array(mask)


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows of equality deletes that compare the same columns.

    Attributes:
        ways: by which fields each column is reached from the top.
        rows: the deletes' values, one column for each of these.
    """

    ways: tuple[tuple[int, ...], ...]
    rows: tuple[pa.ChunkedArray, ...]

    def kept(self, rows: pa.Table, fields: Sequence[NestedField]) -> pa.Array:
        """Which of the rows of a data file are left.

        Args:
            rows: read with all columns that are compared.
            fields: of these rows.
        """
        codes = np.zeros(rows.num_rows + len(self.rows[0]), np.int64)
        for way, deleted in zip(self.ways, self.rows, strict=True):
            here = _comparable(picked_fields.values(rows, fields, way))
            both = pa.chunked_array([*here.chunks, *deleted.chunks], deleted.type)
            encoded = pa.concat_arrays(both.chunks).dictionary_encode(null_encoding="encode")
            combined = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices)
            codes = np.unique(combined, return_inverse=True)[1]
        return pa.array(~np.isin(codes[: rows.num_rows], codes[rows.num_rows :]))


@dataclass(frozen=True, slots=True)
class EqualityDeleted:
    """The equality deletes of one file.

    Attributes:
        columns: what they compare.
        groups: the deletes, by the columns that they compare.
    """

    columns: tuple[NestedField, ...]
    groups: tuple[Compared, ...]

    def beside(self, wanted: Sequence[NestedField]) -> tuple[NestedField, ...]:
        """Some columns with those that are compared; what is added stands behind, under other names."""
        return picked_fields.beside(wanted, self.columns)

    def kept(self, rows: pa.Table, fields: Sequence[NestedField]) -> pa.Array:
        """Which rows are left; see `Compared.kept`."""
        return reduce(pc.and_, (each.kept(rows, fields) for each in self.groups))


class DeletedRows:
    """The deletes of one scan.

    Args:
        plan: the scan's.
        storage: where the files lie.
    """

    def __init__(self, plan: Plan, storage: Storage) -> None:
        self._plan = plan
        self._storage = storage
        self._read: dict[str, pa.Table] = {}

    def of(self, file: PlannedFile) -> Positions | None:
        """The positions that were deleted of a file; None if none were.

        Raises:
            LakewardenError: a delete file that is not read, as for data files.
        """
        files = [each for each in file.deletes if not each.equality_ids]
        if not files:
            return None
        rows = pa.concat_tables([self._rows(each, _COLUMNS) for each in files])
        numbers = rows.filter(pc.equal(rows["file_path"], file.path))["pos"].to_numpy()
        return Positions(np.unique(numbers))

    def equality_of(self, file: PlannedFile) -> EqualityDeleted | None:
        """The equality deletes of a file; None if there are none. Errors as in `of`."""
        groups: dict[tuple[int, ...], list[pa.Table]] = {}
        for each in file.deletes:
            if each.equality_ids:
                compared = tuple(sorted(each.equality_ids))
                columns = picked_fields.only(self._plan.compared, frozenset(compared))
                groups.setdefault(compared, []).append(self._rows(each, columns))
        if not groups:
            return None
        found = tuple(self._compared(each, rows) for each, rows in groups.items())
        return EqualityDeleted(picked_fields.only(self._plan.compared, frozenset().union(*groups)), found)

    def _compared(self, field_ids: tuple[int, ...], tables: Sequence[pa.Table]) -> Compared:
        columns = picked_fields.only(self._plan.compared, frozenset(field_ids))
        rows = pa.concat_tables(tables)
        ways = tuple(picked_fields.way(columns, each) for each in field_ids)
        return Compared(ways, tuple(_comparable(picked_fields.values(rows, columns, each)) for each in ways))

    def _rows(self, file: PlannedFile, columns: tuple[NestedField, ...]) -> pa.Table:
        if file.path not in self._read:
            with opened(self._plan, file, self._storage, columns) as source:
                read = (rows for _, rows in source.row_groups(columns))
                self._read[file.path] = pa.concat_tables([arrow_schema(columns).empty_table(), *read])
        return self._read[file.path]


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values that are the same exactly where Iceberg says so: numbers with fractions become their bits."""
    if not pa.types.is_floating(values.type):
        return values
    kind = values.type
    bits = pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64()
    one = pa.scalar(float("nan"), kind)
    chunks = [pc.if_else(pc.is_nan(each), one, each).view(bits) for each in values.chunks]
    return pa.chunked_array(chunks, bits)
