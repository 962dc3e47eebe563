"""Table keys (PEKs): their records, and the cache that keeps the KMS out of the way of reads.

Rules:
- One unwrap a PEK and TTL, whatever the number of files, threads or engines: callers that come while one is
  under way wait for it and share its outcome. A failure is shared with those who waited, and never kept.
- The TTL counts from before the KMS was asked. A revocation takes effect within it; after it, an outage fails
  closed.
- The state of a record is the caller's and is obeyed at once, cached or not.
- A PEK never leaves the catalog.

Source: docs/architecture.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

from catalog.keys.aead import Aead
from catalog.keys.kms import KeyContext, KmsClient
from policy.errors import KeyNotUsable, KmsUnavailable
from policy.regimes import PekRef

DEFAULT_TTL_SECONDS: Final = 60.0
PEK_LENGTH: Final = 32


class PekState(StrEnum):
    """What a PEK may be used for."""

    ACTIVE = "active"
    DECRYPT_ONLY = "decrypt-only"
    DISABLED = "disabled"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class PekRecord:
    """A PEK as the catalog stores it.

    Attributes:
        id: id of the PEK.
        table_id: internal id of its table.
        table_uuid: the table's immutable UUID.
        master_key_id: the master key that wraps it.
        version: its version, 1 or more.
        wrapped: the PEK as the KMS wrapped it.
        kms: identifier of the KMS back end.
        state: what it may be used for.
    """

    id: UUID
    table_id: str
    table_uuid: UUID
    master_key_id: str
    version: int
    wrapped: bytes = field(repr=False)
    kms: str
    state: PekState = PekState.ACTIVE

    @property
    def ref(self) -> PekRef:
        """How regimes and key metadata name it."""
        return PekRef(self.id, self.version, self.master_key_id)


@dataclass(frozen=True, slots=True)
class Pek:
    """A PEK in the clear, ready to wrap and unwrap data keys of its table.

    Attributes:
        ref: its name.
        table_uuid: its table.
        aead: the key itself.
    """

    ref: PekRef
    table_uuid: UUID
    aead: Aead = field(repr=False, compare=False)


def create_pek(
    kms: KmsClient, *, catalog: str, table_id: str, table_uuid: UUID, master_key_id: str
) -> PekRecord:
    """A new PEK of 32 bytes for a table and one of its master keys, ready to be stored.

    Raises:
        KeyNotUsable: the master key is unknown, disabled or destroyed.
        KmsUnavailable: the KMS does not answer.
    """
    created = kms.create_key(master_key_id, PEK_LENGTH, KeyContext(catalog, table_uuid))
    created.key.wipe()
    return PekRecord(uuid4(), table_id, table_uuid, master_key_id, 1, created.wrapped, kms.identifier)


@dataclass(slots=True)
class _Cached:
    pek: Pek
    expires: float


_Slot = tuple[UUID, int, UUID, str, str, bytes]


class PekCache:
    """Unwrapped PEKs, each for a bounded time; safe for many threads.

    Args:
        clients: KMS clients by identifier.
        catalog: name of the catalog, part of the context that PEKs are bound to.
        ttl: how long an unwrapped PEK may be used, in seconds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        clients: Mapping[str, KmsClient],
        *,
        catalog: str,
        ttl: float = DEFAULT_TTL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clients = dict(clients)
        self._catalog = catalog
        self._ttl = ttl
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: dict[_Slot, _Cached] = {}
        self._flights: dict[_Slot, Future[Pek]] = {}

    def get(self, record: PekRecord, *, for_writing: bool = False) -> Pek:
        """The PEK of a record, from the cache or from the KMS.

        Args:
            record: as stored, with its state of now.
            for_writing: whether new data keys will be wrapped with it.

        Raises:
            KeyNotUsable: its state or its master key forbids the use, or its back end is not configured.
            DecryptionRefused: the record was changed, or is of another table or catalog.
            KmsUnavailable: the KMS does not answer.
        """
        _require_usable(record, for_writing)
        slot = _slot(record)
        with self._lock:
            self._drop_expired()
            cached = self._cached.get(slot)
            if cached is not None:
                return cached.pek
            flight = self._flights.get(slot)
            mine = flight is None
            if flight is None:
                flight = self._flights[slot] = Future()
        return self._fly(record, slot, flight) if mine else flight.result()

    def forget(self, pek_id: UUID) -> None:
        """Drop every version of a PEK; an unwrap that is under way will not be kept either."""
        with self._lock:
            for slot in [slot for slot in self._cached if slot[0] == pek_id]:
                del self._cached[slot]
            for slot in [slot for slot in self._flights if slot[0] == pek_id]:
                del self._flights[slot]

    def _fly(self, record: PekRecord, slot: _Slot, flight: Future[Pek]) -> Pek:
        asked = self._clock()
        try:
            pek = self._unwrap(record)
        except BaseException as failure:
            self._land(slot, flight, None)
            flight.set_exception(failure)
            raise
        self._land(slot, flight, _Cached(pek, asked + self._ttl))
        flight.set_result(pek)
        return pek

    def _land(self, slot: _Slot, flight: Future[Pek], cached: _Cached | None) -> None:
        """Keep what came back, unless the PEK was forgotten meanwhile."""
        with self._lock:
            if self._flights.get(slot) is flight:
                del self._flights[slot]
                if cached is not None:
                    self._cached[slot] = cached

    def _unwrap(self, record: PekRecord) -> Pek:
        client = self._clients.get(record.kms)
        if client is None:
            raise KeyNotUsable(
                f"PEK {record.id} is wrapped by KMS {record.kms!r}, which is not configured.",
                rule="kms",
                hint="Configure that KMS, or wrap the PEK anew.",
            )
        key = client.get_key(record.wrapped, KeyContext(self._catalog, record.table_uuid))
        if len(key) != PEK_LENGTH:
            raise KmsUnavailable(
                f"The KMS gave a key of another length for PEK {record.id}.", rule="key-length"
            )
        return Pek(record.ref, record.table_uuid, Aead(key))

    def _drop_expired(self) -> None:
        now = self._clock()
        for slot in [slot for slot, cached in self._cached.items() if cached.expires <= now]:
            del self._cached[slot]


def _slot(record: PekRecord) -> _Slot:
    """All that the unwrapped PEK depends on, so that a record that differs is never served another's."""
    return (record.id, record.version, record.table_uuid, record.master_key_id, record.kms, record.wrapped)


def _require_usable(record: PekRecord, for_writing: bool) -> None:
    allowed = (PekState.ACTIVE,) if for_writing else (PekState.ACTIVE, PekState.DECRYPT_ONLY)
    if record.state not in allowed:
        raise KeyNotUsable(
            f"PEK {record.id} is {record.state}.", rule="pek-state", hint="Use the table's current PEK."
        )
