"""Moves keys to another master key, or to another KMS; no table, file or key changes.

- First, the master key id is assigned to the other KMS key (`assign`). From then on, new keys are made there,
  and a key that a request made before is not stored (`catalog.state.master_keys`).
- Then the keys that exist move in batches (`move`): each is unwrapped by the KMS key before, wrapped by the
  other one, opened again and compared. Only then it is stored, in the place of the form before.
- Tables, policies and key metadata name the id, which stays. A file that was written before stays as it is.
- An interrupted move is run again: keys that have moved are not moved again.
- A key that cannot move is reported, and does not stop the others.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from catalog.base import crash_points
from catalog.context import ServiceContext
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read, write
from catalog.envelope.peks import PEK_LENGTH, PekRecord
from catalog.key_management.master_keys import NotRewrapped
from catalog.key_management.stored_forms import StoredForms
from catalog.kms.clients import KmsKey
from catalog.kms.interface import KeyContext
from catalog.state import master_keys, stored_keys
from catalog.state import pek_records as key_records
from catalog.state.stored_keys import KeyFilter
from policy.encryption.epochs import PekRef
from policy.encryption.governed_values import is_endpoint_key_name, is_master_key_id
from policy.errors import KeyNotUsable, Refused, RequestInvalid

BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class MovedKeys:
    """The result of moving a batch of keys.

    Attributes:
        moved: number of keys that are stored under the other KMS key.
        failed: the keys that are not, with the reason.
        last: the last key of the batch; the next batch begins after it. None if there is no other.
    """

    moved: int
    failed: tuple[NotRewrapped, ...]
    last: PekRef | None


class MasterKeyMoves:
    """Moves the keys of master key ids to other KMS keys.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._engine = context.engine
        self._catalog = context.catalog
        self._now_ms = context.now_ms
        self._kms_keys = context.kms_keys
        self._forms = StoredForms(context.kms_keys)
        self._peks = context.peks

    def assign(self, master_key_id: str, key: KmsKey, author: str) -> KmsKey:
        """Let a master key id stand for another KMS key, for keys that are made from now on.

        The KMS key is tried first: it wraps a key and opens it again.

        Args:
            master_key_id: what tables and policies name.
            key: the KMS key.
            author: who changes it.

        Returns:
            the KMS key before.

        Raises:
            RequestInvalid: the id cannot name a master key.
            KeyNotUsable: the KMS is not configured, its master key cannot be used, or it cannot wrap given
                keys.
            KmsUnavailable: the KMS does not answer, or opens another key.
        """
        if not is_master_key_id(master_key_id) or is_endpoint_key_name(master_key_id):
            raise RequestInvalid(
                f"{master_key_id[:80]!r} is not a valid master key id.",
                rule="master-key-id",
                hint="Give the id that tables name in encryption.master-key-id.",
            )
        before = self._kms_keys.of(master_key_id)
        self._try(key)
        crash_points.point("assign-master:tried")
        with write(self._engine) as connection:
            master_keys.assign(connection, self._catalog, master_key_id, key, author, self._now_ms())
        crash_points.point("assign-master:assigned")
        return before

    def move(
        self,
        master_key_id: str,
        table_uuid: UUID | None = None,
        after: PekRef | None = None,
        limit: int = BATCH,
    ) -> MovedKeys:
        """Move a batch of the keys that are not under the KMS key that their master key id stands for.

        Args:
            master_key_id: the id.
            table_uuid: only keys of this table; of all tables and of the KMS endpoint by default.
            after: the last key of the batch before.
            limit: maximum number of keys.

        Raises:
            KeyNotUsable: the KMS of the id is not configured.
            KmsUnavailable: a KMS does not answer; keys that moved stay moved.
        """
        key = self._kms_keys.of(master_key_id)
        self._kms_keys.clients.named(key.kms)
        chosen = KeyFilter(master_key_id=master_key_id, table_uuid=table_uuid, other_than=key)
        with read(self._engine) as connection:
            peks = stored_keys.select_keys(connection, self._catalog, chosen, after, limit)
        moved, failed = 0, list[NotRewrapped]()
        for pek in peks:
            try:
                moved += self._move(pek, key)
            except Refused as refusal:
                failed.append(NotRewrapped(pek.ref, refusal.message))
            crash_points.point("move-master:key")
        return MovedKeys(moved, tuple(failed), peks[-1].ref if len(peks) == limit else None)

    def _move(self, pek: PekRecord, target: KmsKey) -> bool:
        """Move one key; return False if it has changed meanwhile."""
        clients, context = self._kms_keys.clients, self._forms.context(pek)
        key = clients.named(pek.kms).get_key(pek.wrapped, context)
        try:
            form = clients.named(target.kms).wrap_key(target.key_id, key, context)
        finally:
            key.wipe()
        check = self._forms.same_key(pek, form, target.kms)
        crash_points.point("move-master:wrapped")
        with write(self._engine) as connection:
            # Held to the end: a move to a third KMS key waits.
            master_keys.require_still(connection, self._catalog, pek.master_key_id, target)
            stored = key_records.replace_wrapped(connection, pek, form, check, target)
        self._peks.forget(pek.id)
        return stored

    def _try(self, key: KmsKey) -> None:
        """Check that a KMS key wraps a given key, and opens it again."""
        client = self._kms_keys.clients.named(key.kms)
        context, probe = KeyContext(self._catalog, uuid4()), SecretBytes(secrets.token_bytes(PEK_LENGTH))
        opened = client.get_key(client.wrap_key(key.key_id, probe, context), context)
        same = hmac.compare_digest(opened.reveal(), probe.reveal())
        opened.wipe()
        probe.wipe()
        if not same:
            raise KeyNotUsable(
                f"The KMS {key.kms!r} opened another key than it wrapped.",
                rule="key-check",
                hint="Ask the administrator of the KMS to examine it.",
            )
