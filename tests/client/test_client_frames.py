"""DataFrames of pandas and Polars: every value as the table has it, both ways."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

import lakewarden
from catalog.client.columns import arrow_schema
from catalog.client.errors import DataFileDamaged
from policy.errors import NotSupportedYet
from tests.support.service import Service
from tests.support.tables import ENCRYPTED, Engine

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "large", LongType()),
    NestedField(3, "flag", BooleanType()),
    NestedField(4, "money", DecimalType(38, 10)),
    NestedField(5, "day", DateType()),
    NestedField(6, "wall", TimestampType()),
    NestedField(7, "moment", TimestamptzType()),
    NestedField(8, "numbers", ListType(9, LongType(), element_required=False)),
    NestedField(
        10, "who", StructType(NestedField(11, "x", LongType()), NestedField(12, "name", StringType()))
    ),
    NestedField(13, "ratio", DoubleType()),
    NestedField(14, "single", FloatType()),
)
#: The next whole number is none of a floating-point column.
LARGE = 2**53 + 1
FULL: dict[str, Any] = {
    "id": 1,
    "large": LARGE,
    "flag": True,
    "money": Decimal("1234567890123456789.0123456789"),
    "day": datetime.date(1500, 1, 2),
    "wall": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "moment": datetime.datetime(1066, 10, 14, 9, tzinfo=datetime.UTC),
    "numbers": [LARGE, None],
    "who": {"x": LARGE, "name": "né"},
    "ratio": 0.1,
    "single": 0.5,
}
ROWS = pa.Table.from_pylist([FULL, {"id": 2}], schema=arrow_schema(SCHEMA.fields))


@pytest.fixture(params=[{}, ENCRYPTED], ids=["plain", "encrypted"])
def table(
    request: pytest.FixtureRequest, make: Callable[..., str], alice: lakewarden.Connection
) -> lakewarden.Table:
    """A table with a full row and one of nulls."""
    found = alice.table(make(SCHEMA, properties=request.param))
    found.append(ROWS)
    return found


@pytest.mark.nightly
def test_pandas_has_every_value_and_gives_it_back(table: Any) -> None:
    frame = table.scan().to_pandas()
    types = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert types["large"] == "Int64" and types["flag"] == "boolean"
    assert types["wall"] == "datetime64[us]" and types["moment"] == "datetime64[us, UTC]"
    first = frame.sort_values("id").iloc[0]
    assert (first["large"], first["money"], first["day"]) == (LARGE, FULL["money"], FULL["day"])
    assert (first["wall"], first["moment"]) == (FULL["wall"], FULL["moment"])
    assert (list(first["numbers"]), first["who"]) == (FULL["numbers"], FULL["who"])
    assert pd.isna(frame.sort_values("id").iloc[1]["large"])
    table.append(frame)
    assert table.scan("id = 1").to_arrow().to_pylist() == [FULL, FULL]
    assert table.scan("id = 2").to_arrow().to_pylist() == 2 * ROWS.slice(1).to_pylist()


@pytest.mark.nightly
def test_polars_has_every_value_and_gives_it_back(table: Any) -> None:
    frame = table.scan().to_polars()
    assert frame.schema["moment"] == pl.Datetime("us", "UTC")
    assert frame.sort("id").to_dicts() == ROWS.to_pylist()
    table.append(frame)
    assert table.scan("id = 1").to_arrow().to_pylist() == [FULL, FULL]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_null_and_nan_are_two_things(
    make: Callable[..., str], alice: lakewarden.Connection, name: str
) -> None:
    table = alice.table(
        make(Schema(NestedField(1, "ratio", DoubleType()), NestedField(2, "single", FloatType())))
    )
    rows = pa.table(
        {"ratio": [float("nan"), None, 1.0], "single": pa.array([None, 2.0, float("nan")], pa.float32())}
    )
    table.append(rows)
    table.append(getattr(table.scan(), f"to_{name}")())
    assert str(table.scan().to_arrow().to_pylist()) == str(2 * rows.to_pylist())


def test_polars_takes_batches_one_after_the_other(table: Any) -> None:
    table.append(ROWS)
    frames = [pl.from_arrow(each) for each in table.scan(columns=["id", "large"]).to_batches()]
    assert sum(len(each) for each in frames) == 4
    assert set(pl.concat(frames)["large"]) == {LARGE, None}


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_library_that_is_not_there_is_named(table: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(NotSupportedYet, match=f"{name} is not installed"):
        getattr(table.scan(), f"to_{name}")()


def test_days_after_the_year_9999_are_kept_and_pandas_says_that_it_has_none(
    make: Callable[..., str], alice: lakewarden.Connection
) -> None:
    days = [NestedField(number, name, DateType()) for number, name in enumerate(("day", "soon", "until"), 1)]
    table = alice.table(make(Schema(*days)))
    far, near = (pa.array([day], pa.int32()).cast(pa.date32()) for day in (4_000_000, 20_000))
    rows = pa.table({"day": far, "soon": near, "until": far})
    table.append(rows)
    assert table.scan("day > '2020-01-01'").to_arrow().equals(rows)
    assert len(table.scan().to_polars()) == 1
    with pytest.raises(NotSupportedYet, match="pandas cannot hold a value of 'day', 'until': year 12921"):
        table.scan().to_pandas()
    assert len(table.scan(columns=["soon"]).to_pandas()) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_text_that_is_none_is_refused_and_ends_no_process(
    served: Service, make: Callable[..., str], alice: lakewarden.Connection, name: str
) -> None:
    """A writer may put any bytes into a file; Polars believes that they are UTF-8."""
    table = alice.table(make(Schema(NestedField(1, "name", StringType()))))
    text = pa.array([b"\xff\xfe" * 20, b"b"])
    field = pa.field("name", pa.string(), metadata={"PARQUET:field_id": "1"})
    rows = pa.table([pa.Array.from_buffers(pa.string(), 2, text.buffers())], schema=pa.schema([field]))
    engine = Engine.begin(served.lake, table.name)
    written = engine.path()
    path = Path(written.removeprefix("file://"))
    path.parent.mkdir(parents=True)
    pq.write_table(rows, path, store_schema=False)
    engine.append(engine.file(written, record_count=2, file_size_in_bytes=path.stat().st_size))
    assert table.scan().to_arrow().num_rows == 2
    with pytest.raises(DataFileDamaged, match="rule=column-values"):
        getattr(table.scan(), f"to_{name}")()
