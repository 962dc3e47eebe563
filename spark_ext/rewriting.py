"""Rewrites tables, namespaces or whole catalogs as their properties require, group by group.

    from lakewarden import rewrite_data_files

    rewrite_data_files(spark, "lake.sales.orders")
    rewrite_data_files(spark, "lake", forbid_old=True)

Every step is a CALL of the catalog's procedure `rewrite_data_files`, which commits one group of files. So it
can be stopped at any time, and begun again: it goes on with what is left. A table that refuses is reported,
and the next one follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from catalog.cli import output
from policy.errors import RequestInvalid

#: What keeps every table from being rewritten, and not the one at hand alone.
_EVERYWHERE: Final = ("CATALOG_UNAVAILABLE", "NOT_AUTHENTICATED", "CATALOG_NOT_TRUSTED", "STATE_UNAVAILABLE")
_COLUMNS: Final = ("table", "files", "bytes", "new files", "left", "forbidden", "problem")

_GROUP: Final = "max-file-group-size-bytes"

#: A part of a name as SQL writes it, and one that needs no quotes.
_PART: Final = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: What stands between what Spark says and where it said so.
_TRACE: Final = "\n\nJVM stacktrace:"

Tell = Callable[[str, int, int | None], None]


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
    with output.progress() as shown:
        tell = shown if show else _silent
        rewriting = (_Rewriting(spark, *table, max_group_bytes, tell) for table in tables)
        done = [each.run(forbid_old=forbid_old) for each in rewriting]
    if show:
        output.rows(_COLUMNS, map(_line, done))
    return done


class _Rewriting:
    """The rewriting of one table."""

    def __init__(
        self, spark: SparkSession, catalog: str, table: str, max_group_bytes: int | None, tell: Tell
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._table = table
        self._size = "" if max_group_bytes is None else f", options => map('{_GROUP}', '{max_group_bytes}')"
        self._tell = tell
        self._done = RewrittenTable(f"{catalog}.{table}")
        self._failing = False

    def run(self, *, forbid_old: bool) -> RewrittenTable:
        """Rewrite what is left; then forbid the rest, if that is asked for."""
        try:
            self._step(max_groups=0)
            while self._done.left_files and self._step(max_groups=1) and not self._failing:
                pass
        except PySparkException as problem:
            self._failed(problem)
        if self._failing:
            # The rest by one call, which passes over what fails, and need not find it out for each group.
            self._try(self._step)
        if forbid_old:
            self._try(lambda: self._step(max_groups=0, forbid_old=True))
        return self._done

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except PySparkException as problem:
            self._failed(problem)

    def _failed(self, problem: PySparkException) -> None:
        """Note a refusal; one that concerns every table is passed on."""
        self._failing = True
        condition = (problem.getCondition() or "").removeprefix("LAKEWARDEN.")
        if condition in _EVERYWHERE:
            raise problem
        told = f"{self._done.problem or ''}\n{str(problem).partition(_TRACE)[0]}".split("\n")
        self._done = replace(self._done, problem="\n".join(dict.fromkeys(filter(None, told))))

    def _step(self, **options: int | bool) -> bool:
        """One CALL; whether it rewrote something."""
        row = self._call(options)
        self._failing = row["failed_groups"] + row["failed_data_files_count"] > 0
        done = self._done
        self._done = replace(
            done,
            rewritten_files=done.rewritten_files + row["rewritten_data_files_count"],
            rewritten_bytes=done.rewritten_bytes + row["rewritten_bytes_count"],
            added_files=done.added_files + row["added_data_files_count"],
            left_files=row["left_files"],
            old_forbidden=row["old_forbidden"],
            problem=row["problem"] or (done.problem if row["left_files"] else None),
        )
        whole = self._done.rewritten_bytes + row["left_bytes"]
        self._tell(f"{done.table}: bytes", self._done.rewritten_bytes, whole)
        return bool(row["rewritten_data_files_count"])

    def _call(self, options: dict[str, int | bool]) -> Row:
        listed = "".join(f", {name} => {str(value).lower()}" for name, value in options.items())
        statement = f"CALL {self._catalog}.system.rewrite_data_files(table => :table{listed}{self._size})"
        (row,) = self._spark.sql(statement, args={"table": self._table}).collect()
        return row


def _tables(spark: SparkSession, name: str) -> Iterator[tuple[str, str]]:
    """The tables of a name: the catalog of each, and its name there, as SQL writes both."""
    parts = _PART.findall(name)
    if not parts or ".".join(parts) != name:
        raise _unknown(name)
    catalog, *below = parts
    if not below:
        for row in spark.sql(f"SHOW NAMESPACES IN {catalog}").collect():
            yield from _inside(spark, catalog, row["namespace"])
    elif len(below) > 1 and spark.catalog.tableExists(name):
        yield catalog, ".".join(below)
    elif spark.catalog.databaseExists(name):
        yield from _inside(spark, catalog, ".".join(below))
    else:
        raise _unknown(name)


def _inside(spark: SparkSession, catalog: str, namespace: str) -> Iterator[tuple[str, str]]:
    """The tables of a namespace, and of those in it."""
    for row in spark.sql(f"SHOW TABLES IN {catalog}.{namespace}").collect():
        if not row["isTemporary"]:
            yield catalog, f"{namespace}.{_quoted(row['tableName'])}"
    for row in spark.sql(f"SHOW NAMESPACES IN {catalog}.{namespace}").collect():
        yield from _inside(spark, catalog, row["namespace"])


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


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


def _silent(name: str, done: int, total: int | None) -> None:
    pass
