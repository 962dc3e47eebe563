"""The states of a table's keys: listed, made ahead, disabled, enabled again, destroyed.

- A disabled key opens nothing, in any process, from the next use on.
- Destroying is for good: what is under a key that is gone can never be read again, wherever it was copied to.
  So it takes the table's name typed once more, and a time to think again: until that is over the key is
  disabled, and can be enabled.
- One version that nothing is under any more can be destroyed by whoever may ALTER the table. One that a
  retained snapshot, a tag or an open write needs is not destroyed by itself; all versions together are, which
  is as good as deleting what is under them, and takes DROP.
- Either takes `destroy` on the master key. A purge takes the keys with the files (`lifecycle`).
- A state is changed under the table's lock, and only if the keys, what governs the table, and, where nothing
  may need a version, the table itself are still what was looked at. Landings look at the states under the
  same lock (`landing`): neither gets in between the check and the effect of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn
from uuid import UUID

from sqlalchemy import Connection, Engine

from catalog import gates, key_records, seals, state
from catalog.authorize import Authorizer, Caller
from catalog.db.engine import read, write
from catalog.errors import NoSuchTable
from catalog.identifiers import TableName
from catalog.key_ends import KeyEnds
from catalog.key_uses import Need, SnapshotUse, need, uses
from catalog.keyring import Keyring
from catalog.keys.peks import PekCache, PekRecord, PekState, state_hint
from catalog.loading import LoadedTable, TableLoader
from catalog.snapshots import SnapshotReader
from catalog.state import Governed, TableRecord
from catalog.write_sessions import WriteLog
from policy.encryption import EncryptionSpec, Mechanism
from policy.errors import KeyNotUsable, RequestInvalid
from policy.regimes import PekRef
from policy.requests import AccessRequest

_LOADING_RIGHTS: Final = ("select", "update", "alter")


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A version of a key as it is shown.

    Attributes:
        pek: its record.
        in_force: whether new files are put under it.
    """

    pek: PekRecord
    in_force: bool


@dataclass(frozen=True, slots=True)
class _Standing:
    """A table's keys, and what governed it, at the time when something was decided on them."""

    record: TableRecord
    peks: tuple[PekRecord, ...]
    governed: Governed | None

    def holds(self, now: _Standing) -> bool:
        """Whether another state could be decided on alike; how a key is stored makes no difference."""
        return self._states() == now._states()

    def _states(self) -> tuple[object, ...]:
        version = None if self.governed is None else self.governed.version
        return version, [(pek.ref, pek.state, pek.destroy_after_ms) for pek in self.peks]


