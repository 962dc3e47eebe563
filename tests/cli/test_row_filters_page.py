"""The example on the page about row filters and masks is one that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policy.testing import Case, Suite, UnderTest, parse_cases
from policy.testing.report import failure_lines

PAGE = (Path(__file__).parents[2] / "docs" / "row-filters-and-masks.md").read_text("utf-8")


def block(language: str) -> str:
    """The first block of the page in a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


POLICIES = block("json")
SUITE = Suite(
    parse_cases("page.yaml", block("yaml").encode()), UnderTest({"orders.json": POLICIES.encode()}, {})
)


@pytest.mark.parametrize("case", SUITE.file.cases, ids=lambda case: case.name)
def test_the_policies_decide_as_the_cases_say(case: Case) -> None:
    outcome = SUITE.run(case)
    assert outcome.passed, list(failure_lines(outcome))
