"""Rewraps data keys for a scan: from the table's PEKs to the scan's transport key.

Rules:
- Only one wrapper uses the scan's key, with a counter as nonce, so that no nonce repeats. It stops after
  2**32 keys.
- The file id is taken from the checked and planned path, never from key metadata.
- If one key does not open, the whole scan fails.
- AADs of files of one form differ only in the file ids, so they are assembled for many files at once. Each
  data key is opened and sealed by itself.

Source: docs/key-metadata.md, "Transport keys".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from catalog.crypto.aead import NONCE_LENGTH, OVERHEAD, Aead, Resealing, refused
from catalog.envelope.data_keys import DEK_AAD
from catalog.envelope.file_ids import file_ids_of
from catalog.envelope.key_metadata import KeyEntry
from catalog.envelope.key_metadata_columns import Bytes, Form, KeyPosition, Rows, byte_strings, side_by_side
from catalog.envelope.peks import Pek
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, label_of, transport_prefix
from policy.encryption.epochs import PekRef
from policy.errors import DecryptionRefused, KeyNotUsable

MAX_WRAPS: Final = 2**32
#: Keys per batch; a batch fits into the processor's cache.
_BATCH: Final = 8192


class FormKeys(NamedTuple):
    """The files of one form, and the keys that the reader gets.

    Attributes:
        form: the files.
        entries: indexes of the entries of their key metadata to release, ascending.
    """

    form: Form
    entries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WrappedKeys:
    """Released data keys under a scan's transport key, file by file.

    Attributes:
        offsets: start of each file's keys in `label` and `wrapped`; one more than the number of files.
        labels: the distinct labels.
        label: for each key, its index in `labels`.
        wrapped: for each key, nonce, ciphertext and tag.
    """

    offsets: Rows
    labels: tuple[KeyLabel, ...]
    label: Rows
    wrapped: pa.Array


class _Part(NamedTuple):
    """One key of all files of a form."""

    positions: Rows
    label: KeyLabel
    wrapped: Bytes


class ScanWrapper:
    """Wraps the data keys of one scan; thread-safe.

    It creates the scan's key itself and shares it with no other wrapper, because the counter that is the
    nonce must never start twice for one key.

    Args:
        table_uuid: the table that is scanned.
        peks: the table's PEKs.
    """

    def __init__(self, table_uuid: UUID, peks: Mapping[PekRef, Pek]) -> None:
        if any(pek.table_uuid != table_uuid or ref != pek.ref for ref, pek in peks.items()):
            raise refused()
        self.transport = TransportKey.new(Purpose.SCAN)
        self._table_uuid = table_uuid
        self._peks = dict(peks)
        self._aead = Aead(self.transport.key)
        self._prefix = transport_prefix(self.transport, table_uuid)
        self._lock = threading.Lock()
        self._next = 0

    def rewrap_for_scan(self, paths: pa.ChunkedArray, released: Sequence[FormKeys]) -> WrappedKeys:
        """Rewrap the released data keys of the planned files under the scan's transport key.

        Args:
            paths: the checked locations of all planned files.
            released: the encrypted files, by form, with the keys to release.

        Raises:
            DecryptionRefused: a key does not open, or its PEK was not given; the error names the path.
            KeyNotUsable: the scan has more keys than one transport key can wrap.
        """
        counts = np.zeros(len(paths), np.int64)
        for form, entries in released:
            counts[form.rows] = len(entries)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        first = self._reserve(int(offsets[-1]))
        parts = []
        for form, entries in released:
            located = paths.take(pa.array(form.rows))
            file_ids = file_ids_of(located.combine_chunks())
            for nth, entry in enumerate(entries):
                positions = offsets[form.rows] + nth
                label, wrapped = self._rewrap(
                    form, form.positions()[entry], file_ids, first + positions, located
                )
                parts.append(_Part(positions, label, wrapped))
        return _in_order(offsets, parts)

    def _rewrap(
        self, form: Form, position: KeyPosition, file_ids: Bytes, counters: Rows, paths: pa.ChunkedArray
    ) -> tuple[KeyLabel, Bytes]:
        """Rewrap one key of all files of a form under the scan's transport key."""
        entry = KeyEntry(position.binding, b"")
        pek = self._peks.get(entry.bound.pek)
        if pek is None:
            raise DecryptionRefused(
                "The file is encrypted under a PEK that is not among the keys of this scan.",
                path=paths[0].as_py(),
                rule="pek",
                hint="Ask an administrator for the release permission on the master key of these columns.",
            )
        label = label_of(entry)
        length = position.end - position.start - OVERHEAD
        done: list[bytes] = []
        nonces, digests = _nonces(counters), form.digests()
        common = DEK_AAD + form.metadata.header + self._table_uuid.bytes, self._prefix, label.to_bytes()
        try:
            for start in range(0, len(file_ids), _BATCH):
                now = slice(start, start + _BATCH)
                items = _resealings(
                    form.data[now], position, file_ids[now], digests[now], nonces[now], common
                )
                pek.aead.reseal(items, length, self._aead, done)
        except DecryptionRefused as failure:
            raise DecryptionRefused(
                failure.message, path=paths[len(done)].as_py(), rule=failure.rule, hint=failure.hint
            ) from failure
        moved = np.frombuffer(b"".join(done), np.uint8).reshape(len(nonces), -1)
        return label, np.hstack((nonces, moved))

    def _reserve(self, count: int) -> int:
        with self._lock:
            first = self._next
            if first + count > MAX_WRAPS:
                raise KeyNotUsable(
                    "One scan has more keys than one transport key can wrap.",
                    rule="transport-limit",
                    hint="Read the table in parts, with a filter on its partitions.",
                )
            self._next += count
        return first


