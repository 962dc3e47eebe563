"""Appending without Spark: rows as they are, in files as the table wants them, or nothing at all."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

import lakewarden
from catalog.client import encrypting
from catalog.client.columns import arrow_schema
from policy.errors import NotAuthorized, NotSupportedYet, PropertyInvalid, RequestInvalid
from tests.support.service import Service
from tests.support.tables import ENCRYPTED
from tests.support.vectors import each_row

Make = Callable[..., str]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "number", DoubleType()),
)


def files_of(served: Service, name: str) -> list[dict[str, Any]]:
    """What the manifests say of each file."""
    rows: list[dict[str, Any]] = served.lake.catalog().load_table(name).inspect.files().to_pylist()
    return rows


def left_over(served: Service) -> set[Path]:
    """The data files of the warehouse."""
    return set(served.lake.warehouse.rglob("*.parquet"))


@pytest.mark.nightly
@pytest.mark.parametrize("given", ["table", "batch", "reader", "pandas", "stream"])
def test_rows_are_taken_in_every_form_of_arrow(make: Make, alice: lakewarden.Connection, given: str) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", None], "number": [0.5, None]})
    forms: dict[str, Any] = {
        "table": rows,
        "batch": rows.to_batches()[0],
        "reader": rows.to_reader(),
        "pandas": pd.DataFrame({"id": [1, 2], "name": ["a", None], "number": [0.5, None]}),
        "stream": Stream(rows),
    }
    table = alice.table(make(SCHEMA))
    table.append(forms[given])
    assert table.scan().to_arrow().equals(rows)


class Stream:
    """Rows of another library, with Arrow's interface and no other."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


def test_columns_are_found_by_name_and_absent_ones_are_null(make: Make, alice: lakewarden.Connection) -> None:
    table = alice.table(make(SCHEMA))
    table.append(pa.table({"name": ["a"], "id": pa.array([1], pa.int16())}))
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "name": "a", "number": None}]


ONE = pa.array([1], pa.int32())
NESTED = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "who", StructType(NestedField(3, "x", LongType(), required=True))),
    NestedField(4, "tags", ListType(5, StringType(), element_required=True)),
    NestedField(6, "at", TimestamptzType()),
)


BYTES = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())


@pytest.fixture
def nested(make: Make) -> str:
    """A table without rows."""
    return make(NESTED)


