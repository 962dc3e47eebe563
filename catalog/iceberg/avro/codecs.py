"""Decompresses Avro blocks within a size limit.

Rules:

- Only the codecs that Iceberg writers use: null, deflate, zstandard, snappy (Avro specification, "Required
  Codecs" and "Optional Codecs").
- The output never exceeds the limit. A size that a block states is used only to refuse the block.
- A block is one compressed stream without trailing bytes. The exception is up to four bytes of a zlib
  checksum that pyiceberg leaves after deflate streams.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from io import BytesIO
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import zstandard

from catalog.iceberg.avro.malformed import Malformed

_ZLIB_TRAILER: Final = 4
_STEP: Final = 1 << 20
#: The largest window of a zstandard frame; level 19 uses 8 MiB.
_MAX_WINDOW: Final = 1 << 27
_CRC_BYTES: Final = 4

Decompress = Callable[[bytes, int], bytes]


def _null(block: bytes, limit: int) -> bytes:
    if len(block) > limit:
        raise _too_large(limit)
    return block


def _deflate(block: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = stream.decompress(block, limit + 1)
    except zlib.error as problem:
        raise Malformed("codec", "a deflate block cannot be decompressed") from problem
    if len(data) > limit:
        raise _too_large(limit)
    if not stream.eof or len(stream.unused_data) > _ZLIB_TRAILER:
        raise Malformed("codec", "a deflate block has bytes after its end")
    return data


def _zstandard(block: bytes, limit: int) -> bytes:
    try:
        size = zstandard.frame_content_size(block)
        if size > limit:
            raise _too_large(limit)
        if size > 0:
            return _ZSTD.decompress(block, max_output_size=size, allow_extra_data=False)
        return _zstandard_stream(block, limit)
    except zstandard.ZstdError as problem:
        raise Malformed("codec", "a zstandard block cannot be decompressed") from problem


def _zstandard_stream(block: bytes, limit: int) -> bytes:
    """Decompress a frame that does not state its size, step by step."""
    pieces: list[bytes] = []
    total = 0
    with zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
        BytesIO(block), read_across_frames=True
    ) as reader:
        while piece := reader.read(_STEP):
            total += len(piece)
            if total > limit:
                raise _too_large(limit)
            pieces.append(piece)
    return b"".join(pieces)


def _snappy(block: bytes, limit: int) -> bytes:
    """Decompress a snappy block, which ends with the big-endian CRC-32 of the data in Avro."""
    body, crc = block[:-_CRC_BYTES], block[-_CRC_BYTES:]
    size = _snappy_size(body)
    if size > limit:
        raise _too_large(limit)
    try:
        data = pa.Codec("snappy").decompress(body, decompressed_size=size, asbytes=True)
    except (pa.ArrowException, OSError) as problem:
        raise Malformed("codec", "a snappy block cannot be decompressed") from problem
    if zlib.crc32(data).to_bytes(_CRC_BYTES, "big") != crc:
        raise Malformed("codec", "the checksum of a snappy block is wrong")
    return bytes(data)


def _snappy_size(body: bytes) -> int:
    """Return the size in the first bytes of a raw snappy stream (at most 32 bits)."""
    size = 0
    for index, byte in enumerate(body[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise Malformed("codec", "a snappy block does not state its size")


def _too_large(limit: int) -> Malformed:
    return Malformed("decompressed-size", f"it decompresses to more than {limit} bytes")


_ZSTD: Final = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
_CODECS: Final = MappingProxyType(
    {"null": _null, "deflate": _deflate, "zstandard": _zstandard, "snappy": _snappy}
)


def decompressor(codec: str) -> Decompress:
    """Return the function that decompresses a block of `codec` within a limit.

    Raises:
        Malformed: the codec is not supported.
    """
    found = _CODECS.get(codec)
    if found is None:
        raise Malformed("codec", f"the codec {codec[:40]!r} is not supported")
    return found
