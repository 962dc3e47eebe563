"""The key metadata of one encrypted file: the bytes in a manifest's ``key_metadata``.

Rules:
- One encoding for one meaning: the footer key first, column groups ascending by their first field id, field
  ids ascending and in one group alone, nothing after the last key. Anything else is `DecryptionRefused`.
- What is parsed here is untrusted until a key in it has been opened: the AAD of each wrapped key covers the
  header, the table, the file and everything else in the entry.
- Parsing is strict and cheap, since a commit parses it for every file.

Source: docs/key-metadata.md, "Key metadata".
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from catalog.keys.aead import KEY_LENGTHS, OVERHEAD
from policy.encryption import Algorithm, Footer
from policy.errors import DecryptionRefused
from policy.governed_values import is_master_key_id
from policy.regimes import FileKey, FileKeys, PekRef

FORMAT_1: Final = 0xA1
MAX_BYTES: Final = 64 * 1024
MAX_KEYS: Final = 255
MAX_FIELD_IDS: Final = 65_535
PLAINTEXT_FOOTER_FLAG: Final = 0x01

ALGORITHM_CODES: Final = MappingProxyType({Algorithm.AES_GCM_V1: 1, Algorithm.AES_GCM_CTR_V1: 2})
_ALGORITHMS: Final = MappingProxyType({code: algorithm for algorithm, code in ALGORITHM_CODES.items()})
_WRAPPED_LENGTHS: Final = frozenset(length + OVERHEAD for length in KEY_LENGTHS)
_NAME_AT: Final = 22
_CACHED_BYTES: Final = 512


class Binding(NamedTuple):
    """What one entry says of its key, apart from the key.

    Attributes:
        pek: the PEK version that wraps the key; its master key id is the entry's key name.
        field_ids: the columns under the key; empty for the footer key, or the key of the whole file.
    """

    pek: PekRef
    field_ids: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Role, PEK id, PEK version, key name with length, field ids with count.

        Raises:
            DecryptionRefused: a part that the format cannot hold, or field ids out of order.
        """
        pek, ids = self.pek, self.field_ids
        if not is_master_key_id(pek.master_key_id) or not 1 <= pek.version < 2**32:
            raise _malformed("the name or version of a key")
        if len(ids) > MAX_FIELD_IDS or not _ascending(ids) or (ids and ids[-1] >= 2**31):
            raise _malformed("the field ids of a key")
        name = pek.master_key_id.encode("ascii")
        head = struct.pack(">B16sIB", bool(ids), pek.pek_id.bytes, pek.version, len(name))
        return head + name + struct.pack(f">H{len(ids)}i", len(ids), *ids)


class KeyEntry(NamedTuple):
    """One key of a file.

    Attributes:
        binding: the bytes of its `Binding`, as they stand in the key metadata and in the AAD.
        wrapped: the data key under the PEK, nonce | ciphertext | tag.
    """

    binding: bytes
    wrapped: bytes

    @property
    def bound(self) -> Binding:
        """The binding as values."""
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
    """

    header: bytes
    entries: tuple[KeyEntry, ...]

    @classmethod
    def parse(cls, data: bytes) -> KeyMetadata:
        """Key metadata out of its bytes.

        Raises:
            DecryptionRefused: anything that is not exactly as the format says.
        """
        if not 4 <= len(data) <= MAX_BYTES:
            raise _malformed("its length")
        if data[0] != FORMAT_1 or data[1] not in _ALGORITHMS or data[2] > PLAINTEXT_FOOTER_FLAG:
            raise _malformed("its format, algorithm or flags")
        if data[3] == 0:
            raise _malformed("the number of keys")
        entries, offset = [], 4
        for _ in range(data[3]):
            entry, offset = _entry(data, offset)
            entries.append(entry)
        if offset != len(data):
            raise _malformed("what follows the last key")
        _check_order(entries)
        return cls(data[:3], tuple(entries))

    def to_bytes(self) -> bytes:
        """The bytes of the key metadata.

        Raises:
            DecryptionRefused: they would not parse.
        """
        if len(self.entries) > MAX_KEYS:
            raise _malformed("the number of keys")
        parts = [self.header, bytes((len(self.entries),))]
        for binding, wrapped in self.entries:
            parts += (binding, bytes((len(wrapped),)), wrapped)
        data = b"".join(parts)
        KeyMetadata.parse(data)
        return data

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of the file."""
        return _ALGORITHMS[self.header[1]]

    @property
    def footer(self) -> Footer:
        """Whether the footer is encrypted."""
        return Footer.PLAINTEXT if self.header[2] & PLAINTEXT_FOOTER_FLAG else Footer.ENCRYPTED

    def file_keys(self) -> FileKeys:
        """What the metadata states, for `policy.regimes` to judge."""
        stated = tuple((entry.binding, entry.data_key_length) for entry in self.entries)
        if sum(len(binding) for binding, _ in stated) > _CACHED_BYTES:
            return _file_keys.__wrapped__(self.algorithm, self.footer, stated)
        return _file_keys(self.algorithm, self.footer, stated)


