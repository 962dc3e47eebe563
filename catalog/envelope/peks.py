"""Key-encryption keys of tables (PEKs): records, and a cache that saves KMS calls.

Rules:
- One unwrap per PEK and TTL, for any number of files, threads and engines: callers that need the same PEK
  during an unwrap wait for it and share its outcome. A failure is shared with the waiting callers, and never
  cached.
- The TTL counts from before the KMS call. A revocation takes effect within it. After it, an outage fails
  closed.
- The wait for another caller's unwrap is bounded; `resilient` bounds the call itself.
- The caller passes the state of a record, and it applies at once, cached or not.
- A record has a check value of its PEK. If a KMS returns another key, this is detected before it wraps a data
  key that could never be opened again; the returned key is not cached. An old record without a check value
  gets it from the first scan whose data keys the PEK has opened (`catalog.keyring.keyring`).
- Each encryption with a PEK is counted in advance (`catalog.state.invocations`); decryption is not.
- A PEK never leaves the catalog.

Source: docs/architecture.md.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

from catalog.base.lookups import Lookups
from catalog.crypto.aead import Aead
from catalog.crypto.hkdf import derived
from catalog.crypto.secret import SecretBytes
from catalog.kms.clients import KmsKey
from catalog.kms.interface import KeyContext, KmsClient
from policy.encryption.epochs import PekRef
from policy.errors import KeyNotUsable, KmsUnavailable

DEFAULT_TTL_SECONDS: Final = 60.0
PEK_LENGTH: Final = 32
KEY_CHECK_LENGTH: Final = 16
#: The time in seconds to wait for another caller's call: the deadline of a call.
WAIT_TIMEOUT_S: Final = 5.0
_CHECK_INFO: Final = b"lakewarden/pek-check/1\0"


class PekState(StrEnum):
    """The state of a PEK, which decides what it can be used for."""

    ACTIVE = "active"
    DECRYPT_ONLY = "decrypt-only"
    DISABLED = "disabled"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class PekRecord:
    """A PEK as the catalog stores it.

    Attributes:
        id: id of the PEK.
        table_id: internal id of its table; empty for a key of the KMS endpoint.
        table_uuid: the table's immutable UUID; for a key of the KMS endpoint, its id.
        master_key_id: what tables and policies call the master key that wraps it.
        version: its version, 1 or more.
        wrapped: the PEK as the KMS wrapped it.
        kms: what the catalog calls the KMS.
        state: determines its allowed uses.
        destroy_after_ms: time of its destruction, in milliseconds since 1970; None if it is not scheduled.
        check: the check value of the PEK, see `key_check`; None for a PEK from before check values existed.
        kms_key_id: the master key's id in the KMS; None if it is `master_key_id`.
    """

    id: UUID
    table_id: str
    table_uuid: UUID
    master_key_id: str
    version: int
    wrapped: bytes = field(repr=False)
    kms: str
    state: PekState = PekState.ACTIVE
    destroy_after_ms: int | None = None
    check: bytes | None = field(default=None, repr=False)
    kms_key_id: str | None = None

    @property
    def kms_key(self) -> KmsKey:
        """Return the key of a KMS that wraps it."""
        return KmsKey(self.kms, self.kms_key_id or self.master_key_id)

    @property
    def ref(self) -> PekRef:
        """Return the reference that epochs and key metadata use."""
        return PekRef(self.id, self.version, self.master_key_id)


@dataclass(frozen=True, slots=True)
class Pek:
    """A plaintext PEK, ready to wrap and unwrap data keys of its table.

    Attributes:
        ref: its name.
        table_uuid: its table.
        aead: the key itself.
        unrecorded_check: its check value if the record has none; it is recorded once the PEK has opened a
            data key, which proves that it is the right one.
    """

    ref: PekRef
    table_uuid: UUID
    aead: Aead = field(repr=False, compare=False)
    unrecorded_check: bytes | None = field(default=None, repr=False, compare=False)


def create_pek(
    kms: KmsClient,
    *,
    catalog: str,
    table_id: str,
    table_uuid: UUID,
    master_key_id: str,
    kms_key_id: str | None = None,
    pek_id: UUID | None = None,
    version: int = 1,
) -> PekRecord:
    """Create a PEK of 32 bytes for a table and one of its master keys.

    Args:
        kms: the KMS of its master key.
        catalog: name of the catalog.
        table_id: internal id of the table.
        table_uuid: the table's immutable UUID.
        master_key_id: what tables and policies call the master key that wraps it.
        kms_key_id: the master key's id in the KMS; by default the same.
        pek_id: the PEK that gets a new version; by default a new PEK is created.
        version: its version.

    Raises:
        KeyNotUsable: the master key is unknown, disabled or destroyed.
        KmsUnavailable: the KMS does not answer, or not with a key of 32 bytes.
    """
    created = kms.create_key(kms_key_id or master_key_id, PEK_LENGTH, KeyContext(catalog, table_uuid))
    ref = PekRef(pek_id or uuid4(), version, master_key_id)
    _require_length(created.key, ref)
    check = key_check(created.key, table_uuid, ref)
    created.key.wipe()
    return PekRecord(
        ref.pek_id,
        table_id,
        table_uuid,
        master_key_id,
        version,
        created.wrapped,
        kms.identifier,
        check=check,
        kms_key_id=kms_key_id,
    )


def key_check(key: SecretBytes, table_uuid: UUID, ref: PekRef) -> bytes:
    """Return the check value of a PEK: 16 bytes that reveal nothing of the key.

    HKDF-SHA256 without salt; the info is ASCII ``lakewarden/pek-check/1`` NUL, table UUID, PEK id, version as
    u32, big endian. The master key is not part of it, because rewrapping does not change the PEK.
    """
    info = _CHECK_INFO + table_uuid.bytes + ref.pek_id.bytes + ref.version.to_bytes(4, "big")
    return derived(key, KEY_CHECK_LENGTH, info)


@dataclass(slots=True)
class _Cached:
    pek: Pek
    expires: float


_Slot = tuple[UUID, int, UUID, str, str, bytes, bytes | None]


class PekCache:
    """Caches unwrapped PEKs, each for a limited time; thread-safe.

    Args:
        clients: KMS clients by identifier.
        catalog: name of the catalog, part of the context that PEKs are bound to.
        ttl: how long an unwrapped PEK can be used, in seconds.
        wait_timeout_s: how long to wait for the unwrap of another caller, in seconds.
        clock: monotonic seconds.
        counting: returns the function to call before each encryption with a PEK; it refuses beyond the limit.

    Attributes:
        lookups: a miss is a PEK that the KMS was asked for.
    """

    def __init__(
        self,
        clients: Mapping[str, KmsClient],
        *,
        catalog: str,
        ttl: float = DEFAULT_TTL_SECONDS,
        wait_timeout_s: float = WAIT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        counting: Callable[[PekRef], Callable[[], None] | None] = lambda _: None,
    ) -> None:
        self._clients = dict(clients)
        self._catalog = catalog
        self._ttl = ttl
        self._wait_timeout_s = wait_timeout_s
        self._clock = clock
        self._counting = counting
        self._lock = threading.Lock()
        self._cached: dict[_Slot, _Cached] = {}
        self._flights: dict[_Slot, Future[Pek]] = {}
        self.lookups = Lookups()

    def get(self, record: PekRecord, *, for_writing: bool = False) -> Pek:
        """Return the PEK of a record, from the cache or from the KMS.

        Args:
            record: as stored, with its current state.
            for_writing: whether new data keys will be wrapped with it.

        Raises:
            KeyNotUsable: its state or its master key forbids the use, or its back end is not configured.
            DecryptionRefused: the record was changed, or belongs to another table or catalog.
            KmsUnavailable: the KMS does not answer.
        """
        return self._get(record, for_writing, self._clock() + self._wait_timeout_s)

    def get_all(self, records: Iterable[PekRecord], *, for_writing: bool = False) -> dict[PekRef, Pek]:
        """Return the PEKs of several records; one time-out covers all of them.

        Raises:
            KeyNotUsable, DecryptionRefused, KmsUnavailable: a PEK is not available.
        """
        until = self._clock() + self._wait_timeout_s
        return {record.ref: self._get(record, for_writing, until) for record in records}

    def _get(self, record: PekRecord, for_writing: bool, until: float) -> Pek:
        """As `get`, with a deadline for the KMS call and the wait."""
        _require_usable(record, for_writing)
        slot = _slot(record)
        with self._lock:
            self._drop_expired()
            cached = self._cached.get(slot)
            if cached is not None:
                self.lookups.found(True)
                return cached.pek
            left = until - self._clock()
            if left <= 0:
                raise _timed_out()
            flight = self._flights.get(slot)
            mine = flight is None
            if flight is None:
                flight = self._flights[slot] = Future()
        self.lookups.found(not mine)
        return self._fly(record, slot, flight) if mine else _published(flight, left)

    def forget(self, pek_id: UUID) -> None:
        """Remove every version of a PEK from the cache; a running unwrap is not cached either."""
        with self._lock:
            for slot in [slot for slot in self._cached if slot[0] == pek_id]:
                del self._cached[slot]
            for slot in [slot for slot in self._flights if slot[0] == pek_id]:
                del self._flights[slot]

    def _fly(self, record: PekRecord, slot: _Slot, flight: Future[Pek]) -> Pek:
        asked = self._clock()
        try:
            pek = self._unwrap(record)
        except Exception as failure:
            self._publish(slot, flight, None)
            flight.set_exception(failure)
            raise
        except BaseException:
            # An interrupt of this thread must not end the wait of other threads.
            self._publish(slot, flight, None)
            flight.set_exception(_timed_out())
            raise
        self._publish(slot, flight, _Cached(pek, asked + self._ttl))
        flight.set_result(pek)
        return pek

    def _publish(self, slot: _Slot, flight: Future[Pek], cached: _Cached | None) -> None:
        """Cache the result, unless the PEK was forgotten meanwhile."""
        with self._lock:
            if self._flights.get(slot) is flight:
                del self._flights[slot]
                if cached is not None:
                    self._cached[slot] = cached

    def _unwrap(self, record: PekRecord) -> Pek:
        """Unwrap a record with the KMS, and check that the PEK is the one that was created."""
        key = self._ask(record)
        found = key_check(key, record.table_uuid, record.ref)
        aead = Aead(key, self._counting(record.ref))
        if record.check is None:
            return Pek(record.ref, record.table_uuid, aead, found)
        if not hmac.compare_digest(found, record.check):
            raise KmsUnavailable(
                f"The KMS returned a key for PEK {record.id} that differs from the key that it created.",
                rule="key-check",
                hint="Have an administrator examine the KMS. Until then, the catalog does not use this key.",
            )
        return Pek(record.ref, record.table_uuid, aead)

    def _ask(self, record: PekRecord) -> SecretBytes:
        client = self._clients.get(record.kms)
        if client is None:
            raise KeyNotUsable(
                f"PEK {record.id} is wrapped by the KMS {record.kms!r}, which is not configured.",
                rule="kms",
                hint=f"Configure that KMS: as [kms], or as [other_kms.{record.kms}] beside the main KMS.",
            )
        key = client.get_key(record.wrapped, KeyContext(self._catalog, record.table_uuid))
        _require_length(key, record.ref)
        return key

    def _drop_expired(self) -> None:
        now = self._clock()
        for slot in [slot for slot, cached in self._cached.items() if cached.expires <= now]:
            del self._cached[slot]


def _published(flight: Future[Pek], wait_timeout_s: float) -> Pek:
    """Wait for another caller's unwrap, at most the given number of seconds."""
    try:
        return flight.result(wait_timeout_s)
    except TimeoutError as failure:
        raise _timed_out() from failure


