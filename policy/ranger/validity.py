"""When a policy is valid.

Rules:
- A policy without schedules is always valid; with schedules, while one of them is (both ends included).
- A recurrence inside a schedule is not evaluated: within the schedule's start and end its answer is unknown,
  and the evaluation then lets the policy deny but not grant.
- Times are local to the schedule's time zone, GMT if it names none. A time or zone that is not understood is
  refused when the policy is read.

Source: Ranger's validity schedules (``yyyy/MM/dd HH:mm:ss``).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_TIME_FORMAT: Final = "%Y/%m/%d %H:%M:%S"
_GMT_OFFSET: Final = re.compile(r"(?:GMT|UTC)([+-])(\d{1,2}):?([0-5]\d)")


class Active(enum.Enum):
    """Whether something is in force at a moment."""

    NO = 0
    UNKNOWN = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Schedule:
    """A span of time in which a policy is valid.

    Attributes:
        start: first moment, with time zone; None for no beginning.
        end: last moment, with time zone; None for no end.
        recurring: whether it is valid only at recurring times inside the span.
    """

    start: datetime | None
    end: datetime | None
    recurring: bool

    def at(self, now: datetime) -> Active:
        """Whether this schedule is in force at `now` (with time zone)."""
        if (self.start is not None and now < self.start) or (self.end is not None and now > self.end):
            return Active.NO
        return Active.UNKNOWN if self.recurring else Active.YES


def active(schedules: Sequence[Schedule], now: datetime) -> Active:
    """Whether a policy with these schedules is in force at `now` (with time zone)."""
    if not schedules:
        return Active.YES
    return max((schedule.at(now) for schedule in schedules), key=lambda found: found.value)


def parse_zone(name: str | None) -> tzinfo:
    """A time zone by its name: IANA's, or an offset such as ``GMT+05:30``; GMT for None.

    Raises:
        ValueError: for a zone that is not known here.
    """
    if name is None:
        return UTC
    offset = _GMT_OFFSET.fullmatch(name)
    if offset is not None:
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(span if offset[1] == "+" else -span)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as problem:
        raise ValueError(f"unknown time zone {name!r}") from problem


def parse_time(text: str, zone: tzinfo) -> datetime:
    """A moment as Ranger writes it, local to `zone`.

    Raises:
        ValueError: for a text of another form.
    """
    return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=zone)
