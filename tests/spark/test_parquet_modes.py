"""Every way of Parquet Modular Encryption that a table can ask for: written, read, nothing else accepted."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.reads import as_agreed, publish, refused, refused_again, with_ids
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")
FOOTERS = ("encrypted", "plaintext")
COLUMNS = """id BIGINT, open STRING, ssn STRING, person STRUCT<name: STRING, street: STRING>,
             tags ARRAY<STRING>, props MAP<STRING, STRING>"""
GROUPS = "modes-pii:ssn,person.street,tags;modes-hr:props.value"
#: Numbers that stand for themselves in every form that a footer could show them in.
LEAST, MOST = 0x5EC2E7B0B5E1DE01, 0x5EC2E7B0B5E1DE09
ROWS = f"""SELECT {LEAST} + id, 'clear-open', concat('needle-ssn', id),
    named_struct('name', 'clear-name', 'street', 'needle-street'), array('needle-tag', 'x'),
    map('clear-key', 'needle-value') FROM range(9)"""
HIDDEN = (b"needle-ssn", b"needle-street", b"needle-tag", b"needle-value")
CLEAR = (b"clear-open", b"clear-name", b"clear-key")
FLAT = with_ids(pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i}" for i in range(100)]}))


@pytest.fixture(scope="module")
def database(spark_lake: SparkLake) -> Iterator[str]:
    """A namespace; with master keys for columns."""
    for key in ("modes-pii", "modes-hr"):
        spark_lake.lake.kms.create_master_key(key)
    yield spark_lake.namespace()


def mode(algorithm: str, footer: str, length: int = 32, columns: str | None = None) -> dict[str, str]:
    """The properties of a way to encrypt."""
    wanted = {
        "encryption.algorithm": algorithm,
        "encryption.footer": footer,
        "encryption.data-key-length": str(length),
        "write.parquet.compression-codec": "uncompressed",
    }
    return wanted | ({"encryption.columns": columns} if columns else {})


def made(spark_lake: SparkLake, table: str, properties: Mapping[str, str]) -> bytes:
    """A table of one file with the rows; the bytes of the file."""
    create_table(spark_lake, table, COLUMNS, properties)
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM ({ROWS})")
    (file,) = data_files(spark_lake, table)
    return local_path(file).read_bytes()


def in_every_form(text: bytes) -> set[bytes]:
    """Bytes as they are, and as texts that stand for bytes."""
    return {text, text.hex().encode(), base64.b64encode(text).rstrip(b"=")}


WAYS = [
    *((a, f, 16 if f == "plaintext" else 32, None) for a, f in product(ALGORITHMS, FOOTERS)),
    *((a, f, 24, GROUPS) for a, f in product(ALGORITHMS, FOOTERS)),
]
#: Each pair of algorithm, form of the footer, and keys of columns or none.
BY_DAY = (WAYS[0], WAYS[3], WAYS[5], WAYS[6])


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("algorithm", "footer", "length", "columns"),
    [pytest.param(*each, marks=() if each in BY_DAY else pytest.mark.nightly) for each in WAYS],
)
def test_rows_come_back_and_nothing_hidden_stands_in_the_file(
    spark_lake: SparkLake, database: str, algorithm: str, footer: str, length: int, columns: str | None
) -> None:
    table = f"{database}.{algorithm}_{footer}_{length}_{columns is None}"
    data = made(spark_lake, table, mode(algorithm, footer, length, columns))
    magic = b"PARE" if footer == "encrypted" else b"PAR1"
    assert (data[:4], data[-4:]) == (magic, magic)
    assert (b"spark_schema" in data) == (footer == "plaintext")
    numbers = [number.to_bytes(8, "little") for number in (LEAST, MOST)]
    hidden = HIDDEN if columns else (*HIDDEN, *CLEAR, *numbers)
    assert [each for value in hidden for each in in_every_form(value) if each in data] == []
    assert not columns or all(each in data for each in CLEAR)
    rows = spark_lake.rows(f"SELECT * FROM {table} WHERE ssn >= 'needle-ssn7' ORDER BY id")
    assert [(row["id"] - LEAST, row["ssn"]) for row in rows] == [(7, "needle-ssn7"), (8, "needle-ssn8")]
    last = rows[-1].asDict(recursive=True)
    assert last["person"]["street"] == "needle-street" and last["props"] == {"clear-key": "needle-value"}
    assert last["tags"] == ["needle-tag", "x"]


def test_a_footer_in_plaintext_shows_no_more_of_hidden_columns_than_is_documented(
    spark_lake: SparkLake, database: str
) -> None:
    """Who reads it without a key learns names, types, sizes and how many values there are, and no more."""
    table = f"{database}.footer_in_plaintext"
    data = made(spark_lake, table, mode("AES_GCM_V1", "plaintext", columns=GROUPS))
    shown = footer_in_plaintext(spark_lake, data)
    assert bytes(shown["open"].getStatistics().getMin_value()) == b"clear-open"
    jvm = spark_lake.spark.sparkContext._jvm
    fields = jvm.java.lang.Class.forName(
        "org.apache.parquet.format.ColumnMetaData$_Fields"
    ).getEnumConstants()
    assert shown["open"].isSetSize_statistics()
    for path in ("ssn", "person.street", "tags.list.element", "props.key_value.value"):
        known = {str(each) for each in fields if shown[path].isSet(each)}
        assert known <= DOCUMENTED, path


#: What parquet.thrift calls ColumnMetaData, of a column that is encrypted where the footer is not.
DOCUMENTED = {
    "TYPE",
    "ENCODINGS",
    "PATH_IN_SCHEMA",
    "CODEC",
    "NUM_VALUES",
    "TOTAL_UNCOMPRESSED_SIZE",
    "TOTAL_COMPRESSED_SIZE",
    "DATA_PAGE_OFFSET",
    "DICTIONARY_PAGE_OFFSET",
    "BLOOM_FILTER_OFFSET",
    "BLOOM_FILTER_LENGTH",
}


def footer_in_plaintext(spark_lake: SparkLake, data: bytes) -> dict[str, Any]:
    """What a footer says of the columns of the first row group without a key, by Parquet's reader."""
    jvm = spark_lake.spark.sparkContext._jvm
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    read = jvm.org.apache.parquet.format.Util.readFileMetaData(jvm.java.io.ByteArrayInputStream(footer))
    columns = [chunk.getMeta_data() for chunk in read.getRow_groups()[0].getColumns()]
    return {".".join(column.getPath_in_schema()): column for column in columns}


