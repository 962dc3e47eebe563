"""Which rows of a long table of examples `make test` runs; `make nightly` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def leave_rows_to_nightly(items: Iterable[pytest.Item]) -> None:
    """Mark rows of tests with `rows_by_day(count)` as nightly: all but `count`, with the first and the last.

    Rows that are nightly already do not count.
    """
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("rows_by_day") and not item.get_closest_marker("nightly"):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for rows in tables.values():
        mark = rows[0].get_closest_marker("rows_by_day")
        assert mark is not None
        by_day = _spread(len(rows), *mark.args)
        for number, row in enumerate(rows):
            if number not in by_day:
                row.add_marker("nightly")


def _spread(rows: int, count: int) -> set[int]:
    """Return `count` of so many numbers, at equal distances, the first and the last among them."""
    if count < 2:
        raise ValueError(f"rows_by_day takes the first row and the last one, and so at least 2, not {count}.")
    return {round(each * (rows - 1) / (count - 1)) for each in range(count)}
