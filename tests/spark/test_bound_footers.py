"""The keys of columns are bound to the digest of their file's footer, which its own key cannot change.

A user with the footer's key can read the columns in plaintext. Without the digest, a user who can write the
table's directory could describe a column without its key as another one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import Row

from catalog.client import thrift
from catalog.writes import data_files
from tests.support.forged_footers import Edit, decimal, element, forged_in_size, numbered
from tests.support.reads import refused, replaced
from tests.support.spark import SparkLake
from tests.support.spark_tables import client_scan, create_table, master_keys, only_file

pytestmark = pytest.mark.core

COLUMNS = "id BIGINT, n BIGINT, m BIGINT, i INT, d DECIMAL(38, 2)"
ROWS = (
    "SELECT id, id * 7 + (1L << 40), -id, int(id), CAST(id + 12345678901234567890.12 AS DECIMAL(38, 2))"
    " FROM range(0, {}, 1, 1)"
)
KEYED = {
    "encryption.columns": "pii:n,m,i,d",
    "write.parquet.row-group-size-bytes": "5000",
    "write.parquet.compression-codec": "uncompressed",
}
WAYS = {
    "CTR": {"encryption.algorithm": "AES_GCM_CTR_V1"},
    "signed": {"encryption.footer": "plaintext"},
}


def _exchanged(footer: thrift.Struct) -> None:
    """Two columns under one key, of one type, get each other's field id."""
    numbered(footer, b"n", 3)
    numbered(footer, b"m", 2)


def _required(name: bytes) -> Edit:
    def change(footer: thrift.Struct) -> None:
        element(footer, name).fields[3] = thrift.Value(thrift.I32, 0)

    return change


def _shorter(footer: thrift.Struct) -> None:
    """Of 16 bytes the first 8."""
    element(footer, b"d").fields[2] = thrift.Value(thrift.I32, 8)
    decimal(footer, b"d", 18, 2)


def _narrower(footer: thrift.Struct) -> None:
    """Numbers of 64 bits are two of 32."""
    element(footer, b"n").fields[1] = thrift.Value(thrift.I32, 1)


def _rows_moved(footer: thrift.Struct) -> None:
    """A row group has rows more and the next one as many less."""
    first, second = footer.structs(4)[:2]
    for group, more in ((first, -1), (second, 1)):
        group.fields[3] = thrift.Value(thrift.I64, group.get(3, thrift.I64) + more)


FORGERIES = {
    "exchanged": (_exchanged, "n"),
    "required": (_required(b"n"), "n"),
    "required int": (_required(b"i"), "i"),
    "shorter": (_shorter, "d"),
    "narrower": (_narrower, "n"),
    "rows moved": (_rows_moved, "n"),
}


def made(spark_lake: SparkLake, properties: dict[str, str] | None = None, rows: int = 1000) -> str:
    """A table of one file with column keys."""
    master_keys(spark_lake, "pii")
    name = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, name, COLUMNS, KEYED | (properties or {}))
    spark_lake.rows(f"INSERT INTO {name} {ROWS.format(rows)}")
    return name


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    return made(spark_lake)


@dataclass(frozen=True)
class Old:
    """A table whose file was written before there were digests of footers, and its rows."""

    name: str
    rows: list[Row]


@pytest.fixture(scope="module")
def old_table(spark_lake: SparkLake) -> Old:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "_footer_digest", lambda *_: None)
        name = made(spark_lake)
    return Old(name, spark_lake.rows(f"SELECT * FROM {name}"))


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_footer_that_was_rewritten_is_refused(spark_lake: SparkLake, table: str, forgery: str) -> None:
    change, name = FORGERIES[forgery]
    with replaced(only_file(spark_lake, table), forged_in_size(client_scan(spark_lake, table), change)):
        for wanted in (name, f"max({name})", "sum(id)"):
            query = f"SELECT {wanted} FROM {table}"
            told = refused(spark_lake, query, "DECRYPTION_REFUSED", "footer-digest")
            assert f"[table={table}, file=file:" in told and "Restore the original file" in told


@pytest.mark.nightly
@pytest.mark.parametrize("forgery", sorted(FORGERIES.keys() - {"rows moved"}))
def test_it_is_the_digest_that_refuses_it(spark_lake: SparkLake, old_table: Old, forgery: str) -> None:
    """Without one, the same footer gives other values."""
    change, name = FORGERIES[forgery]
    scan = client_scan(spark_lake, old_table.name)
    with replaced(only_file(spark_lake, old_table.name), forged_in_size(scan, change)):
        found = spark_lake.rows(f"SELECT id, {name} FROM {old_table.name}")
    assert {row["id"]: row[name] for row in found} != {row["id"]: row[name] for row in old_table.rows}


@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_a_footer_is_checked_against_its_digest_in_every_mode(spark_lake: SparkLake, way: str) -> None:
    table = made(spark_lake, WAYS[way])
    query = f"SELECT sum(n), min(m), max(i), max(d) FROM {table}"
    assert [*spark_lake.rows(query)[0]][1:3] == [-999, 999]
    with replaced(only_file(spark_lake, table), forged_in_size(client_scan(spark_lake, table), _exchanged)):
        refused(spark_lake, query, "DECRYPTION_REFUSED", "footer-digest")


@contextmanager
def overwritten_once_read(path: Path, data: bytes) -> Iterator[None]:
    """Other bytes are written into a file as soon as a reader reads of it; it is restored afterwards."""
    libc, on_read = ctypes.CDLL(None, use_errno=True), 0x1
    watch, file = libc.inotify_init1(os.O_CLOEXEC), os.open(path, os.O_WRONLY)

    def overwrite() -> None:
        os.read(watch, 4096)
        os.pwrite(file, data, 0)

    with replaced(path, path.read_bytes()):
        assert libc.inotify_add_watch(watch, os.fsencode(path), on_read) >= 0
        writer = Thread(target=overwrite, daemon=True)
        writer.start()
        try:
            yield
            writer.join(10)
            assert path.read_bytes() == data
        finally:
            os.close(watch)
            os.close(file)


def test_what_was_checked_against_the_digest_is_what_is_parsed(spark_lake: SparkLake) -> None:
    table = made(spark_lake, rows=4000)
    query = f"SELECT min(m), max(n), sum(id) FROM {table}"
    honest, path = spark_lake.rows(query), only_file(spark_lake, table)
    forged = forged_in_size(client_scan(spark_lake, table), _exchanged)
    for _ in range(2):
        with overwritten_once_read(path, forged):
            assert spark_lake.rows(query) == honest
    with replaced(path, forged):
        refused(spark_lake, query, "DECRYPTION_REFUSED", "footer-digest")
