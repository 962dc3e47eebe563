"""Files that are not what the table was written with: each is refused by its own rule, and gives no row."""

from __future__ import annotations

import os
import random
import shutil
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import create_encryption_properties

from tests.support.reads import as_agreed, data_files, publish, refused, refused_again, replaced, with_ids
from tests.support.spark import SparkLake

pytestmark = pytest.mark.core

ENVELOPE = "TBLPROPERTIES ('encryption.mechanism'='envelope')"
ROWS = with_ids(pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i}" for i in range(100)]}))
SUM = "SELECT sum(id), max(name) FROM {}"
EACH = "SELECT id, name FROM {}"


@pytest.fixture(scope="module")
def tables(spark_lake: SparkLake) -> dict[str, str]:
    """Two encrypted tables and a plaintext one, each of one file with the same rows."""
    namespace = spark_lake.namespace()
    made = {}
    for name, properties in (("encrypted", ENVELOPE), ("other", ENVELOPE), ("plain", "")):
        made[name] = f"{namespace}.{name}"
        spark_lake.rows(f"CREATE TABLE {made[name]} (id BIGINT, name STRING) USING iceberg {properties}")
        publish(spark_lake, made[name], ROWS, as_agreed if properties else None)
    return made


def file_of(spark_lake: SparkLake, table: str) -> Path:
    """The one file of a table."""
    (only,) = data_files(spark_lake, table)
    return only


def test_honest_files_are_read(spark_lake, tables):
    for table in tables.values():
        assert spark_lake.rows(SUM.format(table)) == [(4950, "n99")]


