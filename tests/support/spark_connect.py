"""A Spark Connect server on a real service, and a remote session for each user.

The tests of `SparkLake` run through it with `pytest --connect`. A test that reaches into the driver's JVM is
skipped there: a client of Connect has none.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from spark_ext.configuration import token_setting
from tests.support.lake import ALICE
from tests.support.service import ENGINE, Service, open_service
from tests.support.spark import CATALOG, PLAN_VALID_S, SparkLake
from tests.support.spark_process import spark_process

_SERVER = """
service = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService
service.start(spark._jsc.sc())
module = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
answer(getattr(module, "MODULE$").server().getPort())
answer(jvm_pid())
told()
"""


@dataclass
class ConnectServer:
    """A Spark Connect server in a process of its own.

    Attributes:
        address: where it listens, such as `sc://127.0.0.1:15002`.
        jvm: the process id of its JVM.
    """

    address: str
    jvm: int

    def heap(self, directory: Path) -> bytes:
        """The objects in its JVM that something refers to, as they are in memory.

        Args:
            directory: where the JVM can write them for a moment.
        """
        path = directory / f"{uuid4().hex}.hprof"
        subprocess.run(
            ["jmap", f"-dump:live,format=b,file={path}", str(self.jvm)], check=True, capture_output=True
        )
        try:
            return path.read_bytes()
        finally:
            path.unlink()


@dataclass
class ConnectLake(SparkLake):
    """A service, and Spark Connect sessions that work through it.

    Attributes:
        server: the server.
    """

    server: ConnectServer = field(kw_only=True)
    _opened: list[SparkSession] = field(default_factory=list, repr=False)

    def new_session(self, user: str | None = ALICE) -> SparkSession:
        """A further remote session of a user, or of nobody."""
        session = remote_session(self.address, user or "nobody")
        self._opened.append(session)
        if user is not None:
            session.conf.set(token_setting(CATALOG), self.service.token(user))
        return session

    @property
    def address(self) -> str:
        """Where the server listens, such as `sc://127.0.0.1:15002`."""
        return self.server.address

    def heap(self, directory: Path) -> bytes:
        """What the server's JVM can reach."""
        return self.server.heap(directory)

    def end(self) -> None:
        """End every session: a client waits long for a server that is gone."""
        for session in self._opened:
            session.stop()


def remote_session(address: str, user: str) -> SparkSession:
    """A new session on a server, without a token.

    Args:
        address: of the server, with parameters such as `/;session_id=…`.
        user: the name that the client tells Spark; Lakewarden does not go by it.
    """
    separator = ";" if "/;" in address else "/;"
    made: SparkSession = SparkSession.builder.remote(f"{address}{separator}user_id={user}").create()
    made.client.set_retry_policies([])  # type: ignore[attr-defined]  # a server that is gone stays away
    return made


@contextmanager
def connect_server(service: Service, *, engine: str | None = ENGINE) -> Iterator[ConnectServer]:
    """A Spark Connect server on a service.

    Args:
        service: the service that the catalog `lake` is at.
        engine: the engine whose credential the server gets, or None for a user's own process.
    """
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        # As start-connect-server.sh has it; PySpark switches it off where Python starts the driver.
        "spark.sql.artifact.isolation.enabled": "true",
    }
    environ = {"PYSPARK_PYTHON": sys.executable}
    with spark_process(service, _SERVER, settings=settings, environ=environ, engine=engine) as process:
        yield ConnectServer(f"sc://127.0.0.1:{process.answer()}", process.answer())


@contextmanager
def open_connect_lake(root: Path) -> Iterator[SparkLake]:
    """A service in an empty directory, and Spark Connect in the place of this process's Spark."""
    with (
        open_service(root, PLAN_VALID_S=PLAN_VALID_S, KMS_ENDPOINT__ENABLED="true") as service,
        connect_server(service) as server,
    ):
        first = remote_session(server.address, ALICE)
        first.conf.set(token_setting(CATALOG), service.token(ALICE))
        lake = ConnectLake(service, first, {ALICE: first}, server=server, _opened=[first])
        try:
            yield lake
        finally:
            lake.end()
