"""Rewrites tables, namespaces or whole catalogs as their properties require, group by group.

    from lakewarden import rewrite_data_files

    rewrite_data_files(spark, "lake.sales.orders")
    rewrite_data_files(spark, "lake", forbid_old=True)

This is one step of the pipeline `migrate`, without its checks. A table that refuses is reported, and the next
one follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from catalog.base.identifiers import TableName
from catalog.base.progress import Tell
from catalog.cli import output
from policy.errors import LakewardenError, RequestInvalid
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.lake import Lake, on_table, parts
from spark_ext.pipelines.rewriting import Rewriting

_COLUMNS: Final = ("table", "files", "bytes", "new files", "left", "forbidden", "problem")

#: A part of a name as SQL writes it.
_PART: Final = re.compile(r"`(?:[^`]|``)+`|[^.`]+")


@dataclass(frozen=True, slots=True)
class RewrittenTable:
    """What was done to a table.

    Attributes:
        table: its name, the catalog's before it.
        rewritten_files: files that were rewritten.
        rewritten_bytes: their size.
        added_files: the files that came in their place.
        left_files: files that still are not as the table's properties say, on all branches.
        old_forbidden: whether files of before are refused from now on.
        problem: why something was left, or not forbidden, a line each; None if nothing was in the way.
    """

    table: str
    rewritten_files: int = 0
    rewritten_bytes: int = 0
    added_files: int = 0
    left_files: int = 0
    old_forbidden: bool = False
    problem: str | None = None


def rewrite_data_files(
    spark: SparkSession,
    *names: str,
    max_group_bytes: int | None = None,
    forbid_old: bool = False,
    show: bool = True,
) -> list[RewrittenTable]:
    """Rewrite the files whose encryption differs from the properties of their tables.

    Args:
        spark: a session with the catalog.
        names: ``CATALOG.NAMESPACE.TABLE``, ``CATALOG.NAMESPACE`` for all tables in it, or ``CATALOG``.
        max_group_bytes: bytes of files that are committed together; 100 GiB if it is left out.
        forbid_old: let no file of before be read any more, table by table, where none is left.
        show: show progress, and a table of what was done at the end.

    Returns:
        what was done to each table, in order.

    Raises:
        RequestInvalid: a name that names no catalog, namespace or table.
        PySparkException: the catalog cannot be reached, or does not know the session's user.
    """
    tables = [table for name in names for table in _tables(spark, name)]
    with output.progress("Rewriting data files", shown=show, lines=True) as tell:
        done = [_rewritten(lake, table, max_group_bytes, forbid_old, tell) for lake, table in tables]
    if show:
        output.rows(_COLUMNS, map(_line, done))
    return done


def _rewritten(
    lake: Lake, table: TableName, max_group_bytes: int | None, forbid_old: bool, tell: Tell
) -> RewrittenTable:
    name = lake.name(table)
    done = Rewriting(lake, table, max_group_bytes, partial(tell, f"{name}: bytes")).run()
    forbidden, problem = _forbidden(lake, table) if forbid_old else (False, None)
    told = dict.fromkeys(filter(None, (done.problem, problem)))
    return RewrittenTable(
        name, done.files, done.bytes, done.added, done.left, forbidden, "\n".join(told) or None
    )


def _forbidden(lake: Lake, table: TableName) -> tuple[bool, str | None]:
    """Forbid earlier epochs; return whether they are, and why not."""
    try:
        return bool(lake.admin("POST", on_table(table, "regimes", "forbid-old"), {})["old-forbidden"]), None
    except LakewardenError as problem:
        if concerns_all(problem):
            raise
        return False, reason(problem)


def _tables(spark: SparkSession, name: str) -> Iterator[tuple[Lake, TableName]]:
    """The tables of a name as SQL writes it, each with its catalog."""
    found = _PART.findall(name)
    if not found or ".".join(found) != name:
        raise _unknown(name)
    catalog, *below = parts(name)
    lake = Lake(spark, catalog)
    if len(below) > 1 and spark.catalog.tableExists(name):
        yield lake, TableName(tuple(below[:-1]), below[-1])
        return
    if below and not spark.catalog.databaseExists(name):
        raise _unknown(name)
    for table in lake.tables("*"):
        if list(table.namespace[: len(below)]) == below:
            yield lake, table


def _unknown(name: str) -> RequestInvalid:
    return RequestInvalid(
        f"{name[:80]!r} names no catalog, namespace or table.",
        rule="identifier",
        hint="Write CATALOG, CATALOG.NAMESPACE or CATALOG.NAMESPACE.TABLE.",
    )


def _line(done: RewrittenTable) -> Sequence[object]:
    return (
        done.table,
        done.rewritten_files,
        done.rewritten_bytes,
        done.added_files,
        done.left_files,
        "yes" if done.old_forbidden else "no",
        done.problem and done.problem.replace("\n", " "),
    )
