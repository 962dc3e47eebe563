"""The output of the demonstration: sentences, a table at the end, and a progress indicator.

Without a terminal it is plain text of at most 100 columns, so that a log of it can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from catalog.audit.records import AuditRecord
from catalog.base.clean_text import clean
from spark_ext.demo.outcome import Answer, Attempt

_WIDTH: Final = 100
_LONGEST: Final = 700


class Screen:
    """Where the story is told.

    Args:
        console: by default standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal or self._console.width > _WIDTH:
            self._console.width = _WIDTH
        self._chapter = 0
        self._long: dict[str, str] = {}

    def abbreviate(self, long: str, short: str) -> None:
        """Show a text that would fill every line by another one from now on."""
        self._long[long] = short

    def title(self, text: str) -> None:
        """The first line."""
        self._console.print(Text(text, style="bold"))

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        self._chapter += 1
        self._console.print()
        self._console.print(Text(f"{self._chapter}. {title}", style="bold cyan"))

    def say(self, sentence: str) -> None:
        """A plain sentence."""
        self._print(Text(self._shown(sentence)), 3)

    def statement(self, who: str, text: str) -> None:
        """A statement of SQL, or a command, as a user types it."""
        self._print(Text(f"{who}> {self._shown(text)}", style="dim"), 5)

    def command(self, text: str) -> None:
        """A command to copy, in one line however long it is."""
        self._console.print(Text(f"     {text}"), soft_wrap=True)

    def result(self, text: str) -> None:
        """The answer to a statement, where it is one value."""
        self._print(Text(self._shown(text), style="dim"), 7)

    def answered(self, whose: str, answer: Answer) -> None:
        """The answer to an attempt."""
        if answer.error is None:
            self._print(Text(f"{whose}: {self._shown(answer.text)}", style="yellow"), 5)
        else:
            refusal = (
                Text(f"{whose}: ")
                .append(answer.error, style="bold green")
                .append(f": {self._shown(answer.sentence)}")
            )
            self._print(refusal, 5)

    @contextmanager
    def working(self, sentence: str) -> Iterator[None]:
        """Say what is being done, and show that it goes on as long as the block lasts."""
        self.say(sentence)
        with self._console.status("   working"):
            yield

    def rows(self, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
        """A small table."""
        grid = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for line in lines:
            grid.add_row(*(Text(self._shown(cell), overflow="fold") for cell in line))
        self._print(grid, 5)

    def attempts(self, attempts: Iterable[Attempt]) -> None:
        """What was tried, by whom, and both answers."""
        grid = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold", show_lines=True)
        for name, ratio in (
            ("tried", 34),
            ("by", 9),
            ("a standard stack answered", 26),
            ("Lakewarden answered", 27),
        ):
            grid.add_column(name, ratio=ratio)
        for each in attempts:
            stock = Text(self._shown(each.stock.text), style="green" if each.stock.error else "yellow")
            seen = Text(self._shown(each.seen.text), style="green")
            grid.add_row(Text(self._shown(each.what)), Text(each.who), stock, seen)
        grid.expand = True
        self._console.print()
        self._console.print(grid)

    def audit(self, records: Iterable[AuditRecord]) -> None:
        """Lines of the audit log, oldest first."""
        grid = Table.grid(padding=(0, 1))
        for each in records:
            at = datetime.fromtimestamp(each.at_ms / 1000, UTC).strftime("%H:%M:%S")
            answer = Text("granted" if each.allowed else "refused", style="" if each.allowed else "green")
            reason = each.reasons[0].rule if each.reasons else ""
            grid.add_row(at, each.principal, each.action, each.resource, answer, reason)
        self._print(grid, 3)

    def _print(self, what: Text | Table, indent: int) -> None:
        self._console.print(Padding(what, (0, 0, 0, indent), expand=False))

    def _shown(self, value: object) -> str:
        text = str(value)
        for long, short in self._long.items():
            text = text.replace(long, short)
        return clean(text, _LONGEST)
