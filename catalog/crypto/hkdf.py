"""Derives keys from keys (HKDF).

Source: RFC 5869, with SHA-256 and without salt: what goes in is a random key already (section 3.1).
"""

from __future__ import annotations

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from catalog.crypto.secret import SecretBytes


def derived(key: SecretBytes | bytes, length: int, info: bytes) -> bytes:
    """Derive bytes for one purpose.

    Args:
        key: what they are derived from; bytes if it is stored in plaintext.
        length: how many, up to 8160.
        info: names the purpose.

    Raises:
        ValueError: more than 8160 bytes are asked for.
    """
    hkdf = HKDF(SHA256(), length, None, info)
    if isinstance(key, bytes):
        return hkdf.derive(key)
    with key.lent() as lent:
        return hkdf.derive(lent)
