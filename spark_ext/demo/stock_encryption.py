"""Parquet encryption of standard clients: PyArrow's CryptoFactory and a KMS, with PyArrow's defaults.

The same attacks on the same rows, for comparison. Nothing of Lakewarden is used here.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pyarrow.parquet.encryption as encryption
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from spark_ext.demo.attacker import flipped, overwritten
from spark_ext.demo.outcome import Answer, expect

_MASTER_KEY: Final = "operations"
_NONCE_LENGTH: Final = 12
_SAMPLE_BYTES: Final = 200_000


class _Kms(encryption.KmsClient):  # type: ignore[misc]
    """A KMS with one master key, which can be disabled."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled = True
        self._master = AESGCM(os.urandom(32))

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        nonce = os.urandom(_NONCE_LENGTH)
        wrapped = self._master.encrypt(nonce, key_bytes, master_key_identifier.encode())
        return base64.b64encode(nonce + wrapped)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        if not self.enabled:
            raise PermissionError(f"The master key {master_key_identifier} is disabled.")
        wrapped = base64.b64decode(wrapped_key)
        nonce, sealed = wrapped[:_NONCE_LENGTH], wrapped[_NONCE_LENGTH:]
        return self._master.decrypt(nonce, sealed, master_key_identifier.encode())


class StockEncryption:
    """Two encrypted files of flights, as a standard stack writes them.

    Args:
        directory: where to; it is made.
        flights: a CSV file of flights.
    """

    def __init__(self, directory: Path, flights: Path) -> None:
        directory.mkdir()
        self._kms = _Kms()
        self._factory = encryption.CryptoFactory(lambda _: self._kms)
        self._connection = encryption.KmsConnectionConfig()
        with flights.open("rb") as file:
            head = file.read(_SAMPLE_BYTES).rpartition(b"\n")[0]
        self._all = csv.read_csv(pa.BufferReader(head))
        half = self._all.num_rows // 2
        self._first, self._second = self._all.slice(0, half), self._all.slice(half)
        self._file, self._other = directory / "january-1.parquet", directory / "january-2.parquet"
        self._plaintext = directory / "plaintext.parquet"
        self._write(self._file, self._first)
        self._write(self._other, self._second)
        parquet.write_table(self._all, self._plaintext)
        expect(
            self._read().equals(self._first), "a standard reader reads the encrypted file that was written"
        )

    def swapped(self) -> Answer:
        """The answer when a file has the bytes of another one."""
        with overwritten(self._file, self._other.read_bytes()):
            return self._answer(self._second, "the other file's rows, no error")

    def flipped(self) -> Answer:
        """The answer when a bit is flipped."""
        with overwritten(self._file, flipped(self._file.read_bytes())):
            return self._answer(None, "rows, no error")

    def replaced_by_plaintext(self) -> Answer:
        """The answer when a plaintext file stands in the place of an encrypted one."""
        with overwritten(self._file, self._plaintext.read_bytes()):
            return self._answer(self._all, "the plaintext file's rows, no error")

    def revoked(self) -> Answer:
        """The answer when the master key was disabled, to a reader that has read before."""
        self._kms.enabled = False
        return self._answer(self._first, "rows, by a key that it keeps for 10 minutes")

    def _answer(self, rows: pa.Table | None, text: str) -> Answer:
        """What a standard reader answers: a refusal, or these rows, where they are given."""
        try:
            read = self._read()
        except OSError as refusal:
            return Answer("refused as well", type(refusal).__name__, str(refusal))
        expect(rows is None or read.equals(rows), f"a standard reader answers {text}")
        return Answer(text)

    def _read(self) -> pa.Table:
        properties = self._factory.file_decryption_properties(
            self._connection, encryption.DecryptionConfiguration()
        )
        rows = parquet.ParquetFile(self._file, decryption_properties=properties).read()
        # Parquet has no timestamps in seconds, which CSV was read as.
        return rows.cast(self._all.schema)

    def _write(self, path: Path, rows: pa.Table) -> None:
        configuration = encryption.EncryptionConfiguration(footer_key=_MASTER_KEY, uniform_encryption=True)
        properties = self._factory.file_encryption_properties(self._connection, configuration)
        with parquet.ParquetWriter(path, rows.schema, encryption_properties=properties) as writer:
            writer.write_table(rows)
