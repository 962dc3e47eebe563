"""The tutorials can be followed literally, from an empty directory, and print what they say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.environments import ROOT, Environment, build_wheel, environment
from tests.support.tutorials import follow

pytestmark = pytest.mark.nightly

PAGES = sorted(page.name for page in (ROOT / "docs").glob("tutorial-*.md"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("page", PAGES)
def test_a_tutorial_prints_what_it_says(page: str, wheel: Path, tmp_path: Path) -> None:
    def install(extras: Sequence[str], others: Sequence[str]) -> Environment:
        return environment(tmp_path / "environment", wheel, extras, others)

    follow(page, tmp_path, install)
