"""Decides what becomes of an item that ended with an error: it has failed, or it is left to a later run."""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException

from policy.errors import LakewardenError
from spark_ext.pipelines import failures
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.items import Finding, Item, Outcome, Status
from spark_ext.spark_errors import condition

#: What the work on an item can raise.
REFUSALS: Final = (LakewardenError, PySparkException)

#: Errors that pass without a person's help.
_PASSING: Final = frozenset(
    {
        "COMMIT_CONFLICT",
        "CONCURRENT_MODIFICATION",
        "KEYS_CHANGED",
        "TABLE_CHANGED",
        "COMMIT_STATE_UNKNOWN",
        "KMS_UNAVAILABLE",
        "STORAGE_UNAVAILABLE",
    }
)
_GONE: Final = frozenset({"NO_SUCH_TABLE", "NO_SUCH_NAMESPACE", "TABLE_OR_VIEW_NOT_FOUND"})
_DROPPED: Final = "The table does not exist any more: it was dropped or renamed."


def name_of(error: Exception) -> str:
    """Return the name of an error, such as ``NO_SUCH_TABLE``."""
    if isinstance(error, PySparkException):
        return failures.condition(error)
    return condition(type(error).__name__)


def outcome_of(item: Item, error: Exception, findings: tuple[Finding, ...] = ()) -> Outcome:
    """Return what becomes of an item that ended with an error.

    A table that is gone, and an error that passes, leave the item to a later run.

    Raises:
        Exception: the error itself, if it concerns all items.
    """
    if concerns_all(error):
        raise error
    name = name_of(error)
    if name in _GONE:
        return Outcome.of(item, Status.LEFT, _DROPPED, findings)
    return Outcome.of(item, Status.LEFT if name in _PASSING else Status.FAILED, reason(error), findings)


def status_of_problem(problem: str | None) -> Status:
    """Return what becomes of an item with files that a procedure could not rewrite, by what it says of them.

    Args:
        problem: a line each, which begins with the name of the error, such as ``CommitConflict: …``.
    """
    kinds = {condition(line.partition(":")[0]) for line in (problem or "").splitlines()}
    return Status.LEFT if kinds and kinds <= _PASSING else Status.FAILED
