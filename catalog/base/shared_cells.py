"""Numbers in memory that processes share after a fork: a part for each worker, which it writes alone.

Nobody waits for a lock of another process, and a process that dies holds none. Keys are hashed with a random
key of this memory, so that nobody can choose one that stands where another one does.
"""

from __future__ import annotations

import mmap
import secrets
import threading
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

_CELL_BYTES: Final = 8


class SharedCells:
    """Parts of 64-bit numbers, all 0 at first.

    Args:
        workers: the number of parts.
        length: the cells of each part.
    """

    def __init__(self, workers: int, length: int) -> None:
        self.workers = workers
        self._length = length
        self._key = secrets.token_bytes(16)
        self._barrier = threading.Lock()
        self._cells = memoryview(mmap.mmap(-1, workers * length * _CELL_BYTES)).cast("q")

    def hashed(self, key: bytes) -> int:
        """Return a hash of 63 bits."""
        return int.from_bytes(blake2b(key, digest_size=8, key=self._key).digest()) >> 1

    def read(self, worker: int, cell: int, count: int = 1) -> Sequence[int]:
        """Return cells of a worker's part."""
        start = worker * self._length + cell
        numbers: list[int] = self._cells[start : start + count].tolist()
        return numbers

    def write(self, worker: int, cell: int, number: int) -> None:
        """Write a cell of the caller's own part."""
        self._cells[worker * self._length + cell] = number
        # A lock is a memory barrier. Without one, a processor can read a cell of another worker before that
        # worker sees this number, and of two that write first and read then, none would see the other.
        with self._barrier:
            pass

    def clear(self, worker: int) -> None:
        """Set all cells of a part to 0."""
        start = worker * self._length
        self._cells[start : start + self._length] = memoryview(bytes(self._length * _CELL_BYTES)).cast("q")
