"""The examples, as users run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"

pytestmark = pytest.mark.nightly


def test_the_lake_of_flights_is_audited_encrypted_and_re_keyed(tmp_path: Path) -> None:
    """The script asserts itself what each cell finds."""
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "flights.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "passenger1@" not in ran.stdout + (tmp_path / "audit.html").read_text()
    assert (tmp_path / "proposed" / "discovered-masks.json").exists()