def _resealings(
    data: Bytes,
    position: KeyPosition,
    file_ids: Bytes,
    digests: Bytes,
    nonces: Bytes,
    common: tuple[bytes, bytes, bytes],
) -> Iterator[Resealing]:
    """Return what to open and how to seal it again.

    Args:
        data: key metadata of the files.
        position: of the wrapped key.
        file_ids: of the files.
        digests: the digest sections of the files and of their footers, or nothing.
        nonces: for sealing.
        common: the common parts of the AADs: of the existing seal before the file id; of the new seal before
            and after the file id.
    """
    before, new_before, label = common
    count, key_at = len(data), position.start + NONCE_LENGTH
    return zip(
        byte_strings(data[:, position.start : key_at]),
        byte_strings(data[:, key_at : position.end]),
        byte_strings(side_by_side(count, before, file_ids, position.binding, digests)),
        byte_strings(nonces),
        byte_strings(side_by_side(count, new_before, file_ids, label)),
        strict=True,
    )


def _nonces(counters: Rows) -> Bytes:
    """Return nonces: eight zero bytes and the counter, u32 big endian."""
    nonces = np.zeros((len(counters), NONCE_LENGTH), np.uint8)
    nonces[:, 8:] = counters.astype(">u4").view(np.uint8).reshape(-1, 4)
    return nonces


def _in_order(offsets: Rows, parts: Sequence[_Part]) -> WrappedKeys:
    """Return the keys of all forms, in the order of the files and of the keys in each."""
    labels = tuple(dict.fromkeys(part.label for part in parts))
    none = np.empty(0, np.int64)
    order = np.argsort(np.concatenate([none, *(part.positions for part in parts)]))
    label = np.concatenate(
        [none, *(np.full(len(part.positions), labels.index(part.label)) for part in parts)]
    )
    wrapped = pa.concat_arrays([pa.array([], pa.binary()), *(_binary(part.wrapped) for part in parts)])
    return WrappedKeys(offsets, labels, label[order], wrapped.take(pa.array(order)))


def _binary(rows: Bytes) -> pa.Array:
    """Convert rows of bytes to an Arrow binary array."""
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]
    ).cast(pa.binary())
