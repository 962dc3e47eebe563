"""Appends rows: begins a write, writes and encrypts the files, and commits them together.

- Each file has a random id as its name, which shows nothing of its rows, and a data key of its own, made
  here; it leaves this process wrapped under the write's key alone. Table and file id are the AAD prefix,
  which the file stores only if the table allows standard readers.
- What cannot be encrypted as the table asks is refused before a file is made.
- A write that fails is given up; what is left of it is cleaned up by the catalog.

Source: docs/rest-api.md, "Engines"; docs/key-metadata.md.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.io import OutputStream
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from catalog.base.identifiers import TableName
from catalog.base.progress import Progress
from catalog.client import listing
from catalog.client.begun import BegunWrite
from catalog.client.encrypting import KeyedWriter
from catalog.client.footers import FileKeys
from catalog.client.http import CatalogClient, table_path
from catalog.client.partitions import Part, Partitioner
from catalog.client.row_groups import RowGroups, TableWriter, pieces
from catalog.client.rows import Fitting, batches_of
from catalog.client.settings import ParquetSettings
from catalog.client.statistics import statistics_of
from catalog.client.written import Written
from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_digests import FooterDigest
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.transport import KeyLabel, TransportKey, wrap_for_write
from catalog.storage.base import Storage
from policy.encryption.specification import Footer
from policy.errors import CommitStateUnknown, LakewardenError

_MOST_OPEN: Final = 32


def append(
    client: CatalogClient,
    storage: Storage,
    table: TableName,
    given: Any,
    more: Mapping[str, Any],
    *,
    progress: bool,
) -> int | None:
    """Append rows to a table.

    Args:
        given: what `batches_of` takes.
        more: fields of the commit: `branch` and `summary`.
        progress: whether a long append shows a bar.

    Returns:
        The snapshot that holds them; None if there were none.

    Raises:
        NotAuthorized: no UPDATE on the table, or no `release` on its keys.
        RequestInvalid: rows that do not fit the table.
        NotSupportedYet: the table is to be written in a way that is not done here.
        CommitStateUnknown: the connection broke at the commit: look before you try again.
    """
    batches = (each for each in batches_of(given) if each.num_rows)
    first = next(batches, None)
    if first is None:
        return None
    metadata, loaded = listing.loaded(client, table)
    fitting = Fitting(metadata.schema().as_struct().fields, str(table))
    settings = ParquetSettings.of(loaded["write-settings"], str(table))
    rows = fitting.fit(first)
    begun = client.post(table_path(table, "writes"))
    one = ("engine", "v1", "writes", begun["write-id"])
    try:
        write = BegunWrite.of(begun, str(table))
        files = _Files(write, metadata, settings, storage, fitting.schema)
        with Progress(f"Writing {table}", _rows_of(given), shown=progress) as bar:
            added = files.write(_counted([rows], bar), _counted((fitting.fit(each) for each in batches), bar))
        schema_id = metadata.current_schema_id
        commit = {"operation": "append", "schema-id": schema_id, "added": added, **more}
        committed = client.post((*one, "commit"), commit)
    except CommitStateUnknown:
        raise
    except BaseException:
        with suppress(LakewardenError):
            client.delete(one)
        raise
    return int(committed["metadata"]["refs"][more.get("branch", "main")]["snapshot-id"])


def _rows_of(given: Any) -> int | None:
    """How many rows are given, where that is known; DataFrames have a length."""
    if isinstance(given, pa.Table | pa.RecordBatch):
        return int(given.num_rows)
    return len(given) if hasattr(given, "__len__") else None


def _counted(batches: Iterable[pa.RecordBatch], bar: Progress) -> Iterator[pa.RecordBatch]:
    for each in batches:
        yield each
        bar.advance(each.num_rows)


class _Files:
    """The files of one write; of those that are open the ones used last are kept."""

    def __init__(
        self,
        begun: BegunWrite,
        metadata: TableMetadata,
        settings: ParquetSettings,
        storage: Storage,
        schema: pa.Schema,
    ) -> None:
        self._uuid = begun.table_uuid
        self._directory = begun.directory
        self._encryption = begun.encryption
        self._partitioner = Partitioner(metadata.spec(), metadata.schema())
        self._spec_id = metadata.default_spec_id
        self._schema = metadata.schema()
        self._settings = settings
        self._storage = storage
        self._arrow = schema
        self._open: OrderedDict[tuple[str, ...], _File] = OrderedDict()
        self._added: list[dict[str, Any]] = []

    def write(self, *batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
        """Write all rows; the files as the commit takes them."""
        try:
            for each in batches:
                for batch in each:
                    for part in self._partitioner.parts(batch):
                        self._put(part)
            while self._open:
                self._finish(next(iter(self._open)))
        except BaseException:
            for file in self._open.values():
                file.abandon()
            raise
        return self._added

    def _put(self, part: Part) -> None:
        for piece in pieces(part.rows, self._settings):
            if part.key not in self._open:
                if len(self._open) == _MOST_OPEN:
                    self._finish(next(iter(self._open)))
                self._open[part.key] = self._new(part.values)
            self._open.move_to_end(part.key)
            self._open[part.key].write(piece)
            if self._open[part.key].size >= self._settings.target_file_size:
                self._finish(part.key)

    def _new(self, partition: dict[str, Any]) -> _File:
        location = self._directory.child(new_file_name("", "parquet"))
        digest = self._encryption is not None and self._encryption.digest
        stream = Written(self._storage.open_output(location), digest=digest)
        if self._encryption is None:
            writer = self._plain(stream)
            return _File(location.canonical, partition, stream, writer, self._groups(writer), [])
        identity = FileIdentity.of(self._uuid, location.canonical)
        fresh = {
            label: new_dek(self._encryption.data_key_length)
            for label in (self._encryption.label, *self._encryption.columns)
        }
        wrapped = [_wrapped(self._encryption.transport, dek, identity, label) for label, dek in fresh.items()]
        stock = self._encryption.stock
        material = {} if stock is None else stock.material(fresh)
        writer = self._encrypting(stream, self._encryption.keys(fresh, identity), material)
        return _File(location.canonical, partition, stream, writer, self._groups(writer), wrapped)

    def _groups(self, writer: TableWriter) -> RowGroups:
        return RowGroups(writer, self._arrow, self._settings)

    def _plain(self, stream: OutputStream, properties: Any = None) -> Any:
        options = self._settings.options
        return pq.ParquetWriter(
            stream, self._arrow, store_schema=False, encryption_properties=properties, **options
        )

    def _encrypting(self, stream: OutputStream, keys: FileKeys, material: Mapping[int | None, bytes]) -> Any:
        # PyArrow leaves sizes and counts of encrypted columns in a footer in plaintext (SizeStatistics).
        shown = keys.footer_form is Footer.PLAINTEXT
        if keys.columns is not None or material or shown:
            return KeyedWriter(stream, self._arrow, keys, self._settings.options, material)
        properties = pe.create_encryption_properties(
            footer_key=keys.footer.reveal(),
            aad_prefix=keys.aad_prefix,
            store_aad_prefix=False,
            encryption_algorithm=keys.algorithm.value,
        )
        return self._plain(stream, properties)

    def _finish(self, key: tuple[str, ...]) -> None:
        file = self._open.pop(key)
        try:
            entry = file.close(self._schema)
        except BaseException:
            file.abandon()
            raise
        self._added.append(entry | {"spec-id": self._spec_id})


def _wrapped(
    transport: TransportKey, dek: SecretBytes, file: FileIdentity, label: KeyLabel
) -> dict[str, Any]:
    wrapped = wrap_for_write(transport, dek, file, label)
    return {
        "key-name": label.key_name,
        "field-ids": list(label.field_ids),
        "wrapped": base64.b64encode(wrapped).decode("ascii"),
    }


def _ending(footer: FooterDigest) -> dict[str, Any]:
    """What a commit says of the footer of a file in which columns have keys of their own."""
    sha256 = base64.b64encode(footer.sha256).decode("ascii")
    return {"footer-bytes": footer.length, "footer-sha256": sha256}


class _File:
    """One file while it is written."""

    def __init__(
        self,
        path: str,
        partition: dict[str, Any],
        stream: Written,
        writer: Any,
        groups: RowGroups,
        keys: list[dict[str, Any]],
    ) -> None:
        self._keys = keys
        self._path = path
        self._partition = partition
        self._stream = stream
        self._writer = writer
        self._groups = groups

    @property
    def size(self) -> int:
        """Bytes that have been written so far, with those that wait for it."""
        return self._stream.tell() + self._groups.waiting_bytes

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._groups.write(rows)

    def close(self, schema: Schema) -> dict[str, Any]:
        """End the file; as the commit takes it."""
        self._groups.flush()
        footer: FooterDigest | None = self._writer.close()
        keyed = isinstance(self._writer, KeyedWriter)
        metadata = self._writer.metadata if keyed else self._writer.writer.metadata
        offsets = {"split-offsets": self._writer.split_offsets} if keyed else {}
        size = self._stream.tell()
        self._stream.close()
        digest = {} if self._stream.sha256 is None else {"sha256": self._stream.sha256}
        return {
            "path": self._path,
            "file-format": "parquet",
            "record-count": metadata.num_rows,
            "file-size-in-bytes": size,
            "partition": self._partition,
            "keys": self._keys,
            **statistics_of(metadata, schema),
            **offsets,
            **digest,
            **(_ending(footer) if footer is not None and len(self._keys) > 1 else {}),
        }

    def abandon(self) -> None:
        """Leave no file; what cannot be removed is cleaned up."""
        with suppress(LakewardenError, ValueError, OSError):
            # PyArrow's own ends its file when it is dropped, if not before.
            if isinstance(self._writer, pq.ParquetWriter):
                self._writer.close()
        with suppress(LakewardenError, ValueError, OSError):
            self._stream.abandon()
