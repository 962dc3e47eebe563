"""Remembers nonces of signatures, so that a signed request is taken once: in this process, or by all workers.

- Workers share memory, made before they start (`catalog.base.shared_cells`). Each worker writes its own table
  and reads those of the others. A worker that takes the place of another one finds what that one had
  remembered.
- A worker writes first and compares then. So of two workers that get the same request at once, at least one
  sees both, and it is never taken twice.
- Tables have hashes of 63 bits. Where another nonce has the same one, a request is refused, and the engine
  signs it again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from typing import Final

from catalog.base.shared_cells import SharedCells
from policy.errors import StateUnavailable

_MAX_NONCES: Final = 100_000
#: Places of a table: more than twice the nonces that it can have at a time.
_PLACES: Final = 1 << 18
#: Places from the one that a hash points to where it can stand.
_NEAR: Final = 64
_FIELDS: Final = 2


class SharedNonces:
    """A table of nonces for each worker, in memory that processes share after a fork.

    Args:
        workers: the number of tables.
    """

    def __init__(self, workers: int) -> None:
        # The places behind the last one spare looking at the beginning again.
        self._cells = SharedCells(workers, (_PLACES + _NEAR) * _FIELDS)

    def is_first(self, worker: int, key_id: uuid.UUID, nonce: str, now_ms: int, until_ms: int) -> bool:
        """Remember a nonce; return whether no worker had it.

        Args:
            worker: the number of the worker that asks, in one thread at a time.
            key_id: the key of the signature.
            nonce: its nonce.
            now_ms: the time in milliseconds.
            until_ms: how long it is remembered.

        Raises:
            StateUnavailable: there is no place for it.
        """
        # Zero stands for a place without a nonce.
        hashed = self._cells.hashed(key_id.bytes + nonce.encode()) or 1
        own = self._near(worker, hashed)
        if _has(own, hashed, now_ms):
            return False
        free = next((at for at in range(1, len(own), _FIELDS) if own[at] <= now_ms), None)
        if free is None:
            raise too_many(_PLACES)
        self._cells.write(worker, _start(hashed) + free, until_ms)
        self._cells.write(worker, _start(hashed) + free - 1, hashed)
        others = (each for each in range(self._cells.workers) if each != worker)
        return not any(_has(self._near(each, hashed), hashed, now_ms) for each in others)

    def _near(self, worker: int, hashed: int) -> Sequence[int]:
        """Return the places of a hash: hash and end of each."""
        return self._cells.read(worker, _start(hashed), _NEAR * _FIELDS)


class SeenNonces:
    """Remembers nonces of valid signatures for as long as they could be replayed; safe for many threads.

    Args:
        keep_ms: for how long.
        capacity: of how many; more are refused, not forgotten.
    """

    def __init__(self, keep_ms: int, capacity: int = _MAX_NONCES) -> None:
        self._keep_ms = keep_ms
        self._capacity = capacity
        self._lock = threading.Lock()
        self._until: dict[tuple[uuid.UUID, str], int] = {}
        self._shared: tuple[SharedNonces, int] | None = None

    def share(self, nonces: SharedNonces, worker: int) -> None:
        """From now on, also remember nonces for the other workers, and those of them."""
        self._shared = nonces, worker

    def is_first(self, key_id: uuid.UUID, nonce: str, now_ms: int) -> bool:
        """Remember a nonce; return whether it is new.

        Raises:
            StateUnavailable: there are too many to remember.
        """
        with self._lock:
            # Expired nonces come first, because they are in order of arrival.
            while self._until and (oldest := next(iter(self._until))) and self._until[oldest] <= now_ms:
                del self._until[oldest]
            if (key_id, nonce) in self._until:
                return False
            if len(self._until) >= self._capacity:
                raise too_many(self._capacity)
            until_ms = self._until[key_id, nonce] = now_ms + self._keep_ms
            if self._shared is None:
                return True
            nonces, worker = self._shared
            return nonces.is_first(worker, key_id, nonce, now_ms, until_ms)


def too_many(capacity: int) -> StateUnavailable:
    """Return the error for more signed requests than can be remembered."""
    return StateUnavailable(
        f"More than {capacity} signed requests arrived within a minute.",
        rule="engine-signature-rate",
        hint="Send fewer requests at a time, or run more replicas.",
    )


def _start(hashed: int) -> int:
    return hashed % _PLACES * _FIELDS


def _has(near: Sequence[int], hashed: int, now_ms: int) -> bool:
    places = range(0, len(near), _FIELDS)
    return hashed in near[::_FIELDS] and any(near[at] == hashed and near[at + 1] > now_ms for at in places)
