"""Serves standard Parquet readers: unwraps the key-encryption keys (KEKs) that files carry.

- A KEK is opened for a table that says `encryption.stock-readers=true` now, and for nobody else's files:
  table and key are what the wrapped KEK says, which its opening proves.
- Entitled is who may select, unmasked and without a row filter, every column that the key opens, under every
  name that a schema of the table gives it; and who has `release` on its master key. The footer's key of a
  file with column keys opens the columns that have none; where all have one, any column will do, since the
  footer tells of all of them.
- A PEK never leaves; one that is disabled or destroyed opens nothing. A table that was dropped opens nothing.
- Each answer is on record first.

Source: docs/key-metadata.md, "Keys for standard Parquet readers".
"""

from __future__ import annotations

from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import every_name, refuse_masks, selects
from catalog.context import ServiceContext
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read
from catalog.envelope.parquet_key_tools import KekClaims, claims_of, open_kek
from catalog.reading.loading import LoadedTable
from catalog.state import table_state
from catalog.state.table_state import TableRecord, TableState
from policy.decision import Decision, Reason
from policy.encryption.epochs import Epoch, PekRef
from policy.errors import DecryptionRefused, KeyNotUsable, NotAuthorized
from policy.privileges.operations import key_requests, required
from policy.view import ColumnNames

ACTION: Final = "door.unwrap"


class ParquetKeyEndpoint:
    """Unwraps KEKs for standard Parquet readers.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def unwrap(self, caller: Caller, master_key_id: str, wrapped: str) -> SecretBytes:
        """Unwrap the KEK in a file's key material.

        Args:
            caller: who reads, without an engine.
            master_key_id: the master key that the file names beside it.
            wrapped: the wrapped KEK, in base64.

        Raises:
            DecryptionRefused: no wrapped KEK, changed, or of another master key.
            NotAuthorized: a column that the key opens, or the key, is not granted; or there is no such table
                any more, or none that the caller may know of.
            KeyNotUsable: the table does not let standard readers in, or its key is disabled.
            MetadataUnsealed, MetadataTampered: the table cannot be trusted as it is.
            KmsUnavailable: the KMS does not answer.
        """
        claims = claims_of(wrapped)
        record = self._table(caller, claims)
        with self._context.authorizer.recorded(caller, ACTION, str(record.name)):
            table = self._context.loader.load_sealed(record.name)
            epoch = self._epoch(table, claims)
            self._authorize(caller, table, _columns(table, epoch, claims, master_key_id), master_key_id)
            if table.record.id != record.id or not table.governed.spec.stock_readers:
                raise _shut(table)
            ref = PekRef(claims.pek_id, claims.pek_version, master_key_id)
            return open_kek(wrapped, self._context.keyring.open_peks(table.record, [ref])[ref])

    def _table(self, caller: Caller, claims: KekClaims) -> TableRecord:
        """The table; to those without any right on it nothing is told of it, not even that it is there."""
        with read(self._context.engine) as connection:
            record = table_state.table_by_uuid(connection, claims.table_uuid)
        if record is not None and record.state is TableState.ACTIVE and self._may_see(caller, record):
            return record
        unknown = Reason(
            "stock-readers", "The table of the key does not exist, or you have no permission on it."
        )
        self._context.authorizer.record(caller, ACTION, f"table {claims.table_uuid}", Decision.deny(unknown))
        raise NotAuthorized(
            f"{caller.principal.name} is not authorized ({ACTION}): {unknown.detail}",
            rule=unknown.rule,
            hint="Ask the owner of the file for the permission.",
        )

    def _may_see(self, caller: Caller, record: TableRecord) -> bool:
        seen = required("table.exists", caller.on(record.name, record.owner))
        return self._context.authorizer.decide(seen).allowed

    def _epoch(self, table: LoadedTable, claims: KekClaims) -> Epoch:
        """How files of the write were encrypted that the KEK was made for."""
        with read(self._context.engine) as connection:
            governed = table_state.governed_version(connection, table.record.id, claims.governed_version)
        if governed is None or not governed.spec.encrypts:
            raise _foreign(table)
        return governed.epochs.current

    def _authorize(
        self, caller: Caller, table: LoadedTable, names: ColumnNames | None, master_key_id: str
    ) -> None:
        """Refuse, with a record, callers without permission on everything that the key opens.

        Args:
            caller: who reads.
            table: the table.
            names: the columns that it opens, or None where any column of the table will do.
            master_key_id: the key's master key.
        """
        asked = key_requests(caller.principal, [master_key_id], "release")
        if names is None:
            tops = frozenset(each.name for each in table.metadata.schema().fields)
            ways = selects(self._context.authorizer, caller, table, ColumnNames(tops))
            self._context.authorizer.screen(caller, ACTION, table.name, *ways)
            names = ColumnNames()
        asked += selects(self._context.authorizer, caller, table, names)
        self._context.authorizer.require(caller, ACTION, table.name, asked)
        refuse_masks(self._context.authorizer, caller, table, names, action=ACTION)


def _columns(table: LoadedTable, epoch: Epoch, claims: KekClaims, master_key_id: str) -> ColumnNames | None:
    """Return the columns that a key opens, under every name; None if it opens whole files."""
    fields = {field_id for schema in table.metadata.schemas for field_id in schema.field_ids}
    groups = {group.key_id: frozenset(group.field_ids) for group in epoch.columns}
    if claims.of_group:
        # A field that no schema names has no policy, and its key is released to nobody.
        if master_key_id not in groups or not groups[master_key_id] <= fields:
            raise _foreign(table)
        return every_name(table, groups[master_key_id])
    if epoch.spec.master_key_id != master_key_id:
        raise _foreign(table)
    if not groups:
        return every_name(table)
    names = every_name(table, frozenset(fields).difference(*groups.values()))
    return names if names.columns else None


def _foreign(table: LoadedTable) -> DecryptionRefused:
    return DecryptionRefused(
        "The wrapped key is not one that this table's files carry under that master key.",
        table=table.name,
        rule="wrapped-kek",
        hint="Send the wrapped key from the file's key material, unchanged.",
    )


def _shut(table: LoadedTable) -> KeyNotUsable:
    return KeyNotUsable(
        "The table does not permit standard Parquet readers.",
        table=table.name,
        rule="stock-readers",
        hint="Read the table through Lakewarden, or ask its owner to set encryption.stock-readers=true.",
    )
