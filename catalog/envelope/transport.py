"""Data keys in transport: to an engine under a key for one scan, and back under a key for one write.

Rules:
- PEKs stay in the catalog. A plan has the data keys of the planned files, wrapped under the scan's transport
  key. A commit has the write's data keys, wrapped under the write's transport key; they are rewrapped under
  the PEK.
- A transport key serves one purpose, and each wrapped key is bound to the transport key, table, file, master
  key name and columns.
- `scan_keys` wraps for a scan, with a counter as nonce.
- Write: many executors share no counter, so nonces are random. One write key wraps at most 2**32 keys (NIST
  SP 800-38D, section 8.3); a write session ends long before. `write_keys` rewraps the keys of a commit.

Source: docs/key-metadata.md, "Transport keys".
"""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from catalog.crypto.aead import KEY_LENGTHS, Aead, refused
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import KeyEntry
from catalog.envelope.peks import Pek
from policy.encryption.governed_values import is_master_key_id
from policy.errors import DecryptionRefused

TRANSPORT_ID_LENGTH: Final = 16
TRANSPORT_KEY_LENGTH: Final = 32
_STORED_AAD: Final = b"lakewarden/transport-key/1\0"


class Purpose(StrEnum):
    """The purpose of a transport key."""

    SCAN = "scan"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class TransportKey:
    """A transport key, for one scan or one write.

    Attributes:
        id: 16 random bytes.
        purpose: scan or write.
        key: 32 bytes.
    """

    id: bytes
    purpose: Purpose
    key: SecretBytes

    def __post_init__(self) -> None:
        if len(self.id) != TRANSPORT_ID_LENGTH or len(self.key) != TRANSPORT_KEY_LENGTH:
            raise ValueError("a transport key must have an id of 16 bytes and a key of 32 bytes")

    @classmethod
    def new(cls, purpose: Purpose) -> TransportKey:
        """Create a random transport key."""
        key = SecretBytes(secrets.token_bytes(TRANSPORT_KEY_LENGTH))
        return cls(secrets.token_bytes(TRANSPORT_ID_LENGTH), purpose, key)


class KeyLabel(NamedTuple):
    """Identifies a key of a file.

    Attributes:
        key_name: the master key id.
        field_ids: the columns under the key; empty for the footer key, or the key of the whole file.
    """

    key_name: str
    field_ids: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        """Encode role, key name with length, and field ids with count.

        Raises:
            DecryptionRefused: no key can have this label.
        """
        ids = self.field_ids
        if not is_master_key_id(self.key_name) or len(ids) > 0xFFFF or not all(0 <= i < 2**31 for i in ids):
            raise refused()
        name = self.key_name.encode("ascii")
        return bytes((bool(ids), len(name))) + name + struct.pack(f">H{len(ids)}i", len(ids), *ids)


def label_of(entry: KeyEntry) -> KeyLabel:
    """Return the label of a key metadata entry."""
    bound = entry.bound
    return KeyLabel(bound.pek.master_key_id, bound.field_ids)


def transport_prefix(transport: TransportKey, table_uuid: UUID) -> bytes:
    """Return the prefix of `transport_aad` that all files of a scan or write share."""
    return f"lakewarden/{transport.purpose}/1\0".encode("ascii") + transport.id + table_uuid.bytes


def transport_aad(transport: TransportKey, file: FileIdentity, label: KeyLabel) -> bytes:
    """Return the AAD of a data key under a transport key."""
    return transport_prefix(transport, file.table_uuid) + file.file_id + label.to_bytes()


def open_transported(
    transport: TransportKey, wrapped: bytes, file: FileIdentity, label: KeyLabel
) -> SecretBytes:
    """Unwrap a data key from a plan (on the engine) or from a commit (in the catalog).

    Raises:
        DecryptionRefused: it was changed, or belongs to another transport key, table, file, key or column.
    """
    dek = Aead(transport.key).open_key(wrapped, transport_aad(transport, file, label))
    if len(dek) not in KEY_LENGTHS:
        raise refused()
    return dek


def wrap_for_write(transport: TransportKey, dek: SecretBytes, file: FileIdentity, label: KeyLabel) -> bytes:
    """Wrap a data key that an executor made, for the commit.

    Raises:
        DecryptionRefused: the transport key is not a write's.
    """
    require_purpose(transport, Purpose.WRITE)
    return Aead(transport.key).seal_key(dek, transport_aad(transport, file, label))


def seal_transport_key(transport: TransportKey, pek: Pek) -> bytes:
    """Seal a write's transport key under one of the table's PEKs, for storage until the commit."""
    return pek.aead.seal_key(transport.key, _stored_aad(transport.id, transport.purpose, pek))


def open_transport_key(sealed: bytes, transport_id: bytes, purpose: Purpose, pek: Pek) -> TransportKey:
    """Open a transport key that `seal_transport_key` sealed.

    Raises:
        DecryptionRefused: it was changed, or has another id, purpose, table or PEK.
    """
    key = pek.aead.open_key(sealed, _stored_aad(transport_id, purpose, pek))
    return TransportKey(transport_id, purpose, key)


def _stored_aad(transport_id: bytes, purpose: Purpose, pek: Pek) -> bytes:
    ref = pek.ref
    owner = pek.table_uuid.bytes + ref.pek_id.bytes + ref.version.to_bytes(4, "big")
    return _STORED_AAD + transport_id + bytes([purpose is Purpose.WRITE]) + owner


def require_purpose(transport: TransportKey, purpose: Purpose) -> None:
    """Refuse a transport key that was made for another purpose.

    Raises:
        DecryptionRefused: it has another purpose.
    """
    if transport.purpose is not purpose:
        raise DecryptionRefused(
            f"A transport key for a {transport.purpose} cannot be used for a {purpose}.",
            rule="transport-purpose",
        )
