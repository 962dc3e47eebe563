"""Prints a report as a table, JSON or CSV, or writes it to an HTML page.

JSON, CSV and the page have every name; the table shows the first few of many. The table and the page leave
out columns without content.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from catalog.cli import output
from catalog.reports.csv_form import csv_text
from catalog.reports.page import page
from catalog.reports.report import Report, cell_text, without_empty_columns
from policy.errors import RequestInvalid

AsCsv: TypeAlias = Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")]
HtmlFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the result to a new page with charts, in one file."),
]

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which a report is printed; a table if none is given.

    Attributes:
        as_json: the JSON document.
        as_csv: CSV.
        html: a page in this new file.
    """

    as_json: bool
    as_csv: bool
    html: Path | None


def one_form(*, as_json: bool, as_csv: bool, html: Path | None) -> Form:
    """Return the form that the options give.

    Raises:
        typer.BadParameter: more than one is given.
    """
    if as_json + as_csv + (html is not None) > 1:
        raise typer.BadParameter("Give only one of --json, --csv and --html.")
    return Form(as_json, as_csv, html)


def show(report: Report, form: Form) -> None:
    """Print a report.

    Raises:
        RequestInvalid: the page cannot be written, or there is such a file.
    """
    if form.as_json:
        output.document(report.document)
        return
    if form.as_csv:
        output.results().write(csv_text(report))
    elif form.html is not None:
        _write(form.html, page(report))
    else:
        columns, rows = without_empty_columns(report)
        output.rows(columns, [[_short(cell) for cell in row] for row in rows])
    for each in report.notes:
        output.note(each)


def _write(path: Path, text: str) -> None:
    try:
        # Never over another file: a report names users and tables, and a page is not taken back. It is
        # private from the start: who could open it before its mode is changed could read what comes later.
        with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
            file.write(text)
    except OSError as error:
        raise RequestInvalid(
            f"The page cannot be written: {error.strerror}.",
            path=str(path),
            rule="report-file",
            hint="Give the path of a new file in a directory that you can write.",
        ) from error


def _short(cell: Any) -> str:
    if not isinstance(cell, list | tuple) or len(cell) <= _SHOWN:
        return cell_text(cell)
    return f"{cell_text(cell[:_SHOWN])} and {len(cell) - _SHOWN} more"
