"""Stores wrapped keys in the database: one row per version of a PEK, and per key of the KMS endpoint.

- The *active* version wraps the keys of new files; the epoch in force names it. When a later version replaces
  it, it becomes *decrypt-only*.
- A *disabled* version decrypts nothing. If it has a time of destruction, it can be enabled again until then.
- A *destroyed* version is only a name: its wrapped key is overwritten, and data under it is lost permanently.
- Every process reads the states with every use, so no notification is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from catalog.base.errors import CommitConflict
from catalog.db.schema import lw_door_key, lw_pek, lw_table
from catalog.envelope.peks import PekRecord, PekState
from catalog.kms.clients import KmsKey
from catalog.state import master_keys
from catalog.state.table_state import TableRecord
from policy.encryption.epochs import PekRef

#: States in which the key material exists.
LIVE: Final = (PekState.ACTIVE, PekState.DECRYPT_ONLY, PekState.DISABLED)
_GONE: Final = {"state": PekState.DESTROYED, "wrapped": b"", "key_check": None, "destroy_after_ms": None}

#: Every scan and write of an encrypted table runs this statement, so it is built once.
_OF_TABLE: Final = (
    select(lw_pek)
    .where(lw_pek.c.table_id == bindparam("table_id"))
    .order_by(lw_pek.c.master_key_id, lw_pek.c.id, lw_pek.c.version)
)


def add(connection: Connection, catalog: str, peks: Iterable[PekRecord], at_ms: int) -> None:
    """Add new keys, wrapped by their master keys.

    Raises:
        CommitConflict: another commit made a PEK for the same master key, or the master key was moved to
            another KMS key since.
    """
    peks = tuple(peks)
    rows = [
        {
            "id": str(pek.id),
            "version": pek.version,
            "table_id": pek.table_id or None,
            "master_key_id": pek.master_key_id,
            "kms": pek.kms,
            "kms_key_id": pek.kms_key.key_id,
            "wrapped": pek.wrapped,
            "state": pek.state,
            "created_ms": at_ms,
            "key_check": pek.check,
        }
        for pek in peks
    ]
    if not rows:
        return
    master_keys.require_assigned(connection, catalog, peks, at_ms)
    try:
        connection.execute(insert(lw_pek), rows)
    except IntegrityError as error:
        raise CommitConflict("Another request changed the keys of the table at the same time.") from error


def of_table(connection: Connection, table: TableRecord) -> list[PekRecord]:
    """Return all PEKs of a table in every version and state; versions of one PEK in order."""
    rows = connection.execute(_OF_TABLE, {"table_id": table.id})
    return [from_row(row, table.table_uuid) for row in rows]


def require(connection: Connection, refs: Iterable[PekRef], *states: PekState) -> None:
    """Check that versions are in certain states, in the transaction that relies on it.

    Raises:
        CommitConflict: a version is no longer in one of the states.
    """
    for ref in refs:
        mine = (lw_pek.c.id == str(ref.pek_id), lw_pek.c.version == ref.version)
        if connection.scalar(select(lw_pek.c.state).where(*mine)) not in states:
            raise changed_meanwhile()


def changed_meanwhile() -> CommitConflict:
    """Build the error for keys that have changed since they were read."""
    return CommitConflict(
        "Another request changed the state of a key.",
        rule="pek-state",
        hint="List the keys again, and repeat the command if it is still needed.",
    )


def retire_before(connection: Connection, table_id: str, in_force: Iterable[PekRef]) -> None:
    """Make the earlier versions of the PEKs in force decrypt-only."""
    for ref in in_force:
        earlier = (
            lw_pek.c.table_id == table_id,
            lw_pek.c.id == str(ref.pek_id),
            lw_pek.c.version < ref.version,
            lw_pek.c.state == PekState.ACTIVE,
        )
        connection.execute(update(lw_pek).where(*earlier).values(state=PekState.DECRYPT_ONLY))


def move(
    connection: Connection, pek: PekRecord, after: PekState, *, destroy_after_ms: int | None = None
) -> bool:
    """Change the state of a PEK version; return False if it has changed since it was read.

    Args:
        connection: in a transaction that writes.
        pek: the version, as it was read.
        after: its new state; for `DESTROYED`, use `destroy`.
        destroy_after_ms: time of its destruction, in milliseconds since 1970.
    """
    values = {"state": after, "destroy_after_ms": destroy_after_ms}
    return connection.execute(update(lw_pek).where(_as_read(pek)).values(**values)).rowcount == 1


def due(connection: Connection, catalog: str, now_ms: int) -> list[PekRecord]:
    """Return the versions whose time of destruction has passed."""
    statement = of_catalog(catalog).where(
        lw_pek.c.state == PekState.DISABLED, lw_pek.c.destroy_after_ms <= now_ms
    )
    return [from_row(row, UUID(row.bound_to)) for row in connection.execute(statement)]


def destroy(connection: Connection, pek: PekRecord) -> bool:
    """Overwrite a version that is due for destruction; return False if it has changed since it was read."""
    return connection.execute(update(lw_pek).where(_as_read(pek)).values(**_GONE)).rowcount == 1


def destroy_all(connection: Connection, table_id: str) -> None:
    """Overwrite every key of a table."""
    connection.execute(update(lw_pek).where(lw_pek.c.table_id == table_id).values(**_GONE))


def replace_wrapped(
    connection: Connection, pek: PekRecord, wrapped: bytes, check: bytes, key: KmsKey | None = None
) -> bool:
    """Store another wrapped form of the same key; return False if it has changed since it was read.

    Args:
        connection: in a transaction that writes.
        pek: the key, as it was read.
        wrapped: its new form.
        check: its check value.
        key: the KMS key of the new form; the same as before by default.
    """
    same = (lw_pek.c.id == str(pek.id), lw_pek.c.version == pek.version, lw_pek.c.wrapped == pek.wrapped)
    statement = update(lw_pek).where(*same, lw_pek.c.state.in_(LIVE))
    kms, kms_key_id = key or pek.kms_key
    values = {"wrapped": wrapped, "key_check": check, "kms": kms, "kms_key_id": kms_key_id}
    return connection.execute(statement.values(**values)).rowcount == 1


def add_check(connection: Connection, ref: PekRef, check: bytes) -> None:
    """Store the check value of a version that has none; an existing one stays."""
    mine = (lw_pek.c.id == str(ref.pek_id), lw_pek.c.version == ref.version)
    bare = (lw_pek.c.key_check.is_(None), lw_pek.c.state.in_(LIVE))
    connection.execute(update(lw_pek).where(*mine, *bare).values(key_check=check))


def is_after(ref: PekRef) -> ColumnElement[bool]:
    """The condition for keys after another one, by id and version."""
    last = str(ref.pek_id)
    return or_(lw_pek.c.id > last, and_(lw_pek.c.id == last, lw_pek.c.version > ref.version))


def _as_read(pek: PekRecord) -> ColumnElement[bool]:
    at = lw_pek.c.destroy_after_ms
    return and_(
        lw_pek.c.id == str(pek.id),
        lw_pek.c.version == pek.version,
        lw_pek.c.state == pek.state,
        at.is_(None) if pek.destroy_after_ms is None else at == pek.destroy_after_ms,
    )


def of_catalog(catalog: str) -> Select[tuple[Any, ...]]:
    """Select the keys of tables and of the KMS endpoint, with the UUID that each is bound to."""
    return (
        select(lw_pek, func.coalesce(lw_table.c.table_uuid, lw_pek.c.id).label("bound_to"))
        .outerjoin(lw_table, lw_table.c.id == lw_pek.c.table_id)
        .outerjoin(lw_door_key, lw_door_key.c.id == lw_pek.c.id)
        .where(func.coalesce(lw_table.c.catalog, lw_door_key.c.catalog) == catalog)
    )


def from_row(row: Row[Any], table_uuid: UUID) -> PekRecord:
    """Convert a row of `lw_pek` to a record."""
    return PekRecord(
        id=UUID(row.id),
        table_id=row.table_id or "",
        table_uuid=table_uuid,
        master_key_id=row.master_key_id,
        version=row.version,
        wrapped=row.wrapped,
        kms=row.kms,
        kms_key_id=row.kms_key_id,
        state=PekState(row.state),
        destroy_after_ms=row.destroy_after_ms,
        check=row.key_check,
    )
