"""Which masks the columns of a table can have: what files can hold in place of values, by type.

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

from policy.encryption import EncryptionSpec
from policy.errors import PropertyInvalid
from policy.governed import MASKS

_TEXTS_AND_BYTES: Final = (StringType, BinaryType, FixedType)
_NOT_REDACTED: Final = (*_TEXTS_AND_BYTES, DecimalType)


def check_masks(spec: EncryptionSpec, schema: Schema, table: str) -> None:
    """Hold the masks of a table against its columns, which are there.

    Raises:
        PropertyInvalid: a mask that a column's values cannot have.
    """
    for group in spec.masks:
        for column in group.columns:
            problem = _problem(group.mask, schema.find_field(column))
            if problem is not None:
                raise PropertyInvalid(
                    f"{MASKS}: {group.mask} cannot mask the column {column!r}: {problem[0]}.",
                    table=table,
                    rule="mask-type",
                    hint=problem[1],
                )


def _problem(mask: str, field: NestedField) -> tuple[str, str] | None:
    """What is wrong, and what to do; None if nothing is."""
    texts = isinstance(field.field_type, _TEXTS_AND_BYTES)
    if mask == "nullify" and field.required:
        return "it is required, and never NULL", "ALTER COLUMN … DROP NOT NULL, or choose another mask."
    if mask == "sha256" and not texts:
        return "it holds neither text nor bytes", "Use nullify or redact."
    if mask == "redact" and any(isinstance(each, _NOT_REDACTED) for each in _types(field.field_type)):
        return "ORC cannot write redacted texts, bytes or decimals", "Use sha256 or nullify."
    return None


def _types(kind: IcebergType) -> Iterator[IcebergType]:
    """A type and all those in it."""
    yield kind
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types(field.field_type)
    elif isinstance(kind, ListType):
        yield from _types(kind.element_type)
    elif isinstance(kind, MapType):
        yield from _types(kind.key_type)
        yield from _types(kind.value_type)
