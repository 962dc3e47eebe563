"""Dates and timestamps as row filters write them, and the arithmetic on today's date."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Final

from policy.errors import PolicyInvalid

RULE: Final = "row-filter"
"""The rule of a refusal."""

_SHOWN: Final = 60
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})?", re.ASCII
)


def day_of(text: str) -> date:
    """The date in a text.

    Raises:
        PolicyInvalid: it is not one of the form ``2026-01-31``.
    """
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError as error:
        raise refused(f"the date {text!a} does not exist") from error
    raise refused(f"{text[:_SHOWN]!a} is not a date", "Write a date as 2026-01-31.")


def moment_of(text: str) -> datetime:
    """The timestamp in a text; with a zone only if the text has one.

    Raises:
        PolicyInvalid: it is not one of the form ``2026-01-31 23:59:59.999999+01:00``.
    """
    try:
        if _MOMENT.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError as error:
        raise refused(f"the timestamp {text!a} does not exist") from error
    raise refused(
        f"{text[:_SHOWN]!a} is not a timestamp",
        "Write a timestamp as 2026-01-31 23:59:59, with Z behind it for UTC.",
    )


def later(day: date, steps: Iterable[tuple[int, int]]) -> date:
    """A date with months and days added, one after the other.

    A month that is too short ends on its last day, as in Spark's ``add_months``.

    Raises:
        PolicyInvalid: the date is before the year 1 or after 9999.
    """
    try:
        for months, days in steps:
            year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
            day = date(year, month + 1, min(day.day, monthrange(year, month + 1)[1])) + timedelta(days)
    except (ValueError, OverflowError) as error:
        raise refused("its date arithmetic ends before the year 1 or after 9999") from error
    return day


def refused(problem: str, hint: str | None = None) -> PolicyInvalid:
    """The refusal of a row filter, to be raised."""
    return PolicyInvalid(
        f"the row filter cannot be used: {problem}.",
        rule=RULE,
        hint=hint or "Compare columns with constants: docs/row-filters-and-masks.md.",
    )
