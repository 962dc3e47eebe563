"""Position and equality deletes: deleted rows are gone, and no others, whatever else a scan leaves out."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from policy.errors import DecryptionRefused, NotSupportedYet
from tests.support.reads import refused
from tests.support.row_deletes import RowDeletes
from tests.support.spark import SparkLake
from tests.support.spark_tables import client_scan, create_table, data_files, master_keys, stock_table

pytestmark = pytest.mark.core

#: The number of rows that one entry of ORC's row index covers.
GROUP = 10_000
ROWS = 2 * GROUP + 5_000
SMALL = {
    "write.parquet.row-group-size-bytes": "65536",
    "write.parquet.page-row-limit": "500",
    "write.orc.stripe-size-bytes": "65536",
}
KINDS: Final = {
    "plaintext": SMALL,
    "uniform": SMALL | {"encryption.mechanism": "envelope"},
    "column keys": SMALL | {"encryption.columns": "pii:name"},
    "orc": SMALL | {"write.format.default": "orc", "encryption.mechanism": "envelope"},
}
#: Where row groups, pages, and ORC's groups and stripes begin or end, or a filter begins to skip.
POSITIONS = {0, 1, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP - 1, 2 * GROUP, ROWS - 1, *range(12_000, 12_100)}
NAMES = {5, GROUP - 2, 15_000}
NAMELESS = 777
NEW = ROWS + 100
MEMORY = "spark.lakewarden.deletes.memory"
FILTERS = [
    "true",
    f"id BETWEEN {GROUP - 10} AND {GROUP + 10}",
    f"id >= {2 * GROUP - 5} AND id < {2 * GROUP + 5}",
    "id < 3",
    f"id IN (12050, 12100, {ROWS - 1}, {ROWS - 2})",
    f"id > {ROWS - 5}",
    "name IS NULL",
    "name IN ('n5', 'n6')",
]


def file_format(properties: dict[str, str]) -> str:
    """The format of a table's files."""
    return properties.get("write.format.default", "parquet")


@contextmanager
def settings(spark_lake: SparkLake, **values: str) -> Iterator[None]:
    """Settings of Alice's session, names with underscores for dots."""
    conf = spark_lake.session().conf
    for name, value in values.items():
        conf.set(name.replace("_", "."), value)
    try:
        yield
    finally:
        for name in values:
            conf.unset(name.replace("_", "."))