class KeyLife:
    """Shows keys and changes their states.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name.
        loader: loads tables.
        reader: reads their manifests, to see what needs a key.
        keyring: knows the tables' keys, and makes new ones.
        cache: forgets keys that may not be used any more.
        log: knows the open writes.
        authorizer: decides and records.
        now_ms: the time in milliseconds.
        wait_ms: how long a key that is to be destroyed can be enabled again.
    """

    def __init__(
        self,
        engine: Engine,
        catalog: str,
        loader: TableLoader,
        reader: SnapshotReader,
        keyring: Keyring,
        cache: PekCache,
        log: WriteLog,
        authorizer: Authorizer,
        now_ms: Callable[[], int],
        wait_ms: int,
    ) -> None:
        self._engine = engine
        self._catalog = catalog
        self._loader = loader
        self._reader = reader
        self._keyring = keyring
        self._cache = cache
        self._log = log
        self._authorizer = authorizer
        self._now_ms = now_ms
        self._wait_ms = wait_ms
        self._ends = KeyEnds(engine, catalog, loader, reader, cache, log, authorizer, now_ms)

    def keys(self, caller: Caller, name: TableName) -> list[ShownKey]:
        """A table's keys in every version and state, whatever its metadata looks like.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table is needed.
            NoSuchTable: there is none.
        """
        self._may_look(caller, "key.list", name)
        return self._shown(self._record(name))

    def show(
        self, caller: Caller, name: TableName, pek_id: UUID
    ) -> tuple[list[ShownKey], dict[PekRef, list[SnapshotUse]]]:
        """The versions of a table's key, and which retained snapshots need which.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table is needed.
            RequestInvalid: the table has no such key.
            NoSuchTable, MetadataUnsealed, MetadataTampered: what is needed cannot be known.
        """
        self._may_look(caller, "key.show", name)
        with self._authorizer.recorded(caller, "key.show", str(name)):
            keys = [each for each in self._shown(self._record(name)) if each.pek.id == pek_id]
            if not keys:
                raise _no_such_key(name)
            return keys, uses(self._reader, self._loader.load_sealed(name))

    def create(self, caller: Caller, name: TableName, master_key_id: str) -> list[ShownKey]:
        """Make a table's key under a master key ahead of its use; one that is there is kept.

        Raises:
            NotAuthorized: ALTER on the table and `use` on the master key are needed.
            KeyNotUsable, KmsUnavailable: the master key cannot be used.
        """
        spec = EncryptionSpec(Mechanism.ENVELOPE, master_key_id)
        self._require(caller, "key.create", name, "alter", [master_key_id], "use")
        record = self._record(name)
        _, made = self._keyring.keys_for(record, spec)
        with write(self._engine) as connection:
            key_records.add(connection, made, self._now_ms())
        return self._shown(record)

    def disable(
        self, caller: Caller, name: TableName, pek_id: UUID | None = None, version: int | None = None
    ) -> list[ShownKey]:
        """Make keys unusable until they are enabled again.

        Args:
            caller: who asks.
            name: the table.
            pek_id: one of its keys; all by default.
            version: one version of that; all by default.

        Raises:
            NotAuthorized: ALTER on the table and `destroy` on the master keys are needed.
            RequestInvalid: the table has no such key.
            CommitConflict: its state was changed meanwhile.
        """
        standing, peks = self._chosen(caller, "key.disable", name, "alter", pek_id, version)
        usable = [pek for pek in peks if pek.state in (PekState.ACTIVE, PekState.DECRYPT_ONLY)]
        self._move(standing, [(pek, PekState.DISABLED, None) for pek in usable])
        return self._shown(standing.record)

    def enable(
        self, caller: Caller, name: TableName, pek_id: UUID | None = None, version: int | None = None
    ) -> list[ShownKey]:
        """Make disabled keys usable again, those on their way to be destroyed included.

        Raises:
            as `disable`; KeyNotUsable: it is destroyed, or about to be.
        """
        standing, peks = self._chosen(caller, "key.enable", name, "alter", pek_id, version)
        with self._authorizer.recorded(caller, "key.enable", str(name)):
            disabled = [pek for pek in peks if pek.state is PekState.DISABLED]
            gone = [pek for pek in peks if pek.state is PekState.DESTROYED]
            late = [pek for pek in disabled if self._is_due(pek)]
            if late or (gone and not disabled):
                _lost((late or gone)[0], name)
        self._move(standing, [(pek, _usable(pek, standing), None) for pek in disabled])
        return self._shown(standing.record)

    def destroy(
        self,
        caller: Caller,
        name: TableName,
        confirm: str,
        pek_id: UUID | None = None,
        version: int | None = None,
    ) -> list[ShownKey]:
        """Destroy keys, after a time in which they are disabled and can be enabled again.

        Args:
            caller: who asks.
            name: the table.
            confirm: the table's name once more.
            pek_id: one of its keys; all by default.
            version: one version of that, which nothing may need; all by default, needed or not.

        Raises:
            NotAuthorized: `destroy` on the master keys is needed; and ALTER on the table for one version,
                DROP for all.
            RequestInvalid: the table has no such key, or the name was not confirmed.
            KeyNotUsable: the version is in force, or a snapshot, tag or open write needs it; says which.
            CommitConflict: its state was changed meanwhile.
        """
        access = "drop" if version is None else "alter"
        standing, peks = self._chosen(caller, "key.destroy", name, access, pek_id, version)
        with self._authorizer.recorded(caller, "key.destroy", str(name)):
            if confirm != str(name):
                raise RequestInvalid(
                    "Destroying keys is for good, and was not confirmed.",
                    table=str(name),
                    rule="confirmation",
                    hint="Give the table's dotted name once more.",
                )
            unneeded_in = None if version is None else self._require_unneeded(name, standing.record, peks)
        at = self._now_ms() + self._wait_ms
        doomed = [pek for pek in peks if pek.state is not PekState.DESTROYED]
        doomed = [pek for pek in doomed if pek.destroy_after_ms is None]
        self._move(standing, [(pek, PekState.DISABLED, at) for pek in doomed], unneeded_in)
        if self._wait_ms == 0:
            self.destroy_due()
        return self._shown(standing.record)

    def destroy_due(self) -> int:
        """Destroy the keys whose time has come; how many they were."""
        return self._ends.destroy_due()

    def _may_look(self, caller: Caller, action: str, name: TableName) -> None:
        authorizer, owner = self._authorizer.settled(), self._loader.owner(name)
        ways = [
            gates.table_request(caller.principal, name.database, name.name, access, owner)
            for access in _LOADING_RIGHTS
        ]
        granted = [each for each in ways if authorizer.decide([each]).allowed]
        authorizer.require(caller, action, str(name), (granted or ways)[:1])

    def _chosen(
        self,
        caller: Caller,
        action: str,
        name: TableName,
        access: str,
        pek_id: UUID | None,
        version: int | None,
    ) -> tuple[_Standing, list[PekRecord]]:
        """A table's keys, and those that are meant, if the caller may do this to them."""
        way = self._on_table(caller, name, access)
        self._authorizer.screen(caller, action, str(name), way)
        with self._authorizer.recorded(caller, action, str(name)):
            record = self._record(name)
            with read(self._engine) as connection:
                standing = _standing(connection, record)
            peks = [
                pek for pek in standing.peks if pek_id in (None, pek.id) and version in (None, pek.version)
            ]
            if not peks or (version is not None and pek_id is None):
                raise _no_such_key(name)
        masters = [pek.master_key_id for pek in peks]
        self._require(caller, action, name, access, masters, "destroy")
        return standing, peks

    def _require(
        self, caller: Caller, action: str, name: TableName, access: str, masters: Sequence[str], right: str
    ) -> None:
        keys = gates.key_requests(caller.principal, masters, right)
        self._authorizer.require(caller, action, str(name), [self._on_table(caller, name, access), *keys])

    def _on_table(self, caller: Caller, name: TableName, access: str) -> AccessRequest:
        owner = self._loader.owner(name)
        return gates.table_request(caller.principal, name.database, name.name, access, owner)

    def _record(self, name: TableName) -> TableRecord:
        with read(self._engine) as connection:
            record = state.bound(connection, self._catalog, name)
        if record is None:
            raise NoSuchTable(f"The table {name} does not exist.", table=str(name))
        return record

    def _shown(self, record: TableRecord) -> list[ShownKey]:
        with read(self._engine) as connection:
            now = _standing(connection, record)
        in_force = () if now.governed is None else now.governed.regimes.current.peks
        return [ShownKey(pek, pek.ref in in_force) for pek in now.peks]

    def _move(
        self,
        decided_on: _Standing,
        moves: Sequence[tuple[PekRecord, PekState, int | None]],
        unneeded_in: LoadedTable | None = None,
    ) -> None:
        """Change states, if all is as it was when that was decided on.

        Args:
            decided_on: the keys as they were then.
            moves: versions with their new states and times of destruction.
            unneeded_in: the table that was seen to need none of them, if that matters.
        """
        with write(self._engine) as connection:
            seals.lock_table(connection, decided_on.record.id)
            if not decided_on.holds(_standing(connection, decided_on.record)):
                raise key_records.changed_meanwhile()
            if unneeded_in is not None:
                self._ends.require_settled(connection, unneeded_in, [pek for pek, _, _ in moves])
            for pek, after, at in moves:
                if not key_records.move(connection, pek, after, destroy_after_ms=at):
                    raise key_records.changed_meanwhile()
        for pek, _, _ in moves:
            self._cache.forget(pek.id)

    def _is_due(self, pek: PekRecord) -> bool:
        return pek.destroy_after_ms is not None and pek.destroy_after_ms <= self._now_ms()

    def _require_unneeded(
        self, name: TableName, record: TableRecord, peks: Sequence[PekRecord]
    ) -> LoadedTable:
        """The table, which needs none of these versions any more.

        Raises:
            KeyNotUsable: something does.
        """
        table = self._loader.load_sealed(name)
        if table.record.id != record.id:
            raise NoSuchTable(f"The table {name} was replaced by another one.", table=str(name))
        found = uses(self._reader, table)
        for pek in peks:
            needed = need(table, found, pek.ref)
            with read(self._engine) as connection:
                writes = self._log.open_under(connection, pek.id, pek.version)
            if needed is None and writes:
                needed = Need(f"is needed by {writes} open writes", "Wait until they end, or sweep.")
            if needed is not None:
                raise KeyNotUsable(
                    f"The key {pek.id} version {pek.version} {needed.why}.",
                    table=str(name),
                    rule="key-in-use",
                    hint=needed.hint,
                )
        return table


def _standing(connection: Connection, record: TableRecord) -> _Standing:
    peks = tuple(key_records.of_table(connection, record))
    return _Standing(record, peks, state.current_governed(connection, record.id))


def _usable(pek: PekRecord, standing: _Standing) -> PekState:
    """What a key is enabled as: for new files, if it is in force or later; else for reading alone."""
    in_force = standing.governed.regimes.current.peks if standing.governed else ()
    named = [ref.version for ref in in_force if ref.pek_id == pek.id]
    first = min(named, default=max(each.version for each in standing.peks if each.id == pek.id))
    return PekState.ACTIVE if pek.version >= first else PekState.DECRYPT_ONLY


def _no_such_key(name: TableName) -> RequestInvalid:
    return RequestInvalid(
        "The table has no such key.",
        table=str(name),
        rule="pek",
        hint="See `lakewarden key list`; a version is named together with its key's id.",
    )


def _lost(pek: PekRecord, name: TableName) -> NoReturn:
    raise KeyNotUsable(
        f"The key {pek.id} version {pek.version} is destroyed; it cannot be brought back.",
        table=str(name),
        rule="pek-state",
        hint=state_hint(PekState.DESTROYED),
    )
