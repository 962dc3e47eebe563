"""AES-GCM with fixed parameters.

Rules: keys of 16, 24 or 32 bytes; nonces of 12 bytes and tags of 16, nothing else; what does not authenticate
is `DecryptionRefused`. Sealed bytes are nonce | ciphertext | tag.

Source: NIST SP 800-38D. With random nonces one key may seal 2**32 times (section 8.3); who uses a key for
long hands in what counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, SupportsIndex

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from catalog.crypto.secret import SecretBytes
from policy.errors import DecryptionRefused, KeyNotUsable

KEY_LENGTHS: Final = (16, 24, 32)
NONCE_LENGTH: Final = 12
TAG_LENGTH: Final = 16
OVERHEAD: Final = NONCE_LENGTH + TAG_LENGTH

#: Nonce of 12 bytes, ciphertext with tag, AAD; and the nonce and AAD for the new encryption.
Resealing = tuple[bytes, bytes, bytes, bytes, bytes]


def require_key_length(length: int) -> int:
    """Return the length if AES has keys of that many bytes.

    Raises:
        KeyNotUsable: it has not.
    """
    if length not in KEY_LENGTHS:
        raise KeyNotUsable(
            f"A key of {length} bytes cannot be used: AES keys have 16, 24 or 32 bytes.",
            rule="key-length",
            hint="Use a key of 16, 24 or 32 bytes.",
        )
    return length


class Aead:
    """AES-GCM under one key.

    Args:
        key: the key.
        spend: called before each encryption; it counts, and raises where the key may encrypt no more.

    Raises:
        KeyNotUsable: the key has not 16, 24 or 32 bytes.
    """

    __slots__ = ("_cipher", "_spend")

    def __init__(self, key: SecretBytes, spend: Callable[[], None] | None = None) -> None:
        require_key_length(len(key))
        self._spend = spend or _uncounted
        with key.lent() as lent:
            # The key schedule is computed once. OpenSSL keeps it and clears it when it is freed.
            self._cipher = AESGCM(lent)

    def encrypt(self, nonce: bytes, plaintext: bytes, aad: bytes) -> bytes:
        """Return ciphertext and tag.

        Raises:
            ValueError: the nonce has not 12 bytes.
        """
        if len(nonce) != NONCE_LENGTH:
            raise ValueError("a nonce must have 12 bytes")
        self._spend()
        return self._cipher.encrypt(nonce, plaintext, aad)

    def decrypt(self, nonce: bytes, ciphertext: bytes, aad: bytes) -> bytes:
        """Return the plaintext of a ciphertext followed by its tag.

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
        """Encrypt under a random nonce; return nonce, ciphertext and tag."""
        self._spend()
        nonce = secrets.token_bytes(NONCE_LENGTH)
        return nonce + self._cipher.encrypt(nonce, plaintext, aad)

    def open(self, sealed: bytes, aad: bytes) -> bytes:
        """Decrypt what `seal` returned.

        Raises:
            DecryptionRefused: too short, or not authentic.
        """
        if len(sealed) < OVERHEAD:
            raise refused()
        try:
            return self._cipher.decrypt(sealed[:NONCE_LENGTH], sealed[NONCE_LENGTH:], aad)
        except InvalidTag as failure:
            raise refused() from failure

    def open_all(self, sealed: Iterable[tuple[bytes, bytes, bytes]], opened: list[bytes]) -> None:
        """Decrypt several values in order.

        Args:
            sealed: nonce, ciphertext with tag, and AAD of each.
            opened: gets the plaintexts, as far as they open.

        Raises:
            DecryptionRefused: the next one is not authentic.
        """
        decrypt = self._cipher.decrypt
        try:
            for nonce, ciphertext, aad in sealed:
                opened.append(decrypt(nonce, ciphertext, aad))
        except InvalidTag as failure:
            raise refused() from failure

    def open_key(self, sealed: bytes, aad: bytes) -> SecretBytes:
        """Decrypt the key that `seal_key` encrypted.

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
        """Encrypt a key under a random nonce."""
        self._spend()
        nonce = secrets.token_bytes(NONCE_LENGTH)
        with key.lent() as lent:
            return nonce + self._cipher.encrypt(nonce, lent, aad)

    def reseal(self, sealed: Iterable[Resealing], length: int, under: Aead, done: list[bytes]) -> None:
        """Re-encrypt sealed values under another key and overwrite the plaintext.

        Args:
            sealed: what is to be opened, and how it is sealed.
            length: bytes of each plaintext.
            under: the other key.
            done: gets ciphertext and tag of one after the other, as far as they open.

        Raises:
            DecryptionRefused: the next one is not authentic.
        """
        plain = bytearray(length)
        decrypt_into, encrypt, spend = self._cipher.decrypt_into, under._cipher.encrypt, under._spend
        try:
            for nonce, ciphertext, aad, new_nonce, new_aad in sealed:
                decrypt_into(nonce, ciphertext, aad, plain)
                spend()
                done.append(encrypt(new_nonce, plain, new_aad))
        except InvalidTag as failure:
            raise refused() from failure
        finally:
            plain[:] = bytes(length)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a cipher with its key cannot be pickled")


def _uncounted() -> None:
    """Counts nothing: for keys that do not live long enough to reach the limit, or that the caller counts."""


def refused() -> DecryptionRefused:
    """The one error for bytes that do not authenticate; it does not reveal why."""
    return DecryptionRefused(
        "A wrapped key cannot be decrypted: it was changed, or it belongs to another key, table, "
        "file or column.",
        rule="aead",
        hint="Restore the table's metadata from a sealed version (`lakewarden table restore`).",
    )
