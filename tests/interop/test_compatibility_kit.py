"""Iceberg's REST Compatibility Kit ends as docs/compatibility.md says."""

from __future__ import annotations

import pytest

from tests.support.compatibility_kit import SUITES, KitMissing, run_kit
from tests.support.compatibility_page import FORMS, known_reasons, reasons, rendered, written


def test_each_kit_test_that_does_not_pass_has_a_reason() -> None:
    assert reasons()
    assert {test: reason for test, reason in reasons().items() if reason not in known_reasons()} == {}


@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES)
def test_the_kit_ends_as_the_page_says(suite: str) -> None:
    try:
        outcomes = {form: run_kit(suite, granted) for form, granted in FORMS.items()}
    except KitMissing as missing:
        pytest.skip(str(missing))
    assert rendered(suite, outcomes) == written(suite), {
        test: outcome
        for form in outcomes.values()
        for test, outcome in form.items()
        if outcome.result == "failed"
    }
