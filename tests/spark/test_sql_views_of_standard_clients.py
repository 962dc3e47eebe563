"""Views that standard clients and Lakewarden's plugin share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyspark
import pytest

from tests.support.iceberg_spark import IcebergSpark, iceberg_catalog, iceberg_spark
from tests.support.lake import ALICE
from tests.support.spark import CATALOG, FRUGAL, SparkLake
from tests.support.spark_refusals import refused_as

views = pytest.mark.skipif(pyspark.__version__ < "4.3", reason="Spark has views of such catalogs since 4.3")


@pytest.fixture
def alice(spark_lake: SparkLake) -> Iterator[httpx.Client]:
    with spark_lake.service.client() as client:
        yield client


def _made(alice: httpx.Client, prefix: str, namespace: str, name: str, *texts: tuple[str, str]) -> None:
    fields = [{"id": 1, "name": "n", "type": "long", "required": False, "doc": "number"}]
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {"engine-name": "other"},
        "representations": [{"type": "sql", "dialect": each, "sql": sql} for each, sql in texts],
        "default-namespace": [namespace],
    }
    schema = {"type": "struct", "fields": fields}
    body: dict[str, Any] = {"name": name, "schema": schema, "view-version": version, "properties": {"a": "b"}}
    answer = alice.post(f"{prefix}/namespaces/{namespace}/views", json=body)
    assert answer.status_code == 200, answer.text


@views
def test_the_plugin_reads_views_of_standard_clients(
    spark_lake: SparkLake, namespace: str, alice: httpx.Client
) -> None:
    database, rows, prefix = namespace.removeprefix(f"{CATALOG}."), spark_lake.rows, spark_lake.service.prefix
    rows(f"CREATE TABLE {namespace}.t AS SELECT id, id * 10 AS value FROM range(4)")
    trino = ("trino", 'SELECT "id" FROM t')
    _made(alice, prefix, database, "v", trino, ("spark", "SELECT id FROM t WHERE value > 10"))
    _made(alice, prefix, database, "w", trino)
    assert sorted(rows(f"SELECT n FROM {namespace}.v")) == [(2,), (3,)]
    assert [row[1] for row in rows(f"SHOW VIEWS IN {namespace}")] == ["v", "w"]
    refused_as("NOT_SUPPORTED_YET", spark_lake.spark, f"SELECT * FROM {namespace}.w")
    # A property leaves the other text; a text of Spark alone is not the same view any more.
    rows(f"ALTER VIEW {namespace}.v SET TBLPROPERTIES ('team' = 'c')")
    view = f"{prefix}/namespaces/{database}/views/v"
    metadata = alice.get(view).json()["metadata"]
    assert metadata["properties"] == {"a": "b", "team": "c"}
    assert len(metadata["versions"][0]["representations"]) == 2
    change = f"ALTER VIEW {namespace}.v AS SELECT id FROM {namespace}.t"
    refused_as("VIEW_UPDATE_INVALID", spark_lake.spark, change)
    rows(f"ALTER VIEW {namespace}.v SET TBLPROPERTIES ('replace.drop-dialect.allowed' = 'true')")
    rows(change)
    metadata = alice.get(view).json()["metadata"]
    assert metadata["current-version-id"] == 2 and len(metadata["versions"]) == 2
    rows(f"DROP VIEW {namespace}.w")
    assert alice.head(f"{prefix}/namespaces/{database}/views/w").status_code == 404


@views
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_icebergs_spark_and_the_plugin_read_each_others_views(spark_lake: SparkLake, namespace: str) -> None:
    service, rows = spark_lake.service, spark_lake.rows
    rows(f"CREATE TABLE {namespace}.t AS SELECT id, id * 10 AS value FROM range(4)")
    rows(f"CREATE VIEW {namespace}.ours (n COMMENT 'c') AS SELECT id FROM {namespace}.t WHERE value > 10")
    given = {"type": "rest", "uri": service.url, "token": service.token(ALICE)}
    given["warehouse"] = service.lake.settings.catalog.name
    settings = {**FRUGAL, **iceberg_catalog(CATALOG, given)}
    with iceberg_spark(service, settings=settings) as iceberg:
        _share(iceberg, spark_lake, namespace)


def _share(iceberg: IcebergSpark, spark_lake: SparkLake, namespace: str) -> None:
    rows, theirs = spark_lake.rows, f"{namespace}.theirs"
    assert sorted(iceberg.sql(f"SELECT n FROM {namespace}.ours")) == [[2], [3]]
    iceberg.sql(
        f"USE {namespace}",
        f"CREATE VIEW {theirs} (n COMMENT 'c', m) COMMENT 'all' TBLPROPERTIES ('team' = 'a')"
        " AS SELECT id, value FROM t WHERE id < 2",
    )
    assert sorted(iceberg.sql(f"SELECT * FROM {theirs}")) == [[0, 0], [1, 10]]
    assert sorted(rows(f"SELECT * FROM {theirs}")) == [(0, 0), (1, 10)]
    assert [row[1] for row in iceberg.sql(f"SHOW VIEWS IN {namespace}")] == ["ours", "theirs"]
    iceberg.sql(f"CREATE OR REPLACE VIEW {theirs} AS SELECT count(*) AS c FROM {namespace}.t")
    assert rows(f"SELECT c FROM {theirs}") == [(4,)]
    iceberg.sql(f"ALTER VIEW {theirs} SET TBLPROPERTIES ('team' = 'b')")
    rows(f"CREATE OR REPLACE VIEW {theirs} AS SELECT max(id) AS c FROM {namespace}.t")
    assert iceberg.sql(f"SELECT c FROM {theirs}") == [[3]]
    iceberg.sql(f"ALTER VIEW {namespace}.ours RENAME TO {namespace}.moved")
    assert sorted(rows(f"SELECT n FROM {namespace}.moved")) == [(2,), (3,)]
    iceberg.sql(f"DROP VIEW {namespace}.moved", f"DROP VIEW {theirs}")
    assert rows(f"SHOW VIEWS IN {namespace}") == []
