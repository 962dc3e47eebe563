"""Reads the tail of an ORC file: postscript and footer, decompressed within limits.

Source: Apache ORC specification v1, "File Tail" and "Compression".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa

from catalog.client.thrift import Malformed
from catalog.iceberg.avro.codecs import decompressor
from spark_ext.pipelines.audit.file_ends import MOST_READ, Broken, FileEnd
from spark_ext.pipelines.audit.protobuf import Message, varint
from spark_ext.pipelines.audit.rules import DAMAGED_FILE, UNCHECKED_FOOTER

_MAGIC: Final = b"ORC"
_SHORTEST: Final = 16
#: Bytes of a footer after decompression, which are made into messages.
_MOST_PARSED: Final = 8 << 20
# Of PostScript.
_FOOTER, _COMPRESSION, _BLOCK, _METADATA, _STRIPE_STATISTICS, _NAME = 1, 2, 3, 5, 7, 8000
_HEADER: Final = 3

Decompress = Callable[[bytes, int], bytes]


class Tail(NamedTuple):
    """The tail of an ORC file.

    Attributes:
        footer: the message Footer.
        start: where the tail begins, so that all stripes are before it.
    """

    footer: Message
    start: int


def read_tail(end: FileEnd) -> Tail:
    """Read the tail of a file.

    Raises:
        Broken: it is longer than a limit, or not that of an ORC file.
        Malformed: it is damaged.
    """
    if end.size < _SHORTEST:
        raise Broken(DAMAGED_FILE, "The file is too short for an ORC file.")
    length = end.last(1)[0]
    if length + 1 > end.size:
        raise Broken(DAMAGED_FILE, "The file does not end as an ORC file.")
    postscript = Message(end.last(length + 1)[:-1])
    if postscript.parts(_NAME) != [_MAGIC]:
        raise Broken(
            DAMAGED_FILE, "The file does not end as an ORC file: it is truncated, or has bytes at its end."
        )
    footer = postscript.number(_FOOTER)
    before = footer + postscript.number(_METADATA) + postscript.number(_STRIPE_STATISTICS)
    start = end.size - length - 1 - before
    if start < len(_MAGIC):
        raise Broken(DAMAGED_FILE, f"The file has {end.size} bytes, and a tail of {before}.")
    if footer > MOST_READ:
        raise Broken(UNCHECKED_FOOTER, f"The footer has {footer} bytes, and was not read.")
    data = end.last(footer + length + 1)[:footer]
    return Tail(Message(_decompressed(data, postscript)), start)


def _decompressed(data: bytes, postscript: Message) -> bytes:
    kind = postscript.number(_COMPRESSION)
    if kind == 0:
        return _limited(data)
    codec = _CODECS.get(kind)
    if codec is None:
        raise Broken(UNCHECKED_FOOTER, "The footer is compressed in a way that the audit does not know.")
    limit = min(postscript.number(_BLOCK, 256 << 10), _MOST_PARSED)
    pieces, at, total = [], 0, 0
    while at < len(data):
        header = int.from_bytes(data[at : at + _HEADER], "little")
        at += _HEADER
        length = header >> 1
        if at + length > len(data):
            raise Malformed("a compressed chunk extends past the end")
        chunk = data[at : at + length]
        pieces.append(chunk if header & 1 else codec(chunk, limit))
        total += len(pieces[-1])
        if total > _MOST_PARSED:
            raise Broken(UNCHECKED_FOOTER, "The footer is too long to be parsed.")
        at += length
    return b"".join(pieces)


def _limited(data: bytes) -> bytes:
    if len(data) > _MOST_PARSED:
        raise Broken(UNCHECKED_FOOTER, "The footer is too long to be parsed.")
    return data


def _snappy(chunk: bytes, limit: int) -> bytes:
    size, _ = varint(chunk, 0)
    if size > limit:
        raise Malformed("a compressed chunk is larger than the file says")
    try:
        return bytes(pa.Codec("snappy").decompress(chunk, decompressed_size=size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise Malformed("a compressed chunk cannot be decompressed") from error


def _lz4(chunk: bytes, limit: int) -> bytes:
    """Decompress a block of LZ4, which does not say its size (LZ4 Block Format Description)."""
    made = bytearray()
    at = 0
    try:
        while at < len(chunk):
            token = chunk[at]
            literals, at = _lz4_length(chunk, at + 1, token >> 4)
            made += chunk[at : at + literals]
            at += literals
            if at >= len(chunk):
                break
            back = chunk[at] | chunk[at + 1] << 8
            copied, at = _lz4_length(chunk, at + 2, token & 15)
            if not 0 < back <= len(made) or len(made) + copied + 4 > limit:
                raise Malformed("a compressed chunk cannot be decompressed")
            for _ in range(copied + 4):
                made.append(made[-back])
    except IndexError as error:
        raise Malformed("a compressed chunk is truncated") from error
    return bytes(made)


def _lz4_length(chunk: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while chunk[at] == 255:
            length += 255
            at += 1
        length += chunk[at]
        at += 1
    return length, at


#: By the enumeration CompressionKind; zlib is without a header, as in Avro.
_CODECS: Final[dict[int, Decompress]] = {
    1: decompressor("deflate"),
    2: _snappy,
    4: _lz4,
    5: decompressor("zstandard"),
}
