"""Makes the HTML page of a report: one file without scripts, which loads nothing.

Its content security policy forbids both. Every text in it is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from catalog.base.clean_text import clean
from catalog.reports.report import Report, cell_text

_LONGEST: Final = 8_000
_LOADS_NOTHING: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{border:1px solid #bbb;padding:4px 8px;text-align:left;vertical-align:top}"
)


def page(report: Report) -> str:
    """Return the page of a report."""
    title = _escaped(report.title)
    head = "".join(f"<th>{_escaped(each)}</th>" for each in report.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_escaped(cell_text(cell))}</td>' for cell in row)}</tr>\n"
        for row in report.rows
    )
    notes = "".join(f"<p>{_escaped(each)}</p>\n" for each in report.notes)
    charts = "".join(f"{_chart(each.amounts)}\n" for each in report.charts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_LOADS_NOTHING}">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n{notes}"
        f"{charts}<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
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


def _escaped(text: str) -> str:
    return escape(clean(text, max(_LONGEST, len(text))))
