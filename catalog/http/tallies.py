"""Tallies of what a limit counts: in this process, or over all workers of the service.

- Workers share memory, made before they start (`catalog.base.shared_cells`). Each worker writes its own row
  and reads those of the others.
- A row has a total and buckets. The keys of other workers are known by their bucket alone: keys that share
  one count together, which can only refuse too early.
- Callers add first and compare then. So of two workers that count at the same time, at least one sees both,
  and a limit is never exceeded.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from catalog.base.shared_cells import SharedCells

_BUCKETS: Final = 4096


class SharedRows:
    """One row of counts for each worker, in memory that processes share after a fork.

    Args:
        workers: the number of rows.
    """

    def __init__(self, workers: int) -> None:
        self._cells = SharedCells(workers, 1 + _BUCKETS)

    def bucket(self, key: str) -> int:
        """Return the cell of a key in each row."""
        return 1 + self._cells.hashed(key.encode("utf-8", "surrogatepass")) % _BUCKETS

    def add(self, row: int, cell: int, amount: int) -> None:
        """Change a cell of the caller's own row; cell 0 is the total."""
        self._cells.write(row, cell, self._cells.read(row, cell)[0] + amount)

    def elsewhere(self, row: int, cell: int) -> int:
        """Return the sum of a cell over the other rows."""
        others = (each for each in range(self._cells.workers) if each != row)
        return sum(self._cells.read(each, cell)[0] for each in others)

    def clear(self, row: int) -> None:
        """Forget what a worker held that ended."""
        self._cells.clear(row)


class Tally:
    """Counts by key. Its owner changes it in one thread at a time.

    Args:
        rows: the memory that workers share; None if this process serves alone.
        row: the row of this worker.
    """

    def __init__(self, rows: SharedRows | None = None, row: int = 0) -> None:
        self._own: Counter[str] = Counter()
        self._rows = rows
        self._row = row

    @property
    def own_total(self) -> int:
        """Return the sum of this process."""
        return self._own.total()

    @property
    def total(self) -> int:
        """Return the sum of all workers."""
        return self._own.total() + (0 if self._rows is None else self._rows.elsewhere(self._row, 0))

    def of(self, key: str) -> int:
        """Return the count of a key over all workers, or more (see the module)."""
        own = self._own.get(key, 0)
        if self._rows is None:
            return own
        return own + self._rows.elsewhere(self._row, self._rows.bucket(key))

    def add(self, key: str, amount: int) -> None:
        """Change the count of a key."""
        self._own[key] += amount
        if not self._own[key]:
            del self._own[key]
        if self._rows is not None:
            self._rows.add(self._row, 0, amount)
            self._rows.add(self._row, self._rows.bucket(key), amount)
