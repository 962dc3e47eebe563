"""Records the demonstration as an asciicast, and draws it as an SVG that scrolls without scripts.

`python -m tools.site.recording` runs `lakewarden demo --clean` in a terminal of 100 columns, and writes
docs/images/demo.cast and docs/images/demo.svg. It takes as long as the demonstration. `--draw` draws the cast
that is there.

- The cast is what a real run printed. The progress indicator is left out, and the directory's random name.
- Pauses are those of a reader: long waits are shortened, and a long text stays longer.
- The picture has each line once, and moves them. Where the reader wants no motion, it shows the last lines.

Source: asciicast v2 (docs.asciinema.org/manual/asciicast/v2).
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Final

from rich.style import Style
from rich.text import Text

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
CAST: Final = IMAGES / "demo.cast"
PICTURE: Final = IMAGES / "demo.svg"
ALTERNATIVE: Final = "The demonstration: attacks on governed tables, and how Lakewarden refuses each"

_COLUMNS, _ROWS = 100, 34
_CHARACTER, _LINE, _MARGIN = 8.0, 17.0, 14.0
_READ_PER_S: Final = 160.0
_SHORTEST_S, _LONGEST_S, _END_S = 0.25, 3.5, 12.0
_PROGRESS: Final = re.compile(r"\x1b\[32m[\u2800-\u28ff]\x1b\[0m +working")
#: What moves the cursor, or hides it: a picture of lines has no cursor.
_CURSOR: Final = re.compile(r"\x1b\[\?25[lh]|\x1b\[\d*[A-GK]|\r(?!\n)")
_DIRECTORY: Final = re.compile(r"(?:/[\w.-]+)+/lakewarden-demo-\w{8}")
#: By their numbers in a terminal: red, green, yellow, cyan.
_COLOURS: Final = {1: "#f29a9a", 2: "#8fdb8f", 3: "#e6cf7f", 6: "#7fd7e6"}
_STYLE: Final = """
  .page { fill: #14181e; } text { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: 13px; fill: #d9e1ea; white-space: pre; } .b { font-weight: 700; } .d { fill: #93a1b3; }
"""

Event = tuple[float, str]


def record(command: list[str]) -> list[Event]:
    """What a command prints in a terminal, with the seconds since its start.

    Raises:
        SystemExit: the command failed.
    """
    ours, its = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(_COLUMNS), "LINES": str(_ROWS), "TERM": "xterm"}
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environ, close_fds=True) as run:
        os.close(its)
        events = list(_printed(ours))
    if run.returncode:
        raise SystemExit(f"The demonstration failed:\n{''.join(text for _, text in events)[-2000:]}")
    return events


def _printed(terminal: int) -> Iterator[Event]:
    began, rest = time.monotonic(), b""
    while True:
        try:
            read = os.read(terminal, 65_536)
        except OSError:  # Linux says so where others return nothing: the other end is closed.
            return
        if not read:
            return
        whole, end, rest = (rest + read).rpartition(b"\n")
        if whole or end:
            yield time.monotonic() - began, (whole + end).decode("utf-8")


def told(events: Iterable[Event]) -> list[Event]:
    """The events as they are kept: whole lines, at the pace of a reader."""
    at, kept = 0.0, []
    for _, text in events:
        lines = [shown for line in text.split("\n")[:-1] if (shown := _plain(line)) is not None]
        shown = "".join(f"{line}\r\n" for line in lines)
        if shown:
            kept.append((round(at, 2), shown))
            at += min(max(len(shown.strip()) / _READ_PER_S, _SHORTEST_S), _LONGEST_S)
    return kept


def _plain(line: str) -> str | None:
    """A line without what moves the cursor; None if it showed progress alone."""
    told = _CURSOR.sub("", _PROGRESS.sub("", line)).rstrip("\r").rstrip(" ")
    if not told and _PROGRESS.search(line):
        return None
    return _DIRECTORY.sub("/tmp/lakewarden-demo", told)


def cast(events: Iterable[Event]) -> str:
    """An asciicast of events."""
    header = {"version": 2, "width": _COLUMNS, "height": _ROWS, "title": ALTERNATIVE}
    lines = (json.dumps([at, "o", text], ensure_ascii=False) for at, text in events)
    return "\n".join((json.dumps(header), *lines, ""))


def events_of(text: str) -> list[Event]:
    """The events of an asciicast."""
    return [(at, said) for at, _, said in map(json.loads, text.splitlines()[1:])]


def svg(events: list[Event]) -> str:
    """The picture: all lines below each other, which move up as they are printed."""
    lines = [line for _, text in events for line in text.split("\r\n")[:-1]]
    width, height = _COLUMNS * _CHARACTER + 2 * _MARGIN, _ROWS * _LINE + 2 * _MARGIN
    ends = _offset(len(lines))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-labelledby="title">',
            f'<title id="title">{escape(ALTERNATIVE)}</title>',
            f"<style>{_STYLE}\n{_motion(events)}</style>",
            f'<rect class="page" width="{width:g}" height="{height:g}" rx="8"/>',
            f'<svg x="{_MARGIN:g}" y="{_MARGIN:g}" width="{width:g}" height="{_ROWS * _LINE:g}">',
            f'<g class="lines" style="transform: translateY({ends:g}px)">',
            *(_line(at, line) for at, line in enumerate(lines) if line.strip()),
            "</g></svg></svg>\n",
        )
    )


def _offset(printed: int) -> float:
    """Where the lines stand: in a full terminal, the last one that is printed is the last one seen."""
    return min(_ROWS - printed, 0) * _LINE


def _motion(events: list[Event]) -> str:
    """One step for each event. Without it, the last lines are seen."""
    whole, printed, steps = events[-1][0] + _END_S, 0, []
    for at, text in events:
        printed += text.count("\r\n")
        steps.append(f"{100 * at / whole:.2f}% {{ transform: translateY({_offset(printed):g}px); }}")
    return (
        "  @media (prefers-reduced-motion: no-preference) { .lines { animation: run "
        f"{whole:.0f}s step-end infinite; }} }}\n  @keyframes run {{ {' '.join(steps)} }}"
    )


def _line(at: int, line: str) -> str:
    text = Text.from_ansi(line)
    parts = (
        _span(each.plain, _style(each))
        for each in text.divide(sorted({edge for span in text.spans for edge in (span.start, span.end)}))
    )
    return f'<text y="{(at + 0.8) * _LINE:g}" xml:space="preserve">{"".join(parts)}</text>'


def _style(text: Text) -> Style:
    return Style.combine(
        [Style.null(), *(each.style for each in text.spans if isinstance(each.style, Style))]
    )


def _span(text: str, style: Style) -> str:
    classes = " ".join(name for name, is_set in (("b", style.bold), ("d", style.dim)) if is_set)
    colour = _COLOURS.get(style.color.number or 0) if style.color else None
    marks = (f' class="{classes}"' if classes else "") + (f' style="fill: {colour}"' if colour else "")
    return f"<tspan{marks}>{escape(text)}</tspan>" if marks else escape(text)


def main() -> None:
    """Record and draw, or draw alone."""
    if sys.argv[1:] != ["--draw"]:
        command = [str(Path(sys.executable).parent / "lakewarden"), "demo", "--clean"]
        CAST.write_text(cast(told(record(command))), "utf-8")
    PICTURE.write_text(svg(events_of(CAST.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    main()
