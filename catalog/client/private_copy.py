"""Copies of files that nobody else can reach: what was verified, or is read elsewhere, stays what it is.

- A file is copied piece by piece while its digest is taken, and read from the copy, whatever lies under its
  path by then.
- A copy is in memory; a larger one is a file in the directory for temporary files that only this user may
  open, and that has no name. What the file has in plaintext, the copy has in plaintext.
"""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
            raise refused("The file has another digest than its key metadata says.", "file-digest")
        copy.seek(0)
        yield copy


@contextmanager
def copied(stream: InputStream, size: int) -> Iterator[IO[bytes]]:
    """A copy of a file, never in memory, until the end of the block.

    Args:
        stream: the file, at its first byte.
        size: bytes that it has; of a longer one there is one more.

    Raises:
        StorageUnavailable: there is no room for a copy.
    """
    with ExitStack() as until_read:
        with _room():
            copy = until_read.enter_context(tempfile.TemporaryFile())
        _filled(copy, stream, size)
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
            f"There is no room for the copy of a file ({type(error).__name__}).",
            rule="local-directory",
            hint="Make room in the directory for temporary files (TMPDIR).",
        ) from error
