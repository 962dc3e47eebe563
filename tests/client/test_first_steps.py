"""The examples of docs/first-steps.md, of a service and its clients: they run, and end as they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError

from tests.support.lake import ALICE
from tests.support.service import Service

pytestmark = pytest.mark.nightly

PAGE = (Path(__file__).parents[2] / "docs" / "first-steps.md").read_text("utf-8")


def test_a_file_of_another_team_is_refused_as_the_page_says(
    served: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWARDEN_TOKEN", served.token(ALICE))
    _, stock, ours = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (answer,) = re.findall(r"^    ForbiddenError: (.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    known: dict[str, Any] = {}
    with pytest.raises(ForbiddenError) as refused:
        exec(_here(stock, served, tmp_path), known)
    assert str(refused.value).split() == _here(answer, served, tmp_path).split()
    exec(_here(ours, served, tmp_path), known)
    assert known["sales"].scan("id > 1", columns=["item"]).to_arrow().to_pylist() == [{"item": "jam"}]


def _here(text: str, served: Service, directory: Path) -> str:
    return text.replace("http://127.0.0.1:8181", served.url).replace("/tmp/", f"{directory}/")
