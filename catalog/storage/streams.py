"""Streams over one object that translate storage errors at every call.

PyArrow's file objects and Python's own are wrapped alike, so that a fault in the middle of a scan is the same
typed error as one at its start. PyArrow hands an exception that a wrapped stream raises on unchanged.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from catalog.storage.errors import translated
from policy.location.location import Location

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ObjectInput(io.RawIOBase):
    """A seekable stream of one object's bytes."""

    def __init__(self, inner: Any, location: Location) -> None:
        """Wraps `inner`, a binary file object of Python or PyArrow, which it then owns."""
        super().__init__()
        self._inner = inner
        self._location = location

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, fewer only at the end; all that are left without a size."""
        with translated(self._location):
            data: bytes = self._inner.read(None if size is None or size < 0 else size)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position; see `io.IOBase.seek`."""
        with translated(self._location):
            position: int = self._inner.seek(offset, whence)
        return position

    def tell(self) -> int:
        """The position in bytes from the start."""
        with translated(self._location):
            position: int = self._inner.tell()
        return position

    def close(self) -> None:
        """Closes the wrapped file too."""
        if not self.closed:
            super().close()
            with translated(self._location):
                self._inner.close()


class ObjectOutput(io.RawIOBase):
    """A stream that creates an object.

    Only an explicit close after faultless writes finishes the object. After a failed write or `with` block,
    or when the stream is dropped unclosed, the object is removed.
    """

    def __init__(
        self,
        inner: Any,
        location: Location,
        *,
        finish: Callable[[], None],
        discard: Callable[[], None],
    ) -> None:
        """Wraps `inner`, which it then owns.

        Args:
            inner: a binary file object of Python or PyArrow.
            location: the object that comes into being.
            finish: closes `inner` and makes the object durable.
            discard: closes `inner` and removes the object.
        """
        super().__init__()
        self._inner = inner
        self._location = location
        self._finish = finish
        self._discard = discard
        self._faultless = True

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, b: ReadableBuffer) -> int:
        """Writes all of `b`; returns its length in bytes."""
        self._faultless = False
        with translated(self._location):
            self._inner.write(b)
        self._faultless = True
        return memoryview(b).nbytes

    def tell(self) -> int:
        """How many bytes were written."""
        with translated(self._location):
            position: int = self._inner.tell()
        return position

    def close(self) -> None:
        """Finish the object; remove it if it cannot be finished."""
        if self.closed:
            return
        super().close()
        with translated(self._location):
            if not self._faultless:
                self._discard()
                return
            try:
                self._finish()
            except OSError:
                self._discard()
                raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the object, or remove it if the block failed."""
        self._faultless = self._faultless and kind is None
        self.close()

    def __del__(self) -> None:
        """Remove the object of a stream that was not closed."""
        self._faultless = False
        self.close()
