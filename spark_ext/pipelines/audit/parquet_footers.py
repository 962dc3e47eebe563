"""Checks the footer of a Parquet file without a data key.

- How the file says that it is encrypted has to be what its key metadata says: the magic bytes, the algorithm,
  the AAD prefix, and key material for standard readers only where the table has it.
- What only a key can check is left to readers: whether an encrypted footer opens, whether a signature is
  valid. Where the key metadata has the footer's digest, no byte of the footer can differ.
- A footer in plaintext is parsed, also a signed one: the columns that have to be encrypted are, and nothing
  of them is shown; the others are as the manifest says.

Source: Apache Parquet, "Parquet Modular Encryption", sections 4 and 5; docs/key-metadata.md.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from catalog.client import thrift
from catalog.client.footers import (
    COLUMNS,
    CRYPTO,
    KEY_METADATA,
    METADATA,
    ROW_GROUPS,
    SEALED,
    TRAILER,
    UNDER_COLUMN_KEY,
    UNDER_FOOTER_KEY,
)
from catalog.client.thrift import Malformed, Shape, Struct
from catalog.crypto.aead import NONCE_LENGTH, OVERHEAD, TAG_LENGTH
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.parquet_key_tools import claims_of
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused
from spark_ext.pipelines.audit.file_ends import MOST_READ, PARSING, Broken, FileEnd, ListedFile, Problem
from spark_ext.pipelines.audit.parquet_chunks import check_chunks
from spark_ext.pipelines.audit.parquet_schemas import Column, TableColumns, check_schema, columns_of, flag
from spark_ext.pipelines.audit.parquet_statistics import check_statistics
from spark_ext.pipelines.audit.rules import (
    DAMAGED_FILE,
    PLAINTEXT_FILE,
    PLAINTEXT_STATISTICS,
    UNCHECKED_FOOTER,
    WRONG_DIGEST,
    WRONG_FOOTER,
    WRONG_STATISTICS,
)

_PLAIN, _ENCRYPTED = b"PAR1", b"PARE"
_SHORTEST: Final = 12
MOST_PARSED: Final = 8 << 20
"""Bytes of a footer that are made into structures at most, since it takes some hundred times its size."""
# Of FileMetaData, RowGroup, ColumnMetaData, FileCryptoMetaData, EncryptionAlgorithm (parquet.thrift).
_ROWS, _FILE_ALGORITHM, _SIGNING_KEY = 3, 8, 9
_PATH, _STATISTICS, _SIZE_STATISTICS = 3, 12, 16
_ALGORITHM, _FOOTER_KEY = 1, 2
_PREFIX, _UNIQUE, _SUPPLIED = 1, 2, 3
_UNIONS: Final[Mapping[Algorithm, int]] = {Algorithm.AES_GCM_V1: 1, Algorithm.AES_GCM_CTR_V1: 2}
_LOGICAL: Final = Shape({number: Shape({2: Shape()}) for number in range(1, 32)})
_CHUNK: Final = Shape(
    {
        METADATA: Shape({_PATH: Shape(), _STATISTICS: Shape()}),
        CRYPTO: Shape({UNDER_FOOTER_KEY: Shape(), UNDER_COLUMN_KEY: Shape()}),
    }
)
_LOOKED_INTO: Final = Shape(
    {
        2: Shape({10: _LOGICAL}),
        ROW_GROUPS: Shape({COLUMNS: _CHUNK}),
        _FILE_ALGORITHM: Shape({1: Shape(), 2: Shape()}),
    }
)


def check_parquet(file: ListedFile, end: FileEnd, table: TableColumns, uuid: UUID) -> Iterator[Problem]:
    """Check the footer of a file.

    Args:
        file: as its manifest lists it.
        end: of the open file.
        table: the columns of its table.
        uuid: the table's.

    Raises:
        Broken: no more of it can be checked.
    """
    footer = _footer_bytes(file, end)
    try:
        if file.keys is not None and file.keys.footer is Footer.ENCRYPTED:
            yield from _check_encrypted(file, file.keys, footer, uuid)
        elif len(footer) > MOST_PARSED:
            yield Problem(UNCHECKED_FOOTER, f"The footer has {len(footer)} bytes, and was not parsed.")
        else:
            start = end.size - TRAILER - len(footer)
            with PARSING:
                yield from _check_plaintext(file, footer, start, table, uuid)
    except (Malformed, struct.error) as error:
        raise Broken(DAMAGED_FILE, f"The file's footer is damaged: {error}.") from error


def _footer_bytes(file: ListedFile, end: FileEnd) -> bytes:
    """Return what stands before the length of the footer, once that and the magic bytes are right."""
    if end.size < _SHORTEST:
        raise Broken(DAMAGED_FILE, "The file is too short for a Parquet file.")
    length, magic = struct.unpack("<I4s", end.last(TRAILER))
    _check_magic(file.keys, magic)
    if length > end.size - _SHORTEST:
        raise Broken(DAMAGED_FILE, f"The file has {end.size} bytes, and a footer of {length}.")
    if length > MOST_READ:
        raise Broken(UNCHECKED_FOOTER, f"The footer has {length} bytes, and was not read.")
    last = end.last(length + TRAILER)
    digest = None if file.keys is None else file.keys.footer_digest
    if digest is not None and not (
        len(last) == digest.length and hmac.compare_digest(hashlib.sha256(last).digest(), digest.sha256)
    ):
        raise Broken(WRONG_DIGEST, "The SHA-256 digest of the file's footer differs from its key metadata.")
    return last[:-TRAILER]


def _check_magic(keys: KeyMetadata | None, magic: bytes) -> None:
    if magic not in (_PLAIN, _ENCRYPTED):
        raise Broken(
            DAMAGED_FILE, "The file does not end as a Parquet file: it is truncated, or has bytes at its end."
        )
    if keys is None:
        if magic == _ENCRYPTED:
            raise Broken(WRONG_FOOTER, "The file is encrypted, but the table lists it as plaintext.")
    elif keys.footer is Footer.ENCRYPTED and magic == _PLAIN:
        raise Broken(
            PLAINTEXT_FILE, "The file's footer is in plaintext, but the table requires encrypted footers."
        )
    elif keys.footer is Footer.PLAINTEXT and magic == _ENCRYPTED:
        raise Broken(WRONG_FOOTER, "The file's footer is encrypted, but the table requires a signed one.")


def _check_encrypted(file: ListedFile, keys: KeyMetadata, footer: bytes, uuid: UUID) -> Iterator[Problem]:
    """Check what stands before an encrypted footer (FileCryptoMetaData), and the length of the footer."""
    crypto, at = thrift.read(footer[: thrift.MOST_UNCHECKED])
    yield from _check_algorithm(file, keys, crypto.get(_ALGORITHM, thrift.STRUCT), uuid)
    yield from _check_material(keys, crypto.get(_FOOTER_KEY, thrift.BINARY), 0, uuid)
    (length,) = struct.unpack_from("<I", footer, at)
    if length != len(footer) - at - 4 or length <= OVERHEAD:
        yield Problem(DAMAGED_FILE, "The encrypted footer has another length than it says.")


def _check_algorithm(
    file: ListedFile, keys: KeyMetadata, algorithm: Struct | None, uuid: UUID
) -> Iterator[Problem]:
    union = _UNIONS.get(keys.algorithm)
    if union is None or algorithm is None or set(algorithm.fields) != {union}:
        yield Problem(WRONG_FOOTER, f"The file is not encrypted with {keys.algorithm}.")
        return
    said = algorithm.get(union, thrift.STRUCT)
    expected = parquet_aad_prefix(FileIdentity.of(uuid, file.path))
    stored = said.get(_PREFIX, thrift.BINARY)
    if not said.get(_UNIQUE, thrift.BINARY):
        yield Problem(WRONG_FOOTER, "The file adds nothing of its own to the AAD.")
    if stored is None:
        if keys.stock_readers:
            yield Problem(WRONG_FOOTER, "The file does not store the AAD prefix that standard readers need.")
        elif not flag(said, _SUPPLIED):
            yield Problem(WRONG_FOOTER, "The file does not say that readers supply the AAD prefix.")
    elif stored != expected:
        yield Problem(WRONG_FOOTER, "The AAD prefix in the file belongs to another file or table.")
    elif not keys.stock_readers:
        yield Problem(
            WRONG_FOOTER, "The file stores its AAD prefix, which only files for standard readers do."
        )


def _check_material(
    keys: KeyMetadata, material: bytes | None, number: int, uuid: UUID, column: str | None = None
) -> Iterator[Problem]:
    """Check the key material in the file for one key.

    Args:
        keys: the file's key metadata.
        material: what the file stores for standard readers.
        number: which key of the file it is for.
        uuid: the table's.
        column: the column that it is for.
    """
    if not keys.stock_readers:
        if material is not None:
            yield Problem(
                WRONG_FOOTER, "The file has key material, which only files for standard readers have.", column
            )
        return
    try:
        said = json.loads(material or b"")
        claims = claims_of(said["wrappedKEK"])
        stated = said["masterKeyID"]
    except (ValueError, KeyError, TypeError, AttributeError, DecryptionRefused, RecursionError):
        yield Problem(WRONG_FOOTER, "The file's key material for standard readers is malformed.", column)
        return
    pek = keys.entries[number].bound.pek
    if (claims.table_uuid, claims.pek_id, stated, claims.of_group) != (
        uuid,
        pek.pek_id,
        pek.master_key_id,
        bool(number),
    ):
        yield Problem(WRONG_FOOTER, "The file's key material is for another table or key.", column)


def _check_plaintext(
    file: ListedFile, footer: bytes, start: int, table: TableColumns, uuid: UUID
) -> Iterator[Problem]:
    """Check a footer that can be read without a key, signed or not."""
    metadata, at = thrift.read(footer, shape=_LOOKED_INTO)
    if file.keys is None:
        yield from _check_unsigned(metadata, len(footer) - at)
    else:
        yield from _check_signed(file, file.keys, metadata, len(footer) - at, uuid)
    columns = columns_of(metadata)
    yield from _check_rows(file, metadata)
    yield from check_schema(metadata, columns, table, whole=file.content == 0)
    yield from check_chunks(metadata, columns, start)
    yield from _check_keys(file.keys, metadata, columns, uuid)
    yield from check_statistics(file, metadata, columns, table)


def _check_unsigned(metadata: Struct, behind: int) -> Iterator[Problem]:
    if metadata.fields.keys() & {_FILE_ALGORITHM, _SIGNING_KEY}:
        yield Problem(WRONG_FOOTER, "The file's footer is signed, but the table lists the file as plaintext.")
    elif behind:
        yield Problem(
            DAMAGED_FILE, f"The file has {behind} bytes between its footer and the footer's length."
        )


def _check_signed(
    file: ListedFile, keys: KeyMetadata, metadata: Struct, behind: int, uuid: UUID
) -> Iterator[Problem]:
    if behind != NONCE_LENGTH + TAG_LENGTH or _FILE_ALGORITHM not in metadata.fields:
        raise Broken(PLAINTEXT_FILE, "The file's footer is in plaintext and not signed.")
    yield from _check_algorithm(file, keys, metadata.get(_FILE_ALGORITHM, thrift.STRUCT), uuid)
    yield from _check_material(keys, metadata.get(_SIGNING_KEY, thrift.BINARY), 0, uuid)


def _check_rows(file: ListedFile, metadata: Struct) -> Iterator[Problem]:
    """Detect row groups that were removed or repeated."""
    groups = [group.get(_ROWS, thrift.I64) or 0 for group in metadata.structs(ROW_GROUPS)]
    for found in dict.fromkeys((metadata.get(_ROWS, thrift.I64), sum(groups))):
        if found != file.records:
            yield Problem(
                WRONG_STATISTICS, f"The file has {found} rows, but its manifest lists {file.records}."
            )
    if min(groups, default=0) < 0:
        yield Problem(WRONG_STATISTICS, "A row group has a negative number of rows.")


def _check_keys(
    keys: KeyMetadata | None, metadata: Struct, columns: Sequence[Column], uuid: UUID
) -> Iterator[Problem]:
    """Check which columns are encrypted, and with which key as far as the file says."""
    of_groups = {
        field_id: number
        for number, entry in enumerate(() if keys is None else keys.entries)
        for field_id in entry.bound.field_ids
    }
    present = {element.get(9, thrift.I32) for element in metadata.structs(2)}
    for missing in sorted(of_groups.keys() - present):
        yield Problem(WRONG_FOOTER, f"The file lacks the column {missing} that one of its keys is for.")
    for group in metadata.structs(ROW_GROUPS):
        for column, chunk in zip(columns, group.structs(COLUMNS), strict=False):
            number = of_groups.get(-1 if column.leaf.field_id is None else column.leaf.field_id)
            yield from _check_chunk(keys, chunk, column, number, uuid)


def _check_chunk(
    keys: KeyMetadata | None, chunk: Struct, column: Column, number: int | None, uuid: UUID
) -> Iterator[Problem]:
    """Check how one column of a row group is encrypted.

    Args:
        keys: the file's key metadata; None for a plaintext file.
        chunk: the column of the row group.
        column: the column.
        number: its key group's number among the file's keys; None without one.
        uuid: the table's.
    """
    crypto = chunk.get(CRYPTO, thrift.STRUCT)
    under = set() if crypto is None else set(crypto.fields)
    expected = set()
    if keys is not None and len(keys.entries) == 1:
        expected = {UNDER_FOOTER_KEY}
    elif number is not None:
        expected = {UNDER_COLUMN_KEY}
    if under != expected:
        found = "not encrypted with the key that the table requires" if expected else "encrypted"
        yield Problem(WRONG_FOOTER, f"The column is {found}.", column.leaf.name)
    elif expected:
        yield from _check_hidden(chunk, column)
    elif chunk.fields.keys() & {SEALED}:
        yield Problem(
            WRONG_FOOTER, "The column is in plaintext, and has encrypted metadata.", column.leaf.name
        )
    if keys is not None and under == {UNDER_COLUMN_KEY} and number is not None and crypto is not None:
        material = crypto.get(UNDER_COLUMN_KEY, thrift.STRUCT).get(KEY_METADATA, thrift.BINARY)
        yield from _check_material(keys, material, number, uuid, column.leaf.name)


def _check_hidden(chunk: Struct, column: Column) -> Iterator[Problem]:
    """Check that nothing of the values of an encrypted column is in a footer that all can read."""
    said = chunk.get(METADATA, thrift.STRUCT)
    if said is not None and said.fields.keys() & {_STATISTICS, _SIZE_STATISTICS}:
        yield Problem(
            PLAINTEXT_STATISTICS, "The footer shows statistics of an encrypted column.", column.leaf.name
        )
    if len(chunk.get(SEALED, thrift.BINARY) or b"") <= OVERHEAD:
        yield Problem(WRONG_FOOTER, "The column has no encrypted metadata.", column.leaf.name)
