"""Shows errors of Spark's JVM as typed PySpark exceptions, whatever Spark wraps them in.

PySpark raises a plain `Py4JJavaError` where Spark wraps the reason in an exception without a condition (in
scalar subqueries and in `toLocalIterator`), and where it does not know the class of an error with a condition
(`CATALOG_NOT_FOUND`). `install` has PySpark show the first error that has a condition. `getMessage` and
`getSqlState` work for Lakewarden's own errors as for Spark's, which PySpark knows from a list of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext
from pyspark.errors.exceptions import captured

from spark_ext.jar import SOURCES

#: What the conditions of Lakewarden's errors begin with.
PREFIX: Final = "LAKEWARDEN."
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


def install() -> None:
    """Have PySpark convert exceptions so. Calling it again has no effect."""
    convert = captured._convert_exception
    if not isinstance(convert, _Converting):
        vars(captured)["_convert_exception"] = _Converting(convert)


class _Converting:
    def __init__(self, convert: Callable[[Any], captured.CapturedException]) -> None:
        self._convert = convert

    def __call__(self, failure: Any) -> captured.CapturedException:
        converted = self._convert(failure)
        if converted.getCondition() is None:
            reason = next((each for each in _with_causes(failure) if _condition(each)), None)
            converted = converted if reason is None else self._typed(reason)
        ours = str(converted.getCondition()).startswith(PREFIX)
        return LakewardenRefusal(origin=converted._origin) if ours else converted

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
    gateway: Any = SparkContext._gateway
    if not is_instance_of(gateway, failure, "org.apache.spark.SparkThrowable"):
        return None
    found = gateway.jvm.PythonErrorUtils.getCondition(failure)
    return None if found is None else str(found)
