"""Validity schedules as a policy document writes them.

Rules:
- A schedule says a start, an end or recurrences; one that says nothing would make a policy valid for ever,
  though it was meant for a time.
- It does not end before it starts. A recurrence has a schedule with every field (of the day's two, one is
  enough) and an interval of at least a minute.

Source: Ranger's RangerValidityScheduleValidator.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import Final

from policy.fields import Field
from policy.ranger.recurrence import (
    DAYS_OF_MONTH,
    DAYS_OF_WEEK,
    HOURS,
    MAX_DAYS,
    MINUTES,
    MONTHS,
    YEARS,
    Recurrence,
    numbers,
)
from policy.ranger.validity import Schedule, parse_time, parse_zone

_OLD_VALIDITY: Final = "POLICY_VALIDITY_SCHEDULES"
_DAYS: Final = ("dayOfMonth", "dayOfWeek")
_FIELDS: Final = {
    "minute": MINUTES,
    "hour": HOURS,
    "dayOfMonth": DAYS_OF_MONTH,
    "dayOfWeek": DAYS_OF_WEEK,
    "month": MONTHS,
    "year": YEARS,
}


def schedules_of(policy: Field) -> tuple[Schedule, ...]:
    """When a policy is valid; always if empty."""
    found = tuple(schedule_of(field) for field in policy["validitySchedules"].elements())
    options = policy["options"]
    names = options.names() if options.given else ()
    if not found and _OLD_VALIDITY in names:
        raise options[_OLD_VALIDITY].invalid(
            "validity schedules in options are not supported.", "Use the field validitySchedules."
        )
    return found


def schedule_of(field: Field) -> Schedule:
    """One span of time.

    Raises:
        PolicyInvalid: naming the field that is wrong.
    """
    members = field.members(frozenset({"startTime", "endTime", "timeZone", "recurrences"}))
    zone = _zone(members["timeZone"])
    start, end = (_time(members[name], zone) for name in ("startTime", "endTime"))
    if start is not None and end is not None and end < start:
        raise members["endTime"].invalid("endTime is before startTime.")
    recurrences = tuple(_recurrence(element) for element in members["recurrences"].elements())
    if start is None and end is None and not recurrences:
        raise field.invalid("a schedule must have a start, an end or recurrences.")
    return Schedule(start, end, zone, recurrences)


def _zone(field: Field) -> tzinfo:
    try:
        return parse_zone(field.optional_string())
    except ValueError as problem:
        raise field.invalid(f"{problem}.", "Use a name such as Europe/Oslo, or GMT+01:00.") from problem


def _time(field: Field, zone: tzinfo) -> datetime | None:
    text = field.optional_string()
    try:
        return None if text is None else parse_time(text, zone)
    except ValueError as problem:
        raise field.invalid("the time is not in the form 2030/01/31 23:59:59.") from problem


def _recurrence(field: Field) -> Recurrence:
    members = field.members(frozenset({"schedule", "interval"}))
    schedule = members["schedule"].members(frozenset(_FIELDS))
    named = {name: _numbers(schedule[name], name) for name in _FIELDS}
    if not any(named[name] for name in _DAYS):
        raise members["schedule"].invalid("a recurrence must have dayOfMonth or dayOfWeek.")
    return Recurrence(
        minutes=named["minute"],
        hours=named["hour"],
        days_of_month=named["dayOfMonth"],
        days_of_week=named["dayOfWeek"],
        months=named["month"],
        years=named["year"],
        length=_length(members["interval"]),
    )


def _numbers(field: Field, name: str) -> tuple[int, ...]:
    text = field.optional_string()
    if text is None and name in _DAYS:
        return ()
    if text is None:
        raise field.invalid(f"a recurrence must have {name}.", "Use * to match all.")
    with field.located():
        return numbers(text, _FIELDS[name])


def _length(field: Field) -> timedelta:
    members = field.members(frozenset({"days", "hours", "minutes"}))
    counts = []
    for name, highest in (("days", MAX_DAYS), ("hours", HOURS[1]), ("minutes", MINUTES[1])):
        count = members[name].integer() or 0
        if not 0 <= count <= highest:
            raise members[name].invalid(f"{name} is {count}, but must be 0 to {highest}.")
        counts.append(count)
    days, hours, minutes = counts
    length = timedelta(days=days, hours=hours, minutes=minutes)
    if not length:
        raise field.invalid("the interval is shorter than one minute.")
    return length
