"""Partition values: from Iceberg's JSON single-value form to how manifests hold them.

- Dates, times and timestamps are numbers; decimals have the scale of their type, whatever was written.
- A value that is not of its type, or does not fit it, is refused: a reader would prune by another value.

Source: Iceberg table specification, "Appendix D: Single-value serialization".
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Final

from pyiceberg.conversions import from_json
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

_BITS: Final = {IntegerType: 32, LongType: 64}
_PLAIN: Final[dict[type[PrimitiveType], tuple[type, ...]]] = {
    StringType: (str,),
    FloatType: (int, float),
    DoubleType: (int, float),
    DecimalType: (str,),
}


def stored_value(kind: PrimitiveType, value: object) -> object:
    """A partition value as manifests hold it.

    Args:
        kind: the type of the partition field.
        value: the value in JSON form; None for null.

    Raises:
        ValueError: the value is not of that type, or does not fit it.
    """
    if value is None:
        return None
    _check_plain(kind, value)
    parsed: object
    try:
        parsed = from_json(kind, value)
    except (ArithmeticError, TypeError, AttributeError) as error:
        raise ValueError("not a value of its type") from error
    if isinstance(parsed, datetime):
        return datetime_to_micros(parsed)
    if isinstance(parsed, date):
        return date_to_days(parsed)
    if isinstance(parsed, time):
        return time_to_micros(parsed)
    if isinstance(kind, DecimalType) and isinstance(parsed, Decimal):
        return _scaled(kind, parsed)
    return parsed


def _check_plain(kind: PrimitiveType, value: object) -> None:
    """What pyiceberg takes as it comes."""
    bits = _BITS.get(type(kind))
    whole = bits is None or (isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1)
    plain = isinstance(value, _PLAIN.get(type(kind), object))
    if not whole or not plain or isinstance(value, bool) is not isinstance(kind, BooleanType):
        raise ValueError("not a value of its type")


def _scaled(kind: DecimalType, value: Decimal) -> Decimal:
    """The same number with the scale of its type: manifests keep its digits alone."""
    if not value.is_finite():
        raise ValueError("not a number")
    scaled = value.scaleb(kind.scale)
    whole = int(scaled)
    if whole != scaled or len(str(abs(whole))) > kind.precision:
        raise ValueError("too many digits")
    return Decimal(whole).scaleb(-kind.scale)
