"""What a commit says of a new file's columns, by field id: sizes, counts and bounds.

- Below lists and maps only sizes are known, since Parquet counts empty lists as nulls.
- Columns of floats have no bounds: Parquet leaves NaN out of them, and a query for large numbers finds NaN.

Source: Iceberg table specification, "Manifests".
"""

from __future__ import annotations

import base64
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, StructType

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
    found = data_file_statistics_from_parquet_metadata(
        metadata, compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
    ).to_serialized_dict()
    flat = _flat(schema.as_struct())
    bounded = {each for each, kind in flat.items() if not isinstance(kind, FloatType | DoubleType)}
    said: dict[str, Any] = {"column-sizes": found["column_sizes"], "split-offsets": found["split_offsets"]}
    for name in _COUNTS:
        said[name.replace("_", "-")] = {key: value for key, value in found[name].items() if key in flat}
    for name in _BOUNDS:
        said[name.replace("_", "-")] = {
            key: base64.b64encode(value).decode("ascii")
            for key, value in found[name].items()
            if key in bounded
        }
    return said


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