def paths(spark_lake: SparkLake, table: str) -> list[str]:
    """The paths of a table's data files, oldest first."""
    rows = stock_table(spark_lake, table).inspect.entries().to_pylist()
    found = sorted((row["sequence_number"], row["data_file"]["file_path"]) for row in rows)
    return [path for _, path in found if "delete-0" not in path]


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("plaintext", marks=pytest.mark.nightly),
        pytest.param("uniform", marks=pytest.mark.nightly),
        "column keys",
        pytest.param("orc", marks=pytest.mark.nightly),
    ],
)
def test_deleted_rows_are_gone_whatever_a_scan_skips(
    spark_lake: SparkLake, namespace: str, kind: str
) -> None:
    table, properties = f"{namespace}.t", KINDS[kind]
    master_keys(spark_lake, "pii")
    create_table(spark_lake, table, "id BIGINT, name STRING", properties)
    row = f"if(id = {NAMELESS}, null, concat('n', id)) AS name"
    spark_lake.rows(f"INSERT INTO {table} SELECT id, {row} FROM range(0, {ROWS}, 1, 1)")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, {row} FROM range({ROWS}, {NEW}, 1, 1)")
    first, second = paths(spark_lake, table)
    odd = [(first, each) for each in POSITIONS if each % 2]
    even = [(first, each) for each in POSITIONS if not each % 2]
    deletes = RowDeletes(spark_lake, table, file_format(properties))
    deletes.positions([*odd, (second, 0)]).positions(even)
    deletes.equal([2], [(f"n{each}",) for each in NAMES]).equal([2], [(None,)]).commit()
    spark_lake.rows(f"INSERT INTO {table} SELECT id - 1000000, 'n5' FROM range({NEW}, {NEW + 2}, 1, 1)")
    *_, third = paths(spark_lake, table)

    gone = POSITIONS | NAMES | {NAMELESS, ROWS}
    left = [(each, first, each) for each in range(ROWS) if each not in gone]
    left += [(each, second, each - ROWS) for each in range(ROWS, NEW) if each not in gone]
    left += [(NEW - 1000000 + each, third, each) for each in range(2)]
    names = {"n5": {5, NEW - 1000000, NEW - 999999}, "n6": {6}}
    conditions = [
        lambda _: True,
        lambda id: GROUP - 10 <= id <= GROUP + 10,
        lambda id: 2 * GROUP - 5 <= id < 2 * GROUP + 5,
        lambda id: id < 3,
        lambda id: id in (12050, 12100, ROWS - 1, ROWS - 2),
        lambda id: id > ROWS - 5,
        lambda id: id == NAMELESS,
        lambda id: id in names["n5"] | names["n6"],
    ]
    expected = [sorted(row for row in left if condition(row[0])) for condition in conditions]
    parts = [
        f"SELECT {number} AS filter, id, _file, _pos FROM {table} WHERE {condition}"
        for number, condition in enumerate(FILTERS)
    ]
    modes: list[dict[str, str]] = [
        {},
        {"spark_sql_files_maxPartitionBytes": "20000", "spark_sql_files_openCostInBytes": "0"},
        {"spark_sql_codegen_wholeStage": "false"},
    ]
    for mode in modes:
        chosen = parts if not mode and kind in ("plaintext", "orc") else parts[1:]
        with settings(spark_lake, **mode):
            rows = spark_lake.rows(" UNION ALL ".join(chosen))
        found: list[list[Any]] = [[] for _ in parts]
        for each in rows:
            found[each[0]].append(tuple(each)[1:])
        assert [sorted(each) for each in found][len(parts) - len(chosen) :] == expected[-len(chosen) :], mode
    ids = [each[0] for each in left]
    (counted,) = spark_lake.rows(f"SELECT count(*), count(name), min(id), max(id), sum(id) FROM {table}")
    assert tuple(counted) == (len(ids), len(ids), min(ids), max(ids), sum(ids))
    if file_format(properties) == "parquet":
        assert sorted(client_scan(spark_lake, table).to_arrow()["id"].to_pylist()) == sorted(ids)


#: A column of each type, two values that differ, and how Iceberg's schema has it.
TYPES: Final[dict[str, tuple[str, list[str], Any]]] = {
    "flag": ("BOOLEAN", ["true", "false"], True),
    "small": ("INT", ["7", "-7"], 7),
    "large": ("BIGINT", ["9223372036854775807", "0"], 9223372036854775807),
    "single": ("FLOAT", ["float('NaN')", "float(1)"], float("nan")),
    "double": ("DOUBLE", ["double('-0.0')", "double('0.0')"], -0.0),
    "cents": ("DECIMAL(9,2)", ["-0.01", "0.01"], Decimal("-0.01")),
    "wide": ("DECIMAL(38,10)", ["1.5", "1.25"], Decimal("1.5")),
    "day": ("DATE", ["date'1500-02-28'", "date'1970-01-01'"], datetime.date(1500, 2, 28)),
    "moment": (
        "TIMESTAMP",
        ["timestamp'1969-12-31 23:59:58.999999Z'", "timestamp'1970-01-01 00:00:00Z'"],
        datetime.datetime(1969, 12, 31, 23, 59, 58, 999999, datetime.UTC),
    ),
    "local": (
        "TIMESTAMP_NTZ",
        ["timestamp_ntz'1969-12-31 23:59:58.999999'", "timestamp_ntz'1970-01-01 00:00:00'"],
        datetime.datetime(1969, 12, 31, 23, 59, 58, 999999),
    ),
    "text": ("STRING", ["'\u00e4\U0001f600'", "'a'"], "\u00e4\U0001f600"),
    "bytes": ("BINARY", ["X'00ff'", "X'00'"], bytearray(b"\x00\xff")),
}


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["parquet", pytest.param("orc", marks=pytest.mark.nightly)])
def test_values_are_equal_as_iceberg_compares_them(spark_lake: SparkLake, namespace: str, form: str) -> None:
    """Each column deletes one row by its first value and one by NULL, not the one with the other value."""
    table = f"{namespace}.t"
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in TYPES.items())
    nested = "home STRUCT<street: STRING, zip: INT>"
    create_table(spark_lake, table, f"id INT, {columns}, {nested}", {"write.format.default": form})
    others = ", ".join(values[1] for _, values, _ in TYPES.values())
    home = "named_struct('street', 'elm', 'zip', 1)"
    rows = [f"(0, {others}, {home})"]
    for number, (name, (_, values, _)) in enumerate(TYPES.items()):
        for offset, value in enumerate((values[0], "NULL")):
            own = ", ".join(value if each == name else it[1][1] for each, it in TYPES.items())
            rows.append(f"({2 * number + offset + 1}, {own}, {home})")
    first = len(rows)
    for number, odd in enumerate(
        ("named_struct('street', NULL, 'zip', 2)", "NULL", "named_struct('street', 'oak', 'zip', 3)")
    ):
        rows.append(f"({first + number}, {others}, {odd})")
    spark_lake.rows(f"INSERT INTO {table} VALUES {', '.join(rows)}")
    deletes = RowDeletes(spark_lake, table, form)
    for number, (_, _, value) in enumerate(TYPES.values()):
        deletes.equal([number + 2], [(value,), (None,)])
    street = len(TYPES) + 3
    outer = {"id": street - 1, "name": "home", "required": False}
    inner = {"id": street, "name": "street", "required": False, "type": "string"}
    schema = {"type": "struct", "fields": [outer | {"type": {"type": "struct", "fields": [inner]}}]}
    deletes.equal([street], [(None,)], schema=schema).commit()
    left = spark_lake.rows(f"SELECT id, home.zip FROM {table} ORDER BY id")
    assert [tuple(each) for each in left] == [(0, 1), (first + 2, 3)]
    if form == "parquet":
        assert sorted(client_scan(spark_lake, table).to_arrow()["id"].to_pylist()) == [0, first + 2]


