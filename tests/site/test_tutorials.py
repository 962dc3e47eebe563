"""The tutorials can be followed literally: each block is saved or run in an empty directory, in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

DOCS = Path(__file__).parents[2] / "docs"


def followed(page: str, directory: Path) -> list[str]:
    """What each shell block of a page printed."""
    steps = re.findall(
        r"(?:Save this as `([^`]+)`:\n\n)?^```(\w+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = []
    for name, language, text in steps:
        if name:
            (directory / name).write_text(text, "utf-8")
        elif language == "sh":
            done = subprocess.run(
                ("bash", "-e", "-c", text),
                cwd=directory,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert not done.returncode, (text, done.stdout, done.stderr)
            printed.append(done.stdout)
    return printed


def test_policies_in_ci(tmp_path: Path) -> None:
    page = (DOCS / "tutorial-policy-tests.md").read_text("utf-8")
    _, passed, failed, undone, _ = followed(page, tmp_path)
    assert "2 passed" in passed and "2 passed" in undone
    assert "other users read nothing" in failed and failed.endswith("exit status 1\n")
    assert "analysts read sales" in failed
    assert (tmp_path / "report.xml").read_text("utf-8").count("<testcase ") == 2
