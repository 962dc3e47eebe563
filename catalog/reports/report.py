"""Defines a report: rows, charts and a JSON document, in whatever form it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Chart:
    """Amounts by name.

    Attributes:
        title: what the amounts are.
        amounts: the amounts; those of a time line in the order of time.
        over_time: whether the names are times, which all have the same length.
    """

    title: str
    amounts: Mapping[str, int]
    over_time: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A report.

    Attributes:
        title: what it is about.
        columns: titles of the columns.
        rows: the rows; a cell is a text, a number, None or a list of texts.
        document: the JSON document.
        charts: the charts.
        notes: sentences beside it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    document: Mapping[str, Any]
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = ()


def cell_text(cell: Any) -> str:
    """Return a cell as one text."""
    return ", ".join(map(str, cell)) if isinstance(cell, list | tuple) else "" if cell is None else str(cell)


def without_empty_columns(report: Report) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows without the columns in which nothing is; all columns if there are no rows."""
    kept = [
        place
        for place in range(len(report.columns))
        if not report.rows or any(cell_text(row[place]) for row in report.rows)
    ]
    return [report.columns[each] for each in kept], [[row[each] for each in kept] for row in report.rows]