@pytest.mark.nightly
@pytest.mark.parametrize("form", [pytest.param("parquet", marks=pytest.mark.nightly), "orc"])
def test_columns_of_deletes_are_found_by_id_whatever_became_of_them(
    spark_lake: SparkLake, namespace: str, form: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, old STRING, gone STRING", {"write.format.default": form})
    values = "(1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z'), (4, 'd', 'w'), (5, 'e', 'v')"
    spark_lake.rows(f"INSERT INTO {table} VALUES {values}")
    deletes = RowDeletes(spark_lake, table, form)
    deletes.equal([1], [(1,)]).equal([2], [("b",)]).equal([3], [("z",)]).commit()
    for change in ("RENAME COLUMN old TO new", "ALTER COLUMN id TYPE BIGINT", "DROP COLUMN gone"):
        spark_lake.rows(f"ALTER TABLE {table} {change}")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMNS (gone STRING, more STRING)")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'b', 'z', null), (6, 'f', 'u', 'm')")
    assert [tuple(each) for each in spark_lake.rows(f"SELECT id, gone FROM {table} ORDER BY id")] == [
        (1, "z"),
        (4, None),
        (5, None),
        (6, "u"),
    ]
    # What a file does not have is NULL: older rows go too.
    RowDeletes(spark_lake, table, form).equal([5], [(None,)]).commit()
    assert [each.new for each in spark_lake.rows(f"SELECT new FROM {table}")] == ["f"]
    if form == "parquet":
        assert client_scan(spark_lake, table).to_arrow().to_pylist() == [
            {"id": 6, "new": "f", "gone": "u", "more": "m"}
        ]


@pytest.mark.nightly
def test_partitions_and_their_deletes_are_kept_apart_and_shown(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, day DATE, name STRING", partitioned_by="day, truncate(1, name)")
    days = "date'2026-01-01'", "NULL"
    values = ", ".join(f"({n}, {day}, '{name}')" for n in (1, 2) for day in days for name in ("ab", "xy"))
    spark_lake.rows(f"INSERT INTO {table} VALUES {values}")
    deletes = RowDeletes(spark_lake, table)
    deletes.equal([1], [(1,)], {"day": "2026-01-01", "name_trunc": "a"})
    deletes.equal([1], [(2,)], {"day": None, "name_trunc": "x"}).commit()
    with stock_table(spark_lake, table).update_spec() as update:
        update.remove_field("day")
        update.add_identity("id")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, date'2026-01-01', 'ab')")
    shown = "id, name, _spec_id, _partition.day, _partition.name_trunc, _partition.id AS of, _partition"
    rows = spark_lake.rows(f"SELECT {shown} FROM {table}")
    day = datetime.date(2026, 1, 1)
    assert {tuple(each)[:6] for each in rows} == {
        (2, "ab", 0, day, "a", None),
        (1, "xy", 0, day, "x", None),
        (2, "xy", 0, day, "x", None),
        (1, "ab", 0, None, "a", None),
        (2, "ab", 0, None, "a", None),
        (1, "xy", 0, None, "x", None),
        (1, "ab", 1, None, "a", 1),
    }
    assert {tuple(each["_partition"]) for each in rows if each._spec_id == 1} == {(None, "a", 1)}
    (file,) = spark_lake.rows(f"SELECT DISTINCT _file FROM {table} WHERE _partition.id = 1")
    assert spark_lake.rows(f"SELECT id FROM {table} WHERE _file = '{file._file}' AND _pos = 0")[0].id == 1