@each_row(
    "rows",
    [
        pytest.param({"id": [1], "nope": [1]}, id="a column that is not there"),
        pytest.param({"id": [1], "who": [{"x": 1, "nope": 2}]}, id="a nested one"),
        pytest.param({"id": ["text"]}, id="another type"),
        pytest.param({"id": pa.array([1], pa.int64())}, id="a wider type"),
        pytest.param({"who": [{"x": 1}]}, id="no required column"),
        pytest.param({"id": pa.array([None], pa.int32())}, id="null where there is none"),
        pytest.param({"id": ONE, "who": [{"x": None}]}, id="nested null"),
        pytest.param({"id": ONE, "tags": [["a", None]]}, id="null in a list"),
        pytest.param({"id": ONE, "at": [datetime.datetime(2024, 1, 1)]}, id="no zone"),
        pytest.param(
            {"id": ONE, "at": pa.array([1], pa.timestamp("ns", "UTC"))},
            id="nanoseconds",
        ),
        pytest.param({"id": ONE, "who": ONE}, id="a number for a struct"),
        pytest.param({"id": ONE, "tags": pa.ListArray.from_arrays([0, 1], BYTES)}, id="no UTF-8"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_leave_nothing(
    nested: str, alice: lakewarden.Connection, served: Service, rows: dict[str, Any]
) -> None:
    before = left_over(served)
    with pytest.raises(RequestInvalid, match="do not match the table's schema"):
        alice.table(nested).append(pa.table(rows))
    assert left_over(served) == before
    assert alice.table(nested).scan().to_arrow().num_rows == 0


@pytest.mark.nightly
def test_what_is_required_within_a_struct_that_is_null(make: Make, alice: lakewarden.Connection) -> None:
    def pair(first: int) -> StructType:
        x = NestedField(first, "x", StringType(), required=True)
        return StructType(x, NestedField(first + 1, "y", LongType()))

    longs = ListType(51, LongType(), element_required=True)
    kinds = {
        "one": pair(10),
        "some": ListType(20, pair(21), element_required=False),
        "outer": StructType(NestedField(30, "inner", pair(31), required=True)),
        "named": MapType(40, StringType(), 41, pair(42), value_required=False),
        "lists": StructType(NestedField(50, "l", longs, required=True)),
        "long": StructType(NestedField(60, "f", FixedType(1000), required=True)),
    }
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(kinds.items(), 1)]
    a = {"x": "a", "y": None}
    rows = pa.Table.from_pylist(
        [
            dict.fromkeys(kinds),
            {
                "one": a,
                "some": [a, None],
                "outer": {"inner": a},
                "named": [("k", a)],
                "lists": {"l": [1]},
                "long": {"f": bytes(1000)},
            },
            {"one": None, "some": [None], "outer": None, "named": [("n", None)], "lists": {"l": []}},
        ],
        schema=arrow_schema(fields),
    )
    table = alice.table(make(Schema(*fields)))
    table.append(rows)
    table.append(rows.slice(1, 2))
    table.append(rows.slice(0, 1))
    given = pa.concat_tables([rows, rows]).to_pylist()
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == sorted(given, key=str)


def test_what_is_no_arrow_is_refused(make: Make, alice: lakewarden.Connection) -> None:
    with pytest.raises(RequestInvalid, match="Cannot append rows of the type list"):
        alice.table(make(SCHEMA)).append([{"id": 1}])


def test_no_rows_make_no_snapshot(make: Make, alice: lakewarden.Connection, served: Service) -> None:
    name = make(SCHEMA)
    assert alice.table(name).append(pa.table({"id": pa.array([], pa.int64())})) is None
    assert served.lake.catalog().load_table(name).current_snapshot() is None


def test_a_reader_that_fails_leaves_nothing(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    rows = pa.table({"id": [1]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()
        raise RuntimeError("the source broke")

    name, before = make(SCHEMA, properties=ENCRYPTED), left_over(served)
    with pytest.raises(RuntimeError, match="the source broke"):
        alice.table(name).append(pa.RecordBatchReader.from_batches(rows.schema, batches()))
    assert left_over(served) == before
    assert served.lake.catalog().load_table(name).current_snapshot() is None


def test_a_refused_commit_leaves_nothing(
    make: Make, alice: lakewarden.Connection, served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, before = make(SCHEMA), left_over(served)
    monkeypatch.setattr("catalog.client.writing.Partitioner.parts", lambda *_: iter(()))
    monkeypatch.setattr(
        "catalog.client.writing._Files.write", lambda *_: [{"path": "s3://elsewhere/x.parquet", "bad": 1}]
    )
    with pytest.raises(RequestInvalid):
        alice.table(name).append(pa.table({"id": [1]}))
    assert left_over(served) == before


def test_files_are_split_by_partition(make: Make, alice: lakewarden.Connection, served: Service) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "day", DateType()),
        NestedField(3, "who", StructType(NestedField(4, "name", StringType()))),
        NestedField(5, "at", TimestamptzType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"),
        PartitionField(1, 1001, BucketTransform(2), "bucket"),
        PartitionField(4, 1002, TruncateTransform(1), "first"),
        PartitionField(5, 1003, DayTransform(), "at_day"),
    )
    name = make(schema, partition_spec=spec)
    rows = pa.Table.from_pylist(
        [
            {
                "id": number,
                "day": None if number % 5 == 0 else datetime.date(2024, 1, 1 + number % 2),
                "who": None if number % 7 == 0 else {"name": f"n{number}"},
                "at": datetime.datetime(1969, 12, 31, 23, tzinfo=datetime.UTC),
            }
            for number in range(20)
        ],
        schema=pa.schema(
            [
                ("id", pa.int64()),
                ("day", pa.date32()),
                ("who", pa.struct([("name", pa.string())])),
                ("at", pa.timestamp("us", "UTC")),
            ]
        ),
    )
    alice.table(name).append(rows)
    partitions = [each["partition"] for each in files_of(served, name)]
    assert len(partitions) == len({str(each) for each in partitions}) > 4
    assert {each["at_day"] for each in partitions} == {datetime.date(1969, 12, 31)}
    assert {each["first"] for each in partitions} == {"n", None}
    assert alice.table(name).scan().to_arrow().sort_by("id").equals(rows)
    # The catalog leaves out files by these values.
    one = alice.table(name).scan("day = '2024-01-02' and id = 3").to_arrow()
    assert one["id"].to_pylist() == [3]


FAR = pa.array([4_000_000], pa.int32()).cast(pa.date32())


@pytest.mark.nightly
def test_a_batch_of_many_partitions_makes_one_file_of_each(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    """However small its pieces are."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    schema = Schema(NestedField(1, "p", LongType()), NestedField(2, "text", StringType()))
    name = make(schema, partition_spec=spec, properties={"write.parquet.row-group-size-bytes": "10000"})
    rows = pa.table({"p": [number % 60 for number in range(6000)], "text": ["x" * 100] * 6000})
    alice.table(name).append(rows)
    partitions = [each["partition"]["p"] for each in files_of(served, name)]
    assert sorted(partitions) == list(range(60))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "transform", [IdentityTransform(), DayTransform(), MonthTransform(), YearTransform()], ids=str
)
def test_dates_beyond_pythons_calendar_have_partitions(
    make: Make, alice: lakewarden.Connection, transform: Any
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    name = make(Schema(NestedField(1, "value", DateType())), partition_spec=spec)
    alice.table(name).append(pa.table({"value": FAR}))
    assert alice.table(name).scan("value > '9999-12-31'").to_arrow().num_rows == 1
    assert alice.table(name).scan("value < '0001-01-01'").to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("kind", "transform", "values"),
    [
        (DoubleType(), IdentityTransform(), [float("nan")]),
        (DoubleType(), IdentityTransform(), [float("inf")]),
    ],
)
def test_a_partition_that_cannot_be_named_is_refused(
    make: Make, alice: lakewarden.Connection, kind: Any, transform: Any, values: Any
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    name = make(Schema(NestedField(1, "value", kind)), partition_spec=spec)
    with pytest.raises(RequestInvalid, match="rule=partition"):
        alice.table(name).append(pa.table({"value": values}))


def test_statistics_are_by_field_id(make: Make, alice: lakewarden.Connection, served: Service) -> None:
    name = make(SCHEMA)
    alice.table(name).append(
        pa.table({"id": [3, 1, None], "name": ["x" * 40, "b", "c"], "number": [1.0, float("nan"), 2.0]})
    )
    (file,) = files_of(served, name)
    assert dict(file["lower_bounds"]) == {1: (1).to_bytes(8, "little"), 2: b"b"}
    assert dict(file["upper_bounds"]) == {1: (3).to_bytes(8, "little"), 2: b"x" * 15 + b"y"}
    assert dict(file["null_value_counts"]) == {1: 1, 2: 0, 3: 0}
    # NaN is greater than everything to SQL, and is found.
    assert alice.table(name).scan("number > 5").to_arrow().num_rows in (0, 1)


PROPERTIES: list[tuple[dict[str, str], str]] = [
    ({"write.parquet.compression-codec": "gzip"}, "GZIP"),
    ({"write.parquet.compression-codec": "uncompressed"}, "UNCOMPRESSED"),
    ({"write.parquet.compression-codec": "lz4_raw"}, "LZ4"),
    ({"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "9"}, "ZSTD"),
    ({}, "ZSTD"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("properties", "codec"), PROPERTIES)
def test_the_tables_properties_are_obeyed(
    make: Make, alice: lakewarden.Connection, served: Service, properties: dict[str, str], codec: str
) -> None:
    name = make(SCHEMA, properties=properties)
    alice.table(name).append(pa.table({"id": [1]}))
    path = files_of(served, name)[0]["file_path"].removeprefix("file://")
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == codec


@pytest.mark.nightly
def test_files_end_where_the_table_wants_them_to(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    name = make(SCHEMA, properties={"write.target-file-size-bytes": "1000"})
    batches = [pa.record_batch({"id": list(range(start, start + 1000))}) for start in range(0, 5000, 1000)]
    alice.table(name).append(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert len(files_of(served, name)) > 1
    assert sorted(alice.table(name).scan().to_arrow()["id"].to_pylist()) == list(range(5000))


def test_pages_end_where_the_table_wants_them_to(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    usual, small = make(SCHEMA), make(SCHEMA, properties={"write.parquet.page-row-limit": "10"})
    for name in (usual, small):
        alice.table(name).append(pa.table({"id": [1] * 1000}))
    sizes = [files_of(served, name)[0]["file_size_in_bytes"] for name in (usual, small)]
    assert sizes[1] - sizes[0] > 99 * 10, "a hundred pages have a hundred headers"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "encryption", [{}, ENCRYPTED, {"encryption.columns": "pii:id"}], ids=["in plaintext", "whole", "columns"]
)
def test_one_large_batch_becomes_files_and_row_groups_as_large_as_the_table_wants_them(
    make: Make, alice: lakewarden.Connection, served: Service, encryption: dict[str, str]
) -> None:
    sizes = {"write.target-file-size-bytes": "200000", "write.parquet.row-group-size-bytes": "50000"}
    name = make(SCHEMA, properties=encryption | sizes)
    table = alice.table(name)
    rows = pa.table({"id": random.Random(1).sample(range(2**62), 60_000)})
    table.append(rows)
    batches = list(table.scan(columns=["id"]).to_batches())
    assert sorted(pa.Table.from_batches(batches)["id"].to_pylist()) == sorted(rows["id"].to_pylist())
    # A batch is what was one row group; a value in memory has 8 bytes, and a null of the others up to 8.
    assert all(each.num_rows <= 9 / 8 * 50_000 / 8 for each in batches)
    assert 3 <= len(files_of(served, name)) <= 6


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"write.format.default": "orc"}, NotSupportedYet),
        ({"write.format.default": "avro"}, PropertyInvalid),
        ({"write.parquet.compression-codec": "brotli"}, PropertyInvalid),
        ({"write.target-file-size-bytes": "-1"}, PropertyInvalid),
    ],
)
def test_what_cannot_be_obeyed_is_refused_before_a_file_is_made(
    make: Make,
    alice: lakewarden.Connection,
    served: Service,
    properties: dict[str, str],
    error: type[Exception],
) -> None:
    before = left_over(served)
    with pytest.raises(error):
        alice.table(make(SCHEMA, properties=properties)).append(pa.table({"id": [1]}))
    assert left_over(served) == before


def test_more_row_groups_than_an_encrypted_file_can_number_are_refused_and_leave_nothing(
    make: Make, alice: lakewarden.Connection, served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"encryption.columns": "pii:id", "write.parquet.row-group-size-bytes": "1"}
    name, before = make(SCHEMA, properties=small), left_over(served)
    monkeypatch.setattr(encrypting, "_LARGEST_NUMBER", 2)
    batch = pa.record_batch({"id": [1]})
    alice.table(name).append(pa.Table.from_batches([batch] * 3))
    with pytest.raises(NotSupportedYet, match="row-group-size"):
        alice.table(name).append(pa.Table.from_batches([batch] * 4))
    assert len(left_over(served)) == len(before) + 1


def test_each_file_has_keys_of_its_own(make: Make, alice: lakewarden.Connection) -> None:
    table = alice.table(make(SCHEMA, properties={"encryption.columns": "pii:name;hr:number"}))
    table.append(pa.table({"id": [1], "name": ["a"], "number": [1.0]}))
    table.append(pa.table({"id": [2], "name": ["b"], "number": [2.0]}))
    plan = table.scan()._plan()
    keys = [plan.keys(each, plan.location(each)) for each in plan.files]
    found = [
        key.reveal()
        for each in keys
        if each and each.columns
        for key in (each.footer, *each.columns.values())
    ]
    assert len(found) == len(set(found)) == 6


def test_nothing_in_plaintext_of_an_encrypted_column_is_in_a_file(
    make: Make, alice: lakewarden.Connection, served: Service
) -> None:
    for mode in ({}, {"encryption.footer": "plaintext"}, {"encryption.algorithm": "AES_GCM_CTR_V1"}):
        properties = {"encryption.columns": "pii:name", "write.parquet.compression-codec": "uncompressed"}
        name = make(SCHEMA, properties=properties | mode)
        alice.table(name).append(pa.table({"id": [0x1122334455667788], "name": ["needle-in-the-hay"]}))
        path = Path(files_of(served, name)[0]["file_path"].removeprefix("file://"))
        data = path.read_bytes()
        assert b"needle" not in data
        assert (0x1122334455667788).to_bytes(8, "little") in data


def test_a_denied_user_leaves_nothing(make: Make, served: Service) -> None:
    name, before = make(SCHEMA), left_over(served)
    with pytest.raises(NotAuthorized):
        lakewarden.connect(served.url, served.token("nobody")).table(name).append(pa.table({"id": [1]}))
    assert left_over(served) == before


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "lower", "upper"),
    [
        ("\ud7ff" * 17, "\ud7ff" * 16, "\ud7ff" * 15 + "\ue000"),
        ("\U0010ffff" * 17, "\U0010ffff" * 16, None),
        ("a" * 15 + "\U0010ffff!", "a" * 15 + "\U0010ffff", "a" * 14 + "b"),
        ("a" * 16, "a" * 16, "a" * 16),
    ],
)
def test_bounds_of_texts_are_cut_and_are_texts(
    make: Make, alice: lakewarden.Connection, served: Service, text: str, lower: str, upper: str | None
) -> None:
    """Behind U+D7FF come the surrogates, which are in no text; behind U+10FFFF comes nothing."""
    name = make(SCHEMA)
    alice.table(name).append(pa.table({"id": [1], "name": [text], "number": [1.0]}))
    (file,) = files_of(served, name)
    assert dict(file["lower_bounds"])[2] == lower.encode()
    assert dict(file["upper_bounds"]).get(2) == (None if upper is None else upper.encode())
