"""Shows errors of Spark's JVM as typed PySpark exceptions, whatever Spark wraps them in.

PySpark raises a plain `Py4JJavaError` where Spark wraps the reason in an exception without a condition (in
scalar subqueries and in `toLocalIterator`), and where it does not know the class of an error with a condition
(`CATALOG_NOT_FOUND`). `install` has PySpark show the first error that has a condition. `getMessage` and
`getSqlState` work for Lakewarden's own errors as for Spark's, which PySpark knows from a list of Spark.

An error of Spark that has no condition gets the one that Spark writes in its place in JSON (`LEGACY`,
`SparkThrowableHelper.getMessage`), and one without a SQLSTATE that of a general error (ISO/IEC 9075-3).
Errors of Java that are not Spark's, such as those of a user's own calls through Py4J, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.sql.streaming.query import StreamingQuery

from spark_ext.jar import SOURCES

#: What the conditions of Lakewarden's errors begin with.
PREFIX: Final = "LAKEWARDEN."
#: The condition and SQLSTATE of errors of Spark that have none.
LEGACY: Final = "LEGACY"
GENERAL_ERROR: Final = "HY000"
_MOST_CAUSES: Final = 20


@cache
def sql_states() -> dict[str, str]:
    """The SQLSTATE of each condition, without the prefix."""
    lines = (SOURCES / "resources" / "lakewarden" / "sql-states.txt").read_text().splitlines()
    kinds = (line.split() for line in lines if line and not line.startswith("#"))
    return {condition(kind): state for kind, state in kinds}


def condition(kind: str) -> str:
    """`NotAuthorized` is `NOT_AUTHORIZED`."""
    return "".join(f"_{each}" if each.isupper() else each.upper() for each in kind).lstrip("_")


class LakewardenRefusal(captured.AnalysisException):
    """An error of Lakewarden: its condition begins with `LAKEWARDEN.`."""

    def getMessage(self) -> str:
        return str(self._desc)

    def getSqlState(self) -> str | None:
        return sql_states().get(str(self.getCondition()).removeprefix(PREFIX)) or super().getSqlState()


class _Completed(captured.CapturedException):
    """An error of Spark whose condition or SQLSTATE is completed."""

    def getCondition(self) -> str:
        return super().getCondition() or LEGACY

    def getSqlState(self) -> str:
        return super().getSqlState() or GENERAL_ERROR

    def getMessageParameters(self) -> dict[str, str]:
        known = super().getMessageParameters()
        return {"message": str(self._desc)} if super().getCondition() is None else known or {}

    def getMessage(self) -> str:
        return str(self._desc) if super().getCondition() is None else super().getMessage()


def _completed(kind: type[captured.CapturedException]) -> type[captured.CapturedException]:
    """The same class of errors, completed."""
    return type(kind.__name__, (_Completed, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})


def install() -> None:
    """Have PySpark convert exceptions so. Calling it again has no effect."""
    convert = captured._convert_exception
    if not isinstance(convert, _Converting):
        vars(captured)["_convert_exception"] = _Converting(convert)
        StreamingQuery.exception = _of_stream  # type: ignore[assignment, method-assign]


def _of_stream(query: StreamingQuery) -> captured.CapturedException | None:
    """What ended a stream, or None. PySpark's own has no condition."""
    found = query._jsq.exception()
    return captured.convert_exception(found.get()) if found.isDefined() else None


class _Converting:
    def __init__(self, convert: Callable[[Any], captured.CapturedException]) -> None:
        self._convert = convert

    def __call__(self, failure: Any) -> captured.CapturedException:
        converted = self._convert(failure)
        if converted.getCondition() is None:
            reason = next((each for each in _with_causes(failure) if _condition(each)), failure)
            if reason is not failure or _is_of_spark(failure):
                converted = self._typed(reason)
        if isinstance(converted, captured.UnknownException):
            return converted
        if str(converted.getCondition()).startswith(PREFIX):
            return LakewardenRefusal(origin=converted._origin)
        if converted.getSqlState() is None:
            converted.__class__ = _completed(type(converted))
        return converted

    def _typed(self, reason: Any) -> captured.CapturedException:
        converted = self._convert(reason)
        unknown = isinstance(converted, captured.UnknownException)
        return captured.SparkRuntimeException(origin=reason) if unknown else converted


def _with_causes(failure: Any) -> Iterator[Any]:
    for _ in range(_MOST_CAUSES):
        if failure is None:
            return
        yield failure
        failure = failure.getCause()


def _condition(failure: Any) -> str | None:
    """The condition of a failure in the JVM; None if it has none."""
    if not _is_of_spark(failure):
        return None
    gateway: Any = SparkContext._gateway
    found = gateway.jvm.PythonErrorUtils.getCondition(failure)
    return None if found is None else str(found)


def _is_of_spark(failure: Any) -> bool:
    return bool(is_instance_of(SparkContext._gateway, failure, "org.apache.spark.SparkThrowable"))
