"""Encrypted ORC files: what is in them, and what is refused that ORC by itself would take."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from tests.support.reads import data_files, refused, refused_again, replaced
from tests.support.spark import SparkLake
from tests.support.spark_tables import master_keys

pytestmark = pytest.mark.core

COLUMNS = "id BIGINT, ssn STRING, person STRUCT<name: STRING, age: INT>, open STRING"
ROWS = """SELECT id, concat('needle-', id), named_struct('name', concat('needle-', id), 'age', 7777777),
    'clear' FROM range(0, 100, 1, 1)"""
KEYED = "'encryption.columns' = 'pii:ssn,person'"
#: Without digests, so that it is the keys that tell.
BY_KEYS = "'encryption.verify-digest' = 'never'"
#: Encrypted statistics compress differently in each file; without compression, all files have one length.
SAME_LENGTHS = "'write.orc.compression-codec' = 'none'"
SUM = "SELECT sum(id), max(ssn), max(person.age) FROM {}"
EACH = "SELECT id, ssn, person.age FROM {}"
HONEST = [(4950, "needle-99", 7777777)]


def made(spark_lake: SparkLake, table: str, *properties: str, rows: str = ROWS) -> Path:
    """A table of one file."""
    listed = ", ".join(("'encryption.mechanism' = 'envelope'", *properties))
    spark_lake.rows(f"CREATE TABLE {table} ({COLUMNS}) USING orc TBLPROPERTIES ({listed})")
    spark_lake.rows(f"INSERT INTO {table} {rows}")
    (only,) = data_files(spark_lake, table)
    return only


@pytest.fixture
def keyed(spark_lake: SparkLake, namespace: str) -> str:
    """A namespace, where a master key for columns is there."""
    master_keys(spark_lake, "pii")
    return namespace


@pytest.fixture(scope="module")
def whole(spark_lake: SparkLake) -> tuple[str, Path]:
    """A table of one file, encrypted as it is by default."""
    table = f"{spark_lake.namespace()}.t"
    return table, made(spark_lake, table)


PairOfTables = tuple[str, Path, list[Path]]


@pytest.fixture(scope="module", params=[(BY_KEYS,), (BY_KEYS, KEYED)], ids=["one key", "column keys"])
def pair(spark_lake: SparkLake, request: pytest.FixtureRequest) -> PairOfTables:
    """A table and its one file, and the two files of another one with the same columns and master keys."""
    master_keys(spark_lake, "pii")
    namespace = spark_lake.namespace()
    here, there = (
        made(spark_lake, f"{namespace}.{name}", *request.param, SAME_LENGTHS) for name in ("a", "b")
    )
    spark_lake.rows(f"INSERT INTO {namespace}.b {ROWS}")
    (other,) = {*data_files(spark_lake, f"{namespace}.b")} - {there}
    assert here.stat().st_size == there.stat().st_size == other.stat().st_size
    return namespace, here, [there, other]


@pytest.mark.parametrize("length", ["16", "32"])
def test_all_columns_are_encrypted_with_their_statistics(
    spark_lake: SparkLake, namespace: str, whole: tuple[str, Path], length: str
) -> None:
    """By default a key has 32 bytes."""
    table, path = whole
    if length != "32":
        table = f"{namespace}.t"
        path = made(spark_lake, table, f"'encryption.data-key-length' = '{length}'")
    assert spark_lake.rows(SUM.format(table)) == HONEST
    assert spark_lake.rows(f"SELECT ssn FROM {table} WHERE id = 42") == [("needle-42",)]
    data = path.read_bytes()
    assert b"needle" not in data and b"clear" not in data
    shown = orc.ORCFile(str(path)).read().to_pydict()
    assert {value for column in shown.values() for value in column} == {None}


@pytest.mark.nightly
def test_columns_with_keys_are_encrypted_and_the_others_are_not(spark_lake: SparkLake, keyed: str) -> None:
    path = made(spark_lake, f"{keyed}.t", KEYED, "'write.orc.compression-codec' = 'none'")
    assert spark_lake.rows(SUM.format(f"{keyed}.t")) == HONEST
    data = path.read_bytes()
    assert b"needle" not in data and b"clear" in data
    shown = orc.ORCFile(str(path)).read().to_pylist()
    assert shown[3] == {"id": 3, "ssn": None, "person": None, "open": "clear"}


@pytest.mark.nightly
def test_a_key_for_a_part_of_a_struct_is_refused_with_the_reason(spark_lake: SparkLake, keyed: str) -> None:
    sql = f"CREATE TABLE {keyed}.t ({COLUMNS}) USING orc TBLPROPERTIES "
    message = refused(
        spark_lake, sql + "('encryption.columns' = 'pii:person.name')", "PROPERTY_INVALID", "nested-column"
    )
    assert "ORC encrypts a whole top-level column" in message
    for name, value, rule in (
        ("encryption.algorithm", "AES_GCM_V1", "format-algorithm"),
        ("encryption.data-key-length", "24", "format-property"),
        ("encryption.footer", "encrypted", "format-property"),
    ):
        refused(spark_lake, f"{sql} ('{name}' = '{value}')", "PROPERTY_INVALID", rule)


def test_a_file_in_anothers_place_is_refused_by_its_keys(spark_lake: SparkLake, pair: PairOfTables) -> None:
    """Another table's, with the same columns and master keys."""
    namespace, here, (there, _) = pair
    with replaced(here, there.read_bytes()):
        message = refused(spark_lake, EACH.format(f"{namespace}.a"), "DECRYPTION_REFUSED", "data-key")
    assert f"{namespace}.a" in message
    assert spark_lake.rows(SUM.format(f"{namespace}.a")) == HONEST


