"""Manifests and manifest lists for tests: written by pyiceberg, or put together byte by byte."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "ts", TimestampType()),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"),
    PartitionField(3, 1001, DayTransform(), "day"),
    spec_id=3,
)
SNAPSHOT = 777
SYNC = b"0123456789abcdef"


def long_bytes(value: int) -> bytes:
    return int(value).to_bytes(8, "little", signed=True)


def sample_file(number: int, **changes: Any) -> DataFile:
    """A data file with every kind of value; every third one without statistics and with nulls."""
    full = number % 3 != 2
    values: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": f"s3://lake/t/data/région={number}/{number:05}.parquet",
        "file_format": FileFormat.PARQUET,
        "partition": Record("eu" if number % 2 else None, 19000 + number % 5),
        "record_count": 100 + number,
        "file_size_in_bytes": 5000 + number,
        "column_sizes": {1: 10, 2: 200} if full else None,
        "value_counts": {1: 100, 2: 100, 3: 100} if full else None,
        "null_value_counts": {1: 0, 2: number} if full else None,
        "nan_value_counts": {} if full else None,
        "lower_bounds": {1: long_bytes(number), 2: b"a" * (number % 90)} if full else None,
        "upper_bounds": {1: long_bytes(number + 9), 2: b"b"} if full else None,
        "key_metadata": b"\xa1key%d" % number if number % 2 else None,
        "split_offsets": [4, 1 << 40] if full else None,
        "equality_ids": None,
        "sort_order_id": 0 if full else None,
    }
    return DataFile.from_args(**values | changes)


def write_sample(
    directory: Path,
    count: int,
    codec: str = "deflate",
    *,
    schema: Schema = SCHEMA,
    spec: PartitionSpec = SPEC,
    files: Iterable[DataFile] | None = None,
    version: Any = 2,
) -> tuple[bytes, ManifestFile]:
    """A manifest of added files as pyiceberg writes it: one block an entry."""
    path = directory / f"{codec}-{count}-{version}.avro"
    codec_name: Any = codec
    with write_manifest(
        version, spec, schema, PyArrowFileIO().new_output(str(path)), SNAPSHOT, codec_name
    ) as writer:
        for file in files if files is not None else map(sample_file, range(count)):
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=SNAPSHOT, data_file=file
                )
            )
    return path.read_bytes(), writer.to_manifest_file()


def write_sample_list(directory: Path, manifests: Sequence[ManifestFile], version: Any = 2) -> bytes:
    """A manifest list as pyiceberg writes it."""
    path = directory / f"list-{version}.avro"
    output = PyArrowFileIO().new_output(str(path))
    with write_manifest_list(version, output, SNAPSHOT, None, 5, "deflate") as writer:
        writer.add_manifests(list(manifests))
    return path.read_bytes()


def zigzag(number: int) -> bytes:
    """A number as Avro writes it."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return zigzag(len(raw)) + raw


def container(
    schema: object, blocks: Iterable[tuple[int, bytes]], /, *, sync: bytes = SYNC, **metadata: str
) -> bytes:
    """An Avro container file of blocks (count, stored bytes); ``_`` in a name is a hyphen, ``__`` a dot."""
    entries = {"avro.schema": json.dumps(schema), "avro.codec": "null"}
    entries |= {name.replace("__", ".").replace("_", "-"): value for name, value in metadata.items()}
    header = b"Obj\x01" + zigzag(len(entries))
    header += b"".join(text(name) + text(value) for name, value in entries.items()) + b"\x00" + SYNC
    return header + b"".join(zigzag(n) + zigzag(len(raw)) + raw + sync for n, raw in blocks)


def field(name: str, field_id: int, kind: object) -> dict[str, object]:
    return {"name": name, "field-id": field_id, "type": kind}


def entry_schema(*extra: dict[str, object], **replaced: object) -> dict[str, object]:
    """The Avro schema of a small manifest; `replaced` gives other types by field name."""
    data_file = [
        field("file_path", 100, "string"),
        field("file_format", 101, "string"),
        field("partition", 102, {"type": "record", "name": "r102", "fields": []}),
        field("record_count", 103, "long"),
        field("file_size_in_bytes", 104, "long"),
        *extra,
    ]
    for each in data_file:
        each["type"] = replaced.pop(str(each["name"]), each["type"])
    record = {"type": "record", "name": "r2", "fields": data_file}
    outer = [field("status", 0, replaced.pop("status", "int")), field("data_file", 2, record)]
    assert not replaced
    return {"type": "record", "name": "manifest_entry", "fields": outer}


def entry_bytes(
    tail: bytes = b"",
    *,
    status: int = 1,
    path: str | bytes = "s3://lake/a",
    kind: str = "parquet",
    records: int = 1,
    size: int = 1,
) -> bytes:
    """One entry of `entry_schema`, with the bytes of its extra fields."""
    return zigzag(status) + text(path) + text(kind) + zigzag(records) + zigzag(size) + tail


def counts_type(key: int = 119, value: int = 120, of: object = "long") -> dict[str, object]:
    """The type of a map of column ids."""
    fields = [field("key", key, "int"), field("value", value, of)]
    return {
        "type": "array",
        "logicalType": "map",
        "items": {"type": "record", "name": f"k{key}", "fields": fields},
    }


def in_large_blocks(data: bytes, codec: str = "deflate", interval: int = 2000) -> bytes:
    """The same manifest with many entries a block, as other writers lay it out."""
    reader = fastavro.reader(io.BytesIO(data))
    records = list(reader)
    metadata = {name: value for name, value in reader.metadata.items() if not name.startswith("avro")}
    out = io.BytesIO()
    schema: Any = reader.writer_schema
    fastavro.writer(out, schema, records, codec=codec, metadata=metadata, sync_interval=interval)
    return out.getvalue()


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()
