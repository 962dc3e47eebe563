"""Checks which masks the columns of a table can have: what files can store instead of values, by type.

- `nullify` shows NULL, which a required column has not.
- `sha256` is of texts and bytes. ORC would show NULL for any other type, and say nothing.
- `redact` is of everything but texts, bytes and decimals, which ORC fails to write redacted.
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
    """Check the masks of a table against its columns, which exist.

    Raises:
        PropertyInvalid: a mask that a column's values cannot have.
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
    """Return the problem, or None."""
    if mask == "nullify" and field.required:
        return "the column is required, and never NULL"
    if mask == "sha256" and not isinstance(field.field_type, _TEXTS_AND_BYTES):
        return "its type is neither text nor bytes"
    if mask == "redact" and any(isinstance(each, _NOT_REDACTED) for each in _types(field.field_type)):
        return "ORC cannot write redacted text, bytes or decimals"
    return None


def _instead(mask: str, field: NestedField) -> str:
    """Return the next step for a mask that a column cannot have; Parquet only has `nullify`."""
    possible = [each for each in _ALL if _problem(each, field) is None]
    if mask != "nullify" and possible:
        return f"Use {' or '.join(possible)}."
    return (
        "Run ALTER COLUMN … DROP NOT NULL and use nullify, or remove the mask, so that queries "
        "without the privilege fail."
    )


def _types(kind: IcebergType) -> Iterator[IcebergType]:
    """Return a type and all types in it."""
    yield kind
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types(field.field_type)
    elif isinstance(kind, ListType):
        yield from _types(kind.element_type)
    elif isinstance(kind, MapType):
        yield from _types(kind.key_type)
        yield from _types(kind.value_type)
