"""Whether a file says of a column what Iceberg's writers say of it.

The types of a file are under its footer's key. Who has that, and not the key of a column, would give its
values another meaning: as milliseconds, as numbers of 8 bits, as nulls. Of the column's own key are only its
physical type and its path (`footers`). So a column with a key has one of these types and no other; whether it
is the table's, or was promoted to it, is decided for all columns alike (`columns`).

Source: Iceberg table specification, "Appendix A: Format-specific Requirements", Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

import pyarrow.parquet as pq

from catalog.client.footers import refused

#: By physical type, what the file may say beside it; members that are not named may be anything.
_STORED: Final[Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "BOOLEAN": ({"Type": "None"},),
    "FLOAT": ({"Type": "None"},),
    "DOUBLE": ({"Type": "None"},),
    "INT32": (
        {"Type": "None"},
        {"Type": "Int", "bitWidth": 32, "isSigned": True},
        {"Type": "Date"},
        {"Type": "Decimal"},
    ),
    "INT64": (
        {"Type": "None"},
        {"Type": "Int", "bitWidth": 64, "isSigned": True},
        {"Type": "Time", "timeUnit": "microseconds"},
        {"Type": "Timestamp", "timeUnit": "microseconds"},
        {"Type": "Decimal"},
    ),
    "BYTE_ARRAY": ({"Type": "None"}, {"Type": "String"}, {"Type": "Decimal"}),
    "FIXED_LEN_BYTE_ARRAY": ({"Type": "None"}, {"Type": "UUID"}, {"Type": "Decimal"}),
}


def require_stored(parquet: pq.ParquetFile, places: Collection[int]) -> None:
    """Refuse a file in which one of some columns has another type than Iceberg's writers give.

    Args:
        parquet: the file, as PyArrow understands it.
        places: of the columns.

    Raises:
        DecryptionRefused: a column has.
    """
    for column in map(parquet.schema.column, places):
        said = json.loads(column.logical_type.to_json())
        if not any(each.items() <= said.items() for each in _STORED.get(column.physical_type, ())):
            raise refused(f"The column {column.path[:200]!r} was written as another one.", "column-key")
