"""Shows the statistics of files: counts, sizes and bounds of the columns that a user sees.

Manifests have the statistics of plaintext columns, and key metadata those of encrypted ones. For a column
that a file encrypts, the encrypted statistics count. They are opened only if a column that shows them is
asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField, StructType

from catalog.envelope.key_metadata_columns import Rows
from catalog.envelope.scan_statistics import ColumnOfFiles
from catalog.iceberg.manifests import FieldStatistics
from catalog.iceberg.manifests.manifest import STATISTICS_TYPES
from catalog.iceberg.manifests.statistics import field_statistics
from catalog.keyring.keyring import Keyring
from catalog.metadata_tables.arrow import arrow_type, map_array, struct_array, typed_bounds
from catalog.metadata_tables.schemas import BOUNDS, PATH_ID, POSITION_ID
from catalog.metadata_tables.sight import Sight
from catalog.planning.sealed import merged
from catalog.reading.loading import LoadedTable
from catalog.snapshot_checks.entries import DELETED

#: The maps that encrypted statistics add to, with the part of `FieldStatistics` that each has.
_SEALED: Final[Mapping[str, str]] = {
    "value_counts": "value_counts",
    "null_value_counts": "null_counts",
    "nan_value_counts": "nan_counts",
    "lower_bounds": "lower",
    "upper_bounds": "upper",
}
#: Parts of readable metrics, with the part of `FieldStatistics` that each shows.
_READABLE: Final[Mapping[str, str]] = {
    "value_count": "value_counts",
    "null_value_count": "null_counts",
    "nan_value_count": "nan_counts",
    "lower_bound": "lower",
    "upper_bound": "upper",
}
MAPS: Final = tuple(STATISTICS_TYPES)


class Metrics:
    """The statistics of some entries of one manifest.

    Args:
        keyring: opens sealed bounds.
        table: the table.
        sight: what is shown.
        entries: with inherited numbers.
        statistics: of the same rows.
    """

    def __init__(
        self, keyring: Keyring, table: LoadedTable, sight: Sight, entries: pa.Table, statistics: pa.Table
    ) -> None:
        self._keyring = keyring
        self._table = table
        self._sight = sight
        self._entries = entries
        self._statistics = statistics

    def map_of(self, name: str) -> pa.Array:
        """Return one of the maps by column id, with the columns that are shown."""
        maps = self._statistics[name].combine_chunks()
        part = _SEALED.get(name)
        if part is not None and self._sealed:
            return self._merged_map(maps.type, part)
        return _shown(maps, self._map_ids)

    def readable(self, kind: StructType, columns: Mapping[str, NestedField]) -> pa.StructArray:
        """Return readable metrics.

        Args:
            kind: the columns whose metrics are asked for.
            columns: by name, with their ids.
        """
        wanted = {each.name: columns[each.name] for each in kind.fields}
        ids = frozenset(each.field_id for each in wanted.values()) & self._sight.columns
        found = self._of(ids)
        arrays = []
        for field in kind.fields:
            column, parts = wanted[field.name], field.field_type
            if not isinstance(parts, StructType):
                raise TypeError("metrics are a struct")
            known = found.get(column.field_id)
            arrays.append(self._metrics(parts, column, known))
        return struct_array(kind, arrays, len(self._entries))

    def _metrics(
        self, parts: StructType, column: NestedField, known: FieldStatistics | None
    ) -> pa.StructArray:
        arrays = []
        for part in parts.fields:
            if known is None:
                arrays.append(pa.nulls(len(self._entries), arrow_type(part.field_type)))
            elif part.name in BOUNDS:
                arrays.append(typed_bounds(column.field_type, getattr(known, _READABLE[part.name])))
            elif part.name in _READABLE:
                arrays.append(getattr(known, _READABLE[part.name]))
            else:
                arrays.append(_looked_up(self._statistics["column_sizes"], column.field_id))
        return struct_array(parts, arrays, len(self._entries))

    def _of(self, ids: frozenset[int]) -> Mapping[int, FieldStatistics]:
        plain = field_statistics(self._statistics, ids)
        return merged(plain, self._sealed_of(ids)) if self._sealed else plain

    @cached_property
    def _sealed(self) -> bool:
        """Whether any of the files has key metadata that may be opened."""
        return self._sight.sealed and bool(len(self._keyed))

    @cached_property
    def _keyed(self) -> Rows:
        """The live files with key metadata. What a manifest says of deleted files is not opened any more."""
        live = pc.and_(
            pc.not_equal(self._entries["status"], DELETED), self._entries["key_metadata"].is_valid()
        )
        return np.flatnonzero(np.asarray(live))

    def _sealed_of(self, ids: frozenset[int]) -> Iterator[tuple[Rows, Mapping[int, ColumnOfFiles]]]:
        files = self._entries.take(pa.array(self._keyed))
        judged = self._keyring.checked_files(self._table.record, self._table.governed, files)
        for rows, columns in self._keyring.open_bounds(self._table.record, judged, ids):
            yield self._keyed[rows], columns

    @cached_property
    def _ids(self) -> frozenset[int]:
        """The columns that the maps show."""
        described = {key for name in MAPS for key in _keys(self._statistics[name])}
        if self._sealed:
            described |= set().union(*(each.field_ids for each in self._table.metadata.schemas))
        return frozenset(described) & self._sight.columns

    @cached_property
    def _map_ids(self) -> frozenset[int]:
        """The same, with the columns of position delete files."""
        return self._sight.columns | ({PATH_ID, POSITION_ID} if self._sight.paths else frozenset())

    @cached_property
    def _all(self) -> Mapping[int, FieldStatistics]:
        reserved = frozenset({PATH_ID, POSITION_ID}) if self._sight.paths else frozenset()
        return {**self._of(self._ids), **field_statistics(self._statistics, reserved)}

    def _merged_map(self, kind: pa.DataType, part: str) -> pa.Array:
        columns = {key: getattr(each, part).to_pylist() for key, each in sorted(self._all.items())}
        rows = zip(*columns.values(), strict=True) if columns else iter([()] * len(self._entries))
        maps = [
            [(key, value) for key, value in zip(columns, row, strict=True) if value is not None] or None
            for row in rows
        ]
        return pa.array(maps, kind)


def _keys(column: pa.ChunkedArray) -> list[int]:
    found: list[int] = []
    for chunk in column.chunks:
        found += pc.unique(chunk.keys).to_pylist()
    return found


def _looked_up(maps: pa.ChunkedArray, field_id: int) -> pa.Array:
    return pc.map_lookup(maps.combine_chunks(), pa.scalar(field_id, pa.int32()), "first")


def _shown(maps: pa.MapArray, ids: frozenset[int]) -> pa.MapArray:
    """Return maps without the keys that are not shown."""
    offsets = np.asarray(maps.offsets)
    first, last = offsets[0], offsets[-1]
    keys = maps.keys.slice(first, last - first)
    kept = np.isin(np.asarray(keys), np.fromiter(ids, np.int64, len(ids)))
    before = np.concatenate(([0], np.cumsum(kept)))
    counts = np.diff(before[offsets - first])
    mask = pa.array(kept)
    items = maps.items.slice(first, last - first)
    absent = np.asarray(maps.is_null())
    return map_array(maps.type, counts, keys.filter(mask), items.filter(mask), absent)
