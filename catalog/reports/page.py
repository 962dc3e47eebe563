"""Makes the HTML page of a report: one file without scripts, which loads nothing.

- Its content security policy forbids both. Every text in it is escaped.
- Charts are drawn without text inside, so that their labels stay readable in narrow windows.
- Columns without content are left out. A long list of names can be opened and closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from catalog.base.clean_text import clean
from catalog.reports.report import Chart, Report, cell_text, without_empty_columns

_LONGEST: Final = 8_000
#: Names in a cell that are shown at once.
_SHOWN: Final = 20
#: Characters of a cell that stays on one line.
_SHORT: Final = 26
_LOADS_NOTHING: Final = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE: Final = """
:root{color-scheme:light dark;--page:#fff;--text:#1b1f24;--soft:#57606a;--line:#d0d7de;
--head:#f3f5f8;--bar:#1f5fbf}
@media(prefers-color-scheme:dark){
:root{--page:#15181d;--text:#e8eaed;--soft:#aab2bd;--line:#3b424d;--head:#20252d;--bar:#78adff}}
*{box-sizing:border-box}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;padding:1.5rem;max-width:110rem;
background:var(--page);color:var(--text)}
h1{font-size:1.5rem;margin:0 0 .75rem;overflow-wrap:anywhere}
h2{font-size:1rem;margin:0 0 .5rem}
p{margin:.25rem 0;color:var(--soft);max-width:75ch;overflow-wrap:anywhere}
figure{margin:1.5rem 0;max-width:60rem}
.bars{display:grid;grid-template-columns:fit-content(45%) 1fr auto;gap:.3rem .75rem;align-items:center}
.bars span{overflow-wrap:anywhere}
svg{display:block;width:100%;fill:var(--bar)}
.bars svg{height:1.1rem}
.line svg{height:7rem;border-bottom:1px solid var(--soft)}
.ends{display:flex;justify-content:space-between;gap:1rem;color:var(--soft);font-size:.85rem}
.rows{overflow-x:auto;margin-top:1.5rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{border-bottom:1px solid var(--line);padding:.4rem .6rem;text-align:left;vertical-align:top}
td{overflow-wrap:anywhere;min-width:10rem;max-width:32rem}
th{background:var(--head);vertical-align:bottom}
.short{white-space:nowrap;min-width:0}
tbody tr:hover{background:var(--head)}
.number{text-align:right;font-variant-numeric:tabular-nums}
summary{cursor:pointer}
"""


def page(report: Report) -> str:
    """Return the page of a report."""
    title = _escaped(report.title)
    notes = "".join(f"<p>{_escaped(each)}</p>\n" for each in report.notes)
    charts = "".join(f"{_chart(each)}\n" for each in report.charts if each.amounts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_LOADS_NOTHING}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{notes}"
        f'{charts}<div class="rows">{_table(report)}</div>\n</body></html>\n'
    )


def _table(report: Report) -> str:
    columns, rows = without_empty_columns(report)
    kinds = [
        ("number",) if any(isinstance(row[place], int) for row in rows) else ()
        for place in range(len(columns))
    ]
    head = "".join(
        f'<th scope="col"{_class(*kind)}>{_escaped(name)}</th>'
        for name, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, kinds))}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _class(*names: str) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def _cell(cell: Any, kind: tuple[str, ...]) -> str:
    plain = cell_text(cell)
    text = _escaped(plain)
    if isinstance(cell, list | tuple) and len(cell) > _SHOWN:
        text = f"<details><summary>{len(cell):,} names</summary>{text}</details>"
    # A short word is not broken, only what would make a column wide.
    classes = (*kind, "short") if len(plain) <= _SHORT else kind
    return f"<td{_class(*classes)}>{text}</td>"


def _chart(chart: Chart) -> str:
    kind, body = ("line", _line(chart.amounts)) if chart.over_time else ("bars", _bars(chart.amounts))
    return f'<figure><h2>{_escaped(chart.title)}</h2><div class="{kind}">{body}</div></figure>'


def _bars(amounts: Mapping[str, int]) -> str:
    """A bar for each amount."""
    most = max(amounts.values()) or 1
    return "".join(
        f"<span>{_escaped(name)}</span>{_svg(100, _rect(0, amount * 100 / most, 0, 100))}"
        f'<span class="number">{amount:,}</span>\n'
        for name, amount in amounts.items()
    )


def _line(amounts: Mapping[str, int]) -> str:
    """A column for each time, with the ends of the time and the largest amount."""
    most = max(amounts.values()) or 1
    columns = "".join(
        _rect(place + 0.1, 0.8, 100 - amount * 100 / most, amount * 100 / most, f"{name}: {amount:,}")
        for place, (name, amount) in enumerate(amounts.items())
    )
    names = list(amounts)
    return (
        f'<div class="ends"><span>most: {most:,}</span></div>{_svg(len(amounts), columns)}'
        f'<div class="ends"><span>{_escaped(names[0])}</span><span>{_escaped(names[-1])}</span></div>'
    )


def _svg(width: int, shapes: str) -> str:
    return (
        f'<svg aria-hidden="true" viewBox="0 0 {width} 100" preserveAspectRatio="none" '
        f'xmlns="http://www.w3.org/2000/svg">{shapes}</svg>'
    )


def _rect(x: float, width: float, y: float, height: float, title: str = "") -> str:
    what = f"<title>{_escaped(title)}</title>" if title else ""
    return f'<rect x="{x:g}" width="{width:g}" y="{y:g}" height="{height:g}">{what}</rect>'


def _escaped(text: str) -> str:
    return escape(clean(text, max(_LONGEST, len(text))))
