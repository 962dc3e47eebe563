"""Counts how often each key of the catalog has encrypted, and enforces the limit.

- A PEK seals data keys, bounds, write keys and keys for standard readers, each with a random nonce. After
  2**32 encryptions, two nonces could be equal, which breaks the key's authentication. So no key seals more
  often (NIST SP 800-38D, section 8.3).
- Uses are counted in the database before they happen, by every replica, so that no use is lost if a process
  dies. A process reserves a batch of uses. Uses that it does not need count as used. Batches double in size
  up to a bound, so that a large commit seldom waits for the database, and a process that writes once reserves
  few.
- From half of the limit on, the log warns. At the limit, the key is refused. A later version of the key
  starts at zero.
- Decryption is not counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.db.engine import write
from catalog.db.schema import lw_key_invocations
from policy.encryption.epochs import PekRef
from policy.errors import CommitStateUnknown, KeyNotUsable, StateUnavailable

logger = logging.getLogger(__name__)

MOST: Final = 2**32
_FIRST: Final = 1_024
_LARGEST: Final = 65_536
_ROWS: Final = lw_key_invocations.c


class Invocations:
    """Counts how often keys encrypt; thread-safe.

    Args:
        engine: the catalog's database.
        most: how often one version of a key can encrypt.
    """

    def __init__(self, engine: Engine, most: int = MOST) -> None:
        self._engine = engine
        self._most = most
        self._lock = threading.Lock()
        self._allowances: dict[PekRef, _Allowance] = {}

    def of(self, ref: PekRef) -> Callable[[], None]:
        """Return the function to call before each encryption with a version of a key.

        It raises KeyNotUsable if the key has reached its limit, and StateUnavailable if the use cannot be
        counted.
        """
        with self._lock:
            found = self._allowances.get(ref)
            if found is None:
                found = self._allowances[ref] = _Allowance(partial(self._take, ref))
        return found.spend

    def needs_rotation(self, counted: int) -> bool:
        """Return whether half of a version's limit is used up."""
        return counted >= self._most // 2

    def _take(self, ref: PekRef, wanted: int) -> int:
        """Reserve at least one and at most `wanted` uses of a key; return their number."""
        try:
            try:
                taken, counted = self._counted(ref, wanted)
            except IntegrityError:
                # Another replica counted this key for the first time.
                taken, counted = self._counted(ref, wanted)
        except CommitStateUnknown as unknown:
            # The use can be counted or not. Nothing was encrypted.
            raise StateUnavailable(
                "The use of a key could not be counted.", rule="key-invocations", hint="Try again."
            ) from unknown
        if self.needs_rotation(counted):
            logger.warning(
                "key %s version %d has encrypted %d times; the limit is %d: rotate the keys of its table",
                ref.pek_id,
                ref.version,
                counted,
                self._most,
            )
        return taken

    def _counted(self, ref: PekRef, wanted: int) -> tuple[int, int]:
        """Reserve uses in the database; return their number and the new total."""
        mine = (_ROWS.key_id == str(ref.pek_id), _ROWS.version == ref.version)
        with write(self._engine) as connection:
            known = connection.scalar(select(_ROWS.counted).where(*mine).with_for_update())
            before = known or 0
            after = min(before + wanted, self._most)
            if after <= before:
                raise _used_up(ref, before)
            if known is None:
                row = {"key_id": str(ref.pek_id), "version": ref.version, "counted": after}
                connection.execute(insert(lw_key_invocations).values(row))
            else:
                connection.execute(update(lw_key_invocations).where(*mine).values(counted=after))
        return after - before, after


class _Allowance:
    """The uses of one key version that this process has reserved and not used.

    Args:
        take: reserves at least one and at most the given number of uses, and returns their number.
    """

    def __init__(self, take: Callable[[int], int]) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._left = 0
        self._wanted = _FIRST

    def spend(self) -> None:
        """Use the key once."""
        with self._lock:
            if self._left:
                self._left -= 1
                return
            wanted = self._wanted
        # The lock is released during the database call. Other threads reserve their own uses meanwhile.
        taken = self._take(wanted)
        with self._lock:
            self._left += taken - 1
            self._wanted = min(2 * wanted, _LARGEST)


def counted(connection: Connection, key_ids: Iterable[UUID]) -> dict[tuple[UUID, int], int]:
    """Return how often versions of keys have encrypted at most, by id and version.

    Unused versions are left out.
    """
    mine = _ROWS.key_id.in_([str(each) for each in set(key_ids)])
    rows = connection.execute(select(lw_key_invocations).where(mine))
    return {(UUID(row.key_id), row.version): row.counted for row in rows}


def _used_up(ref: PekRef, counted: int) -> KeyNotUsable:
    return KeyNotUsable(
        f"The key {ref.pek_id} version {ref.version} has encrypted {counted} times and has "
        "reached its limit.",
        rule="key-invocations",
        hint="Rotate the table's PEKs with `lakewarden key rotate`, then try again.",
    )
