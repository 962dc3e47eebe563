"""Reading the audit trail, and checking its chains.

- Reading is by pages, so that a long trail neither fills memory nor holds a transaction open.
- Checking trusts no stored hash: each is computed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sqlalchemy import Engine, select, tuple_

from catalog.audit_records import (
    GENESIS,
    AuditRecord,
    Row,
    from_columns,
    principal_column,
    record_hash,
    resource_column,
)
from catalog.db.engine import read as read_transaction
from catalog.db.schema import lw_audit

_PAGE: Final = 1_000
_NO_RECORD: Final = ("", 0)

ProblemKind: TypeAlias = Literal["edited", "missing", "unlinked"]


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """A place where a chain does not hold.

    Attributes:
        writer: whose chain.
        sequence: number of the first record that does not fit.
        kind: `edited`: the record is not what its hash says; `missing`: records before it are gone;
            `unlinked`: the record itself is whole, but it does not follow the record before it.
        detail: one sentence for people.
    """

    writer: str
    sequence: int
    kind: ProblemKind
    detail: str


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and its place in the trail."""

    writer: str
    sequence: int
    record: AuditRecord


def verify(engine: Engine) -> list[AuditProblem]:
    """Check every chain; an empty list means that none was edited, thinned out or reordered.

    Raises:
        StateUnavailable: the database does not answer.
    """
    problems: list[AuditProblem] = []
    writer, sequence, previous_hash = "", 0, GENESIS
    for row in _rows(engine):
        if row["writer"] != writer:
            writer, sequence, previous_hash = str(row["writer"]), 0, GENESIS
        problem = _problem(row, sequence, previous_hash)
        if problem is not None:
            problems.append(problem)
        sequence, previous_hash = int(str(row["sequence"])), str(row["hash"])
    return problems


def read(
    engine: Engine,
    *,
    since_ms: int | None = None,
    principal: str | None = None,
    table: str | None = None,
    limit: int = 100,
) -> list[StoredRecord]:
    """The latest records, newest first.

    Args:
        engine: the catalog's database.
        since_ms: only records from this time on, in milliseconds since 1970 UTC.
        principal: only records of this user.
        table: only records whose resource is this dotted table name.
        limit: at most so many.

    Raises:
        StateUnavailable: the database does not answer.
    """
    query = select(lw_audit).order_by(lw_audit.c.at_ms.desc(), lw_audit.c.writer, lw_audit.c.sequence.desc())
    if since_ms is not None:
        query = query.where(lw_audit.c.at_ms >= since_ms)
    if principal is not None:
        query = query.where(lw_audit.c.principal == principal_column(principal))
    if table is not None:
        query = query.where(lw_audit.c.resource == resource_column(table))
    with read_transaction(engine) as connection:
        rows = connection.execute(query.limit(limit)).mappings().all()
    return [StoredRecord(row["writer"], row["sequence"], from_columns(dict(row))) for row in rows]


def _rows(engine: Engine) -> Iterator[Row]:
    """All records, chain by chain, in order."""
    key = tuple_(lw_audit.c.writer, lw_audit.c.sequence)
    last = _NO_RECORD
    while True:
        query = select(lw_audit).where(key > last).order_by(*key.clauses).limit(_PAGE)
        with read_transaction(engine) as connection:
            page = connection.execute(query).mappings().all()
        if not page:
            return
        yield from (dict(row) for row in page)
        last = (page[-1]["writer"], page[-1]["sequence"])


def _problem(row: Row, sequence: int, previous_hash: str) -> AuditProblem | None:
    """What is wrong with a record, given number and hash of the one before it."""
    writer, number = str(row["writer"]), int(str(row["sequence"]))
    if record_hash(row) != row["hash"]:
        return AuditProblem(writer, number, "edited", "The record is not what its hash says.")
    if number != sequence + 1:
        gone = f"The records {sequence + 1} to {number - 1} are missing."
        return AuditProblem(writer, number, "missing", gone)
    if row["previous_hash"] != previous_hash:
        return AuditProblem(writer, number, "unlinked", "The record does not follow the one before it.")
    return None
