"""Parts of scans: counts, first rows, and the lazy readers of PyArrow, Polars and DuckDB."""

from __future__ import annotations

import datetime
import operator
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

import lakewarden
from catalog.client.polars_source import pushed
from policy.errors import NotAuthorized, NotSupportedYet, RequestInvalid
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.service import Service
from tests.support.tables import ENCRYPTED

Make = Callable[..., str]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "ratio", DoubleType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "flag", BooleanType()),
)
DAYS = [datetime.date(2026, 1, 1), datetime.date(1969, 12, 31), None]
ROWS = pa.table(
    {
        "id": pa.array([*range(28), None, -5], pa.int64()),
        "small": pa.array([each % 5 if each % 7 else None for each in range(30)], pa.int32()),
        "name": [["eu", "us", "", None, "é"][each % 5] for each in range(30)],
        "ratio": [[0.0, float("nan"), -1.5, None][each % 4] for each in range(30)],
        "day": pa.array([DAYS[each % 3] for each in range(30)], pa.date32()),
        "flag": [[True, False, None][each % 3] for each in range(30)],
    }
)
FIRST, SECOND = ROWS.slice(0, 20), ROWS.slice(20)
SELECT = [{"type": "select", "isAllowed": True}]
HIDDEN = {"users": [CAROL], "accesses": SELECT, "rowFilterInfo": {"filterExpr": "id < 3"}}
FEW = policy("few", {"database": ["db"], "table": ["*"]}, {}, policyType=2, rowFilterPolicyItems=[HIDDEN])
NO_NAME = policy(
    "no-name",
    {"database": ["db"], "table": ["*"], "column": ["name"]},
    {},
    denyPolicyItems=[{"users": [CAROL], "accesses": SELECT}],
)


@pytest.fixture(scope="module")
def readings(served: Service) -> lakewarden.Table:
    """An encrypted table of two files."""
    served.lake.catalog().create_table("db.readings", SCHEMA, properties=ENCRYPTED)
    table = lakewarden.connect(served.url, served.token("alice")).table("db.readings")
    table.append(FIRST)
    table.append(SECOND)
    return table


@pytest.fixture
def policies(served: Service) -> Iterator[Callable[..., None]]:
    """Adds policies for a while."""
    yield lambda *more: served.lake.set_policies([*standard_policies(), *more])
    served.lake.set_policies(standard_policies())


def paths(table: lakewarden.Table) -> dict[int, Path]:
    """Where the files of a table lie, by their numbers of rows."""
    files = table.inspect("files", ["record_count", "file_path"]).to_pylist()
    return {each["record_count"]: Path(each["file_path"].removeprefix("file://")) for each in files}


@pytest.mark.nightly
def test_a_count_without_a_filter_opens_no_file(make: Make, alice: lakewarden.Connection) -> None:
    table = alice.table(make(SCHEMA, properties=ENCRYPTED))
    assert table.scan().count() == 0
    table.append(ROWS)
    paths(table)[30].unlink()
    assert (table.scan().count(), table.scan(limit=7).count()) == (30, 7)
    with pytest.raises(lakewarden.DataFileMissing):
        table.scan("id > 3").count()


@pytest.mark.nightly
def test_a_count_is_the_number_of_rows_that_the_same_scan_returns(readings: lakewarden.Table) -> None:
    for filter in (None, "id > 10", "name = 'eu' and day is null", "ratio is nan"):
        scan = readings.scan(filter)
        assert scan.count() == scan.to_arrow().num_rows
        assert readings.scan(filter, columns=["flag"]).count() == scan.count()


def test_rows_that_a_policy_hides_are_not_counted(
    make: Make, alice: lakewarden.Connection, served: Service, policies: Callable[..., None]
) -> None:
    name = make(SCHEMA)
    alice.table(name).append(ROWS)
    policies(FEW)
    engine = lakewarden.connect(served.url, served.token(CAROL), engine_token=served.engine_token())
    scan = engine.table(name).scan()
    assert (scan.count(), scan.to_arrow().num_rows, scan.to_dataset().count_rows()) == (4, 4, 4)
    own = lakewarden.connect(served.url, served.token(CAROL)).table(name).scan()
    for refused in (own.count, own.head, own.to_dataset, lambda: own.to_polars(lazy=True)):
        with pytest.raises(NotAuthorized):
            refused()


