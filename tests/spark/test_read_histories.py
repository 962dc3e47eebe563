"""Random histories of a table's columns: every row and every filter as a model says, whatever file it is in.

The model keeps values by column, whatever the column is called; a history renames, exchanges names, drops,
adds, adds again under a name that was dropped, widens, nested columns too, and writes rows in between. So a
scan goes over files of several schemas at once: in Spark, and without Spark where that reads the files.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pytest
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan, IsNull

import lakewarden
from tests.support.lake import ALICE
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import master_keys, stock_table

MODES: Final[dict[str, dict[str, str]]] = {
    "plaintext": {},
    "encrypted": {"encryption.mechanism": "envelope"},
    "column keys": {"encryption.columns": "pii:a,s.x;hr:c"},
    "column keys in ORC": {"write.format.default": "orc", "encryption.columns": "pii:a,s;hr:c"},
}
#: For each mode a history; the last two have a struct of which a file lacks all that a query wants of it.
SEEDS: Final = (1, 3, 2, 26)
#: Conditions of one history that are asked.
QUESTIONS: Final = 8
NAMES: Final = ("a", "b", "c", "d", "e")
WIDER: Final = {"INT": "BIGINT", "FLOAT": "DOUBLE", "DECIMAL(9,2)": "DECIMAL(18,2)"}
VALUES: Final[dict[str, Callable[[int], Any]]] = {
    "INT": lambda n: n - 2,
    "BIGINT": lambda n: n * 10**10,
    "FLOAT": lambda n: n + 0.5,
    "DOUBLE": lambda n: n + 0.25,
    "STRING": lambda n: f"v{n}",
    "DECIMAL(9,2)": lambda n: Decimal(n) + Decimal("0.25"),
    "DECIMAL(18,2)": lambda n: Decimal(n) * 10**10,
}


@dataclass(frozen=True)
class Question:
    """A condition on a column; without a value, that it is NULL."""

    column: str
    kind: str
    operator: str = "IS NULL"
    value: Any = None

    def sql(self) -> str:
        told = f"{self.column} {self.operator}"
        return told if self.value is None else f"{told} CAST('{self.value}' AS {self.kind})"

    def expression(self) -> BooleanExpression:
        if self.value is None:
            return IsNull(self.column)
        value = self.value.quantize(Decimal("0.01")) if isinstance(self.value, Decimal) else self.value
        return (EqualTo if self.operator == "=" else GreaterThan)(self.column, value)


@dataclass
class Model:
    """A table as it has to be.

    Attributes:
        columns: name and type of each column by a number of its own; those of the struct have `s.` before.
        order: the top-level columns in order.
        inner: the struct's columns in order.
        rows: by row, the values by column number.
    """

    random: random.Random
    columns: dict[int, tuple[str, str]]
    order: list[int]
    inner: list[int]
    rows: list[dict[int, Any]] = field(default_factory=list)
    last: int = 100

    def insert(self) -> str:
        """Rows with a value in each column, now and then NULL; the SELECT that makes them."""
        made = []
        for _ in range(3):
            self.rows.append({})
            number = len(self.rows)
            values = [self._value(each, number) for each in self.order]
            inner = ", ".join(f"'{self.name(each)}', {self._value(each, number)}" for each in self.inner)
            listed = [f"{value} AS {self.name(each)}" for each, value in zip(self.order, values, strict=True)]
            made.append(f"SELECT {number} AS k, named_struct({inner}) AS s, {', '.join(listed)}")
        return f"SELECT /*+ COALESCE(1) */ * FROM ({' UNION ALL '.join(made)})"

    def name(self, column: int) -> str:
        return self.columns[column][0]

    def _value(self, column: int, number: int) -> str:
        kind = self.columns[column][1]
        null = self.random.random() < 0.2
        value = self.rows[-1][column] = None if null else VALUES[kind](number)
        return f"CAST({'NULL' if value is None else repr(str(value))} AS {kind})"

    def change(self) -> list[str]:
        """A change, as ALTER TABLE has it."""
        nested = self.random.random() < 0.35
        of, prefix = (self.inner, "s.") if nested else (self.order, "")
        return self.random.choice([self._rename, self._swap, self._drop, self._add, self._widen])(of, prefix)

    def _free(self, of: list[int]) -> list[str]:
        return [name for name in NAMES if name not in {self.name(each) for each in of}]

    def _call(self, column: int, name: str) -> None:
        self.columns[column] = (name, self.columns[column][1])

    def _rename(self, of: list[int], prefix: str) -> list[str]:
        column, name = self.random.choice(of), self.random.choice([*self._free(of), "z"])
        if name in {self.name(each) for each in of}:
            return []
        told = f"RENAME COLUMN {prefix}{self.name(column)} TO {name}"
        self._call(column, name)
        return [told]

    def _swap(self, of: list[int], prefix: str) -> list[str]:
        if len(of) < 2:
            return []
        one, other = self.random.sample(of, 2)
        first, second = self.name(one), self.name(other)
        self._call(one, second)
        self._call(other, first)
        steps = ((first, "swapping"), (second, first), ("swapping", second))
        return [f"RENAME COLUMN {prefix}{old} TO {new}" for old, new in steps]

    def _drop(self, of: list[int], prefix: str) -> list[str]:
        if len(of) < 3:
            return []
        column = self.random.choice(of)
        of.remove(column)
        return [f"DROP COLUMN {prefix}{self.name(column)}"]

    def _add(self, of: list[int], prefix: str) -> list[str]:
        if not (free := self._free(of)):
            return []
        self.last += 1
        name, kind = self.random.choice(free), self.random.choice(list(VALUES))
        self.columns[self.last] = (name, kind)
        of.append(self.last)
        return [f"ADD COLUMN {prefix}{name} {kind}"]

    def _widen(self, of: list[int], prefix: str) -> list[str]:
        narrow = [each for each in of if self.columns[each][1] in WIDER]
        if not narrow:
            return []
        column = self.random.choice(narrow)
        name, kind = self.columns[column]
        self.columns[column] = (name, WIDER[kind])
        return [f"ALTER COLUMN {prefix}{name} TYPE {WIDER[kind]}"]

    def shown(self) -> list[list[Any]]:
        """Every row, in the order of `selected`."""
        places = [*self.order, *self.inner]
        return [[number, *(row.get(each) for each in places)] for number, row in enumerate(self.rows, 1)]

    def selected(self) -> str:
        names = [*(self.name(each) for each in self.order), *(f"s.{self.name(each)}" for each in self.inner)]
        return ", ".join(["k", *names])

    def questions(self) -> dict[Question, list[int]]:
        """Conditions, and the rows that meet them."""
        asked = {}
        for column in (*self.order, *self.inner):
            name = ("s." if column in self.inner else "") + self.name(column)
            kind, found = self.columns[column][1], [row.get(column) for row in self.rows]
            values = sorted({value for value in found if value is not None})
            asked[Question(name, kind)] = _where(found, lambda value: value is None)
            for value in values[:: max(1, len(values) // 3)]:
                asked[Question(name, kind, "=", value)] = _where(
                    found, lambda each, value=value: each == value
                )
                asked[Question(name, kind, ">", value)] = _where(
                    found, lambda each, value=value: each is not None and each > value
                )
        chosen = self.random.sample(list(asked), min(QUESTIONS, len(asked)))
        return {text: asked[text] for text in chosen}


def _where(values: list[Any], holds: Callable[[Any], bool]) -> list[int]:
    return [number for number, value in enumerate(values, 1) if holds(value)]


def first_columns(seed: int) -> Model:
    kinds = {1: ("a", "STRING"), 2: ("b", "INT"), 3: ("c", "FLOAT"), 4: ("d", "DECIMAL(9,2)")}
    inner = {5: ("x", "INT"), 6: ("y", "STRING")}
    return Model(random.Random(seed), kinds | inner, [*kinds], [*inner])


@pytest.fixture(scope="module", autouse=True)
def keys(spark_lake: SparkLake) -> None:
    """Master keys for columns."""
    master_keys(spark_lake, "pii", "hr")


@pytest.mark.nightly
@pytest.mark.parametrize(("mode", "seed"), list(zip(MODES, SEEDS, strict=True)))
def test_rows_and_filters_are_those_of_the_model(
    spark_lake: SparkLake, namespace: str, mode: str, seed: int
) -> None:
    table, model = f"{namespace}.t", first_columns(seed)
    properties = "".join(f", '{name}'='{value}'" for name, value in MODES[mode].items())
    spark_lake.rows(
        f"""CREATE TABLE {table} (k INT, s STRUCT<x: INT, y: STRING>, a STRING, b INT, c FLOAT,
            d DECIMAL(9,2)) USING iceberg TBLPROPERTIES ('comment'='histories'{properties})"""
    )
    history: list[str] = []
    for _ in range(4):
        spark_lake.rows(f"INSERT INTO {table} BY NAME {model.insert()}")
        for change in [text for _ in range(3) for text in model.change()]:
            history.append(change)
            spark_lake.rows(f"ALTER TABLE {table} {change}")
    spark_lake.rows(f"INSERT INTO {table} BY NAME {model.insert()}")
    rows = spark_lake.rows(f"SELECT {model.selected()} FROM {table} ORDER BY k")
    assert [list(row) for row in rows] == model.shown(), history
    questions = model.questions()
    asked = " UNION ALL ".join(
        f"SELECT {place} AS q, k FROM {table} WHERE {question.sql()}"
        for place, question in enumerate(questions)
    )
    answers: dict[int, list[int]] = {}
    for place, number in sorted(tuple(row) for row in spark_lake.rows(asked)):
        answers.setdefault(place, []).append(number)
    wrong = {
        question.sql(): (answers.get(place, []), found)
        for place, (question, found) in enumerate(questions.items())
        if answers.get(place, []) != found
    }
    assert not wrong, history
    if "ORC" not in mode:
        require_without_spark(spark_lake, table, model, questions)
    if mode == "plaintext":
        arrow = stock_table(spark_lake, table).scan().to_arrow().sort_by("k")
        names = [model.name(column) for column in model.order]
        theirs = [[row[name] for name in names] for row in arrow.to_pylist()]
        assert theirs == [row[1 : 1 + len(names)] for row in model.shown()], history


def require_without_spark(
    spark_lake: SparkLake, table: str, model: Model, questions: dict[Question, list[int]]
) -> None:
    """The same rows and answers through `lakewarden.connect`."""
    client = lakewarden.connect(spark_lake.service.url, spark_lake.service.token(ALICE))
    scanned = client.table(table.removeprefix(f"{CATALOG}."))
    rows = scanned.scan().to_arrow().sort_by("k").to_pylist()
    tops, inner = ([model.name(each) for each in of] for of in (model.order, model.inner))
    shown = [[row["k"], *map(row.get, tops), *map((row["s"] or {}).get, inner)] for row in rows]
    assert shown == model.shown()
    found = {each: scanned.scan(each.expression(), ["k"]).to_arrow()["k"].to_pylist() for each in questions}
    assert {each: sorted(numbers) for each, numbers in found.items()} == questions
