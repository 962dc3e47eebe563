"""Reading without Spark: every type, by field id, filtered as in SQL, out of the state that was asked for."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, GreaterThanOrEqual, In, Not
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

import lakewarden
from policy.errors import RequestInvalid
from tests.support.service import Service
from tests.support.tables import ENCRYPTED
from tests.support.vectors import each_row

INNER = StructType(NestedField(21, "a", IntegerType()), NestedField(22, "b", StringType()))
WHO = StructType(NestedField(24, "x", DoubleType()), NestedField(25, "y", StringType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "single", FloatType()),
    NestedField(4, "double", DoubleType()),
    NestedField(5, "money", DecimalType(9, 2)),
    NestedField(6, "huge", DecimalType(38, 10)),
    NestedField(7, "name", StringType()),
    NestedField(8, "raw", BinaryType()),
    NestedField(9, "four", FixedType(4)),
    NestedField(10, "day", DateType()),
    NestedField(11, "time", TimeType()),
    NestedField(12, "wall", TimestampType()),
    NestedField(13, "moment", TimestamptzType()),
    NestedField(14, "tags", ListType(15, StringType(), element_required=False)),
    NestedField(16, "deep", ListType(17, INNER, element_required=False)),
    NestedField(18, "ages", MapType(19, StringType(), 20, DoubleType(), value_required=False)),
    NestedField(
        23, "who", StructType(NestedField(24, "x", DoubleType()), NestedField(25, "y", StringType()))
    ),
)
UTC = datetime.UTC


def row(number: int) -> dict[str, Any]:
    """A row, with null in every column now and then."""
    values: dict[str, Any] = {
        "flag": number % 2 == 0,
        "single": number / 4,
        "double": number / 3,
        "money": Decimal(number) / 4,
        "huge": Decimal(f"{number}.0123456789"),
        "name": f"né€{number}",
        "raw": bytes((0, number)),
        "four": b"four",
        "day": datetime.date(2024, 1, 1 + number % 3),
        "time": datetime.time(1, 2, 3, number),
        "wall": datetime.datetime(1969, 12, 31, 23, 59, 59, number),
        "moment": datetime.datetime(2024, 2, 29, number % 24, tzinfo=UTC),
        "tags": ["a", None][: number % 3],
        "deep": [{"a": number, "b": None}, None][: number % 3],
        "ages": [("k", 1.5), ("l", None)][: number % 3],
        "who": {"x": None, "y": f"y{number}"},
    }
    gone = {name for place, name in enumerate(values) if (number + place) % 5 == 0}
    values["money"] = values["money"].quantize(Decimal("0.01"))
    return {"id": number} | {name: None if name in gone else value for name, value in values.items()}


ROWS = [row(number) for number in range(30)]
ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(9, 2)),
        ("huge", pa.decimal128(38, 10)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("four", pa.binary(4)),
        ("day", pa.date32()),
        ("time", pa.time64("us")),
        ("wall", pa.timestamp("us")),
        ("moment", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("deep", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
        ("ages", pa.map_(pa.string(), pa.float64())),
        ("who", pa.struct([("x", pa.float64()), ("y", pa.string())])),
    ]
)
GIVEN = pa.Table.from_pylist(ROWS, schema=ARROW)

Make = Callable[..., str]


COLUMN_KEYS = "pii:name,tags,who.y,huge;hr:deep.element.a,ages.value,day,moment"
SIGNED = {"encryption.footer": "plaintext"}
CTR = {"encryption.algorithm": "AES_GCM_CTR_V1"}
KEYED = {"encryption.columns": COLUMN_KEYS, "write.parquet.row-group-size-bytes": "1000"}
MODES = {
    "plaintext": {},
    "encrypted": ENCRYPTED,
    "ctr-128": CTR | {"encryption.data-key-length": "16"},
    "signed-192": SIGNED | {"encryption.data-key-length": "24"},
    "keyed": KEYED,
    "keyed-ctr": KEYED | CTR,
    "keyed-signed": KEYED | SIGNED,
}
#: Two settings at once; each alone is tried in each run.
AT_NIGHT = {"keyed-ctr", "keyed-signed"}


def filled_with(served: Service, mode: str, name: str) -> str:
    """Make a table with a row of each kind, written here in two files."""
    served.lake.catalog().create_table(name, SCHEMA, properties=MODES[mode])
    table = lakewarden.connect(served.url, served.token("alice")).table(name)
    table.append(GIVEN.slice(0, 13))
    table.append(GIVEN.slice(13))
    return name


@pytest.fixture(
    scope="module",
    params=[pytest.param(mode, marks=pytest.mark.nightly) if mode in AT_NIGHT else mode for mode in MODES],
)
def filled(request: pytest.FixtureRequest, served: Service) -> str:
    """A table of each mode."""
    return filled_with(served, request.param, f"db.filled_{request.param.replace('-', '_')}")


@pytest.fixture(scope="module")
def keyed(served: Service) -> str:
    """A table for what is decided before a file is opened."""
    return filled_with(served, "keyed", "db.filled")


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by("id").to_pylist()
    return found


@pytest.mark.rows_by_day(3)
def test_every_type_comes_back_as_it_was(alice: lakewarden.Connection, filled: str) -> None:
    read = alice.table(filled).scan().to_arrow()
    assert ordered(read) == ROWS
    assert read.schema.equals(ARROW)


FILTERS: list[tuple[Any, Callable[[dict[str, Any]], bool | None]]] = [
    ("id > 20", lambda row: row["id"] > 20),
    ("flag = true and id < 12", lambda row: row["flag"] and row["id"] < 12),
    ("name = 'né€3' or name is null", lambda row: row["name"] in (None, "né€3")),
    ("not (name = 'né€3' or id > 9)", lambda row: row["name"] not in (None, "né€3") and row["id"] <= 9),
    ("name not in ('né€3', 'né€4')", lambda row: row["name"] not in (None, "né€3", "né€4")),
    ("name like 'né€1%'", lambda row: (row["name"] or "").startswith("né€1")),
    ("money >= 2.50", lambda row: row["money"] is not None and row["money"] >= Decimal("2.5")),
    ("day = '2024-01-02'", lambda row: row["day"] == datetime.date(2024, 1, 2)),
    ("who.y = 'y7'", lambda row: (row["who"] or {}).get("y") == "y7"),
    ("who.x is null", lambda row: True),
    (GreaterThan("moment", "2024-02-29T10:00:00+00:00"), lambda row: (row["moment"] or MIN) > TEN),
    (EqualTo("raw", bytes((0, 7))), lambda row: row["raw"] == bytes((0, 7))),
    (Not(In("id", (1, 2, 3))), lambda row: row["id"] not in (1, 2, 3)),
]
MIN = datetime.datetime(1, 1, 1, tzinfo=UTC)
TEN = datetime.datetime(2024, 2, 29, 10, tzinfo=UTC)


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@each_row(("given", "holds"), FILTERS, ids=lambda row: str(row[0]))
def test_a_filter_keeps_the_rows_that_sql_would(
    alice: lakewarden.Connection, filled: str, given: Any, holds: Callable[[dict[str, Any]], bool | None]
) -> None:
    rows = ordered(alice.table(filled).scan(given).to_arrow())
    assert rows == [each for each in ROWS if holds(each)]


@pytest.mark.rows_by_day(3)
def test_columns_come_in_the_order_in_which_they_are_named(alice: lakewarden.Connection, filled: str) -> None:
    read = alice.table(filled).scan("id = 8", ["who.y", "name", "deep.element.b", "id"]).to_arrow()
    assert read.column_names == ["who", "name", "deep", "id"]
    assert read.to_pylist() == [{"who": {"y": "y8"}, "name": "né€8", "deep": [{"b": None}, None], "id": 8}]


@pytest.mark.rows_by_day(3)
def test_a_column_that_is_only_filtered_by_is_not_in_the_answer(
    alice: lakewarden.Connection, filled: str
) -> None:
    assert alice.table(filled).scan("who.y = 'y2'", ["name"]).to_arrow().to_pylist() == [{"name": "né€2"}]


@each_row("given", ["id >", "nope = 1", "id = 'text'"])
def test_a_filter_that_is_none_is_refused(alice: lakewarden.Connection, keyed: str, given: str) -> None:
    with pytest.raises(RequestInvalid):
        alice.table(keyed).scan(given).to_arrow()


NOON = datetime.datetime(2024, 1, 2, 12)
INEXACT = [
    "id > 1.5",
    "id < '1.5'",
    "not (id in (1.0, 2.5))",
    "money >= 2.505",
    GreaterThan("money", 2.505),
    GreaterThan("id", Decimal("1.00000000000000000000000000000000001")),
    EqualTo("day", NOON),
]


@each_row("given", INEXACT, ids=str)
def test_a_value_that_a_column_cannot_hold_is_refused_and_not_rounded(
    alice: lakewarden.Connection, keyed: str, given: Any
) -> None:
    with pytest.raises(RequestInvalid, match="rule=filter"):
        alice.table(keyed).scan(given).to_arrow()


@each_row(
    "given",
    ["id = 2.0", "id = '2'", GreaterThan("money", 2.5), EqualTo("day", NOON.replace(hour=0))],
)
def test_a_value_that_is_written_otherwise_is_the_same_value(
    alice: lakewarden.Connection, keyed: str, given: Any
) -> None:
    assert alice.table(keyed).scan(given).to_arrow().num_rows > 0


@each_row("columns", [["nope"], ["who.nope"], []])
def test_columns_that_are_not_there_are_refused(
    alice: lakewarden.Connection, keyed: str, columns: list[str]
) -> None:
    with pytest.raises(RequestInvalid):
        alice.table(keyed).scan(columns=columns).to_arrow()


@pytest.mark.rows_by_day(3)
def test_names_may_be_compared_without_regard_to_case(alice: lakewarden.Connection, filled: str) -> None:
    read = alice.table(filled).scan("ID = 3", ["NAME", "Who.Y"], case_sensitive=False).to_arrow()
    assert read.to_pylist() == [{"name": "né€3", "who": {"y": "y3"}}]


@pytest.mark.rows_by_day(3)
def test_batches_and_reader_hold_the_same_rows(alice: lakewarden.Connection, filled: str) -> None:
    scan = alice.table(filled).scan()
    assert ordered(pa.Table.from_batches(scan.to_batches())) == ROWS
    with scan.to_reader() as reader:
        assert reader.schema.equals(ARROW)
        assert ordered(reader.read_all()) == ROWS


def test_an_empty_table_has_no_rows_and_all_columns(alice: lakewarden.Connection, make: Make) -> None:
    read = alice.table(make(SCHEMA)).scan().to_arrow()
    assert read.num_rows == 0
    assert read.schema.equals(ARROW)


@pytest.mark.nightly
def test_a_state_of_the_past_is_read_with_the_columns_of_then(
    alice: lakewarden.Connection, served: Service, make: Make
) -> None:
    name = make(Schema(NestedField(1, "id", LongType()), NestedField(2, "old", StringType())))
    table = alice.table(name)
    first = table.append(pa.table({"id": [1], "old": ["x"]}))
    stock = served.lake.catalog().load_table(name)
    stock.manage_snapshots().create_tag(first, "then").commit()
    stock.update_schema().rename_column("old", "new").commit()
    table.append(pa.table({"id": [2], "new": ["y"]}))

    now = [{"id": 1, "new": "x"}, {"id": 2, "new": "y"}]
    assert ordered(table.scan().to_arrow()) == now
    assert ordered(table.scan(ref="main").to_arrow()) == now
    assert table.scan(snapshot_id=first).to_arrow().to_pylist() == [{"id": 1, "old": "x"}]
    assert table.scan(ref="then").to_arrow().to_pylist() == [{"id": 1, "old": "x"}]
    at = stock.metadata.snapshot_by_id(first).timestamp_ms
    assert table.scan(as_of_ms=at).to_arrow().to_pylist() == [{"id": 1, "old": "x"}]
    with pytest.raises(RequestInvalid):
        table.scan(snapshot_id=1).to_arrow()


def test_rows_that_position_deletes_took_out_are_gone(alice: lakewarden.Connection, make: Make) -> None:
    table = alice.table(make(Schema(NestedField(1, "id", LongType()))))
    table.append(pa.table({"id": list(range(10))}))
    scan = table.scan()
    plan = scan._plan()
    (file,) = plan.files
    path = Path(file.path.removeprefix("file://")).with_name("deletes.parquet")
    other = file.path.replace(".parquet", ".other.parquet")
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
            pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
        ]
    )
    rows = {"file_path": [file.path, other, file.path, file.path], "pos": [3, 5, 9, 0]}
    pq.write_table(pa.table(rows, schema=schema), path)
    deletes = replace(
        file, path=f"file://{path}", location=f"file://{path}", size=path.stat().st_size, records=4
    )
    marked = replace(plan, files=(replace(file, deletes=(deletes,)),))
    left = pa.Table.from_batches(scan._by(marked, None).at_once())
    assert left["id"].to_pylist() == [1, 2, 4, 5, 6, 7, 8]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("column", "value", "left"),
    [
        ("moment", datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), [2, 3]),
        ("wall", datetime.datetime(2026, 1, 2), [2, 3]),
        ("number", -math.inf, [1, 2, 3]),
        ("number", math.inf, [3]),
    ],
)
def test_filters_by_values_that_json_has_no_form_for(
    make: Callable[..., str], alice: lakewarden.Connection, column: str, value: Any, left: list[int]
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "moment", TimestamptzType()),
        NestedField(3, "wall", TimestampType()),
        NestedField(4, "number", DoubleType()),
    )
    days = [datetime.datetime(2026, 1, each) for each in (1, 2, 3)]
    rows = {
        "id": pa.array([1, 2, 3]),
        "moment": pa.array(days, pa.timestamp("us", "UTC")),
        "wall": pa.array(days, pa.timestamp("us")),
        "number": pa.array([-math.inf, 0.0, math.inf]),
    }
    table = alice.table(make(schema))
    table.append(pa.table(rows))
    found = table.scan(filter=GreaterThanOrEqual(column, value), columns=["id"]).to_arrow()
    assert found["id"].to_pylist() == left
