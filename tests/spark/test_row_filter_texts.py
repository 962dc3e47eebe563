"""Row filters mean what Spark reads in their texts: both keep the same rows."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from policy.errors import PolicyInvalid
from policy.restrictions.binding import Asker, bind
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.predicate import Predicate
from policy.restrictions.samples import kept
from policy.restrictions.sql import row_filter
from tests.support.spark import SparkLake

pytestmark = pytest.mark.nightly

#: By column: its type here and in Spark, and values.
COLUMNS: Final[dict[str, tuple[str, str, list[Any]]]] = {
    "flag": ("boolean", "boolean", [True, False]),
    "n": ("int", "int", [0, 1, -1, 3, 2**31 - 1, -(2**31)]),
    "big": ("long", "bigint", [0, 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "f": ("float", "float", [0.0, -0.0, 0.5, -1.5, math.nan, math.inf, -math.inf]),
    "x": ("double", "double", [0.0, -0.0, 0.1, 1e308, 5e-324, math.nan, math.inf, -math.inf]),
    "price": (
        "decimal(38,2)",
        "decimal(38,2)",
        [*map(Decimal, ["0.00", "1.50", "-1.50", "1" + "0" * 20 + ".00", "1" + "0" * 20 + ".01"])],
    ),
    "name": ("string", "string", ["", "x", "x ", "ab", "abc", "A", "É", "\U0001f600", "\uffff", "a%", "_"]),
    "day": ("date", "date", [date(1, 1, 1), date(2026, 1, 31), date(2026, 2, 28), date(9999, 12, 31)]),
    "ts": (
        "timestamp",
        "timestamp_ntz",
        [datetime(1970, 1, 1), datetime(2026, 1, 31, 1, 2, 3, 500_000), datetime(2026, 1, 31)],
    ),
    "tz": (
        "timestamptz",
        "timestamp",
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, 1, 2, 3, 500_000, tzinfo=UTC)],
    ),
    "a.b": ("int", "int", [1, 2, 3]),
}
#: By column as a filter names it: constants.
CONSTANTS: Final = {
    "flag": ["true", "FALSE"],
    "N": ["0", "1", "-1", "3", "+1", "2147483647", "-2147483648", "1.0"],
    "big": ["0", "9007199254740992", "9007199254740993", "9223372036854775807", "-9223372036854775808"],
    "f": ["0", "-0.0", "0.5", "-1.5", "5e-1"],
    "`x`": ["0", "-0.0", "0.1", ".1", "1e308", "5e-324", "1e-400"],
    "price": ["0", "1.5", "-1.50", "1" + "0" * 20, "1" + "0" * 20 + ".01"],
    "name": ["''", "'x'", "'x '", "'ab'", "'É'", "'\U0001f600'", "'\uffff'", "'a%'", "current_user()"],
    "day": [
        "'2026-01-31'",
        "date '0001-01-01'",
        "current_date",
        "current_date() - interval 1 month",
        "date_sub(current_date(), 7)",
        "current_date + interval '-40' weeks",
        "current_date + interval '1 year'",
    ],
    "ts": ["'1970-01-01 00:00:00'", "timestamp '2026-01-31T01:02:03.5'", "date '2026-01-31'"],
    "tz": ["'1970-01-01 00:00:00Z'", "timestamp '2026-01-31 02:02:03.5+01:00'", "date '2026-01-31'"],
    "`A.b`": ["1", "2", "3"],
}
SIGNS: Final = [
    "=",
    "==",
    "<>",
    "!=",
    "<",
    "<=",
    "<=>",
    "!",
    "(",
    ")",
    ",",
    "+",
    "-",
    ":",
    "::",
    ";",
    "||",
    "*",
    ".",
]
WORDS: Final = [
    "and",
    "or",
    "not",
    "in",
    "between",
    "like",
    "is",
    "null",
    "user",
    "current_user",
    "date",
    "days",
]
ODD: Final = [
    *("is null", "not in", "not like", "not between", "is not distinct from", "escape '!'", "as date"),
    *(
        "isnan(",
        "isnull(",
        "startswith(",
        "cast(",
        "case",
        "end",
        "[",
        "]",
        "{",
        "}",
        "%",
        "@",
        "1e20",
        '"x"',
        '"',
    ),
    *("--", "/*", "*/", "/*+", "{#", "#}", "\n", "\r", "\u00a0", "interval 2 years", "interval '- 3 days'"),
    *("interval '1' year to month", "timestamp_ntz '2026-01-31 00:00:00Z'"),
]
PIECES: Final = [
    *(each for constants in CONSTANTS.values() for each in constants),
    *CONSTANTS,
    *SIGNS,
    *WORDS,
    *ODD,
]
_TOKEN: Final = re.compile(r"'[^']*'|`[^`]*`|\w+(?:\.\w+)*|<=>|[<>!=]=|<>|\S|\s+")


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(list(CONSTANTS)))
    one, other, third = (draw(st.sampled_from(CONSTANTS[column])) for _ in range(3))
    forms = [
        f"{column} is null",
        f"{column} is not null",
        f"{column} in ({one}, {other})",
        f"{column} not in ({one}, {other}, {third})",
        *(f"{column} {sign} {one}" for sign in ("=", "<>", "<=>", "!=", "==")),
        *(f"{one} {sign} {column}" for sign in ("=", "<>", "<=>")),
    ]
    if column == "flag":
        forms += ["flag", "(FLAG)"]
    else:
        forms += [f"{column} {sign} {one}" for sign in ("<", "<=", ">", ">=")]
        forms += [f"{one} < {column}", f"{column} between {one} and {other}"]
        forms += [f"{column} not between {one} and {other}"]
    if column in ("f", "`x`"):
        forms.append(f"isnan({column})")
    if column == "name":
        forms += ["name like 'a%'", "name not like 'ab%'", "name like 'É'", "startswith(name, 'x')"]
    return draw(st.sampled_from(forms))


FILTERS: Final = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda text: f"not {text}"),
        inner.map(lambda text: f"({text})"),
        st.tuples(inner, st.sampled_from(["and", "or", "AND", "OR"]), inner).map(" ".join),
    ),
    max_leaves=5,
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A filter of which pieces are left out, exchanged and put in: a few of them can be read."""
    pieces = _TOKEN.findall(draw(FILTERS))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(pieces) - 1))
        pieces[at : at + draw(st.integers(0, 1))] = draw(
            st.one_of(st.just([]), st.sampled_from(PIECES).map(lambda piece: [" ", piece, " "]))
        )
        pieces = pieces or ["n"]
    return "".join(pieces)


