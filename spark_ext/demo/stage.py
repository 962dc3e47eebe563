"""The objects that every step of the demonstration uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from spark_ext.demo.attacker import ForeignFile, local
from spark_ext.demo.flights import Flights
from spark_ext.demo.lake import Lake
from spark_ext.demo.outcome import Answer, Attempt, Ledger, attempted
from spark_ext.demo.screen import Screen

#: Runs a statement of SQL for a user.
Sql: TypeAlias = Callable[[str, str], Sequence[Sequence[Any]]]

FLIGHTS = "operations.flights"
ENCRYPTED = "operations.flights_encrypted"
PICKS = "marketing.picks"

#: Rows of Mallory's own table.
OWN_ROWS = 3


@dataclass(frozen=True)
class Stage:
    """The parts of a running demonstration.

    Attributes:
        directory: where everything lies.
        lake: the catalog.
        sql: the engine.
        session: a user's session in it.
        flights: the input.
        screen: where the story is told.
        ledger: what was tried.
    """

    directory: Path
    lake: Lake
    sql: Sql
    session: Callable[[str], SparkSession]
    flights: Flights
    screen: Screen
    ledger: Ledger = field(default_factory=Ledger)

    def run(self, who: str, statement: str) -> Sequence[Sequence[Any]]:
        """Show a statement, and run it for a user."""
        self.screen.statement(who, statement)
        return self.sql(who, statement)

    def count(self, who: str, table: str) -> int:
        """How many rows a user reads from a table through the engine."""
        return self.number(who, f"SELECT count(*) FROM lake.{table}")

    def number(self, who: str, query: str) -> int:
        """The one number that a query of a user answers."""
        answer = int(self.run(who, query)[0][0])
        self.screen.result(f"{answer:,}")
        return answer

    def attempt(
        self, what: str, who: str, stock: Answer, action: Callable[[], str], *, refusal: str | None
    ) -> None:
        """Try something that a standard stack was asked for before.

        Args:
            what: what is tried.
            who: by whom.
            stock: what the standard stack answered.
            action: the attempt; answers in a few words.
            refusal: class and rule of the refusal that it has to end in, or None if it has to succeed.
        """
        self.screen.answered("A standard stack", stock)
        seen = attempted(action)
        self.screen.answered("Lakewarden", seen)
        self.ledger.add(Attempt(what, who, stock, refusal, seen))

    def data_files(self, table: str) -> list[Path]:
        """The data files of a table, as a listing of storage shows them."""
        namespace, _, name = table.partition(".")
        below = local(self.lake.settings.warehouse) / namespace
        directories = [each for each in below.iterdir() if each.name.startswith(f"{name}-")]
        return sorted(path for each in directories for path in each.rglob("data/**/*.parquet"))

    def foreign_files(self, table: str, rows: int) -> list[ForeignFile]:
        """What a listing of storage tells of a table's data files; the numbers of rows are guessed."""
        paths = self.data_files(table)
        return [ForeignFile(f"file://{path}", rows // len(paths), path.stat().st_size) for path in paths]
