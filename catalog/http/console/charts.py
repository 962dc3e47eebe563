"""Lays out the charts of reports as bars, which the templates draw as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catalog.reports.report import Chart

#: Sizes in the units of the drawing.
_WIDTH: Final = 960
_HEIGHT: Final = 160
_LINE: Final = 24
_NAMES: Final = 330
_LONGEST_NAME: Final = 46
_MOST_LABELS: Final = 8
_WIDEST_BAR: Final = 60


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar and its texts.

    Attributes:
        name: what it stands for.
        amount: how much.
        x, y, width, height: the bar.
        label: the name as the chart shows it; empty where there is no room.
    """

    name: str
    amount: int
    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart, laid out.

    Attributes:
        title: what the amounts are.
        over_time: whether the bars stand side by side, in the order of time.
        bars: the bars.
        width, height: the size of the drawing.
    """

    title: str
    over_time: bool
    bars: Sequence[Bar]
    width: int
    height: int


def laid_out(chart: Chart) -> Drawing:
    """Lay out a chart."""
    bars = _over_time(chart) if chart.over_time else _below_each_other(chart)
    height = _HEIGHT + _LINE if chart.over_time else _LINE * len(bars) + 4
    return Drawing(chart.title, chart.over_time, bars, _WIDTH, height)


def _over_time(chart: Chart) -> list[Bar]:
    most, count = max(chart.amounts.values(), default=0) or 1, len(chart.amounts) or 1
    step, every = _WIDTH / count, -(-count // _MOST_LABELS)
    bars = []
    for number, (name, amount) in enumerate(chart.amounts.items()):
        high = amount * (_HEIGHT - 20) / most
        label = name if number % every == 0 else ""
        bars.append(
            Bar(
                name,
                amount,
                round(number * step, 1),
                round(_HEIGHT - high, 1),
                round(min(step * 0.8, _WIDEST_BAR), 1),
                round(high, 1),
                label,
            )
        )
    return bars


def _below_each_other(chart: Chart) -> list[Bar]:
    most, room = max(chart.amounts.values(), default=0) or 1, _WIDTH - _NAMES - 80
    return [
        Bar(
            name,
            amount,
            _NAMES,
            number * _LINE + 4,
            round(amount * room / most, 1),
            _LINE - 8,
            name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…",
        )
        for number, (name, amount) in enumerate(chart.amounts.items())
    ]
