"""Plaintext ORC without Spark: every type, by field id; what is damaged is refused, and ends no process."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc as arrow_orc
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
)

import catalog
from catalog.base.identifiers import table_name
from catalog.client import files, orc
from catalog.client.columns import arrow_schema
from catalog.client.errors import DataFileDamaged
from policy.errors import NotAuthorized, NotSupportedYet, StorageUnavailable
from tests.support.service import Service
from tests.support.tables import Engine

Make = Callable[..., str]

ORC = {"write.format.default": "orc"}
WHO = StructType(NestedField(11, "x", LongType()), NestedField(12, "y", StringType(), required=True))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "single", FloatType()),
    NestedField(4, "double", DoubleType()),
    NestedField(5, "money", DecimalType(9, 2)),
    NestedField(6, "huge", DecimalType(38, 10)),
    NestedField(7, "raw", BinaryType()),
    NestedField(8, "day", DateType()),
    NestedField(9, "wall", TimestampType()),
    NestedField(10, "who", WHO),
    NestedField(13, "moment", TimestamptzType()),
    NestedField(14, "tags", ListType(15, StringType(), element_required=False)),
    NestedField(16, "deep", ListType(17, StructType(NestedField(18, "a", IntegerType())), False)),
    NestedField(19, "ages", MapType(20, StringType(), 21, DoubleType(), value_required=False)),
    NestedField(22, "a.b", StringType()),
)


def row(number: int) -> dict[str, Any]:
    """A row, with null in every column now and then."""
    values: dict[str, Any] = {
        "flag": number % 2 == 0,
        "single": number / 4,
        "double": number / 3,
        "money": Decimal(number).quantize(Decimal("0.01")),
        "huge": Decimal(f"{number}.0123456789"),
        "raw": bytes((0, number % 256)),
        "day": datetime.date(1500, 1, 1 + number % 3),
        "wall": datetime.datetime(1969, 12, 31, 23, 59, 59, number),
        "moment": datetime.datetime(2024, 2, 29, number % 24, tzinfo=datetime.UTC),
        "who": {"x": None, "y": f"né€{number}"},
        "tags": ["a", None][: number % 3],
        "deep": [{"a": number}, None][: number % 3],
        "ages": [("k", 1.5), ("l", None)][: number % 3],
        "a.b": f"dot{number}",
    }
    gone = {name for place, name in enumerate(values) if (number + place) % 5 == 0}
    return {"id": number} | {name: None if name in gone else value for name, value in values.items()}


ROWS = pa.Table.from_pylist([row(number) for number in range(3000)], schema=arrow_schema(SCHEMA.fields))


def attributes(field: NestedField, found: pa.Field) -> pa.Field:
    """A field as ORC's writers of Iceberg mark it."""
    kind, inner = found.type, field.field_type
    if isinstance(inner, StructType):
        kind = pa.struct([attributes(each, kind.field(each.name)) for each in inner.fields])
    elif isinstance(inner, ListType):
        kind = pa.list_(attributes(inner.element_field, kind.value_field))
    elif isinstance(inner, MapType):
        kind = pa.map_(
            attributes(inner.key_field, kind.key_field), attributes(inner.value_field, kind.item_field)
        )
    marks = {"iceberg.id": str(field.field_id), "iceberg.required": str(field.required).lower()}
    return pa.field(found.name, kind, found.nullable, marks)


def marked(schema: Schema) -> pa.Schema:
    """The schema of an honest file."""
    fields = zip(schema.fields, arrow_schema(schema.fields), strict=True)
    return pa.schema([attributes(*each) for each in fields])


def publish(served: Service, name: str, rows: pa.Table, records: int | None = None) -> Path:
    """Commit a file of ORC, in several stripes where there are many rows; where it lies."""
    engine = Engine.begin(served.lake, table_name(["db"], name.removeprefix("db.")))
    path = engine.path().removesuffix("parquet") + "orc"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    arrow_orc.write_table(rows, local, stripe_size=1024, batch_size=100, row_index_stride=1000)
    said = {"record_count": records or rows.num_rows, "file_size_in_bytes": local.stat().st_size}
    engine.append(engine.file(path, file_format="orc", **said))
    return local


