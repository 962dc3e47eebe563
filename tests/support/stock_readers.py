"""Standard readers of Parquet: the clients that `docs/stock-readers.md` shows, run as they stand there."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from spark_ext.jar import spark_jar
from tests.support.stock_spark import ask

PAGE: Final = (Path(__file__).parents[2] / "docs" / "stock-readers.md").read_text("utf-8")


def blocks(language: str, heading: str) -> list[str]:
    """The blocks of a language below a heading of the page."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def with_pyarrow(
    url: str, token: str, paths: Sequence[str], columns: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """The columns of the first file, and those of all files."""
    client, reading = blocks("python", "PyArrow")
    names: dict[str, Any] = {"__name__": "page", "url": url, "token": token}
    names |= {"path": paths[0], "paths": list(paths)}
    asked = reading.replace('["id", "name"]', repr(list(columns)))
    exec(compile(client + asked, "docs/stock-readers.md", "exec"), names)
    return names["table"], names["rows"]


@cache
def client_jar(directory: Path) -> Path:
    """The page's client for Spark, compiled."""
    (source,) = blocks("scala", "Spark")
    sources = directory / "client"
    sources.mkdir()
    (sources / "LakewardenKms.scala").write_text(source)
    return spark_jar(sources=sources)


def with_spark(
    directory: Path, url: str, questions: Sequence[tuple[str, Sequence[str], Sequence[str]]]
) -> list[Any]:
    """What a standard Spark answers, question by question; an error as its text.

    Args:
        directory: for what the client is compiled from.
        url: where the KMS endpoint is.
        questions: a token, the paths to read, and the columns wanted, ordered by the first of them.
    """
    (page,) = blocks("properties", "Spark")
    settings = dict(line.split(maxsplit=1) for line in page.splitlines())
    settings["spark.hadoop.parquet.encryption.kms.instance.url"] = url
    del settings["spark.hadoop.parquet.encryption.key.access.token"]
    settings["spark.jars"] = str(client_jar(directory))
    statements = [each for question in questions for each in _statements(*question)]
    answers = ask(directory, settings, statements)
    # A view that was refused is the answer.
    return [view or rows for view, rows in zip(answers[2::4], answers[3::4], strict=True)]


def _statements(token: str, paths: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The token, a view of the files, and the question."""
    directory = os.path.commonpath([Path(path).parent for path in paths])
    listed = ",".join(os.path.relpath(path, directory) for path in paths)
    view = f"CREATE TEMPORARY VIEW files USING parquet OPTIONS (path '{directory}/{{{listed}}}')"
    asked = f"SELECT {', '.join(columns)} FROM files ORDER BY {columns[0]}"  # noqa: S608
    return [f"SET parquet.encryption.key.access.token={token}", "DROP VIEW IF EXISTS files", view, asked]
