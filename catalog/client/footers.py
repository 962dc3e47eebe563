"""Reads the footer of an encrypted Parquet file, and compares it with the file's encryption epoch.

- The epoch says the algorithm, whether the footer is encrypted or signed, and which columns are under which
  key. What the file says of its own keys is not looked at: which key is whose follows from the field ids in
  the footer, which the footer's key authenticates, and from the labels of the plan.
- Without column keys, every column is under the footer's key.
- With them, a column is under the key of its group, or in plaintext; never under the footer's key. A column
  whose key was released has to be under that very key; one that is read without a key, in plaintext.
- Each column under a released key is in the file: one that was left out would read as null. Its type and name
  under its own key are those of the schema, which is under the footer's key, that more people have.
- Every column has a field id of Parquet's own. What else the file says of itself, Arrow's schema above all,
  is kept from PyArrow: it would give columns ids that nobody judged.
- The AAD prefix is the reader's. A file that stores one has to store that one.
- Where the key metadata has the digest of the footer, a footer has to have that: then all that it says is the
  writer's word. It is read from the file once, and taken apart as it was read.
- A footer in plaintext counts once its signature has been checked. Until then no more of a file is taken
  apart than what says how it is encrypted: what is small in a file can be large in memory.

Source: Apache Parquet, "Parquet Modular Encryption", sections 4.4 (AAD) and 5 (file format);
    docs/key-metadata.md, "Parquet AAD prefix" and "Digest of the footer".
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from catalog.client import thrift
from catalog.client.errors import RESTORE
from catalog.client.thrift import Malformed, Shape, Struct
from catalog.crypto.aead import NONCE_LENGTH, TAG_LENGTH, Aead
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_digests import FooterDigest
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused

_ENCRYPTED_MAGIC: Final = b"PARE"
_PLAIN_MAGIC: Final = b"PAR1"
TRAILER: Final = 8
_SIGNATURE: Final = NONCE_LENGTH + TAG_LENGTH
_FOOTER_MODULE: Final = b"\x00"
_COLUMN_MODULE: Final = b"\x01"
_LARGEST: Final = 256 << 20

# Of FileMetaData, RowGroup, ColumnChunk, SchemaElement, ColumnMetaData, FileCryptoMetaData (parquet.thrift).
SCHEMA, ROW_GROUPS, _KEY_VALUES, _FILE_ALGORITHM, _SIGNING_KEY = 2, 4, 5, 8, 9
COLUMNS, ORDINAL = 1, 7
METADATA, CRYPTO, SEALED = 3, 8, 9
_TYPE, _LENGTH, _NAME, _CHILDREN, FIELD_ID = 1, 2, 4, 5, 9
_KIND, _ENCODINGS, _PATH, _STATISTICS = 1, 2, 3, 12
_BOUNDS: Final = (1, 2, 5, 6)
#: Of physical types, that of values that all have one length.
_FIXED: Final = 7
_ALGORITHM, KEY_METADATA = 1, 2
_PREFIX, _UNIQUE, _SUPPLIED = 1, 2, 3
UNDER_FOOTER_KEY, UNDER_COLUMN_KEY = 1, 2
#: What is looked into here; the rest of a footer is PyArrow's to read.
_LOOKED_INTO: Final = Shape(
    {
        SCHEMA: Shape(),
        ROW_GROUPS: Shape(
            {COLUMNS: Shape({CRYPTO: Shape({UNDER_FOOTER_KEY: Shape(), UNDER_COLUMN_KEY: Shape()})})}
        ),
    }
)
_SAID_OF_COLUMN: Final = Shape({_ENCODINGS: Shape(), _PATH: Shape(), _STATISTICS: Shape()})
_UNIONS: Final[Mapping[Algorithm, int]] = {Algorithm.AES_GCM_V1: 1, Algorithm.AES_GCM_CTR_V1: 2}

Piece = Callable[[int, int], bytes]
"""Reads so many bytes from a place of the file."""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """How one file has to be encrypted, and its keys.

    Attributes:
        algorithm: Parquet's.
        footer_form: whether the footer is encrypted or signed.
        footer: the footer's key, or that of the whole file.
        columns: the released keys of columns by field id; None for a file that is encrypted whole.
        aad_prefix: what the reader supplies.
    """

    algorithm: Algorithm
    footer_form: Footer
    footer: SecretBytes
    columns: Mapping[int, SecretBytes] | None
    aad_prefix: bytes


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of a file.

    Attributes:
        path: its names from the top.
        kind: its physical type.
        length: of its values, in bytes, where all have the same; else None.
        field_id: its field id, if it has one.
    """

    path: tuple[bytes, ...]
    kind: int
    length: int | None
    field_id: int | None

    @property
    def name(self) -> str:
        """How messages name it."""
        return b".".join(self.path).decode("utf-8", "replace")[:200]


