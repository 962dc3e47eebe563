"""Recurring times at which a policy is valid, such as every Monday from nine for eight hours.

Rules:
- A recurrence begins at every minute that its ``schedule`` names, and lasts for its ``interval``, both ends
  included. What counts is the latest beginning that is not after the moment in question.
- A day is named by its day of the month or by its day of the week (1 is Sunday, 7 is Saturday); where both
  are given, either is enough.
- A field is a list of numbers and ranges, or ``*``. Years are those from 2017 to 2100, and ranges of years
  are cut to them. A day that a month does not have is left out.
- All of it is read off a clock and calendar in the schedule's time zone; where such a clock is put forward or
  back, the interval is what the clock shows.

Source: Ranger's RangerValidityRecurrence, its validator and its RangerRecurrenceEvaluator. Different from
Ranger: its plugins read recurrences in the time zone of the machine that they run on, and their arithmetic
of borrowed months misses the latest beginning in some months.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

MINUTES: Final = (0, 59)
HOURS: Final = (0, 23)
DAYS_OF_MONTH: Final = (1, 31)
DAYS_OF_WEEK: Final = (1, 7)
MONTHS: Final = (1, 12)
YEARS: Final = (2017, 2100)
MAX_DAYS: Final = 36525
"""Longest interval, in days."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Beginnings, and how long each lasts.

    Attributes:
        minutes, hours, days_of_month, days_of_week, months, years: the numbers named, the highest first.
        length: how long it lasts.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days_of_month: tuple[int, ...]
    days_of_week: tuple[int, ...]
    months: tuple[int, ...]
    years: tuple[int, ...]
    length: timedelta

    def covers(self, local: datetime) -> bool:
        """Whether it is valid when the clock in its time zone shows `local` (which has no time zone)."""
        start = self._latest_start(local)
        return start is not None and local - start <= self.length

    def _latest_start(self, local: datetime) -> datetime | None:
        for day in self._days_until(local.date()):
            for hour in self.hours:
                for minute in self.minutes:
                    start = datetime(day.year, day.month, day.day, hour, minute)
                    if start <= local:
                        return start
        return None

    def _days_until(self, last: date) -> Iterator[date]:
        """The days on which it begins, from `last` back."""
        for year in self.years:
            for month in self.months:
                if (year, month) <= (last.year, last.month):
                    yield from (day for day in _days_back(year, month) if day <= last and self._names(day))

    def _names(self, day: date) -> bool:
        # Sunday is 7 to Python and 1 to Ranger.
        return day.day in self.days_of_month or day.isoweekday() % 7 + 1 in self.days_of_week


def numbers(text: str, bounds: tuple[int, int]) -> tuple[int, ...]:
    """The numbers that one field of a schedule names, the highest first.

    Args:
        text: as Ranger writes it: ``*``, or a list such as ``1, 5-7``.
        bounds: the lowest and the highest number.

    Raises:
        ValueError: with a sentence, for a text of another form and for a number out of bounds.
    """
    lowest, highest = bounds
    found: set[int] = set()
    for part in text.split(","):
        first, last = (lowest, highest) if part.strip() == "*" else _range(part)
        if bounds is YEARS:
            first, last = max(first, lowest), min(last, highest)
        if not lowest <= first <= last <= highest:
            raise ValueError(f"numbers must be {lowest} to {highest}")
        found.update(range(first, last + 1))
    return tuple(sorted(found, reverse=True))


def _range(part: str) -> tuple[int, int]:
    """First and last number of ``5`` or ``5-7``."""
    ends = [end.strip() for end in part.split("-")]
    if len(ends) > 2 or not all(end.isascii() and end.isdecimal() and len(end) <= 4 for end in ends):
        raise ValueError("expected *, or numbers and ranges such as 1, 5-7")
    first, last = int(ends[0]), int(ends[-1])
    if last < first:
        raise ValueError(f"the range {first}-{last} ends before it begins")
    return first, last


def _days_back(year: int, month: int) -> Iterator[date]:
    return (date(year, month, day) for day in range(monthrange(year, month)[1], 0, -1))