# -- what the table does not say


def signed(dek: bytes, prefix: bytes) -> Mapping[str, object]:
    """How an honest writer encrypts with a footer in plaintext."""
    return {**as_agreed(dek, prefix), "plaintext_footer": True}


def ctr(dek: bytes, prefix: bytes) -> Mapping[str, object]:
    """How an honest writer encrypts with AES_GCM_CTR_V1."""
    return {**as_agreed(dek, prefix), "encryption_algorithm": "AES_GCM_CTR_V1"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("algorithm", "footer", "way", "rule"),
    [
        ("AES_GCM_V1", "plaintext", signed, None),
        ("AES_GCM_CTR_V1", "encrypted", ctr, None),
        ("AES_GCM_V1", "encrypted", signed, "footer"),
        ("AES_GCM_V1", "plaintext", as_agreed, "footer"),
        ("AES_GCM_CTR_V1", "encrypted", as_agreed, "algorithm"),
        ("AES_GCM_V1", "encrypted", ctr, "algorithm"),
        ("AES_GCM_CTR_V1", "plaintext", signed, "algorithm"),
        (
            "AES_GCM_V1",
            "plaintext",
            lambda dek, _: {"footer_key": dek, "plaintext_footer": True},
            "file-authentic",
        ),
        ("AES_GCM_V1", "plaintext", lambda dek, aad: signed(dek[::-1], aad), "file-authentic"),
        ("AES_GCM_CTR_V1", "encrypted", lambda dek, aad: ctr(dek, aad[::-1]), "file-authentic"),
        ("AES_GCM_V1", "encrypted", lambda dek, aad: as_agreed(dek[:16], aad), "file-authentic"),
    ],
)
def test_a_file_is_as_the_table_says_or_refused(
    spark_lake: SparkLake, namespace: str, algorithm: str, footer: str, way, rule: str | None
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, name STRING", mode(algorithm, footer))
    publish(spark_lake, table, FLAT, way)
    if rule is None:
        assert spark_lake.rows(f"SELECT sum(id), max(name) FROM {table}") == [(4950, "n99")]
    else:
        refused(spark_lake, f"SELECT id FROM {table}", "DECRYPTION_REFUSED", rule)


@pytest.mark.nightly
def test_a_file_in_plaintext_where_footers_are_in_plaintext_is_refused(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, name STRING", mode("AES_GCM_V1", "plaintext"))
    path = publish(spark_lake, table, FLAT, signed)
    size = path.stat().st_size
    pq.write_table(FLAT.slice(0, 1), path, store_schema=False)
    short = path.read_bytes()
    path.write_bytes(b"PAR1" + bytes(size - len(short)) + short[4:])
    refused(spark_lake, f"SELECT id FROM {table}", "DECRYPTION_REFUSED", "plaintext-file")


@pytest.mark.parametrize("columns", [None, "modes-pii:ssn"])
def test_a_footer_in_plaintext_is_checked_against_its_signature(
    spark_lake: SparkLake, namespace: str, database: str, columns: str | None
) -> None:
    """What is changed in it is refused, also of plaintext columns; so is a footer without its signature."""
    table = f"{namespace}.t"
    properties = mode("AES_GCM_V1", "plaintext", columns=columns)
    create_table(spark_lake, table, "id BIGINT, ssn STRING", properties)
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, concat('s', id) FROM range(9)")
    (file,) = data_files(spark_lake, table)
    path, frame = local_path(file), spark_lake.session().table(table)
    data, rows = path.read_bytes(), frame.collect()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for offset in sorted(
        {data.index(b"spark_schema", start), *range(start + 1, len(data), (len(data) - start) // 5)}
    ):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        refused_again(frame, "DECRYPTION_REFUSED", "")  # by what it looks like then
    unsigned = len(data) - 8 - start - 28
    path.write_bytes(data[:4] + bytes(28) + data[4:-36] + unsigned.to_bytes(4, "little") + b"PAR1")
    refused_again(frame, "DECRYPTION_REFUSED", "footer-digest" if columns else "file-authentic")
    path.write_bytes(data)
    assert frame.collect() == rows == [(number, f"s{number}") for number in range(9)]


@pytest.mark.nightly
def test_a_change_of_the_way_leaves_old_files_as_they_are(spark_lake: SparkLake, database: str) -> None:
    table = f"{database}.that_changes"
    create_table(spark_lake, table, "id BIGINT, ssn STRING", ENCRYPTED)
    changes = [
        "'encryption.algorithm' = 'AES_GCM_CTR_V1'",
        "'encryption.footer' = 'plaintext'",
        "'encryption.columns' = 'modes-pii:ssn'",
        "'encryption.data-key-length' = '16', 'encryption.footer' = 'encrypted'",
        "'encryption.algorithm' = 'AES_GCM_V1'",
    ]
    spark_lake.rows(f"INSERT INTO {table} VALUES (0, 's0')")
    for number, change in enumerate(changes, 1):
        spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ({change})")
        spark_lake.rows(f"INSERT INTO {table} VALUES ({number}, 's{number}')")
    rows = spark_lake.rows(f"SELECT id, ssn FROM {table} WHERE ssn > 's' ORDER BY id")
    assert rows == [(number, f"s{number}") for number in range(len(changes) + 1)]
