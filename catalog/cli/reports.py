"""Prints a report as a table, JSON or CSV, or writes it to an HTML page.

- JSON, CSV and the page have every name; the table shows the first few of many.
- A cell of CSV that a spreadsheet would take for a formula begins with an apostrophe.
- The page is one file without scripts, and loads nothing. Its content security policy forbids both. Every
  text in it is escaped.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from catalog.audit.records import clean
from catalog.cli import output
from policy.errors import RequestInvalid

AsCsv: TypeAlias = Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")]
HtmlFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the result to a new page with charts, in one file."),
]

_SHOWN: Final = 5
_LONGEST: Final = 8_000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_LOADS_NOTHING: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{border:1px solid #bbb;padding:4px 8px;text-align:left;vertical-align:top}"
)


@dataclass(frozen=True, slots=True)
class Report:
    """A report.

    Attributes:
        title: what it is about.
        columns: titles of the columns.
        rows: the rows; a cell is a text, a number or a list of texts.
        document: the JSON document.
        chart: amounts by name, for a chart.
        notes: sentences beside it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    document: Mapping[str, Any]
    chart: Mapping[str, int]
    notes: Sequence[str] = ()


def require_one_form(*, as_json: bool, as_csv: bool, html: Path | None) -> None:
    """Check that a report has one form.

    Raises:
        typer.BadParameter: more than one is given.
    """
    if as_json + as_csv + (html is not None) > 1:
        raise typer.BadParameter("Give only one of --json, --csv and --html.")


def show(report: Report, *, as_json: bool, as_csv: bool, html: Path | None) -> None:
    """Print a report in one form.

    Raises:
        RequestInvalid: the page cannot be written, or there is such a file.
    """
    if as_json:
        output.document(report.document)
        return
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(report.columns)
        writer.writerows([_for_spreadsheets(_text(cell)) for cell in row] for row in report.rows)
    elif html is not None:
        _write(html, page(report))
    else:
        output.rows(report.columns, [[_short(cell) for cell in row] for row in report.rows])
    for each in report.notes:
        output.note(each)


def page(report: Report) -> str:
    """Make the page of a report."""
    title = _escaped(report.title)
    head = "".join(f"<th>{_escaped(each)}</th>" for each in report.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_escaped(_text(cell))}</td>' for cell in row)}</tr>\n" for row in report.rows
    )
    notes = "".join(f"<p>{_escaped(each)}</p>\n" for each in report.notes)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_LOADS_NOTHING}">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n{notes}"
        f"{_chart(report.chart)}\n<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
        "</body></html>\n"
    )


def _chart(amounts: Mapping[str, int]) -> str:
    """A bar for each amount."""
    most = max(amounts.values(), default=0) or 1
    bars = "".join(
        f'<text x="0" y="{place * 24 + 16}">{_escaped(name)}</text>'
        f'<rect x="200" y="{place * 24 + 4}" width="{amount * 400 // most}" height="16" fill="#36c"/>'
        f'<text x="{amount * 400 // most + 208}" y="{place * 24 + 16}">{amount}</text>'
        for place, (name, amount) in enumerate(amounts.items())
    )
    height = len(amounts) * 24 + 8
    return f'<svg role="img" width="700" height="{height}" xmlns="http://www.w3.org/2000/svg">{bars}</svg>'


def _write(path: Path, text: str) -> None:
    try:
        # Never over another file: a report names users and tables, and a page is not taken back.
        with path.open("x", encoding="utf-8") as file:
            path.chmod(0o600)
            file.write(text)
    except OSError as error:
        raise RequestInvalid(
            f"The page cannot be written: {error.strerror}.",
            path=str(path),
            rule="report-file",
            hint="Give the path of a new file in a directory that you can write.",
        ) from error


def _text(cell: Any) -> str:
    return ", ".join(map(str, cell)) if isinstance(cell, list | tuple) else "" if cell is None else str(cell)


def _short(cell: Any) -> Any:
    if not isinstance(cell, list | tuple) or len(cell) <= _SHOWN:
        return _text(cell)
    return f"{_text(cell[:_SHOWN])} and {len(cell) - _SHOWN} more"


def _escaped(text: str) -> str:
    return escape(clean(text, max(_LONGEST, len(text))))


def _for_spreadsheets(text: str) -> str:
    shown = clean(text, max(_LONGEST, len(text)))
    return f"'{shown}" if text.startswith(_FORMULA) else shown
