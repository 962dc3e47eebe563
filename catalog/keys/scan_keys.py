"""Data keys for an engine that scans: out from under the PEKs, under a key made for this scan.

Rules:
- One wrapper alone uses the scan's key, with a counter as nonce, so that no nonce comes twice. It stops after
  2**32 keys.
- The file id comes from the path that was checked and planned, never from key metadata.
- One key that does not open fails the whole scan.

Source: docs/key-metadata.md, "Transport keys".
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from catalog.keys.aead import Aead, refused
from catalog.keys.dek import DEK_AAD
from catalog.keys.file_identity import file_id_of
from catalog.keys.key_metadata import KeyEntry, KeyMetadata
from catalog.keys.peks import Pek
from catalog.keys.transport import Purpose, TransportKey, label_of, transport_prefix
from policy.errors import DecryptionRefused, KeyNotUsable
from policy.regimes import PekRef

MAX_WRAPS: Final = 2**32
_NONCE: Final = struct.Struct(">QI")


class ScanFile(NamedTuple):
    """A planned file and those of its keys that the reader may have.

    Attributes:
        path: the checked location.
        key_metadata: its key metadata.
        entries: the entries to release, all or some of the metadata's.
    """

    path: str
    key_metadata: KeyMetadata
    entries: tuple[KeyEntry, ...]


class _Route(NamedTuple):
    """What the entries of many files have in common."""

    aead: Aead
    dek_prefix: bytes
    label: bytes


class ScanWrapper:
    """Wraps the data keys of one scan; safe for many threads.

    It makes the scan's key itself and shares it with no other wrapper, since the counter that serves as
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
        self._routes: dict[tuple[bytes, bytes], _Route] = {}
        self._lock = threading.Lock()
        self._next = 0

    def rewrap_for_scan(self, files: Iterable[ScanFile]) -> list[tuple[bytes, ...]]:
        """The released data keys of each file under the scan's key, in the order of `ScanFile.entries`.

        Raises:
            DecryptionRefused: a key does not open, or its PEK was not given; names the path.
            KeyNotUsable: the scan has more keys than one transport key may wrap.
        """
        planned = list(files)
        counter = self._reserve(sum(len(file.entries) for file in planned))
        released = []
        for file in planned:
            try:
                released.append(self._rewrap(file, counter))
            except DecryptionRefused as failure:
                raise DecryptionRefused(
                    failure.message, path=file.path, rule=failure.rule, hint=failure.hint
                ) from failure
            counter += len(file.entries)
        return released

    def _rewrap(self, file: ScanFile, counter: int) -> tuple[bytes, ...]:
        file_id = file_id_of(file.path)
        head = file.key_metadata.header
        prefix = self._prefix + file_id
        wrapped = []
        for binding, sealed in file.entries:
            aead, dek_prefix, label = self._routes.get((head, binding)) or self._route(head, binding)
            nonce = _NONCE.pack(0, counter)
            moved = aead.reseal(sealed, dek_prefix + file_id + binding, self._aead, nonce, prefix + label)
            wrapped.append(nonce + moved)
            counter += 1
        return tuple(wrapped)

    def _route(self, head: bytes, binding: bytes) -> _Route:
        entry = KeyEntry(binding, b"")
        pek = self._peks.get(entry.bound.pek)
        if pek is None:
            raise DecryptionRefused(
                "The file is under a PEK that this scan has not.",
                rule="pek",
                hint="Ask for the right to use the key.",
            )
        route = _Route(pek.aead, DEK_AAD + head + self._table_uuid.bytes, label_of(entry).to_bytes())
        return self._routes.setdefault((head, binding), route)

    def _reserve(self, count: int) -> int:
        with self._lock:
            first = self._next
            if first + count > MAX_WRAPS:
                raise KeyNotUsable(
                    "One scan has more keys than one transport key may wrap.",
                    rule="transport-limit",
                    hint="Read the table in parts, by a filter on its partitions.",
                )
            self._next += count
        return first
