"""The interface to a key management service.

A back end MUST
- keep the master key inside the KMS, and bind every wrapped key to its master key and to the context, so
  that it opens for no other table or catalog;
- answer or raise within a bounded time, and be safe for use from many threads;
- raise `KmsUnavailable` when the KMS does not answer, `KeyNotUsable` when the master key is unknown, disabled
  or destroyed, `DecryptionRefused` when the wrapped key is malformed, changed or of another context;
- keep the key as it is when it is rewrapped, and its plain form inside the KMS where the KMS can;
- ask the KMS each time it is called: caching is `peks.PekCache`'s, and so is the bound on revocation.

A back end SHOULD
- wrap a given key (`wrap_key`), so that keys can move to it from another KMS or master key.

A back end MAY
- choose the bytes of a wrapped key freely, as long as they name the master key and its version;
- raise `KeyNotUsable` for a master key that its caller may not use.

Source: NIST SP 800-38D.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from catalog.crypto.aead import Aead
from catalog.crypto.secret import SecretBytes
from policy.errors import KeyNotUsable


@dataclass(frozen=True, slots=True)
class KeyContext:
    """The table or other object that a wrapped key is bound to.

    Attributes:
        catalog: name of the catalog.
        table_uuid: the table's immutable UUID; names change.
    """

    catalog: str
    table_uuid: UUID

    def to_bytes(self) -> bytes:
        """Encode unambiguously: u16 length and UTF-8 of the catalog, then the 16 bytes of the UUID."""
        name = self.catalog.encode("utf-8")
        return len(name).to_bytes(2, "big") + name + self.table_uuid.bytes


class CreatedKey(NamedTuple):
    """A new key and its wrapped form, which can be stored."""

    wrapped: bytes
    key: SecretBytes


class KmsClient(ABC):
    """A key management service; the module docstring states what an implementation must and can do."""

    @property
    @abstractmethod
    def identifier(self) -> str:
        """Return the short, stable name of the back end, stored beside every key that it wrapped."""

    @abstractmethod
    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        """Create a random key, wrapped by a master key.

        Args:
            master_key_id: the master key in the KMS.
            length: 16, 24 or 32 bytes.
            context: what the key belongs to.

        Raises:
            KeyNotUsable: the master key is unknown, disabled or destroyed, or the length is another.
            KmsUnavailable: the KMS does not answer.
        """

    @abstractmethod
    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        """Unwrap a key that `create_key` wrapped.

        Raises:
            DecryptionRefused: malformed, changed, or wrapped for another context.
            KeyNotUsable: the master key is unknown, disabled or destroyed.
            KmsUnavailable: the KMS does not answer.
        """

    def wrap_key(self, master_key_id: str, key: SecretBytes, context: KeyContext) -> bytes:
        """Wrap a key that exists, which moves here from another KMS or master key.

        Args:
            master_key_id: the master key in this KMS.
            key: 16, 24 or 32 bytes.
            context: what the key belongs to.

        Returns:
            The wrapped form, which `get_key` opens as it opens that of a created key.

        Raises:
            KeyNotUsable: as `create_key`; or the back end cannot wrap a given key.
            KmsUnavailable: the KMS does not answer.
        """
        raise KeyNotUsable(
            f"The KMS {self.identifier!r} cannot wrap an existing key, so keys cannot move to it.",
            rule="wrap-key",
            hint="Update the package of that KMS, or set encryption.master-key-id of the tables to a master "
            "key in it, and rewrite their files.",
        )

    @abstractmethod
    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """Rewrap keys under the newest version of their master keys.

        In one call to the KMS where it can; what is newest already may come back as it is or rewrapped.

        Args:
            items: what `create_key` or an earlier call wrapped, each with its own context.

        Returns:
            The new wrapped forms, in the order of the items. All or none: one that fails fails the call.

        Raises:
            as `get_key`.
        """

    def encrypt_data_key(self, data_key: SecretBytes, key: SecretBytes, aad: bytes) -> bytes:
        """Wrap a data key under another key, without calling the KMS: nonce | ciphertext | tag.

        Raises:
            KeyNotUsable: the wrapping key has not 16, 24 or 32 bytes.
        """
        return Aead(key).seal(data_key.reveal(), aad)

    def decrypt_data_key(self, wrapped: bytes, key: SecretBytes, aad: bytes) -> SecretBytes:
        """Unwrap a data key that `encrypt_data_key` wrapped.

        Raises:
            DecryptionRefused: it does not open.
            KeyNotUsable: the wrapping key has not 16, 24 or 32 bytes.
        """
        return SecretBytes(Aead(key).open(wrapped, aad))
