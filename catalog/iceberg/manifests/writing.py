"""Writes manifests and manifest lists of format version 2, as bytes.

Source: Iceberg table specification, "Manifests", "Manifest Lists"; Avro specification, "Object Container
Files".
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

from pydantic_core import to_json
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    ManifestEntry,
    ManifestEntryStatus,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from catalog.iceberg.manifests.manifest_list import ManifestContent, ManifestListEntry, PartitionSummary
from catalog.iceberg.metadata import ROW_IDS_VERSION, WRITTEN_FORMAT_VERSION

#: Maximum number of entries in a block.
_BLOCK: Final = 1_000
_LISTED: Final = MANIFEST_LIST_FILE_SCHEMAS[WRITTEN_FORMAT_VERSION]
#: Ids of `first_row_id`, `content_offset` and `content_size_in_bytes`, which version 2 does not have.
_SINCE_3: Final = frozenset({142, 144, 145})
#: The maximum number of manifests whose encoded records are remembered, and of partition types.
_RECORDS: Final = 20_000
_PARTITION_TYPES: Final = 256


@dataclass(frozen=True, slots=True)
class _Form:
    """How records are encoded.

    Attributes:
        schema: the Avro schema, as JSON.
        writer: encodes a record.
    """

    schema: str
    writer: Writer

    @classmethod
    def of(cls, stored: Schema, name: str, writer: Writer) -> _Form:
        """Return the form of records that are stored by an Iceberg schema."""
        return cls(json.dumps(AvroSchemaConversion().iceberg_to_avro(stored, schema_name=name)), writer)

    def encoded(self, record: Any) -> bytes:
        """Return the bytes of a record."""
        block = BytesIO()
        self.writer.write(BinaryEncoder(block), record)
        return block.getvalue()


_LIST_FORM: Final = _Form.of(_LISTED, "manifest_file", construct_writer(_LISTED))
_HEADER_WRITER: Final = construct_writer(META_SCHEMA)


def encode_manifest(metadata: TableMetadata, entries: Sequence[ManifestEntry]) -> bytes:
    """Encode a manifest.

    Args:
        metadata: of the table.
        entries: data files or delete files of one partition spec; with the fields of `DataFile` that format
            version 3 has.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: a value does not have the type of its field.
    """
    content, spec = _common(metadata, entries)
    schema = schema_of(spec, metadata)
    header = {
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "partition-spec": to_json(spec.fields).decode(),
        "partition-spec-id": str(spec.spec_id),
        "content": content.name.lower(),
    }
    form = _manifest_form(spec.partition_type(schema))
    return _container(form, header, [form.encoded(each) for each in entries])


def describe_manifest(
    metadata: TableMetadata,
    entries: Sequence[ManifestEntry],
    path: str,
    length: int,
    snapshot_id: int,
    sequence_number: int,
) -> ManifestListEntry:
    """Return the record of a manifest in the manifest list of the snapshot that adds it."""
    content, spec = _common(metadata, entries)
    counts: dict[str, int] = {}
    for status in ManifestEntryStatus:
        rows = [each.data_file.record_count for each in entries if each.status is status]
        name = status.name.lower()
        counts |= {f"{name}_files_count": len(rows), f"{name}_rows_count": sum(rows)}
    live = (each.sequence_number for each in entries if each.status is not ManifestEntryStatus.DELETED)
    numbers = (sequence_number if each is None else each for each in live)
    partitions = [each.data_file.partition for each in entries]
    summaries = construct_partition_summaries(spec, schema_of(spec, metadata), partitions)
    return ManifestListEntry(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=content,
        sequence_number=sequence_number,
        min_sequence_number=min(numbers, default=sequence_number),
        added_snapshot_id=snapshot_id,
        partitions=tuple(PartitionSummary(*_values(each)) for each in summaries),
        key_metadata=None,
        first_row_id=None,
        **counts,
    )


def encode_manifest_list(
    listed: Sequence[ManifestListEntry], snapshot_id: int, parent_id: int | None, sequence_number: int
) -> bytes:
    """Encode the manifest list of a snapshot.

    Raises:
        TypeError: a record has no count, which is possible in version 1.
    """
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(sequence_number),
    }
    return _container(_LIST_FORM, header, [_listed(each) for each in listed])


def schema_of(spec: PartitionSpec, metadata: TableMetadata) -> Schema:
    """Return the current schema, or the last one that has all source columns of the spec if it lacks one."""
    sources = {each.source_id for each in spec.fields}
    known = (metadata.schema(), *reversed(metadata.schemas))
    return next((each for each in known if sources <= set(each.field_ids)), metadata.schema())


def _common(
    metadata: TableMetadata, entries: Sequence[ManifestEntry]
) -> tuple[ManifestContent, PartitionSpec]:
    file = entries[0].data_file
    is_data = file.content is DataFileContent.DATA
    return ManifestContent.DATA if is_data else ManifestContent.DELETES, metadata.specs()[file.spec_id]


@lru_cache(maxsize=_PARTITION_TYPES)
def _manifest_form(partition: StructType) -> _Form:
    """Return the form of manifest entries, which follows from the type of their partition values."""
    data_file = data_file_with_partition(partition, ROW_IDS_VERSION)
    stored = StructType(*(each for each in data_file.fields if each.field_id not in _SINCE_3))
    in_memory, in_file = (
        manifest_entry_schema_with_data_file(WRITTEN_FORMAT_VERSION, each) for each in (data_file, stored)
    )
    return _Form.of(in_file, "manifest_entry", resolve_writer(in_memory, in_file))


@lru_cache(maxsize=_RECORDS)
def _listed(listed: ManifestListEntry) -> bytes:
    """Encode the record of a manifest. Each snapshot lists most manifests of its parent again."""
    values = {field.name: getattr(listed, field.name) for field in _LISTED.fields}
    if listed.partitions is not None:
        values["partitions"] = [_values(each) for each in listed.partitions]
    return _LIST_FORM.encoded(tuple(values.values()))


def _values(summary: Any) -> tuple[Any, ...]:
    return summary.contains_null, summary.contains_nan, summary.lower_bound, summary.upper_bound


def _container(form: _Form, header: Mapping[str, str], records: Sequence[bytes]) -> bytes:
    """Return an Avro file of encoded records."""
    own = {"format-version": str(WRITTEN_FORMAT_VERSION), "avro.schema": form.schema, "avro.codec": "deflate"}
    file, sync = BytesIO(), os.urandom(SYNC_SIZE)
    encoder = BinaryEncoder(file)
    _HEADER_WRITER.write(encoder, (MAGIC, {**header, **own}, sync))
    for first in range(0, len(records), _BLOCK):
        some = records[first : first + _BLOCK]
        encoder.write_int(len(some))
        encoder.write_bytes(zlib.compress(b"".join(some), wbits=-zlib.MAX_WBITS))
        encoder.write(sync)
    return file.getvalue()