@dataclass(slots=True)
class OpenedFooter:
    """A footer that opened.

    Attributes:
        start: where it begins in the file.
        algorithm: the union in which the file names its algorithm.
        metadata: Parquet's FileMetaData.
        leaves: the columns in the order of the file.
        aad: the AAD of the file: prefix and what the file adds to it.
        open_columns: places of the columns that may be read: in plaintext, or with a key that opened them.
        encodings: of each column that was opened with a key of its own, by place, what its chunks list.
    """

    start: int
    algorithm: Struct
    metadata: Struct
    leaves: tuple[Leaf, ...]
    aad: bytes
    open_columns: frozenset[int] = field(default_factory=frozenset)
    encodings: Mapping[int, frozenset[frozenset[int]]] = field(default_factory=dict)


def read(piece: Piece, size: int, keys: FileKeys, digest: FooterDigest | None = None) -> OpenedFooter:
    """The footer of a file, opened but not yet judged.

    Args:
        piece: reads from the file.
        size: of the file in bytes.
        keys: how the file has to be encrypted.
        digest: of the footer, where the key metadata keeps it.

    Raises:
        DecryptionRefused: another file's, changed, in plaintext, or not as the epoch says.
    """
    start, data = _footer_bytes(piece, size, keys.footer_form, digest)
    try:
        return (_encrypted if keys.footer_form is Footer.ENCRYPTED else _signed)(start, data, keys)
    except (Malformed, struct.error) as error:
        raise refused("The file's footer is damaged.", "file-authentic") from error


def _footer_bytes(piece: Piece, size: int, form: Footer, digest: FooterDigest | None) -> tuple[int, bytes]:
    """Where the footer begins, and what of it stands before its length."""
    if size < 2 * TRAILER:
        raise refused("The file is too short for a Parquet file.", "file-authentic")
    end = piece(size - TRAILER, TRAILER) if digest is None else _vouched(piece, size, digest)
    length, magic = struct.unpack("<I4s", end[-TRAILER:])
    if magic == _PLAIN_MAGIC and form is Footer.ENCRYPTED:
        raise refused(
            "The file's footer is in plaintext, but the table requires encrypted footers.", "plaintext-file"
        )
    if magic != (_ENCRYPTED_MAGIC if form is Footer.ENCRYPTED else _PLAIN_MAGIC):
        raise refused(
            "The file is damaged, or its encryption differs from the table's metadata.", "algorithm"
        )
    if length > min(_LARGEST, size - TRAILER):
        raise refused("The file's footer is damaged.", "file-authentic")
    start = size - TRAILER - length
    return start, piece(start, length) if digest is None else end[:-TRAILER]


def _vouched(piece: Piece, size: int, digest: FooterDigest) -> bytes:
    """The end of the file, read once, if that is the footer that its key metadata says."""
    if digest.length <= min(_LARGEST, size):
        end = piece(size - digest.length, digest.length)
        (length,) = struct.unpack_from("<I", end, digest.length - TRAILER)
        same = hmac.compare_digest(hashlib.sha256(end).digest(), digest.sha256)
        if same and length == digest.length - TRAILER:
            return end
    raise refused("The SHA-256 digest of the file's footer differs from its key metadata.", "footer-digest")


def _encrypted(start: int, data: bytes, keys: FileKeys) -> OpenedFooter:
    crypto, end = thrift.read(data[: thrift.MOST_UNCHECKED])
    algorithm = crypto.get(_ALGORITHM, thrift.STRUCT)
    aad = _file_aad(algorithm, keys.algorithm, keys.aad_prefix)
    plain = _unsealed(Aead(keys.footer), data[end:], aad + _FOOTER_MODULE)
    metadata, _ = thrift.read(plain, shape=_LOOKED_INTO)
    return OpenedFooter(start, algorithm, metadata, leaves_of(metadata), aad)


