"""Hadoop's delegation tokens and credentials files, as far as the KMS endpoint needs them.

A token of the catalog (`catalog.authorization.tokens`, kind `kms`) travels as the password of a delegation
token. So it is checked and revoked like any other; what the identifier says is for people, and decides
nothing.

A token is identifier, password, kind and service, each with its length before it; in a header it stands in
base64url. A file of credentials is ``HDTS``, 0x00, the number of tokens, each with its alias before it, and
the number of further secrets, none here. Lengths and numbers are Hadoop's variable-length integers.

Source: Hadoop 3.4.3, `Token`, `Credentials`, `WritableUtils`, `AbstractDelegationTokenIdentifier`.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from typing import Final

from policy.errors import NotAuthenticated

KIND: Final = "kms-dt"
#: The maximum length of a token in a header.
MAX_TOKEN_LENGTH: Final = 4096
_FILE_MAGIC: Final = b"HDTS\0"
_SINGLE_BYTE: Final = 127
_MARK: Final = -112
_LONGEST_LENGTH: Final = 2
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+={0,2}", re.ASCII)


def credentials_file(secret: str, owner: str, service: str, issued: datetime, ends: datetime | None) -> bytes:
    """Return a file that clients find by `HADOOP_TOKEN_FILE_LOCATION`.

    Args:
        secret: the catalog's token.
        owner: for whom it speaks.
        service: the provider's address as clients have it: ``kms://https@host:port/kms``.
        issued: when it was issued.
        ends: from when on it is refused, or None.
    """
    token = (
        _sized(_identifier(owner, issued, ends))
        + _sized(secret.encode("ascii"))
        + _sized(KIND.encode("ascii"))
        + _sized(service.encode("utf-8"))
    )
    return _FILE_MAGIC + _number(1) + _sized(service.encode("utf-8")) + token + _number(0)


def secret_of(text: str) -> str:
    """Return the catalog's token inside a delegation token.

    Raises:
        NotAuthenticated: that is no delegation token of this kind.
    """
    if len(text) > MAX_TOKEN_LENGTH or _BASE64URL.fullmatch(text) is None:
        raise _refused()
    bare = text.rstrip("=")
    try:
        data = base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
        parts = _parts(data)
        if len(parts) != len(("identifier", "password", "kind", "service")) or parts[2] != KIND.encode():
            raise _refused()
        return parts[1].decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        # The cause can quote the token.
        raise _refused() from None


def _identifier(owner: str, issued: datetime, ends: datetime | None) -> bytes:
    """Version 0, owner, renewer, real user, issued, ends, sequence number, number of the master key."""
    names = _sized(owner.encode("utf-8")) + _sized(b"") + _sized(b"")
    last = issued if ends is None else ends
    return b"\0" + names + _number(_ms(issued)) + _number(_ms(last)) + _number(0) + _number(0)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    """Encode a number of 0 or more."""
    if value <= _SINGLE_BYTE:
        return bytes([value])
    length = (value.bit_length() + 7) // 8
    return bytes([(_MARK - length) & 0xFF]) + value.to_bytes(length, "big")


def _parts(data: bytes) -> list[bytes]:
    """Parse length-prefixed parts, up to the last byte."""
    parts: list[bytes] = []
    while data:
        length, data = _length(data)
        if length > len(data):
            raise _refused()
        parts.append(data[:length])
        data = data[length:]
    return parts


def _length(data: bytes) -> tuple[int, bytes]:
    first = data[0]
    if first <= _SINGLE_BYTE:
        return first, data[1:]
    size = _MARK - (first - 256)
    if not 1 <= size <= _LONGEST_LENGTH or len(data) < 1 + size:
        raise _refused()
    return int.from_bytes(data[1 : 1 + size], "big"), data[1 + size :]


def _refused() -> NotAuthenticated:
    return NotAuthenticated(
        "The delegation token was not issued by this catalog.",
        rule="delegation-token",
        hint="Ask an administrator for a new one.",
    )
