"""Raises errors of a database's driver as SQLAlchemy does, where the driver is called without it."""

from __future__ import annotations

from typing import cast

from sqlalchemy import exc
from sqlalchemy.engine import Dialect


def error_of(dialect: Dialect) -> type[Exception]:
    """Return the class of a driver's errors."""
    return cast(type[Exception], dialect.loaded_dbapi.Error)


def wrapped(dialect: Dialect, error: Exception) -> exc.SQLAlchemyError:
    """Return an error of the driver as SQLAlchemy's, without the statement and its parameters."""
    found = exc.DBAPIError.instance(
        None, None, error, error_of(dialect), hide_parameters=True, dialect=dialect
    )
    return cast(exc.SQLAlchemyError, found)
