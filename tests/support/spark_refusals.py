"""Refusals as a Spark user meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_PREFIX = "LAKEWARDEN."


def refusal(action: Callable[[], Any]) -> PySparkException:
    """The refusal that an action ends with. A DataFrame is analyzed, which Spark Connect puts off."""
    with pytest.raises(PySparkException) as refused:
        made = action()
        if isinstance(made, DataFrame):
            _ = made.schema
    return refused.value


def refused_as(condition: str, session: SparkSession, statement: str) -> str:
    """Hold a statement's refusal against an error class; returns its message.

    Args:
        condition: Lakewarden's own without its prefix, such as ``NOT_AUTHORIZED``; or one of Spark's, which
            Lakewarden has no name for, such as ``SCHEMA_NOT_FOUND``.
        session: whose statement it is.
        statement: SQL.
    """
    error = refusal(lambda: session.sql(statement).collect())
    found = str(error.getCondition()).removeprefix(_PREFIX)
    assert found == condition, f"{statement}: {error}"
    return str(error).splitlines()[0]


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make a session the thread's active one, whose settings Spark goes by where it is not told another.

    Requests of Spark Connect always go by their own session.
    """
    if not isinstance(session, SparkSession):
        yield
        return
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
