"""SQL for a Spark in a process of its own, which may be disturbed while it works.

A Python function in SQL lets a task reach a place and wait there, so that a test disturbs it at that very
moment, without measuring time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.lake import ALICE
from tests.support.service import Service
from tests.support.spark_process import SparkProcess, spark_process

#: Carries out orders until there are none; each in a thread of its own, so that several can be under way.
_ORDERS = """
import threading, traceback
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf
from spark_ext.spark_errors import install

{helpers}

install()

sessions = {{given["user"]: spark}}


def user_session(user):
    if user not in sessions:
        sessions[user] = session(user)
    for name, function in FUNCTIONS.items():
        sessions[user].udf.register(name, function)
    return sessions[user]


def carry_out(order):
    if "cancel" in order:
        spark.sparkContext.cancelJobsWithTag(f"order-{{order['cancel']}}")
        return {{"rows": []}}
    try:
        spark.sparkContext.setInterruptOnCancel(True)
        spark.sparkContext.addJobTag(f"order-{{order['number']}}")
        session = user_session(order["user"])
        if "stream" in order:
            # Spark starts a stream with the session that is active in the thread.
            spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
            source, target, checkpoint, counted = order["stream"]
            rows = session.readStream.table(source)
            if counted:
                rows = rows.groupBy(counted).count()
            writer = rows.writeStream.trigger(availableNow=True)
            writer.outputMode("complete" if counted else "append")
            writer.option("checkpointLocation", checkpoint).toTable(target).awaitTermination()
            return {{"rows": []}}
        rows = session.sql(order["sql"]).collect()
        return {{"rows": [list(row) for row in rows]}}
    except Exception as error:
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        return {{"error": str(error), "trace": traceback.format_exc(), "condition": condition}}


def in_a_thread(order):
    answer({{"number": order["number"], **carry_out(order)}})


answer(jvm_pid())
threads = []
while (order := told()) is not None:
    threads.append(threading.Thread(target=in_a_thread, args=(order,)))
    threads[-1].start()
for thread in threads:
    thread.join()
spark.stop()
"""

#: The function in SQL answers the value that it is given, and takes those of its steps on the way that are
#: for this value and this attempt of the task. Spark calls it for every row, whatever stands around it, and
#: with a hundred rows at a time. Of two of them in one another, the outer one keeps back what the inner gave.
HELPERS = """
def _wait(place):
    with open(place + ".reached", "w"):
        pass
    with open(place + ".go") as go:
        go.read()


def _wait_again(place):
    if os.path.exists(place + ".passed"):
        _wait(place)
    with open(place + ".passed", "w"):
        pass


def _fail(_):
    raise ValueError("this attempt fails")


def _die(_):
    process = os.getppid()
    while b"CoarseGrainedExecutorBackend" not in open(f"/proc/{process}/cmdline", "rb").read():
        process = int(open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[1])
    os.kill(process, signal.SIGKILL)


ACTIONS = {"wait": _wait, "wait again": _wait_again, "fail": _fail, "die": _die}


def _disturbed(value, steps):
    from pyspark import TaskContext
    for at, attempt, action, place in json.loads(steps):
        if value == at and attempt == TaskContext.get().attemptNumber():
            ACTIONS[action](place)
    return value


