"""Finds plaintext statistics of columns that files encrypt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from policy.encryption.encrypted_columns import protected_fields
from policy.encryption.epochs import Epochs

#: The field ids of `file_path` and `pos` in position delete files (Iceberg specification, "Reserved Field
#: IDs").
_DELETE_FILE_FIELDS: Final = frozenset({2147483546, 2147483545})

#: Greater than every sequence number.
_NO_END: Final = 2**63 - 1


def shown_fields(
    entries: pa.Table, statistics: pa.Table, epochs: Epochs, fields: Callable[[pa.Table], frozenset[int]]
) -> frozenset[int]:
    """Return the columns that files encrypt, and of which their entries have statistics in plaintext.

    Args:
        entries: entries of a manifest, with what they inherit.
        statistics: their statistics.
        epochs: the table's encryption epochs.
        fields: returns the columns that statistics describe, such as `described_fields`.
    """
    shown: set[int] = set()
    for rows, hidden in _encrypted_rows(entries["file_sequence_number"], epochs):
        told = fields(statistics.filter(rows)) - _DELETE_FILE_FIELDS
        shown |= told if hidden is None else told & hidden
    return frozenset(shown)


def _encrypted_rows(
    numbers: pa.ChunkedArray, epochs: Epochs
) -> Iterator[tuple[pa.ChunkedArray, frozenset[int] | None]]:
    """Yield masks of entries, each with the fields that the files encrypt; None for all fields.

    Files without a sequence number count as encrypting all fields.
    """
    yield pc.fill_null(pc.equal(numbers, -1), True), None
    starts = [epoch.from_sequence_number for epoch in epochs.entries]
    ends = [*starts[1:], _NO_END]
    for epoch, start, end in zip(epochs.entries, starts, ends, strict=True):
        if epoch.spec.encrypts:
            rows = pc.and_(pc.greater_equal(numbers, start), pc.less(numbers, end))
            yield pc.fill_null(rows, False), protected_fields(epoch.spec, epoch.columns)
