"""Encodes and decodes base64 as Hadoop's KMS and its clients do: standard with padding, or url-safe without.

Each text has one meaning or is refused: alphabets are not mixed, padding is whole or left out, and no bit is
left over (RFC 4648, sections 3.5, 4 and 5).
"""

from __future__ import annotations

import base64
import re
from typing import Final

#: Longer than any value in the protocol.
MAX_TEXT: Final = 1_000
_TEXT: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}|[A-Za-z0-9_-]*={0,2}", re.ASCII)
_STANDARD: Final = str.maketrans("-_", "+/")


def decode(text: str) -> bytes:
    """Decode a text in either alphabet.

    Raises:
        ValueError: it is too long, or not what an encoder writes.
    """
    if len(text) > MAX_TEXT or _TEXT.fullmatch(text) is None:
        raise ValueError("not base64, or too long")
    bare = text.rstrip("=").translate(_STANDARD)
    padding = "=" * (-len(bare) % 4)
    data = base64.b64decode(bare + padding, validate=True)
    if encode(data) != bare + padding or text[len(bare) :] not in ("", padding):
        raise ValueError("not canonical base64")
    return data


def encode(data: bytes) -> str:
    """Encode in the standard alphabet with padding, as Hadoop's client sends it."""
    return base64.b64encode(data).decode("ascii")


def encode_url_safe(data: bytes) -> str:
    """Encode in the url-safe alphabet without padding, as Hadoop's KMS returns it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
