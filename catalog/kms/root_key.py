"""Derives the root key of the local keystore from a passphrase or a key file.

Rules:
- The keystore says where its root key comes from, never the key itself. The parameters of scrypt are bounded,
  since a user who can write the keystore could otherwise make them ruinous or weak.
- A key file holds 64 hexadecimal digits and is private (see `private_files`).

Source: RFC 7914 (scrypt).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import Final, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from catalog.crypto.hkdf import derived
from catalog.crypto.private_files import create_private, read_private
from catalog.crypto.secret import SecretBytes
from policy.errors import KmsUnavailable

ROOT_KEY_LENGTH: Final = 32
SALT_LENGTH: Final = 16
SCRYPT_LOG2_N: Final = 17
LEAST_SCRYPT_LOG2_N: Final = 15
MIN_PASSPHRASE_BYTES: Final = 8
_SCRYPT_R: Final = 8
_SCRYPT_P: Final = 1
_KEY_FILE: Final = re.compile(rb"([0-9a-f]{64})\n?\Z")


class KeystorePart(BaseModel):
    """A part of the keystore file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True)


class RootDescription(KeystorePart):
    """The description of the root key in a keystore.

    Attributes:
        kind: ``passphrase`` or ``key-file``.
        salt: the salt of scrypt in hexadecimal, 16 bytes; none for a key file.
        log2_n: the cost of scrypt as a power of two; none for a key file.
    """

    kind: Literal["passphrase", "key-file"]
    salt: str = Field(default="", pattern="^[0-9a-f]{32}$")
    log2_n: int = Field(default=0, ge=LEAST_SCRYPT_LOG2_N, le=20)

    @model_validator(mode="after")
    def _require_parameters(self) -> Self:
        parameters = {"salt", "log2_n"} if self.kind == "passphrase" else set()
        if self.model_fields_set != {"kind", *parameters}:
            raise ValueError("a passphrase has a salt and a cost, and a key file has neither")
        return self


class RootKeySource(Protocol):
    """A source of the root key."""

    @property
    def kind(self) -> Literal["passphrase", "key-file"]:
        """Return where the root key comes from."""

    def describe(self) -> RootDescription:
        """Return the description for a new keystore."""

    def derive(self, description: RootDescription) -> SecretBytes:
        """Return the 32-byte root key for a keystore's description of the same kind."""


class KeyFile:
    """A root key in a private file.

    Args:
        path: the key file.
    """

    kind: Final = "key-file"

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def create(cls, path: Path) -> KeyFile:
        """A new key file of mode 0600 with a random key.

        Raises:
            KmsUnavailable: the file is there already, or cannot be written.
        """
        create_private(path, secrets.token_bytes(ROOT_KEY_LENGTH).hex().encode("ascii") + b"\n")
        return cls(path)

    def describe(self) -> RootDescription:
        """A key file needs no parameters."""
        return RootDescription(kind=self.kind)

    def derive(self, description: RootDescription) -> SecretBytes:
        """The key in the file.

        Raises:
            KmsUnavailable: `private_files.read_private` refuses the file, or it holds something else.
        """
        match = _KEY_FILE.match(read_private(self._path, limit=256))
        if match is None:
            raise KmsUnavailable(
                f"{self._path.name} is not a key file.",
                path=str(self._path),
                rule="key-file",
                hint="A key file holds 64 lower-case hexadecimal digits.",
            )
        return SecretBytes(bytes.fromhex(match[1].decode("ascii")))


class Passphrase:
    """A root key derived from a passphrase with scrypt (N = 2**17, r = 8, p = 1: 128 MiB).

    Args:
        passphrase: UTF-8, at least 8 bytes.

    Raises:
        KmsUnavailable: the passphrase is too short.
    """

    kind: Final = "passphrase"

    def __init__(self, passphrase: SecretBytes) -> None:
        if len(passphrase) < MIN_PASSPHRASE_BYTES:
            raise KmsUnavailable(
                f"The passphrase of the keystore is shorter than {MIN_PASSPHRASE_BYTES} bytes.",
                rule="passphrase",
                hint=f"Use a passphrase of at least {MIN_PASSPHRASE_BYTES} bytes.",
            )
        self._passphrase = passphrase

    def describe(self) -> RootDescription:
        """Return a new salt and the current cost."""
        return RootDescription(kind=self.kind, salt=secrets.token_hex(SALT_LENGTH), log2_n=SCRYPT_LOG2_N)

    def derive(self, description: RootDescription) -> SecretBytes:
        """Derive the root key from the passphrase."""
        cost = 2**description.log2_n
        with self._passphrase.lent() as lent:
            stretched = hashlib.scrypt(
                lent,
                salt=bytes.fromhex(description.salt),
                n=cost,
                r=_SCRYPT_R,
                p=_SCRYPT_P,
                maxmem=256 * _SCRYPT_R * cost,
                dklen=ROOT_KEY_LENGTH,
            )
        return SecretBytes(stretched)


def subkey(root: SecretBytes, purpose: str) -> SecretBytes:
    """Derive a 32-byte key for one purpose from the root key (HKDF-SHA256)."""
    info = f"lakewarden/local-kms/{purpose}/1".encode("ascii")
    return SecretBytes(derived(root, ROOT_KEY_LENGTH, info))
