"""Recognizes keys, tokens and passwords by their published formats.

The library `detect-secrets` does not fit: it looks at lines of source code, its last release is of May 2024,
and its detectors of random text take every hash for a secret. Here are formats with a prefix or a structure
that nothing else has.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Final

#: What each format has in it, and the format. A search for a fixed text takes less time.
_FORMATS: Final = (
    ("PRIVATE KEY", r"-----BEGIN (?:[A-Z]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----"),
    # AWS access key ids, of users and of sessions.
    ("AKIA", r"(?<![A-Za-z0-9])AKIA[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("ASIA", r"(?<![A-Za-z0-9])ASIA[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("gh", r"(?<![A-Za-z0-9])gh[opsur]_[A-Za-z0-9]{36,255}"),
    ("github_pat_", r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    ("gl", r"(?<![A-Za-z0-9])gl(?:pat|ptt|rt|dt|cbt|imt|agent|soat)-[A-Za-z0-9_-]{20,}"),
    ("xox", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("hooks.slack.com", r"hooks\.slack\.com/services/T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{20,}"),
    ("k_live_", r"(?<![A-Za-z0-9])[rs]k_live_[A-Za-z0-9]{20,}"),
    ("AIza", r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("ya29.", r"(?<![A-Za-z0-9])ya29\.[A-Za-z0-9_-]{20,}"),
    ("npm_", r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    ("pypi-", r"(?<![A-Za-z0-9])pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}"),
    ("SG.", r"(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    ("hv", r"(?<![A-Za-z0-9])hv[bs]\.[A-Za-z0-9_-]{24,}"),
    ("dapi", r"(?<![A-Za-z0-9])dapi[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("_v1_", r"(?<![A-Za-z0-9])do[op]_v1_[0-9a-f]{64}"),
    ("lw_", r"(?<![A-Za-z0-9])lw_[A-Za-z0-9_-]{40,}"),
    ("AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}=="),
    # A password in the address of a server.
    ("://", r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@]{1,64}:[^\s:/@$<{*\[][^\s:/@]{2,127}@[A-Za-z0-9.-]"),
    # Hashes of passwords: bcrypt, crypt(3), Argon2, Django, LDAP.
    ("$2", r"\$2[abxy]\$\d{2}\$[./A-Za-z0-9]{53}"),
    ("$", r"\$[1567y]\$(?:[./A-Za-z0-9=]{1,64}\$){1,3}[./A-Za-z0-9]{22,}"),
    ("$argon2", r"\$argon2(?:d|i|id)\$v=\d+\$m=\d+,t=\d+,p=\d+\$"),
    ("$", r"(?:pbkdf2_sha\d{1,3}|bcrypt_sha256|scrypt)\$\d+\$"),
    ("SHA", r"\{S?SHA(?:256|512)?\}[A-Za-z0-9+/]{27,}={0,2}"),
)
_COMPILED: Final = tuple((mark, re.compile(form)) for mark, form in _FORMATS)
#: RFC 7519: the header and the claims of a JSON Web Token are JSON objects.
_JWT: Final = re.compile(r"(eyJ[A-Za-z0-9_-]{8,2000})\.eyJ[A-Za-z0-9_-]{2,4000}\.[A-Za-z0-9_-]{16,}")


def is_secret(text: str) -> bool:
    """Return whether a text has a key, a token, or a password or its hash in a known format."""
    if any(mark in text and form.search(text) for mark, form in _COMPILED):
        return True
    return "eyJ" in text and any(_is_header(found.group(1)) for found in _JWT.finditer(text))


def _is_header(part: str) -> bool:
    try:
        header = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        return False
    return isinstance(header, dict) and "alg" in header
