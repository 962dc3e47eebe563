"""Computes the digest of a file while it is written to storage."""

from __future__ import annotations

import base64
import hashlib
import io
from typing import TYPE_CHECKING

from pyiceberg.io import OutputStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Written(io.RawIOBase):
    """A new file.

    Args:
        stream: into storage; it is owned from here on.
        digest: whether the digest is taken.
    """

    def __init__(self, stream: OutputStream, *, digest: bool) -> None:
        super().__init__()
        self._stream = stream
        self._hash = hashlib.sha256() if digest else None
        self._length = 0

    @property
    def sha256(self) -> str | None:
        """The digest of what was written so far, in base64; None if it is not taken."""
        return None if self._hash is None else base64.b64encode(self._hash.digest()).decode("ascii")

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, b: ReadableBuffer) -> int:
        """Writes all of `b`; returns its length in bytes."""
        data = bytes(b)
        self._stream.write(data)
        if self._hash is not None:
            self._hash.update(data)
        self._length += len(data)
        return len(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._length

    def close(self) -> None:
        """Finishes the file."""
        if not self.closed:
            super().close()
            self._stream.close()

    def abandon(self) -> None:
        """Removes the file."""
        super().close()
        failed = RuntimeError("the write was given up")
        self._stream.__exit__(type(failed), failed, None)
