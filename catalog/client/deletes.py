"""Applies position deletes.

A delete file names paths and positions. It is opened as data files are: checked against the allowed list and
its own epoch. Each is read once a scan.

Source: Iceberg table specification, "Position Delete Files".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType, NestedField, StringType

from catalog.client.files import opened
from catalog.client.plan import Plan, PlannedFile
from catalog.storage.base import Storage

_COLUMNS: Final = (
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)


@dataclass(frozen=True, slots=True)
class Positions:
    """The deleted rows of one file, counted from 0, ascending."""

    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]

    def kept(self, start: int, end: int) -> pa.Array:
        """Which of the rows from `start` to before `end` are left."""
        mask = np.ones(end - start, dtype=bool)
        first, last = np.searchsorted(self.numbers, (start, end))
        mask[self.numbers[first:last] - start] = False
        return pa.array(mask)


class DeletedRows:
    """The position deletes of one scan.

    Args:
        plan: the scan's.
        storage: where the files lie.
    """

    def __init__(self, plan: Plan, storage: Storage) -> None:
        self._plan = plan
        self._storage = storage
        self._read: dict[str, pa.Table] = {}

    def of(self, file: PlannedFile) -> Positions | None:
        """What was deleted of a file; None if nothing was.

        Raises:
            LakewardenError: a delete file that is not read, as for data files.
        """
        if not file.deletes:
            return None
        rows = pa.concat_tables([self._rows(each) for each in file.deletes])
        numbers = rows.filter(pc.equal(rows["file_path"], file.path))["pos"].to_numpy()
        return Positions(np.unique(numbers))

    def _rows(self, file: PlannedFile) -> pa.Table:
        if file.path not in self._read:
            with opened(self._plan, file, self._storage, _COLUMNS) as source:
                self._read[file.path] = pa.concat_tables(rows for _, rows in source.row_groups(_COLUMNS))
        return self._read[file.path]
