# ruff: noqa: S608 - statements and conditions are made up from random parts.
"""Random statements on two plaintext tables in a Spark with both plugins, and on the model of plain Spark.

Each statement is run on one table by Lakewarden's plugin and on the other by Iceberg's runtime, and sometimes
the other way round, so that each plugin changes what the other wrote. Then both read both tables. `compare`
runs in the process of `iceberg_spark`. Spark's own evaluation on a view of the driver is what all rows are
compared with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.random_conditions import condition
from tests.support.row_differential import Rows, Table

#: A table, and another one with the same rows; without the names of catalogs.
Pair = tuple[str, str]


def compare(
    spark: SparkSession,
    catalogs: Pair,
    tables: Pair,
    seed: str,
    statements: int,
    modes: Mapping[str, str],
) -> list[tuple[str, str, str]]:
    """Run random statements; return what one plugin alone refused: the plugin, the statement, the error.

    Args:
        spark: a session with both plugins.
        catalogs: the names of Lakewarden's catalog and of Iceberg's.
        tables: two empty tables with the columns `row_differential.FIRST`.
        seed: of the randomness.
        statements: how many statements.
        modes: how commands change rows, where it is not copy-on-write.

    Raises:
        AssertionError: rows differ; the message has the statements.
    """
    both = TwoTables(
        spark, f"{catalogs[0]}.{tables[0]}", _Choices(seed), dict(modes), catalogs=catalogs, tables=tables
    )
    both.insert()
    for _ in range(statements):
        both.step()
    return both.alone


class _Choices(Random):
    """Chooses nothing that Iceberg's runtime or ORC's reader takes for something else than Spark does.

    - Iceberg's runtime leaves out files by bounds without NaN, which Spark takes for the largest number.
    - It takes `NOT (a = 1)`, `a <> 1` and `NOT (a <=> 1)` for each other, and so takes NULL for a value that
      differs, or leaves it out. It fails at NULL among bytes.
    - In ORC files it takes days before 1582 for others, and leaves rows out when it compares with such a day.
    - ORC's reader takes a column with both zeros for one value that repeats.
    """

    def choice(self, seq: Any) -> Any:
        """A random element."""
        found = super().choice(seq)
        return self.choice(seq) if isinstance(found, str) and _ODD.search(found) else found


_ODD = re.compile(
    r"'NaN'|'-0\.0'|^(<=>|<>)$|NOT \(|NOT IN \((?!SELECT)|X'[0-9F]*', NULL\)|CAST\(NULL AS BINARY\)[,)]"
    r"|.(date|timestamp|timestamp_ntz)'(-|0|1[0-5])"
)


@dataclass
class TwoTables(Table):
    """Two tables with the same rows, and their model.

    Attributes:
        catalogs: the names of Lakewarden's catalog and of Iceberg's.
        tables: their names, without those of catalogs.
        alone: what one plugin alone refused.
        snapshots: of each table, with the columns and rows that it had.
    """

    catalogs: Pair = ("", "")
    tables: Pair = ("", "")
    alone: list[tuple[str, str, str]] = field(default_factory=list)
    snapshots: list[tuple[str, int, dict[str, str], Rows]] = field(default_factory=list)

    def run(self, statement: str, model: str | None, *, fails: bool = False) -> bool:
        """Run a statement on both tables, each by one plugin, and its query of the model."""
        swapped = self.random.random() < 0.3
        self.trace.append(f"-- {self.spark.conf.get('spark.sql.session.timeZone')}")
        try:
            made = None if model is None else self._made(model.format(self.view))
        except PySparkException as problem:
            made, fails = None, True
            self.trace.append(f"-- model: {str(problem)[:200]}")
        writers = self.catalogs[::-1] if swapped else self.catalogs
        errors = [
            self._attempt(statement.format(f"{catalog}.{table}"))
            for catalog, table in zip(writers, self.tables, strict=True)
        ]
        assert not (fails and errors[writers.index(self.catalogs[0])] is None), "\n".join(self.trace)
        for place, error in enumerate(errors):
            if error is None and (fails or errors[1 - place] is not None):
                self._undo(statement, writers[place], self.tables[place], self.tables[1 - place])
            if error is not None and errors[1 - place] is None:
                self.alone.append((writers[place], statement, error))
        if errors != [None, None]:
            return False
        if made is not None:
            self._keep(made)
        return True

    def _attempt(self, statement: str) -> str | None:
        """The error of a statement; none: it was run."""
        self.trace.append(f"{statement};")
        try:
            self.spark.sql(statement).collect()
        except (PySparkException, Py4JJavaError) as problem:
            told = str(problem).partition("\n\tat ")[0][-300:]
            self.trace.append(f"-- {told}")
            return told
        return None

    def _undo(self, statement: str, catalog: str, table: str, other: str) -> None:
        """Give a table the rows of the other one, whose plugin refused the statement."""
        if not statement.startswith("ALTER"):
            columns = ", ".join(self.columns)
            rows = f"INSERT OVERWRITE {catalog}.{table} SELECT {columns} FROM {catalog}.{other}"
            assert self._attempt(rows) is None, "\n".join(self.trace)

    def compare(self) -> None:
        """Compare all rows, those of conditions, and an earlier snapshot, as both read both tables."""
        wheres = [None, *(condition(self.random, self.columns) for _ in range(2))]
        for where in wheres:
            which = "" if where is None else f" WHERE {where}"
            expected = self.shown(f"{self.view}{which}")
            for catalog in self.catalogs:
                for table in self.tables:
                    self._compared(f"{catalog}.{table}{which}", self.columns, expected)
        if self.snapshots:
            table, snapshot, columns, rows = self.random.choice(self.snapshots)
            for catalog in self.catalogs:
                self._compared(f"{catalog}.{table} VERSION AS OF {snapshot}", columns, rows)
        self._remember_both()

    def _compared(self, source: str, columns: Mapping[str, str], expected: Rows) -> None:
        found = self.shown(source, columns)
        told = [
            f"-- SELECT … FROM {source}",
            f"-- missing: {expected - found}",
            f"-- extra: {found - expected}",
        ]
        assert found == expected, "\n".join([*self.trace, *told])

    def _remember_both(self) -> None:
        known = {snapshot for _, snapshot, _, _ in self.snapshots}
        rows = self.shown(self.view)
        for table in self.tables:
            heads: list[Any] = self.spark.sql(
                f"SELECT snapshot_id FROM {self.catalogs[1]}.{table}.refs WHERE name = 'main'"
            ).collect()
            self.snapshots += [
                (table, head.snapshot_id, dict(self.columns), rows)
                for head in heads
                if head.snapshot_id not in known
            ]