@pytest.mark.nightly
def test_first_rows_open_no_more_files_than_they_need(make: Make, alice: lakewarden.Connection) -> None:
    table = alice.table(make(SCHEMA))
    table.append(FIRST)
    table.append(SECOND)
    first = table.scan().head(1)
    other = 10 if first.equals(FIRST.slice(0, 1)) else 20
    paths(table)[other].unlink()
    assert table.scan().head(1).equals(first)
    with pytest.raises(lakewarden.DataFileMissing):
        table.scan().head(30)


@pytest.mark.nightly
@pytest.mark.parametrize("filter", [None, "small > 1", "name = 'us'"])
def test_a_limit_takes_the_first_rows_of_the_scan(readings: lakewarden.Table, filter: str | None) -> None:
    whole = readings.scan(filter).to_reader().read_all()
    for limit in (0, 1, 5, 19, 20, 21, 100):
        found = readings.scan(filter, limit=limit).to_arrow()
        assert str(found.to_pylist()) == str(whole.slice(0, limit).to_pylist())
    with pytest.raises(RequestInvalid, match="limit is -1"):
        readings.scan(limit=-1)


@pytest.fixture(scope="module")
def frames(readings: lakewarden.Table) -> tuple[pl.LazyFrame, pl.DataFrame]:
    """The table, to be read by each query, and as it was read."""
    scan = readings.scan()
    rows = pl.from_arrow(scan.to_reader().read_all())
    assert isinstance(rows, pl.DataFrame)
    return scan.to_polars(lazy=True), rows


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.one_of(st.integers(-6, 30), st.integers(-(2**63), 2**63 - 1)),
    "small": st.one_of(st.integers(-1, 5), st.sampled_from([2**31 - 1, -(2**31)])),
    "name": st.sampled_from(["eu", "us", "", "é", "a", "z"]),
    "ratio": st.sampled_from([0.0, -1.5, float("nan"), float("inf"), 2.0]),
    "day": st.dates(datetime.date(1960, 1, 1), datetime.date(2030, 1, 1)),
}
OPERATORS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@st.composite
def comparisons(draw: st.DrawFn) -> pl.Expr:
    name = draw(st.sampled_from([*VALUES, "flag"]))
    column = pl.col(name)
    if name == "flag" or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([column.is_null(), column.is_not_null(), pl.col("flag")]))
    value, compare = draw(VALUES[name]), draw(st.sampled_from(OPERATORS))
    expression: pl.Expr = compare(column, value) if draw(st.booleans()) else compare(pl.lit(value), column)
    return expression


CONDITIONS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda both: both[0] & both[1]),
        st.tuples(inner, inner).map(lambda both: both[0] | both[1]),
        inner.map(operator.inv),
    ),
    max_leaves=4,
)
QUERIES: list[Callable[[Any, pl.Expr, int], Any]] = [
    lambda frame, condition, limit: frame.filter(condition).select("id", "ratio"),
    lambda frame, condition, limit: frame.head(limit).filter(condition),
    lambda frame, condition, limit: frame.filter(condition).head(limit).select("name"),
    lambda frame, condition, limit: frame.filter(condition).select(pl.len()),
]


@pytest.mark.nightly
@given(
    condition=CONDITIONS,
    limit=st.integers(0, 31),
    query=st.sampled_from(QUERIES),
    engine=st.sampled_from(["in-memory", "streaming"]),
)
@settings(max_examples=40, deadline=None)
def test_a_lazy_query_of_polars_returns_what_an_eager_one_does(
    frames: tuple[pl.LazyFrame, pl.DataFrame],
    condition: pl.Expr,
    limit: int,
    query: Any,
    engine: Any,
) -> None:
    lazy, eager = (query(each, condition, limit) for each in frames)
    assert lazy.collect(engine=engine).equals(eager)


def test_a_condition_of_polars_looks_at_the_rows_that_a_limited_scan_returns(
    readings: lakewarden.Table,
) -> None:
    scan = readings.scan(limit=5)
    first = scan.to_polars()
    for each in (pl.col("id") == first["id"][4], pl.col("id") != first["id"][0], pl.col("id") == -5):
        assert scan.to_polars(lazy=True).filter(each).collect().equals(first.filter(each))


def test_conditions_are_pushed_down_where_both_sides_compare_alike() -> None:
    schema = ROWS.schema
    assert "GreaterThan" in repr(pushed(pl.col("id") > pl.lit(3, pl.Int64), schema))
    assert "EqualTo" in repr(pushed((pl.col("name") == "eu") & pl.col("ratio").is_nan(), schema))
    assert "LessThan" in repr(pushed(pl.col("day") < datetime.date(2026, 1, 1), schema))
    for kept in (
        pl.col("ratio") > 1.0,
        (pl.col("id") > 3) | (pl.col("ratio") > 1.0),
        pl.col("small") < 2**40,
        pl.col("name").str.len_chars() > 2,
        ~(pl.col("id") > 3),
    ):
        assert pushed(kept, schema) is None


