"""When policies are valid: spans, time zones, recurrences."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.recurrence import Recurrence, numbers
from tests.support.vectors import each_row

Json = dict[str, Any]

REQUEST = AccessRequest(Principal("ann"), Resource.key("k"), "use")


def valid(schedule: Json | list[Json], now: str) -> bool:
    """Whether a policy with these schedules grants at `now`."""
    policy = {
        "name": "p",
        "resources": {"key": {"values": ["k"]}},
        "policyItems": [{"accesses": [{"type": "use"}], "users": ["ann"]}],
        "validitySchedules": schedule if isinstance(schedule, list) else [schedule],
    }
    found = PolicySet.parse({"p.json": json.dumps(policy)})
    return found.decide(REQUEST, datetime.fromisoformat(now)).allowed


def recurring(interval: Json, **fields: str) -> Json:
    every = {"minute": "0", "hour": "0", "dayOfMonth": "*", "month": "*", "year": "*"}
    return {"recurrences": [{"schedule": {**every, **fields}, "interval": interval}]}


@each_row(
    ("schedule", "now", "expected"),
    [
        ({"startTime": "2030/01/01 00:00:00"}, "2030-01-01T00:00:00+00:00", True),
        ({"startTime": "2030/01/01 00:00:00"}, "2029-12-31T23:59:59+00:00", False),
        ({"endTime": "2030/01/01 00:00:00"}, "2030-01-01T00:00:00+00:00", True),
        ({"endTime": "2030/01/01 00:00:00"}, "2030-01-01T00:00:01+00:00", False),
        # Far ends do not overflow in any zone.
        (
            {"endTime": "9999/12/31 23:59:59", "timeZone": "America/Los_Angeles"},
            "2030-01-01T00:00+00:00",
            True,
        ),
        ({"startTime": "1900/01/01 00:00:00", "timeZone": "GMT+14:00"}, "2030-01-01T00:00+00:00", True),
        # Oslo is an hour ahead of GMT in winter, two in summer.
        ({"startTime": "2030/01/01 00:00:00", "timeZone": "Europe/Oslo"}, "2029-12-31T23:00+00:00", True),
        ({"startTime": "2030/01/01 00:00:00", "timeZone": "Europe/Oslo"}, "2029-12-31T22:59:59+00:00", False),
        ({"startTime": "2030/07/01 00:00:00", "timeZone": "Europe/Oslo"}, "2030-06-30T22:00+00:00", True),
        ({"startTime": "2030/07/01 00:00:00", "timeZone": "Europe/Oslo"}, "2030-06-30T21:59:59+00:00", False),
        ({"startTime": "2030/01/01 00:00:00", "timeZone": "GMT-1:30"}, "2030-01-01T01:30+00:00", True),
        ({"startTime": "2030/01/01 00:00:00", "timeZone": "GMT-1:30"}, "2030-01-01T01:29:59+00:00", False),
        ({"startTime": "2030/01/01 00:00:00", "timeZone": "UTC+0530"}, "2029-12-31T18:30+00:00", True),
        ({"startTime": "2030/01/01 00:00:00", "timeZone": "UTC+0530"}, "2029-12-31T18:29:59+00:00", False),
        # The caller's own zone does not matter.
        ({"startTime": "2030/01/01 00:00:00"}, "2030-01-01T05:00:00+05:00", True),
        ({"startTime": "2030/01/01 00:00:00"}, "2030-01-01T04:59:59+05:00", False),
    ],
)
def test_a_schedule_has_a_start_and_an_end_that_are_part_of_it(
    schedule: Json, now: str, expected: bool
) -> None:
    assert valid(schedule, now) is expected


def test_one_schedule_of_several_is_enough() -> None:
    both = [{"endTime": "2029/01/01 00:00:00"}, {"startTime": "2030/01/01 00:00:00"}]
    assert valid(both, "2028-06-01T00:00+00:00")
    assert not valid(both, "2029-06-01T00:00+00:00")
    assert valid(both, "2030-06-01T00:00+00:00")


MONDAYS = recurring({"hours": 8}, hour="9", dayOfMonth="", dayOfWeek="2")
MONTH_ENDS = recurring({"days": 1}, hour="12", dayOfMonth="31")


@each_row(
    ("schedule", "now", "expected"),
    [
        # 2030-01-14 is a Monday.
        (MONDAYS, "2030-01-14T08:59:59+00:00", False),
        (MONDAYS, "2030-01-14T09:00:00+00:00", True),
        (MONDAYS, "2030-01-14T17:00:00+00:00", True),
        (MONDAYS, "2030-01-14T17:00:01+00:00", False),
        (MONDAYS, "2030-01-15T09:00:00+00:00", False),
        (MONDAYS, "2030-01-13T09:00:00+00:00", False),
        ({**MONDAYS, "timeZone": "Asia/Tokyo"}, "2030-01-14T00:00:00+00:00", True),
        ({**MONDAYS, "timeZone": "Asia/Tokyo"}, "2030-01-13T23:59:59+00:00", False),
        ({**MONDAYS, "startTime": "2030/01/14 10:00:00"}, "2030-01-14T09:30:00+00:00", False),
        ({**MONDAYS, "startTime": "2030/01/14 10:00:00"}, "2030-01-14T10:00:00+00:00", True),
        ({**MONDAYS, "endTime": "2030/01/14 10:00:00"}, "2030-01-14T10:00:01+00:00", False),
        # Saturday and Sunday are the last and the first day of Ranger's week.
        (recurring({"minutes": 1}, dayOfMonth="", dayOfWeek="1"), "2030-01-13T00:00:30+00:00", True),
        (recurring({"minutes": 1}, dayOfMonth="", dayOfWeek="7"), "2030-01-12T00:00:30+00:00", True),
        (recurring({"minutes": 1}, dayOfMonth="", dayOfWeek="1,7"), "2030-01-14T00:00:30+00:00", False),
        # Either of the two days is enough.
        (recurring({"hours": 1}, dayOfMonth="15", dayOfWeek="2"), "2030-01-14T00:30+00:00", True),
        (recurring({"hours": 1}, dayOfMonth="15", dayOfWeek="2"), "2030-01-15T00:30+00:00", True),
        (recurring({"hours": 1}, dayOfMonth="15", dayOfWeek="2"), "2030-01-16T00:30+00:00", False),
        # A day that a month does not have is left out, and the interval reaches into the next month.
        (MONTH_ENDS, "2030-02-01T12:00:00+00:00", True),
        (MONTH_ENDS, "2030-02-01T12:00:01+00:00", False),
        (MONTH_ENDS, "2030-03-01T00:00:00+00:00", False),
        (MONTH_ENDS, "2030-05-01T00:00:00+00:00", False),
        (MONTH_ENDS, "2030-06-01T00:00:00+00:00", True),
        (recurring({"days": 1}, dayOfMonth="29", month="2"), "2032-02-29T23:00+00:00", True),
        (recurring({"days": 1}, dayOfMonth="29", month="2"), "2031-03-01T00:00+00:00", False),
        (recurring({"days": 366}, dayOfMonth="29", month="2"), "2029-02-28T00:00+00:00", True),
        (recurring({"days": 366}, dayOfMonth="30", month="2"), "2030-03-01T00:00+00:00", False),
        # The interval reaches over the end of a day, a month and a year.
        (recurring({"hours": 2}, hour="23", dayOfMonth="31", month="12"), "2031-01-01T01:00:00+00:00", True),
        (recurring({"hours": 2}, hour="23", dayOfMonth="31", month="12"), "2031-01-01T01:00:01+00:00", False),
        # The latest beginning counts, not one whose day and month were put together.
        (recurring({"days": 60}, dayOfMonth="1, 15", month="1"), "2030-03-10T00:00+00:00", True),
        (recurring({"days": 1}, year="2029"), "2030-01-01T00:00:00+00:00", True),
        (recurring({"days": 1}, year="2029"), "2030-01-01T00:00:01+00:00", False),
        (recurring({"days": 1}, year="2031"), "2030-12-31T23:59:59+00:00", False),
        (recurring({"days": 1}, year="2010-2017"), "2017-05-01T00:00:00+00:00", True),
        (recurring({"days": 1}, year="2010-2017"), "2016-05-01T00:00:00+00:00", False),
        (recurring({"days": 1}, year="2100-2200"), "2100-05-01T00:00:00+00:00", True),
        (recurring({"minutes": 9}, minute="0, 10-12,30", hour="*"), "2030-05-01T03:21:00+00:00", True),
        (recurring({"minutes": 9}, minute="0, 10-12,30", hour="*"), "2030-05-01T03:21:01+00:00", False),
        (recurring({"minutes": 9}, minute="0, 10-12,30", hour="*"), "2030-05-01T03:39:00+00:00", True),
        # The clock in Oslo goes from two to three on 2030-03-31, and from three to two on 2030-10-27.
        (
            {**recurring({"hours": 2}, hour="1"), "timeZone": "Europe/Oslo"},
            "2030-03-31T01:00:00+00:00",
            True,
        ),
        (
            {**recurring({"hours": 2}, hour="1"), "timeZone": "Europe/Oslo"},
            "2030-03-31T01:00:01+00:00",
            False,
        ),
        (
            {**recurring({"minutes": 59}, hour="2"), "timeZone": "Europe/Oslo"},
            "2030-10-27T01:30:00+00:00",
            True,
        ),
    ],
)
def test_a_recurrence_is_valid_for_its_interval(schedule: Json, now: str, expected: bool) -> None:
    assert valid(schedule, now) is expected


def test_one_recurrence_of_several_is_enough() -> None:
    both = {"recurrences": [*MONDAYS["recurrences"], *MONTH_ENDS["recurrences"]]}
    assert valid(both, "2030-01-14T09:00+00:00")
    assert valid(both, "2030-01-31T12:00+00:00")
    assert not valid(both, "2030-01-30T12:00+00:00")


def some(bounds: tuple[int, int]) -> st.SearchStrategy[tuple[int, ...]]:
    one = st.integers(*bounds)
    return st.lists(one, min_size=1, max_size=3, unique=True).map(lambda n: tuple(sorted(n, reverse=True)))


@settings(max_examples=60, deadline=None)
@given(
    minutes=some((0, 59)),
    hours=some((0, 23)),
    days=some((1, 31)),
    weekdays=st.one_of(st.just(()), some((1, 7))),
    months=some((1, 12)),
    length=st.integers(1, 3000),
    now=st.datetimes(datetime(2027, 12, 1), datetime(2028, 4, 1)),
)
def test_the_latest_beginning_is_the_one_found_by_going_back_minute_by_minute(
    minutes: tuple[int, ...],
    hours: tuple[int, ...],
    days: tuple[int, ...],
    weekdays: tuple[int, ...],
    months: tuple[int, ...],
    length: int,
    now: datetime,
) -> None:
    def begins(at: datetime) -> bool:
        sunday_first = (at.weekday() + 1) % 7 + 1
        on_day = at.day in days or sunday_first in weekdays
        return at.minute in minutes and at.hour in hours and on_day and at.month in months and at.year == 2028

    found = Recurrence(minutes, hours, days, weekdays, months, (2028,), timedelta(minutes=length))
    first = now.replace(second=0, microsecond=0)
    back = (first - timedelta(minutes=count) for count in range(length + 1))
    assert found.covers(now) is any(begins(at) and now - at <= found.length for at in back)


def test_numbers_come_the_highest_first() -> None:
    assert numbers(" 1-3 ,7, 2", (1, 31)) == (7, 3, 2, 1)
    assert numbers("*", (1, 3)) == (3, 2, 1)
    assert numbers("5-5", (1, 31)) == (5,)


def test_a_policy_without_schedules_is_always_valid() -> None:
    assert valid([], "0001-01-01T00:00:00+00:00") and valid([], "9999-12-31T23:59:59+00:00")
