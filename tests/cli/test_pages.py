"""The documentation: its SQL is what lint, and so the catalog, takes, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.ddl import ANN, answers, context, rule
from tests.support.lake import policy
from tests.support.vectors import each_row

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")))
}
#: What cannot be known without a catalog, or shall show a refusal.
EXPECTED = {"columns-unknown", "state-unknown", "table-exists"}


def script(page: str) -> str:
    """All SQL of a page."""
    return ";\n".join(re.findall(r"```sql\n(.*?)```", page, re.DOTALL))


def anchors(page: str) -> set[str]:
    """What a link can name of a page: its headings, as they are spelled in links."""
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@each_row("page", [page for page, text in PAGES.items() if script(text)])
def test_whoever_has_every_right_may_run_the_statements_of_a_page(page: str) -> None:
    rotates = policy("rotates", {"key": ["*"]}, {ANN: ["rotate"]})
    codes = policy("codes", {"engine": ["hub"]}, {ANN: ["code"]})
    found = answers(script(PAGES[page]), context(ANN, rotates, codes, engine="hub"))
    assert found
    assert {rule(each) for each in found if not each.decision.allowed} <= EXPECTED


@each_row("page", PAGES)
def test_links_lead_to_what_is_there(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        file, _, anchor = target.partition("#")
        led_to = ((ROOT / page).parent / file).resolve() if file else ROOT / page
        assert led_to.exists(), target
        assert not anchor or anchor in anchors(led_to.read_text("utf-8")), target
