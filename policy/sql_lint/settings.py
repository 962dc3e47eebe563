"""SET and RESET: which settings a script may change.

A setting can change what every statement after it means: where a name leads, how text is parsed, which code
is run, which storage is opened. So there is a list of harmless ones, and every other is refused,
`spark.sql.catalog.…` above all: it puts another catalog, or another address, under a name. Of Iceberg's own
settings, those are on the list that the engine honours: with any other, no table can be read.
"""

from __future__ import annotations

from typing import Final

from policy.sql_lint.cursor import Cursor
from policy.sql_lint.options import SETTINGS, SETTINGS_BELOW, is_honoured
from policy.sql_lint.problems import Problem
from policy.sql_lint.statements import NoPrivileges

_HARMLESS: Final = frozenset(
    {
        "hive.exec.dynamic.partition",
        "hive.exec.dynamic.partition.mode",
        "hive.exec.parallel",
        "hive.execution.engine",
        "hive.vectorized.execution.enabled",
        "mapreduce.job.name",
        "mapreduce.job.queuename",
        "spark.sql.autobroadcastjointhreshold",
        "spark.sql.broadcasttimeout",
        "spark.sql.cbo.enabled",
        "spark.sql.files.maxpartitionbytes",
        "spark.sql.files.maxrecordsperfile",
        "spark.sql.session.timezone",
        "spark.sql.shuffle.partitions",
        "spark.sql.sources.partitionoverwritemode",
        "tez.queue.name",
    }
)
_HARMLESS_BELOW: Final = ("spark.sql.adaptive.",)
#: Among those: a class that the engine loads, and rules of the engine that are left out.
_NOT_HARMLESS: Final = frozenset(
    {"spark.sql.adaptive.customcostevaluatorclass", "spark.sql.adaptive.optimizer.excludedrules"}
)


def read_setting(cursor: Cursor) -> NoPrivileges:
    """What follows SET.

    Raises:
        Problem: the setting is not one of the harmless ones.
    """
    start = cursor.next.start
    if cursor.took("TIME ZONE"):
        if not cursor.took("LOCAL"):
            cursor.string()
        return NoPrivileges()
    name = _name(cursor)
    if not cursor.next.is_symbol("="):
        raise _not_harmless(start, name)
    cursor.expect_symbol("=")
    # What follows a harmless name is its value, whatever it is.
    _, value, _ = cursor.rest_taken()
    if name.startswith(SETTINGS_BELOW):
        _require_honoured(start, name, value)
    else:
        _require_harmless(start, name)
    return NoPrivileges()


def read_reset(cursor: Cursor) -> NoPrivileges:
    """What follows RESET, which names a setting.

    Raises:
        Problem: the setting is not one of the harmless ones.
    """
    start, name = cursor.next.start, _name(cursor)
    if not name.startswith(SETTINGS_BELOW):
        _require_harmless(start, name)
    return NoPrivileges()


def _name(cursor: Cursor) -> str:
    """A setting's name, which has hyphens, too."""
    name = cursor.part()
    while cursor.next.is_symbol(".", "-"):
        name += cursor.take().text + cursor.part()
    return name


def _require_honoured(start: int, name: str, value: str) -> None:
    if not is_honoured(SETTINGS, name, value):
        raise Problem(
            start,
            "setting",
            f"With the setting {name[:120]!a} and this value, the engine refuses to read and write tables.",
            "Remove it. docs/spark-options.md lists the settings.",
        )


def _require_harmless(start: int, name: str) -> None:
    if not _is_harmless(name.lower()):
        raise _not_harmless(start, name)


def _not_harmless(start: int, name: str) -> Problem:
    return Problem(
        start,
        "setting",
        f"The setting {name[:120]!a} is not in the list of harmless settings.",
        "Ask the engine's administrator to set it at session start.",
    )


def _is_harmless(name: str) -> bool:
    return name in _HARMLESS or (name.startswith(_HARMLESS_BELOW) and name not in _NOT_HARMLESS)