def _signed(start: int, data: bytes, keys: FileKeys) -> OpenedFooter:
    said, end = thrift.field_of(data, _FILE_ALGORITHM)
    algorithm = Struct({} if said is None else {_FILE_ALGORITHM: said}).get(_FILE_ALGORITHM, thrift.STRUCT)
    aad = _file_aad(algorithm, keys.algorithm, keys.aad_prefix)
    nonce, tag = data[end : end + NONCE_LENGTH], data[end + NONCE_LENGTH :]
    if len(data) - end != _SIGNATURE:
        raise refused("The file's footer is not signed.", "footer-signature")
    sealed = Aead(keys.footer).encrypt(nonce, data[:end], aad + _FOOTER_MODULE)
    if not hmac.compare_digest(sealed[-TAG_LENGTH:], tag):
        raise refused(
            "The footer's signature is invalid: the footer was changed, or signed with another key.",
            "footer-signature",
        )
    metadata, _ = thrift.read(data, shape=_LOOKED_INTO)
    return OpenedFooter(start, algorithm, metadata, leaves_of(metadata), aad)


def _file_aad(said: Struct | None, algorithm: Algorithm, aad_prefix: bytes) -> bytes:
    """The AAD that all modules of the file begin with."""
    union = _UNIONS[algorithm]
    if said is None or set(said.fields) != {union}:
        raise refused(f"The file is not encrypted with {algorithm}.", "algorithm")
    body = said.get(union, thrift.STRUCT)
    stored = body.get(_PREFIX, thrift.BINARY)
    if stored is not None and stored != aad_prefix:
        raise refused("The AAD prefix in the file belongs to another file.", "file-authentic")
    return aad_prefix + (body.get(_UNIQUE, thrift.BINARY) or b"")


def _unsealed(cipher: Aead, data: bytes, aad: bytes) -> bytes:
    """The content of a module: its length, nonce, ciphertext and tag."""
    (length,) = struct.unpack_from("<I", data)
    if length != len(data) - 4:
        raise Malformed("an encrypted module with a wrong length")
    try:
        return cipher.open(data[4:], aad)
    except DecryptionRefused as error:
        raise refused("The file was changed, or replaced by another one.", "file-authentic") from error


def module(cipher: Aead, content: bytes, aad: bytes) -> bytes:
    """A module under GCM: length, nonce, ciphertext and tag."""
    sealed = cipher.seal(content, aad)
    return struct.pack("<I", len(sealed)) + sealed


def sealed(metadata: Struct, unique: bytes, keys: FileKeys, said: bytes | None = None) -> bytes:
    """The footer of a new file, encrypted or signed, with the end of the file.

    Args:
        metadata: Parquet's FileMetaData.
        unique: what the file adds to the prefix.
        keys: the file's.
        said: what the file tells standard readers of the footer's key, beside the prefix; None for neither.
    """
    body = Struct({_UNIQUE: _binary(unique)})
    if said is None:
        body.fields[_SUPPLIED] = thrift.Value(thrift.TRUE, True)
    else:
        body.fields[_PREFIX] = _binary(keys.aad_prefix)
    union = thrift.Value(thrift.STRUCT, Struct({_UNIONS[keys.algorithm]: thrift.Value(thrift.STRUCT, body)}))
    cipher, aad = Aead(keys.footer), keys.aad_prefix + unique + _FOOTER_MODULE
    if keys.footer_form is Footer.ENCRYPTED:
        crypto = Struct({_ALGORITHM: union})
        if said is not None:
            crypto.fields[KEY_METADATA] = _binary(said)
        content, magic = thrift.write(crypto) + module(cipher, thrift.write(metadata), aad), _ENCRYPTED_MAGIC
    else:
        metadata.fields[_FILE_ALGORITHM] = union
        if said is not None:
            metadata.fields[_SIGNING_KEY] = _binary(said)
        plain = thrift.write(metadata)
        signed = cipher.seal(plain, aad)
        content, magic = plain + signed[:NONCE_LENGTH] + signed[-TAG_LENGTH:], _PLAIN_MAGIC
    return content + struct.pack("<I4s", len(content), magic)


