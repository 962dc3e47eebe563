"""Keeps the results of Iceberg's REST Compatibility Kit in docs/compatibility.md.

`python -m tests.support.compatibility_page` writes them. Read the difference before a commit: each new row
needs a reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.compatibility_kit import SUITES, Form, Outcome, run_kit

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"

_ROW: Final = re.compile(r"^\| `(?P<test>[^`]+)` \|.*\| (?P<reason>[^|]*) \|$", re.MULTILINE)
_REASON: Final = re.compile(r"^- \*\*(.+?)\*\*:", re.MULTILINE)
_RESULTS: Final = ("passed", "failed", "skipped")
_START: Final = "<!-- kit: written by tests.support.compatibility_page -->\n"
_END: Final = "<!-- /kit -->"

#: The outcomes of a suite's tests, by form.
Outcomes = Mapping[Form, Mapping[str, Outcome]]


def reasons() -> dict[str, str]:
    """The reasons that the page gives, by the names of tests."""
    return {found["test"]: found["reason"] for found in _ROW.finditer(_parts()[1])}


def known_reasons() -> frozenset[str]:
    """The reasons that the page explains."""
    return frozenset(_REASON.findall(_parts()[0]))


def written(suite: str) -> str:
    """The part of a suite on the page."""
    _, found, text = _parts()[1].partition(f"### {suite.title()}\n")
    return found + text.partition("### ")[0]


def rendered(suite: str, outcomes: Outcomes) -> str:
    """The part of a suite as the page has to show it.

    Args:
        suite: a name in `SUITES`.
        outcomes: those of all tests, in each form.
    """
    known = reasons()
    lines = [f"### {suite.title()}", "", f"| form | {' | '.join(_RESULTS)} |", "|---|---|---|---|"]
    for form, found in outcomes.items():
        counts = Counter(each.result for each in found.values())
        lines.append(f"| {form} | {' | '.join(str(counts[each]) for each in _RESULTS)} |")
    lines += ["", f"| test | {' | '.join(outcomes)} | reason |", f"|---|{'---|' * len(outcomes)}---|"]
    for test in sorted(set().union(*outcomes.values())):
        results = [found[test].result for found in outcomes.values()]
        if set(results) != {"passed"}:
            lines.append(f"| `{test}` | {' | '.join(results)} | {known.get(test, '')} |")
    return "\n".join([*lines, "", ""])


def run(suite: str) -> Outcomes:
    """Run a suite in each of its forms."""
    return {form: run_kit(suite, form) for form in SUITES[suite].forms}


def main() -> None:
    """Run the kit, and write the page."""
    parts = [rendered(suite, run(suite)) for suite in SUITES]
    before, _, after = _parts()
    PAGE.write_text(f"{before}{_START}\n{''.join(parts)}{_END}{after}")


def _parts() -> tuple[str, str, str]:
    """The page before the results, the results, and the page after them."""
    before, _, rest = PAGE.read_text().partition(_START)
    results, _, after = rest.partition(_END)
    return before, results, after


if __name__ == "__main__":
    main()