@pytest.mark.nightly
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(spark_lake, tables):
    path = file_of(spark_lake, tables["encrypted"])
    data = path.read_bytes()
    frame = spark_lake.session().table(tables["encrypted"])
    assert len(frame.collect()) == ROWS.num_rows
    noticed = 0
    offsets = {*range(4, len(data), max(1, len(data) // 25)), len(data) - 1, len(data) - 6, len(data) - 9}
    for offset in sorted(offsets):
        with replaced(path, data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]):
            refused_again(frame, "DECRYPTION_REFUSED", "file-authentic")
        noticed += 1
    assert noticed > 20


def test_a_file_of_the_same_table_under_anothers_name_is_refused(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg {ENVELOPE}")
    first, second = publish(spark_lake, table, ROWS, as_agreed), publish(spark_lake, table, ROWS, as_agreed)
    with replaced(first, second.read_bytes()):
        message = refused(spark_lake, EACH.format(table), "DECRYPTION_REFUSED", "file-authentic")
    assert table in message
    assert first.name in message


@pytest.mark.nightly
def test_another_tables_file_in_place_of_ones_own_is_refused(spark_lake, tables):
    foreign = file_of(spark_lake, tables["other"]).read_bytes()
    with replaced(file_of(spark_lake, tables["encrypted"]), foreign):
        refused(spark_lake, EACH.format(tables["encrypted"]), "DECRYPTION_REFUSED", "file-authentic")


@pytest.mark.nightly
def test_a_plaintext_substitute_is_refused(spark_lake, tables, tmp_path):
    path = file_of(spark_lake, tables["encrypted"])
    pq.write_table(ROWS, tmp_path / "plain.parquet", compression="none", use_dictionary=False)
    plain = (tmp_path / "plain.parquet").read_bytes()
    with replaced(path, plain):
        refused(spark_lake, EACH.format(tables["encrypted"]), "DECRYPTION_REFUSED", "file-size")
    size = path.stat().st_size
    short = ROWS.slice(0, 1)
    pq.write_table(short, tmp_path / "short.parquet", store_schema=False)
    data = (tmp_path / "short.parquet").read_bytes()
    assert len(data) <= size
    with replaced(path, b"PAR1" + bytes(size - len(data)) + data[4:]):
        refused(spark_lake, EACH.format(tables["encrypted"]), "DECRYPTION_REFUSED", "plaintext-file")


@pytest.mark.nightly
def test_a_truncated_file_is_refused(spark_lake, tables):
    for name, kind in (("encrypted", "DECRYPTION_REFUSED"), ("plain", "DATA_FILE_DAMAGED")):
        path = file_of(spark_lake, tables[name])
        with replaced(path, path.read_bytes()[:-100]):
            refused(spark_lake, EACH.format(tables[name]), kind, "file-size")


@pytest.mark.nightly
def test_a_damaged_plaintext_file_is_refused_and_not_skipped(spark_lake, tables):
    path = file_of(spark_lake, tables["plain"])
    with replaced(path, bytes(path.stat().st_size)):
        for setting in ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"):
            spark_lake.session().conf.set(setting, "true")
        try:
            refused(spark_lake, EACH.format(tables["plain"]), "DATA_FILE_DAMAGED", "data-file")
        finally:
            for setting in ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"):
                spark_lake.session().conf.unset(setting)


def test_a_missing_file_is_an_error_whatever_the_session_says(spark_lake, tables, tmp_path):
    path = file_of(spark_lake, tables["plain"])
    shutil.move(path, tmp_path / "kept")
    spark_lake.session().conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        message = refused(spark_lake, EACH.format(tables["plain"]), "DATA_FILE_MISSING", "data-file")
    finally:
        spark_lake.session().conf.unset("spark.sql.files.ignoreMissingFiles")
        shutil.move(tmp_path / "kept", path)
    assert path.name in message


def test_links_are_not_followed_neither_to_the_file_nor_on_the_way(spark_lake, tables, tmp_path):
    path = file_of(spark_lake, tables["plain"])
    for place in (path, path.parent):
        kept = tmp_path / place.name
        shutil.move(place, kept)
        place.symlink_to(kept)
        try:
            refused(spark_lake, EACH.format(tables["plain"]), "LOCATION_NOT_ALLOWED", "no-links")
        finally:
            place.unlink()
            shutil.move(kept, place)


@pytest.mark.nightly
def test_a_directory_or_a_pipe_in_place_of_a_file_or_directory_is_refused_at_once(
    spark_lake, tables, tmp_path
):
    path = file_of(spark_lake, tables["plain"])
    for place, make, remove in (
        (path, os.mkdir, os.rmdir),
        (path, os.mkfifo, os.unlink),
        (path.parent, os.mkfifo, os.unlink),
    ):
        shutil.move(place, tmp_path / "kept")
        make(place)
        try:
            refused(spark_lake, EACH.format(tables["plain"]), "LOCATION_NOT_ALLOWED", "no-links")
        finally:
            remove(place)
            shutil.move(tmp_path / "kept", place)


def varint(number: int) -> bytes:
    """An unsigned number in Thrift's compact protocol."""
    data = b""
    while number >= 0x80:
        data, number = data + bytes([number & 0x7F | 0x80]), number >> 7
    return data + bytes([number])


def nested_file(depth: int) -> bytes:
    """A Parquet file without rows whose one column is nested so deep, written by hand (parquet.thrift)."""
    root, inner, leaf = (
        b"\x48\x01r\x15\x02\x00",
        b"\x35\x02\x18\x01x\x15\x02\x00",
        b"\x15\x02\x25\x02\x18\x01x\x00",
    )
    schema = b"\xfc" + varint(depth + 2) + root + inner * depth + leaf
    footer = b"\x15\x02\x19" + schema + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.nightly
def test_types_nested_beyond_measure_do_not_end_the_engine(spark_lake, namespace, tmp_path):
    (tmp_path / "flat.parquet").write_bytes(nested_file(1))
    assert pq.read_schema(tmp_path / "flat.parquet").names == ["x"]
    data = nested_file(100_000)
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    publish(spark_lake, table, ROWS, content=data)
    refused(spark_lake, f"SELECT * FROM {table}", "DATA_FILE_DAMAGED", "nesting")
    assert spark_lake.rows("SELECT 1") == [(1,)]


def with_claimed_page_size(data: bytes, size: int) -> bytes:
    """The file with another uncompressed size in its first page header (parquet.thrift)."""
    assert data[4:7] == b"\x15\x00\x15"  # a data page; then the uncompressed size
    until = next(at for at in range(7, 20) if data[at] < 0x80) + 1
    compressed, end = 0, until + 1
    while data[end - 1] >= 0x80 or end == until + 1:
        compressed |= (data[end] & 0x7F) << 7 * (end - until - 1)
        end += 1
    grown = len(varint(2 * size)) - (until - 7)
    shorter = varint(
        compressed - 2 * grown
    )  # the header grows, so that the page ends with its chunk all the same
    assert len(shorter) == end - until - 1
    return data[:7] + varint(2 * size) + b"\x15" + shorter + data[end:]


@pytest.mark.nightly
def test_a_page_that_claims_any_size_does_not_end_the_engine(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    rows = with_ids(pa.table({"id": pa.array([number * 7919 % 10007 for number in range(2000)], pa.int64())}))
    sink = BytesIO()
    pq.write_table(
        rows, sink, compression="gzip", use_dictionary=False, write_statistics=False, store_schema=False
    )
    data = with_claimed_page_size(sink.getvalue(), 2**31 - 9)
    publish(spark_lake, table, rows, content=data)
    refused(spark_lake, f"SELECT sum(id) FROM {table}", "DATA_FILE_DAMAGED", "file-memory")
    assert spark_lake.rows("SELECT 1") == [(1,)]


WRONG_WAYS = {
    "without the AAD prefix": (lambda dek, prefix: {"footer_key": dek}, "file-authentic"),
    "with another AAD prefix": (
        lambda dek, prefix: {"footer_key": dek, "aad_prefix": prefix[::-1], "store_aad_prefix": False},
        "file-authentic",
    ),
    "with another algorithm": (
        lambda dek, prefix: {**as_agreed(dek, prefix), "encryption_algorithm": "AES_GCM_CTR_V1"},
        "algorithm",
    ),
    "with a footer in plaintext": (
        lambda dek, prefix: {**as_agreed(dek, prefix), "plaintext_footer": True},
        "footer",
    ),
    "with another key": (lambda dek, prefix: as_agreed(dek[::-1], prefix), "file-authentic"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("way", WRONG_WAYS)
def test_a_file_that_its_writer_encrypted(spark_lake, namespace, way):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg {ENVELOPE}")
    encryption, rule = WRONG_WAYS[way]
    publish(spark_lake, table, ROWS, encryption)
    refused(spark_lake, EACH.format(table), "DECRYPTION_REFUSED", rule)


@pytest.mark.nightly
def test_an_encrypted_file_in_a_plaintext_table_is_refused(spark_lake, namespace, tables):
    encrypted = file_of(spark_lake, tables["encrypted"]).read_bytes()
    signed = BytesIO()
    properties = create_encryption_properties(b"k" * 16, plaintext_footer=True)
    pq.write_table(ROWS, signed, store_schema=False, encryption_properties=properties)
    for table, data, rule in (
        (f"{namespace}.whole", encrypted, "encrypted-file"),
        (f"{namespace}.signed", signed.getvalue(), "data-file"),
    ):
        spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg")
        publish(spark_lake, table, ROWS, content=data)
        refused(spark_lake, EACH.format(table), "DATA_FILE_DAMAGED", rule)


@pytest.mark.nightly
def test_columns_cannot_be_found_without_field_ids(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg")
    publish(spark_lake, table, pa.table({name: ROWS[name] for name in ROWS.column_names}))
    refused(spark_lake, EACH.format(table), "DATA_FILE_DAMAGED", "field-id")


@pytest.mark.nightly
def test_a_field_id_that_stands_twice_is_refused(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg")
    rows = ROWS.append_column("more", ROWS["id"])
    publish(spark_lake, table, with_ids(rows, {"id": 1, "name": 2, "more": 1}))
    refused(spark_lake, EACH.format(table), "DATA_FILE_DAMAGED", "field-id")


@pytest.mark.nightly
def test_a_column_of_another_type_is_refused_and_not_converted(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg")
    rows = pa.table({"id": [f"{i}" for i in range(3)], "name": ["a", "b", "c"]})
    publish(spark_lake, table, with_ids(rows))
    refused(spark_lake, EACH.format(table), "DATA_FILE_DAMAGED", "column-type")


@pytest.mark.nightly
def test_random_garbage_is_refused(spark_lake, tables):
    source = random.Random(7)
    for name, kind, rule in (
        ("encrypted", "DECRYPTION_REFUSED", "file-authentic"),
        ("plain", "DATA_FILE_DAMAGED", "data-file"),
    ):
        path = file_of(spark_lake, tables[name])
        data = source.randbytes(path.stat().st_size)
        with replaced(path, data[:-4] + (b"PARE" if name == "encrypted" else b"PAR1")):
            refused(spark_lake, EACH.format(tables[name]), kind, rule)
