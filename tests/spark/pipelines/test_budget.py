"""What a run does at a time, altogether, and when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import RequestInvalid
from spark_ext.pipelines.budget import Budget, Window
from spark_ext.pipelines.items import Item

_SIZES = st.lists(st.integers(0, 1_000), max_size=40)
_LIMIT = st.none() | st.integers(1, 2_000)


@given(_SIZES, _LIMIT, _LIMIT, st.integers(1, 50))
def test_groups_keep_all_items_in_order_within_the_limits(
    sizes: list[int], items: int | None, size: int | None, usual: int
) -> None:
    planned = [Item(str(number), "t", bytes=each) for number, each in enumerate(sizes)]
    budget = Budget(items_at_a_time=items, bytes_at_a_time=size)
    groups = list(budget.groups(planned, usual))
    assert [item for group in groups for item in group] == planned
    assert all(1 <= len(group) <= (items or usual) for group in groups)
    if size is not None:
        assert all(len(group) == 1 or sum(item.bytes for item in group) <= size for group in groups)


@given(_SIZES.filter(bool), _LIMIT, _LIMIT)
def test_a_run_does_at_most_what_its_budget_has_and_at_least_one_item(
    sizes: list[int], items: int | None, size: int | None
) -> None:
    planned = [Item(str(number), "t", bytes=each) for number, each in enumerate(sizes)]
    fitting = Budget(items=items, bytes=size).fitting(planned, 0, 0)
    assert fitting == planned[: len(fitting)] and fitting
    assert items is None or len(fitting) <= items
    assert size is None or len(fitting) == 1 or sum(each.bytes for each in fitting) <= size


@pytest.mark.parametrize(
    ("text", "hour", "contained"),
    [
        ("22:00-06:00", 23, True),
        ("22:00-06:00", 5, True),
        ("22:00-06:00", 6, False),
        ("09:00-17:00", 8, False),
        ("09:00-17:00 America/New_York", 14, True),
        ("09:00-17:00 America/New_York", 9, False),
    ],
)
def test_a_window_contains_its_hours_in_its_zone(text: str, hour: int, contained: bool) -> None:
    assert Window.parse(text).contains(datetime(2026, 1, 15, hour, 30, tzinfo=UTC)) is contained


@pytest.mark.parametrize(
    "text", ["", "22-06", "24:00-06:00", "22:00-06:00 Nowhere", "22:00-06:00 ../etc", "a"]
)
def test_what_is_not_a_window_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        Budget(window=text)


@pytest.mark.parametrize("limit", [{"items": 0}, {"bytes": -1}, {"items_at_a_time": 0}, {"pause_s": -1.0}])
def test_limits_that_are_not_positive_are_refused(limit: dict[str, int]) -> None:
    with pytest.raises(RequestInvalid):
        Budget(**limit)  # type: ignore[arg-type]
