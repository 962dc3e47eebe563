"""Column statistics of a new file for the commit, by field id: sizes, counts and bounds.

- Below lists and maps only sizes are known, since Parquet counts empty lists as nulls.
- Bounds of text and binary are cut to 16 characters or bytes.
- A file with a day or an instant outside the years 1 to 9999 has no bounds.
- Columns of floats have no bounds: Parquet leaves NaN out of them, and a query for large numbers finds NaN.

Source: Iceberg table specification, "Manifests".
"""

from __future__ import annotations

import base64
import sys
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FloatType, IcebergType, StringType, StructType

_LENGTH: Final = 16
_SURROGATES: Final = range(0xD800, 0xE000)
_COUNTS: Final = ("value_counts", "null_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")


def statistics_of(metadata: pq.FileMetaData, schema: Schema) -> dict[str, Any]:
    """The statistics of a file, as the commit takes them.

    Args:
        metadata: of the file, as its writer has it.
        schema: the table's columns.
    """
    if not _said(metadata):
        return {}
    try:
        found = _found(metadata, schema, "full")
    except OverflowError:  # Python has no days after the year 9999.
        found = _found(metadata, schema, "counts")
    flat = _flat(schema.as_struct())
    bounded = {each for each, kind in flat.items() if not isinstance(kind, FloatType | DoubleType)}
    said: dict[str, Any] = {"column-sizes": found["column_sizes"], "split-offsets": found["split_offsets"]}
    for name in _COUNTS:
        said[name.replace("_", "-")] = {key: value for key, value in found[name].items() if key in flat}
    for name in _BOUNDS:
        cut = {
            key: _cut(value, flat[key], above=name == "upper_bounds")
            for key, value in found[name].items()
            if key in bounded
        }
        said[name.replace("_", "-")] = {
            key: base64.b64encode(value).decode("ascii") for key, value in cut.items() if value is not None
        }
    return said


def _found(metadata: pq.FileMetaData, schema: Schema, mode: str) -> dict[str, Any]:
    plan = compute_statistics_plan(schema, {"write.metadata.metrics.default": mode})
    columns = parquet_path_to_id_mapping(schema)
    return data_file_statistics_from_parquet_metadata(metadata, plan, columns).to_serialized_dict()


def _cut(bound: bytes, kind: IcebergType, *, above: bool) -> bytes | None:
    """A bound of 16 characters or bytes at the most; None for an upper one where there is none so short."""
    if isinstance(kind, StringType):
        points = [ord(each) for each in bound.decode("utf-8")]
        short = _short(points, above=above, last=sys.maxunicode)
        return None if short is None else "".join(map(chr, short)).encode("utf-8")
    if isinstance(kind, BinaryType):
        short = _short(list(bound), above=above, last=255)
        return None if short is None else bytes(short)
    return bound


def _short(values: list[int], *, above: bool, last: int) -> list[int] | None:
    if not above or len(values) <= _LENGTH:
        return values[:_LENGTH]
    for end in range(_LENGTH - 1, -1, -1):
        if values[end] < last:
            above_it = values[end] + 1
            # No text has a surrogate in it.
            text_after = _SURROGATES.stop if last > 255 and above_it in _SURROGATES else above_it
            return [*values[:end], text_after]
    return None


def _said(metadata: pq.FileMetaData) -> bool:
    """Whether the writer says anything; of a file with a signed footer it does not."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return all(each.column(place).is_stats_set for each in groups for place in range(metadata.num_columns))


def _flat(struct: StructType) -> dict[int, Any]:
    """The types of fields that are nested in structs alone, by id."""
    found: dict[int, Any] = {}
    for each in struct.fields:
        if isinstance(each.field_type, StructType):
            found |= _flat(each.field_type)
        elif each.field_type.is_primitive:
            found[each.field_id] = each.field_type
    return found
