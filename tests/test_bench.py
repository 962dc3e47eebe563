"""The benchmark's catalog starts: `make bench` is run rarely."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.service import served
from tests.support.lake import open_lake


@pytest.mark.nightly
def test_the_catalog_of_the_benchmark_answers(tmp_path: Path) -> None:
    with open_lake(tmp_path):
        pass
    with served(tmp_path) as catalog:
        assert catalog.url.startswith("http://127.0.0.1:") and catalog.kms_calls() == 0
