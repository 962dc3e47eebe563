"""Decides what an error of a pipeline's work concerns: one item, or all of them."""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import PythonException

from catalog.client.errors import CatalogUnavailable
from policy.errors import NotAuthenticated, StateUnavailable, Unavailable
from spark_ext.spark_errors import PREFIX

#: A part that is needed does not answer now, or its answer was lost, and may later.
_UNAVAILABLE: Final = frozenset(
    {
        "CATALOG_UNAVAILABLE",
        "STATE_UNAVAILABLE",
        "KMS_UNAVAILABLE",
        "STORAGE_UNAVAILABLE",
        "COMMIT_STATE_UNKNOWN",
    }
)
#: What keeps every item from being done, and not the one at hand alone.
_EVERYWHERE: Final = frozenset(
    {"CATALOG_UNAVAILABLE", "STATE_UNAVAILABLE", "NOT_AUTHENTICATED", "CATALOG_NOT_TRUSTED"}
)

#: The class of SQLSTATEs of data exceptions (ISO/IEC 9075-2), whose texts have values of rows.
_OF_DATA: Final = "22"
#: What stands between what Spark says and where it said so.
_TRACE: Final = "\n\nJVM stacktrace:"
_LONGEST: Final = 2_000


def concerns_all(error: Exception) -> bool:
    """Return whether an error keeps every item from being done: the catalog is away, or refuses the user."""
    if isinstance(error, PySparkException):
        return condition(error) in _EVERYWHERE
    return isinstance(error, (CatalogUnavailable, NotAuthenticated, StateUnavailable))


def passes(error: Exception) -> bool:
    """Return whether the same call can succeed later, since a part that is needed does not answer now."""
    if isinstance(error, PySparkException):
        return condition(error) in _UNAVAILABLE
    return isinstance(error, (CatalogUnavailable, Unavailable))


def reason(error: Exception) -> str:
    """Return what an error says, in one line.

    Of an error in Python code on an executor, only that there was one, and of a value that cannot be cast or
    computed with, only the condition: their texts can hold values of rows.
    """
    if isinstance(error, PythonException):
        return "The work ended with an error in Python. The logs of the executors say more."
    text = str(error)
    if isinstance(error, PySparkException) and (error.getSqlState() or "").startswith(_OF_DATA):
        return (
            f"A value cannot be computed with: {error.getCondition()}. Masks and row filters can cast values."
        )
    if isinstance(error, PySparkException):
        text = text.partition(_TRACE)[0]
    return " ".join(text.split())[:_LONGEST]


def condition(error: PySparkException) -> str:
    """Return the condition of an error of Spark, without the prefix of Lakewarden's."""
    return (error.getCondition() or "").removeprefix(PREFIX)
