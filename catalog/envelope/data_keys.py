"""Data keys (DEKs): one per file and key, wrapped by a PEK, bound to table, file and columns.

Rules:
- The AAD of a wrapped data key contains the header of the key metadata, the table, the file, the PEK, the
  columns, and the digests of the file and its footer if there are any. An entry that was moved to another
  table, file, key or column does not open. Neither does an entry beside a changed digest.
- Bounds of a key's columns are sealed by the same PEK, with the same AAD under another purpose.
- A PEK is used for its own table only.
- Nonces are random, so one PEK can seal 2**32 times; `catalog.state.invocations` counts.

Source: docs/key-metadata.md, "Wrapped data keys" and "Encrypted statistics".
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from catalog.crypto.aead import refused, require_key_length
from catalog.crypto.secret import SecretBytes
from catalog.envelope import encrypted_statistics
from catalog.envelope.encrypted_statistics import ColumnBounds
from catalog.envelope.file_digests import FileDigest, FooterDigest
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import Binding, KeyEntry, KeyMetadata, header
from catalog.envelope.peks import Pek
from policy.encryption.epochs import PekRef
from policy.encryption.specification import Algorithm, Footer

DEK_AAD: Final = b"lakewarden/dek/1\0"
BOUNDS_AAD: Final = b"lakewarden/bounds/1\0"


class NewKey(NamedTuple):
    """A data key to wrap.

    Attributes:
        pek: the PEK to wrap it with.
        field_ids: the columns under the key; empty for the footer key, or the key of the whole file.
        dek: the data key.
    """

    pek: Pek
    field_ids: tuple[int, ...]
    dek: SecretBytes


def new_dek(length: int) -> SecretBytes:
    """Create a random data key.

    Raises:
        KeyNotUsable: a length other than 16, 24 or 32 bytes.
    """
    return SecretBytes(secrets.token_bytes(require_key_length(length)))


def sealed_aad(purpose: bytes, metadata: KeyMetadata, file: FileIdentity, binding: bytes) -> bytes:
    """Return the AAD of a value that a PEK seals for one key of a file.

    Args:
        purpose: `DEK_AAD` or `BOUNDS_AAD`.
        metadata: the key metadata; its header and digests are used.
        file: table and file.
        binding: the bytes of the entry's `Binding`.
    """
    return b"".join(
        (purpose, metadata.header, file.table_uuid.bytes, file.file_id, binding, metadata.digests)
    )


def wrap_deks(
    algorithm: Algorithm,
    footer: Footer,
    file: FileIdentity,
    keys: Sequence[NewKey],
    *,
    digest: FileDigest | None = None,
    footer_digest: FooterDigest | None = None,
    stock_readers: bool = False,
) -> KeyMetadata:
    """Wrap data keys into the key metadata of a new file, without encrypted statistics.

    Args:
        algorithm: the algorithm of the file.
        footer: whether its footer is encrypted.
        file: table and file.
        keys: the footer key and the column keys, in any order.
        digest: of the file's bytes, if digests are stored.
        footer_digest: of its footer's bytes, if it is stored.
        stock_readers: whether the file also has the key material for standard Parquet readers.

    Raises:
        DecryptionRefused: a PEK of another table, or keys that the format cannot store.
        KeyNotUsable: a data key whose length is not 16, 24 or 32 bytes.
    """
    head = header(
        algorithm,
        footer,
        digest=digest is not None,
        footer_digest=footer_digest is not None,
        stock_readers=stock_readers,
    )
    bare = KeyMetadata(head, (), digest, footer_digest)
    ordered = sorted(keys, key=lambda key: key.field_ids)
    metadata = bare._replace(entries=tuple(_wrap(bare, file, key) for key in ordered))
    metadata.to_bytes()
    return metadata


def _wrap(metadata: KeyMetadata, file: FileIdentity, key: NewKey) -> KeyEntry:
    """Wrap one key into an entry, with this header and these digests."""
    if key.pek.table_uuid != file.table_uuid:
        raise refused()
    require_key_length(len(key.dek))
    binding = Binding(key.pek.ref, key.field_ids).to_bytes()
    return KeyEntry(binding, key.pek.aead.seal_key(key.dek, sealed_aad(DEK_AAD, metadata, file, binding)))


def open_dek(metadata: KeyMetadata, entry: KeyEntry, file: FileIdentity, pek: Pek) -> SecretBytes:
    """Unwrap the data key of one entry.

    Raises:
        DecryptionRefused: another PEK or table, or the entry does not open.
    """
    _require_pek(entry, file, pek)
    return pek.aead.open_key(entry.wrapped, sealed_aad(DEK_AAD, metadata, file, entry.binding))


def open_bounds(
    metadata: KeyMetadata, file: FileIdentity, peks: Callable[[PekRef], Pek]
) -> dict[int, ColumnBounds]:
    """Decrypt the encrypted statistics of the file's columns, by field id; empty if there are none.

    Args:
        metadata: the key metadata of a file.
        file: table and file.
        peks: the PEK of each entry.

    Raises:
        DecryptionRefused: another PEK or table, or bounds that do not open, are malformed, or belong to a
            column that their key does not cover.
    """
    found: dict[int, ColumnBounds] = {}
    if metadata.bounds:
        for entry, sealed in zip(metadata.covering, metadata.bounds, strict=True):
            columns = _open_bounds(metadata, entry, sealed, file, peks(entry.bound.pek))
            ids = entry.bound.field_ids
            if ids and not columns.keys() <= set(ids):
                raise encrypted_statistics.malformed()
            found |= columns
    return found


def _open_bounds(
    metadata: KeyMetadata, entry: KeyEntry, sealed: bytes, file: FileIdentity, pek: Pek
) -> dict[int, ColumnBounds]:
    _require_pek(entry, file, pek)
    plain = pek.aead.open(sealed, sealed_aad(BOUNDS_AAD, metadata, file, entry.binding))
    return encrypted_statistics.decode(plain)


def _require_pek(entry: KeyEntry, file: FileIdentity, pek: Pek) -> None:
    if pek.ref != entry.bound.pek or pek.table_uuid != file.table_uuid:
        raise refused()


def rewrap_deks(
    metadata: KeyMetadata, file: FileIdentity, peks: Mapping[PekRef, Pek], targets: Mapping[UUID, PekRef]
) -> KeyMetadata:
    """Rewrap data keys under the target versions of their PEKs.

    Args:
        metadata: the key metadata of a file.
        file: table and file.
        peks: the current PEKs of its keys, and the target PEKs.
        targets: the target version by PEK id; keys of other PEKs, and of later versions, stay.

    Raises:
        DecryptionRefused: a data key does not open, or its PEK is not among `peks`.
    """
    entries = tuple(_rewrap(metadata, entry, file, peks, targets) for entry in metadata.entries)
    rewrapped = metadata._replace(entries=entries)
    if not metadata.bounds:
        return rewrapped
    moved = zip(metadata.covering, rewrapped.covering, metadata.bounds, strict=True)
    bounds = tuple(
        sealed if old.binding == new.binding else _reseal(metadata, old, new, sealed, file, peks)
        for old, new, sealed in moved
    )
    return rewrapped._replace(bounds=bounds)


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
    return _wrap(metadata, file, NewKey(_known(peks, target), bound.field_ids, dek))


def _reseal(
    metadata: KeyMetadata,
    before: KeyEntry,
    after: KeyEntry,
    sealed: bytes,
    file: FileIdentity,
    peks: Mapping[PekRef, Pek],
) -> bytes:
    """Reseal the encrypted statistics of an entry under another version of its PEK."""
    plain = _known(peks, before.bound.pek).aead.open(
        sealed, sealed_aad(BOUNDS_AAD, metadata, file, before.binding)
    )
    return _known(peks, after.bound.pek).aead.seal(
        plain, sealed_aad(BOUNDS_AAD, metadata, file, after.binding)
    )


def same_deks(
    before: KeyMetadata, after: KeyMetadata, file: FileIdentity, peks: Mapping[PekRef, Pek]
) -> bool:
    """Return whether two forms of a file's key metadata have the same keys for the same columns and PEKs.

    Digests and bounds must be equal too.

    Raises:
        DecryptionRefused: a data key or bounds do not open, or their PEK is not among `peks`.
    """
    if (before.header, before.digests) != (after.header, after.digests):
        return False
    if len(before.entries) != len(after.entries):
        return False

    def known(ref: PekRef) -> Pek:
        return _known(peks, ref)

    return open_bounds(before, file, known) == open_bounds(after, file, known) and all(
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
