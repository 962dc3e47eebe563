"""Reads files through the guarded reader, which checks what needs keys: footers, column keys, pages, digests.

The catalog decides: a user without SELECT on all columns reads nothing, and the table counts as not read.
Values go nowhere: each row becomes the length of a text, and one number is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.errors import PySparkException

from policy.identifiers import TableName
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.options import chosen
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.failures import concerns_all, condition, passes, reason
from spark_ext.pipelines.lake import Lake

_AT_ONCE: Final = 200
_DENIED: Final = "NOT_AUTHORIZED"


def verify(lake: Lake, name: TableName, share: float, found: Partial) -> None:
    """Read a share of a table's files, at the heads of its branches and at its tags.

    Raises:
        PySparkException: an error that concerns all tables.
    """
    table = lake.name(name)
    try:
        refs = sorted({row["name"] for row in lake.sql(f"SELECT name FROM {table}.refs")})
    except PySparkException as error:
        _refused(error, "the table", None, found)
        return
    for ref in refs:
        for files in _files(lake, table, ref, share, found):
            _read(lake, table, ref, files, found)


def _files(lake: Lake, table: str, ref: str, share: float, found: Partial) -> Iterator[list[str]]:
    if share >= 1:
        yield []
        return
    try:
        rows = lake.sql(f"SELECT DISTINCT _file AS path FROM {table} VERSION AS OF {_text(ref)}")
    except PySparkException as error:
        _refused(error, f"the files of {ref}", ref, found)
        return
    paths = sorted(path for row in rows if chosen(path := row["path"], share))
    for start in range(0, len(paths), _AT_ONCE):
        yield paths[start : start + _AT_ONCE]


def _read(lake: Lake, table: str, ref: str, files: list[str], found: Partial) -> None:
    chosen_files = f" WHERE _file IN ({', '.join(map(_text, files))})" if files else ""
    statement = (
        f"SELECT max(length(to_json(struct(*)))) FROM {table} VERSION AS OF {_text(ref)}{chosen_files}"
    )
    try:
        lake.sql(statement)
    except PySparkException as error:
        _refused(error, f"{ref}", ref, found)
        return
    found.counts["read-refs"] += 1
    found.counts["read-files"] += len(files)


def _refused(error: PySparkException, what: str, ref: str | None, found: Partial) -> None:
    if concerns_all(error):
        raise error
    if condition(error) == _DENIED:
        found.counts["not-read"] += 1
    elif passes(error):
        found.failed.append(reason(error))
    else:
        found.add(rules.UNREADABLE, f"Reading {what}: {reason(error)}", ref=ref)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
