"""Finds wrapped keys of a whole catalog: by master key, KMS, age or table, in pages.

Keys are those of tables, of dropped tables and of the KMS endpoint. Destroyed versions have no key, and are
left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Select, and_, func, not_

from catalog.base.identifiers import TableName
from catalog.db.schema import lw_binding, lw_door_key, lw_pek, lw_table
from catalog.envelope.peks import PekRecord
from catalog.kms.clients import KmsKey
from catalog.state.pek_records import LIVE, from_row, is_after, of_catalog
from policy.encryption.epochs import PekRef


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which keys to find; what is None does not matter.

    Attributes:
        master_key_id: their master key, as tables name it.
        kms: the KMS that wraps them.
        kms_key_id: the master key in that KMS.
        table_uuid: their table.
        created_before_ms: an upper limit of their time of creation, in milliseconds since 1970.
        other_than: keys under this KMS key are left out.
    """

    master_key_id: str | None = None
    kms: str | None = None
    kms_key_id: str | None = None
    table_uuid: UUID | None = None
    created_before_ms: int | None = None
    other_than: KmsKey | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions on `lw_pek` and `lw_table`."""
        columns = lw_pek.c
        found: list[ColumnElement[bool]] = [columns.state.in_(LIVE)]
        equal = (
            (columns.master_key_id, self.master_key_id),
            (columns.kms, self.kms),
            (columns.kms_key_id, self.kms_key_id),
            (lw_table.c.table_uuid, None if self.table_uuid is None else str(self.table_uuid)),
        )
        found += [column == value for column, value in equal if value is not None]
        if self.created_before_ms is not None:
            found.append(columns.created_ms < self.created_before_ms)
        if self.other_than is not None:
            kms, key_id = self.other_than
            found.append(not_(and_(columns.kms == kms, columns.kms_key_id == key_id)))
        return found


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """What keys belong to.

    Attributes:
        master_key_id: their master key.
        table: name of their table; None if it has none, or there is no table.
        table_uuid: UUID of their table, if there is one.
        endpoint_key: name of their key of the KMS endpoint.
    """

    master_key_id: str
    table: TableName | None
    table_uuid: UUID | None
    endpoint_key: str | None


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key and its owner.

    Attributes:
        pek: the key.
        created_ms: when it was made.
        table: name of its table; None if the table is dropped or not created yet, or the key is not a
            table's.
        endpoint_key: name of the key of the KMS endpoint that it belongs to.
    """

    pek: PekRecord
    created_ms: int
    table: TableName | None
    endpoint_key: str | None


def select_keys(
    connection: Connection, catalog: str, chosen: KeyFilter, after: PekRef | None, limit: int
) -> list[PekRecord]:
    """Return keys, ordered by id and version.

    Args:
        connection: reads the keys.
        catalog: the catalog's name.
        chosen: which keys.
        after: the last key of the page before.
        limit: maximum number of keys.
    """
    statement = _page(of_catalog(catalog).where(*chosen.conditions()), after, limit)
    return [from_row(row, UUID(row.bound_to)) for row in connection.execute(statement)]


def list_keys(
    connection: Connection, catalog: str, chosen: KeyFilter, after: PekRef | None, limit: int
) -> list[StoredKey]:
    """Return keys with their owners; see `select_keys`."""
    statement = (
        _with_names(of_catalog(catalog))
        .add_columns(lw_binding.c.namespace, lw_binding.c.name, lw_door_key.c.name.label("endpoint_key"))
        .where(*chosen.conditions())
    )
    rows = connection.execute(_page(statement, after, limit))
    return [
        StoredKey(
            from_row(row, UUID(row.bound_to)),
            row.created_ms,
            _table(row.namespace, row.name),
            row.endpoint_key,
        )
        for row in rows
    ]


def count_by_owner(connection: Connection, catalog: str, chosen: KeyFilter) -> list[tuple[KeyOwner, int]]:
    """Return the owners of keys with their numbers of keys, ordered by name."""
    owner = (
        lw_pek.c.master_key_id,
        lw_binding.c.namespace,
        lw_binding.c.name,
        lw_table.c.table_uuid,
        lw_door_key.c.name,
    )
    statement = _with_names(of_catalog(catalog)).where(*chosen.conditions())
    counted = statement.with_only_columns(*owner, func.count(), maintain_column_froms=True)
    return [
        (
            KeyOwner(row[0], _table(row[1], row[2]), None if row[3] is None else UUID(row[3]), row[4]),
            row[5],
        )
        for row in connection.execute(counted.group_by(*owner).order_by(*owner))
    ]


def _with_names(statement: Select[tuple[Any, ...]]) -> Select[tuple[Any, ...]]:
    return statement.outerjoin(lw_binding, lw_binding.c.table_id == lw_pek.c.table_id)


def _table(namespace: str | None, name: str | None) -> TableName | None:
    return None if namespace is None or name is None else TableName(tuple(namespace.split(".")), name)


def _page(statement: Select[tuple[Any, ...]], after: PekRef | None, limit: int) -> Select[tuple[Any, ...]]:
    if after is not None:
        statement = statement.where(is_after(after))
    return statement.order_by(lw_pek.c.id, lw_pek.c.version).limit(limit)
