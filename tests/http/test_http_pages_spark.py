"""Iceberg's Spark runtime lists in pages, and sends its metrics reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.http_calls import new_table
from tests.support.iceberg_spark import iceberg_spark
from tests.support.lake import ALICE
from tests.support.service import open_service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

_PAGED = """
spark.conf.set("spark.sql.catalog.paged", "org.apache.iceberg.spark.SparkCatalog")
for name in ("type", "uri", "token", "warehouse", "io-impl", "cache-enabled"):
    value = spark.conf.get("spark.sql.catalog.alice." + name, None)
    if value is not None:
        spark.conf.set("spark.sql.catalog.paged." + name, value)
spark.conf.set("spark.sql.catalog.paged.rest-page-size", "2")
spark.sql("INSERT INTO paged.a.t0 VALUES (1, 'x')")
answer = [
    rows("SHOW TABLES IN paged.a"),
    rows("SHOW NAMESPACES IN paged"),
    rows("SELECT * FROM paged.a.t0 WHERE id = 1"),
]
"""


def test_iceberg_java_lists_in_pages_and_reports_metrics(tmp_path: Path) -> None:
    namespaces, names = ["a", "b", "c", "d", "e"], [f"t{number}" for number in range(7)]
    with open_service(tmp_path) as served, served.client() as alice:
        for namespace in namespaces:
            alice.post(f"{served.prefix}/namespaces", json={"namespace": [namespace]}).raise_for_status()
        for name in names:
            new_table(alice, served.prefix, "a", name).raise_for_status()
        with iceberg_spark(served, ALICE) as spark:
            listed, above, found = spark.run(_PAGED)
        assert [name for _, name, _ in listed] == names
        assert above == [[namespace] for namespace in namespaces]
        assert found == [[1, "x"]]
        metrics = alice.get("/metrics").text
    route = '{method="GET",route="/v1/{prefix}/namespaces/{namespace}/tables",status="200"}'
    assert f"lakewarden_requests_total{route} 4" in metrics
    for kind in ("scan", "commit"):
        assert f'lakewarden_metrics_reports_total{{kind="{kind}"}} 1' in metrics