def _timed_out() -> KmsUnavailable:
    return KmsUnavailable(
        "The KMS did not respond in time.",
        rule="kms-deadline",
        hint="Check that the KMS is running and reachable, then try again.",
    )


def _require_length(key: SecretBytes, ref: PekRef) -> None:
    if len(key) != PEK_LENGTH:
        raise KmsUnavailable(
            f"The KMS returned a key of the wrong length for PEK {ref.pek_id}.",
            rule="key-length",
            hint="Have an administrator examine the KMS.",
        )


def _slot(record: PekRecord) -> _Slot:
    """Return everything that the unwrapped PEK depends on.

    It is the cache key, so a changed record never gets the key of another record.
    """
    return (
        record.id,
        record.version,
        record.table_uuid,
        record.master_key_id,
        record.kms,
        record.wrapped,
        record.check,
    )


def _require_usable(record: PekRecord, for_writing: bool) -> None:
    allowed = (PekState.ACTIVE,) if for_writing else (PekState.ACTIVE, PekState.DECRYPT_ONLY)
    if record.state not in allowed:
        raise KeyNotUsable(
            f"PEK {record.id} version {record.version} is {record.state}.",
            rule="pek-state",
            hint=state_hint(record.state),
        )


def state_hint(state: PekState) -> str:
    """Return the next step for a key whose state prevents its use."""
    if state is PekState.DESTROYED:
        return (
            "Files under it can never be read again. For new files, rotate the table's keys with "
            "`lakewarden key rotate`."
        )
    if state is PekState.DISABLED:
        return (
            "See `lakewarden key list`. Enable a disabled key with `lakewarden key enable`, before "
            "its time of destruction."
        )
    return "Use the table's current PEK."
