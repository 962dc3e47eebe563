"""Lists, creates, disables, enables and destroys a table's keys, and checks the permissions for it.

- A disabled key decrypts nothing in any process, from the next use on.
- Destruction is permanent: data under a destroyed key can never be read again, nor can any copy of it. So the
  user repeats the table's name, and the keys are disabled for a waiting time before they are destroyed
  (`states`).
- To destroy one version, a user needs ALTER on the table. The version must not be in force, and no retained
  snapshot, tag or open write can need it. To destroy all versions together, a user needs DROP: it is
  equivalent to deleting the data under them.
- Both need `destroy` on the master key. A purge destroys the keys with the files
  (`catalog.tables.lifecycle`).
- A dropped table has no name that a policy could refer to, only its UUID. Administrators of the catalog list
  and destroy its keys. What needs a version cannot be determined, so all versions are destroyed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

from catalog.authorization import table_access
from catalog.authorization.authorizer import Caller
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord
from catalog.key_management.expiry import KeyEnds
from catalog.key_management.states import KeyStates, ShownKey, Standing
from catalog.key_management.uses import SnapshotUse, uses
from catalog.state import pek_records as key_records
from catalog.state import table_state
from catalog.state.table_state import TableRecord
from policy.encryption.epochs import PekRef
from policy.encryption.specification import EncryptionSpec, Mechanism
from policy.errors import RequestInvalid
from policy.privileges.operations import On, required
from policy.privileges.requests import AccessRequest

#: A table, by name; or a dropped table, by UUID.
Whose: TypeAlias = TableName | UUID


class KeyLife:
    """Shows keys and changes their states.

    Args:
        context: the parts that services share.
        states: shows and changes states.
        ends: determines what needs a key, and destroys keys whose waiting time has ended.
    """

    def __init__(self, context: ServiceContext, states: KeyStates, ends: KeyEnds) -> None:
        self._context = context
        self._states = states
        self._ends = ends

    def keys(self, caller: Caller, whose: Whose) -> list[ShownKey]:
        """List a table's keys in every version and state. The table's metadata is not read.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table is needed; for a dropped one, `admin` on the
                service.
            NoSuchTable: the table does not exist.
        """
        self._may_look(caller, "key.list", whose)
        return self._states.shown(self._record(whose))

    def show(
        self, caller: Caller, whose: Whose, pek_id: UUID
    ) -> tuple[list[ShownKey], dict[PekRef, list[SnapshotUse]]]:
        """Return the versions of one key, and the retained snapshots that need each version.

        For a dropped table, no snapshots are returned.

        Raises:
            NotAuthorized: as `keys`.
            RequestInvalid: the table has no such key.
            NoSuchTable, MetadataUnsealed, MetadataTampered: the table's needs cannot be determined.
        """
        self._may_look(caller, "key.show", whose)
        with self._context.authorizer.recorded(caller, "key.show", str(whose)):
            keys = [each for each in self._states.shown(self._record(whose)) if each.pek.id == pek_id]
            if not keys:
                raise _no_such_key(whose)
            if isinstance(whose, UUID):
                return keys, {}
            return keys, uses(self._context.reader, self._context.loader.load_sealed(whose))

    def create(self, caller: Caller, name: TableName, master_key_id: str) -> list[ShownKey]:
        """Create a table's key under a master key before it is used; an existing key is kept.

        Raises:
            NotAuthorized: ALTER on the table and `use` on the master key are needed.
            KeyNotUsable, KmsUnavailable: the master key cannot be used.
        """
        spec = EncryptionSpec(Mechanism.ENVELOPE, master_key_id)
        requests = self._needed(caller, "key.create", name, [master_key_id])
        self._context.authorizer.require(caller, "key.create", str(name), requests)
        record = self._record(name)
        _, made = self._context.keyring.keys_for(record, spec)
        with write(self._context.engine) as connection:
            key_records.add(connection, self._context.catalog, made, self._context.now_ms())
        return self._states.shown(record)

    def disable(
        self, caller: Caller, whose: Whose, pek_id: UUID | None = None, version: int | None = None
    ) -> list[ShownKey]:
        """Make keys unusable until they are enabled again.

        Args:
            caller: who asks.
            whose: the table.
            pek_id: one of its keys; all by default.
            version: one version of that key; all by default.

        Raises:
            NotAuthorized: ALTER on the table and `destroy` on the master keys are needed; for a dropped
                table, `admin` on the service.
            RequestInvalid: the table has no such key.
            CommitConflict: the state was changed by another request.
        """
        standing, peks = self._chosen(caller, "key.disable", "key.disable", whose, pek_id, version)
        self._states.disable(standing, peks)
        return self._states.shown(standing.record)

    def enable(
        self, caller: Caller, whose: Whose, pek_id: UUID | None = None, version: int | None = None
    ) -> list[ShownKey]:
        """Enable disabled keys again, including keys that are scheduled for destruction.

        Raises:
            as `disable`; KeyNotUsable: the key is destroyed, or its waiting time has ended.
        """
        standing, peks = self._chosen(caller, "key.enable", "key.enable", whose, pek_id, version)
        with self._context.authorizer.recorded(caller, "key.enable", str(whose)):
            self._states.enable(standing, peks)
        return self._states.shown(standing.record)

    def destroy(
        self,
        caller: Caller,
        whose: Whose,
        confirm: str,
        pek_id: UUID | None = None,
        version: int | None = None,
    ) -> list[ShownKey]:
        """Schedule keys for destruction: they are disabled, and can be enabled until the waiting time ends.

        Args:
            caller: who asks.
            whose: the table.
            confirm: the table's name, or UUID, repeated.
            pek_id: one of its keys; all by default.
            version: one version of that key, which nothing needs; all by default, needed or not.

        Raises:
            NotAuthorized: `destroy` on the master keys is needed; and ALTER on the table for one version,
                DROP for all; for a dropped table, `admin` on the service.
            RequestInvalid: the table has no such key, the name was not confirmed, or it is one version of a
                dropped table's key.
            KeyNotUsable: the version is in force, or a snapshot, tag or open write needs it; the message
                says which.
            CommitConflict: the state was changed by another request.
        """
        operation = "key.destroy" if version is None else "key.destroy.version"
        standing, peks = self._chosen(caller, "key.destroy", operation, whose, pek_id, version)
        with self._context.authorizer.recorded(caller, "key.destroy", str(whose)):
            _require_confirmed(whose, confirm)
            unneeded_in = None
            if version is not None:
                if isinstance(whose, UUID):
                    raise _only_together(whose)
                unneeded_in = self._ends.require_unneeded(standing.record, peks)
        self._states.destroy(standing, peks, unneeded_in)
        return self._states.shown(standing.record)

    def destroy_due(self) -> int:
        """Destroy the keys whose waiting time has ended, and return their number."""
        return self._ends.destroy_due()

    def _may_look(self, caller: Caller, action: str, whose: Whose) -> None:
        authorizer = self._context.authorizer.settled()
        ways = self._needed(caller, action, whose)
        table_access.require_any(authorizer, caller, action, str(whose), ways)

    def _chosen(
        self,
        caller: Caller,
        action: str,
        operation: str,
        whose: Whose,
        pek_id: UUID | None,
        version: int | None,
    ) -> tuple[Standing, list[PekRecord]]:
        """Check the caller's permissions, and return the table's keys and the requested ones of them."""
        first = self._needed(caller, operation, whose)
        self._context.authorizer.screen(caller, action, str(whose), *first)
        with self._context.authorizer.recorded(caller, action, str(whose)):
            standing = self._states.standing(self._record(whose))
            peks = standing.chosen(pek_id, version)
            if not peks:
                raise _no_such_key(whose)
        requests = self._needed(caller, operation, whose, [pek.master_key_id for pek in peks])
        self._context.authorizer.require(caller, action, str(whose), requests)
        return standing, peks

    def _needed(
        self, caller: Caller, operation: str, whose: Whose, masters: Sequence[str] = ()
    ) -> list[AccessRequest]:
        """Return the required privileges on a table, or on the service for a dropped table."""
        if isinstance(whose, UUID):
            return required("key.dropped", On.service(caller.principal, self._context.catalog))
        return required(operation, self._context.on(caller, whose), masters)

    def _record(self, whose: Whose) -> TableRecord:
        with read(self._context.engine) as connection:
            if isinstance(whose, UUID):
                record = table_state.tombstone(connection, self._context.catalog, whose)
            else:
                record = table_state.bound(connection, self._context.catalog, whose)
        if record is not None:
            return record
        if isinstance(whose, UUID):
            raise NoSuchTable(f"No dropped table has the UUID {whose}.", table=str(whose))
        raise NoSuchTable(f"The table {whose} does not exist.", table=str(whose))


def _require_confirmed(whose: Whose, confirm: str) -> None:
    if confirm != str(whose):
        raise RequestInvalid(
            "The destruction of the keys was not confirmed. Destroyed keys cannot be restored.",
            table=str(whose),
            rule="confirmation",
            hint=f"Give the table's {'UUID' if isinstance(whose, UUID) else 'dotted name'} once more.",
        )


def _only_together(whose: UUID) -> RequestInvalid:
    return RequestInvalid(
        "The table is dropped, so it is not known what needs the version. It cannot be destroyed alone.",
        table=str(whose),
        rule="dropped-table",
        hint="Destroy all versions of the key, or register the table again.",
    )


def _no_such_key(whose: Whose) -> RequestInvalid:
    return RequestInvalid(
        "The table has no such key, or no such version of it.",
        table=str(whose),
        rule="pek",
        hint="List the keys with `lakewarden key list`. To name a version, also give the id of its key.",
    )
