"""Shows a progress bar for scans and appends that take long.

A bar appears after two seconds, on a terminal or in a notebook, and is removed at the end. It counts rows of
files. A scan under a row filter has none: the number of rows that are read tells of hidden ones.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

_AFTER_S: Final = 2.0


class Progress:
    """The progress of one piece of work; to be closed, or used in a `with`. Safe in many threads.

    Args:
        what: what is done, such as ``Reading sales.orders``.
        total: the number of rows; None if it is not known.
        shown: whether a bar is shown at all.
    """

    def __init__(self, what: str, total: int | None, *, shown: bool) -> None:
        self._what = what
        self._total = total
        self._console = console() if shown else None
        self._begun = monotonic()
        self._done = 0
        self._bar: Bar | None = None
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def advance(self, rows: int) -> None:
        """Count rows that are done."""
        if self._console is None:
            return
        with self._lock:
            self._done += rows
            if self._bar is None and monotonic() - self._begun >= _AFTER_S:
                self._bar = _bar(self._console)
                self._bar.add_task(self._what, total=self._total)
                self._bar.start()
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=self._done)

    def close(self) -> None:
        """Remove the bar; nothing is shown any more."""
        with self._lock:
            self._console = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None


def _bar(console: Console) -> Bar:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Bar(*columns, console=console, transient=True)


def console() -> Console | None:
    """Where bars are shown: the standard error of a terminal, or the notebook; None elsewhere."""
    from rich.console import Console

    found = Console(stderr=True) if sys.stderr is not None else None
    if found is None or not (found.is_terminal or found.is_jupyter):
        return None
    # Without this package, each bar of a notebook would be a line of its own, and a warning.
    return None if found.is_jupyter and find_spec("ipywidgets") is None else found
