"""Keys for Parquet's key tools: data keys under a key-encryption key (KEK), and KEKs under the table's PEK.

Rules:
- A KEK is used for one write and one key of its files: the footer's, or that of a group of columns. Standard
  readers request each KEK once, for any number of files (double wrapping in Parquet's key tools).
- An engine gets the KEK under the write's transport key. Files store it *wrapped*: sealed under the PEK with
  an AAD of its own purpose, so that a data key or transport key cannot be used as a KEK.
- The wrapped form names its table, PEK and governed version. All of that is authenticated, and untrusted
  until it has been opened.

Source: docs/key-metadata.md, "Keys for standard Parquet readers"; parquet-java, `KeyMaterial`, `KeyToolkit`.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from catalog.crypto.aead import OVERHEAD, Aead, refused
from catalog.crypto.secret import SecretBytes
from catalog.envelope.peks import Pek
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, require_purpose
from policy.errors import DecryptionRefused

KEK_LENGTH: Final = 32
KEK_ID_LENGTH: Final = 16
FORMAT_1: Final = 0xC1
_HEAD: Final = struct.Struct(">B16s16sIIB")
_WRAPPED_LENGTH: Final = _HEAD.size + KEK_LENGTH + OVERHEAD
_STORED_AAD: Final = b"lakewarden/kek/1\0"
_TRANSPORT_AAD: Final = b"lakewarden/write-kek/1\0"


class KekClaims(NamedTuple):
    """The claims in a wrapped KEK; untrusted until `open_kek` has decrypted it.

    Attributes:
        table_uuid: the table whose files it opens.
        pek_id: the PEK that seals it.
        pek_version: the version of that PEK.
        governed_version: the table's governed version when the write began.
        of_group: whether it is for a group of columns, else for the footer or the whole file.
    """

    table_uuid: UUID
    pek_id: UUID
    pek_version: int
    governed_version: int
    of_group: bool

    def to_bytes(self) -> bytes:
        """Encode the header of the wrapped form."""
        return _HEAD.pack(
            FORMAT_1,
            self.table_uuid.bytes,
            self.pek_id.bytes,
            self.pek_version,
            self.governed_version,
            self.of_group,
        )


class StockKey(NamedTuple):
    """A KEK in transport to an engine.

    Attributes:
        label: identifies the key of the files that it is for.
        kek_id: 16 random bytes.
        kek: the KEK under the write's transport key.
        wrapped: the KEK as files store it, in base64.
    """

    label: KeyLabel
    kek_id: bytes
    kek: bytes
    wrapped: str


def make_stock_keys(
    transport: TransportKey,
    table_uuid: UUID,
    governed_version: int,
    labels: Sequence[KeyLabel],
    peks: Mapping[str, Pek],
) -> tuple[StockKey, ...]:
    """Create KEKs for a write, one for each key of its files.

    Args:
        transport: the write's key.
        table_uuid: the table that is written.
        governed_version: its governed version.
        labels: the keys of each file.
        peks: the table's PEKs by master key id.

    Raises:
        DecryptionRefused: the transport key is not a write's, or a PEK is another table's.
    """
    require_purpose(transport, Purpose.WRITE)
    return tuple(
        _make(transport, table_uuid, governed_version, label, peks[label.key_name]) for label in labels
    )


def _make(
    transport: TransportKey, table_uuid: UUID, governed_version: int, label: KeyLabel, pek: Pek
) -> StockKey:
    if pek.table_uuid != table_uuid:
        raise refused()
    kek_id, kek = secrets.token_bytes(KEK_ID_LENGTH), SecretBytes(secrets.token_bytes(KEK_LENGTH))
    claims = KekClaims(
        table_uuid, pek.ref.pek_id, pek.ref.version, governed_version, of_group=bool(label.field_ids)
    )
    head = claims.to_bytes()
    sealed = pek.aead.seal_key(kek, _STORED_AAD + head)
    sent = Aead(transport.key).seal_key(kek, transport_kek_aad(transport, table_uuid, kek_id, label))
    kek.wipe()
    return StockKey(label, kek_id, sent, base64.b64encode(head + sealed).decode("ascii"))


def transport_kek_aad(transport: TransportKey, table_uuid: UUID, kek_id: bytes, label: KeyLabel) -> bytes:
    """Return the AAD of a KEK under a transport key."""
    return _TRANSPORT_AAD + transport.id + table_uuid.bytes + kek_id + label.to_bytes()


def claims_of(wrapped: str) -> KekClaims:
    """Parse the claims of a wrapped KEK.

    Raises:
        DecryptionRefused: the bytes are not a wrapped KEK.
    """
    form, table_uuid, pek_id, pek_version, governed_version, of_group = _HEAD.unpack_from(_bytes_of(wrapped))
    if form != FORMAT_1 or of_group > 1 or pek_version == 0 or governed_version == 0:
        raise _malformed()
    return KekClaims(
        UUID(bytes=table_uuid), UUID(bytes=pek_id), pek_version, governed_version, of_group=bool(of_group)
    )


def open_kek(wrapped: str, pek: Pek) -> SecretBytes:
    """Unwrap a KEK.

    Args:
        wrapped: as files store it.
        pek: the PEK that it claims.

    Raises:
        DecryptionRefused: it was changed, or belongs to another table or PEK.
    """
    claims, data = claims_of(wrapped), _bytes_of(wrapped)
    named = (pek.table_uuid, pek.ref.pek_id, pek.ref.version)
    if named != (claims.table_uuid, claims.pek_id, claims.pek_version):
        raise refused()
    return pek.aead.open_key(data[_HEAD.size :], _STORED_AAD + data[: _HEAD.size])


def _bytes_of(wrapped: str) -> bytes:
    try:
        data = base64.b64decode(wrapped.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as failure:
        raise _malformed() from failure
    if len(data) != _WRAPPED_LENGTH:
        raise _malformed()
    return data


def _malformed() -> DecryptionRefused:
    return DecryptionRefused(
        "The request does not contain a wrapped key of a Parquet file.",
        rule="wrapped-kek",
        hint="Send the wrapped key from the file's key material, unchanged.",
    )
