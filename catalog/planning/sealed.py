"""Skips files by the encrypted bounds and counts in their key metadata.

- Only the filter's columns are used, which the caller can select unmasked.
- Only files that remain after pruning by partitions and plaintext statistics are opened, with the keys that
  cover a column of the filter. Their key metadata is checked against the epochs first.
- For a column that a file encrypts, the encrypted statistics count, not those of the manifest. For a
  plaintext column, the manifest counts. One scan can have both.
- Decrypted statistics are not kept after the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import reduce

import numpy as np
import pyarrow as pa

from catalog.envelope.key_metadata_columns import Rows
from catalog.envelope.scan_statistics import ColumnOfFiles
from catalog.iceberg.manifests import FieldStatistics
from catalog.keyring.keyring import Keyring
from catalog.planning.gathering import Gathered
from catalog.planning.prune import Pruner
from catalog.reading.loading import LoadedTable

#: The parts of `FieldStatistics`, in order.
_PARTS = tuple(each.name for each in fields(FieldStatistics))


class SealedPruner:
    """Prunes by sealed bounds.

    Args:
        keyring: opens the table's keys.
        table: the table, sealed.
        pruner: the filter.
    """

    def __init__(self, keyring: Keyring, table: LoadedTable, pruner: Pruner) -> None:
        self._keyring = keyring
        self._table = table
        self._pruner = pruner

    def keeps(self, gathered: Gathered, kept: pa.BooleanArray) -> pa.BooleanArray:
        """Return which of the entries that are kept so far can hold matching rows.

        Args:
            gathered: manifests.
            kept: one flag an entry.

        Raises:
            EncryptionPolicyViolation, DecryptionRefused: key metadata does not fit its epoch, is malformed,
                or does not open.
            KeyNotUsable, KmsUnavailable: a key cannot be had.
        """
        columns = self._pruner.columns
        rows = np.flatnonzero(np.asarray(kept))
        if not columns or not len(rows):
            return kept
        parts = _sealed(self._keyring, self._table, gathered, rows, columns)
        if not parts:
            return kept
        flags = np.asarray(kept).copy()
        flags[rows] = self._pruner.may_match(merged(_clear(gathered, rows, columns), parts), len(rows))
        return pa.array(flags)


def statistics_of(
    keyring: Keyring, table: LoadedTable, gathered: Gathered, rows: Rows, columns: frozenset[int]
) -> Mapping[int, FieldStatistics]:
    """Return the statistics of some entries, encrypted ones included.

    Args:
        keyring: opens the table's keys.
        table: the table, sealed.
        gathered: manifests.
        rows: positions of the entries.
        columns: ids of columns that the caller can select.

    Raises:
        as `SealedPruner.keeps`.
    """
    return merged(_clear(gathered, rows, columns), _sealed(keyring, table, gathered, rows, columns))


def _clear(gathered: Gathered, rows: Rows, columns: frozenset[int]) -> dict[int, FieldStatistics]:
    return {i: _taken(each, rows) for i, each in gathered.decoded.stats(columns).items()}


def _sealed(
    keyring: Keyring, table: LoadedTable, gathered: Gathered, rows: Rows, columns: frozenset[int]
) -> list[tuple[Rows, dict[int, ColumnOfFiles]]]:
    if not table.governed.ever_encrypted:
        return []
    files = gathered.entries.take(pa.array(rows))
    judged = keyring.checked_files(table.record, table.governed, files)
    return keyring.open_bounds(table.record, judged, columns)


def merged(
    statistics: Mapping[int, FieldStatistics], parts: Iterable[tuple[Rows, Mapping[int, ColumnOfFiles]]]
) -> Mapping[int, FieldStatistics]:
    """Return statistics, with encrypted ones in place of those of the manifest.

    Args:
        statistics: those of the manifest.
        parts: encrypted ones, with their rows; see `Keyring.open_bounds`.
    """
    return reduce(_merged, parts, statistics)


def _taken(statistics: FieldStatistics, rows: Rows) -> FieldStatistics:
    return FieldStatistics(*(getattr(statistics, name).take(pa.array(rows)) for name in _PARTS))


def _merged(
    statistics: Mapping[int, FieldStatistics], part: tuple[Rows, Mapping[int, ColumnOfFiles]]
) -> dict[int, FieldStatistics]:
    """Replace the statistics of some rows."""
    rows, columns = part
    merged = dict(statistics)
    for field_id, sealed in columns.items():
        before, after = statistics[field_id], _arrays(sealed)
        index = np.arange(len(before.lower))
        index[rows] = len(index) + np.arange(len(rows))
        merged[field_id] = FieldStatistics(
            *(
                pa.concat_arrays([getattr(before, name), getattr(after, name)]).take(pa.array(index))
                for name in _PARTS
            )
        )
    return merged


def _arrays(sealed: ColumnOfFiles) -> FieldStatistics:
    counts: Iterable[pa.Array] = (
        pa.array(each.tolist(), pa.int64()) for each in (sealed.values, sealed.nulls, sealed.nans)
    )
    ends = (pa.array(each.tolist(), pa.binary()) for each in (sealed.lower, sealed.upper))
    return FieldStatistics(*counts, *ends)
