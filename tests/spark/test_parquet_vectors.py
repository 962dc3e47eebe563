"""Public encrypted Parquet files are read right by the engine's hooks, and malformed ones are refused.

Through PyArrow what it can do: files under one key, and the columns in plaintext of the others; it has no
interface for keys of columns that are given by hand.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow.parquet.encryption import create_decryption_properties
from pyspark.errors import PySparkException

from tests.support import reads
from tests.support.parquet_vectors import VECTORS, Hooks, Opened, Vector, vectors
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table

ALL = {vector.name: vector for vector in vectors()}
KINDS = "boolean_field BOOLEAN, int32_field INT, float_field FLOAT, double_field DOUBLE, flba_field BINARY"
OWN = {
    "encrypt_columns_and_footer_bloom_filter": "double_field DOUBLE",
    "external_key_material_java": "integers INT",
}


@pytest.fixture
def hooks(spark_lake: SparkLake, tmp_path: Path) -> Hooks:
    return Hooks(spark_lake.spark, tmp_path)


def ddl(vector: Vector) -> str:
    """The columns that are read of a vector."""
    return OWN.get(vector.name, KINDS)


def opened(hooks: Hooks, vector: Vector) -> Opened:
    return hooks.open(vector if vector.uniform else hooks.with_ids(vector))


def test_the_files_are_the_published_ones() -> None:
    said = json.loads((VECTORS / "vectors.json").read_text())["vectors"]
    for each in said:
        assert hashlib.sha256((VECTORS / each["file"]).read_bytes()).hexdigest() == each["sha256"]
    assert len(said) == 13


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("name", ALL)
def test_a_vector_is_read_right(hooks: Hooks, name: str) -> None:
    vector = ALL[name]
    names = [column.split()[0] for column in ddl(vector).split(", ")]
    values = dict(zip(names, opened(hooks, vector).columns(ddl(vector)), strict=True))
    assert {len(found) for found in values.values()} == {vector.rows}
    for path, (first, last) in vector.expected.items():
        found = [float(text) for text in values[path]]
        assert found[: len(first)] + found[-1:] == pytest.approx([*first, last])
    if "boolean_field" in values:
        assert values["boolean_field"] == ["true", "false"] * 25


def flipped(key: bytes) -> bytes:
    """The key with one other bit."""
    return key[:-1] + bytes([key[-1] ^ 1])


def refused(hooks: Hooks, vector: Vector) -> bool:
    """Whether the file, or a column of it, is refused; else its rows are checked against the true ones."""
    try:
        values = hooks.open(vector).columns(ddl(vector))
    except (Py4JJavaError, PySparkException):
        return True
    assert {len(found) for found in values} == {vector.rows}
    return False


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALL)
def test_a_vector_is_refused_by_other_keys_prefixes_and_epochs(hooks: Hooks, name: str) -> None:
    vector = ALL[name] if ALL[name].uniform else hooks.with_ids(ALL[name])
    column = vector.columns[ddl(vector).split()[-2]]
    assert column is None or refused(
        hooks, vector.but(keys=vector.keys | {column: flipped(vector.keys[column])})
    )
    for other in (
        vector.but(keys=vector.keys | {"kf": flipped(vector.keys["kf"])}),
        vector.but(prefix=b"TESTER"),
        vector.but(prefix=None if vector.prefix else b"tester"),
        vector.but(algorithm={"AES_GCM_V1": "AES_GCM_CTR_V1"}.get(vector.algorithm, "AES_GCM_V1")),
        vector.but(footer={"encrypted": "plaintext"}.get(vector.footer, "encrypted")),
        vector.but(data=vector.data[:-100]),
    ):
        unnoticed = other.prefix is None and vector.stored  # what is stored is used where none is given
        assert refused(hooks, other) is not unnoticed


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["aes256/uniform_encryption", "aes256/encrypt_columns_plaintext_footer"])
def test_a_flipped_bit_of_a_vector_is_refused_or_in_what_is_not_read(hooks: Hooks, name: str) -> None:
    vector = ALL[name] if ALL[name].uniform else hooks.with_ids(ALL[name])
    true, noticed = hooks.open(vector).columns(ddl(vector)), 0
    for offset in range(7, len(vector.data), 251):
        data = vector.data[:offset] + bytes([vector.data[offset] ^ 1]) + vector.data[offset + 1 :]
        try:
            assert hooks.open(vector.but(data=data)).columns(ddl(vector)) == true
        except (Py4JJavaError, PySparkException):
            noticed += 1
    assert noticed > 15


@pytest.mark.nightly
@pytest.mark.parametrize(("value", "rows"), [(0.75, 0), (None, 2000)])
def test_the_encrypted_bloom_filter_of_a_vector_is_used(hooks: Hooks, value: float | None, rows: int) -> None:
    """Its bounds have the value between them, and its rows do not."""
    vector = ALL["encrypt_columns_and_footer_bloom_filter"]
    filters = hooks.jvm.org.apache.parquet.filter2.predicate.FilterApi
    column = filters.doubleColumn("double_field")
    predicate = filters.notEq(column, None) if value is None else filters.eq(column, value)
    (found,) = opened(hooks, vector).columns("double_field DOUBLE", predicate)
    assert len(found) == rows


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", [name for name, vector in ALL.items() if None in vector.columns.values() or vector.uniform]
)
def test_pyarrow_reads_of_a_vector_what_is_under_the_footer_key_or_in_plaintext(
    hooks: Hooks, name: str
) -> None:
    vector = ALL[name]
    keys = create_decryption_properties(vector.keys["kf"], aad_prefix=vector.prefix)
    path = VECTORS / "data" / f"{name}.parquet.encrypted"
    rows = pq.ParquetFile(path, decryption_properties=keys).read(columns=["int32_field"])
    spark = opened(hooks, vector).columns("int32_field INT")[0]
    assert [str(value) for value in rows["int32_field"].cast(pa.int32()).to_pylist()] == spark
    wrong = create_decryption_properties(flipped(vector.keys["kf"]), aad_prefix=vector.prefix)
    with pytest.raises((OSError, pa.ArrowInvalid)):
        pq.ParquetFile(path, decryption_properties=wrong)


#: Of each malformed file the columns that are read, and the rows if it is read all the same.
MALFORMED: dict[str, tuple[str, object]] = {
    "ARROW-GH-41317": ("int32 INT, int64 BIGINT, string STRING", None),
    "ARROW-GH-41321": ("int32 INT, int64 BIGINT, string STRING", None),
    "ARROW-GH-43605": ("min_fl INT", [(0,)] * 21186),
    "ARROW-GH-45185": ("x ARRAY<INT>", [([0],), ([1, 2],), ([3, 4],), ([5, 6],), ([7, 8],)]),
    "ARROW-GH-47662": ("flba_field BINARY NOT NULL", None),
    "ARROW-RS-GH-6229-DICTHEADER": ("nation_key INT, name BINARY", None),
    "ARROW-RS-GH-6229-LEVELS": ("outer ARRAY<STRUCT<c: INT>>", None),
    "PARQUET-1481": ("num INT", None),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_and_the_engine_goes_on(
    spark_lake: SparkLake, namespace: str, hooks: Hooks, name: str
) -> None:
    """Two are read: one whose indexes have no bits and are 0; one whose first list begins a level late."""
    table, data = f"{namespace}.t", (VECTORS / "bad_data" / f"{name}.parquet").read_bytes()
    columns, rows = MALFORMED[name]
    create_table(spark_lake, table, columns)
    ids = {column.split()[0]: place for place, column in enumerate(columns.split(", "), 1)}
    if name != "PARQUET-1481":  # nobody can read its footer
        data = hooks.plain_with_ids(data, ids)
    reads.publish(spark_lake, table, pa.table({"x": [1]}), content=data)
    if rows is None:
        reads.refused(spark_lake, f"SELECT * FROM {table}", "DATA_FILE_DAMAGED", "")
    else:
        assert spark_lake.rows(f"SELECT * FROM {table}") == rows
    assert spark_lake.rows("SELECT 1") == [(1,)]
