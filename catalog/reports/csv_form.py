"""Writes a report as CSV, for spreadsheets.

A cell that a spreadsheet would take for a formula begins with an apostrophe.
"""

from __future__ import annotations

import csv
import io
from typing import Final

from catalog.base.clean_text import clean
from catalog.reports.report import Report, cell_text

_LONGEST: Final = 8_000
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_text(report: Report) -> str:
    """Return the rows of a report as CSV, after a line of titles."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(report.columns)
    writer.writerows([_safe(cell_text(cell)) for cell in row] for row in report.rows)
    return text.getvalue()


def _safe(text: str) -> str:
    shown = clean(text, max(_LONGEST, len(text)))
    return f"'{shown}" if text.startswith(_FORMULA) else shown
