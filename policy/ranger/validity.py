"""When a policy is valid.

Rules:
- A policy without schedules is always valid; with schedules, while one of them is (both ends included).
- A schedule with recurrences is valid while one of them is, between its start and its end.
- Times are local to the schedule's time zone, GMT if it names none. A time or zone that is not understood is
  refused when the policy is read.

Source: Ranger's RangerValiditySchedule (``yyyy/MM/dd HH:mm:ss``), its validator and its evaluator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from policy.ranger.recurrence import Recurrence

_TIME_FORMAT: Final = "%Y/%m/%d %H:%M:%S"
_GMT_OFFSET: Final = re.compile(r"(?:GMT|UTC)([+-])(\d{1,2}):?([0-5]\d)")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A span of time in which a policy is valid.

    Attributes:
        start: first moment, with time zone; None for no beginning.
        end: last moment, with time zone; None for no end.
        zone: in which the recurrences are meant.
        recurrences: when it is valid inside the span; always if empty.
    """

    start: datetime | None
    end: datetime | None
    zone: tzinfo
    recurrences: tuple[Recurrence, ...]

    def at(self, now: datetime) -> bool:
        """Whether this schedule is in force at `now`, which is given in UTC."""
        if (self.start is not None and now < self.start) or (self.end is not None and now > self.end):
            return False
        if not self.recurrences:
            return True
        local = now.astimezone(self.zone).replace(tzinfo=None)
        return any(recurrence.covers(local) for recurrence in self.recurrences)


def active(schedules: Sequence[Schedule], now: datetime) -> bool:
    """Whether a policy with these schedules is in force at `now` (with time zone)."""
    # In UTC: Python compares two times in one and the same zone by their clocks, which go back in autumn.
    moment = now.astimezone(UTC)
    return not schedules or any(schedule.at(moment) for schedule in schedules)


def parse_zone(name: str | None) -> tzinfo:
    """A time zone by its name: IANA's, or an offset such as ``GMT+05:30``; GMT for None.

    Raises:
        ValueError: for a zone that is not known here.
    """
    if name is None:
        return UTC
    try:
        return _offset(name) or ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as problem:
        raise ValueError(f"unknown time zone {name!r}") from problem


def _offset(name: str) -> tzinfo | None:
    """The zone that a name such as ``GMT+05:30`` means; None for a name of another form."""
    found = _GMT_OFFSET.fullmatch(name)
    if found is None:
        return None
    span = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(span if found[1] == "+" else -span)


def parse_time(text: str, zone: tzinfo) -> datetime:
    """A moment as Ranger writes it, local to `zone`.

    Raises:
        ValueError: for a text of another form.
    """
    return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=zone)
