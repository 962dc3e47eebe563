"""Stores which key of which KMS each master key id stands for.

- Tables, policies and key metadata name a master key by its id. The id stays the same when its keys move to
  another master key of the KMS, or to another KMS.
- An id is assigned at the latest when the first key is stored that it wraps. Later changes of the settings do
  not change it.
- New keys are stored only under the KMS key that their id stands for at that time. `require_assigned` locks
  the assignment, so that a key that was made before a change and stored after it is refused. So once an
  assignment has changed, the keys that remain under the KMS key before are all in the database.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, select

from catalog.base.errors import CommitConflict
from catalog.db.inserts import insert_into
from catalog.db.schema import lw_master_key
from catalog.envelope.peks import PekRecord
from catalog.kms.clients import KmsKey

_ID, _KEY = lw_master_key.c.id, (lw_master_key.c.kms, lw_master_key.c.kms_key_id)


def assigned(connection: Connection, catalog: str, master_key_id: str) -> KmsKey | None:
    """Return the KMS key that a master key id stands for; None if none was assigned yet."""
    row = connection.execute(select(*_KEY).where(*_is(catalog, master_key_id))).one_or_none()
    return None if row is None else KmsKey(*row)


def all_assigned(connection: Connection, catalog: str) -> dict[str, KmsKey]:
    """Return the KMS key of every master key id that has one, by the id."""
    rows = connection.execute(select(_ID, *_KEY).where(lw_master_key.c.catalog == catalog).order_by(_ID))
    return {row.id: KmsKey(row.kms, row.kms_key_id) for row in rows}


def assign(
    connection: Connection, catalog: str, master_key_id: str, key: KmsKey, author: str, at_ms: int
) -> None:
    """Let a master key id stand for a KMS key. Waits for transactions that store keys under the one before.

    Args:
        connection: in a transaction that writes.
        catalog: the catalog's name.
        master_key_id: the id.
        key: the KMS key.
        author: the user who changes it.
        at_ms: the time.
    """
    row = _row(catalog, master_key_id, key, author, at_ms)
    statement = insert_into(connection, lw_master_key).values(row)
    changed = {name: statement.excluded[name] for name in ("kms", "kms_key_id", "author", "changed_ms")}
    connection.execute(statement.on_conflict_do_update(index_elements=_PRIMARY, set_=changed))


def require_assigned(connection: Connection, catalog: str, peks: Iterable[PekRecord], at_ms: int) -> None:
    """Check that new keys are under the KMS keys that their master key ids stand for.

    An id without a KMS key gets that of the new key.

    Raises:
        CommitConflict: the id was assigned to another KMS key since the key was made.
    """
    by_id = {pek.master_key_id: pek.kms_key for pek in peks}
    for master_key_id, key in sorted(by_id.items()):
        first = insert_into(connection, lw_master_key).values(_row(catalog, master_key_id, key, "", at_ms))
        connection.execute(first.on_conflict_do_nothing(index_elements=_PRIMARY))
        require_still(connection, catalog, master_key_id, key)


def require_still(connection: Connection, catalog: str, master_key_id: str, key: KmsKey) -> None:
    """Check that a master key id stands for a KMS key, and lock that until the transaction ends.

    Raises:
        CommitConflict: it was assigned to another one.
    """
    query = select(*_KEY).where(*_is(catalog, master_key_id)).with_for_update(read=True)
    row = connection.execute(query).one_or_none()
    if row is None or KmsKey(*row) != key:
        raise CommitConflict(
            f"The master key {master_key_id!r} was assigned to another KMS key at the same time.",
            rule="master-key",
            hint="Repeat the request.",
        )


_PRIMARY = list(lw_master_key.primary_key)


def _is(catalog: str, master_key_id: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return lw_master_key.c.catalog == catalog, _ID == master_key_id  # noqa: SIM300


def _row(catalog: str, master_key_id: str, key: KmsKey, author: str, at_ms: int) -> dict[str, object]:
    return {
        "catalog": catalog,
        "id": master_key_id,
        "kms": key.kms,
        "kms_key_id": key.key_id,
        "author": author,
        "changed_ms": at_ms,
    }