class Oracle:
    """Rows, and which of them Spark keeps."""

    def __init__(self, spark: SparkSession) -> None:
        chosen = random.Random(1)
        self.rows = [
            {
                name: None if chosen.random() < 0.15 else chosen.choice(values)
                for name, (*_, values) in COLUMNS.items()
            }
            for _ in range(150)
        ]
        schema = ", ".join(["id int", *(f"`{name}` {kind}" for name, (_, kind, _) in COLUMNS.items())])
        made = [(number, *row.values()) for number, row in enumerate(self.rows)]
        self._frame: DataFrame = spark.createDataFrame(made, schema).coalesce(1)
        (user,) = spark.sql("SELECT current_user()").first() or ("",)
        self._asker = Asker(user, frozenset(), datetime.now(UTC).date())
        fields = (
            SchemaField(number, (name,), kind) for number, (name, (kind, *_)) in enumerate(COLUMNS.items())
        )
        self._columns = TableColumns(fields)

    def bound(self, text: str) -> Predicate:
        return bind(row_filter(text), self._asker, self._columns)

    def reads(self, text: str) -> bool:
        try:
            self.bound(text)
        except PolicyInvalid:
            return False
        return True

    def ours(self, text: str) -> set[int]:
        bound = self.bound(text)
        return {number for number, row in enumerate(self.rows) if kept(bound, dict(enumerate(row.values())))}

    def of_spark(self, texts: list[str]) -> list[set[int] | None]:
        """By text the rows that Spark keeps; None where it refuses the text."""
        held = [F.expr(text).alias(f"p{number}") for number, text in enumerate(texts)]
        try:
            rows = self._frame.select("id", *held).collect()
        except PySparkException:
            half = len(texts) // 2
            return [None] if not half else [*self.of_spark(texts[:half]), *self.of_spark(texts[half:])]
        return [{row["id"] for row in rows if row[f"p{number}"] is True} for number in range(len(texts))]


@pytest.fixture(scope="module")
def oracle(spark_lake: SparkLake) -> Iterator[Oracle]:
    spark = spark_lake.new_session()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    # Each filter is evaluated once, on few rows: compiling takes longer than interpreting.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield Oracle(spark)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(FILTERS, min_size=50, max_size=50))
def test_a_row_filter_keeps_the_rows_that_spark_keeps(oracle: Oracle, texts: list[str]) -> None:
    for text, found in zip(texts, oracle.of_spark(texts), strict=True):
        assert oracle.ours(text) == found, text


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(damaged(), min_size=150, max_size=150))
def test_a_text_that_is_no_filter_is_refused_or_read_as_spark_does(oracle: Oracle, texts: list[str]) -> None:
    read = [text for text in texts if oracle.reads(text)]
    for text, found in zip(read, oracle.of_spark(read), strict=True):
        # Where Spark refuses the text, it reads nothing else in it.
        assert found in (None, oracle.ours(text)), text
