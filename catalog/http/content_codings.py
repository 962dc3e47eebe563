"""The content codings gzip and zstd, of request bodies and of answers.

Request bodies:

- The limits apply to the decompressed bytes too, and decompression stops at the limit. So a small body cannot
  become a large one.
- A body is exactly one gzip member or one zstd frame. Anything after it is refused.
- The digest that an engine signs is that of the bytes as they were sent (RFC 9530, section 2).

Answers:

- Only operations that are marked are compressed, and none of their answers with a credential, key or
  signature: the length of a compressed answer depends on what is in it (the BREACH attack).
- A long answer is compressed once for the same bytes, since tables with many snapshots are loaded often.

Source: RFC 9110, sections 8.4 and 12.5.3; RFC 1952; RFC 8878; RFC 9659.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import zstandard
from fastapi import Request, Response
from starlette.datastructures import Headers

from catalog.base.recent import Recent
from catalog.http.errors import ContentTypeRefused
from catalog.http.threads import in_thread
from policy.errors import RequestInvalid

#: Answers that are shorter are not compressed.
MIN_ANSWER: Final = 1_024

_GZIP: Final = "gzip"
_ZSTD: Final = "zstd"
_GZIP_LEVEL: Final = 4
_ZSTD_LEVEL: Final = 3
#: The largest window of a zstd frame (RFC 9659).
_MAX_WINDOW: Final = 8 * 1024 * 1024
_STEP: Final = 256 * 1024
#: Bytes of a zstd frame that are decompressed at a time. They have at most 16 blocks of 128 KiB.
_ZSTD_SLICE: Final = 64
#: Bytes that are compressed faster than a thread is started.
_SHORT: Final = 32 * 1024
#: The maximum bytes of compressed answers that are remembered.
_MAX_REMEMBERED: Final = 32 << 20
#: Bytes that an entry takes beside them.
_AN_ENTRY: Final = 256

_ATTRIBUTE: Final = "__lakewarden_compressible__"
_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)
#: Parts of the names under which answers have credentials, keys and signatures.
_SECRETS: Final = (
    b"storage-credentials",
    b"secret-access-key",
    b"session-token",
    b"sas-token",
    b"oauth2.token",
    b"transport-key",
    b"X-Amz-",
)

_compressed: Final = Recent[bytes](_MAX_REMEMBERED, lambda made: len(made) + _AN_ENTRY)

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def compressible(endpoint: _Endpoint) -> _Endpoint:
    """Mark an endpoint whose answers are compressed for clients that accept it."""
    setattr(endpoint, _ATTRIBUTE, True)
    return endpoint


async def compressed(request: Request, response: Response, endpoint: Callable[..., Any]) -> Response:
    """Compress the answer of a marked endpoint in the coding that the client prefers."""
    if not getattr(endpoint, _ATTRIBUTE, False):
        return response
    body = bytes(response.body)
    response.headers.add_vary_header("Accept-Encoding")
    coding = preferred(request.headers)
    if coding is None or len(body) < MIN_ANSWER:
        return response
    made = _compress(coding, body) if len(body) <= _SHORT else await in_thread(_again, coding, body)
    if not made:
        return response
    response.body = made
    response.headers["Content-Encoding"] = coding
    response.headers["Content-Length"] = str(len(response.body))
    return response


def preferred(headers: Headers) -> str | None:
    """Return the coding that a client prefers: ``zstd``, ``gzip``, or None for none (RFC 9110, 12.5.3)."""
    weights = dict(_weights(",".join(headers.getlist("accept-encoding"))))
    weights.setdefault(_GZIP, weights.get("x-gzip", weights.get("*", 0.0)))
    weights.setdefault(_ZSTD, weights.get("*", 0.0))
    # Of equal weights, the first one is taken.
    best = max((_ZSTD, _GZIP), key=lambda each: weights[each])
    return best if weights[best] > 0 and weights[best] >= weights.get("identity", 0.0) else None


def _weights(text: str) -> Iterator[tuple[str, float]]:
    """Return the codings of `Accept-Encoding` with their weights; a part that is malformed has none."""
    for part in text.split(","):
        coding, *parameters = (each.strip() for each in part.split(";"))
        weight = _WEIGHT.fullmatch(parameters[0]) if len(parameters) == 1 else None
        if coding and (weight is not None or not parameters):
            yield coding.lower(), float(weight[1]) if weight is not None else 1.0


def _again(coding: str, body: bytes) -> bytes:
    """Compress an answer, or return what was made of the same bytes before."""
    return _compressed.get((coding, hashlib.sha256(body).digest()), lambda: _compress(coding, body))


def _compress(coding: str, body: bytes) -> bytes:
    """Compress an answer; return no bytes if it has a secret."""
    if any(each in body for each in _SECRETS):
        return b""
    if coding == _GZIP:
        return gzip.compress(body, _GZIP_LEVEL, mtime=0)
    return zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(body)


async def decompressed(
    headers: Headers, body: bytes, limit: int, take: Callable[[int], None], too_large: Callable[[], Exception]
) -> bytes:
    """Decompress a request body.

    Args:
        headers: of the request.
        body: as it was sent.
        limit: maximum bytes when decompressed.
        take: reserves memory, for the body and for what a zstd decoder keeps.
        too_large: makes the error for more bytes.

    Raises:
        ContentTypeRefused: the coding is none of these, or there are several.
        RequestInvalid: it is not exactly one gzip member or zstd frame.
    """
    coding = _coding_of(headers)
    if coding is None or not body:
        return body
    if coding == _ZSTD:
        take(_window_of(body))
    pieces = (_gunzipped if coding == _GZIP else _unzstd)(body)
    whole = bytearray()
    while piece := await in_thread(_next_piece, pieces):
        if len(whole) + len(piece) > limit:
            raise too_large()
        take(len(piece))
        whole += piece
    return bytes(whole)


def _coding_of(headers: Headers) -> str | None:
    named = [each.strip().lower() for each in ",".join(headers.getlist("content-encoding")).split(",")]
    codings = [_GZIP if each == "x-gzip" else each for each in named if each not in ("", "identity")]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in (_GZIP, _ZSTD):
        raise ContentTypeRefused(
            "The content coding of the request body is not supported.",
            rule="content-encoding",
            hint="Send the body uncompressed, or as gzip or zstd.",
        )
    return codings[0]


def _next_piece(pieces: Iterator[bytes]) -> bytes:
    """Return about `_STEP` of the next bytes; no bytes at the end."""
    gathered = bytearray()
    try:
        for piece in pieces:
            gathered += piece
            if len(gathered) >= _STEP:
                break
    except (zlib.error, zstandard.ZstdError):
        raise _malformed() from None
    return bytes(gathered)


def _gunzipped(body: bytes) -> Iterator[bytes]:
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    for start in range(0, len(body), _STEP):
        if stream.eof:
            raise _malformed()
        rest = body[start : start + _STEP]
        while rest and not stream.eof:
            yield stream.decompress(rest, _STEP)
            rest = stream.unconsumed_tail
    while not stream.eof and (piece := stream.decompress(b"", _STEP)):
        yield piece
    if not stream.eof or stream.unused_data:
        raise _malformed()


def _window_of(body: bytes) -> int:
    """Return the bytes that a zstd frame's decoder keeps."""
    try:
        size = zstandard.get_frame_parameters(body).window_size
    except zstandard.ZstdError:
        raise _malformed() from None
    if size > _MAX_WINDOW:
        raise _malformed()
    return size


def _unzstd(body: bytes) -> Iterator[bytes]:
    stream = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
    for start in range(0, len(body), _ZSTD_SLICE):
        if stream.eof:
            raise _malformed()
        yield stream.decompress(body[start : start + _ZSTD_SLICE])
    if not stream.eof or stream.unused_data:
        raise _malformed()


def _malformed() -> RequestInvalid:
    return RequestInvalid(
        "The request body is not one complete gzip member or zstd frame.",
        rule="content-encoding",
        hint="Compress the body as a whole, or send it uncompressed.",
    )
