"""AES-GCM as it is used everywhere here.

Rules: keys of 16, 24 or 32 bytes; nonces of 12 bytes and tags of 16, nothing else; what does not authenticate
is `DecryptionRefused`. Sealed bytes are nonce | ciphertext | tag.

Source: NIST SP 800-38D. With random nonces one key may seal 2**32 times (section 8.3).
"""

from __future__ import annotations

import secrets
from typing import Final, NoReturn, SupportsIndex

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from catalog.keys.secret import SecretBytes
from policy.errors import DecryptionRefused, KeyNotUsable

KEY_LENGTHS: Final = (16, 24, 32)
NONCE_LENGTH: Final = 12
TAG_LENGTH: Final = 16
OVERHEAD: Final = NONCE_LENGTH + TAG_LENGTH


def require_key_length(length: int) -> int:
    """The length, if AES has keys of so many bytes.

    Raises:
        KeyNotUsable: it has not.
    """
    if length not in KEY_LENGTHS:
        raise KeyNotUsable(
            f"A key of {length} bytes cannot be used.", rule="key-length", hint="Use 16, 24 or 32 bytes."
        )
    return length


class Aead:
    """AES-GCM under one key.

    Raises:
        KeyNotUsable: the key has not 16, 24 or 32 bytes.
    """

    __slots__ = ("_cipher",)

    def __init__(self, key: SecretBytes) -> None:
        require_key_length(len(key))
        with key.lent() as lent:
            # The key is expanded at once; what stays of it is OpenSSL's, which clears it in the end.
            self._cipher = AESGCM(lent)

    def encrypt(self, nonce: bytes, plaintext: bytes, aad: bytes) -> bytes:
        """Ciphertext and tag.

        Raises:
            ValueError: the nonce has not 12 bytes.
        """
        if len(nonce) != NONCE_LENGTH:
            raise ValueError("a nonce has 12 bytes")
        return self._cipher.encrypt(nonce, plaintext, aad)

    def decrypt(self, nonce: bytes, ciphertext: bytes, aad: bytes) -> bytes:
        """The plaintext of a ciphertext followed by its tag.

        Raises:
            DecryptionRefused: wrong nonce length, too short, or not authentic.
        """
        if len(nonce) != NONCE_LENGTH or len(ciphertext) < TAG_LENGTH:
            raise refused()
        try:
            return self._cipher.decrypt(nonce, ciphertext, aad)
        except InvalidTag as failure:
            raise refused() from failure

    def seal(self, plaintext: bytes, aad: bytes) -> bytes:
        """Nonce, ciphertext and tag, under a random nonce."""
        nonce = secrets.token_bytes(NONCE_LENGTH)
        return nonce + self._cipher.encrypt(nonce, plaintext, aad)

    def open(self, sealed: bytes, aad: bytes) -> bytes:
        """The plaintext of what `seal` made.

        Raises:
            DecryptionRefused: too short, or not authentic.
        """
        if len(sealed) < OVERHEAD:
            raise refused()
        try:
            return self._cipher.decrypt(sealed[:NONCE_LENGTH], sealed[NONCE_LENGTH:], aad)
        except InvalidTag as failure:
            raise refused() from failure

    def open_key(self, sealed: bytes, aad: bytes) -> SecretBytes:
        """The key that `seal_key` sealed.

        Raises:
            DecryptionRefused: too short, or not authentic.
        """
        if len(sealed) < OVERHEAD:
            raise refused()
        opened = bytearray(len(sealed) - OVERHEAD)
        try:
            self._cipher.decrypt_into(sealed[:NONCE_LENGTH], sealed[NONCE_LENGTH:], aad, opened)
        except InvalidTag as failure:
            raise refused() from failure
        return SecretBytes.taking(opened)

    def seal_key(self, key: SecretBytes, aad: bytes) -> bytes:
        """A key, sealed under a random nonce."""
        nonce = secrets.token_bytes(NONCE_LENGTH)
        with key.lent() as lent:
            return nonce + self._cipher.encrypt(nonce, lent, aad)

    def reseal(self, sealed: bytes, aad: bytes, under: Aead, nonce: bytes, new_aad: bytes) -> bytes:
        """What `seal` sealed here, encrypted under another key; nothing of it stays behind in a caller.

        Args:
            sealed: nonce, ciphertext and tag.
            aad: what it was sealed with.
            under: the other key.
            nonce: 12 bytes that the other key has not seen.
            new_aad: what it is sealed with now.

        Returns:
            Ciphertext and tag.

        Raises:
            DecryptionRefused: too short, or not authentic.
        """
        if len(sealed) < OVERHEAD:
            raise refused()
        try:
            plain = self._cipher.decrypt(sealed[:NONCE_LENGTH], sealed[NONCE_LENGTH:], aad)
        except InvalidTag as failure:
            raise refused() from failure
        return under._cipher.encrypt(nonce, plain, new_aad)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a cipher with its key cannot be pickled")


def refused() -> DecryptionRefused:
    """The one error for bytes that do not open, which tells nothing of why."""
    return DecryptionRefused(
        "A wrapped key does not open: it was changed, or belongs to another key, table, file or column.",
        rule="aead",
        hint="Restore the metadata from a sealed version.",
    )