def leaves_of(metadata: Struct) -> tuple[Leaf, ...]:
    """The columns of a file, in its order.

    Raises:
        Malformed: its schema is none.
    """
    elements = metadata.structs(SCHEMA)
    if not elements:
        raise Malformed("a file without a schema")
    found: list[Leaf] = []
    rest = iter(elements[1:])
    _below(elements[0], rest, (), found, 0)
    if next(rest, None) is not None:
        raise Malformed("a schema with elements outside its tree")
    return tuple(found)


def _below(
    group: Struct, rest: Iterator[Struct], above: tuple[bytes, ...], found: list[Leaf], depth: int
) -> None:
    if depth > 200:
        raise Malformed("a schema nested too deeply")
    for _ in range(group.get(_CHILDREN, thrift.I32) or 0):
        element = next(rest, None)
        if element is None:
            raise Malformed("a schema with too few elements")
        path = (*above, element.get(_NAME, thrift.BINARY) or b"")
        children = element.get(_CHILDREN, thrift.I32) or 0
        if (children > 0) is (element.get(_TYPE, thrift.I32) is not None):
            # PyArrow would count the columns otherwise: each one's key would be checked against its
            # neighbour.
            raise Malformed("a schema element that is neither a column nor a group")
        if children:
            _below(element, rest, path, found, depth + 1)
        else:
            kind = element.get(_TYPE, thrift.I32)
            assert kind is not None
            length = element.get(_LENGTH, thrift.I32) if kind == _FIXED else None
            found.append(Leaf(path, kind, length, element.get(FIELD_ID, thrift.I32)))


def check(footer: OpenedFooter, keys: FileKeys, wanted: frozenset[int]) -> None:
    """Hold every column of a footer against the epoch; notes which of them may be read.

    Args:
        footer: as `read` opened it.
        keys: how the file has to be encrypted.
        wanted: ids of the fields that are read.

    Raises:
        DecryptionRefused: a column is not under the key that it has to be.
    """
    ciphers: dict[int, Aead] = {}
    if keys.columns is not None:
        ciphers = {field_id: Aead(key) for field_id, key in keys.columns.items()}
    for leaf in footer.leaves:
        if leaf.field_id is None:
            raise refused(f"The column {leaf.name!r} of the file has no field id.", "field-id")
    left_out = ciphers.keys() - {
        element.get(FIELD_ID, thrift.I32) for element in footer.metadata.structs(SCHEMA)
    }
    if left_out:
        raise refused(f"The file lacks the column {min(left_out)} that one of its keys is for.", "column-key")
    judges = [_Column(place, leaf, keys, ciphers, wanted) for place, leaf in enumerate(footer.leaves)]
    try:
        for index, group in enumerate(footer.metadata.structs(ROW_GROUPS)):
            chunks = group.structs(COLUMNS)
            if len(chunks) != len(judges):
                raise Malformed("a row group with missing or extra columns")
            ordinal = group.get(ORDINAL, thrift.I16)
            for column, chunk in zip(judges, chunks, strict=True):
                column.check(chunk, footer.aad, index if ordinal is None else ordinal)
    except (Malformed, struct.error) as error:
        raise refused("The file's footer is damaged.", "file-authentic") from error
    footer.open_columns = frozenset(each.place for each in judges if each.opens)
    footer.encodings = {each.place: frozenset(each.encodings) for each in judges if each.encodings}