@pytest.fixture(scope="module")
def filled(served: Service) -> str:
    """A table with a row of each kind, in two files of several stripes."""
    served.lake.catalog().create_table("db.orc", SCHEMA, properties=ORC)
    schema = marked(served.lake.catalog().load_table("db.orc").schema())
    for numbers in (range(2000), range(2000, 3000)):
        # PyArrow writes other values where rows are a slice of more.
        publish(served, "db.orc", ROWS.take(list(numbers)).cast(schema))
    return "db.orc"


def test_every_type_comes_back_as_it_was(alice: catalog.Connection, filled: str) -> None:
    assert alice.table(filled).scan().to_arrow().sort_by("id").equals(ROWS)


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        ("who.y = 'né€8'", lambda row: (row["who"] or {}).get("y") == "né€8"),
        ("day is null and id < 20", lambda row: row["day"] is None and row["id"] < 20),
    ],
)
def test_filters_and_columns(
    alice: catalog.Connection, filled: str, given: str, holds: Callable[[dict[str, Any]], bool]
) -> None:
    expected = [each for each in ROWS.to_pylist() if holds(each)]
    read = alice.table(filled).scan(given, ["a.b", "deep.element.a", "id"]).to_arrow().sort_by("id")
    assert read.to_pylist() == [{name: each[name] for name in ("a.b", "deep", "id")} for each in expected]


def test_stripes_say_where_they_begin(alice: catalog.Connection, filled: str) -> None:
    scan = alice.table(filled).scan(columns=["id"])
    plan = scan._plan()
    for file in plan.files:
        with files.opened(plan, file, scan.storage, plan.schema.fields) as source:
            parts = list(source.row_groups(plan.schema.fields))
        firsts = [rows["id"][0].as_py() % 2000 for _, rows in parts]
        assert [start for start, _ in parts] == firsts and (len(parts) > 1 or file.records == 1000)


def test_files_of_before_and_after_a_change_of_the_schema(
    served: Service, alice: catalog.Connection, make: Make
) -> None:
    first = Schema(
        NestedField(1, "id", IntegerType()),
        NestedField(2, "old", StringType()),
        NestedField(3, "gone", LongType()),
    )
    name = make(first, properties=ORC)
    publish(
        served,
        name,
        pa.table({"id": pa.array([1], pa.int32()), "old": ["a"], "gone": [7]}).cast(marked(first)),
    )
    with served.lake.catalog().load_table(name).update_schema() as update:
        update.rename_column("old", "new")
        update.update_column("id", LongType())
        update.delete_column("gone")
    with served.lake.catalog().load_table(name).update_schema() as update:
        update.add_column("gone", StringType())
    now = served.lake.catalog().load_table(name).schema()
    publish(served, name, pa.table({"id": [2], "new": ["b"], "gone": ["x"]}).cast(marked(now)))
    assert alice.table(name).scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "new": "a", "gone": None},
        {"id": 2, "new": "b", "gone": "x"},
    ]
    assert alice.table(name).scan(columns=["gone"]).to_arrow().num_rows == 2


SMALL = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
TWO = pa.table({"id": [1, 2], "name": ["a", "b"]})


def told(schema: pa.Schema, **marks: str | None) -> pa.Schema:
    """A schema whose attributes of `id` are others."""
    known = {key.decode(): value.decode() for key, value in schema.field("id").metadata.items()}
    changed = {f"iceberg.{name}": value for name, value in marks.items()}
    left = {name: value for name, value in (known | changed).items() if value is not None}
    return pa.schema([schema.field("id").with_metadata(left), *list(schema)[1:]])


HONEST = marked(SMALL)
NULL = pa.table({"id": pa.array([1, None]), "name": ["a", "b"]})
ODD: dict[str, tuple[pa.Table, int | None, str]] = {
    "no id": (TWO.cast(told(HONEST, id=None)), None, "field-id"),
    "an id twice": (TWO.cast(told(HONEST, id="2")), None, "field-id"),
    "an id that is none": (TWO.cast(told(HONEST, id="x")), None, "field-id"),
    "maybe null where it must not be": (TWO.cast(told(HONEST, required="false")), None, "required-column"),
    "null where it says there is none": (
        NULL.cast(pa.schema([HONEST.field("id").with_nullable(True), HONEST.field("name")])),
        None,
        "required-column",
    ),
    "a required column less": (
        TWO.select(["name"]).cast(pa.schema([HONEST.field("name")])),
        None,
        "required-column",
    ),
    "another type": (
        pa.table({"id": ["1", "2"], "name": ["a", "b"]}).cast(
            pa.schema(
                [pa.field("id", pa.string(), metadata=HONEST.field("id").metadata), HONEST.field("name")]
            )
        ),
        None,
        "column-type",
    ),
    "fewer rows than the table says": (TWO.cast(HONEST), 3, "record-count"),
}


