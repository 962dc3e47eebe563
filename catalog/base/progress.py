"""Shows the progress of work that takes long, on standard error.

- Nothing is shown of work that takes less than two seconds.
- On a terminal, or in a notebook with `ipywidgets`, one bar is shown, and removed at the end. Elsewhere
  nothing is shown, or for jobs of hours a line every ten seconds.
- Where nothing is counted, the time that has passed is shown.
- An amount that is shown never exceeds its total.
- Standard output is not used. A result that is printed to the same terminal removes the bar first (`hide`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Condition, Thread
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias, TypeVar

from catalog.base.clean_text import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

#: Called with the name of a step, the amount that is done, and the total; None if the total is not known.
Tell: TypeAlias = Callable[[str, int, int | None], None]

_ITEM = TypeVar("_ITEM")

_BAR_AFTER_S: Final = 2.0
_BAR_EVERY_S: Final = 0.2
_LINE_EVERY_S: Final = 10.0
_LONGEST: Final = 200


@dataclass(slots=True)
class _Step:
    """One step of the work.

    Attributes:
        what: its name.
        began: when it was first told of, monotonic, in seconds.
        done: the amount that is done.
        total: the amount in all; None if it is not known.
        before: the amount that was done when it was first told of.
    """

    what: str
    began: float
    done: int = 0
    total: int | None = None
    before: int = 0

    @property
    def amount(self) -> str:
        """What is done of how much; empty if nothing is counted."""
        if self.total is not None:
            return f"{self.done:,} of {self.total:,}"
        return f"{self.done:,}" if self.done else ""


class _Display(Protocol):
    """Where progress is shown; seconds until it is shown first, and between two updates."""

    after_s: float
    every_s: float

    def show(self, step: _Step, now: float) -> None:
        """Show a step as it is at a time."""

    def close(self) -> None:
        """Remove what is shown; `show` can show it again."""


class Progress:
    """The progress of one piece of work, in a `with` statement. Safe in many threads.

    Args:
        what: what is done, such as ``Reading sales.orders``.
        total: the amount in all; None if it is not known.
        shown: whether anything is shown.
        lines: whether lines are printed where there is no bar.
    """

    def __init__(
        self, what: str, total: int | None = None, *, shown: bool = True, lines: bool = False
    ) -> None:
        begun = monotonic()
        self._steps = {what: _Step(clean(what, _LONGEST), begun, total=total)}
        self._step = self._steps[what]
        self._display = _display(lines=lines) if shown else None
        self._due = begun + (self._display.after_s if self._display else 0)
        self._visible = False
        self._changed = Condition()
        self._ticker: Thread | None = None

    def __enter__(self) -> Self:
        if self._display is not None:
            self._ticker = Thread(target=self._tick, name="progress", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            if self._visible and kind is None:
                # The last amount, which came too early for another update.
                self._show(monotonic())
            self._hide()
            self._display = None
            self._changed.notify()

    def tell(self, what: str, done: int, total: int | None) -> None:
        """Say how far a step is; the step that was told of last is shown. See `Tell`."""
        with self._changed:
            now = monotonic()
            step = self._steps.get(what)
            if step is None:
                step = self._steps[what] = _Step(clean(what, _LONGEST), now, before=done)
            step.done, step.total = done if total is None else min(done, total), total
            self._step = step
            self._show_if_due(now)

    def advance(self, amount: int) -> None:
        """Count what is done of the current step."""
        with self._changed:
            step = self._step
            step.done += amount
            if step.total is not None:
                step.done = min(step.done, step.total)
            self._show_if_due(monotonic())

    def hide(self) -> None:
        """Remove what is shown from the terminal; it returns when the work goes on for as long as before."""
        with self._changed:
            self._hide()

    def _hide(self) -> None:
        if self._display is not None:
            self._due = monotonic() + self._display.after_s
            if self._visible:
                self._visible = False
                self._display.close()

    def _show_if_due(self, now: float) -> None:
        if self._display is not None and now >= self._due:
            self._due = now + self._display.every_s
            self._show(now)

    def _show(self, now: float) -> None:
        if self._display is None:
            return
        self._visible = True
        try:
            self._display.show(self._step, now)
        except OSError:
            # Standard error was closed. The work goes on.
            self._display = None

    def _tick(self) -> None:
        """Show that time passes, also while nothing is told."""
        with self._changed:
            while self._display is not None:
                self._show_if_due(monotonic())
                self._changed.wait(max(self._due - monotonic(), 0))


class _Bar:
    """A bar on a terminal or in a notebook."""

    def __init__(self, console: Console) -> None:
        self.after_s, self.every_s = _BAR_AFTER_S, _BAR_EVERY_S
        self._console = console
        self._bar: RichProgress | None = None

    def show(self, step: _Step, now: float) -> None:
        bar = self._bar
        if bar is None:
            bar = self._bar = _rich_bar(self._console)
            bar.add_task("", amount="", time="")
            bar.start()
        (task,) = bar.tasks
        seconds, left = now - step.began, _seconds_left(step, now)
        bar.update(
            task.id,
            description=step.what,
            completed=step.done,
            total=step.total,
            amount=step.amount,
            time=_span(seconds) if left is None else f"{_span(seconds)}, about {_span(left)} to go",
            refresh=True,
        )

    def close(self) -> None:
        if self._bar is not None:
            bar, self._bar = self._bar, None
            bar.stop()


class _Lines:
    """Lines on standard error."""

    def __init__(self) -> None:
        self.after_s = self.every_s = _LINE_EVERY_S

    def show(self, step: _Step, now: float) -> None:
        sys.stderr.write(f"{line(step, now)}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Lines stay."""


