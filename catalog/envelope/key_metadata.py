"""Parses and encodes the key metadata of one encrypted file: ``key_metadata`` in a manifest.

Rules:
- Each value has one encoding: the footer key first, column groups ascending by their first field id, field
  ids ascending and in one group only, nothing after the last key. Anything else is `DecryptionRefused`.
- Parsed values are untrusted until a key in them has been opened: the AAD of each wrapped key covers the
  header, the table, the file, everything else in the entry, and the digests of the file and its footer if
  there are any.
- The flags say which sections follow the keys. They are authenticated, so that no section can be removed.
- A footer digest exists only beside column keys: if all is under one key, a user with the footer's key has
  the key of every column.
- Sealed bounds: one value for each key that covers columns, even if nothing is known of the columns.
- Parsing is strict and fast, because a commit parses the key metadata of every file.

Source: docs/key-metadata.md, "Key metadata".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from catalog.crypto.aead import KEY_LENGTHS, OVERHEAD
from catalog.envelope.file_digests import (
    FILE_DIGEST_BYTES,
    FOOTER_DIGEST_BYTES,
    FileDigest,
    FooterDigest,
    malformed,
)
from policy.encryption.epochs import FileKey, FileKeys, PekRef
from policy.encryption.governed_values import is_master_key_id
from policy.encryption.specification import Algorithm, Footer

FORMAT_1: Final = 0xA1
MAX_BYTES: Final = 64 * 1024
MAX_KEYS: Final = 255
MAX_FIELD_IDS: Final = 65_535
PLAINTEXT_FOOTER_FLAG: Final = 0x01
DIGEST_FLAG: Final = 0x02
BOUNDS_FLAG: Final = 0x04
STOCK_READERS_FLAG: Final = 0x08
FOOTER_DIGEST_FLAG: Final = 0x10

ALGORITHM_CODES: Final = MappingProxyType(
    {Algorithm.AES_GCM_V1: 1, Algorithm.AES_GCM_CTR_V1: 2, Algorithm.ORC_AES_CTR: 3}
)
#: Encrypted statistics are padded to a multiple of this many bytes, so that their length reveals almost
#: nothing.
BOUNDS_STEP: Final = 256
_ALGORITHMS: Final = MappingProxyType({code: algorithm for algorithm, code in ALGORITHM_CODES.items()})
_WRAPPED_LENGTHS: Final = frozenset(length + OVERHEAD for length in KEY_LENGTHS)
#: ORC does not support AES-192. Neither do Parquet's footers, nor the files that Parquet's key tools read.
_ORC_WRAPPED_LENGTHS: Final = frozenset(length + OVERHEAD for length in (16, 32))
_PARQUET_FLAGS: Final = PLAINTEXT_FOOTER_FLAG | STOCK_READERS_FLAG | FOOTER_DIGEST_FLAG
_ALL_FLAGS: Final = _PARQUET_FLAGS | DIGEST_FLAG | BOUNDS_FLAG
_NAME_AT: Final = 22
_CACHED_BYTES: Final = 512


class Binding(NamedTuple):
    """The binding of one key: everything in its entry except the key.

    Attributes:
        pek: the PEK version that wraps the key; its master key id is the entry's key name.
        field_ids: the columns under the key; empty for the footer key, or the key of the whole file.
    """

    pek: PekRef
    field_ids: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Encode role, PEK id, PEK version, key name with length, and field ids with count.

        Raises:
            DecryptionRefused: a part that the format cannot store, or field ids out of order.
        """
        pek, ids = self.pek, self.field_ids
        if not is_master_key_id(pek.master_key_id) or not 1 <= pek.version < 2**32:
            raise malformed("the name or version of a key is not valid")
        if len(ids) > MAX_FIELD_IDS or not _ascending(ids) or (ids and ids[-1] >= 2**31):
            raise malformed("the field ids of a key are not valid")
        name = pek.master_key_id.encode("ascii")
        head = struct.pack(">B16sIB", bool(ids), pek.pek_id.bytes, pek.version, len(name))
        return head + name + struct.pack(f">H{len(ids)}i", len(ids), *ids)


class KeyEntry(NamedTuple):
    """One key of a file.

    Attributes:
        binding: the bytes of its `Binding`, as in the key metadata and in the AAD.
        wrapped: the data key under the PEK, nonce | ciphertext | tag.
    """

    binding: bytes
    wrapped: bytes

    @property
    def bound(self) -> Binding:
        """Parse the binding."""
        return _binding(self.binding)

    @property
    def data_key_length(self) -> int:
        """Length of the data key in bytes."""
        return len(self.wrapped) - OVERHEAD


