"""Checks the files that an engine wrote, and builds their manifest entries.

- A new file is below the write's own directory, and has the table's partition spec. A delete file has the
  partition spec of its data files (`delete_files`).
- For a Parquet file with column keys, and for no other file, the commit gives the digest of the footer.
  Without it, a user with the footer's key could describe those columns differently.
- The file's data keys are rewrapped from the write's transport key. Bounds and counts of encrypted columns
  are sealed into the key metadata, and are stored nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, TypeVar, cast

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from catalog.base.errors import CommitConflict
from catalog.envelope.encrypted_statistics import ColumnBounds
from catalog.envelope.file_digests import LEAST_FOOTER, FileDigest, FooterDigest
from catalog.envelope.write_keys import WriteRewrapper
from catalog.iceberg.manifests.writing import schema_of
from catalog.iceberg.partition_values import stored_value
from catalog.reading.loading import LoadedTable
from catalog.writes.delete_files import check_kind, path_bound
from catalog.writes.new_files import NewFile
from policy.encryption.encrypted_columns import protected_fields
from policy.encryption.file_formats import WRITE_FORMAT
from policy.encryption.specification import EncryptionSpec
from policy.errors import EncryptionPolicyViolation, LocationNotAllowed, NotSupportedYet, RequestInvalid
from policy.location.location import Location

T = TypeVar("T")
_DATA: Final = DataFileContent.DATA
_CONTENTS: Final = (DataFileContent.DATA, DataFileContent.POSITION_DELETES)
#: This version has all fields; `SnapshotProducer` leaves out the fields that the table's version does not
#: have.
_FILE_VERSION: Final = 3
_FORMATS: Final = {"parquet": FileFormat.PARQUET, "orc": FileFormat.ORC, "avro": FileFormat.AVRO}


def data_file_of(
    table: LoadedTable, file: NewFile, prefix: Location, keys: WriteRewrapper | None
) -> DataFile:
    location = Location.parse(file.path)
    if not prefix.contains(location) or location == prefix:
        raise LocationNotAllowed(
            f"The file is not below the directory of the write, {prefix.canonical}.",
            table=table.name,
            path=location.canonical,
            rule="write-prefix",
            hint="Write files below the directory in the answer that began the write.",
        )
    file_format = _FORMATS.get(file.file_format.lower())
    if file_format is None or file.content not in _CONTENTS:
        raise NotSupportedYet(
            f"A {file.file_format[:20]} file with content {file.content} cannot be committed. "
            "Supported: Parquet, ORC and Avro, data files and position delete files.",
            table=table.name,
            path=location.canonical,
            rule="file-format",
        )
    if min(file.record_count, file.file_size_in_bytes) < 0:
        raise RequestInvalid(
            f"The record count {file.record_count} or the file size {file.file_size_in_bytes} is negative.",
            table=table.name,
            path=location.canonical,
        )
    check_kind(file, table.name)
    spec = _spec(table.metadata, file, table.name)
    epoch = table.governed.epochs.current
    hidden = protected_fields(epoch.spec, epoch.columns) if file.content == _DATA else frozenset()
    data_file = DataFile.from_args(
        _FILE_VERSION,
        content=DataFileContent(file.content),
        file_path=file.path,
        file_format=file_format,
        partition=_partition(table, spec, file.partition),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=_shown(file.column_sizes, hidden),
        value_counts=_shown(file.value_counts, hidden),
        null_value_counts=_shown(file.null_value_counts, hidden),
        nan_value_counts=_shown(file.nan_value_counts, hidden),
        lower_bounds=_shown(file.lower_bounds, hidden) | path_bound(file, min),
        upper_bounds=_shown(file.upper_bounds, hidden) | path_bound(file, max),
        split_offsets=list(file.split_offsets) if file.split_offsets is not None else None,
        sort_order_id=file.sort_order_id,
        key_metadata=_key_metadata(table, file, keys),
        referenced_data_file=file.referenced_data_files[0] if len(file.referenced_data_files) == 1 else None,
    )
    data_file.spec_id = spec.spec_id
    return data_file


def _shown(statistics: Mapping[int, T], hidden: frozenset[int] | None) -> dict[int, T]:
    """Return statistics without those of encrypted fields. `hidden` is None if all fields are encrypted."""
    if hidden is None:
        return {}
    return {field_id: value for field_id, value in statistics.items() if field_id not in hidden}


def _known(table: LoadedTable, file: NewFile) -> dict[int, ColumnBounds]:
    """Collect the statistics of each column. The file's keys determine which columns are encrypted."""
    counts = (file.value_counts, file.null_value_counts, file.nan_value_counts)
    ends = (file.lower_bounds, file.upper_bounds)
    known = {}
    for field_id in set().union(*counts, *ends).intersection(table.metadata.schema().field_ids):
        values, nulls, nans = (each.get(field_id) for each in counts)
        known[field_id] = ColumnBounds(values, nulls, nans, *(each.get(field_id) for each in ends))
    return known


