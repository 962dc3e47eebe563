"""Base64 as Hadoop's KMS and its clients write it: standard with padding, or url-safe without.

Each text has one meaning or is refused: alphabets are not mixed, padding is whole or left out, and no bit is
left over (RFC 4648, sections 3.5, 4 and 5).
"""

from __future__ import annotations

import base64
import re
from typing import Final

#: Nothing in the protocol is longer.
MAX_TEXT: Final = 1_000
_TEXT: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}|[A-Za-z0-9_-]*={0,2}", re.ASCII)
_STANDARD: Final = str.maketrans("-_", "+/")


def decode(text: str) -> bytes:
    """The bytes of a text in either alphabet.

    Raises:
        ValueError: it is too long, or not what an encoder writes.
    """
    if len(text) > MAX_TEXT or _TEXT.fullmatch(text) is None:
        raise ValueError("not a short text in base64")
    bare = text.rstrip("=").translate(_STANDARD)
    padding = "=" * (-len(bare) % 4)
    data = base64.b64decode(bare + padding, validate=True)
    if encode(data) != bare + padding or text[len(bare) :] not in ("", padding):
        raise ValueError("not a text in base64 as an encoder writes it")
    return data


def encode(data: bytes) -> str:
    """Standard, with padding: what Hadoop's client sends."""
    return base64.b64encode(data).decode("ascii")


def encode_url_safe(data: bytes) -> str:
    """Url-safe, without padding: what Hadoop's KMS answers."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
