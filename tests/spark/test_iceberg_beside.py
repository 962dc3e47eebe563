"""The plugin beside Iceberg's own jar, which registers `format("iceberg")`: neither breaks the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.iceberg_spark import IcebergSpark, Refused, iceberg_spark
from tests.support.lake import ALICE
from tests.support.service import Service, open_service
from tests.support.spark import CATALOG

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

#: Iceberg's catalog, and Lakewarden's, of the same service.
BOTH = (ALICE, CATALOG)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service."""
    with open_service(tmp_path_factory.mktemp("lake")) as running:
        yield running


@pytest.fixture(scope="module")
def spark(served: Service) -> Iterator[IcebergSpark]:
    """A Spark with both jars and both kinds of catalog."""
    with iceberg_spark(served, ALICE, beside=ALICE) as started:
        yield started


@pytest.fixture
def table(spark: IcebergSpark) -> str:
    """A plaintext table with the row 1, a branch and a tag; its name without the catalog's."""
    name = f"n{uuid4().hex[:10]}"
    spark.sql(
        f"CREATE NAMESPACE {ALICE}.{name}",
        f"CREATE TABLE {ALICE}.{name}.t (id INT) USING iceberg",
        f"INSERT INTO {ALICE}.{name}.t VALUES (1)",
        f"ALTER TABLE {ALICE}.{name}.t CREATE BRANCH audit",
        f"ALTER TABLE {CATALOG}.{name}.t CREATE TAG first",
    )
    return f"{name}.t"


def _loaded(spark: IcebergSpark, name: str, **options: str) -> list[int]:
    code = """
frame = spark.read.format("iceberg").options(**options).load(name)
answer = sorted(row.id for row in frame.collect())
"""
    found: list[int] = spark.run(code, name=name, options=options)
    return found


def _save(spark: IcebergSpark, row: int, name: str, **options: str) -> None:
    code = """
frame = spark.sql(f"SELECT {row} AS id")
frame.write.format("iceberg").mode(options.pop("mode", "append")).options(**options).save(name)
"""
    spark.run(code, row=row, name=name, options=options)


def test_each_catalog_is_found_by_name(spark: IcebergSpark, table: str) -> None:
    for number, catalog in enumerate(BOTH, 2):
        _save(spark, number, f"{catalog}.{table}")
    assert [_loaded(spark, f"{catalog}.{table}") for catalog in BOTH] == [[1, 2, 3]] * 2
    _save(spark, 9, f"{CATALOG}.{table}", branch="audit")
    for catalog in BOTH:
        assert _loaded(spark, f"{catalog}.{table}", branch="audit") == [1, 9]
        assert _loaded(spark, f"{catalog}.{table}.branch_audit") == [1, 9]
    assert _loaded(spark, f"{CATALOG}.{table}", tag="first") == [1]
    _save(spark, 7, f"{CATALOG}.{table}", mode="overwrite")
    assert _loaded(spark, f"{CATALOG}.{table}") == [7]
    plan = spark.run(
        "answer = spark.read.format('iceberg').load(name)._jdf.queryExecution().executedPlan().toString()",
        name=f"{CATALOG}.{table}",
    )
    assert f"BatchScan {CATALOG}." in plan


def test_encrypted_tables_are_lakewarden_s_alone(spark: IcebergSpark, table: str) -> None:
    name = f"{table}_2"
    spark.sql(f"CREATE TABLE {CATALOG}.{name} (id INT) TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    _save(spark, 5, f"{CATALOG}.{name}")
    assert _loaded(spark, f"{CATALOG}.{name}") == [5]
    with pytest.raises(Refused):
        _loaded(spark, f"{ALICE}.{name}")


def test_paths_stay_iceberg_s(spark: IcebergSpark, tmp_path: Path) -> None:
    path = f"file://{tmp_path}/made/t"
    spark.run(
        """
schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(spark.sql("SELECT 1 AS id")._jdf.schema())
jvm.org.apache.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).create(schema, path)
""",
        path=path,
    )
    _save(spark, 6, path)
    assert _loaded(spark, path) == [6]
    assert (tmp_path / "made" / "t" / "metadata").is_dir()
