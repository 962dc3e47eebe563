"""Reads the types of columns from the schema in a manifest's header.

The schema is a claim of the writer. It says only how bounds are ordered when they are summed up, and what was
summed up is used for columns that have the same type in the table's schema (`ranges`). So a column whose type
cannot be read is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

NO_TYPES: Final[Mapping[int, PrimitiveType]] = MappingProxyType({})
_KINDS: Final[tuple[PrimitiveType, ...]] = (
    BinaryType(),
    BooleanType(),
    DateType(),
    DoubleType(),
    FloatType(),
    IntegerType(),
    LongType(),
    StringType(),
    TimestampType(),
    TimestamptzType(),
    TimeType(),
    UUIDType(),
)
_BY_NAME: Final = MappingProxyType({str(each): each for each in _KINDS})
_DECIMAL: Final = re.compile(r"decimal\(\s*([1-9][0-9]?)\s*,\s*([0-9]{1,2})\s*\)")
#: Bounds of the first type are compared like those of the second, in spite of another width.
_WIDENED: Final = MappingProxyType({"int": "long", "float": "double"})
_MAX_COLUMNS: Final = 100_000


def column_types(schema: Mapping[str, Any]) -> Mapping[int, PrimitiveType]:
    """Return by field id the types of columns and of fields of structs, where they can be read."""
    found: dict[int, PrimitiveType] = {}
    open_structs: list[Any] = [schema]
    seen = 0
    while open_structs and seen < _MAX_COLUMNS:
        fields = open_structs.pop().get("fields")
        for each in fields if isinstance(fields, list) else ():
            seen += 1
            if not isinstance(each, dict) or type(each.get("id")) is not int:
                continue
            if isinstance(each.get("type"), dict):
                open_structs.append(each["type"])
            elif (kind := _named(each.get("type"))) is not None:
                found[each["id"]] = kind
    return MappingProxyType(found)


def order_of(kind: IcebergType) -> str:
    """Return the name of the order of a type's bounds: types with one name order the same bounds alike."""
    if isinstance(kind, DecimalType):
        return f"decimal(*, {kind.scale})"
    return _WIDENED.get(str(kind), str(kind))


def _named(text: object) -> PrimitiveType | None:
    if not isinstance(text, str):
        return None
    if (decimal := _DECIMAL.fullmatch(text)) is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        return DecimalType(precision, scale) if precision <= 38 else None
    return _BY_NAME.get(text)
