"""Iceberg's own Spark runtime as a standard client of the running service, in a process of its own.

Nothing of Lakewarden is in that Spark, unless its plugin is to live beside Iceberg's jar. `make interop`
fetches the runtime and the PySpark that it supports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.support.service import Service
from tests.support.spark import CATALOG, FRUGAL

JARS: Final = Path(sys.prefix) / "iceberg-runtime"
PYSPARK: Final = Path(sys.prefix) / "spark-4.1.4"

_ANSWER: Final = "answer:"

#: PySpark is all that it needs, so that it can be another one than that of this Python.
_PRELUDE: Final = f"""\
import json, sys, threading
from pyspark.sql import SparkSession

builder, (settings, plugin) = SparkSession.builder, json.loads(sys.stdin.readline())
for name, value in settings.items():
    builder = builder.config(name, value)
if plugin is not None:
    import lakewarden

    builder = lakewarden.configure(builder, **plugin)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
jvm = spark._jvm


def rows(statement):
    return [list(row) for row in spark.sql(statement).collect()]


def table(name):
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def told_of(error):
    return str(error).partition("\\n\\tat ")[0]


def together(statements):
    outcomes = [None] * len(statements)

    def run(place, statement):
        try:
            outcomes[place] = rows(statement)
        except Exception as error:
            outcomes[place] = told_of(error)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(statements)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


for line in sys.stdin:
    given = json.loads(line)
    names = dict(globals(), **given["names"])
    try:
        exec(given["code"], names)
        told = {{"answer": names.get("answer")}}
    except Exception as error:
        told = {{"error": told_of(error)}}
    print({_ANSWER!r} + json.dumps(told, default=str), flush=True)
"""


class Refused(Exception):
    """What Spark said instead of an answer."""


class IcebergSpark:
    """A Spark with Iceberg's own catalogs on a service, one a user, by the user's name."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def run(self, code: str, **names: Any) -> Any:
        """What Python in that process sets `answer` to.

        Args:
            code: finds `spark`, `jvm`, `rows(statement)`, `table(name)` and `together(statements)`.
            names: further values that it finds.

        Raises:
            Refused: the code raised.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"code": code, "names": names}) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                told = json.loads(line.removeprefix(_ANSWER))
                if "error" in told:
                    raise Refused(told["error"])
                return told["answer"]
        raise AssertionError(f"Spark ended without an answer:\n{self._log.read_text()[-8000:]}")

    def sql(self, *statements: str) -> list[list[Any]]:
        """The rows that the last of some statements answers."""
        answer: list[list[Any]] = []
        for statement in statements:
            answer = self.run("answer = rows(statement)", statement=statement)
        return answer

    def together(self, statements: Sequence[str]) -> list[Any]:
        """The outcomes of statements that run at the same time: rows, or the text of an error."""
        outcomes: list[Any] = self.run("answer = together(statements)", statements=list(statements))
        return outcomes

    def opens(self, metadata_location: str) -> int:
        """Open a metadata.json with Iceberg's `TableMetadataParser`; how many snapshots it finds."""
        code = """
io = jvm.org.apache.iceberg.hadoop.HadoopFileIO(spark._jsc.hadoopConfiguration())
answer = jvm.org.apache.iceberg.TableMetadataParser.read(io, location).snapshots().size()
"""
        return int(self.run(code, location=metadata_location))


@contextmanager
def iceberg_spark(
    service: Service, *users: str, beside: str | None = None, settings: Mapping[str, str] = FRUGAL
) -> Iterator[IcebergSpark]:
    """Start Spark with Iceberg's runtime as a client of a service; the test is skipped without the runtime.

    Args:
        service: the service that its catalogs are at.
        users: who has a catalog, which has the user's name.
        beside: the user for whom Lakewarden's plugin is there too, with the catalog `lake`; none: no plugin.
        settings: the launch configuration of its JVM.
    """
    if not (PYSPARK / "pyspark").is_dir() or not any(JARS.glob("iceberg-spark-runtime-*.jar")):
        pytest.skip("Iceberg's Spark runtime is missing; `make interop` fetches it where Maven is installed")
    log = service.lake.root / f"iceberg-spark-{uuid4().hex}.log"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARDEN_")}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=service.lake.root,
            env={**inherited, "PYTHONPATH": str(PYSPARK)},
            start_new_session=True,
        )
    try:
        assert process.stdin is not None
        plugin = beside and {"catalog": CATALOG, "uri": service.url, "token": service.token(beside)}
        process.stdin.write(json.dumps([_settings(service, users, settings), plugin]) + "\n")
        process.stdin.flush()
        yield IcebergSpark(process, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _settings(service: Service, users: Sequence[str], launch: Mapping[str, str]) -> dict[str, str]:
    settings = {
        "spark.master": "local[2]",
        **launch,
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.warehouse.dir": str(service.lake.root / "spark"),
    }
    for user in users:
        given = {
            "type": "rest",
            "uri": service.url,
            "token": service.token(user),
            "warehouse": service.lake.settings.catalog.name,
        }
        settings |= iceberg_catalog(user, given)
    return settings


def iceberg_catalog(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of a catalog of Iceberg in Spark; its tables are on the local disk by default."""
    given = {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "cache-enabled": "false", **properties}
    catalog = f"spark.sql.catalog.{name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{catalog}.{name}": value for name, value in given.items()},
    }
