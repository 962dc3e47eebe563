"""The Spark of the demonstration: one process, with a session for each user.

The engine's own token is handed over in the environment of the JVM, and taken out of ours again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import Row, SparkSession

from spark_ext.configuration import configure, engine_credential, shared_engine_settings, token_setting
from spark_ext.demo.lake import Lake
from spark_ext.demo.people import ENGINE


class Engine:
    """Spark SQL on behalf of the people of the story.

    Args:
        session: a running session.
        lake: the catalog that Spark was launched with.
    """

    def __init__(self, session: SparkSession, lake: Lake) -> None:
        self._session = session
        self._lake = lake
        self._sessions: dict[str, SparkSession] = {}

    def sql(self, who: str, statement: str) -> list[Row]:
        """Run a statement for a user.

        Raises:
            PySparkException: it was refused, or failed.
        """
        return self.session(who).sql(statement).collect()

    def session(self, who: str) -> SparkSession:
        """The session of a user; the same one each time."""
        if who not in self._sessions:
            session = self._session.newSession()
            session.conf.set(token_setting("lake"), self._lake.tokens[who])
            self._sessions[who] = session
        return self._sessions[who]


@contextmanager
def open_engine(lake: Lake, directory: Path) -> Iterator[Engine]:
    """Start Spark for as long as the block lasts.

    Args:
        lake: the catalog.
        directory: where Spark puts its files and its log; it is made.
    """
    directory.mkdir()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = configure(SparkSession.builder.master("local[2]").appName("lakewarden demo"), uri=lake.url)
    settings: dict[str, bool | float | int | str | None] = {
        # Most of the time goes into starting up and into short queries; this is what the JVM is best at then.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    with engine_credential(lake.token(ENGINE, "engine")), _messages_to(directory / "spark.log"):
        session = builder.config(map={**settings, **shared_engine_settings()}).getOrCreate()
    try:
        yield Engine(session, lake)
    finally:
        session.stop()


@contextmanager
def _messages_to(log: Path) -> Iterator[None]:
    """Let what is started in the block write its messages to a file, as long as it runs."""
    screen = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(screen, 2)
        os.close(screen)