def silent(_what: str, _done: int, _total: int | None) -> None:
    """Show no progress."""


def counted(items: Iterable[_ITEM], tell: Tell, what: str, total: int | None = None) -> Iterator[_ITEM]:
    """Yield items, and tell of each one when the next is wanted.

    Args:
        items: the items.
        tell: what is told.
        what: the name of the step.
        total: the number of items, if it is known.
    """
    tell(what, 0, total)
    for done, item in enumerate(items, start=1):
        yield item
        tell(what, done, total)


def line(step: _Step, now: float) -> str:
    """Return one sentence on a step: its amount, the rate, and the time that has passed and is left."""
    seconds = now - step.began
    parts = [step.amount] if step.amount else []
    if (rate := _rate(step, now)) is not None:
        parts.append(f"{rate:,.3g} a second")
    parts.append(f"{_span(seconds)} so far")
    if (left := _seconds_left(step, now)) is not None:
        parts.append(f"about {_span(left)} to go")
    return f"{step.what}: {', '.join(parts)}."


def _rate(step: _Step, now: float) -> float | None:
    """Return the amount in a second; None if nothing was done yet."""
    fresh, seconds = step.done - step.before, now - step.began
    return fresh / seconds if fresh > 0 and seconds > 0 else None


def _seconds_left(step: _Step, now: float) -> float | None:
    """Return the time for the rest at the rate so far; None if it is not known."""
    rate = _rate(step, now)
    if rate is None or step.total is None or step.done >= step.total:
        return None
    return (step.total - step.done) / rate


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.1f} h"


def _display(*, lines: bool) -> _Display | None:
    if (found := console()) is not None:
        return _Bar(found)
    return _Lines() if lines and sys.stderr is not None else None


def console() -> Console | None:
    """Return where bars are shown: the standard error of a terminal, or the notebook; None elsewhere."""
    from rich.console import Console

    found = Console(stderr=True) if sys.stderr is not None else None
    if found is None or not (found.is_jupyter or (sys.stderr.isatty() and not found.is_dumb_terminal)):
        return None
    # Without this package, each bar of a notebook would be a line of its own, and a warning.
    return None if found.is_jupyter and find_spec("ipywidgets") is None else found


def _rich_bar(console: Console) -> RichProgress:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        # Names are no markup: a table's name can have brackets.
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[amount]}", markup=False),
        TextColumn("{task.fields[time]}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
        # What is printed to standard output goes through the bar's console, but only if both are a terminal.
        redirect_stdout=console.is_jupyter or sys.stdout.isatty(),
    )
