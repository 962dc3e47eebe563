"""Parses the key metadata of many files at once.

Rules:
- The first of each form is parsed strictly. Key metadata with the same length, and the same bytes outside of
  the free ranges, has the same form, so it parses to the same values.
- A free range is one that the parser does not interpret, such as a wrapped key. Everything else is compared.
  The length in a footer's digest is checked here for all files at once.
- A result for one file of a form and an epoch applies to all of them; bytes in the free ranges are per file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalog.envelope.file_digests import FILE_DIGEST_BYTES, FOOTER_DIGEST_BYTES, LEAST_FOOTER
from catalog.envelope.key_metadata import KeyEntry, KeyMetadata
from policy.encryption.epochs import FileKeys, PekRef
from policy.errors import DecryptionRefused

Rows = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_POSITION_DELETES: Final = 1


class KeyPosition(NamedTuple):
    """The position of a wrapped key, or of the encrypted statistics beside it, in key metadata of one form.

    Attributes:
        binding: the bytes of the key's `Binding`.
        start: its first byte.
        end: the position after its last byte.
    """

    binding: bytes
    start: int
    end: int

    @property
    def pek(self) -> PekRef:
        """Return the PEK of the binding."""
        return KeyEntry(self.binding, b"").bound.pek

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Return the columns of the binding; none for a footer key, or the key of a whole file."""
        return KeyEntry(self.binding, b"").bound.field_ids


@dataclass(frozen=True, slots=True)
class Form:
    """The files whose key metadata has one form.

    Attributes:
        metadata: the key metadata of the first of them.
        rows: their positions in the column they were read from, ascending.
        data: their key metadata, one row of bytes each.
    """

    metadata: KeyMetadata
    rows: Rows
    data: Bytes

    def positions(self) -> tuple[KeyPosition, ...]:
        """Return the positions of the wrapped keys, in the order of the entries."""
        metadata = self.metadata
        return _positions(metadata.entries, metadata.free_ranges[: len(metadata.entries)])

    def bounds(self) -> tuple[KeyPosition, ...]:
        """Return the positions of the encrypted statistics, in the order of their entries."""
        count = len(self.metadata.bounds)
        if not count:
            return ()
        return _positions(self.metadata.covering, self.metadata.free_ranges[-count:])

    def digests(self) -> Bytes:
        """Return the digest sections, one row each: of the file, of its footer; empty if there are none."""
        start = self.positions()[-1].end
        return self.data[:, start : start + len(self.metadata.digests)]

    def file_digests(self) -> Bytes | None:
        """Return the files' digest sections, one row each; None if there are none."""
        return None if self.metadata.digest is None else self.digests()[:, :FILE_DIGEST_BYTES]

    def footer_digests(self) -> Bytes | None:
        """Return the footers' digest sections, one row each; None if there are none."""
        return None if self.metadata.footer_digest is None else self.digests()[:, -FOOTER_DIGEST_BYTES:]


def read_forms(column: pa.ChunkedArray, paths: pa.ChunkedArray) -> list[Form]:
    """Parse the key metadata of several files, by form.

    Args:
        column: key metadata of the files; null for files without, which have no form.
        paths: locations of the files.

    Raises:
        DecryptionRefused: one is malformed, see `KeyMetadata.parse`; the error names the path.
    """
    joined = column.cast(pa.large_binary()).combine_chunks()
    present = np.flatnonzero(np.asarray(joined.is_valid()))
    lengths = pc.binary_length(joined).fill_null(0).to_numpy(zero_copy_only=False)
    forms = []
    for length in np.unique(lengths[present]):
        left = present[lengths[present] == length]
        data = _bytes_of(joined, left, int(length))
        while len(left):
            form = Form(_parsed(data[0].tobytes(), paths, int(left[0])), left, data)
            same = _alike(form)
            if same.all():
                # Copies nothing if there is one form, which is nearly always so: encrypted statistics make it
                # large.
                forms.append(form)
                break
            forms.append(Form(form.metadata, left[same], data[same]))
            left, data = left[~same], data[~same]
    return forms


def stated(files: pa.Table, forms: Iterable[Form]) -> Iterator[tuple[Rows, FileKeys | None, bool]]:
    """Group the files by what they state, and by whether they are position deletes; plaintext files first.

    An equality delete has columns of the table, so it is encrypted like a data file.

    Args:
        files: `content` and `key_metadata` of the files.
        forms: those that are encrypted, by form.
    """
    of_deletes = np.asarray(files["content"].combine_chunks()) == _POSITION_DELETES
    stated: list[tuple[Rows, FileKeys | None]] = [
        (np.flatnonzero(files["key_metadata"].is_null().to_numpy()), None),
        *((form.rows, form.metadata.file_keys()) for form in forms),
    ]
    for rows, keys in stated:
        for deletes in (False, True):
            mine = rows[of_deletes[rows] == deletes]
            if len(mine):
                yield mine, keys, deletes


def side_by_side(count: int, *parts: bytes | Bytes) -> Bytes:
    """Return rows of bytes, composed of common and individual parts."""
    columns = [
        np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part)))
        if isinstance(part, bytes)
        else part
        for part in parts
    ]
    return np.hstack(columns)


def byte_strings(rows: Bytes) -> list[bytes]:
    """Convert each row to a byte string."""
    whole = np.ascontiguousarray(rows)
    return cast(list[bytes], whole.view(np.dtype((np.void, rows.shape[1]))).ravel().tolist())


def _bytes_of(column: pa.LargeBinaryArray, rows: Rows, length: int) -> Bytes:
    """Convert values of one length to rows of bytes."""
    if length == 0:
        return np.empty((len(rows), 0), np.uint8)
    _, offsets, values = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset :][rows]
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(values, np.uint8), length)
    return windows[starts]


def _parsed(data: bytes, paths: pa.ChunkedArray, row: int) -> KeyMetadata:
    try:
        return KeyMetadata.parse(data)
    except DecryptionRefused as refusal:
        raise DecryptionRefused(
            refusal.message, path=paths[row].as_py(), rule=refusal.rule, hint=refusal.hint
        ) from refusal


def _alike(form: Form) -> npt.NDArray[np.bool_]:
    """Return which rows equal the first one outside of the free ranges, and also parse there."""
    fixed = np.ones(form.data.shape[1], np.bool_)
    for start, end in form.metadata.free_ranges:
        fixed[start:end] = False
    same: npt.NDArray[np.bool_] = (form.data[:, fixed] == form.data[0, fixed]).all(axis=1)
    footers = form.footer_digests()
    if footers is not None:
        lengths = np.ascontiguousarray(footers[:, :4]).view(">u4")[:, 0]
        same &= lengths >= LEAST_FOOTER
    return same


def _positions(entries: Sequence[KeyEntry], ranges: Sequence[tuple[int, int]]) -> tuple[KeyPosition, ...]:
    return tuple(KeyPosition(entry.binding, *each) for entry, each in zip(entries, ranges, strict=True))
