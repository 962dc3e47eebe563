"""A Spark session with a Lakewarden catalog, on all cores of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from bench.service import Served
from spark_ext.configuration import configure, engine_credential
from spark_ext.jar import spark_jar

CATALOG = "lake"
_SCALA = Path(__file__).parent / "scala"


def launch(memory: str) -> dict[str, str]:
    """The launch settings of each Spark of a benchmark: the same JVM, cores and codec."""
    cores = len(os.sched_getaffinity(0))
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.extraJavaOptions": "",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.log.level": "ERROR",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def session(catalog: Served, memory: str = "4g") -> Iterator[SparkSession]:
    """A session that acts as an engine for the catalog's user; it must be the first of this process.

    Args:
        catalog: where the tables are.
        memory: the heap of the one JVM.
    """
    builder = SparkSession.builder.appName("bench").config(
        "spark.driver.extraClassPath", str(spark_jar(sources=_SCALA))
    )
    for name, value in launch(memory).items():
        builder = builder.config(name, value)
    with engine_credential(catalog.engine_token):
        spark = configure(builder, catalog=CATALOG, uri=catalog.url, token=catalog.token).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def cpu_seconds(spark: SparkSession) -> float:
    """The CPU time that the JVM has used."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    spent = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
    return float(spent.get().toMillis()) / 1000


def versions(spark: SparkSession) -> dict[str, str]:
    """The versions of what runs the queries."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    name, version = (jvm.java.lang.System.getProperty(f"java.vm.{each}") for each in ("name", "version"))
    return {"spark": spark.version, "java": f"{name} {version}"}