def _key_metadata(table: LoadedTable, file: NewFile, keys: WriteRewrapper | None) -> bytes | None:
    footer_digest = _footer_digest(file, table.name)
    if keys is None:
        if file.keys:
            raise EncryptionPolicyViolation(
                "The file has keys, but the table is in plaintext.",
                table=table.name,
                path=file.path,
                rule="plaintext-required",
            )
        return None
    if not file.keys:
        raise EncryptionPolicyViolation(
            "The file has no keys, but the table is encrypted.",
            table=table.name,
            path=file.path,
            rule="encryption-required",
            hint="Encrypt the file with a new data key, wrapped under the transport key of the write.",
        )
    spec = table.governed.spec
    _check_format(file, spec, table.name)
    digest = _digest(file, spec, table.name)
    metadata = keys.rewrap(
        file.path, file.keys, columns=_known(table, file), digest=digest, footer_digest=footer_digest
    )
    if any(entry.data_key_length != spec.data_key_length for entry in metadata.entries):
        raise EncryptionPolicyViolation(
            f"A data key does not have the {spec.data_key_length} bytes that "
            "encryption.data-key-length says.",
            table=table.name,
            path=file.path,
            rule="data-key-length",
        )
    return metadata.to_bytes()


def _check_format(file: NewFile, spec: EncryptionSpec, table: str) -> None:
    if file.file_format.lower() != spec.file_format:
        raise EncryptionPolicyViolation(
            f"The file format is {file.file_format[:20]}, but the table encrypts files in "
            f"{spec.file_format}.",
            table=table,
            path=file.path,
            rule="file-format",
            hint=f"Write the file in {spec.file_format}, or set {WRITE_FORMAT} first.",
        )


def _digest(file: NewFile, spec: EncryptionSpec, table: str) -> FileDigest | None:
    """Return the digest of the whole file if the table keeps digests."""
    if not spec.keeps_digests:
        return None
    if file.sha256 is None or len(file.sha256) != hashlib.sha256().digest_size:
        raise EncryptionPolicyViolation(
            "The commit gives no SHA-256 of the file, but encryption.verify-digest needs one.",
            table=table,
            path=file.path,
            rule="file-digest",
            hint="Hash the file's bytes as they are written, and give the digest as sha256.",
        )
    return FileDigest(file.file_size_in_bytes, file.sha256)


def _footer_digest(file: NewFile, table: str) -> FooterDigest | None:
    """Return the digest of the footer if the file has column keys."""
    length, sha256 = file.footer_bytes, file.footer_sha256
    keyed = file.file_format.lower() == "parquet" and any(key.label.field_ids for key in file.keys)
    if not keyed:
        if length is None and sha256 is None:
            return None
        raise _footer_refused(
            "The commit gives a footer digest, but the file has no column keys.", file, table
        )
    if length is None or sha256 is None:
        raise _footer_refused("The commit gives no footer digest, but the file has column keys.", file, table)
    possible = LEAST_FOOTER <= length <= file.file_size_in_bytes
    if not possible or len(sha256) != hashlib.sha256().digest_size:
        raise _footer_refused(
            "The footer digest does not have a possible length, or is not a SHA-256.", file, table
        )
    return FooterDigest(length, sha256)


def _footer_refused(message: str, file: NewFile, table: str) -> EncryptionPolicyViolation:
    return EncryptionPolicyViolation(
        message,
        table=table,
        path=file.path,
        rule="footer-digest",
        hint="Give footer-bytes and footer-sha256 for Parquet files with column keys, and for no "
        "other files.",
    )


def _spec(metadata: TableMetadata, file: NewFile, table: str) -> PartitionSpec:
    """Return the partition spec of a file: the current one, or for a delete file that of its data files."""
    earlier = metadata.specs().get(file.spec_id)
    if file.content != _DATA and earlier is not None:
        return earlier
    if file.spec_id != metadata.default_spec_id:
        raise CommitConflict(
            f"The file has the partition spec {file.spec_id}, but the table now has "
            f"{metadata.default_spec_id}.",
            table=table,
            hint="Begin a new write, and write the rows again.",
        )
    return metadata.spec()


def _partition(table: LoadedTable, spec: PartitionSpec, values: Mapping[str, object]) -> Record:
    partition_type = spec.partition_type(schema_of(spec, table.metadata))
    names = [each.name for each in partition_type.fields]
    if set(values) != set(names):
        raise RequestInvalid(
            f"The file has partition values for {sorted(values)}, but the spec has the fields {names}.",
            table=table.name,
            rule="partition",
        )
    try:
        return Record(
            *(
                stored_value(cast(PrimitiveType, each.field_type), values[each.name])
                for each in partition_type.fields
            )
        )
    except ValueError as error:
        raise RequestInvalid(
            "A partition value does not have the type of its field in the partition spec.",
            table=table.name,
            rule="partition",
        ) from error
