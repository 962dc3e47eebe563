"""Drivers and executors that are killed while a pipeline runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakewarden
from catalog.crypto.private_files import create_private
from policy.errors import LakewardenError
from spark_ext.embedded import EmbeddedCatalog
from tests.support.attacker import local
from tests.support.spark import FRUGAL

pytestmark = pytest.mark.nightly

TABLES = 6

_AUDIT = 'pipelines.audit(spark, "n.*", catalog="lake", show=False, fresh=True)'
_ERASE = """pipelines.erase(
    spark, [1, 4], {f"n.t{number}": ["id"] for number in range(TABLES)}, catalog="lake", show=False
)"""
#: Kills four executors while all tables are worked on.
_ON_A_CLUSTER = """
import json, os, signal, sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession
from lakewarden import configure, pipelines

uri, token, settings = json.load(sys.stdin)
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = configure(builder, uri=uri, token=token).getOrCreate()
killed, done, application = [], threading.Event(), spark.sparkContext.applicationId.encode()

def executors():
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and application in command:
            yield int(process)

def kill():
    while len(killed) < 4 and not done.wait(1):
        for process in list(set(executors()) - set(killed))[:1]:
            os.kill(process, signal.SIGKILL)
            killed.append(process)

killer = threading.Thread(target=kill)
killer.start()
report = PIPELINE
done.set()
killer.join()
print(json.dumps({"report": report.to_dict(), "killed": len(killed)}))
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    """A catalog of small tables, one of which lost a file."""
    with EmbeddedCatalog(tmp_path / "lake") as catalog:
        standard = RestCatalog("lake", uri=catalog.uri, token=catalog.token)
        standard.create_namespace("n")
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        for number in range(TABLES):
            standard.create_table(f"n.t{number}", schema)
            table = lakewarden.connect(catalog.uri, catalog.token).table(f"n.t{number}")
            table.append(pa.table({"id": [number]}))
        lost = standard.load_table("n.t3").inspect.files()["file_path"][0].as_py()
        local(lost).unlink()
        create_private(tmp_path / "token", catalog.token.encode())
        yield catalog


def command(catalog: EmbeddedCatalog, directory: Path, *options: str) -> list[str]:
    """The command that audits the tables, one a group."""
    conf = [f"--conf={name}={value}" for name, value in FRUGAL.items()]
    remote = ["--url", catalog.uri, "--token-file", str(directory / "token")]
    run = [sys.executable, "-c", "import lakewarden; lakewarden.main()"]
    return [*run, *remote, "lake", "audit", "n.*", "--items-at-a-time", "1", "--json", *options, *conf]


def done_items(catalog: EmbeddedCatalog) -> list[str]:
    """The items that are recorded as done by any run."""
    try:
        table = lakewarden.connect(catalog.uri, catalog.token).table("lakewarden_ops.runs")
        rows = table.scan(columns=["event", "item", "status"]).to_arrow().to_pylist()
    except LakewardenError:
        return []
    return [row["item"] for row in rows if (row["event"], row["status"]) == ("group", "done")]


def test_an_audit_whose_driver_is_killed_goes_on_where_it_was(
    catalog: EmbeddedCatalog, tmp_path: Path
) -> None:
    for groups in (1, 3):
        driver = subprocess.Popen(
            command(catalog, tmp_path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while len(done_items(catalog)) < groups and driver.poll() is None:
            time.sleep(0.1)
        assert driver.poll() is None, "the driver ended before it was killed"
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    before = done_items(catalog)
    ran = subprocess.run(command(catalog, tmp_path), capture_output=True, text=True, check=False)
    report = json.loads(ran.stdout)
    assert ran.returncode == 3, "a file is missing"
    assert report["continued"] and report["state"] == "complete"
    assert report["findings-by-rule"] == {"file-missing": 1}
    counted = Counter(done_items(catalog))
    assert set(counted.values()) == {1} and len(counted) == TABLES and set(before) < set(counted)


def on_a_cluster(catalog: EmbeddedCatalog, pipeline: str) -> dict[str, Any]:
    """Run a pipeline while executors are killed."""
    settings = {**FRUGAL, "spark.deploy.maxExecutorRetries": "-1", "spark.task.maxFailures": "50"}
    ran = subprocess.run(
        [sys.executable, "-c", _ON_A_CLUSTER.replace("PIPELINE", pipeline).replace("TABLES", str(TABLES))],
        input=json.dumps([catalog.uri, catalog.token, settings]),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert ran.returncode == 0, ran.stderr
    done: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert done["killed"] > 0
    return done


def test_an_erasure_certifies_nothing_wrong_when_executors_are_killed(catalog: EmbeddedCatalog) -> None:
    """One of the tables lost a file, and is not certified."""
    report = on_a_cluster(catalog, _ERASE)["report"]
    assert report["items"] == {"done": TABLES - 1, "failed": 1, "left": 0}, report["not-done"]
    assert report["counts"]["rows"] == 2
    assert [each["table"] for each in report["not-done"]] == ["n.t3"]
    mine = lakewarden.connect(catalog.uri, catalog.token)
    for number in set(range(TABLES)) - {3}:
        left = [] if number in (1, 4) else [number]
        assert mine.table(f"n.t{number}").scan().to_arrow()["id"].to_pylist() == left


def test_an_audit_loses_nothing_when_executors_are_killed(catalog: EmbeddedCatalog) -> None:
    done = on_a_cluster(catalog, _AUDIT)
    assert done["report"]["items"] == {"done": TABLES, "failed": 0, "left": 0}
    assert done["report"]["findings-by-rule"] == {"file-missing": 1}
