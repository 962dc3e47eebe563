"""A real Spark session on a real service.

A JVM holds one Spark, whose catalogs are launch configuration: the tests of a worker process share one
service and one Spark, and each takes namespaces of its own. What needs another launch runs in a process of
its own, see `tests.support.spark_process`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark.sql import Row, SparkSession

from spark_ext.configuration import configure, engine_credential, token_setting
from tests.support.class_archive import java_options
from tests.support.lake import ALICE, Lake
from tests.support.service import ENGINE, Service, open_service

CATALOG = "lake"

#: Seconds; in these tests plans grow old sooner than by default, so that a test can wait for it.
PLAN_VALID_S = 1.0

#: Small and quick to start; nothing that the plugin's behaviour depends on.
FRUGAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": java_options(),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _remembered(ask: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def get(holder: Any, name: str) -> Any:
        found = ask(holder, name)
        # A capital that is no class yet may become one by an import.
        if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
            vars(holder)[name] = found
        return found

    return get


# Py4J asks the JVM at each use of a name what it is, and the JVM looks for a class into all jars of Spark.
for _kind in (JVMView, JavaPackage):
    _kind.__getattr__ = _remembered(_kind.__getattr__)


@dataclass
class SparkLake:
    """A service, and a Spark that works through it.

    Attributes:
        service: the running service; its lake is the catalog behind it.
        spark: Alice's session.
    """

    service: Service
    spark: SparkSession
    _sessions: dict[str, SparkSession] = field(default_factory=dict, repr=False)

    @property
    def lake(self) -> Lake:
        """The catalog behind the service."""
        return self.service.lake

    def session(self, user: str = ALICE) -> SparkSession:
        """The session of a user; the same one each time."""
        if user not in self._sessions:
            self._sessions[user] = self.new_session(user)
        return self._sessions[user]

    def new_session(self, user: str | None = ALICE) -> SparkSession:
        """A further session of a user, or of nobody."""
        session = self.spark.newSession()
        if user is not None:
            session.conf.set(token_setting(CATALOG), self.service.token(user))
        return session

    def rows(self, statement: str, user: str = ALICE) -> list[Row]:
        """What a statement of a user answers."""
        return self.session(user).sql(statement).collect()

    def namespace(self, name: str | None = None) -> str:
        """Make a namespace of Alice's, with a name of its own; returns it with the catalog's."""
        made = f"n{uuid4().hex[:10]}" if name is None else name
        self.spark.sql(f"CREATE NAMESPACE {CATALOG}.{made}")
        return f"{CATALOG}.{made}"


@contextmanager
def open_spark_lake(root: Path, *, engine: str | None = ENGINE, **settings: str) -> Iterator[SparkLake]:
    """A service in an empty directory and the one Spark of this process.

    Args:
        root: an empty directory.
        engine: the engine whose credential Spark gets, or None for Spark as a user's own process.
        settings: Spark settings, with underscores for dots.
    """
    with open_service(root, PLAN_VALID_S=PLAN_VALID_S, KMS_ENDPOINT__ENABLED="true") as service:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # read by Spark when it starts
        builder = SparkSession.builder.master("local[2]").appName("lakewarden-tests")
        warehouse = {"spark.sql.warehouse.dir": str(root / "spark")}
        for name, value in {**FRUGAL, **warehouse, **_dotted(settings)}.items():
            builder = builder.config(name, value)
        with engine_credential(None if engine is None else service.engine_token(engine)):
            builder = configure(builder, catalog=CATALOG, uri=service.url, token=service.token(ALICE))
            spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield SparkLake(service, spark, {ALICE: spark})
        finally:
            spark.stop()


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}
