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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from catalog.base import crash_points
from catalog.base.progress import Tell, silent
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord
from catalog.key_management.stored_forms import StoredForms
from catalog.keyring.kms_keys import KmsKeys
from catalog.kms.back_ends import by_master_key
from catalog.state import pek_records as key_records
from catalog.state.stored_keys import KeyFilter, count_by_owner, select_keys
from policy.encryption.epochs import PekRef
from policy.errors import KeyNotUsable, Refused

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
        kms_keys: the KMS keys that master key ids stand for.
    """

    def __init__(self, kms_keys: KmsKeys) -> None:
        self._kms_keys = kms_keys
        self._forms = StoredForms(kms_keys)

    def rewrap(self, master_key_id: str, tell: Tell = silent) -> RewrappedKeys:
        """Rewrap every key under a master key, in whichever KMS it is.

        Args:
            master_key_id: the master key, as tables name it.
            tell: is told after every batch how many keys are done, of those that there are.

        Raises:
            KmsUnavailable: the KMS does not answer; keys that are done stay done.
            KeyNotUsable: the master key wraps nothing, and the KMS does not know it or refuses its use.
        """
        done, failed, seen = 0, list[NotRewrapped](), set[PekRef]()
        fresh, step = True, f"Keys under {master_key_id}"
        total = self._number(master_key_id)
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
                # Keys that were recorded meanwhile come on top.
                tell(step, len(seen), max(total, len(seen)))
        if not seen:
            self._require_known(master_key_id)
        return RewrappedKeys(done, tuple(failed))

    def _number(self, master_key_id: str) -> int:
        chosen = KeyFilter(master_key_id=master_key_id)
        with read(self._kms_keys.engine) as connection:
            return sum(count for _, count in count_by_owner(connection, self._kms_keys.catalog, chosen))

    def _pages(self, master_key_id: str) -> Iterator[list[PekRecord]]:
        """Yield the table keys and KMS endpoint keys that a master key wraps, in batches."""
        chosen, after = KeyFilter(master_key_id=master_key_id), None
        while True:
            with read(self._kms_keys.engine) as connection:
                page = select_keys(connection, self._kms_keys.catalog, chosen, after, _BATCH)
            if not page:
                return
            yield page
            after = page[-1].ref

    def _require_known(self, master_key_id: str) -> None:
        """Check that the KMS knows the master key, by creating a key and discarding it."""
        self._kms_keys.create(master_key_id, table_id="", table_uuid=uuid4())

    def _batch(self, peks: Sequence[PekRecord]) -> tuple[int, list[NotRewrapped]]:
        """Rewrap a batch, or its keys one by one if a KMS refuses the batch."""
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
        forms = by_master_key(peks, lambda pek: pek.kms, self._rewrapped)
        pairs = zip(peks, forms, strict=True)
        checked = [(pek, form, self._forms.same_key(pek, form, pek.kms)) for pek, form in pairs]
        with write(self._kms_keys.engine) as connection:
            return sum(key_records.replace_wrapped(connection, *each) for each in checked)

    def _rewrapped(self, kms: str, peks: Sequence[PekRecord]) -> list[bytes]:
        client = self._kms_keys.clients.named(kms)
        forms = client.rewrap_keys([(pek.wrapped, self._forms.context(pek)) for pek in peks])
        if len(forms) != len(peks):
            raise KeyNotUsable("The KMS returned a different number of keys than were sent.", rule="rewrap")
        return forms
