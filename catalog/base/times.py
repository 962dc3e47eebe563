"""Converts times to the milliseconds that the database stores, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


def to_ms(moment: datetime) -> int:
    """Convert a time to milliseconds since 1970."""
    return int(moment.timestamp() * 1000)


@overload
def from_ms(value: int) -> datetime: ...
@overload
def from_ms(value: None) -> None: ...
@overload
def from_ms(value: int | None) -> datetime | None: ...
def from_ms(value: int | None) -> datetime | None:
    """Convert milliseconds since 1970 to a time in UTC; None stays None."""
    return None if value is None else datetime.fromtimestamp(value / 1000, UTC)
