"""Rewraps table keys, and keys of the KMS endpoint, after their master key was rotated in its KMS.

- Keys are rewrapped in batches where the KMS supports it. No table, snapshot or file changes, only the stored
  form of keys.
- A new form is unwrapped, and stored only if it holds the same key. Until then the old form stays.
- An interrupted rewrap is run again. It rewraps keys that are under the newest version already once more.
- A key that cannot be rewrapped is reported, and does not stop the others.
- Keys that are recorded meanwhile are rewrapped too, in further passes until one finds no new key. A request
  that got its key before the rotation can record it after the last pass. Run the rewrap once more when such
  requests have ended.
- If a master key wraps nothing, the KMS is asked to create a key under it, so that a master key that the KMS
  does not know is refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from sqlalchemy import Engine

from catalog.base import crash_points
from catalog.db.engine import read, write
from catalog.envelope.peks import PEK_LENGTH, PekRecord, key_check
from catalog.kms.interface import KeyContext, KmsClient
from catalog.state import pek_records as key_records
from policy.encryption.epochs import PekRef
from policy.errors import DecryptionRefused, KeyNotUsable, Refused

_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class NotRewrapped:
    """A key whose stored form did not change, and the reason."""

    ref: PekRef
    reason: str


@dataclass(frozen=True, slots=True)
class RewrappedKeys:
    """The result of rewrapping under a master key.

    Attributes:
        rewrapped: number of keys that are stored in a new form.
        failed: the keys that are not.
    """

    rewrapped: int
    failed: tuple[NotRewrapped, ...]


class MasterKeyRewrap:
    """Rewraps the keys that a master key wraps.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name.
        kms: the KMS of the master keys.
    """

    def __init__(self, engine: Engine, catalog: str, kms: KmsClient) -> None:
        self._engine = engine
        self._catalog = catalog
        self._kms = kms

    def rewrap(self, master_key_id: str, progress: Callable[[int], None] = lambda _: None) -> RewrappedKeys:
        """Rewrap every key under a master key.

        Args:
            master_key_id: the master key.
            progress: called after every batch, with the number of keys done so far.

        Raises:
            KmsUnavailable: the KMS does not answer; keys that are done stay done.
            KeyNotUsable: the master key wraps nothing, and the KMS does not know it or refuses its use.
        """
        done, failed, seen = 0, list[NotRewrapped](), set[PekRef]()
        fresh = True
        while fresh:
            fresh = False
            for page in self._pages(master_key_id):
                batch = [pek for pek in page if pek.ref not in seen]
                if not batch:
                    continue
                rewrapped, refused = self._batch(batch)
                done, failed, fresh = done + rewrapped, failed + refused, True
                seen.update(pek.ref for pek in batch)
                crash_points.point("rewrap-master:batch")
                progress(done + len(failed))
        if not seen:
            self._require_known(master_key_id)
        return RewrappedKeys(done, tuple(failed))

    def _pages(self, master_key_id: str) -> Iterator[list[PekRecord]]:
        """Yield the table keys and KMS endpoint keys that a master key wraps, in batches."""
        kms, after = self._kms.identifier, None
        while True:
            with read(self._engine) as connection:
                page = key_records.under_master_key(
                    connection, self._catalog, kms, master_key_id, after, _BATCH
                )
            if not page:
                return
            yield page
            after = page[-1].ref

    def _require_known(self, master_key_id: str) -> None:
        """Check that the KMS knows the master key, by creating a key and discarding it."""
        self._kms.create_key(master_key_id, PEK_LENGTH, KeyContext(self._catalog, uuid4())).key.wipe()

    def _batch(self, peks: Sequence[PekRecord]) -> tuple[int, list[NotRewrapped]]:
        """Rewrap a batch, or its keys one by one if the KMS refuses the batch."""
        try:
            return self._rewrap(peks), []
        except Refused as refusal:
            if len(peks) == 1:
                return 0, [NotRewrapped(peks[0].ref, refusal.message)]
        done, failed = 0, []
        for pek in peks:
            rewrapped, refused = self._batch([pek])
            done += rewrapped
            failed += refused
        return done, failed

    def _rewrap(self, peks: Sequence[PekRecord]) -> int:
        forms = self._kms.rewrap_keys([(pek.wrapped, self._context(pek)) for pek in peks])
        if len(forms) != len(peks):
            raise KeyNotUsable("The KMS returned a different number of keys than were sent.", rule="rewrap")
        checked = [(pek, form, self._same_key(pek, form)) for pek, form in zip(peks, forms, strict=True)]
        with write(self._engine) as connection:
            return sum(key_records.replace_wrapped(connection, *each) for each in checked)

    def _same_key(self, pek: PekRecord, form: bytes) -> bytes:
        """Check that the new form holds the stored key, and return the key's check value."""
        stored = pek.check if pek.check is not None else self._check(pek, pek.wrapped)
        found = self._check(pek, form)
        if not hmac.compare_digest(stored, found):
            raise DecryptionRefused(
                f"The KMS returned a different key for PEK {pek.id} version {pek.version}.",
                rule="rewrap",
                hint="Nothing was stored. Ask the administrator of the KMS to examine it.",
            )
        return found

    def _check(self, pek: PekRecord, wrapped: bytes) -> bytes:
        key = self._kms.get_key(wrapped, self._context(pek))
        try:
            return key_check(key, pek.table_uuid, pek.ref)
        finally:
            key.wipe()

    def _context(self, pek: PekRecord) -> KeyContext:
        return KeyContext(self._catalog, pek.table_uuid)
