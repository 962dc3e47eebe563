"""A standard Spark in a process of its own: nothing of ours is in the engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.class_archive import java_options

_SETTINGS: Final = {
    "spark.master": "local[1]",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": java_options(),
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}

_SCRIPT: Final = """\
import json, sys
from pyspark.sql import SparkSession

settings, statements = json.loads(sys.stdin.read())
builder = SparkSession.builder
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for statement in statements:
    try:
        answer = [list(row) for row in spark.sql(statement).collect()]
    except Exception as error:
        answer = str(error)
    print("answer:" + json.dumps(answer), flush=True)
"""


def ask(directory: Path, settings: Mapping[str, str], statements: Sequence[str], **environ: str) -> list[Any]:
    """What Spark answers, statement by statement; an error as its text.

    Args:
        directory: where it runs.
        settings: what it is launched with.
        statements: of one session, one after the other.
        environ: variables beside those of this process.
    """
    # A process that has remote sessions says so to those that it starts.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_CONNECT_")}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        input=json.dumps([_SETTINGS | dict(settings), statements]),
        env={**inherited, **environ},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("answer:")]
    assert len(lines) == len(statements), done.stderr[-4000:]
    return [json.loads(line.removeprefix("answer:")) for line in lines]
