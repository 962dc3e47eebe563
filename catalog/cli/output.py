"""Prints results of commands on standard output, and everything else on standard error.

- Text from other sources (names, paths, reasons) is shown with escaped control characters, so that it cannot
  control the terminal, and with masked tokens and passwords.
- Tables are for people. `--json` is for scripts, and its format stays the same between releases.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from catalog.base.clean_text import clean
from catalog.base.progress import Progress, Tell
from policy.errors import LakewardenError

_LONGEST: Final = 8_000
#: The width of a pipe or file: lines are not wrapped.
_UNBOUNDED: Final = 10_000

#: The progress that the running command shows.
_shown_progress: Progress | None = None


def error(refusal: LakewardenError) -> None:
    """Print an error as one red sentence on standard error."""
    _print(Text(_shown(refusal), style="red"), stderr=True)


def unwritten(failure: OSError) -> None:
    """Discard buffered output after standard output failed, and report the failure."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    note(f"The output cannot be written: {failure.strerror}. Check the disk, and try again.")


def note(sentence: str) -> None:
    """Print a sentence on standard error."""
    _print(Text(_shown(sentence)), stderr=True)


def line(text: str, *, style: str = "") -> None:
    """Print one line of a result on standard output; `style` applies only to terminals."""
    _print(Text(_shown(text), style=style))


def secret(text: str) -> None:
    """Print a secret on its own line on standard output."""
    results().write(f"{text}\n")


def content(data: bytes) -> None:
    """Print a stored text byte for byte; on a terminal, with escaped control characters."""
    found = results()
    if not found.isatty():
        found.flush()
        found.buffer.write(data)
        return
    for text in data.decode("utf-8", "replace").splitlines():
        line(text)


def document(value: object) -> None:
    """Print a JSON document on standard output, in ASCII."""
    results().write(f"{json.dumps(value, indent=2)}\n")


def rows(columns: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Print a table with a header."""
    grid = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    _add(grid, lines)
    _print(grid)


def facts(values: Mapping[str, object]) -> None:
    """Print names and values, one pair per line."""
    grid = Table.grid(padding=(0, 2))
    _add(grid, values.items())
    _print(grid)


def answer(found: Mapping[str, Any], field: str, columns: Sequence[str], *, as_json: bool) -> None:
    """Print the answer of an operation: all of it as JSON, or the objects in one field as a table.

    Args:
        found: the answer.
        field: the field with the objects.
        columns: their members; a time has its suffix, and its column has none.
        as_json: whether it is printed as JSON.
    """
    if as_json:
        document(found)
        return
    titles = [name.removesuffix("-at").removesuffix("-ms") for name in columns]
    rows(titles, ([_cell(name, each[name]) for name in columns] for each in found[field]))


def _cell(name: str, value: Any) -> object:
    """Format a member of an answer for people."""
    if isinstance(value, bool):
        return "yes" if value else None
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is not None and name.endswith(("-at", "-since")):
        return moment(datetime.fromisoformat(value))
    if value is not None and name.endswith("-ms"):
        return moment(datetime.fromtimestamp(value / 1000, UTC))
    return value


@contextmanager
def progress(what: str, *, shown: bool = True, lines: bool = False) -> Iterator[Tell]:
    """Show the progress of a block (`catalog.base.progress`), and yield what its steps are told to.

    Inside of another such block, its display shows these steps.

    Args:
        what: what the block does or waits for; it is shown until a step is told of.
        shown: whether anything is shown.
        lines: whether lines are printed where there is no bar, for jobs of hours.
    """
    global _shown_progress
    if _shown_progress is not None:
        yield _shown_progress.tell
        return
    with Progress(what, shown=shown, lines=lines) as display:
        _shown_progress = display
        try:
            yield display.tell
        finally:
            _shown_progress = None


def results() -> TextIO:
    """Return standard output, for a result that goes on; a bar on the same terminal makes way."""
    if _shown_progress is not None and sys.stdout.isatty():
        _shown_progress.hide()
    return sys.stdout


def moment(at: datetime | None) -> str | None:
    """Format a time in UTC as ISO 8601, to the second."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def _add(grid: Table, lines: Iterable[Sequence[object]]) -> None:
    for line in lines:
        grid.add_row(*(Text("" if cell is None else _shown(cell), overflow="fold") for cell in line))


def _shown(value: object) -> str:
    return clean(str(value), _LONGEST)


def _print(what: Text | Table, *, stderr: bool = False) -> None:
    if not stderr:
        results()
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _UNBOUNDED
    console.print(what, soft_wrap=isinstance(what, Text))