@pytest.mark.nightly
def test_a_file_of_the_same_table_under_anothers_name_is_refused(
    spark_lake: SparkLake, pair: PairOfTables
) -> None:
    namespace, _, (first, second) = pair
    with replaced(first, second.read_bytes()):
        refused(spark_lake, EACH.format(f"{namespace}.b"), "DECRYPTION_REFUSED", "data-key")


def plaintext_of(size: int) -> bytes:
    """An ORC file in plaintext of a certain size, with the columns of the table and their field ids."""

    def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"iceberg.id": str(number)})

    person = pa.struct([field("name", pa.string(), 5), field("age", pa.int32(), 6)])
    columns = [
        ("id", pa.int64(), 1),
        ("ssn", pa.string(), 2),
        ("person", person, 3),
        ("open", pa.string(), 4),
    ]
    schema = pa.schema([field(*column) for column in columns])
    rows = [{"id": 1, "ssn": "forged", "person": {"name": "forged", "age": 1}, "open": "forged"}]
    sink = pa.BufferOutputStream()
    orc.write_table(pa.Table.from_pylist(rows, schema), sink, compression="uncompressed")
    data = sink.getvalue().to_pybytes()
    # What follows the magic is found by offsets from the end, so that a longer beginning changes nothing.
    return data[:3] + bytes(max(0, size - len(data))) + data[3:]


@pytest.mark.nightly
def test_a_plaintext_file_in_the_place_of_an_encrypted_one_is_refused(
    spark_lake: SparkLake, pair: PairOfTables
) -> None:
    namespace, path, _ = pair
    with replaced(path, plaintext_of(path.stat().st_size)):
        refused(spark_lake, EACH.format(f"{namespace}.a"), "DECRYPTION_REFUSED", "plaintext-file")


@pytest.mark.nightly
def test_a_flipped_bit_is_refused_by_the_digest_each_time_or_at_the_first_read(
    spark_lake: SparkLake, namespace: str, whole: tuple[str, Path]
) -> None:
    always, path = whole  # the default
    frame = spark_lake.session().table(always)
    assert len(frame.collect()) == 100
    data = path.read_bytes()
    for offset in range(3, len(data), len(data) // 10):
        with replaced(path, data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]):
            refused_again(frame, "DECRYPTION_REFUSED", "file-digest")
    first = f"{namespace}.first"
    path = made(spark_lake, first, "'encryption.verify-digest' = 'first-read'")
    data = path.read_bytes()
    with replaced(path, data[:50] + bytes([data[50] ^ 1]) + data[51:]):
        refused(spark_lake, EACH.format(first), "DECRYPTION_REFUSED", "file-digest")
    assert spark_lake.rows(SUM.format(first)) == HONEST


@pytest.mark.nightly
def test_a_truncated_file_is_refused(spark_lake: SparkLake, whole: tuple[str, Path]) -> None:
    table, path = whole
    with replaced(path, path.read_bytes()[:-9]):
        refused(spark_lake, EACH.format(table), "DECRYPTION_REFUSED", "file-size")


def test_parquet_keeps_digests_where_the_table_asks(spark_lake: SparkLake, namespace: str) -> None:
    """A page under AES_GCM_CTR_V1 has no integrity; its file has."""
    table = f"{namespace}.t"
    properties = "'encryption.algorithm' = 'AES_GCM_CTR_V1', 'encryption.verify-digest' = 'always'"
    spark_lake.rows(f"CREATE TABLE {table} ({COLUMNS}) USING parquet TBLPROPERTIES ({properties})")
    spark_lake.rows(f"INSERT INTO {table} {ROWS}")
    assert spark_lake.rows(SUM.format(table)) == HONEST
    (path,) = data_files(spark_lake, table)
    data = path.read_bytes()
    with replaced(path, data[:100] + bytes([data[100] ^ 1]) + data[101:]):
        refused(spark_lake, EACH.format(table), "DECRYPTION_REFUSED", "file-digest")


@pytest.mark.nightly
def test_files_of_both_formats_and_of_plaintext_are_read_together(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Another format is another epoch; the files of each are judged by their own."""
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    for number, change in enumerate(
        (
            "'encryption.mechanism' = 'envelope'",
            "'write.format.default' = 'orc'",
            "'encryption.data-key-length' = '16'",
            "'write.format.default' = 'parquet'",
        )
    ):
        spark_lake.rows(f"INSERT INTO {table} VALUES ({number})")
        spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ({change})")
    spark_lake.rows(f"INSERT INTO {table} VALUES (4)")
    assert [row.id for row in spark_lake.rows(f"SELECT id FROM {table} ORDER BY id")] == [0, 1, 2, 3, 4]
    endings = sorted(path.suffix for path in data_files(spark_lake, table))
    assert endings == [".orc", ".orc", ".parquet", ".parquet", ".parquet"]
