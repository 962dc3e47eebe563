"""Writes on a cluster: attempts that fail, run twice or are killed, and a driver that dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home
from sqlalchemy import update

from catalog.db.engine import write
from catalog.db.schema import lw_write
from tests.support.lake import open_lake
from tests.support.service import Service, running
from tests.support.spark_process import spark_process

ROWS = 2_000

#: Tasks of two rows ranges; the first attempt of the first task comes to grief in one of three ways.
_ATTEMPTS = """\
import os, pathlib, time
from pyspark import TaskContext

def grieve(how, mark):
    def rows(place, numbers):
        first = TaskContext.get().attemptNumber() == 0
        for number in numbers:
            if number == ROWS // 4 and place == 0 and first:
                if how == "fails":
                    raise RuntimeError("the first attempt")
                if how == "is killed":
                    # This worker's parent is the daemon, whose parent is the executor.
                    status = pathlib.Path(f"/proc/{os.getppid()}/status").read_text()
                    os.kill(int(status.split("PPid:")[1].split()[0]), signal.SIGKILL)
                    time.sleep(600)
                while not pathlib.Path(mark).exists():
                    time.sleep(0.01)
            yield (number,)
        if place == 0 and not first:
            pathlib.Path(mark).touch()
    return rows

spark.sql("CREATE NAMESPACE lake.far")
for how in ("fails", "is slow", "is killed"):
    name = "lake.far." + how.replace(" ", "_")
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg "
        "TBLPROPERTIES ('encryption.mechanism' = 'envelope', 'write.target-file-size-bytes' = '1')")
    marks = MARKS + "/" + how
    numbers = spark.sparkContext.parallelize(range(ROWS), 2)
    numbers.mapPartitionsWithIndex(grieve(how, marks)).toDF("id BIGINT").writeTo(name).append()
    answer([row[0] for row in spark.sql(f"SELECT id FROM {name}").collect()])
"""

#: Both statements write rows without an end; the rows are known by their files.
_ENDLESS = """\
import pathlib, threading, time

spark.sql("CREATE NAMESPACE lake.far")
small = "USING iceberg TBLPROPERTIES ('write.target-file-size-bytes' = '100000')"
spark.sql(f"CREATE TABLE lake.far.old (id BIGINT) {small}")
spark.sql("INSERT INTO lake.far.old VALUES (1)")
rows = "SELECT id FROM range(0, 1000000000000, 1, 1)"
for statement in f"INSERT INTO lake.far.old {rows}", f"CREATE TABLE lake.far.new {small} AS {rows}":
    threading.Thread(target=spark.sql, args=[statement], daemon=True).start()
while min(len(list(pathlib.Path(FAR).glob(f"{name}-*/data/*/*.parquet"))) for name in ("old", "new")) < 3:
    time.sleep(0.01)
answer("writing")
time.sleep(600)
"""


_SPECULATION = {
    "spark.executor.memory": "512m",
    "spark.pyspark.python": sys.executable,
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.minTaskRuntime": "0ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.1",
}


@contextmanager
def two_hosts(directory: Path) -> Iterator[str]:
    """A Spark cluster of two hosts with one core each; its address.

    Spark runs no second attempt on the host of the first, and a local cluster is one host.
    """
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    master = f"spark://127.0.0.1:{port}"
    daemon = "org.apache.spark.deploy"
    with ExitStack() as running:
        _start(running, f"{daemon}.master.Master", "--host", "127.0.0.1", "--port", port)
        for host in ("127.0.0.1", "127.0.0.2"):
            limits = ["--cores", "1", "--memory", "512m", "--work-dir", str(directory / host)]
            _start(running, f"{daemon}.worker.Worker", "--host", host, *limits, master)
        yield master


def _start(running: ExitStack, *command: str) -> None:
    """A part of the cluster, as Spark's own scripts start it; it ends with the stack."""
    home = Path(_find_spark_home())
    environ = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    process = subprocess.Popen(
        [home / "bin/spark-class", *command, "--webui-port", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ,
        start_new_session=True,
    )
    running.callback(process.wait)
    running.callback(os.killpg, process.pid, signal.SIGKILL)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_lake(tmp_path) as lake, running(lake) as service:
        yield service


@pytest.mark.slow
def test_rows_of_attempts_that_fail_are_slow_or_are_killed_count_once(
    service: Service, tmp_path: Path
) -> None:
    """With speculation on, and executors of their own: one attempt of each task is committed."""
    script = f"ROWS, MARKS = {ROWS}, {str(tmp_path)!r}\n{_ATTEMPTS}"
    with (
        two_hosts(tmp_path) as master,
        spark_process(service, script, settings={**_SPECULATION, "spark.master": master}) as process,
    ):
        found = process.finish()
    assert [Counter(rows) == Counter(range(ROWS)) for rows in found] == [True] * 3


@pytest.mark.slow
def test_a_driver_killed_in_the_middle_of_a_write_leaves_nothing_to_be_seen(service: Service) -> None:
    """INSERT and CREATE TABLE AS SELECT: no rows, no table; what they left is swept when its time is over."""
    warehouse = service.lake.warehouse / "far"
    # Encryption that a launch asks of stock writers has no effect on a table's own.
    stock = {"spark.hadoop.parquet.crypto.factory.class": "no.such.Factory"}
    with spark_process(service, f"FAR = {str(warehouse)!r}\n{_ENDLESS}", settings=stock) as process:
        assert process.answer() == "writing"
        process.kill()
    catalog = service.iceberg()
    assert catalog.list_tables("far") == [("far", "old")]
    old = catalog.load_table("far.old")
    assert old.scan().to_arrow()["id"].to_pylist() == [1]

    with write(service.lake.warden.engine) as connection:
        connection.execute(update(lw_write).values(expires_ms=1))
    assert service.lake.warden.writes.sweep() == 2
    (kept,) = warehouse.rglob("*.parquet")
    assert str(kept) in old.inspect.files()["file_path"][0].as_py()
    catalog.create_table("far.new", old.schema())
