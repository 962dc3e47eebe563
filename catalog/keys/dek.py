"""Data keys (DEKs): made per file and key, wrapped by a PEK, bound to table, file and columns.

Rules:
- The AAD of a wrapped data key names the header of the key metadata, the table, the file, the PEK and the
  columns. An entry that was moved to another table, file, key or column does not open.
- A PEK wraps data keys of its own table alone.
- Nonces are random: one PEK may wrap 2**32 data keys.

Source: docs/key-metadata.md, "Wrapped data keys".
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from catalog.keys.aead import refused, require_key_length
from catalog.keys.file_identity import FileIdentity
from catalog.keys.key_metadata import Binding, KeyEntry, KeyMetadata, header
from catalog.keys.peks import Pek
from catalog.keys.secret import SecretBytes
from policy.encryption import Algorithm, Footer
from policy.regimes import PekRef

DEK_AAD: Final = b"lakewarden/dek/1\0"


class NewKey(NamedTuple):
    """A data key that is to be wrapped.

    Attributes:
        pek: the PEK to wrap it with.
        field_ids: the columns under the key; empty for the footer key, or the key of the whole file.
        dek: the data key.
    """

    pek: Pek
    field_ids: tuple[int, ...]
    dek: SecretBytes


def new_dek(length: int) -> SecretBytes:
    """A random data key.

    Raises:
        KeyNotUsable: a length other than 16, 24 or 32 bytes.
    """
    return SecretBytes(secrets.token_bytes(require_key_length(length)))


def dek_aad(file_header: bytes, file: FileIdentity, binding: bytes) -> bytes:
    """The AAD of one wrapped data key.

    Args:
        file_header: bytes 0 to 2 of the key metadata.
        file: table and file.
        binding: the bytes of the entry's `Binding`.
    """
    return b"".join((DEK_AAD, file_header, file.table_uuid.bytes, file.file_id, binding))


def wrap_deks(
    algorithm: Algorithm, footer: Footer, file: FileIdentity, keys: Sequence[NewKey]
) -> KeyMetadata:
    """The key metadata of a new file.

    Args:
        algorithm: the algorithm of the file.
        footer: whether its footer is encrypted.
        file: table and file.
        keys: the footer key and the column keys, in any order.

    Raises:
        DecryptionRefused: a PEK of another table, or keys that no key metadata can hold.
        KeyNotUsable: a data key of another length than 16, 24 or 32 bytes.
    """
    head = header(algorithm, footer)
    ordered = sorted(keys, key=lambda key: key.field_ids)
    metadata = KeyMetadata(head, tuple(_wrap(head, file, key) for key in ordered))
    metadata.to_bytes()
    return metadata


def _wrap(head: bytes, file: FileIdentity, key: NewKey) -> KeyEntry:
    if key.pek.table_uuid != file.table_uuid:
        raise refused()
    require_key_length(len(key.dek))
    binding = Binding(key.pek.ref, key.field_ids).to_bytes()
    return KeyEntry(binding, key.pek.aead.seal_key(key.dek, dek_aad(head, file, binding)))


def open_dek(metadata: KeyMetadata, entry: KeyEntry, file: FileIdentity, pek: Pek) -> SecretBytes:
    """The data key of one entry.

    Raises:
        DecryptionRefused: another PEK or table, or the entry does not open.
    """
    if pek.ref != entry.bound.pek or pek.table_uuid != file.table_uuid:
        raise refused()
    return pek.aead.open_key(entry.wrapped, dek_aad(metadata.header, file, entry.binding))


def rewrap_deks(
    metadata: KeyMetadata, file: FileIdentity, peks: Mapping[PekRef, Pek], targets: Mapping[UUID, PekRef]
) -> KeyMetadata:
    """The same data keys, each under the version of its PEK that is wanted.

    Args:
        metadata: the key metadata of a file.
        file: table and file.
        peks: the PEKs that it is under, and those wanted.
        targets: the version that is wanted of a PEK, by its id; keys of others, and of later versions, stay.

    Raises:
        DecryptionRefused: a data key does not open, or its PEK is not among `peks`.
    """
    entries = tuple(_rewrap(metadata, entry, file, peks, targets) for entry in metadata.entries)
    return KeyMetadata(metadata.header, entries)


def _rewrap(
    metadata: KeyMetadata,
    entry: KeyEntry,
    file: FileIdentity,
    peks: Mapping[PekRef, Pek],
    targets: Mapping[UUID, PekRef],
) -> KeyEntry:
    bound = entry.bound
    target = targets.get(bound.pek.pek_id)
    if target is None or target.version <= bound.pek.version:
        return entry
    dek = open_dek(metadata, entry, file, _known(peks, bound.pek))
    return _wrap(metadata.header, file, NewKey(_known(peks, target), bound.field_ids, dek))


def same_deks(
    before: KeyMetadata, after: KeyMetadata, file: FileIdentity, peks: Mapping[PekRef, Pek]
) -> bool:
    """Whether two forms of a file's key metadata hold the same keys for the same columns of the same PEKs.

    Raises:
        DecryptionRefused: a data key does not open, or its PEK is not among `peks`.
    """
    if before.header != after.header or len(before.entries) != len(after.entries):
        return False
    return all(
        (old.bound.field_ids, old.bound.pek.pek_id, old.bound.pek.master_key_id)
        == (new.bound.field_ids, new.bound.pek.pek_id, new.bound.pek.master_key_id)
        and open_dek(before, old, file, _known(peks, old.bound.pek))
        == open_dek(after, new, file, _known(peks, new.bound.pek))
        for old, new in zip(before.entries, after.entries, strict=True)
    )


def _known(peks: Mapping[PekRef, Pek], ref: PekRef) -> Pek:
    pek = peks.get(ref)
    if pek is None:
        raise refused()
    return pek