class KeyMetadata(NamedTuple):
    """The key metadata of one file.

    Attributes:
        header: its first three bytes: format, algorithm, flags.
        entries: the footer key first, then the column keys.
        digest: of the file, if the flags say so.
        footer_digest: of its footer, if the flags say so.
        bounds: the sealed bounds of each of the `covering` entries, if the flags say so; see
            `encrypted_statistics`.
    """

    header: bytes
    entries: tuple[KeyEntry, ...]
    digest: FileDigest | None = None
    footer_digest: FooterDigest | None = None
    bounds: tuple[bytes, ...] = ()

    @classmethod
    def parse(cls, data: bytes) -> KeyMetadata:
        """Parse key metadata.

        Raises:
            DecryptionRefused: the bytes are not exactly in the format.
        """
        if not 4 <= len(data) <= MAX_BYTES:
            raise malformed("its length")
        _check_header(data)
        entries, offset = [], 4
        for _ in range(data[3]):
            entry, offset = _entry(data, offset)
            entries.append(entry)
        _check_order(entries)
        digest, footer_digest, offset = _digests(data, offset, len(entries))
        covering = len(_covering(entries)) if data[2] & BOUNDS_FLAG else 0
        bounds, offset = _bounds(data, offset, covering)
        if offset != len(data):
            raise malformed("it has bytes after its last part")
        return cls(data[:3], tuple(entries), digest, footer_digest, bounds)

    def to_bytes(self) -> bytes:
        """Encode the key metadata.

        Raises:
            DecryptionRefused: parsing would not return the same values.
        """
        if len(self.entries) > MAX_KEYS:
            raise malformed("the number of keys is not valid")
        parts = [self.header, bytes((len(self.entries),))]
        for binding, wrapped in self.entries:
            parts += (binding, bytes((len(wrapped),)), wrapped)
        parts.append(self.digests)
        for sealed in self.bounds:
            parts += (len(sealed).to_bytes(2, "big"), sealed)
        data = b"".join(parts)
        if KeyMetadata.parse(data) != self:
            raise malformed("its flags")
        return data

    @property
    def digests(self) -> bytes:
        """Return the digest sections, which are bound into the wrapped keys."""
        return b"".join(each.to_bytes() for each in (self.digest, self.footer_digest) if each is not None)

    @property
    def covering(self) -> tuple[KeyEntry, ...]:
        """Return the entries whose keys cover columns: the only one, or those of the column groups."""
        return _covering(self.entries)

    @property
    def stock_readers(self) -> bool:
        """Return whether the file also carries the key material for Parquet's key tools."""
        return bool(self.header[2] & STOCK_READERS_FLAG)

    @property
    def free_ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the byte ranges that the parser does not interpret.

        These are the wrapped keys, the digests, and sealed bounds, in this order. Key metadata of the same
        length that differs only there parses to the same values elsewhere. The exception is a footer's
        digest, whose length must be valid.
        """
        found, at = [], 4
        for binding, wrapped in self.entries:
            start = at + len(binding) + 1
            at = start + len(wrapped)
            found.append((start, at))
        if self.digest is not None:
            found.append((at, at + FILE_DIGEST_BYTES))
            at += FILE_DIGEST_BYTES
        if self.footer_digest is not None:
            found.append((at, at + FOOTER_DIGEST_BYTES))
            at += FOOTER_DIGEST_BYTES
        for sealed in self.bounds:
            found.append((at + 2, at + 2 + len(sealed)))
            at += 2 + len(sealed)
        return tuple(found)

    @property
    def algorithm(self) -> Algorithm:
        """Return the algorithm of the file."""
        return _ALGORITHMS[self.header[1]]

    @property
    def footer(self) -> Footer:
        """Return whether the footer is encrypted."""
        return Footer.PLAINTEXT if self.header[2] & PLAINTEXT_FOOTER_FLAG else Footer.ENCRYPTED

    def file_keys(self) -> FileKeys:
        """Return what the metadata states, for `policy.encryption.epochs` to check."""
        stated = tuple((entry.binding, entry.data_key_length) for entry in self.entries)
        if sum(len(binding) for binding, _ in stated) > _CACHED_BYTES:
            return _file_keys.__wrapped__(self.header, stated)
        return _file_keys(self.header, stated)


def header(
    algorithm: Algorithm,
    footer: Footer,
    *,
    digest: bool = False,
    footer_digest: bool = False,
    bounds: bool = False,
    stock_readers: bool = False,
) -> bytes:
    """Encode the first three bytes of key metadata.

    Args:
        algorithm: of the file.
        footer: whether its footer is encrypted.
        digest: whether a digest of the file follows the keys.
        footer_digest: whether a digest of its footer follows.
        bounds: whether sealed bounds follow.
        stock_readers: whether the file also has the key material for standard Parquet readers.
    """
    flags = PLAINTEXT_FOOTER_FLAG if footer is Footer.PLAINTEXT else 0
    flags |= DIGEST_FLAG * digest | FOOTER_DIGEST_FLAG * footer_digest
    flags |= BOUNDS_FLAG * bounds | STOCK_READERS_FLAG * stock_readers
    return bytes([FORMAT_1, ALGORITHM_CODES[algorithm], flags])


def _check_header(data: bytes) -> None:
    algorithm = _ALGORITHMS.get(data[1])
    if data[0] != FORMAT_1 or algorithm is None or data[2] & ~_ALL_FLAGS:
        raise malformed("its format, algorithm or flags are not valid")
    if algorithm is Algorithm.ORC_AES_CTR and data[2] & _PARQUET_FLAGS:
        raise malformed("its flags")
    if data[3] == 0:
        raise malformed("the number of keys is not valid")


def _entry(data: bytes, start: int) -> tuple[KeyEntry, int]:
    """Parse the entry at an offset; return it and the next offset."""
    try:
        ids_at = start + _NAME_AT + data[start + _NAME_AT - 1]
        length_at = ids_at + 2 + 4 * (data[ids_at] << 8 | data[ids_at + 1])
        end = length_at + 1 + data[length_at]
    except IndexError as failure:
        raise malformed("it is truncated") from failure
    if end > len(data):
        raise malformed("it is truncated")
    binding, wrapped = data[start:length_at], data[length_at + 1 : end]
    orc = data[1] == ALGORITHM_CODES[Algorithm.ORC_AES_CTR]
    if len(wrapped) not in (_ORC_WRAPPED_LENGTHS if orc else _WRAPPED_LENGTHS):
        raise malformed("the length of a wrapped key is not valid")
    _binding(binding)
    return KeyEntry(binding, wrapped), end


def _digests(data: bytes, start: int, keys: int) -> tuple[FileDigest | None, FooterDigest | None, int]:
    """Parse the digest sections at an offset; return them and the next offset."""
    of_file, of_footer = data[2] & DIGEST_FLAG, data[2] & FOOTER_DIGEST_FLAG
    if of_footer and keys == 1:
        raise malformed("it has a footer digest, but no column keys")
    middle = start + FILE_DIGEST_BYTES * bool(of_file)
    end = middle + FOOTER_DIGEST_BYTES * bool(of_footer)
    if end > len(data):
        raise malformed("it is truncated")
    digest = FileDigest.of_bytes(data[start:middle]) if of_file else None
    return digest, FooterDigest.of_bytes(data[middle:end]) if of_footer else None, end


def _bounds(data: bytes, start: int, count: int) -> tuple[tuple[bytes, ...], int]:
    """Parse a number of encrypted statistics at an offset; return them and the next offset."""
    found, at = [], start
    for _ in range(count):
        length = int.from_bytes(data[at : at + 2], "big")
        if length <= OVERHEAD or (length - OVERHEAD) % BOUNDS_STEP:
            raise malformed("the length of its encrypted statistics is not valid")
        found.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    if at > len(data):
        raise malformed("it is truncated")
    return tuple(found), at


def _covering(entries: Sequence[KeyEntry]) -> tuple[KeyEntry, ...]:
    return tuple(entries if len(entries) == 1 else entries[1:])


def _binding(data: bytes) -> Binding:
    return _read_binding(data) if len(data) <= _CACHED_BYTES else _read_binding.__wrapped__(data)


@lru_cache(maxsize=1024)
def _read_binding(data: bytes) -> Binding:
    """Parse a binding; cached, because the files of a table share their bindings."""
    role, pek_id, version, name_length = struct.unpack_from(">B16sIB", data)
    try:
        name = data[_NAME_AT : _NAME_AT + name_length].decode("ascii")
    except UnicodeDecodeError as failure:
        raise malformed("the name of a key is not valid") from failure
    (count,) = struct.unpack_from(">H", data, _NAME_AT + name_length)
    ids = struct.unpack_from(f">{count}i", data, _NAME_AT + name_length + 2)
    if not is_master_key_id(name) or version == 0:
        raise malformed("the name or version of a key is not valid")
    if role != bool(ids) or not _ascending(ids):
        raise malformed("the role or the field ids of a key are not valid")
    return Binding(PekRef(UUID(bytes=pek_id), version, name), ids)


@lru_cache(maxsize=1024)
def _file_keys(head: bytes, stated: tuple[tuple[bytes, int], ...]) -> FileKeys:
    keys = []
    for data, length in stated:
        binding = _binding(data)
        keys.append(FileKey(binding.pek, binding.field_ids, length))
    said = KeyMetadata(head, ())
    digests = (bool(head[2] & flag) for flag in (DIGEST_FLAG, FOOTER_DIGEST_FLAG))
    return FileKeys(said.algorithm, said.footer, tuple(keys), said.stock_readers, *digests)


def _ascending(ids: tuple[int, ...]) -> bool:
    return not ids or (ids[0] >= 0 and all(earlier < later for earlier, later in pairwise(ids)))


def _check_order(entries: list[KeyEntry]) -> None:
    """Check the order of entries.

    One footer key is first, then groups ascending by first field id. No field id is in two groups.
    """
    if len(entries) == 1:
        if entries[0].binding[0] != 0:
            raise malformed("the footer key is missing")
        return
    groups = [entry.bound.field_ids for entry in entries]
    if groups[0] or not all(groups[1:]):
        raise malformed("the footer key is missing, or is not the first and only one")
    if not _ascending(tuple(ids[0] for ids in groups[1:])):
        raise malformed("the column keys are not in order")
    if len({i for ids in groups for i in ids}) != sum(len(ids) for ids in groups):
        raise malformed("a column is under two keys")
