"""Rewraps the data keys of a write: from the write's transport key to the table's PEKs.

Rules:
- The file id is taken from the checked path, never from the client.
- A client's labels of its keys are checked like key metadata of unknown origin; files with equal labels share
  the check.
- If one key does not open, the whole commit fails.
- Bounds and counts of encrypted columns are sealed beside the keys that cover them, as many as there is room
  for.

Source: docs/key-metadata.md, "Transport keys", "Wrapped data keys" and "Encrypted statistics".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from catalog.crypto.aead import KEY_LENGTHS, OVERHEAD, Aead, refused
from catalog.envelope.data_keys import BOUNDS_AAD, DEK_AAD, sealed_aad
from catalog.envelope.encrypted_statistics import ColumnBounds, encode, fitting
from catalog.envelope.file_digests import FILE_DIGEST_BYTES, FOOTER_DIGEST_BYTES, FileDigest, FooterDigest
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import Binding, KeyEntry, KeyMetadata, header
from catalog.envelope.peks import Pek
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, require_purpose, transport_prefix
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused

#: Bytes of header, number of keys, and both digests.
_LEAST: Final = 4 + FILE_DIGEST_BYTES + FOOTER_DIGEST_BYTES


class WrittenKey(NamedTuple):
    """A data key in a commit, under the write's transport key."""

    label: KeyLabel
    wrapped: bytes


class _Route(NamedTuple):
    """The target of the key at one position of a file's keys."""

    place: int
    label: bytes
    aead: Aead
    binding: bytes
    field_ids: tuple[int, ...]


class WriteRewrapper:
    """Rewraps the data keys of one write.

    Args:
        transport: the write's key.
        table_uuid: the table that is written.
        algorithm: the algorithm of the files.
        footer: whether their footers are encrypted.
        peks: the table's current PEKs by master key id.
        stock_readers: whether the files also have the key material for standard Parquet readers.

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
        *,
        stock_readers: bool = False,
    ) -> None:
        require_purpose(transport, Purpose.WRITE)
        if any(pek.table_uuid != table_uuid or name != pek.ref.master_key_id for name, pek in peks.items()):
            raise refused()
        self._peks = dict(peks)
        self._header = partial(header, algorithm, footer, stock_readers=stock_readers)
        self._aead = Aead(transport.key)
        self._transport_prefix = transport_prefix(transport, table_uuid)
        self._table = table_uuid
        self._routes: dict[tuple[KeyLabel, ...], tuple[_Route, ...]] = {}

    def rewrap(
        self,
        path: str,
        keys: Sequence[WrittenKey],
        *,
        columns: Mapping[int, ColumnBounds] = MappingProxyType({}),
        digest: FileDigest | None = None,
        footer_digest: FooterDigest | None = None,
    ) -> KeyMetadata:
        """Return the key metadata of one file.

        Args:
            path: the checked location.
            keys: the footer key and the column keys, in any order.
            columns: statistics of its columns, by field id; columns that no key covers are ignored.
            digest: of the file's bytes, if digests are stored.
            footer_digest: of its footer's bytes, if it is stored.

        Raises:
            DecryptionRefused: a key does not open, its master key is not the table's, or the labels do not
                fit one file; the error names the path.
        """
        try:
            file = FileIdentity.of(self._table, path)
            return self._rewrap_file(file, keys, columns, digest, footer_digest)
        except DecryptionRefused as failure:
            raise DecryptionRefused(
                failure.message, path=path, rule=failure.rule, hint=failure.hint
            ) from failure

    def _rewrap_file(
        self,
        file: FileIdentity,
        keys: Sequence[WrittenKey],
        columns: Mapping[int, ColumnBounds],
        digest: FileDigest | None,
        footer_digest: FooterDigest | None,
    ) -> KeyMetadata:
        """Rewrap the keys of a file at a checked location; errors name no path."""
        labels = tuple(key.label for key in keys)
        routes = self._routes.get(labels) or self._route(labels)
        before = _LEAST + sum(len(route.binding) + 1 + len(keys[route.place].wrapped) for route in routes)
        groups = fitting(_covered(routes, columns), before)
        head = self._header(
            digest=digest is not None, footer_digest=footer_digest is not None, bounds=bool(groups)
        )
        bare = KeyMetadata(head, (), digest, footer_digest)
        outer, entries = self._transport_prefix + file.file_id, []
        for route in routes:
            dek = self._aead.open(keys[route.place].wrapped, outer + route.label)
            if len(dek) not in KEY_LENGTHS:
                raise refused()
            sealed = route.aead.seal(dek, sealed_aad(DEK_AAD, bare, file, route.binding))
            entries.append(KeyEntry(route.binding, sealed))
        bounds = tuple(
            route.aead.seal(encode(group), sealed_aad(BOUNDS_AAD, bare, file, route.binding))
            for route, group in zip(_covering(routes), groups, strict=bool(groups))
        )
        return bare._replace(entries=tuple(entries), bounds=bounds)

    def _route(self, labels: tuple[KeyLabel, ...]) -> tuple[_Route, ...]:
        """Check the labels, and return the route of each key in the order of key metadata."""
        routes = []
        for place, label in sorted(enumerate(labels), key=lambda item: item[1].field_ids):
            pek = self._peks.get(label.key_name)
            if pek is None:
                raise DecryptionRefused(
                    "The write uses a master key that the table does not use.",
                    rule="pek",
                    hint="Use the keys that the write session gave.",
                )
            binding = Binding(pek.ref, label.field_ids).to_bytes()
            routes.append(_Route(place, label.to_bytes(), pek.aead, binding, label.field_ids))
        largest = bytes(KEY_LENGTHS[-1] + OVERHEAD)
        KeyMetadata(self._header(), tuple(KeyEntry(route.binding, largest) for route in routes)).to_bytes()
        return self._routes.setdefault(labels, tuple(routes))


def _covering(routes: tuple[_Route, ...]) -> tuple[_Route, ...]:
    """Return the keys that cover columns, as `KeyMetadata.covering`."""
    return routes if len(routes) == 1 else routes[1:]


def _covered(
    routes: tuple[_Route, ...], columns: Mapping[int, ColumnBounds]
) -> list[Mapping[int, ColumnBounds]]:
    """Return the statistics of the columns of each key that covers columns."""
    if len(routes) == 1:
        return [columns]
    return [{each: columns[each] for each in route.field_ids if each in columns} for route in routes[1:]]
