"""Spark in a process of its own: for another launch configuration, another PySpark, or a driver to kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from spark_ext.configuration import (
    ENGINE_CREDENTIAL,
    engine_token_file,
    launch_settings,
    shared_engine_settings,
    token_setting,
)
from spark_ext.jar import spark_jar
from tests.support.lake import ALICE
from tests.support.service import ENGINE, Service
from tests.support.spark import CATALOG, FRUGAL

_ANSWER = "answer:"
#: How often a script can start Spark once more.
_LAUNCHES = 2

#: PySpark is all that it needs, so that it may be that of another Python.
_PRELUDE = f"""\
import json, os, signal, sys
from pyspark.sql import SparkSession

given = json.loads(sys.stdin.readline())
builder = SparkSession.builder
for name, value in given["settings"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.conf.set(given["token_setting"], given["tokens"][given["user"]])


def session(user):
    made = spark.newSession()
    made.conf.set(given["token_setting"], given["tokens"][user])
    return made


def answer(value):
    print({_ANSWER!r} + json.dumps(value), flush=True)


def told():
    line = sys.stdin.readline()
    return json.loads(line) if line else None


# An engine's key ends with its application; the next one in the same JVM needs a token of its own.
def relaunch_engine():
    with open(os.open(os.environ[{ENGINE_CREDENTIAL!r}], os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(given["engine_tokens"].pop())


def jvm_pid():
    return spark._jvm.java.lang.ProcessHandle.current().pid()


"""


class SparkProcess:
    """A script that runs with a Spark of its own.

    Attributes:
        log: the file with what Spark and the script wrote on standard error.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self.log = log

    @property
    def group(self) -> int:
        """The process group of the script, the JVM, and whatever they start."""
        return self._process.pid

    def answer(self) -> Any:
        """The next value that the script answers; waits for it."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                return json.loads(line.removeprefix(_ANSWER))
        raise AssertionError(f"The script ended without an answer:\n{self.log.read_text()[-8000:]}")

    def tell(self, value: Any) -> None:
        """Hand a JSON value to the script, which takes it with `told()`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def finish(self) -> list[Any]:
        """The answers that were not taken yet, when the script has ended well; it is told no more."""
        assert self._process.stdout is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
            self._process.stdin = None
        lines = [line for line in self._process.stdout if line.startswith(_ANSWER)]
        code = self._process.wait()
        assert code == 0, self.log.read_text()[-8000:]
        return [json.loads(line.removeprefix(_ANSWER)) for line in lines]

    def kill(self) -> None:
        """Kill Python and JVM at once, as a host that goes down does, and wait until both are gone."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def spark_process(
    service: Service,
    script: str,
    *,
    settings: Mapping[str, str] | None = None,
    user: str = ALICE,
    users: tuple[str, ...] = (),
    engine: str | None = ENGINE,
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
) -> Iterator[SparkProcess]:
    """Run a Python script with a Spark of its own on a service; what still runs at the end is killed.

    The script finds `spark`, the session of `user`; `session(name)`, which makes one of another user;
    `answer(value)`, which hands a JSON value to the test, as often as it likes; `told()`, which takes the
    next one that the test tells; `relaunch_engine()`, to be called before Spark is started once more; and
    `jvm_pid()`.

    Args:
        service: the service that the catalog `lake` is at.
        script: Python.
        settings: Spark settings beside the usual ones, which they override.
        user: whose session `spark` is.
        users: further users whom the script may make sessions of.
        engine: the engine whose credential the driver has, or None for a user's own process.
        python: the interpreter, whose PySpark runs.
        environ: further environment variables.
    """
    given = {
        "settings": {
            **_settings(service, python),
            **({} if engine is None else shared_engine_settings()),
            **(settings or {}),
        },
        "token_setting": token_setting(CATALOG),
        "tokens": {name: service.token(name) for name in (user, *users)},
        "user": user,
    }
    if engine is not None:
        given["engine_tokens"] = [service.engine_token(engine) for _ in range(_LAUNCHES)]
    log = service.lake.root / f"spark-{uuid4().hex}.log"
    # A process that has remote sessions says so to those that it starts.
    dropped = ("LAKEWARDEN_", "SPARK_CONNECT_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    variables = {**inherited, **(environ or {})}
    if engine is not None:
        variables[ENGINE_CREDENTIAL] = str(engine_token_file(service.engine_token(engine)))
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [python, "-c", _PRELUDE + script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=variables,
            start_new_session=True,
        )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        yield SparkProcess(process, log)
    finally:
        _end(process)


def _settings(service: Service, python: str) -> dict[str, str]:
    jar = spark_jar(environ={**os.environ, "SPARK_HOME": _spark_home(python)})
    return {
        "spark.master": "local[2]",
        **FRUGAL,
        **launch_settings(CATALOG, service.url, jar),
        "spark.sql.warehouse.dir": str(service.lake.root / "spark"),
    }


@cache
def _spark_home(python: str) -> str:
    code = "from pyspark.find_spark_home import _find_spark_home; print(_find_spark_home())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _end(process: subprocess.Popen[str]) -> None:
    """Leave nothing running: neither Python nor the JVM, nor executors that the JVM started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
