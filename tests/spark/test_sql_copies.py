"""CALL of add_files, snapshot and migrate: rows of files outside of Lakewarden are copied, and encrypted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq

from tests.support.lake import ALICE, BOB
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import create_table, data_files, local_path, stock_table

ENCRYPTED = {"encryption.mechanism": "envelope", "encryption.plaintext-columns": "p"}
SECRET = "secret value that must not be in any file"


def call(spark_lake: SparkLake, procedure: str, arguments: str, user: str = ALICE) -> list[tuple[Any, ...]]:
    sql = f"CALL {CATALOG}.system.{procedure}({arguments})"
    return [tuple(row) for row in spark_lake.rows(sql, user)]


def refused(spark_lake: SparkLake, condition: str, procedure: str, arguments: str, user: str = ALICE) -> str:
    sql = f"CALL {CATALOG}.system.{procedure}({arguments})"
    return refused_as(condition, spark_lake.session(user), sql)


def laid_down(directory: Path, **columns: list[Any]) -> Path:
    """A Parquet file in a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{uuid4()}.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def rows(spark_lake: SparkLake, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark_lake.rows(f"SELECT * FROM {table}")), key=repr)


@pytest.fixture
def old(spark_lake: SparkLake) -> Iterator[str]:
    """A database in Spark's own catalog."""
    name = f"old{uuid4().hex[:8]}"
    spark_lake.rows(f"CREATE DATABASE spark_catalog.{name}")
    yield name
    spark_lake.rows(f"DROP DATABASE spark_catalog.{name} CASCADE")


