"""Stock readers of Parquet: the clients that `docs/stock-readers.md` shows, run as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spark_ext.jar import spark_jar

PAGE: Final = (Path(__file__).parents[2] / "docs" / "stock-readers.md").read_text("utf-8")

_SCRIPT: Final = """\
import json, sys
from pyspark.sql import SparkSession

settings, questions = json.loads(sys.stdin.read())
builder = SparkSession.builder
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for token, paths, columns in questions:
    spark.conf.set("parquet.encryption.key.access.token", token)
    try:
        rows = spark.read.parquet(*paths).select(*columns).orderBy(columns[0]).collect()
        answer = [list(row) for row in rows]
    except Exception as error:
        answer = str(error)
    print("answer:" + json.dumps(answer), flush=True)
"""


def blocks(language: str) -> list[str]:
    """The page's blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def with_pyarrow(
    url: str, token: str, paths: Sequence[str], columns: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """The columns of the first file, and those of all files."""
    client, reading = blocks("python")
    names: dict[str, Any] = {"__name__": "page", "url": url, "token": token}
    names |= {"path": paths[0], "paths": list(paths)}
    asked = reading.replace('["id", "name"]', repr(list(columns)))
    exec(compile(client + asked, "docs/stock-readers.md", "exec"), names)
    return names["table"], names["rows"]


@cache
def client_jar(directory: Path) -> Path:
    """The page's client for Spark, compiled."""
    (source,) = blocks("scala")
    sources = directory / "client"
    sources.mkdir()
    (sources / "LakewardenKms.scala").write_text(source)
    return spark_jar(sources=sources)


def with_spark(
    directory: Path, url: str, questions: Sequence[tuple[str, Sequence[str], Sequence[str]]]
) -> list[Any]:
    """What a stock Spark answers, question by question; an error as its text.

    Args:
        directory: for what the client is compiled from.
        url: where the door is.
        questions: a token, the paths to read, and the columns wanted, ordered by the first of them.
    """
    (page,) = blocks("properties")
    settings = dict(line.split(maxsplit=1) for line in page.splitlines())
    settings["spark.hadoop.parquet.encryption.kms.instance.url"] = url
    del settings["spark.hadoop.parquet.encryption.key.access.token"]
    settings |= {
        "spark.jars": str(client_jar(directory)),
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        input=json.dumps([settings, questions]),
        env=dict(os.environ),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("answer:")]
    assert len(lines) == len(questions), done.stderr[-4000:]
    return [json.loads(line.removeprefix("answer:")) for line in lines]
