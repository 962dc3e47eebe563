"""Digests of a file in key metadata: of all its bytes, and of a Parquet file's footer.

Both are in the AAD of the file's keys, so that neither digest can be changed.

Source: docs/key-metadata.md.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final, NamedTuple

from policy.errors import DecryptionRefused

#: The shortest footer: one byte of content, its length, and the magic bytes.
LEAST_FOOTER: Final = 12
_FILE: Final = struct.Struct(">Q32s")
_FOOTER: Final = struct.Struct(">I32s")
FILE_DIGEST_BYTES: Final = _FILE.size
FOOTER_DIGEST_BYTES: Final = _FOOTER.size


class FileDigest(NamedTuple):
    """The length and SHA-256 of a file.

    Attributes:
        length: its length in bytes.
        sha256: the SHA-256 of all of them.
    """

    length: int
    sha256: bytes

    def to_bytes(self) -> bytes:
        """Encode the digest section.

        Raises:
            DecryptionRefused: a part that the format cannot hold.
        """
        if not 0 <= self.length < 2**64 or len(self.sha256) != hashlib.sha256().digest_size:
            raise malformed("the digest of the file")
        return _FILE.pack(self.length, self.sha256)

    @classmethod
    def of_bytes(cls, data: bytes) -> FileDigest:
        """Parse the 40 bytes of a digest section."""
        return cls(*_FILE.unpack(data))


class FooterDigest(NamedTuple):
    """The length and SHA-256 of a Parquet file's footer.

    Attributes:
        length: of the footer in bytes, including the length field and the magic at its end.
        sha256: the SHA-256 of all of them.
    """

    length: int
    sha256: bytes

    def to_bytes(self) -> bytes:
        """Encode the digest section of the footer.

        Raises:
            DecryptionRefused: a part that the format cannot hold.
        """
        if not LEAST_FOOTER <= self.length < 2**32 or len(self.sha256) != hashlib.sha256().digest_size:
            raise malformed("the digest of the footer")
        return _FOOTER.pack(self.length, self.sha256)

    @classmethod
    def of_bytes(cls, data: bytes) -> FooterDigest:
        """Parse the 36 bytes of a footer's digest section.

        Raises:
            DecryptionRefused: it says a length that no footer has.
        """
        digest = cls(*_FOOTER.unpack(data))
        if digest.length < LEAST_FOOTER:
            raise malformed("the digest of the footer")
        return digest


def malformed(what: str) -> DecryptionRefused:
    return DecryptionRefused(
        f"The key metadata of a file is malformed: {what}.",
        rule="key-metadata",
        hint="Restore the table's metadata from a sealed version (`lakewarden table restore`).",
    )
