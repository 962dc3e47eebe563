"""A streaming query whose driver is killed again and again: each row comes once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from catalog.base import crash_points
from tests.support.hooks import once_at
from tests.support.lake import ALICE
from tests.support.service import open_service
from tests.support.spark_process import SparkProcess, spark_process

pytestmark = pytest.mark.nightly

#: By table, where the driver is killed while the catalog carries out one of its requests, one point a run.
POINTS = {"plain": ("write:begun", "published"), "secret": ("write:built", "prepared", "write:landed")}
FILES = 12
PATIENCE_S = 120

MAKE = f"""
spark.sql("CREATE NAMESPACE lake.n")
columns, encrypted = "id INT, p STRING", "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
for name in ("plain", "target_plain"):
    spark.sql(f"CREATE TABLE lake.n.{{name}} ({{columns}})")
for name in ("secret", "target_secret"):
    spark.sql(f"CREATE TABLE lake.n.{{name}} ({{columns}}) {{encrypted}}")
for name in ("plain", "secret"):
    for number in range({FILES} // 2):
        rows = spark.range(number * 10, number * 10 + 10, 1, 2)
        rows.selectExpr("INT(id)", "STRING(id % 3) AS p").writeTo(f"lake.n.{{name}}").append()
answer("made")
"""

STREAM = """
name, checkpoint = told()
stream = spark.readStream.option("streaming-max-files-per-micro-batch", 1).table(f"lake.n.{name}")
writer = stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
writer.toTable(f"lake.n.target_{name}").awaitTermination()
rows = spark.table(f"lake.n.target_{name}").selectExpr("id").collect()
answer(sorted(each[0] for each in rows))
"""


@pytest.mark.parametrize("name", POINTS)
def test_each_row_comes_once_wherever_the_driver_is_killed(tmp_path: Path, name: str) -> None:
    (tmp_path / "lake").mkdir()
    told = [name, str(tmp_path / "checkpoint")]
    with open_service(tmp_path / "lake") as service:
        with spark_process(service, MAKE) as maker:
            assert maker.answer() == "made"
        for point in POINTS[name]:
            with spark_process(service, STREAM) as spark, _killed_at(point, spark):
                spark.tell(told)
        with spark_process(service, STREAM) as spark:
            spark.tell(told)
            assert spark.answer() == [*range(FILES // 2 * 10)]
        snapshots = service.lake.catalog(ALICE).load_table(f"n.target_{name}").metadata.snapshots
        epochs = [int(each.summary["spark.sql.streaming.epochId"]) for each in snapshots if each.summary]
        assert epochs == [*range(FILES)]


@contextmanager
def _killed_at(point: str, spark: SparkProcess) -> Iterator[None]:
    """Kill a driver when the catalog reaches a point in one of its requests, and wait for that."""
    killed = threading.Event()

    def kill() -> None:
        spark.kill()
        killed.set()

    with crash_points.hooked(once_at(point, kill)):
        yield
        assert killed.wait(PATIENCE_S), point
