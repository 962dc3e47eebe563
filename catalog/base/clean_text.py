"""Makes text from other sources safe to show or log: one line, without secrets, and of bounded length.

Our bearer tokens, and passwords in URLs, are masked: clients can put them into names and locations by
mistake.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final

_CUT: Final = "…[cut]"
_TOKEN: Final = re.compile(r"lw_[0-9A-Fa-f]{32}_[A-Za-z0-9_-]+")
_USER_INFO: Final = re.compile(r"://[^/\s]*@")
_ESCAPED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int) -> str:
    """Return a text without secrets, on one line, and of at most `limit` characters."""
    masked = _USER_INFO.sub("://***@", _TOKEN.sub("lw_***", text))
    # Escaping only lengthens a text, so characters after the limit are never needed.
    escaped = _escaped(masked[: limit + 1])
    return escaped if len(escaped) <= limit else escaped[: limit - len(_CUT)] + _CUT


def _escaped(text: str) -> str:
    # Printable characters are in none of the categories. Nearly every text is printable, and a grant has
    # dozens.
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character != "\\" and unicodedata.category(character) not in _ESCAPED_CATEGORIES:
        return character
    return json.dumps(character)[1:-1]
