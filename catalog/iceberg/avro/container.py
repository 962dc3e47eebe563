"""Reads the framing of Avro object container files (Avro specification, "Object Container Files").

Rules:

- Magic, metadata, blocks and sync markers must account for every byte of the file.
- A length or count is compared with the remaining bytes before it is used.
- A block has at least one entry with at least one byte each, or is completely empty (pyiceberg writes an
  empty block for a snapshot without manifests).
- A file that was cut off exactly after a sync marker is a well-formed shorter file. Only its length and
  digest, which are stored elsewhere, reveal this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from catalog.iceberg.avro.codecs import Decompress, decompressor
from catalog.iceberg.avro.limits import DecodeLimits
from catalog.iceberg.avro.malformed import Malformed

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
#: A 64-bit number takes at most ten bytes of seven bits each.
MAX_VARINT_BYTES: Final = 10
_LONG_BITS: Final = 64
#: A byte of a number from this value on is followed by another byte.
_CONTINUES: Final = 0x80


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a container.

    Attributes:
        metadata: the file's metadata by name; values are bytes as stored.
        decompress: decompresses a block of the file's codec.
        sync: the marker that ends each block.
        size: length of the header in bytes.
    """

    metadata: Mapping[str, bytes]
    decompress: Decompress
    sync: bytes
    size: int


class Block(NamedTuple):
    """A decompressed block: the number of entries that it states, and their bytes."""

    entries: int
    payload: bytes


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag number; return it and the next position.

    Raises:
        Malformed: the number is cut off, or has more than 64 bits.
    """
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            if byte < _CONTINUES:
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift >= 7 * MAX_VARINT_BYTES:
                raise Malformed("number", "a number is longer than 64 bits")
    except IndexError as problem:
        raise Malformed("truncated", "a number is truncated") from problem
    value |= byte << shift
    if value >> _LONG_BITS:
        raise Malformed("number", "a number is longer than 64 bits")
    return (value >> 1) ^ -(value & 1), position


def read_header(data: bytes, limits: DecodeLimits) -> Header:
    """Read the header of a container.

    Raises:
        Malformed: the bytes are not a header, or exceed a limit.
    """
    if len(data) > limits.max_file_bytes:
        raise Malformed("file-size", f"it is larger than {limits.max_file_bytes} bytes")
    if not data.startswith(MAGIC):
        raise Malformed("magic", "it is not an Avro container file")
    metadata, position = _read_metadata(data[: limits.max_header_bytes])
    sync = data[position : position + SYNC_BYTES]
    if len(sync) != SYNC_BYTES:
        raise Malformed("truncated", "its header is truncated")
    codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
    return Header(MappingProxyType(metadata), decompressor(codec), sync, position + SYNC_BYTES)


def _read_metadata(data: bytes) -> tuple[dict[str, bytes], int]:
    metadata: dict[str, bytes] = {}
    position = len(MAGIC)
    while True:
        count, position = read_long(data, position)
        if count == 0:
            return metadata, position
        if count < 0:
            _, position = read_long(data, position)
        for _ in range(abs(count)):
            raw_name, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            name = raw_name.decode("utf-8", "replace")
            if name in metadata:
                raise Malformed("header", f"its header contains {name[:80]!r} twice")
            metadata[name] = value


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    length, position = read_long(data, position)
    if not 0 <= length <= len(data) - position:
        raise Malformed("header", "its header is truncated or too large, or has a negative length")
    return data[position : position + length], position + length


def read_blocks(data: bytes, header: Header, limits: DecodeLimits) -> Iterator[Block]:
    """Read and decompress the blocks after the header, in order.

    Raises:
        Malformed: the framing is wrong, a block does not decompress, or a limit is exceeded.
    """
    position, sync, decompress = header.size, header.sync, header.decompress
    entries, budget = limits.max_entries, limits.max_decompressed_bytes
    while position < len(data):
        count, position = read_long(data, position)
        length, position = read_long(data, position)
        end = position + length
        if length < 0 or end + SYNC_BYTES > len(data):
            raise Malformed("truncated", "a block is truncated or has a negative length")
        if data[end : end + SYNC_BYTES] != sync:
            raise Malformed("sync-marker", "a block does not end with the file's sync marker")
        if not 0 <= count <= entries:
            raise Malformed("entries", f"it has more than {limits.max_entries} entries, or a negative count")
        payload = decompress(data[position:end], min(limits.max_block_bytes, budget)) if length else b""
        if count > len(payload) or (payload and not count):
            raise Malformed("entries", "the number of entries in a block differs from its count")
        entries, budget, position = entries - count, budget - len(payload), end + SYNC_BYTES
        if count:
            yield Block(count, payload)