FUNCTIONS = {
    "disturbed": udf(_disturbed, "long", useArrow=False).asNondeterministic(),
    "disturbed_condition": udf(_disturbed, "long", useArrow=False),
}
"""

#: Every hundred rows that come from Python are written at once, rather than when there are many.
_EAGER = {"spark.buffer.size": "256"}


class Refused(Exception):
    """What a statement was refused with.

    Attributes:
        trace: the exception as Python shows it, with those of the JVM.
        condition: its condition; None if it is no exception of PySpark's.
    """

    def __init__(self, problem: str, trace: str, condition: str | None) -> None:
        super().__init__(problem)
        self.trace = trace
        self.condition = condition


@dataclass
class Place:
    """Where a task waits until it is let go."""

    path: Path

    @classmethod
    def make(cls, directory: Path, name: str) -> Place:
        """A place to wait at; only one task may come there."""
        place = cls(directory / name)
        for end in ("reached", "go"):
            os.mkfifo(f"{place.path}.{end}")
        return place

    def wait(self) -> None:
        """Wait until a task is there."""
        Path(f"{self.path}.reached").read_bytes()

    def let_go(self) -> None:
        """Let the task go on."""
        Path(f"{self.path}.go").write_bytes(b"")


@dataclass(frozen=True)
class Step:
    """What happens to a task on its way.

    Attributes:
        action: `wait` at a place; `wait again` there, when the row comes a second time; `fail`, the attempt;
            `die`, the JVM of the executor.
        at: at the row with this value.
        attempt: in this attempt of the task, counted from 0.
        place: where to wait.
    """

    action: str
    at: int
    attempt: int = 0
    place: Place | None = None


def disturbed(*steps: Step) -> str:
    """The column `id` in SQL, made by tasks to which something happens."""
    return f"disturbed(id, {_told(steps)}) AS id"


def disturbed_condition(*steps: Step) -> str:
    """The same where Spark wants an expression that it can evaluate more than once, as in conditions."""
    return f"disturbed_condition(id, {_told(steps)})"


def _told(steps: tuple[Step, ...]) -> str:
    told = [
        (each.at, each.attempt, each.action, str(each.place.path) if each.place else None) for each in steps
    ]
    return f"'{json.dumps(told)}'"


@dataclass
class RemoteSpark:
    """A Spark in a process of its own.

    Attributes:
        process: where it runs.
        jvm: the process id of the driver's JVM.
    """

    process: SparkProcess
    jvm: int
    _numbers: int = 0
    _answers: dict[int, dict[str, Any]] = field(default_factory=dict)

    def begin(self, statement: str, user: str = ALICE) -> int:
        """Begin a statement; `result` waits for it."""
        self._numbers += 1
        self.process.tell({"number": self._numbers, "sql": statement, "user": user})
        return self._numbers

    def begin_stream(
        self, source: str, target: str, checkpoint: Path, user: str = ALICE, counted: str | None = None
    ) -> int:
        """Begin what `stream` does; `result` waits for it.

        With `counted`, the query replaces the target's rows by the count of rows per value of that column.
        """
        self._numbers += 1
        order = {"stream": [source, target, str(checkpoint), counted], "user": user}
        self.process.tell({"number": self._numbers, **order})
        return self._numbers

    def stream(self, source: str, target: str, checkpoint: Path, user: str = ALICE) -> None:
        """Append the rows of a table to another one in a streaming query, until there are no more."""
        self.result(self.begin_stream(source, target, checkpoint, user))

    def cancel(self, number: int) -> None:
        """Kill the tasks of a statement that is under way, as its user or an administrator may."""
        self._numbers += 1
        self.process.tell({"number": self._numbers, "cancel": number})
        self.result(self._numbers)

    def result(self, number: int) -> list[list[Any]]:
        """The rows that a statement answers.

        Raises:
            Refused: it failed.
        """
        while number not in self._answers:
            answer = self.process.answer()
            self._answers[answer["number"]] = answer
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Refused(answer["error"], answer["trace"], answer["condition"])
        return answer["rows"]  # type: ignore[no-any-return]

    def rows(self, statement: str, user: str = ALICE) -> list[list[Any]]:
        """What a statement answers; `Refused` if it fails."""
        return self.result(self.begin(statement, user))


@contextmanager
def remote_spark(
    service: Service,
    *,
    settings: Mapping[str, str] | None = None,
    users: tuple[str, ...] = (),
    before: str = "",
    environ: Mapping[str, str] | None = None,
) -> Iterator[RemoteSpark]:
    """Run a Spark that takes SQL from this process.

    Args:
        service: the service that the catalog `lake` is at.
        settings: Spark settings beside the usual ones.
        users: who may give orders beside Alice.
        before: Python to run first; it may replace `spark`.
        environ: further environment variables.
    """
    # Python functions must run in this Python, whatever else the machine calls python3.
    variables = {"PYSPARK_PYTHON": sys.executable, **(environ or {})}
    script = before + _ORDERS.format(helpers=HELPERS)
    settings = {**_EAGER, **(settings or {})}
    with spark_process(service, script, settings=settings, users=users, environ=variables) as process:
        yield RemoteSpark(process, process.answer())


#: What Spark's `local-cluster` starts, except that each worker has a host name of its own: a speculative
#: attempt is never run on the host of the first. Driver, master and workers are in one JVM, each executor in
#: its own. The environment variable TEST_WORK_DIRECTORY says where executors work.
TWO_HOSTS = """
from pyspark import SparkContext

launched = spark.sparkContext.getConf()._jconf.clone()
spark.stop()
deploy = SparkContext._jvm.org.apache.spark.deploy
conf = launched.set("spark.master.rest.enabled", "false")
master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)._1()
url = f"spark://127.0.0.1:{master.address().port()}"
masters = SparkContext._gateway.new_array(SparkContext._jvm.java.lang.String, 1)
masters[0] = url
none = SparkContext._jvm.scala.Option.empty()
workers = [
    deploy.worker.Worker.startRpcEnvAndEndpoint(
        host, 0, 0, 1, 1024, masters, os.environ["TEST_WORK_DIRECTORY"],
        SparkContext._jvm.scala.Option.apply(number), conf, none)
    for number, host in enumerate(["127.0.0.2", "127.0.0.3"])
]
relaunch_engine()
spark = builder.config("spark.master", url).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.conf.set(given["token_setting"], given["tokens"][given["user"]])
"""
