"""Writes manifests and manifest lists of format version 2, as bytes.

Source: Iceberg table specification, "Manifests", "Manifest Lists"; Avro specification, "Object Container
Files".
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

from pydantic_core import to_json
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE
from pyiceberg.avro.resolver import construct_writer, resolve_writer
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
    data_file = data_file_with_partition(spec.partition_type(schema), ROW_IDS_VERSION)
    stored = StructType(*(each for each in data_file.fields if each.field_id not in _SINCE_3))
    in_memory, in_file = (
        manifest_entry_schema_with_data_file(WRITTEN_FORMAT_VERSION, each) for each in (data_file, stored)
    )
    header = {
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "partition-spec": to_json(spec.fields).decode(),
        "partition-spec-id": str(spec.spec_id),
        "content": content.name.lower(),
    }
    return _encoded(in_file, "manifest_entry", header, entries, in_memory)


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
    return _encoded(_LISTED, "manifest_file", header, [_record(each) for each in listed])


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


def _record(listed: ManifestListEntry) -> tuple[object, ...]:
    values = {field.name: getattr(listed, field.name) for field in _LISTED.fields}
    if listed.partitions is not None:
        values["partitions"] = [_values(each) for each in listed.partitions]
    return tuple(values.values())


def _values(summary: Any) -> tuple[Any, ...]:
    return summary.contains_null, summary.contains_nan, summary.lower_bound, summary.upper_bound


def _encoded(
    schema: Schema, name: str, header: Mapping[str, str], records: Sequence[Any], held: Schema | None = None
) -> bytes:
    """Encode an Avro file; `held` is the schema of the records in memory, if it differs."""
    avro = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)
    own = {"format-version": str(WRITTEN_FORMAT_VERSION), "avro.schema": json.dumps(avro)}
    writer = construct_writer(schema) if held is None else resolve_writer(held, schema)
    file, sync = BytesIO(), os.urandom(SYNC_SIZE)
    encoder = BinaryEncoder(file)
    construct_writer(META_SCHEMA).write(encoder, (MAGIC, {**header, **own, "avro.codec": "deflate"}, sync))
    for first in range(0, len(records), _BLOCK):
        some, block = records[first : first + _BLOCK], BytesIO()
        for record in some:
            writer.write(BinaryEncoder(block), record)
        encoder.write_int(len(some))
        encoder.write_bytes(zlib.compress(block.getvalue(), wbits=-zlib.MAX_WBITS))
        encoder.write(sync)
    return file.getvalue()
