"""Translates database failures to typed errors.

- Foreign errors are translated at one boundary (`catalog.db.engine`), by the tables of this module.
- The database's own error codes decide, never a message in some language; the one exception is SQLite's
  missing table, which has no code of its own.
- A broken constraint is the caller's business: `IntegrityError` is never translated here, nor is a mistake in
  the program.
- After a COMMIT that failed, only codes that prove a rollback count as "nothing was changed".
- No message repeats the URL or what the driver says, which may name hosts, users and statements.

Codes: SQLite, "Result and Error Codes"; PostgreSQL, Appendix A, "PostgreSQL Error Codes".
"""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy import exc

from policy.errors import CommitStateUnknown, LakewardenError, StateUnavailable

UPGRADE_HINT: Final = "Run `lakewarden db upgrade` with the same settings, then try again."

_LOCKED: Final = (
    "The catalog's database is locked by another transaction.",
    "Try again. If the error persists, find the program that holds the database open.",
)
_FULL: Final = (
    "The catalog's database cannot grow: its disk is full, or its quota is exhausted.",
    "Free disk space on the database's host, then try again.",
)
_ABSENT: Final = (
    "The catalog's database cannot be opened.",
    "Check which settings were read (`lakewarden.toml` here, unless `--config` names another "
    "file), `database.url`, that the file exists, and the permissions of its directory. "
    "`lakewarden init` creates a catalog; `lakewarden db upgrade` creates the database only.",
)
_READ_ONLY: Final = (
    "The catalog's database is read-only.",
    "Check the permissions of the database's file and directory, or that `database.url` names "
    "the primary server.",
)
_BROKEN: Final = (
    "The catalog's database cannot be read or written: the disk or the file is damaged.",
    "Check the disk, and restore the database from a backup if its file is damaged.",
)
_NOT_ANSWERING: Final = (
    "The catalog's database does not respond, or refuses the connection.",
    "Check that the server is running, and the address, user, password and database name in `database.url`.",
)
_TIMEOUT: Final = (
    "The catalog's database did not respond in time.",
    "Try again. If the error persists, check for load or for long transactions on the database.",
)
_SCHEMA: Final = ("The catalog's database lacks tables that this release needs.", UPGRADE_HINT)
_FORBIDDEN: Final = (
    "The catalog's database user lacks a permission.",
    "Make the user of `database.url` the owner of the tables.",
)

_Fault = tuple[str, str]

#: By prefix of SQLite's error name; the first match counts.
_SQLITE_FAULTS: Final[tuple[tuple[str, _Fault], ...]] = (
    ("SQLITE_BUSY", _LOCKED),
    ("SQLITE_LOCKED", _LOCKED),
    ("SQLITE_PROTOCOL", _LOCKED),
    ("SQLITE_FULL", _FULL),
    ("SQLITE_CANTOPEN", _ABSENT),
    ("SQLITE_PERM", _ABSENT),
    ("SQLITE_AUTH", _ABSENT),
    ("SQLITE_READONLY", _READ_ONLY),
    ("SQLITE_IOERR", _BROKEN),
    ("SQLITE_CORRUPT", _BROKEN),
    ("SQLITE_NOTADB", _BROKEN),
    ("SQLITE_NOLFS", _FULL),
)

#: By prefix of PostgreSQL's SQLSTATE; the first match counts.
_POSTGRES_FAULTS: Final[tuple[tuple[str, _Fault], ...]] = (
    ("08", _NOT_ANSWERING),
    ("25006", _READ_ONLY),
    ("28", _NOT_ANSWERING),
    ("3D000", _NOT_ANSWERING),
    ("40", _LOCKED),
    ("42501", _FORBIDDEN),
    ("42P01", _SCHEMA),
    ("42703", _SCHEMA),
    ("53100", _FULL),
    ("53", _NOT_ANSWERING),
    ("55P03", _LOCKED),
    ("57014", _TIMEOUT),
    ("57", _NOT_ANSWERING),
    ("25P03", _TIMEOUT),
    ("58", _BROKEN),
    ("XX001", _BROKEN),
    ("XX002", _BROKEN),
)

#: Failures of COMMIT after which the transaction is certainly rolled back.
_SQLITE_ROLLED_BACK: Final = ("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_CONSTRAINT")
_POSTGRES_ROLLED_BACK: Final = ("23", "25", "40", "53", "55")


def translate(error: exc.SQLAlchemyError) -> StateUnavailable | None:
    """Return the typed error for a failure outside of COMMIT, or None if the database is not the cause."""
    fault = _fault(error)
    return None if fault is None else StateUnavailable(fault[0], rule="database", hint=fault[1])


def translate_commit(error: exc.SQLAlchemyError) -> LakewardenError | None:
    """Return the typed error for a failure of COMMIT, or None for a violated constraint.

    Without proof that the transaction was rolled back, the answer is `CommitStateUnknown`.
    """
    if isinstance(error, exc.IntegrityError):
        return None
    if _is_rolled_back(error):
        return translate(error)
    return CommitStateUnknown(
        "The catalog's database failed during a commit; it is not known whether the change took effect.",
        rule="database",
        hint="Load the object again and check its state before you repeat the change.",
    )


def _fault(error: exc.SQLAlchemyError) -> _Fault | None:
    if isinstance(error, exc.TimeoutError):
        return _TIMEOUT
    if not isinstance(error, exc.DBAPIError) or isinstance(error, exc.IntegrityError):
        return None
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_fault(error.orig)
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return _first(_POSTGRES_FAULTS, state)
    return _NOT_ANSWERING if isinstance(error, exc.OperationalError | exc.InterfaceError) else None


def _sqlite_fault(error: sqlite3.Error) -> _Fault | None:
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_ERROR" and str(error).startswith(("no such table", "no such column")):
        return _SCHEMA
    return _first(_SQLITE_FAULTS, name)


def _first(faults: tuple[tuple[str, _Fault], ...], code: str) -> _Fault | None:
    return next((fault for prefix, fault in faults if code.startswith(prefix)), None)


def _is_rolled_back(error: exc.SQLAlchemyError) -> bool:
    if not isinstance(error, exc.DBAPIError) or error.connection_invalidated:
        return False
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorname", "").startswith(_SQLITE_ROLLED_BACK)
    return (getattr(error.orig, "sqlstate", None) or "").startswith(_POSTGRES_ROLLED_BACK)
