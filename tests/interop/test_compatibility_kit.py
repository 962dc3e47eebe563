"""Iceberg's REST Compatibility Kit ends as docs/compatibility.md says."""

from __future__ import annotations

import pytest

from tests.support.compatibility_kit import SUITES, KitMissing
from tests.support.compatibility_page import known_reasons, reasons, rendered, run, written


def test_each_kit_test_that_does_not_pass_has_a_reason() -> None:
    assert reasons()
    assert {test: reason for test, reason in reasons().items() if reason not in known_reasons()} == {}


@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES)
def test_the_kit_ends_as_the_page_says(suite: str) -> None:
    try:
        outcomes = run(suite)
    except KitMissing as missing:
        pytest.skip(str(missing))
    told = [
        f"{form}: {test}: {outcome.message}"
        for form, found in outcomes.items()
        for test, outcome in found.items()
        if outcome.result == "failed"
    ]
    assert rendered(suite, outcomes) == written(suite), "\n".join(told)
