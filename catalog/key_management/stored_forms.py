"""Checks a new stored form of a key before it replaces the one before."""

from __future__ import annotations

import hmac

from catalog.envelope.peks import PekRecord, key_check
from catalog.keyring.kms_keys import KmsKeys
from catalog.kms.interface import KeyContext
from policy.errors import DecryptionRefused


class StoredForms:
    """Opens wrapped forms of keys, and compares them.

    Args:
        kms_keys: the KMSs, and the name of the catalog that keys are bound to.
    """

    def __init__(self, kms_keys: KmsKeys) -> None:
        self._kms_keys = kms_keys

    def context(self, pek: PekRecord) -> KeyContext:
        """Return what a key is bound to."""
        return KeyContext(self._kms_keys.catalog, pek.table_uuid)

    def same_key(self, pek: PekRecord, form: bytes, kms: str) -> bytes:
        """Check that a new form holds the stored key, and return the key's check value.

        Args:
            pek: the key, as it is stored.
            form: its new form.
            kms: the KMS that wrapped the new form.

        Raises:
            DecryptionRefused: it holds another key.
            KeyNotUsable, KmsUnavailable: the KMS does not open a form.
        """
        stored = pek.check if pek.check is not None else self._check(pek, pek.wrapped, pek.kms)
        found = self._check(pek, form, kms)
        if not hmac.compare_digest(stored, found):
            raise DecryptionRefused(
                f"The KMS {kms!r} returned a different key for PEK {pek.id} version {pek.version}.",
                rule="rewrap",
                hint="Nothing was stored. Ask the administrator of the KMS to examine it.",
            )
        return found

    def _check(self, pek: PekRecord, wrapped: bytes, kms: str) -> bytes:
        key = self._kms_keys.clients.named(kms).get_key(wrapped, self.context(pek))
        try:
            return key_check(key, pek.table_uuid, pek.ref)
        finally:
            key.wipe()
