"""Checks the stored types of columns in files whose footer has no digest.

Those are files from before there were such digests. Their types are under the footer's key alone. Who has it,
and not the key of a column, would give its values another meaning: as milliseconds, as numbers of 8 bits, as
nulls. Of the column's own key are only its physical type and its path (`footers`). So a column with a key has
one of these types and no other; whether it is the table's, or was promoted to it, is decided for all columns
alike (`columns`). Where the footer has its digest, all of it is the writer's word, and nothing is asked here.

Nor is under its key whether it can be null, by which its values are told from the levels before them. Of its
key are the encodings in its chunks: in pages of version 1 PyArrow always lists that of levels, parquet-java
where there are any, and another one where there are none. Pages of version 2 say themselves where levels end.
A column that was required when the file was written, and may be null now, cannot be told from a forged one.

Source: Iceberg table specification, "Appendix A: Format-specific Requirements", Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import NestedField

from catalog.client.columns import field_id, inner_arrow_fields
from catalog.client.footers import OpenedFooter, refused
from catalog.iceberg.selection import inner_fields
from policy.errors import DecryptionRefused

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

#: Encodings of Parquet: of levels, and what parquet-java lists where a column has none.
_LEVELS, _NO_LEVELS = 3, 4


def require_stored(parquet: pq.ParquetFile, footer: OpenedFooter, wanted: Sequence[NestedField]) -> None:
    """Refuse a file in which a column with a key has another type than Iceberg's writers give.

    Args:
        parquet: the file, as PyArrow understands it.
        footer: its footer, judged.
        wanted: the table's columns that are read.

    Raises:
        DecryptionRefused: a column has, or was written with nulls and cannot have any by the footer.
    """
    with_levels: set[str] = set()
    for place, chunks in footer.encodings.items():
        leaf = footer.leaves[place]
        if not _is_stored(parquet.schema.column(place), chunks):
            raise _another(leaf.name)
        if len(leaf.path) > 1 or any(_LEVELS in each for each in chunks):
            with_levels.add(leaf.path[0].decode("utf-8", "replace"))
    found = {field_id(each): each for each in parquet.schema_arrow}
    for each in wanted:
        column = found.get(each.field_id)
        if column is not None and column.name in with_levels and _is_narrower(column, each):
            raise _another(column.name)


def _is_stored(column: pq.ColumnSchema, chunks: Iterable[frozenset[int]]) -> bool:
    """Whether a column has a type that Iceberg's writers give, and levels only if they were written."""
    said = json.loads(column.logical_type.to_json())
    if column.max_definition_level and any(_NO_LEVELS in each and _LEVELS not in each for each in chunks):
        return False
    return any(each.items() <= said.items() for each in _STORED.get(column.physical_type, ()))


def _is_narrower(found: pa.Field, wanted: NestedField) -> bool:
    """Whether a field of the file, or one inside it, cannot be null where the table's can."""
    if not wanted.required and not found.nullable:
        return True
    inner = {field_id(each): each for each in inner_arrow_fields(found.type) or ()}
    return any(
        each.field_id in inner and _is_narrower(inner[each.field_id], each)
        for each in inner_fields(wanted.field_type)
    )


def _another(path: str) -> DecryptionRefused:
    return refused(f"The column {path[:200]!r} holds the metadata of another column.", "column-key")
