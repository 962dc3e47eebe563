"""Decrypts the encrypted statistics that a scan filters by, for all files of one form at once.

Rules:
- One AES-GCM operation per file, and only for keys that cover a column of the filter.
- The file id is taken from the checked path, never from key metadata.
- If one value does not open, the whole scan fails. Decrypted statistics are not cached.

Source: docs/key-metadata.md, "Encrypted statistics".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.crypto.aead import NONCE_LENGTH
from catalog.envelope.data_keys import BOUNDS_AAD
from catalog.envelope.encrypted_statistics import COUNT_FLAGS, END_FLAGS, counts_in, directory, malformed
from catalog.envelope.file_ids import file_ids_of
from catalog.envelope.key_metadata_columns import Bytes, Form, KeyPosition, Rows, byte_strings, side_by_side
from catalog.envelope.peks import Pek
from policy.errors import DecryptionRefused

Values = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class ColumnOfFiles:
    """The statistics of one column in several files; None if unknown, as in `ColumnBounds`."""

    values: Values
    nulls: Values
    nans: Values
    lower: Values
    upper: Values

    @classmethod
    def unknown(cls, count: int) -> ColumnOfFiles:
        """Return unknown statistics for a number of files."""
        return cls(*(np.full(count, None, np.object_) for _ in range(5)))


def open_bounds_of(
    form: Form, position: KeyPosition, paths: pa.ChunkedArray, table_uuid: UUID, pek: Pek
) -> list[bytes]:
    """Decrypt the encrypted statistics at one position, in the order of the form's rows.

    Args:
        form: files of one form.
        position: one of `Form.bounds`.
        paths: the checked locations; the form's rows are positions in it.
        table_uuid: their table.
        pek: the table's PEK that the position's binding names.

    Raises:
        DecryptionRefused: one does not open; the error names the path.
    """
    located = paths.take(pa.array(form.rows)).combine_chunks()
    aads = side_by_side(
        len(form.rows),
        BOUNDS_AAD + form.metadata.header + table_uuid.bytes,
        file_ids_of(located),
        position.binding,
        form.digests(),
    )
    sealed_at = position.start + NONCE_LENGTH
    nonces, sealed = form.data[:, position.start : sealed_at], form.data[:, sealed_at : position.end]
    opened: list[bytes] = []
    try:
        pek.aead.open_all(
            zip(byte_strings(nonces), byte_strings(sealed), byte_strings(aads), strict=True), opened
        )
    except DecryptionRefused as failure:
        raise DecryptionRefused(
            failure.message, path=located[len(opened)].as_py(), rule=failure.rule, hint=failure.hint
        ) from failure
    return opened


def columns_of(plaintexts: Sequence[bytes], wanted: Collection[int]) -> dict[int, ColumnOfFiles]:
    """Parse statistics of one length for some columns.

    The catalog itself wrote them, and checked them when they were committed. So only the checks that parsing
    needs are made here.

    Raises:
        DecryptionRefused: one cannot be parsed.
    """
    found = {field_id: ColumnOfFiles.unknown(len(plaintexts)) for field_id in wanted}
    matrix = np.frombuffer(b"".join(plaintexts), np.uint8).reshape(len(plaintexts), -1)
    left = np.arange(len(plaintexts))
    while len(left):
        known = directory(plaintexts[left[0]])
        begins = matrix[left, : known.lengths_at]
        same = (begins == begins[0]).all(axis=1)
        rows, left = left[same], left[~same]
        lengths = matrix[rows, known.lengths_at : known.counts_at].astype(np.int64)
        edges = known.bounds_at + np.cumsum(np.pad(lengths, ((0, 0), (1, 0))), axis=1)
        if edges.max() > matrix.shape[1]:
            raise malformed()
        at = known.counts_at
        for position, (field_id, flags) in enumerate(known.columns):
            if field_id in found:
                _counts(found[field_id], rows, matrix, at, flags)
                _ends(found[field_id], rows, plaintexts, edges[:, 2 * position : 2 * position + 3], flags)
            at += 8 * counts_in(flags)
    return found


def _counts(column: ColumnOfFiles, rows: Rows, matrix: Bytes, at: int, flags: int) -> None:
    for flag, counts in zip(COUNT_FLAGS, (column.values, column.nulls, column.nans), strict=True):
        if flags & flag:
            counts[rows] = np.ascontiguousarray(matrix[rows, at : at + 8]).view(">u8").ravel().tolist()
            at += 8


def _ends(column: ColumnOfFiles, rows: Rows, plaintexts: Sequence[bytes], edges: Rows, flags: int) -> None:
    for side, (flag, bounds) in enumerate(zip(END_FLAGS, (column.lower, column.upper), strict=True)):
        if flags & flag:
            spans = zip(rows.tolist(), edges[:, side].tolist(), edges[:, side + 1].tolist(), strict=True)
            bounds[rows] = np.array([plaintexts[row][start:end] for row, start, end in spans], np.object_)
