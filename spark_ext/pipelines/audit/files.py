"""Opens data and delete files as far as that is possible without their keys.

- An encrypted file has the footer that its key metadata says: encrypted or signed, the algorithm, its own AAD
  prefix, and the digest. A signed footer shows which columns have keys of their own.
- A plaintext file has as many rows as its entry states, and bounds in the entry contain its values.
- A share of the files is read whole, and compared with the digest in its key metadata, where there is one.

What is inside of encrypted footers and pages needs keys: `verified` reads it through the guarded reader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import IcebergType

from catalog.client import footers
from catalog.client.thrift import Malformed
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.key_metadata import KeyMetadata
from catalog.storage.base import Storage
from catalog.storage.errors import ObjectMissing
from policy.encryption.file_formats import FileFormat
from policy.errors import DecryptionRefused, LocationNotAllowed
from policy.location.location import Location
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.bounds import contradictions
from spark_ext.pipelines.audit.options import Looking, chosen
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.slices import Slice
from spark_ext.pipelines.items import Rule

_THREADS: Final = 16
_AT_ONCE: Final = 1_000
_CHUNK: Final = 4 << 20
_COLUMNS: Final = (
    "file_path",
    "file_format",
    "file_size_in_bytes",
    "record_count",
    "key_metadata",
    "content",
)
_STATISTICS: Final = ("null_value_counts", "lower_bounds", "upper_bounds")

Problem = tuple[Rule, str]


class FileCheck:
    """Checks the files of a slice.

    Args:
        looking: which files.
        part: the slice.
    """

    def __init__(self, looking: Looking, part: Slice) -> None:
        self._looking = looking
        self._facts = part.facts
        self._types: dict[int, IcebergType] = {}
        for schema in reversed(part.schemas):
            self._types.update((field.field_id, field.field_type) for field in schema.fields)

    def check(self, files: pa.Table, statistics: pa.Table, found: Partial) -> None:
        """Open the chosen ones of these files, and add what is wrong with them."""
        share = max(self._looking.footers, self._looking.verify)
        if share <= 0:
            return
        mine = [chosen(path, share) for path in files["file_path"].to_pylist()]
        keep = pa.array(mine, pa.bool_())
        files = files.select(_COLUMNS).filter(keep)
        statistics = statistics.select(_STATISTICS).filter(keep)
        for start in range(0, files.num_rows, _AT_ONCE):
            rows = [
                {**file, **told}
                for file, told in zip(
                    files.slice(start, _AT_ONCE).to_pylist(),
                    statistics.slice(start, _AT_ONCE).to_pylist(),
                    strict=True,
                )
            ]
            self._check(rows, found)

    def _check(self, rows: list[dict[str, Any]], found: Partial) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for row, problems in zip(rows, pool.map(self._problems, rows), strict=True):
                found.counts["opened"] += 1
                for rule, text in problems:
                    found.add(rule, text, path=row["file_path"])

    def _problems(self, row: dict[str, Any]) -> list[Problem]:
        """Open one file. What is missing, or of another size, is found by the listing.

        Raises:
            StorageUnavailable: the storage does not answer.
        """
        location, storage = Location.parse(row["file_path"]), self._looking.storage
        try:
            if storage.size(location) != row["file_size_in_bytes"]:
                return []
            problems = self._footer(storage, location, row)
            if chosen(row["file_path"], self._looking.verify):
                problems += _digest(storage, location, row)
        except (ObjectMissing, LocationNotAllowed):
            return []
        return problems

    def _footer(self, storage: Storage, location: Location, row: dict[str, Any]) -> list[Problem]:
        if row["file_format"].upper() != "PARQUET" or not chosen(row["file_path"], self._looking.footers):
            return []
        size = row["file_size_in_bytes"]
        with storage.open_input(location) as stream:

            def piece(start: int, length: int) -> bytes:
                stream.seek(start)
                return stream.read(length)

            return self._judged(piece, size, row)

    def _judged(self, piece: Callable[[int, int], bytes], size: int, row: dict[str, Any]) -> list[Problem]:
        try:
            if row["key_metadata"] is None:
                metadata = footers.plaintext(piece, size)
                return list(contradictions(metadata, row, self._types))
            known = _key_metadata(row)
            if known is not None and self._facts.uuid is not None:
                self._encrypted(piece, size, row, known)
        except DecryptionRefused as error:
            digest = error.rule == "footer-digest"
            return [(rules.WRONG_DIGEST if digest else rules.WRONG_FOOTER, error.message)]
        except Malformed as error:
            return [(rules.WRONG_FOOTER, f"The footer is damaged: {error}.")]
        return []

    def _encrypted(
        self, piece: Callable[[int, int], bytes], size: int, row: dict[str, Any], metadata: KeyMetadata
    ) -> None:
        """Check the footer of an encrypted file by what its key metadata says.

        Raises:
            DecryptionRefused, Malformed: it is another one.
        """
        assert self._facts.uuid is not None
        if metadata.algorithm.file_format is not FileFormat.PARQUET:
            raise DecryptionRefused(
                f"The key metadata of a Parquet file names {metadata.algorithm}.", rule="algorithm"
            )
        prefix = parquet_aad_prefix(FileIdentity.of(self._facts.uuid, row["file_path"]))
        columns = [each.bound.field_ids for each in metadata.entries[1:]]
        keyed = frozenset(field_id for ids in columns for field_id in ids) if columns else None
        expected = footers.Outside(metadata.algorithm, metadata.footer, prefix, keyed)
        footers.check_outside(piece, size, expected, metadata.footer_digest)


def _digest(storage: Storage, location: Location, row: dict[str, Any]) -> list[Problem]:
    """Compare a whole file with the digest in its key metadata, if that has one."""
    metadata = _key_metadata(row)
    digest = None if metadata is None else metadata.digest
    if digest is None:
        return []
    found, length = hashlib.sha256(), 0
    with storage.open_input(location) as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
            length += len(chunk)
    if (length, found.digest()) == (digest.length, digest.sha256):
        return []
    return [(rules.WRONG_DIGEST, "The SHA-256 digest of the file differs from its key metadata.")]


def _key_metadata(row: dict[str, Any]) -> KeyMetadata | None:
    """Return the key metadata of a file; None if it has none, or it is malformed, which is said elsewhere."""
    try:
        return None if row["key_metadata"] is None else KeyMetadata.parse(row["key_metadata"])
    except DecryptionRefused:
        return None