@pytest.mark.parametrize("case", ODD)
def test_what_cannot_be_a_file_of_the_table_is_refused(
    served: Service, alice: catalog.Connection, make: Make, case: str
) -> None:
    rows, records, rule = ODD[case]
    name = make(SMALL, properties=ORC)
    publish(served, name, rows, records)
    with pytest.raises(DataFileDamaged, match=f"rule={rule}"):
        alice.table(name).scan().to_arrow()


def test_damage_gives_an_error_or_rows_that_are_whole(
    served: Service, alice: catalog.Connection, make: Make
) -> None:
    """ORC's own reader ends the process at some of them: it does so elsewhere."""
    name = make(SCHEMA, properties=ORC)
    schema = marked(served.lake.catalog().load_table(name).schema())
    path = publish(served, name, ROWS.take(list(range(60))).cast(schema))
    good, refused = path.read_bytes(), 0
    for number, at in enumerate(range(3, len(good), len(good) // 8)):
        path.write_bytes(good[:at] + bytes([good[at] ^ (0xFF if number % 2 else 0x80)]) + good[at + 1 :])
        try:
            rows = alice.table(name).scan().to_arrow()
        except DataFileDamaged:
            refused += 1
        else:
            rows.validate(full=True)
            assert rows.num_rows == 60
    assert refused > 2
    for length in (0, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(DataFileDamaged, match="file-size"):
            alice.table(name).scan().to_arrow()
    path.write_bytes(b"ORC" + bytes(len(good) - 3))
    with pytest.raises(DataFileDamaged):
        alice.table(name).scan().to_arrow()


@pytest.fixture
def small(served: Service, alice: catalog.Connection, make: Make) -> Any:
    """A table with one honest file."""
    name = make(SMALL, properties=ORC)
    publish(served, name, TWO.cast(HONEST))
    return alice.table(name)


SAYS = "import os, sys, struct; say = lambda part: os.write(1, struct.pack('<Q', len(part)) + part)\n"


@pytest.mark.parametrize(
    "acts",
    [
        "say(b'running'); os.kill(os.getpid(), 11)",
        "say(b'running'); say(b'2'); os.kill(os.getpid(), 11)",
        "say(b'running'); os.write(1, b'\\xff' * 64)",
        "say(b'running'); say(b'2'); say(b'\\xff' * 9); say(b'')",
        "say(b'running'); say(b'two'); say(b''); say(b'')",
    ],
)
def test_a_process_that_was_taken_over_or_ended_is_a_damaged_file(
    small: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, acts: str
) -> None:
    (tmp_path / "child.py").write_text(SAYS + acts)
    monkeypatch.setattr(orc, "_CHILD", tmp_path / "child.py")
    with pytest.raises(DataFileDamaged):
        small.scan().to_arrow()


def test_a_process_that_says_nothing_more_is_not_waited_for(
    small: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "child.py").write_text(SAYS + "import time; say(b'running'); say(b'2'); time.sleep(60)")
    monkeypatch.setattr(orc, "_CHILD", tmp_path / "child.py")
    monkeypatch.setattr(orc, "_MOST_SECONDS", 1)
    with pytest.raises(DataFileDamaged):
        small.scan().to_arrow()


def test_what_pyarrow_has_no_room_for_in_orc_is_said(
    served: Service, alice: catalog.Connection, make: Make
) -> None:
    """Types that other writers put into ORC in their own way, and instants beyond nanoseconds."""
    name = make(
        Schema(NestedField(1, "odd", FixedType(4)), NestedField(2, "at", TimestampType())), properties=ORC
    )
    as_stored = Schema(NestedField(1, "odd", BinaryType()), NestedField(2, "at", TimestampType()))
    at = [datetime.datetime(3000, 1, 1)]
    publish(
        served,
        name,
        pa.table({"odd": [b"1234"], "at": pa.array(at, pa.timestamp("us"))}).cast(marked(as_stored)),
    )
    with pytest.raises(NotSupportedYet, match="rule=column-type"):
        alice.table(name).scan(columns=["odd"]).to_arrow()
    with pytest.raises(NotSupportedYet, match="rule=orc-timestamp"):
        alice.table(name).scan(columns=["at"]).to_arrow()


def test_stripes_of_other_types_than_were_judged_are_refused(
    served: Service, alice: catalog.Connection, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    schema = Schema(NestedField(1, "who", StructType(NestedField(2, "x", LongType()))))
    name = make(schema, properties=ORC)
    path = publish(served, name, pa.table({"who": [{"x": 1}]}).cast(marked(schema)))
    tail = arrow_orc.ORCFile(path).reader.serialized_file_tail()
    judged, sent = marked(schema).serialize().to_pybytes(), pa.BufferOutputStream()
    rows = pa.table({"who": [1]})
    with pa.ipc.new_stream(sent, rows.schema) as stream:
        stream.write_table(rows)
    parts = f"say(b'running'); say(b'1'); say({tail!r}); say({judged!r}); os.read(0, 99); "
    (tmp_path / "child.py").write_text(f"{SAYS}{parts}os.write(1, {sent.getvalue().to_pybytes()!r})")
    monkeypatch.setattr(orc, "_CHILD", tmp_path / "child.py")
    with pytest.raises(DataFileDamaged, match="rule=column-type"):
        alice.table(name).scan().to_arrow()


def test_names_in_a_file_are_no_paths(served: Service, alice: catalog.Connection, make: Make) -> None:
    """ORC's reader takes `s.x` for the field of `s`."""
    name = make(SMALL, properties=ORC)
    inner = pa.field("x", pa.int64(), metadata={"iceberg.id": "10"})
    fields = [
        HONEST.field("id"),
        HONEST.field("name").with_name("s.x"),
        pa.field("s", pa.struct([inner]), metadata={"iceberg.id": "9"}),
    ]
    publish(
        served,
        name,
        pa.table([TWO["id"], TWO["name"], [{"x": 7}, {"x": 8}]], names=["id", "s.x", "s"]).cast(
            pa.schema(fields)
        ),
    )
    assert alice.table(name).scan().to_arrow().to_pylist() == TWO.to_pylist()


def test_a_process_that_does_not_start_is_not_the_files_fault(
    small: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as without:
        without.setenv("TZDIR", str(tmp_path))
        with pytest.raises(StorageUnavailable, match="time zone"):
            small.scan().to_arrow()
    monkeypatch.setattr(orc, "_CHILD", tmp_path / "none.py")
    with pytest.raises(StorageUnavailable, match="orc-process"):
        small.scan().to_arrow()


def test_the_process_that_reads_is_given_no_token(
    small: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "told.json"
    look = f"import json; open({str(told)!r}, 'w').write(json.dumps([dict(os.environ), sys.argv]))"
    (tmp_path / "child.py").write_text(SAYS + look)
    monkeypatch.setattr(orc, "_CHILD", tmp_path / "child.py")
    monkeypatch.setenv("LAKEWARDEN_TOKEN", "lw_secret")
    with pytest.raises(StorageUnavailable):
        small.scan().to_arrow()
    assert "lw_" not in told.read_text()
    environment, arguments = json.loads(told.read_text())
    assert set(environment) <= {*orc._ENVIRONMENT, "LC_CTYPE"} and len(arguments) == 2


def test_a_denied_user_gets_no_rows(served: Service, small: Any) -> None:
    with pytest.raises(NotAuthorized):
        catalog.connect(served.url, served.token("nobody")).table(str(small.name)).scan().to_arrow()


def test_encrypted_orc_is_refused_before_it_is_opened(
    served: Service, alice: catalog.Connection, make: Make
) -> None:
    name = make(SMALL, properties=ORC | {"encryption.mechanism": "envelope"})
    engine = Engine.begin(served.lake, table_name(["db"], name.removeprefix("db.")))
    engine.append(engine.file(file_format="orc", sha256=bytes(32)))
    with pytest.raises(NotSupportedYet, match="rule=orc-encryption"):
        alice.table(name).scan().to_arrow()


def test_orc_is_not_appended_to_and_says_what_to_do(small: Any) -> None:
    with pytest.raises(NotSupportedYet, match="format orc are not written without Spark") as refused:
        small.append(TWO)
    assert "Spark" in (refused.value.hint or "")
