"""Copies a file while it verifies the file's digest, so that the verified bytes are the bytes that are read.

- The file is copied piece by piece, hashed on the way, and read from the copy. A later change under its path
  has no effect.
- A copy of up to 8 MiB is in memory. A larger one is a temporary file without a name that only this user can
  open. What is plaintext in the file is plaintext in the copy.
"""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from pyiceberg.io import InputStream

from catalog.client.footers import refused
from policy.errors import StorageUnavailable

_MOST_IN_MEMORY: Final = 8 << 20
_PIECE: Final = 1 << 20


@contextmanager
def verified(stream: InputStream, size: int, sha256: bytes) -> Iterator[IO[bytes]]:
    """A copy of a file, until the end of the block.

    Args:
        stream: the file, at its first byte.
        size: bytes that it has to have.
        sha256: the digest that it has to have.

    Raises:
        DecryptionRefused: another file.
        StorageUnavailable: there is no room for a copy.
    """
    with tempfile.SpooledTemporaryFile(_MOST_IN_MEMORY) as copy:
        if not hmac.compare_digest(_filled(copy, stream, size), sha256):
            raise refused("The SHA-256 digest of the file differs from its key metadata.", "file-digest")
        copy.seek(0)
        yield copy


def _filled(copy: IO[bytes], stream: InputStream, size: int) -> bytes:
    """The digest of what was copied, which is one byte too many of a file that is too long."""
    digest, left = hashlib.sha256(), size + 1
    while piece := stream.read(min(left, _PIECE)):
        digest.update(piece)
        with _room():
            copy.write(piece)
            copy.flush()
        left -= len(piece)
    return digest.digest()


@contextmanager
def _room() -> Iterator[None]:
    """What goes wrong with a copy is not the file's fault."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable(
            f"Cannot write a temporary copy of the file ({type(error).__name__}).",
            rule="local-directory",
            hint="Free space in the directory for temporary files (TMPDIR).",
        ) from error
