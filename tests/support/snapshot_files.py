"""Manifests and manifest lists of the snapshot model, byte by byte: whatever they say, true or not.

They are written with fastavro after the schemas of the specification, so that a forged one differs from an
honest one in what it says alone.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any, Final

import fastavro
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from tests.support.snapshot_model import DELETES, File, Listed, Manifest, Row, Snap, Summary

_MAPS: Final = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)
_COUNTS: Final = ("added", "existing", "deleted")
#: What the specification has since version 2, and pyiceberg in version 3 alone.
_POSITIONS: Final = frozenset({143, 144, 145})


class Writer:
    """Writes and reads the files of one table.

    Args:
        schema: the table's.
        specs: its partition specs by id.
    """

    def __init__(self, schema: Schema, specs: dict[int, PartitionSpec]) -> None:
        self._schema = schema
        self._specs = specs

    def manifest(self, path: str, spec: int, content: int, entries: tuple[Row, ...]) -> Manifest:
        """Write a manifest."""
        fields = self._specs[spec]
        header = {
            "schema": self._schema.model_dump_json(),
            "partition-spec": "[" + ",".join(each.model_dump_json() for each in fields.fields) + "]",
            "partition-spec-id": str(spec),
            "format-version": "2",
            "content": "deletes" if content == DELETES else "data",
        }
        names = [each.name for each in fields.fields]
        schema = _manifest_schema(fields.partition_type(self._schema).model_dump_json())
        length = _write(path, schema, [_entry(row, names) for row in entries], header)
        return Manifest(path, length, spec, content, entries)

    def read(self, path: str, spec: int, content: int) -> Manifest:
        """Read a manifest that another writer wrote."""
        names = [each.name for each in self._specs[spec].fields]
        file = local(path)
        with file.open("rb") as opened:
            entries = tuple(_row(each, names) for each in fastavro.reader(opened))
        return Manifest(path, file.stat().st_size, spec, content, entries)


def write_list(snapshot: Snap) -> None:
    """Write a snapshot's manifest list."""
    header = {"snapshot-id": str(snapshot.id), "sequence-number": str(snapshot.number), "format-version": "2"}
    header["parent-snapshot-id"] = "null" if snapshot.parent is None else str(snapshot.parent)
    _write(snapshot.list_path, _list_schema(), [_listed(each) for each in snapshot.listed], header)


def read_list(path: str) -> tuple[Listed, ...]:
    """Read a manifest list that another writer wrote; what it says of partitions is left as bytes."""
    with local(path).open("rb") as opened:
        return tuple(_told(each) for each in fastavro.reader(opened))


def stored(value: Any) -> bytes | None:
    """A partition value as a list has it (Iceberg specification, "Binary single-value serialization")."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else int(value).to_bytes(8, "little", signed=True)


def _write(path: str, schema: Any, records: list[dict[str, Any]], header: dict[str, str]) -> int:
    file = local(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        fastavro.writer(opened, schema, records, codec="null", metadata=header)
    return file.stat().st_size


def _entry(row: Row, names: list[str]) -> dict[str, Any]:
    file = row.file
    stats = dict(file.stats)
    data_file = {
        "content": file.content,
        "file_path": file.path,
        "file_format": file.format,
        "partition": dict(zip(names, file.partition, strict=True)),
        "record_count": file.records,
        "file_size_in_bytes": file.size,
        "key_metadata": file.key,
        "split_offsets": None if file.offsets is None else list(file.offsets),
        "equality_ids": None if file.equality_ids is None else list(file.equality_ids),
        "referenced_data_file": file.referenced,
    }
    for name in _MAPS:
        pairs = stats.get(name)
        data_file[name] = None if pairs is None else [{"key": key, "value": value} for key, value in pairs]
    return {
        "status": row.status,
        "snapshot_id": row.snapshot_id,
        "sequence_number": row.number,
        "file_sequence_number": row.file_number,
        "data_file": data_file,
    }


def _row(entry: Any, names: list[str]) -> Row:
    told = entry["data_file"]
    stats = tuple(
        (name, tuple((pair["key"], pair["value"]) for pair in told[name]))
        for name in _MAPS
        if told.get(name) is not None
    )
    offsets, equality = told.get("split_offsets"), told.get("equality_ids")
    file = File(
        path=told["file_path"],
        content=told["content"],
        format=told["file_format"],
        partition=tuple(told["partition"][name] for name in names),
        records=told["record_count"],
        size=told["file_size_in_bytes"],
        key=told.get("key_metadata"),
        offsets=None if offsets is None else tuple(offsets),
        equality_ids=None if equality is None else tuple(equality),
        referenced=told.get("referenced_data_file"),
        stats=stats,
    )
    numbers = (entry["sequence_number"], entry["file_sequence_number"])
    return Row(entry["status"], file, entry["snapshot_id"], *numbers)


def _listed(listed: Listed) -> dict[str, Any]:
    told: dict[str, Any] = {
        "manifest_path": listed.path,
        "manifest_length": listed.length,
        "partition_spec_id": listed.spec,
        "content": listed.content,
        "sequence_number": listed.number,
        "min_sequence_number": listed.min_number,
        "added_snapshot_id": listed.snapshot_id,
        "partitions": None,
    }
    for kind, files, rows in zip(_COUNTS, listed.files, listed.rows, strict=True):
        told |= {f"{kind}_files_count": files, f"{kind}_rows_count": rows}
    if listed.summaries is not None:
        told["partitions"] = [
            {
                "contains_null": each.has_null,
                "contains_nan": False,
                "lower_bound": stored(each.lower),
                "upper_bound": stored(each.upper),
            }
            for each in listed.summaries
        ]
    return told


def _told(record: Any) -> Listed:
    summaries = record["partitions"]
    return Listed(
        path=record["manifest_path"],
        length=record["manifest_length"],
        spec=record["partition_spec_id"],
        content=record["content"],
        number=record["sequence_number"],
        min_number=record["min_sequence_number"],
        snapshot_id=record["added_snapshot_id"],
        files=tuple(record[f"{kind}_files_count"] for kind in _COUNTS),
        rows=tuple(record[f"{kind}_rows_count"] for kind in _COUNTS),
        summaries=None
        if summaries is None
        else tuple(
            Summary(each["contains_null"], each["lower_bound"], each["upper_bound"]) for each in summaries
        ),
    )


@cache
def _manifest_schema(partition: str) -> Any:
    """The Avro schema of version 2's manifests, with the fields that pyiceberg writes in version 3 alone."""
    kept = {each.field_id for each in DATA_FILE_TYPE[2].fields} | _POSITIONS
    file = data_file_with_partition(StructType.model_validate_json(partition), format_version=3)
    fields = StructType(*(each for each in file.fields if each.field_id in kept))
    assert 2 in MANIFEST_ENTRY_SCHEMAS
    entry = manifest_entry_schema_with_data_file(2, fields)
    return _parsed(AvroSchemaConversion().iceberg_to_avro(entry, schema_name="manifest_entry"))


@cache
def _list_schema() -> Any:
    schema = MANIFEST_LIST_FILE_SCHEMAS[2]
    return _parsed(AvroSchemaConversion().iceberg_to_avro(schema, schema_name="manifest_file"))


def _parsed(schema: Any) -> Any:
    return fastavro.parse_schema(copy.deepcopy(schema))


def local(location: str) -> Path:
    """The local file of a location, however it is spelled."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))
