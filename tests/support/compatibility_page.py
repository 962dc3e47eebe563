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

from tests.support.compatibility_kit import SUITES, Outcome, run_kit

PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
#: Whether the places that the kit writes to are granted, by the name of the form.
FORMS: Final = {"published": False, "granted": True}

_ROW: Final = re.compile(r"^\| `(?P<test>[^`]+)` \|.*\| (?P<reason>[^|]*) \|$", re.MULTILINE)
_REASON: Final = re.compile(r"^- \*\*(.+?)\*\*:", re.MULTILINE)
_RESULTS: Final = ("passed", "failed", "skipped")
_START: Final = "<!-- kit: written by tests.support.compatibility_page -->\n"
_END: Final = "<!-- /kit -->"

#: The outcomes of a suite's tests, by form.
Outcomes = Mapping[str, Mapping[str, Outcome]]


def reasons() -> dict[str, str]:
    """The reasons that the page gives, by the names of tests."""
    return {found["test"]: found["reason"] for found in _ROW.finditer(PAGE.read_text())}


def known_reasons() -> frozenset[str]:
    """The reasons that the page explains."""
    return frozenset(_REASON.findall(PAGE.read_text()))


def written(suite: str) -> str:
    """The part of a suite on the page."""
    found = re.search(
        rf"^### {suite.title()}\n.*?(?=^###|^{_END})", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return found[0] if found else ""


def rendered(suite: str, outcomes: Outcomes) -> str:
    """The part of a suite as the page has to show it.

    Args:
        suite: a name in `SUITES`.
        outcomes: those of all tests, in each form.
    """
    known = reasons()
    lines = [f"### {suite.title()}", "", f"| form | {' | '.join(_RESULTS)} |", "|---|---|---|---|"]
    for form in FORMS:
        counts = Counter(each.result for each in outcomes[form].values())
        lines.append(f"| {form} | {' | '.join(str(counts[each]) for each in _RESULTS)} |")
    lines += ["", f"| test | {' | '.join(FORMS)} | reason |", "|---|---|---|---|"]
    for test in sorted(set().union(*outcomes.values())):
        results = [outcomes[form][test].result for form in FORMS]
        if set(results) != {"passed"}:
            lines.append(f"| `{test}` | {' | '.join(results)} | {known.get(test, '')} |")
    return "\n".join([*lines, "", ""])


def main() -> None:
    """Run the kit, and write the page."""
    parts = [
        rendered(suite, {form: run_kit(suite, granted) for form, granted in FORMS.items()})
        for suite in SUITES
    ]
    before, _, rest = PAGE.read_text().partition(_START)
    PAGE.write_text(before + _START + "\n" + "".join(parts) + _END + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
