"""The bytes that are compared with a digest are those that are read, even if the file changes meanwhile."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.reads import data_files, refused
from tests.support.spark import SparkLake

#: Some 20 MB. For a consumer that reads the rows slowly, no more than a socket buffer is read ahead.
COUNT, REPEATED = 10000, 100
ROWS = f"SELECT id, repeat(lpad(CAST(id AS STRING), 20, '0'), {REPEATED}) AS v FROM range(0, {COUNT}, 1, 1)"

#: Files of many row groups or stripes: as they are, too large for memory; and compressed, where they fit.
FORMATS = {
    "parquet": "'encryption.algorithm' = 'AES_GCM_CTR_V1', 'write.parquet.row-group-size-bytes' = '1000000'",
    "orc": "'encryption.mechanism' = 'envelope', 'write.orc.stripe-size-bytes' = '65536'",
}
LARGE = 8 << 20


def made(spark_lake: SparkLake, table: str, form: str, codec: str, verify: str) -> Path:
    """A table of one file."""
    properties = (
        f"{FORMATS[form]}, 'write.{form}.compression-codec' = '{codec}', "
        f"'encryption.verify-digest' = '{verify}'"
    )
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, v STRING) USING {form} TBLPROPERTIES ({properties})")
    spark_lake.rows(f"INSERT INTO {table} {ROWS}")
    (only,) = data_files(spark_lake, table)
    return only


def wrong_rows(spark_lake: SparkLake, table: str, path: Path, seen: Path) -> int:
    """Read a table whose file is overwritten, in place, by the reader of the first rows; how many are wrong.

    Args:
        spark_lake: where.
        table: of one file.
        path: the file.
        seen: gets mode and number of names of each nameless copy that Spark has open by then, as JSON.
    """
    spark = spark_lake.new_session()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    spark.conf.set("spark.sql.files.minPartitionNum", "1")
    jvm = spark._jvm
    assert jvm is not None
    opened = f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/fd"
    size, repeated = path.stat().st_size, REPEATED

    def overwriting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 0:
                links = [f"{opened}/{each}" for each in os.listdir(opened)]
                copies = [
                    os.stat(each)
                    for each in links
                    if os.path.lexists(each)
                    and "/lakewarden-" in os.readlink(each)
                    and os.readlink(each).endswith(" (deleted)")
                ]
                seen.write_text(json.dumps([[each.st_mode & 0o777, each.st_nlink] for each in copies]))
                with path.open("r+b") as file:
                    file.write(bytes(size))
            rows = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            wrong = sum(v != str(id).zfill(20) * repeated for id, v in rows)
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "wrong": [wrong]})

    counted = spark.sql(f"SELECT id, v FROM {table}").mapInArrow(overwriting, "rows BIGINT, wrong BIGINT")
    counts = counted.collect()
    assert sum(each["rows"] for each in counts) == COUNT
    return sum(each["wrong"] for each in counts)


@pytest.mark.parametrize(
    ("form", "codec", "verify"),
    [
        pytest.param("parquet", "uncompressed", "always", marks=pytest.mark.nightly),
        ("parquet", "zstd", "first-read"),
        pytest.param("orc", "none", "first-read", marks=pytest.mark.nightly),
        ("orc", "zlib", "always"),
    ],
)
def test_a_file_that_is_changed_while_it_is_read_gives_the_rows_that_were_verified(
    spark_lake: SparkLake,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    codec: str,
    verify: str,
) -> None:
    monkeypatch.setattr(spark_lake.spark.sparkContext, "pythonExec", sys.executable)
    table, seen = f"{namespace}.t", tmp_path / "seen"
    path = made(spark_lake, table, form, codec, verify)
    large = path.stat().st_size > LARGE
    assert large == (codec in {"uncompressed", "none"})
    assert wrong_rows(spark_lake, table, path, seen) == 0
    copies = json.loads(seen.read_text())
    assert copies == ([[0o600, 0]] if large else [])
    if verify == "always":
        refused(spark_lake, f"SELECT sum(length(v)) FROM {table}", "DECRYPTION_REFUSED", "file-digest")


@pytest.mark.nightly
def test_an_executor_without_room_for_a_copy_says_so(spark_lake: SparkLake, namespace: str) -> None:
    """And not that the file is missing or damaged."""
    table = f"{namespace}.t"
    made(spark_lake, table, "orc", "none", "always")
    jvm, context = spark_lake.spark._jvm, spark_lake.spark.sparkContext
    assert jvm is not None
    room = Path(jvm.org.apache.spark.util.Utils.getLocalDir(context._jsc.sc().conf()))
    away = room.rename(room.with_name(f"{room.name}-away"))
    try:
        refused(spark_lake, f"SELECT sum(length(v)) FROM {table}", "STORAGE_UNAVAILABLE", "local-directory")
    finally:
        away.rename(room)
    assert spark_lake.rows(f"SELECT sum(length(v)) FROM {table}") == [(COUNT * REPEATED * 20,)]
