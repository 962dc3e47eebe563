"""Converts days and microseconds since 1970 to ISO 8601 dates and times, in integer arithmetic.

Python's `datetime` is limited to the years 1 to 9999; Iceberg's dates and timestamps are not. A common "open
end", `9999-12-31 23:59:59`, is in the year 10000 if a session's time zone is west of UTC. Years outside 0 to
9999 are written as in Java, with a sign: `+10000-01-01`, `-0044-03-15`.

Source: Iceberg table specification, "Primitive Types" (proleptic Gregorian calendar) and "JSON single-value
serialization"; ISO 8601, "expanded representation".
"""

from __future__ import annotations

import re
from typing import Final

MICROS_PER_SECOND: Final = 1_000_000
MICROS_PER_DAY: Final = 86_400 * MICROS_PER_SECOND

_DAYS_PER_ERA: Final = 146_097  # days in 400 years, after which the calendar repeats
_YEARS_PER_ERA: Final = 400
_EPOCH_DAY: Final = 719_468  # from March 1st of the year 0 to 1970-01-01
_DATE: Final = re.compile(r"([+-]?)([0-9]{4,7})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?", re.ASCII)


def year_and_month(days: int) -> tuple[int, int]:
    """Return the year and the month (1 to 12) of a number of days since 1970-01-01."""
    year, month, _ = _civil(days)
    return year, month


def date_text(days: int) -> str:
    """Format a number of days since 1970-01-01 as a date."""
    year, month, day = _civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def time_text(micros: int) -> str:
    """Format a number of microseconds since 1970-01-01T00:00:00 as a date and time without a zone."""
    days, rest = divmod(micros, MICROS_PER_DAY)
    seconds, fraction = divmod(rest, MICROS_PER_SECOND)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{date_text(days)}T{clock}" + (f".{fraction:06d}" if fraction else "")


def parse_date(text: str) -> int:
    """Parse a date into the number of days since 1970-01-01.

    Raises:
        ValueError: it is not a date.
    """
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError("not a date")
    year = int(found[2]) * (-1 if found[1] == "-" else 1)
    days = _days(year, int(found[3]), int(found[4]))
    if date_text(days) != text:
        raise ValueError("not a date in the form YYYY-MM-DD")
    return days


def parse_time(text: str) -> int:
    """Parse a date and time without a zone into microseconds since 1970-01-01T00:00:00.

    Raises:
        ValueError: it is not a date and time.
    """
    date, separator, clock = text.partition("T")
    found = _TIME.fullmatch(clock)
    if not separator or found is None:
        raise ValueError("not a date and time")
    hours, minutes, seconds = int(found[1]), int(found[2]), int(found[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("not a valid time of day")
    fraction = int((found[4] or "0").ljust(6, "0"))
    of_day = (hours * 3600 + minutes * 60 + seconds) * MICROS_PER_SECOND + fraction
    return parse_date(date) * MICROS_PER_DAY + of_day


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day; years begin in March here, so that the leap day is last."""
    era, day = divmod(days + _EPOCH_DAY, _DAYS_PER_ERA)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    of_year = day - _days_before(year)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * _YEARS_PER_ERA + year + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _days(year: int, month: int, day: int) -> int:
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        raise ValueError("month or day out of range")
    era, of_era = divmod(year - (month <= 2), _YEARS_PER_ERA)
    shifted = month - 3 if month > 2 else month + 9
    return era * _DAYS_PER_ERA + _days_before(of_era) + (153 * shifted + 2) // 5 + day - 1 - _EPOCH_DAY


def _days_before(year: int) -> int:
    """Return the number of days before a year of an era."""
    return year * 365 + year // 4 - year // 100
