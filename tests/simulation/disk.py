"""Follows which stored files a power failure would take, and takes them.

A file stays if its content was flushed before `create` returned, and its directory after the file was made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from policy.location.location import Location

#: Device and inode.
_Inode = tuple[int, int]


class Disk:
    """The files that were created and not flushed; `os.fsync` has to be replaced by `flush`.

    Args:
        fsync: the real one.
    """

    def __init__(self, fsync: Callable[[int], None]) -> None:
        self._fsync = fsync
        self._flushed: set[_Inode] = set()
        self._volatile: set[Path] = set()

    def flush(self, descriptor: int) -> None:
        """Flush a file or a directory."""
        self._fsync(descriptor)
        self._flushed.add(_inode(os.fstat(descriptor)))

    def create(self, create: Callable[[Location, bytes], None], location: Location, data: bytes) -> None:
        """Create a file, and note whether it was flushed."""
        path = Path("/", *location.segments)
        if path.parent.exists():
            self._flushed.discard(_inode(path.parent.stat()))
        create(location, data)
        if not {_inode(path.stat()), _inode(path.parent.stat())} <= self._flushed:
            self._volatile.add(path)
        # Another file can get the same inode later.
        self._flushed.discard(_inode(path.stat()))

    def lose_power(self) -> None:
        """Take the files that were not flushed."""
        for path in self._volatile:
            path.unlink(missing_ok=True)
        self._volatile.clear()


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino
