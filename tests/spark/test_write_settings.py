"""Properties and options of writes: obeyed, or refused where they cannot be."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField
from pyspark.errors import AnalysisException

from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path, stock_table


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4_raw", "uncompressed"])
def test_files_have_the_codec_that_the_table_asks_for(
    spark_lake: SparkLake, namespace: str, codec: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT", {"write.parquet.compression-codec": codec})
    spark_lake.rows(f"INSERT INTO {table} SELECT id FROM range(0, 100, 1, 1)")
    (file,) = data_files(spark_lake, table)
    chunk = pq.ParquetFile(local_path(file)).metadata.row_group(0).column(0)
    assert chunk.compression.lower() == codec.removesuffix("_raw")
    assert pq.read_table(local_path(file)).num_rows == 100


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("option", "value"), [("branches", "b"), ("write-format", "orc"), ("overwrite-mode", "dynamic")]
)
def test_options_that_would_be_ignored_are_refused(
    spark_lake: SparkLake, namespace: str, option: str, value: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT")
    with pytest.raises(AnalysisException, match="NotSupportedYet"):
        spark_lake.spark.range(3).writeTo(table).option(option, value).append()
    assert stock_table(spark_lake, table).current_snapshot() is None


UNMET = [
    ("write.orc.compression-codec", "brotli"),
    ("write.parquet.compression-codec", "brotli"),
    ("write.target-file-size-bytes", "big"),
    ("write.distribution-mode", "scatter"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "value"), UNMET)
def test_settings_that_cannot_be_met_are_refused_when_they_are_set(
    spark_lake: SparkLake, namespace: str, name: str, value: str
) -> None:
    with pytest.raises(AnalysisException, match="PropertyInvalid"):
        create_table(spark_lake, f"{namespace}.t", "id BIGINT", {name: value})
    create_table(spark_lake, f"{namespace}.t", "id BIGINT")
    with pytest.raises(AnalysisException, match="PropertyInvalid"):
        spark_lake.rows(f"ALTER TABLE {namespace}.t SET TBLPROPERTIES ('{name}' = '{value}')")


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "value"), [*UNMET, ("write.format.default", "avro")])
def test_settings_of_a_table_that_cannot_be_met_are_refused(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Of a table that has had them since before the catalog checked them."""
    table = f"{namespace}.t"
    with monkeypatch.context() as unchecked:
        unchecked.setattr("policy.privileges.tables.check_write_properties", lambda *_: None)
        create_table(spark_lake, table, "id BIGINT", {name: value})
    with pytest.raises(AnalysisException, match="PropertyInvalid"):
        spark_lake.rows(f"INSERT INTO {table} VALUES (1)")
    assert stock_table(spark_lake, table).current_snapshot() is None


@pytest.mark.nightly
def test_a_column_of_fixed_length_is_not_written_as_something_else(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Spark has no such type; its file would have bytes of any length."""
    spark_lake.service.iceberg().create_table(
        f"{namespace.removeprefix('lake.')}.t", Schema(NestedField(1, "f", FixedType(3)))
    )
    with pytest.raises(AnalysisException, match="NotSupportedYet"):
        spark_lake.rows(f"INSERT INTO {namespace}.t VALUES (X'0102')")


@pytest.mark.nightly
def test_encryption_that_a_launch_asks_of_stock_writers_has_no_effect(
    spark_lake: SparkLake, namespace: str
) -> None:
    """A plaintext table's files are in plaintext, for every reader of the table."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT")
    launch = spark_lake.spark.sparkContext._jsc.hadoopConfiguration()
    launch.set("parquet.crypto.factory.class", "no.such.Factory")
    try:
        spark_lake.rows(f"INSERT INTO {table} VALUES (1)")
    finally:
        launch.unset("parquet.crypto.factory.class")
    assert stock_table(spark_lake, table).scan().to_arrow()["id"].to_pylist() == [1]
