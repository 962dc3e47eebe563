"""Splits appended rows into row groups.

Sizes are those of the rows in memory, which is what has to be held; in the file they are smaller, as a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

from catalog.client.settings import ParquetSettings

#: A row group, or a file, becomes larger than asked for by no more than its part.
_PIECES: Final = 8


class TableWriter(Protocol):
    """Writes a file: PyArrow's writer, or one with its interface."""

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        """Write rows, in row groups of so many."""


def pieces(rows: pa.RecordBatch, settings: ParquetSettings) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in parts much smaller than a file or a row group is to be."""
    most = max(1, min(settings.target_file_size, settings.row_group_size) // _PIECES)
    count = max(1, rows.num_rows * most // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


class RowGroups:
    """The row groups of one file.

    Args:
        writer: of the file.
        schema: of its rows.
        settings: how large a row group may be.
    """

    def __init__(self, writer: TableWriter, schema: pa.Schema, settings: ParquetSettings) -> None:
        self._writer = writer
        self._schema = schema
        self._settings = settings
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self.waiting_bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; a row group is written as soon as it is large enough."""
        most = self._settings.row_group_rows
        start = 0
        while start < rows.num_rows:
            part = rows.slice(start, most - self._rows)
            start += part.num_rows
            self._waiting.append(part)
            self._rows += part.num_rows
            self.waiting_bytes += part.nbytes
            if self._rows == most or self.waiting_bytes >= self._settings.row_group_size:
                self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting, self._rows, self.waiting_bytes = [], 0, 0
            self._writer.write_table(table, row_group_size=table.num_rows)
