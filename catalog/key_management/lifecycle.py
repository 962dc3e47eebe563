"""The life of a table's keys: listed, made ahead, disabled, enabled again, destroyed; and who may do that.

- A disabled key opens nothing, in any process, from the next use on.
- Destroying is for good: what is under a key that is gone can never be read again, wherever it was copied to.
  So it takes the table's name typed once more, and a time to think again (`key_states`).
- One version that nothing is under any more can be destroyed by whoever may ALTER the table. One that a
  retained snapshot, a tag or an open write needs is not destroyed by itself; all versions together are, which
  is as good as deleting what is under them, and takes DROP.
- Either takes `destroy` on the master key. A purge takes the keys with the files (`lifecycle`).
- A dropped table has no name that a policy could be about, only its UUID: its keys are looked at and shredded
  by who administers the catalog. What still needs one version of them cannot be known, so they go together.
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

#: A table by its name, or a dropped one by its UUID.
Whose: TypeAlias = TableName | UUID


class KeyLife:
    """Shows keys and changes their states.

    Args:
        context: the parts that services share.
        states: shows and changes states.
        ends: knows what needs a key, and destroys those whose time has come.
    """

    def __init__(self, context: ServiceContext, states: KeyStates, ends: KeyEnds) -> None:
        self._context = context
        self._states = states
        self._ends = ends

    def keys(self, caller: Caller, whose: Whose) -> list[ShownKey]:
        """A table's keys in every version and state, whatever its metadata looks like.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table is needed; for a dropped one, `admin` on the
                service.
            NoSuchTable: there is none.
        """
        self._may_look(caller, "key.list", whose)
        return self._states.shown(self._record(whose))

    def show(
        self, caller: Caller, whose: Whose, pek_id: UUID
    ) -> tuple[list[ShownKey], dict[PekRef, list[SnapshotUse]]]:
        """The versions of a table's key, and which retained snapshots need which; of a dropped one, none.

        Raises:
            NotAuthorized: as `keys`.
            RequestInvalid: the table has no such key.
            NoSuchTable, MetadataUnsealed, MetadataTampered: what is needed cannot be known.
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
        """Make a table's key under a master key ahead of its use; one that is there is kept.

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
            key_records.add(connection, made, self._context.now_ms())
        return self._states.shown(record)

    def disable(
        self, caller: Caller, whose: Whose, pek_id: UUID | None = None, version: int | None = None
    ) -> list[ShownKey]:
        """Make keys unusable until they are enabled again.

        Args:
            caller: who asks.
            whose: the table.
            pek_id: one of its keys; all by default.
            version: one version of that; all by default.

        Raises:
            NotAuthorized: ALTER on the table and `destroy` on the master keys are needed; for a dropped
                table, `admin` on the service.
            RequestInvalid: the table has no such key.
            CommitConflict: its state was changed meanwhile.
        """
        standing, peks = self._chosen(caller, "key.disable", "key.disable", whose, pek_id, version)
        self._states.disable(standing, peks)
        return self._states.shown(standing.record)

    def enable(
        self, caller: Caller, whose: Whose, pek_id: UUID | None = None, version: int | None = None
    ) -> list[ShownKey]:
        """Make disabled keys usable again, those on their way to be destroyed included.

        Raises:
            as `disable`; KeyNotUsable: it is destroyed, or about to be.
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
        """Destroy keys, after a time in which they are disabled and can be enabled again.

        Args:
            caller: who asks.
            whose: the table.
            confirm: the table's name, or UUID, again, in confirm.
            pek_id: one of its keys; all by default.
            version: one version of that, which nothing may need; all by default, needed or not.

        Raises:
            NotAuthorized: `destroy` on the master keys is needed; and ALTER on the table for one version,
                DROP for all; for a dropped table, `admin` on the service.
            RequestInvalid: the table has no such key, the name was not confirmed, or it is one version of a
                dropped table's key.
            KeyNotUsable: the version is in force, or a snapshot, tag or open write needs it; says which.
            CommitConflict: its state was changed meanwhile.
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
        """Destroy the keys whose time has come; how many they were."""
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
        """A table's keys, and those that are meant, if the caller may do this to them."""
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
        """What an operation needs on a table; on what is left of a dropped one, to administer the catalog."""
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
