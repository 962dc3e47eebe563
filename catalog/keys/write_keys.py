"""Data keys that a write brings: out from under the write's key, under the table's PEKs.

Rules:
- The file id comes from the path that was checked, never from the client.
- What a client says of its keys is checked like foreign key metadata; files whose keys are labelled alike
  share the check.
- One key that does not open fails the whole commit.

Source: docs/key-metadata.md, "Transport keys" and "Wrapped data keys".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from catalog.keys.aead import KEY_LENGTHS, OVERHEAD, Aead, refused
from catalog.keys.dek import DEK_AAD
from catalog.keys.file_identity import file_id_of
from catalog.keys.key_metadata import Binding, KeyEntry, KeyMetadata, header
from catalog.keys.peks import Pek
from catalog.keys.transport import KeyLabel, Purpose, TransportKey, require_purpose, transport_prefix
from policy.encryption import Algorithm, Footer
from policy.errors import DecryptionRefused


class WrittenKey(NamedTuple):
    """A data key as a commit brings it, under the write's key."""

    label: KeyLabel
    wrapped: bytes


class _Route(NamedTuple):
    """What becomes of the key at one place of a file's keys."""

    place: int
    label: bytes
    aead: Aead
    binding: bytes


class WriteRewrapper:
    """Takes back the data keys of one write.

    Args:
        transport: the write's key.
        table_uuid: the table that is written.
        algorithm: the algorithm of the files.
        footer: whether their footers are encrypted.
        peks: the table's current PEKs by master key id.

    Raises:
        DecryptionRefused: the transport key is not a write's, or a PEK is another table's.
    """

    def __init__(
        self,
        transport: TransportKey,
        table_uuid: UUID,
        algorithm: Algorithm,
        footer: Footer,
        peks: Mapping[str, Pek],
    ) -> None:
        require_purpose(transport, Purpose.WRITE)
        if any(pek.table_uuid != table_uuid or name != pek.ref.master_key_id for name, pek in peks.items()):
            raise refused()
        self._peks = dict(peks)
        self._header = header(algorithm, footer)
        self._aead = Aead(transport.key)
        self._transport_prefix = transport_prefix(transport, table_uuid)
        self._dek_prefix = DEK_AAD + self._header + table_uuid.bytes
        self._routes: dict[tuple[KeyLabel, ...], tuple[_Route, ...]] = {}

    def rewrap(self, path: str, keys: Sequence[WrittenKey]) -> KeyMetadata:
        """The key metadata of one file.

        Args:
            path: the checked location.
            keys: the footer key and the column keys, in any order.

        Raises:
            DecryptionRefused: a key does not open, its master key is not the table's, or the labels are not
                those of one file; names the path.
        """
        try:
            return self._rewrap_file(file_id_of(path), keys)
        except DecryptionRefused as failure:
            raise DecryptionRefused(
                failure.message, path=path, rule=failure.rule, hint=failure.hint
            ) from failure

    def _rewrap_file(self, file_id: bytes, keys: Sequence[WrittenKey]) -> KeyMetadata:
        """As `rewrap`, for the file id of a checked location; the errors name no path."""
        labels = tuple(key.label for key in keys)
        outer, inner = self._transport_prefix + file_id, self._dek_prefix + file_id
        entries = []
        for place, label, aead, binding in self._routes.get(labels) or self._route(labels):
            dek = self._aead.open(keys[place].wrapped, outer + label)
            if len(dek) not in KEY_LENGTHS:
                raise refused()
            entries.append(KeyEntry(binding, aead.seal(dek, inner + binding)))
        return KeyMetadata(self._header, tuple(entries))

    def _route(self, labels: tuple[KeyLabel, ...]) -> tuple[_Route, ...]:
        """The way of each key in the order of key metadata, once that is known to be well formed."""
        routes = []
        for place, label in sorted(enumerate(labels), key=lambda item: item[1].field_ids):
            pek = self._peks.get(label.key_name)
            if pek is None:
                raise DecryptionRefused(
                    "A key is under a master key that the table has not.",
                    rule="pek",
                    hint="Use the keys that the write session gave.",
                )
            binding = Binding(pek.ref, label.field_ids).to_bytes()
            routes.append(_Route(place, label.to_bytes(), pek.aead, binding))
        largest = bytes(KEY_LENGTHS[-1] + OVERHEAD)
        KeyMetadata(self._header, tuple(KeyEntry(route.binding, largest) for route in routes)).to_bytes()
        return self._routes.setdefault(labels, tuple(routes))
