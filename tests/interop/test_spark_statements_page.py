"""The table of Spark's statements in docs/compatibility.md says what the file of statements says."""

from __future__ import annotations

from tests.support.spark_statements import PAGE, page, statements


def test_the_page_sums_up_the_statements() -> None:
    assert PAGE.read_text() == page(), "run `.venv/bin/python -m tests.support.spark_statements`"


def test_there_are_enough_statements() -> None:
    assert len(statements()) >= 116