def header(algorithm: Algorithm, footer: Footer) -> bytes:
    """The first three bytes of key metadata."""
    flags = PLAINTEXT_FOOTER_FLAG if footer is Footer.PLAINTEXT else 0
    return bytes([FORMAT_1, ALGORITHM_CODES[algorithm], flags])


def _entry(data: bytes, start: int) -> tuple[KeyEntry, int]:
    """The entry at an offset, and the offset behind it."""
    try:
        ids_at = start + _NAME_AT + data[start + _NAME_AT - 1]
        length_at = ids_at + 2 + 4 * (data[ids_at] << 8 | data[ids_at + 1])
        end = length_at + 1 + data[length_at]
    except IndexError as failure:
        raise _malformed("its end, which comes too early") from failure
    if end > len(data):
        raise _malformed("its end, which comes too early")
    binding, wrapped = data[start:length_at], data[length_at + 1 : end]
    if len(wrapped) not in _WRAPPED_LENGTHS:
        raise _malformed("the length of a wrapped key")
    _binding(binding)
    return KeyEntry(binding, wrapped), end


def _binding(data: bytes) -> Binding:
    return _read_binding(data) if len(data) <= _CACHED_BYTES else _read_binding.__wrapped__(data)


@lru_cache(maxsize=1024)
def _read_binding(data: bytes) -> Binding:
    """The files of a table share their bindings, so that these are read once."""
    role, pek_id, version, name_length = struct.unpack_from(">B16sIB", data)
    try:
        name = data[_NAME_AT : _NAME_AT + name_length].decode("ascii")
    except UnicodeDecodeError as failure:
        raise _malformed("the name of a key") from failure
    (count,) = struct.unpack_from(">H", data, _NAME_AT + name_length)
    ids = struct.unpack_from(f">{count}i", data, _NAME_AT + name_length + 2)
    if not is_master_key_id(name) or version == 0:
        raise _malformed("the name or version of a key")
    if role != bool(ids) or not _ascending(ids):
        raise _malformed("the role or the field ids of a key")
    return Binding(PekRef(UUID(bytes=pek_id), version, name), ids)


@lru_cache(maxsize=1024)
def _file_keys(algorithm: Algorithm, footer: Footer, stated: tuple[tuple[bytes, int], ...]) -> FileKeys:
    keys = []
    for data, length in stated:
        binding = _binding(data)
        keys.append(FileKey(binding.pek, binding.field_ids, length))
    return FileKeys(algorithm, footer, tuple(keys))


def _ascending(ids: tuple[int, ...]) -> bool:
    return not ids or (ids[0] >= 0 and all(earlier < later for earlier, later in pairwise(ids)))


def _check_order(entries: list[KeyEntry]) -> None:
    """One footer key, first; then groups ascending by first field id, no field id in two of them."""
    if len(entries) == 1:
        if entries[0].binding[0] != 0:
            raise _malformed("the footer key, which is missing")
        return
    groups = [entry.bound.field_ids for entry in entries]
    if groups[0] or not all(groups[1:]):
        raise _malformed("the footer key, which is missing or not the first and only one")
    if not _ascending(tuple(ids[0] for ids in groups[1:])):
        raise _malformed("the order of the column keys")
    if len({i for ids in groups for i in ids}) != sum(len(ids) for ids in groups):
        raise _malformed("a column, which is under two keys")


def _malformed(what: str) -> DecryptionRefused:
    return DecryptionRefused(
        f"The key metadata is malformed: {what}.",
        rule="key-metadata",
        hint="Restore the table's metadata from a sealed version.",
    )