@pytest.mark.nightly
def test_a_column_by_whose_name_spark_numbers_rows_is_refused_and_never_numbers(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, `_tmp_metadata_row_index` BIGINT")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 77)")
    assert spark_lake.rows(f"SELECT id, _pos FROM {table}") == [(1, 0)]
    refused(spark_lake, f"SELECT * FROM {table}", "NOT_SUPPORTED_YET", "reserved-column")


def delete_files(spark_lake: SparkLake, table: str) -> list[Path]:
    """Where the delete files of a table lie."""
    directory = Path(stock_table(spark_lake, table).location().removeprefix("file://"))
    return sorted(each for each in directory.rglob("*delete-0*.parquet") if each.name[0] != ".")


def test_delete_files_pass_the_checks_of_data_files(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, name STRING", {"encryption.mechanism": "envelope"})
    spark_lake.rows(f"INSERT INTO {table} SELECT id, 'a' FROM range(1, 3, 1, 1)")
    (file,) = data_files(spark_lake, table)
    deletes = RowDeletes(spark_lake, table)
    deletes.positions([(file["file_path"], 0)]).positions([(file["file_path"], 1)]).commit()
    query = f"SELECT id FROM {table}"
    assert spark_lake.rows(query) == []
    one, other = delete_files(spark_lake, table)
    was = one.read_bytes()
    for hostile, rule in (
        (other.read_bytes(), "file-authentic"),
        (was[:-20] + bytes([was[-20] ^ 1]) + was[-19:], "file-authentic"),
    ):
        one.write_bytes(hostile)
        refused(spark_lake, query, "DECRYPTION_REFUSED", rule)
        with pytest.raises(DecryptionRefused):
            client_scan(spark_lake, table).to_arrow()
    one.unlink()
    refused(spark_lake, query, "DATA_FILE_MISSING", "data-file")
    one.symlink_to(other)
    refused(spark_lake, query, "LOCATION_NOT_ALLOWED", "no-links")


def test_an_equality_delete_without_its_column_deletes_nothing_and_is_refused(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, name STRING")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, NULL)")
    fields = [{"id": 1, "name": "id", "required": False, "type": "long"}]
    schema = {"type": "struct", "fields": fields}
    RowDeletes(spark_lake, table).equal([2], [(1,)], schema=schema, statistics=False).commit()
    refused(spark_lake, f"SELECT id FROM {table}", "NOT_SUPPORTED_YET", "absent-column")
    with pytest.raises(NotSupportedYet):
        client_scan(spark_lake, table).to_arrow()


@pytest.mark.nightly
def test_deletes_beyond_the_memory_for_them_are_read_for_each_file_or_refused(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT")
    for number in (0, 100):
        spark_lake.rows(f"INSERT INTO {table} SELECT id FROM range({number}, {number + 100}, 1, 1)")
    files = [each["file_path"] for each in data_files(spark_lake, table)]
    RowDeletes(spark_lake, table).positions([(path, n) for path in files for n in range(90)]).commit()
    query = f"SELECT count(id) FROM {table} WHERE id >= 0"
    conf = spark_lake.spark.sparkContext._jsc.sc().conf()
    try:
        conf.set(MEMORY, "1800b")
        assert spark_lake.rows(query)[0][0] == 20
        conf.set(MEMORY, "100b")
        refused(spark_lake, query, "DELETES_TOO_LARGE", "delete-memory")
    finally:
        conf.remove(MEMORY)
