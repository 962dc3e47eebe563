"""A Spark whose driver and executors are processes of their own, on two hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.support.attacker import local
from tests.support.dying_executors import DyingExecutors
from tests.support.lake import BOB
from tests.support.service import Service, open_service
from tests.support.spark import FRUGAL
from tests.support.spark_remote import TWO_HOSTS, RemoteSpark, remote_spark

_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
#: A task is started a second time as soon as one other is done. Executors start quickly.
SETTINGS = {
    # However many executors die, the application goes on.
    "spark.deploy.maxExecutorRetries": "-1",
    _JAVA_OPTIONS: FRUGAL["spark.driver.extraJavaOptions"],
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.minTaskRuntime": "0ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.5",
}


@dataclass
class Cluster:
    """A Spark on a cluster, and the service that it works through."""

    service: Service
    spark: RemoteSpark
    directory: Path

    def new_name(self) -> str:
        """A name that no table has."""
        return f"lake.n.t{uuid4().hex[:10]}"

    def files(self, table: str) -> list[Path]:
        """The data files of a table's current snapshot."""
        loaded = self.service.lake.catalog().load_table(table.removeprefix("lake."))
        return [local(path) for path in loaded.inspect.files()["file_path"].to_pylist()]

    def ids(self, table: str) -> list[int]:
        """The rows of a table, every one as often as it is there."""
        return sorted(row[0] for row in self.spark.rows(f"SELECT id FROM {table}"))  # noqa: S608

    def executors(self) -> list[int]:
        """The processes of the executors that the driver started."""
        found = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                command = Path(f"/proc/{process}/cmdline").read_bytes()
                parent = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1]
                if b"CoarseGrainedExecutorBackend" in command and int(parent) == self.spark.jvm:
                    found.append(int(process))
        return found


@contextmanager
def open_cluster(directory: Path, dying: DyingExecutors | None = None) -> Iterator[Cluster]:
    """A cluster and its service, in an empty directory, until the end of the block.

    Args:
        directory: for the service's `lake`, and all else.
        dying: says when executors die.
    """
    work, lake = directory / "work", directory / "lake"
    work.mkdir()
    lake.mkdir()
    settings = SETTINGS
    if dying is not None:
        options = f"{SETTINGS[_JAVA_OPTIONS]} {dying.java_options}"
        settings = {**SETTINGS, **dying.settings, _JAVA_OPTIONS: options}
    with (
        open_service(lake) as service,
        remote_spark(
            service,
            settings=settings,
            users=(BOB,),
            before=TWO_HOSTS,
            environ={"TEST_WORK_DIRECTORY": str(work)},
        ) as spark,
    ):
        spark.rows("CREATE NAMESPACE lake.n")
        spark.rows("CREATE NAMESPACE lake.bobs WITH PROPERTIES ('lakewarden.unsealed' = 'allow')")
        yield Cluster(service, spark, directory)
    assert len([each for each in work.glob("*/*") if each.is_dir()]) >= 2, "no executor of its own has run"
