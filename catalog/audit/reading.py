"""Reads and searches the audit log.

- Reading is by pages, so that a long log does not fill memory or hold a transaction open.
- Pages are ordered by time, writer and number, so that new records neither shift nor repeat earlier results.
- A reader that follows the log keeps the number of the last record of each chain. So it gets each record
  exactly once, even if the clocks of the writers differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Engine, and_, func, or_, select, tuple_

from catalog.audit.records import AuditRecord, Row, from_columns, principal_column, resource_column
from catalog.db.engine import read as read_transaction
from catalog.db.schema import lw_audit, lw_audit_chain
from policy.errors import RequestInvalid

_PAGE: Final = 1_000
_CHAINS: Final = 50
_NO_RECORD: Final = ("", 0)
_PLACE: Final = re.compile(r"([0-9]{1,18})\.([0-9A-Za-z-]{1,36})\.([0-9]{1,18})", re.ASCII)


class RecordPosition(NamedTuple):
    """The position of a record: ordered by time, then by writer and number."""

    at_ms: int
    writer: str
    sequence: int

    def text(self) -> str:
        """Return the position as a page token."""
        return f"{self.at_ms}.{self.writer}.{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> RecordPosition:
        """Parse a page token that `text` returned.

        Raises:
            RequestInvalid: it is not a page token.
        """
        matched = _PLACE.fullmatch(text)
        if matched is None:
            raise RequestInvalid(
                "The page token is not valid.",
                rule="page-token",
                hint="Send the `next-page-token` of the previous page, unchanged.",
            )
        return cls(int(matched[1]), matched[2], int(matched[3]))


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and its position in the log."""

    writer: str
    sequence: int
    record: AuditRecord

    @property
    def position(self) -> RecordPosition:
        """Return the position of the record."""
        return RecordPosition(self.record.at_ms, self.writer, self.sequence)


def read(
    engine: Engine,
    *,
    since_ms: int | None = None,
    principal: str | None = None,
    table: str | None = None,
    refusals: bool = False,
    before: RecordPosition | None = None,
    limit: int = 100,
) -> list[StoredRecord]:
    """Return the latest records, newest first.

    Args:
        engine: the catalog's database.
        since_ms: only records from this time on, in milliseconds since 1970 UTC.
        principal: only records of this user.
        table: only records whose resource is this dotted table name.
        refusals: only refusals (`records.is_refusal`).
        before: only records before this position.
        limit: maximum number of records.

    Raises:
        StateUnavailable: the database does not answer.
    """
    column = lw_audit.c
    query = select(lw_audit).order_by(column.at_ms.desc(), column.writer.desc(), column.sequence.desc())
    if since_ms is not None:
        query = query.where(column.at_ms >= since_ms)
    if principal is not None:
        query = query.where(column.principal == principal_column(principal))
    if table is not None:
        query = query.where(column.resource == resource_column(table))
    if refusals:
        query = query.where(~column.allowed, ~column.begun)
    if before is not None:
        # The first condition lets the database use the index.
        place = tuple_(column.at_ms, column.writer, column.sequence)
        query = query.where(column.at_ms <= before.at_ms, place < before)
    with read_transaction(engine) as connection:
        rows = connection.execute(query.limit(limit)).mappings().all()
    return [StoredRecord(row["writer"], row["sequence"], from_columns(dict(row))) for row in rows]


def count_since(engine: Engine, since_ms: int, most: int) -> int:
    """Count the records from a time on; no more than `most` are looked at.

    Raises:
        StateUnavailable: the database does not answer.
    """
    some = select(lw_audit.c.sequence).where(lw_audit.c.at_ms >= since_ms).limit(most).subquery()
    with read_transaction(engine) as connection:
        return connection.execute(select(func.count()).select_from(some)).scalar_one()


def all_rows(engine: Engine) -> Iterator[Row]:
    """Return all records, chain by chain, in order.

    Raises:
        StateUnavailable: the database does not answer.
    """
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


def rows_between(engine: Engine, writer: str, after: int, up_to: int) -> Iterator[Row]:
    """Return records of one chain, in order.

    Args:
        engine: the catalog's database.
        writer: the chain.
        after: the number of the record before the first one.
        up_to: the number of the last one.

    Raises:
        StateUnavailable: the database does not answer.
    """
    column = lw_audit.c
    while after < up_to:
        here = (column.writer == writer, column.sequence > after, column.sequence <= up_to)
        query = select(lw_audit).where(*here).order_by(column.sequence).limit(_PAGE)
        with read_transaction(engine) as connection:
            page = connection.execute(query).mappings().all()
        if not page:
            return
        yield from (dict(row) for row in page)
        after = page[-1]["sequence"]


def ends(engine: Engine) -> dict[str, int]:
    """Return the number of the last record of each chain.

    Raises:
        StateUnavailable: the database does not answer.
    """
    with read_transaction(engine) as connection:
        found = connection.execute(select(lw_audit_chain.c.writer, lw_audit_chain.c.sequence))
        return {row.writer: row.sequence for row in found}


def rows_up_to(engine: Engine, numbers: Mapping[str, int], since_ms: int) -> Iterator[Row]:
    """Return records up to given numbers in their chains, oldest first.

    Args:
        engine: the catalog's database.
        numbers: the result of `ends`.
        since_ms: only records from this time on, in milliseconds since 1970 UTC.

    Raises:
        StateUnavailable: the database does not answer.
    """
    place = tuple_(lw_audit.c.at_ms, lw_audit.c.writer, lw_audit.c.sequence)
    last = RecordPosition(since_ms, "", 0)
    while True:
        query = select(lw_audit).where(lw_audit.c.at_ms >= last.at_ms, place > last)
        with read_transaction(engine) as connection:
            page = connection.execute(query.order_by(*place.clauses).limit(_PAGE)).mappings().all()
        if not page:
            return
        yield from (dict(row) for row in page if row["sequence"] <= numbers.get(row["writer"], 0))
        last = RecordPosition(page[-1]["at_ms"], page[-1]["writer"], page[-1]["sequence"])


def rows_after(engine: Engine, numbers: Mapping[str, int]) -> list[Row]:
    """Return the next records of chains that continued, chain by chain.

    Args:
        engine: the catalog's database.
        numbers: number of the last known record, by chain.

    Returns:
        at most one page of records; empty if there are no more.

    Raises:
        StateUnavailable: the database does not answer.
    """
    changed = [each for each, number in ends(engine).items() if number > numbers.get(each, 0)]
    column = lw_audit.c
    nexts = [
        and_(column.writer == each, column.sequence > numbers.get(each, 0))
        for each in sorted(changed)[:_CHAINS]
    ]
    if not nexts:
        return []
    query = select(lw_audit).where(or_(*nexts)).order_by(column.writer, column.sequence).limit(_PAGE)
    with read_transaction(engine) as connection:
        return [dict(row) for row in connection.execute(query).mappings()]
