"""The command lines of docs/spark.md, run as they are written, but for hosts, ports and directories."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_ext.runtime import find_spark
from tests.support.lake import policy, tables
from tests.support.service import Service, open_service
from tests.support.spark import FRUGAL
from tests.support.vault_server import free_port

pytestmark = pytest.mark.nightly

_PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
_BLOCKS = [
    re.sub(r"^ +", "", each, flags=re.MULTILINE) for each in re.findall(r"```sh\n(.*?)```", _PAGE, re.DOTALL)
]
ANN, ENGINE = "ann", "spark-prod"
_POLICIES = [
    policy("ann-tables", tables("*"), {ANN: ["all"]}),
    policy("ann-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {ANN: ["rwstorage"]}),
    policy("ann-keys", {"key": ["*"]}, {ANN: ["use", "release"]}),
    policy("engines", {"engine": [ENGINE]}, {ENGINE: ["act"]}),
]

#: What the page names `job.py`.
_JOB = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("total", spark.table("lake.people.ages").groupBy().sum("age").first()[0])
"""
_CLIENT = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).create()
spark.conf.set("lakewarden.catalog.lake.token", sys.stdin.read().strip())
print("total", spark.table("lake.people.ages").groupBy().sum("age").first()[0])
try:
    spark.sql("SELECT (SELECT max(raise_error('x' || age)) FROM lake.people.ages)").collect()
except PySparkException as error:
    print(error.getCondition(), error.getSqlState())
"""


@dataclass
class Reader:
    """A user who follows the page in a shell."""

    service: Service
    home: Path
    port: int

    def block(self, command: str) -> str:
        """The block of the page with a command, with this test's hosts and directories."""
        (found,) = [each for each in _BLOCKS if command in each]
        for name, value in {
            "https://catalog.internal": self.service.url,
            "thrift.internal:10000": f"127.0.0.1:{self.port}/default",
            "/run/lakewarden": str(self.home),
        }.items():
            found = found.replace(name, value)
        return found

    def start(self, script: str, **streams: object) -> subprocess.Popen[str]:
        """Start commands in a shell."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARDEN_")}
        inherited.pop("SPARK_HOME", None)
        settings = self.service.lake.root
        given = {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LAKEWARDEN_DATA_DIR": str(settings),
            "LAKEWARDEN_WAREHOUSE": f"file://{settings}/warehouse",
            "LAKEWARDEN_POLICIES": str(settings / "policies"),
            "SPARK_CONF_DIR": str(self.home / "conf"),
            "SPARK_LOG_DIR": str(self.home / "logs"),
            "SPARK_PID_DIR": str(self.home),
            "PYSPARK_PYTHON": sys.executable,
            # A shell, though its input is no terminal.
            "PYSPARK_DRIVER_PYTHON_OPTS": "-i",
            "HIVE_SERVER2_THRIFT_PORT": str(self.port),
            "HIVE_SERVER2_THRIFT_BIND_HOST": "127.0.0.1",
        }
        return subprocess.Popen(
            ["bash", "-euc", script],
            env={**inherited, **given},
            cwd=self.home,
            text=True,
            start_new_session=True,
            **streams,  # type: ignore[call-overload]
        )

    def run(self, script: str, told: str = "") -> str:
        """What commands print, which have to end well."""
        pipe = subprocess.PIPE
        with self.start(script, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            printed, problems = process.communicate(told)
        assert process.returncode == 0, printed[-2000:] + problems[-4000:]
        assert not [each for each in self.tokens() if each in printed + problems]
        return str(printed)

    def tokens(self) -> list[str]:
        """Those in files."""
        return [each.read_text().strip() for each in self.home.glob("*token") if each.stat().st_size]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A user with the jar and a table."""
    home = tmp_path_factory.mktemp("reader")
    with open_service(tmp_path_factory.mktemp("lake"), policies=_POLICIES) as service:
        made = Reader(service, home, free_port())
        (home / "conf").mkdir()
        (home / "job.py").write_text(_JOB)
        defaults = {
            **FRUGAL,
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.port": str(made.port),
        }
        (home / "conf" / "spark-defaults.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in defaults.items())
        )
        made.run(made.block("lakewarden spark jar").splitlines()[0])
        statements = (
            "CREATE NAMESPACE lake.people;\n"
            "CREATE TABLE lake.people.ages TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
            " AS SELECT 42 AS age;\nSELECT 'age', age FROM lake.people.ages;\n"
        )
        assert "age\t42" in made.run(made.block("spark-sql --jars"), statements)
        yield made


def test_shells_and_jobs_of_one_user(reader: Reader) -> None:
    assert "total 42" in reader.run(reader.block("spark-submit --jars"))
    shell = reader.block("spark-sql --jars").splitlines()[1:]
    pyspark = "\n".join(shell).replace("spark-sql --jars", "pyspark --jars")
    told = "print('ages', spark.table('lake.people.ages').collect())\n"
    assert "ages [Row(age=42)]" in reader.run(pyspark, told)


def _await_server(port: int, process: subprocess.Popen[str] | None) -> None:
    while process is None or process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("The server ended.")


@contextmanager
def _running(reader: Reader, script: str) -> Iterator[None]:
    log = reader.home / "server.log"
    with log.open("w") as output:
        process = reader.start(f"exec {script}", stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _await_server(reader.port, process)
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_thrift_server_and_beeline(reader: Reader) -> None:
    with _running(reader, reader.block("HiveThriftServer2")):
        told = "SELECT 'age', age FROM lake.people.ages;\n"
        assert re.search(r"age +\| 42", reader.run(reader.block("beeline -n ann"), told))


def test_connect_server_of_an_engine(reader: Reader) -> None:
    reader.run(reader.block("--engine --ttl 10m"))
    starting = reader.block("start-connect-server.sh")
    stop = f'"{find_spark(os.environ).root}/sbin/stop-connect-server.sh"'
    assert 'sbin/stop-connect-server.sh"` stops it' in _PAGE
    try:
        reader.run(starting)
        _await_server(reader.port, None)
        ran = subprocess.run(
            [sys.executable, "-c", _CLIENT, f"sc://127.0.0.1:{reader.port}"],
            input=reader.service.token(ANN),
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.split("\n")[:2] == ["total 42", "USER_RAISED_EXCEPTION P0001"]
        assert not (reader.home / "engine-token").exists()
    finally:
        reader.run(stop)
