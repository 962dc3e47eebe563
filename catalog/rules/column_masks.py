"""Checks that files can store a table's column masks instead of values, by type of column.

- `nullify` shows NULL, so a required column cannot have it.
- `sha256` is possible for text and bytes. For other types ORC would show NULL without an error.
- `redact` is possible for all types except text, bytes and decimals: ORC cannot write these redacted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from policy.encryption.governed import MASKS
from policy.encryption.specification import EncryptionSpec
from policy.errors import PropertyInvalid

_TEXTS_AND_BYTES: Final = (StringType, BinaryType, FixedType)
_ALL: Final = ("nullify", "sha256", "redact")
_NOT_REDACTED: Final = (*_TEXTS_AND_BYTES, DecimalType)


def check_masks(spec: EncryptionSpec, schema: Schema, table: str) -> None:
    """Check the masks of a table against its columns, which must exist.

    Raises:
        PropertyInvalid: a column cannot have its mask.
    """
    for group in spec.masks:
        for column in group.columns:
            field = schema.find_field(column)
            problem = _problem(group.mask, field)
            if problem is not None:
                raise PropertyInvalid(
                    f"{MASKS}: the mask {group.mask} is not possible for the column {column!r}: {problem}.",
                    table=table,
                    rule="mask-type",
                    hint=_instead(group.mask, field),
                )


def _problem(mask: str, field: NestedField) -> str | None:
    """Return why a column cannot have a mask, or None."""
    if mask == "nullify" and field.required:
        return "the column is required, and never NULL"
    if mask == "sha256" and not isinstance(field.field_type, _TEXTS_AND_BYTES):
        return "its type is neither text nor bytes"
    if mask == "redact" and any(isinstance(each, _NOT_REDACTED) for each in _types(field.field_type)):
        return "ORC cannot write redacted text, bytes or decimals"
    return None


def _instead(mask: str, field: NestedField) -> str:
    """Return a hint for a mask that a column cannot have. Parquet only has `nullify`."""
    possible = [each for each in _ALL if _problem(each, field) is None]
    if mask != "nullify" and possible:
        return f"Use {' or '.join(possible)}."
    return (
        "Run ALTER COLUMN … DROP NOT NULL and use nullify, or remove the mask, so that queries "
        "without the privilege fail."
    )


def _types(kind: IcebergType) -> Iterator[IcebergType]:
    """Yield a type and all types in it."""
    yield kind
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types(field.field_type)
    elif isinstance(kind, ListType):
        yield from _types(kind.element_type)
    elif isinstance(kind, MapType):
        yield from _types(kind.key_type)
        yield from _types(kind.value_type)
