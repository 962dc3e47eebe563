"""Encrypts Parquet files that PyArrow cannot.

It takes no prefix for columns with keys of their own, and nothing of what standard readers have to be told.

PyArrow writes each row group into memory, in plaintext; its pages are then encrypted one by one, each with
its place in the AAD, and written out. Nothing in plaintext of an encrypted column leaves this process.

- A page is encrypted with its column's key, and so is what the footer says of the column.
- Under AES_GCM_V1 all modules are under GCM; under AES_GCM_CTR_V1 the bodies of pages are under CTR.
- Columns without a key are copied as they are. Where no column has a key, all are under the footer's.

Source: Apache Parquet, "Parquet Modular Encryption", sections 4 (algorithms, AAD) and 5 (file format).
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from pyiceberg.io import OutputStream

from catalog.client import footers, thrift
from catalog.client.footers import FileKeys, Leaf
from catalog.client.thrift import Items, Struct, Value
from catalog.crypto.aead import NONCE_LENGTH, Aead
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_digests import FooterDigest
from policy.encryption.specification import Algorithm, Footer
from policy.errors import NotSupportedYet

_MAGIC: Final = {Footer.ENCRYPTED: b"PARE", Footer.PLAINTEXT: b"PAR1"}
_UNIQUE_LENGTH: Final = 8
_LARGEST_NUMBER: Final = 2**15 - 1
_DICTIONARY_PAGE: Final = 2
_MODULES: Final = {"page": 2, "dictionary": 3, "page header": 4, "dictionary header": 5}
#: Of what a footer in plaintext says of an encrypted column: statistics, encodings, bloom filter, sizes.
_TELLING: Final = (12, 13, 14, 15, 16, 17)


class KeyedWriter:
    """Writes one file; the interface is that of PyArrow's writer, as far as it is used here.

    Args:
        stream: where the file goes.
        schema: its columns, field ids in the metadata.
        keys: its keys; those of columns by field id.
        options: of PyArrow's writer.
        material: what the file says of its keys to standard readers, by field id, None for the footer's.
    """

    def __init__(
        self,
        stream: OutputStream,
        schema: pa.Schema,
        keys: FileKeys,
        options: Mapping[str, Any],
        material: Mapping[int | None, bytes] = MappingProxyType({}),
    ) -> None:
        self._stream = stream
        self._schema = schema
        self._options = options
        self._file = _File(keys, material)
        self._written = 0
        self.metadata: pq.FileMetaData | None = None
        self.split_offsets: list[int] = []
        self._put(_MAGIC[keys.footer_form])

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        """Add rows, in row groups of so many."""
        for start in range(0, table.num_rows, row_group_size):
            self._group(table.slice(start, row_group_size))

    def close(self) -> FooterDigest:
        """End the file; the digest of its footer."""
        if self.metadata is None:
            self._group(self._schema.empty_table())
        footer = self._file.footer()
        self._put(footer)
        return FooterDigest(len(footer), hashlib.sha256(footer).digest())

    def _group(self, rows: pa.Table) -> None:
        plain = pa.BufferOutputStream()
        with pq.ParquetWriter(plain, self._schema, store_schema=False, **self._options) as writer:
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
            part = writer
        metadata = part.writer.metadata
        self.split_offsets.append(self._written)
        for piece in self._file.row_group(plain.getvalue().to_pybytes(), self._written):
            self._put(piece)
        if self.metadata is None:
            self.metadata = metadata
        else:
            self.metadata.append_row_groups(metadata)

    def _put(self, data: bytes) -> None:
        self._stream.write(data)
        self._written += len(data)


class _File:
    """The encryption of one file, and the footer that grows with its row groups."""

    def __init__(self, keys: FileKeys, material: Mapping[int | None, bytes]) -> None:
        self._keys = keys
        self._material = material
        self._unique = secrets.token_bytes(_UNIQUE_LENGTH)
        self._aad = keys.aad_prefix + self._unique
        self._whole = _Column(Aead(keys.footer), keys.footer, keys.algorithm, own=False)
        self._columns = {
            field_id: _Column(Aead(key), key, keys.algorithm, material.get(field_id))
            for field_id, key in (keys.columns or {}).items()
        }
        self._metadata: Struct | None = None
        self._groups: list[Struct] = []

    def row_group(self, plain: bytes, start: int) -> Iterator[bytes]:
        """The row group of a file in plaintext, encrypted, piece by piece.

        Args:
            plain: a file with one row group.
            start: where the row group begins in the new file.
        """
        (length,) = struct.unpack_from("<I", plain, len(plain) - footers.TRAILER)
        metadata, _ = thrift.read(plain, len(plain) - footers.TRAILER - length)
        self._metadata = self._metadata or metadata
        for group in metadata.structs(footers.ROW_GROUPS):
            place = _Place(self._aad, len(self._groups), start)
            leaves = footers.leaves_of(metadata)
            for number, (leaf, chunk) in enumerate(zip(leaves, group.structs(footers.COLUMNS), strict=True)):
                key = self._column(leaf)
                form = self._keys.footer_form
                chunks = _Chunk(plain, chunk, place.of_column(number))
                yield from chunks.copied() if key is None else chunks.encrypted(key, leaf.path, form)
                place.at = chunks.end
            _resized(group, start, place.at, len(self._groups))
            self._groups.append(group)

    def _column(self, leaf: Leaf) -> _Column | None:
        """What a column is encrypted with; None if it is in plaintext."""
        if self._keys.columns is None:
            return self._whole
        return None if leaf.field_id is None else self._columns.get(leaf.field_id)

    def footer(self) -> bytes:
        """The footer, with the end of the file."""
        assert self._metadata is not None
        metadata = self._metadata
        rows = sum(each.get(3, thrift.I64) for each in self._groups)
        metadata.fields[3] = Value(thrift.I64, rows)
        metadata.fields[footers.ROW_GROUPS] = Value(thrift.LIST, Items(thrift.STRUCT, self._groups))
        return footers.sealed(metadata, self._unique, self._keys, self._material.get(None))


@dataclass(slots=True)
class _Place:
    """Where in the new file something goes, and the AAD that says so."""

    aad: bytes
    row_group: int
    at: int
    column: int = 0

    def of_column(self, column: int) -> _Place:
        return _Place(self.aad, self.row_group, self.at, column)

    def module(self, kind: int, page: int | None = None) -> bytes:
        """The AAD of a module of the column.

        Raises:
            NotSupportedYet: a number is larger than an AAD can hold.
        """
        numbers = (self.row_group, self.column) if page is None else (self.row_group, self.column, page)
        if max(numbers) > _LARGEST_NUMBER:
            raise NotSupportedYet(
                f"The file needs more than {_LARGEST_NUMBER} row groups, columns or pages.",
                rule="too-many-modules",
                hint="Increase write.parquet.row-group-size-bytes and write.parquet.page-size-bytes.",
            )
        return self.aad + bytes([kind]) + struct.pack(f"<{len(numbers)}h", *numbers)


@dataclass(frozen=True, slots=True)
class _Column:
    """The key of a column, as GCM and, where the algorithm says so, as CTR.

    Attributes:
        gcm: the cipher of what is under GCM.
        key: the key.
        algorithm: Parquet's.
        said: the key material that the file carries for standard readers, or None.
        own: whether it is not the footer's.
    """

    gcm: Aead
    key: SecretBytes = field(repr=False)
    algorithm: Algorithm
    said: bytes | None = None
    own: bool = True

    def named(self, path: tuple[bytes, ...]) -> Struct:
        """The footer's word on which key the column is under.

        Args:
            path: the column's names from the top.
        """
        if not self.own:
            return Struct({footers.UNDER_FOOTER_KEY: Value(thrift.STRUCT, Struct({}))})
        own = Struct({1: Value(thrift.LIST, Items(thrift.BINARY, list(path)))})
        if self.said is not None:
            own.fields[footers.KEY_METADATA] = Value(thrift.BINARY, self.said)
        return Struct({footers.UNDER_COLUMN_KEY: Value(thrift.STRUCT, own)})

    def body(self, page: bytes, aad: bytes) -> bytes:
        """The body of a page."""
        if self.algorithm is Algorithm.AES_GCM_V1:
            return footers.module(self.gcm, page, aad)
        nonce = secrets.token_bytes(NONCE_LENGTH)
        # The counter begins at 1 (section 4.1, "AES CTR").
        encryptor = Cipher(algorithms.AES(self.key.reveal()), modes.CTR(nonce + b"\0\0\0\1")).encryptor()
        sealed = nonce + encryptor.update(page) + encryptor.finalize()
        return struct.pack("<I", len(sealed)) + sealed


class _Chunk:
    """One column chunk on its way from a file in plaintext."""

    _OFFSETS: Final = (9, 11)
    _COMPRESSED, _UNCOMPRESSED = 7, 6

    def __init__(self, plain: bytes, chunk: Struct, place: _Place) -> None:
        self._plain = plain
        self._chunk = chunk
        self._metadata: Struct = chunk.get(footers.METADATA, thrift.STRUCT)
        offsets = [self._metadata.get(each, thrift.I64) for each in self._OFFSETS]
        self._start = min(each for each in offsets if each)
        self._length = self._metadata.get(self._COMPRESSED, thrift.I64)
        self._place = place
        self.end = place.at

    def copied(self) -> Iterator[bytes]:
        """The chunk as it is, at its new place."""
        self._move({each: self._metadata.get(each, thrift.I64) - self._start for each in self._present()})
        self.end += self._length
        yield self._plain[self._start : self._start + self._length]

    def encrypted(self, column: _Column, path: tuple[bytes, ...], form: Footer) -> Iterator[bytes]:
        """The chunk under a key; what the footer says of it then is, too."""
        began: dict[int, int] = {}
        page = 0
        for header, body in self._pages():
            dictionary = header.get(1, thrift.I32) == _DICTIONARY_PAGE
            number = None if dictionary else page
            page += not dictionary
            kinds = ("dictionary", "dictionary header") if dictionary else ("page", "page header")
            aads = [self._place.module(_MODULES[each], number) for each in kinds]
            sealed = column.body(body, aads[0])
            header.fields[3] = Value(thrift.I32, len(sealed))
            header.fields.pop(4, None)  # the checksum of what is no more
            began.setdefault(11 if dictionary else 9, self.end - self._place.at)
            for piece in (footers.module(column.gcm, thrift.write(header), aads[1]), sealed):
                self.end += len(piece)
                yield piece
        self._grow(self.end - self._place.at)
        self._move(began)
        self._hide(column, path, form)

    def _pages(self) -> Iterator[tuple[Struct, bytes]]:
        at = self._start
        while at < self._start + self._length:
            header, body = thrift.read(self._plain, at)
            at = body + header.get(3, thrift.I32)
            yield header, self._plain[body:at]

    def _present(self) -> list[int]:
        return [each for each in self._OFFSETS if self._metadata.get(each, thrift.I64)]

    def _move(self, began: Mapping[int, int]) -> None:
        for number, offset in began.items():
            self._metadata.fields[number] = Value(thrift.I64, self._place.at + offset)
        self._chunk.fields[2] = Value(thrift.I64, 0)

    def _grow(self, length: int) -> None:
        more = length - self._length
        for number in (self._UNCOMPRESSED, self._COMPRESSED):
            size = self._metadata.get(number, thrift.I64)
            self._metadata.fields[number] = Value(thrift.I64, size + more)

    def _hide(self, column: _Column, path: tuple[bytes, ...], form: Footer) -> None:
        fields = self._chunk.fields
        fields[footers.CRYPTO] = Value(thrift.STRUCT, column.named(path))
        if form is Footer.ENCRYPTED and not column.own:
            return  # The footer is under the same key.
        sealed = footers.module(column.gcm, thrift.write(self._metadata), self._place.module(1))
        fields[footers.SEALED] = Value(thrift.BINARY, sealed)
        if form is Footer.ENCRYPTED:
            del fields[footers.METADATA]
        else:
            for telling in _TELLING:
                self._metadata.fields.pop(telling, None)


def _resized(group: Struct, start: int, end: int, ordinal: int) -> None:
    """Say of a row group where it lies now."""
    group.fields[5] = Value(thrift.I64, start)
    group.fields[6] = Value(thrift.I64, end - start)
    group.fields[footers.ORDINAL] = Value(thrift.I16, ordinal)
