"""docs/spark-scoreboard.md says what becomes of each kind of statement."""

from __future__ import annotations

import re

import pytest

from tests.support.scoreboard import rows, run
from tests.support.spark import SparkLake

_RESULT = re.compile(r"works|refused: `[A-Z_.0-9]+`( \([a-z0-9-]+\))?")
#: All rows in one test would take longer than a slow machine has for a test.
_PARTS = 8


def test_each_row_has_a_result() -> None:
    found = list(rows())
    assert len(found) > 120
    assert [row.statements for row in found if _RESULT.fullmatch(row.result) is None] == []


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(_PARTS))
def test_each_statement_ends_as_the_page_says(spark_lake: SparkLake, part: int) -> None:
    """`python -m tests.support.scoreboard` writes the results into the page."""
    of_part = list(rows())[part::_PARTS]
    results = {row.statements: (row.result, run(spark_lake, row)) for row in of_part}
    assert {each: both for each, both in results.items() if both[0] != both[1]} == {}
