"""Converts partition values to and from Iceberg's JSON single-value form, for all values of a column type.

Source: Iceberg table specification, "Appendix D: JSON single-value serialization".
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.conversions import from_json, to_json
from pyiceberg.types import DateType, PrimitiveType, TimestampType, TimestamptzType

from catalog.iceberg.calendar import date_text, parse_date, parse_time, time_text

_UTC: Final = "+00:00"
_MAX_DAYS: Final = 2**31
_MAX_MICROS: Final = 2**63


def value_to_json(kind: PrimitiveType, value: Any) -> Any:
    """Convert a value to JSON; dates and timestamps are integers since 1970.

    Raises:
        ValueError, TypeError: it does not have its type.
    """
    if isinstance(value, int) and isinstance(kind, DateType):
        return date_text(value)
    if isinstance(value, int) and isinstance(kind, TimestampType):
        return time_text(value)
    if isinstance(value, int) and isinstance(kind, TimestamptzType):
        return time_text(value) + _UTC
    return to_json(kind, value)


def value_from_json(kind: PrimitiveType, value: Any) -> Any:
    """Parse a value from JSON; dates and timestamps with a signed year give integers since 1970.

    Raises:
        ValueError: it does not have its type. Also raises the errors of `pyiceberg.conversions.from_json`.
    """
    if isinstance(value, str) and value.startswith(("+", "-", "0000")):
        if isinstance(kind, DateType):
            return _within(parse_date(value), _MAX_DAYS)
        if isinstance(kind, TimestampType):
            return _within(parse_time(value), _MAX_MICROS)
        if isinstance(kind, TimestamptzType) and value.endswith(_UTC):
            return _within(parse_time(value.removesuffix(_UTC)), _MAX_MICROS)
    return from_json(kind, value)


def _within(number: int, limit: int) -> int:
    if not -limit <= number < limit:
        raise ValueError("out of range for its type")
    return number
