"""Creates and opens encrypted keys (EEKs) as Hadoop's KMS does.

An EEK is AES-CTR without padding under a version of a key; the counter block is the IV with every bit
flipped. It has no authentication: any IV and any material give some key. So a user who can decrypt under
a key can learn every key that was ever encrypted by it, for any user, and a writer of ORC makes its key by
decrypting random material.

Source: Hadoop 3.4.3, `KeyProviderCryptoExtension.DefaultCryptoExtension`, `EncryptedKeyVersion.deriveIV`;
NIST SP 800-38A, section 6.5.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from catalog.crypto.aead import KEY_LENGTHS
from catalog.crypto.secret import SecretBytes
from catalog.kms_server.names import VersionName
from policy.errors import RequestInvalid

IV_LENGTH: Final = 16
_FLIPPED: Final = 0xFF


@dataclass(frozen=True, slots=True)
class EncryptedKey:
    """A key, encrypted under one version of a key of the KMS endpoint.

    Attributes:
        version: what it is encrypted under.
        iv: 16 bytes.
        material: the encrypted key: 16, 24 or 32 bytes.

    Raises:
        RequestInvalid: other lengths.
    """

    version: VersionName
    iv: bytes
    material: bytes

    def __post_init__(self) -> None:
        if len(self.iv) != IV_LENGTH or len(self.material) not in KEY_LENGTHS:
            raise RequestInvalid(
                "An encrypted key must have an iv of 16 bytes and material of 16, 24 or 32 bytes.",
                rule="encrypted-key",
                hint="Send the encrypted key as the KMS returned it.",
            )


def generate(version: VersionName, key: SecretBytes) -> EncryptedKey:
    """Generate an encrypted key as long as the key that encrypts it; the plaintext is never computed."""
    # Under a random iv, random material is the encryption of a random key.
    return EncryptedKey(version, secrets.token_bytes(IV_LENGTH), secrets.token_bytes(len(key)))


def decrypt(encrypted: EncryptedKey, key: SecretBytes) -> SecretBytes:
    """Decrypt a key."""
    return SecretBytes(_crypt(encrypted.material, encrypted.iv, key))


def reencrypt(
    encrypted: EncryptedKey, old: SecretBytes, version: VersionName, new: SecretBytes
) -> EncryptedKey:
    """Re-encrypt a key under another version."""
    iv = secrets.token_bytes(IV_LENGTH)
    inside = decrypt(encrypted, old)
    try:
        return EncryptedKey(version, iv, _crypt(inside.reveal(), iv, new))
    finally:
        inside.wipe()


def _crypt(data: bytes, iv: bytes, key: SecretBytes) -> bytes:
    """Encrypt or decrypt: both are the same in this mode."""
    counter = bytes(byte ^ _FLIPPED for byte in iv)
    return Cipher(AES(key.reveal()), CTR(counter)).encryptor().update(data)
