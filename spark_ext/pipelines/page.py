"""Draws a report as one HTML page with charts. The page loads nothing, and runs no script.

Everything that comes from the lake is escaped (`autoescape`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import Environment, StrictUndefined

_TEMPLATE: Final = "page.html.j2"
#: Rows of the page's tables, and bars of a chart.
_MOST_ROWS: Final = 2_000
_MOST_BARS: Final = 20
#: Pixels of the longest bar.
_WIDEST: Final = 420


class Bar(NamedTuple):
    """A bar of a chart: its label, the value, its width in pixels, and its style."""

    label: str
    value: int
    width: float
    style: str


def page(report: Mapping[str, Any], rules: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page.

    Args:
        report: the report as JSON values.
        rules: of each rule, its ``severity``, ``title`` and ``hint``.
    """
    by_rule = report["findings-by-rule"]
    by_table = Counter(each["table"] for each in report["findings"])
    charts = {
        "Items": bars(report["items"].items(), {name: name for name in report["items"]}),
        "Findings by rule": bars(
            by_rule.items(), {name: rules[name]["severity"] for name in by_rule if name in rules}
        ),
        "Findings by table": bars(by_table.most_common(), {}),
    }
    template = _environment().from_string(files(__package__).joinpath(_TEMPLATE).read_text("utf-8"))
    return template.render(report=report, rules=rules, charts=charts, most=_MOST_ROWS)


def _environment() -> Environment:
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def bars(values: Iterable[tuple[str, int]], styles: Mapping[str, str]) -> list[Bar]:
    """Return the bars of a chart, the largest first; those that find no room are one bar.

    Args:
        values: labels and values.
        styles: the style of each label.
    """
    largest_first = sorted(((name, value) for name, value in values if value), key=lambda each: -each[1])
    shown, others = largest_first[:_MOST_BARS], largest_first[_MOST_BARS:]
    if others:
        shown.append((f"{len(others):,} others", sum(value for _, value in others)))
    most = max((value for _, value in shown), default=1)
    return [
        Bar(name, value, max(2.0, round(_WIDEST * value / most, 1)), styles.get(name, "plain"))
        for name, value in shown
    ]