def test_a_lazy_query_asks_for_the_columns_that_it_needs_when_it_runs(
    make: Make, alice: lakewarden.Connection, served: Service, policies: Callable[..., None]
) -> None:
    name = make(SCHEMA)
    alice.table(name).append(ROWS)
    scan = lakewarden.connect(served.url, served.token(CAROL)).table(name).scan()
    lazy, dataset = scan.to_polars(lazy=True), scan.to_dataset()
    policies(NO_NAME)
    assert lazy.select("id").collect().height == 30
    assert dataset.to_table(columns=["id"], filter=ds.field("small") > 1).num_rows > 0
    with pytest.raises(Exception, match="not authorized"):
        lazy.filter(pl.col("name") == "eu").select("id").collect()
    for asked in ({"columns": ["name"]}, {"columns": ["id"], "filter": ds.field("name") == "eu"}, {}):
        with pytest.raises(NotAuthorized):
            dataset.to_table(**asked)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "expression",
    [
        None,
        ds.field("id") > 7,
        (ds.field("name") == "eu") & ~ds.field("day").is_null(),
        ds.field("small").isin([1, 2]),
    ],
    ids=str,
)
def test_a_dataset_returns_what_pyarrow_makes_of_the_rows(
    readings: lakewarden.Table, expression: Any
) -> None:
    scan = readings.scan()
    dataset, expected = scan.to_dataset(), ds.dataset(scan.to_reader().read_all())
    for columns in (None, ["name"], ["day", "id"], {"twice": ds.field("small") * 2}):
        asked = {"columns": columns, "filter": expression}
        assert str(dataset.to_table(**asked).to_pylist()) == str(expected.to_table(**asked).to_pylist())
    assert dataset.count_rows(filter=expression) == expected.count_rows(filter=expression)
    assert dataset.head(3, filter=expression).num_rows == 3
    kept = dataset if expression is None else dataset.filter(expression)
    assert kept.count_rows() == expected.count_rows(filter=expression)


def test_a_function_that_goes_past_a_dataset_fails_and_finds_no_empty_table(
    readings: lakewarden.Table,
) -> None:
    dataset = readings.scan().to_dataset()
    for past in (
        lambda: list(dataset.get_fragments()),
        lambda: dataset.join(dataset, "id"),
        lambda: dataset.sort_by("id"),
        lambda: dataset.replace_schema(dataset.schema),
        lambda: pickle.dumps(dataset),
        lambda: ds.dataset([dataset]).to_table(),
    ):
        with pytest.raises(NotSupportedYet):
            past()
    with pytest.raises(OSError, match="read-this-dataset-by-its-methods"):
        ds.Scanner.from_dataset(dataset).to_table()
    with pytest.raises(pa.ArrowInvalid):
        dataset.to_table(columns=["no_such_column"])


@pytest.mark.nightly
def test_duckdb_reads_a_scan_as_often_as_it_is_asked(readings: lakewarden.Table) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    rows = readings.scan("id < 20", ["id", "name", "small"]).to_duckdb(connection)
    expected = rows.filter("small > 1").fetchall()
    assert 3 < len(expected) < 20
    for _ in range(2):
        query = "SELECT name, count(*), sum(id) FROM rows WHERE small > 1 GROUP BY name"
        assert sum(each[1] for each in connection.sql(query).fetchall()) == len(expected)
    assert rows.count("*").fetchall() == [(readings.scan("id < 20").count(),)]


def test_a_scan_of_a_part_of_a_struct_stays_a_part(make: Make, alice: lakewarden.Connection) -> None:
    who = StructType(NestedField(3, "name", StringType()), NestedField(4, "age", LongType()))
    table = alice.table(make(Schema(NestedField(1, "id", LongType()), NestedField(2, "who", who))))
    table.append(pa.table({"id": [1], "who": [{"name": "a", "age": 3}]}))
    scan = table.scan(columns=["who.name", "id"])
    assert scan.to_dataset().to_table(columns=["who"]).to_pylist() == [{"who": {"name": "a"}}]
    assert scan.to_polars(lazy=True).select("who").collect().to_dicts() == [{"who": {"name": "a"}}]