@dataclass(slots=True)
class _Column:
    """What one column has to be."""

    place: int
    leaf: Leaf
    keys: FileKeys
    ciphers: Mapping[int, Aead]
    wanted: frozenset[int]
    opens: bool = True
    encodings: set[frozenset[int]] = field(default_factory=set)

    def check(self, chunk: Struct, aad: bytes, row_group: int) -> None:
        crypto = chunk.get(CRYPTO, thrift.STRUCT)
        under = set() if crypto is None else set(crypto.fields)
        if self.keys.columns is None:
            if under != {UNDER_FOOTER_KEY}:
                raise refused(
                    f"Not every column of the file is encrypted with {self.keys.algorithm}.", "algorithm"
                )
        elif self.leaf.field_id in self.ciphers:
            if under != {UNDER_COLUMN_KEY}:
                raise self._mistaken()
            self._open(chunk, aad, row_group)
        elif under:
            # Of a column that is not read, it does not matter whose key it has; but the footer's it never is.
            if self.leaf.field_id in self.wanted or under != {UNDER_COLUMN_KEY}:
                raise self._mistaken()
            self.opens = False

    def _open(self, chunk: Struct, aad: bytes, row_group: int) -> None:
        """Open what the file says of the column, with the released key."""
        assert self.leaf.field_id is not None
        ordinals = struct.pack("<hh", row_group, self.place)
        sealed = chunk.get(SEALED, thrift.BINARY) or b""
        try:
            said = _unsealed(self.ciphers[self.leaf.field_id], sealed, aad + _COLUMN_MODULE + ordinals)
        except (DecryptionRefused, struct.error) as error:
            raise self._mistaken() from error
        known, _ = thrift.read(said, shape=_SAID_OF_COLUMN)
        path = known.get(_PATH, thrift.LIST)
        told = known.get(_KIND, thrift.I32), () if path is None else tuple(path.elements)
        if told != (self.leaf.kind, self.leaf.path) or self._is_cut(known):
            raise refused(
                f"The column {self.leaf.name!r} holds the metadata of another column.", "column-key"
            )
        encodings = known.get(_ENCODINGS, thrift.LIST)
        self.encodings.add(frozenset(() if encodings is None else encodings.elements))

    def _is_cut(self, known: Struct) -> bool:
        """Whether its bounds are longer than its values are said to be, which would be read in pieces."""
        bounds = known.get(_STATISTICS, thrift.STRUCT)
        if bounds is None or self.leaf.length is None:
            return False
        found = (bounds.get(each, thrift.BINARY) or b"" for each in _BOUNDS)
        return max(map(len, found)) > self.leaf.length

    def _mistaken(self) -> DecryptionRefused:
        return refused(
            f"The column {self.leaf.name!r} is not encrypted with the key that the table requires.",
            "column-key",
        )


def rewritten(footer: OpenedFooter, keys: FileKeys, named: Callable[[int | None], bytes]) -> bytes:
    """A footer in memory for PyArrow, which takes a prefix and names of keys from a file alone.

    It is encrypted, names the prefix, and puts a name that the caller gave in place of what the file says of
    each key that is at hand. What the file says of itself in keys and values is left out.

    Args:
        footer: judged.
        keys: with which it was opened.
        named: the key metadata of a key, by the field id of its column; None for the footer's.
    """
    for group in footer.metadata.structs(ROW_GROUPS):
        for leaf, chunk in zip(footer.leaves, group.structs(COLUMNS), strict=True):
            if keys.columns is not None and leaf.field_id in keys.columns:
                under = chunk.get(CRYPTO, thrift.STRUCT).get(UNDER_COLUMN_KEY, thrift.STRUCT)
                under.fields[KEY_METADATA] = thrift.Value(thrift.BINARY, named(leaf.field_id))
    for left_out in (_KEY_VALUES, _FILE_ALGORITHM, _SIGNING_KEY):
        footer.metadata.fields.pop(left_out, None)
    unique = footer.aad[len(keys.aad_prefix) :]
    body = Struct({_PREFIX: _binary(keys.aad_prefix), _UNIQUE: _binary(unique)})
    union = Struct({_UNIONS[keys.algorithm]: thrift.Value(thrift.STRUCT, body)})
    crypto = Struct({_ALGORITHM: thrift.Value(thrift.STRUCT, union), KEY_METADATA: _binary(named(None))})
    body_module = module(Aead(keys.footer), thrift.write(footer.metadata), footer.aad + _FOOTER_MODULE)
    content = thrift.write(crypto) + body_module
    return content + struct.pack("<I4s", len(content), _ENCRYPTED_MAGIC)


def _binary(held: bytes) -> thrift.Value:
    return thrift.Value(thrift.BINARY, held)


def refused(problem: str, rule: str) -> DecryptionRefused:
    """The refusal of a file that is not what its epoch says; its caller names table and path."""
    return DecryptionRefused(problem, rule=rule, hint=RESTORE)