@pytest.mark.core
def test_rows_of_files_are_added_encrypted_and_once(
    spark_lake: SparkLake, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, name STRING, p STRING", ENCRYPTED, "p")
    laid_down(tmp_path / "p=01", id=[1], name=[SECRET])
    laid_down(tmp_path / "p=__HIVE_DEFAULT_PARTITION__", id=[2])
    source = f"'{table}', 'parquet.`{tmp_path}`'"
    assert call(spark_lake, "add_files", f"{source}, map('p', '01')") == [(1, 1)]
    assert rows(spark_lake, table) == [(1, SECRET, "01")]
    refused(spark_lake, "REQUEST_INVALID", "add_files", source)  # One of its files was copied.
    rest = f"{source}, map('p', '__HIVE_DEFAULT_PARTITION__')"
    assert call(spark_lake, "add_files", rest) == [(1, 1)]
    both = [(1, SECRET, "01"), (2, None, None)]
    assert rows(spark_lake, table) == both
    files = data_files(spark_lake, table)
    assert all(SECRET.encode() not in local_path(file).read_bytes() for file in files)
    assert all(not str(local_path(file)).startswith(str(tmp_path)) for file in files)
    for arguments in (
        f"{source}, map('p', '1')",  # No file: names of directories are text.
        f"{source}, map('id', '1')",
        f"{source}, check_duplicate_files => true",
    ):
        refused(spark_lake, "REQUEST_INVALID", "add_files", arguments)
    refused(spark_lake, "NOT_SUPPORTED_YET", "add_files", f"{source}, parallelism => 2")
    refused(spark_lake, "NOT_AUTHORIZED", "add_files", f"{source}, check_duplicate_files => false", BOB)
    assert len(stock_table(spark_lake, table).snapshots()) == 2 and rows(spark_lake, table) == both
    assert call(spark_lake, "add_files", f"{source}, check_duplicate_files => false") == [(2, 2)]
    assert rows(spark_lake, table) == sorted(both * 2, key=repr)


@pytest.mark.nightly
def test_files_that_do_not_fit_are_refused_and_change_nothing(
    spark_lake: SparkLake, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, name STRING, p INT")
    names = ("more", "text", "mixed", "lost", "partition", "beside", "empty")
    more, text, mixed, lost, partition, beside, empty = (tmp_path / each for each in names)
    laid_down(more, id=[1])
    laid_down(more, id=[2], other=[1])
    laid_down(text, id=["one"])
    laid_down(mixed, id=["one"])
    laid_down(mixed, id=[1])
    laid_down(lost, id=[1])
    (lost / "damaged.parquet").write_bytes(b"PAR1 damaged PAR1")
    laid_down(partition / "p=x", id=[1])
    for directory in (beside, beside / "p=1", empty):
        laid_down(directory, id=[1])
    (empty / "empty.parquet").touch()
    spark = spark_lake.spark
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        for condition, path in (
            ("REQUEST_INVALID", more),
            ("INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST", text),
            ("DATA_FILE_DAMAGED", lost),
            ("REQUEST_INVALID", mixed),
            ("REQUEST_INVALID", beside),
            # Before 4.3, Spark reads this file to find out the columns.
            ("REQUEST_INVALID" if spark.version >= "4.3" else "DATA_FILE_DAMAGED", empty),
            ("CAST_INVALID_INPUT", partition),
            ("PATH_NOT_FOUND", tmp_path / "absent"),
        ):
            message = refused(spark_lake, condition, "add_files", f"'{table}', 'parquet.`{path}`'")
            assert message
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    for source in ("csv.`/x`", f"{CATALOG}.a.b", "a", "a b", "parquet.a.b"):
        refused(spark_lake, "NOT_SUPPORTED_YET", "add_files", f"'{table}', '{source}'")
    assert stock_table(spark_lake, table).snapshots() == []


@pytest.mark.nightly
def test_rows_of_orc_files_are_added(spark_lake: SparkLake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, name STRING", {"encryption.mechanism": "envelope"})
    orc.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), tmp_path / "a.orc")
    orc.write_table(pa.table({"name": ["x"]}), tmp_path / "b.orc")
    assert call(spark_lake, "add_files", f"'{table}', 'orc.`{tmp_path}`'") == [(2, 1)]
    assert rows(spark_lake, table) == [(1, None), (2, None), (None, "x")]


@pytest.mark.core
def test_a_table_of_spark_is_copied_whole_or_not_at_all(
    spark_lake: SparkLake, namespace: str, old: str
) -> None:
    source, table = f"spark_catalog.{old}.t", f"{namespace}.t"
    spark_lake.rows(
        f"CREATE TABLE {source} (id INT COMMENT 'number', p STRING) USING orc "
        "PARTITIONED BY (p) COMMENT 'old'"
    )
    spark_lake.rows(f"INSERT INTO {source} VALUES (1, 'a'), (2, 'b')")
    encrypted = "map('encryption.mechanism', 'envelope', 'encryption.plaintext-columns', 'p')"
    named = f"source_table => '{source}', table => '{table}'"
    for condition, arguments in (
        ("PROPERTY_INVALID", f"{named}, properties => map('encryption.mechanism', 'x')"),
        ("REQUEST_INVALID", f"{named}, properties => map('provider', 'orc')"),
        ("NOT_SUPPORTED_YET", f"{named}, parallelism => 1"),
        ("TABLE_OR_VIEW_NOT_FOUND", f"source_table => '{old}.none', table => '{table}'"),
    ):
        refused(spark_lake, condition, "snapshot", arguments)
        assert spark_lake.rows(f"SHOW TABLES IN {namespace}") == []
    assert call(spark_lake, "snapshot", f"{named}, properties => {encrypted}") == [(2,)]
    assert rows(spark_lake, table) == [(1, "a"), (2, "b")] == rows(spark_lake, source)
    stock = stock_table(spark_lake, table)
    assert stock.properties["write.format.default"] == "orc" and stock.properties["comment"] == "old"
    assert [each.name for each in stock.spec().fields] == ["p"]
    assert stock.schema().find_field("id").doc == "number"
    refused(spark_lake, "TABLE_OR_VIEW_ALREADY_EXISTS", "snapshot", named)
    spark_lake.rows(f"CREATE VIEW spark_catalog.{old}.v AS SELECT * FROM {source}")
    refused(spark_lake, "NOT_SUPPORTED_YET", "snapshot", f"'{old}.v', '{namespace}.v'")


@pytest.mark.nightly
@pytest.mark.core
def test_a_table_of_spark_is_moved(spark_lake: SparkLake, old: str) -> None:
    source, table = f"spark_catalog.{old}.t", f"{CATALOG}.{old}.t"
    spark_lake.rows(f"CREATE TABLE {source} USING parquet AS SELECT 1 AS id")
    refused(spark_lake, "SCHEMA_NOT_FOUND", "migrate", f"'{old}.t'")
    spark_lake.namespace(old)
    spark_lake.rows(f"CREATE TABLE spark_catalog.{old}.taken USING parquet AS SELECT 1 AS id")
    refused(spark_lake, "TABLE_OR_VIEW_ALREADY_EXISTS", "migrate", f"'{old}.t', backup_table_name => 'taken'")
    assert spark_lake.rows(f"SHOW TABLES IN {CATALOG}.{old}") == [] and rows(spark_lake, source) == [(1,)]
    assert call(spark_lake, "migrate", f"'{source}', map('encryption.mechanism', 'envelope')") == [(1,)]
    assert rows(spark_lake, table) == [(1,)] == rows(spark_lake, f"{source}_BACKUP_")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark_lake.spark, f"SELECT * FROM {source}")
    assert call(spark_lake, "migrate", f"'{old}.taken', drop_backup => true") == [(1,)]
    shown = spark_lake.rows(f"SHOW TABLES IN spark_catalog.{old}")
    assert {row.tableName for row in shown if not row.isTemporary} == {"t_backup_"}


