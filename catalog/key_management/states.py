"""Shows and changes the states of a table's keys.

- A state changes under the table's lock, and only if the table, its keys and its governed version are the
  ones that the decision was based on. Commits check the states under the same lock
  (`catalog.commits.publish`), so a commit and a change of state cannot interleave.
- A key is disabled for a waiting time before it is destroyed. Until then it can be enabled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord, PekState, state_hint
from catalog.key_management.expiry import KeyEnds
from catalog.reading.loading import LoadedTable
from catalog.state import invocations, seals, table_state
from catalog.state import pek_records as key_records
from catalog.state.table_state import Governed, TableRecord, TableState
from policy.errors import KeyNotUsable


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A version of a key, with its usage.

    Attributes:
        pek: its record.
        in_force: whether new files use it.
        invocations: maximum number of encryptions with it so far.
        needs_rotation: whether that is at least half of the limit.
    """

    pek: PekRecord
    in_force: bool
    invocations: int
    needs_rotation: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """A table's keys and governed version, as a decision about the keys saw them."""

    record: TableRecord
    peks: tuple[PekRecord, ...]
    governed: Governed | None

    @classmethod
    def of(cls, connection: Connection, record: TableRecord) -> Standing:
        """Read the current state."""
        peks = tuple(key_records.of_table(connection, record))
        return cls(record, peks, table_state.current_governed(connection, record.id))

    def chosen(self, pek_id: UUID | None, version: int | None) -> list[PekRecord]:
        """Return one version of a key, all versions of it, or all keys; empty if there is no such key."""
        if version is not None and pek_id is None:
            return []
        return [pek for pek in self.peks if pek_id in (None, pek.id) and version in (None, pek.version)]

    def holds(self, connection: Connection) -> bool:
        """Return whether the current state is the same, apart from the stored form of keys."""
        now = table_state.table_by_id(connection, self.record.id)
        return now is not None and self._states() == Standing.of(connection, now)._states()

    def _states(self) -> tuple[TableState, int | None, list[object]]:
        version = None if self.governed is None else self.governed.version
        return (
            self.record.state,
            version,
            [(pek.ref, pek.state, pek.destroy_after_ms) for pek in self.peks],
        )


class KeyStates:
    """Shows and changes the states of keys. Callers check permissions first.

    Args:
        context: the parts that services share.
        ends: destroys keys whose waiting time has ended.
    """

    def __init__(self, context: ServiceContext, ends: KeyEnds) -> None:
        self._context = context
        self._ends = ends
        self._wait_ms = context.settings.key_destroy_wait_s * 1000

    def standing(self, record: TableRecord) -> Standing:
        """Read a table's keys and governed version."""
        with read(self._context.engine) as connection:
            return Standing.of(connection, record)

    def shown(self, record: TableRecord) -> list[ShownKey]:
        """List a table's keys in every version and state."""
        with read(self._context.engine) as connection:
            now = Standing.of(connection, record)
            counted = invocations.counted(connection, [pek.id for pek in now.peks])
        in_force = () if now.governed is None else now.governed.epochs.current.peks
        return [
            self._shown(pek, pek.ref in in_force, counted.get((pek.id, pek.version), 0)) for pek in now.peks
        ]

    def _shown(self, pek: PekRecord, in_force: bool, counted: int) -> ShownKey:
        return ShownKey(pek, in_force, counted, self._context.invocations.needs_rotation(counted))

    def disable(self, standing: Standing, peks: Sequence[PekRecord]) -> None:
        """Make keys unusable until they are enabled again.

        Raises:
            CommitConflict: the keys, or their table, were changed meanwhile.
        """
        usable = [pek for pek in peks if pek.state in (PekState.ACTIVE, PekState.DECRYPT_ONLY)]
        self._move(standing, [(pek, PekState.DISABLED, None) for pek in usable])

    def enable(self, standing: Standing, peks: Sequence[PekRecord]) -> None:
        """Enable disabled keys again, including keys that are scheduled for destruction.

        Raises:
            KeyNotUsable: a key is destroyed, or its waiting time has ended.
            CommitConflict: the keys, or their table, were changed meanwhile.
        """
        disabled = [pek for pek in peks if pek.state is PekState.DISABLED]
        gone = [pek for pek in peks if pek.state is PekState.DESTROYED]
        late = [pek for pek in disabled if self._is_due(pek)]
        if late or (gone and not disabled):
            raise _gone((late or gone)[0], standing)
        self._move(standing, [(pek, _usable(pek, standing), None) for pek in disabled])

    def destroy(
        self, standing: Standing, peks: Sequence[PekRecord], unneeded_in: LoadedTable | None = None
    ) -> None:
        """Schedule keys for destruction: they are disabled, and can be enabled until the waiting time ends.

        Args:
            standing: the keys that the decision was based on.
            peks: the keys to destroy.
            unneeded_in: the table as checked by `KeyEnds.require_unneeded`; None if that is not required.

        Raises:
            CommitConflict: the keys, or their table, were changed meanwhile.
        """
        at = self._context.now_ms() + self._wait_ms
        doomed = [pek for pek in peks if pek.state is not PekState.DESTROYED and pek.destroy_after_ms is None]
        self._move(standing, [(pek, PekState.DISABLED, at) for pek in doomed], unneeded_in)
        if self._wait_ms == 0:
            self._ends.destroy_due()

    def _move(
        self,
        decided_on: Standing,
        moves: Sequence[tuple[PekRecord, PekState, int | None]],
        unneeded_in: LoadedTable | None = None,
    ) -> None:
        """Set the states and destruction times of versions, if nothing has changed since the decision."""
        with write(self._context.engine) as connection:
            seals.lock_table(connection, decided_on.record.id)
            if not decided_on.holds(connection):
                raise key_records.changed_meanwhile()
            if unneeded_in is not None:
                self._ends.require_settled(connection, unneeded_in, [pek for pek, _, _ in moves])
            for pek, after, at in moves:
                if not key_records.move(connection, pek, after, destroy_after_ms=at):
                    raise key_records.changed_meanwhile()
        for pek, _, _ in moves:
            self._context.peks.forget(pek.id)

    def _is_due(self, pek: PekRecord) -> bool:
        return pek.destroy_after_ms is not None and pek.destroy_after_ms <= self._context.now_ms()


def _usable(pek: PekRecord, standing: Standing) -> PekState:
    """Return the state of an enabled key: active if its version is in force or later, else decrypt-only."""
    in_force = standing.governed.epochs.current.peks if standing.governed else ()
    named = [ref.version for ref in in_force if ref.pek_id == pek.id]
    first = min(named, default=max(each.version for each in standing.peks if each.id == pek.id))
    return PekState.ACTIVE if pek.version >= first else PekState.DECRYPT_ONLY


def _gone(pek: PekRecord, standing: Standing) -> KeyNotUsable:
    return KeyNotUsable(
        f"The key {pek.id} version {pek.version} is destroyed and cannot be restored.",
        table=str(standing.record.name),
        rule="pek-state",
        hint=state_hint(PekState.DESTROYED),
    )
