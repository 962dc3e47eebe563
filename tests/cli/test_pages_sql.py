"""The SQL in the documentation is what lint, and so the catalog, takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.ddl import ANN, answers, context, rule
from tests.support.lake import policy

ROOT = Path(__file__).parents[2]
#: What cannot be known without a catalog, or shall show a refusal.
EXPECTED = {"columns-unknown", "state-unknown", "table-exists"}


def script(page: Path) -> str:
    """All SQL of a page."""
    return ";\n".join(re.findall(r"```sql\n(.*?)```", page.read_text("utf-8"), re.DOTALL))


PAGES = {page.stem: script(page) for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}


@pytest.mark.parametrize("page", sorted(page for page, sql in PAGES.items() if sql))
def test_whoever_has_every_right_may_run_the_statements_of_a_page(page: str) -> None:
    found = answers(PAGES[page], context(ANN, policy("rotates", {"key": ["*"]}, {ANN: ["rotate"]})))
    assert found
    assert {rule(each) for each in found if not each.decision.allowed} <= EXPECTED