@pytest.mark.nightly
@pytest.mark.core
@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ("added", "CONCURRENT_MODIFICATION"),
        pytest.param("replaced", "CONCURRENT_MODIFICATION", marks=pytest.mark.nightly),
        pytest.param("removed", "DATA_FILE_DAMAGED", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("procedure", ["add_files", "snapshot", "migrate"])
def test_sources_that_change_while_they_are_copied_are_refused(
    spark_lake: SparkLake,
    old: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    procedure: str,
    change: str,
    condition: str,
) -> None:
    directory = tmp_path / "part"
    (path,) = [laid_down(directory, id=[1])]
    spark_lake.rows(f"CREATE TABLE spark_catalog.{old}.t USING parquet LOCATION '{directory}'")
    table = f"{spark_lake.namespace(old)}.{'t' if procedure == 'migrate' else 'new'}"
    if procedure == "add_files":
        spark_lake.rows(f"CREATE TABLE {table} (id BIGINT)")
    writes = spark_lake.lake.services.writes

    def meanwhile(begin: Any) -> Any:
        def begun(*given: Any) -> Any:
            monkeypatch.undo()
            if change == "added":
                laid_down(directory, id=[2])
            elif change == "replaced":
                data, made = path.read_bytes(), path.stat()
                path.write_bytes(data)
                os.utime(path, ns=(made.st_atime_ns, made.st_mtime_ns + 5_000_000_000))
            else:
                path.unlink()
            return begin(*given)

        return begun

    for name in ("begin", "begin_staged"):
        monkeypatch.setattr(writes, name, meanwhile(getattr(writes, name)))
    arguments = {
        "add_files": f"'{table}', 'parquet.`{directory}`'",
        "snapshot": f"'spark_catalog.{old}.t', '{table}'",
        "migrate": f"'{old}.t'",
    }
    refused(spark_lake, condition, procedure, arguments[procedure])
    shown = [row.tableName for row in spark_lake.rows(f"SHOW TABLES IN {CATALOG}.{old}")]
    assert shown == (["new"] if procedure == "add_files" else [])
    assert procedure != "add_files" or rows(spark_lake, table) == []
    names = {row.tableName for row in spark_lake.rows(f"SHOW TABLES IN spark_catalog.{old}")}
    assert "t" in names and not any("backup" in name for name in names)
