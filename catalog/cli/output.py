"""What commands print: results on standard output, everything else on standard error.

- What comes from elsewhere (names, paths, reasons) is shown with its control characters escaped, so that it
  cannot drive the terminal, and with tokens and passwords masked.
- Tables are for people; `--json` is for scripts, and its shape is what stays the same between releases.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from catalog.audit.records import clean
from policy.errors import LakewardenError

if TYPE_CHECKING:
    from rich.progress import TaskID

_LONGEST: Final = 8_000
#: The width of a pipe or file: lines are as long as they need to be.
_UNBOUNDED: Final = 10_000


def error(refusal: LakewardenError) -> None:
    """One red sentence on standard error."""
    _print(Text(_shown(refusal), style="red"), stderr=True)


def unwritten(failure: OSError) -> None:
    """Standard output takes no more: what is left in its buffer is given up, so that nothing fails again."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    note(f"The output cannot be written: {failure.strerror}. Check the disk, and try again.")


def note(sentence: str) -> None:
    """A remark on standard error."""
    _print(Text(_shown(sentence)), stderr=True)


def line(text: str, *, style: str = "") -> None:
    """One line of a result on standard output; `style` counts on terminals alone."""
    _print(Text(_shown(text), style=style))


def secret(text: str) -> None:
    """A secret that is shown this once, alone on its line of standard output."""
    sys.stdout.write(f"{text}\n")


def content(data: bytes) -> None:
    """A text that is kept elsewhere, byte for byte; what could drive a terminal is not sent to one."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    for text in data.decode("utf-8", "replace").splitlines():
        line(text)


def document(value: object) -> None:
    """A JSON document on standard output, in ASCII."""
    sys.stdout.write(f"{json.dumps(value, indent=2)}\n")


def rows(columns: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """A table with a header."""
    grid = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    _add(grid, lines)
    _print(grid)


def facts(values: Mapping[str, object]) -> None:
    """Names and values, one pair a line."""
    grid = Table.grid(padding=(0, 2))
    _add(grid, values.items())
    _print(grid)


def answer(found: Mapping[str, Any], field: str, columns: Sequence[str], *, as_json: bool) -> None:
    """The answer of an operation: all of it as JSON, or the objects in one field of it as a table.

    Args:
        found: the answer.
        field: holds the objects.
        columns: their members; a time has its suffix, and its column has none.
        as_json: whether it is printed as JSON.
    """
    if as_json:
        document(found)
        return
    titles = [name.removesuffix("-at").removesuffix("-ms") for name in columns]
    rows(titles, ([_cell(name, each[name]) for name in columns] for each in found[field]))


def _cell(name: str, value: Any) -> object:
    """A member of an answer, for people."""
    if isinstance(value, bool):
        return "yes" if value else None
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is not None and name.endswith("-at"):
        return moment(datetime.fromisoformat(value))
    if value is not None and name.endswith("-ms"):
        return moment(datetime.fromtimestamp(value / 1000, UTC))
    return value


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Bars on standard error, if it is a terminal; takes a bar's name, what is done, and of how much."""
    from rich.progress import Progress

    bars: dict[str, TaskID] = {}
    shown = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())

    def advance(name: str, done: int, total: int | None) -> None:
        shown.start()
        if name not in bars:
            bars[name] = shown.add_task(_shown(name), total=total)
        shown.update(bars[name], completed=done, total=total)

    try:
        yield advance
    finally:
        if bars:
            shown.stop()


def moment(at: datetime | None) -> str | None:
    """A time in UTC as ISO 8601, to the second."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def _add(grid: Table, lines: Iterable[Sequence[object]]) -> None:
    for line in lines:
        grid.add_row(*(Text("" if cell is None else _shown(cell), overflow="fold") for cell in line))


def _shown(value: object) -> str:
    return clean(str(value), _LONGEST)


def _print(what: Text | Table, *, stderr: bool = False) -> None:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console.width = _UNBOUNDED
    console.print(what, soft_wrap=isinstance(what, Text))
