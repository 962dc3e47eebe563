"""Decodes manifests into Arrow (Iceberg table specification, "Manifests").

Rules:

- The result has the values of the file; nothing is inherited from the manifest list yet (see `inheritance`).
- Status, content and file format are values of the specification; counts and sizes are not negative; a data
  manifest lists only data files, a delete manifest only delete files.
- Statistics name a column once. They are claims of the writer, and are used only to skip files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import PrimitiveType

from catalog.base.cached import CachedProperty
from catalog.iceberg.avro.container import Block, Header, read_blocks
from catalog.iceberg.avro.limits import DEFAULT_LIMITS, DecodeLimits
from catalog.iceberg.avro.malformed import Malformed, invalid, naming
from catalog.iceberg.avro.records import DecodedRecord, open_container, read_records
from catalog.iceberg.avro.schema import Record, parse_json
from catalog.iceberg.manifests.checks import check_entries, check_statistics
from catalog.iceberg.manifests.column_types import NO_TYPES, column_types
from catalog.iceberg.manifests.manifest_list import ManifestContent
from catalog.iceberg.manifests.shapes import DATA_FILE, ENTRY, check_record
from catalog.iceberg.manifests.statistics import FieldStatistics, StatisticsLookup
from policy.errors import MetadataInvalid

_WHAT: Final = "The manifest"
#: Texts in headers that are known to be JSON: manifests of a table have the same ones.
_KEPT: Final = 64
_DATA_FILE_ID: Final = 2
_PARTITION_ID: Final = 102
_CONTENT: Final = {b"data": ManifestContent.DATA, b"deletes": ManifestContent.DELETES}

#: Columns of `DecodedManifest.entries`, without the partition; names as in the specification.
ENTRY_TYPES: Final[Mapping[str, pa.DataType]] = {
    "status": pa.int8(),
    "snapshot_id": pa.int64(),
    "sequence_number": pa.int64(),
    "file_sequence_number": pa.int64(),
    "content": pa.int8(),
    "file_path": pa.string(),
    "file_format": pa.string(),
    "record_count": pa.int64(),
    "file_size_in_bytes": pa.int64(),
    "key_metadata": pa.binary(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}
STATISTICS_TYPES: Final[Mapping[str, pa.DataType]] = {
    "column_sizes": pa.map_(pa.int32(), pa.int64()),
    "value_counts": pa.map_(pa.int32(), pa.int64()),
    "null_value_counts": pa.map_(pa.int32(), pa.int64()),
    "nan_value_counts": pa.map_(pa.int32(), pa.int64()),
    "lower_bounds": pa.map_(pa.int32(), pa.binary()),
    "upper_bounds": pa.map_(pa.int32(), pa.binary()),
}


@dataclass(frozen=True, slots=True)
class ManifestHeader:
    """The header of a manifest, from its file metadata.

    Attributes:
        partition_spec_id: id of the partition spec, or None.
        content: data or deletes.
    """

    partition_spec_id: int | None
    content: ManifestContent


class DecodedManifest:
    """A decoded manifest in Arrow.

    Args:
        header: its header.
        entries: one row per entry; columns as in `ENTRY_TYPES`, and `partition`, a struct whose fields have
            their partition field id in the metadata key ``field-id``.
        statistics: of the same rows, as maps by column id; columns as in `STATISTICS_TYPES`.
        types: by column id the types that the manifest states in its header.
    """

    def __init__(
        self,
        header: ManifestHeader,
        entries: pa.Table,
        statistics: pa.Table,
        types: Mapping[int, PrimitiveType] = NO_TYPES,
    ) -> None:
        self.header = header
        self.types = types
        self._entries = entries
        self._statistics = statistics

    @property
    def entries(self) -> pa.Table:
        """Return the entries."""
        return self._entries

    @property
    def statistics(self) -> pa.Table:
        """Return their statistics as maps."""
        return self._statistics

    @property
    def nbytes(self) -> int:
        """Return the size of the Arrow columns in bytes."""
        return int(self._entries.nbytes + self._statistics.nbytes)

    def __len__(self) -> int:
        """Return the number of entries."""
        return int(self._entries.num_rows)

    def stats(self, field_ids: frozenset[int]) -> Mapping[int, FieldStatistics]:
        """Return the statistics of some columns as arrays: one value per entry, null if there is none."""
        return self._lookup.of(field_ids) if field_ids else {}

    @CachedProperty
    def _lookup(self) -> StatisticsLookup:
        """Return what finds statistics: plans of one manifest ask for them again and again."""
        return StatisticsLookup(self._statistics)


def decode_manifest(data: bytes, *, path: str, limits: DecodeLimits = DEFAULT_LIMITS) -> DecodedManifest:
    """Decode a manifest from untrusted bytes.

    Args:
        data: the whole file.
        path: its location, for the error.
        limits: bounds.

    Raises:
        MetadataInvalid: the bytes are malformed, or break a limit.
    """
    with naming(path, _WHAT):
        return _decode([_open(data, limits)], limits)[0]


def decode_manifests(
    files: Sequence[tuple[str, bytes]], limits: DecodeLimits = DEFAULT_LIMITS
) -> Iterator[tuple[int, DecodedManifest | MetadataInvalid]]:
    """Decode several manifests, those that have the same Avro schema together.

    Small ones are decoded several times as fast as one by one.

    Args:
        files: path and bytes of each. The caller bounds how many bytes they have in all.
        limits: bounds of each. `max_decoded_bytes` also bounds those that are decoded together.

    Yields:
        the index of a file, and what `decode_manifest` returns for it or the error that it raises.
    """
    alike: dict[tuple[bytes | None, ManifestContent], list[tuple[int, _Opened]]] = {}
    for index, (path, data) in enumerate(files):
        try:
            opened = _open(data, limits)
        except Malformed as problem:
            yield index, invalid(path, _WHAT, problem)
            continue
        alike.setdefault((opened.schema_text, opened.header.content), []).append((index, opened))
    for group in alike.values():
        for index, decoded in _decode_alike(group, limits):
            path = files[index][0]
            yield index, invalid(path, _WHAT, decoded) if isinstance(decoded, Malformed) else decoded


@dataclass(frozen=True, slots=True)
class _Opened:
    """A manifest whose header was read."""

    data: bytes
    container: Header
    schema: Record
    header: ManifestHeader
    types: Mapping[int, PrimitiveType]

    @property
    def schema_text(self) -> bytes | None:
        return self.container.metadata.get("avro.schema")


def _open(data: bytes, limits: DecodeLimits) -> _Opened:
    container, schema = open_container(data, limits)
    header, types = _header(container.metadata)
    _check_schema(schema)
    return _Opened(data, container, schema, header, types)


def _decode_alike(
    group: Sequence[tuple[int, _Opened]], limits: DecodeLimits
) -> Iterator[tuple[int, DecodedManifest | Malformed]]:
    """Decode manifests together; if that fails, one by one, so that only the malformed ones fail."""
    try:
        decoded = _decode([opened for _, opened in group], limits)
    except Malformed as problem:
        if len(group) == 1:
            yield group[0][0], problem
            return
        for each in group:
            yield from _decode_alike([each], limits)
        return
    yield from ((index, each) for (index, _), each in zip(group, decoded, strict=True))


def _decode(opened: Sequence[_Opened], limits: DecodeLimits) -> list[DecodedManifest]:
    """Decode manifests with one Avro schema and one kind of content.

    Raises:
        Malformed: one of them is malformed, or they break a limit.
    """
    counts = [0] * len(opened)
    chunks = []
    left = limits.max_decoded_bytes
    for records in read_records(_blocks(opened, counts, limits), opened[0].schema):
        chunk = _entries(records), _statistics(records.record(_DATA_FILE_ID))
        left -= chunk[0].nbytes + chunk[1].nbytes
        if left < 0:
            raise Malformed("decoded-size", f"it decodes to more than {limits.max_decoded_bytes} bytes")
        chunks.append(chunk)
    chunks = chunks or [_empty()]
    entries = pa.concat_tables([entries for entries, _ in chunks]).combine_chunks()
    statistics = pa.concat_tables([statistics for _, statistics in chunks]).combine_chunks()
    check_entries(entries, opened[0].header.content)
    check_statistics(statistics)
    starts = accumulate(counts, initial=0)
    return [
        DecodedManifest(each.header, entries.slice(start, count), statistics.slice(start, count), each.types)
        for each, start, count in zip(opened, starts, counts, strict=False)
    ]


def _blocks(opened: Sequence[_Opened], counts: list[int], limits: DecodeLimits) -> Iterator[Block]:
    """Read the blocks of manifests, and count the entries of each."""
    for index, each in enumerate(opened):
        for block in read_blocks(each.data, each.container, limits):
            counts[index] += block.entries
            yield block


def _header(metadata: Mapping[str, bytes]) -> tuple[ManifestHeader, Mapping[int, PrimitiveType]]:
    content = _CONTENT.get(metadata.get("content", b"data"))
    if content is None:
        raise Malformed("content", "the content in its header must be data or deletes")
    _number(metadata, "format-version")
    types = NO_TYPES
    if (text := metadata.get("schema")) is not None:
        types = _types(text)
    if (text := metadata.get("partition-spec")) is not None:
        _checked_json(text, "partition-spec", list)
    return ManifestHeader(_number(metadata, "partition-spec-id"), content), types


@lru_cache(maxsize=_KEPT)
def _types(text: bytes) -> Mapping[int, PrimitiveType]:
    return column_types(_checked_json(text, "schema", dict))


@lru_cache(maxsize=_KEPT)
def _checked_json(text: bytes, name: str, kind: type) -> Any:
    parsed = parse_json(text, f"The entry {name} of its header")
    if not isinstance(parsed, kind):
        raise Malformed("header", f"the entry {name} of its header has an unexpected JSON type")
    return parsed


def _number(metadata: Mapping[str, bytes], name: str) -> int | None:
    text = metadata.get(name)
    if text is None:
        return None
    if not (text.isdigit() and len(text) <= 9):
        raise Malformed("header", f"the entry {name} of its header is not a small integer")
    return int(text)


def _check_schema(schema: Record) -> None:
    entry = check_record(schema, ENTRY)
    data_file = next(field.node for field in entry.fields if field.field_id == _DATA_FILE_ID)
    check_record(data_file, DATA_FILE)


def _entries(records: DecodedRecord) -> pa.Table:
    data_file = records.record(_DATA_FILE_ID)
    partition = data_file.record(_PARTITION_ID)
    arrays = {shape.name: _array(records, field_id, shape.name) for field_id, shape in ENTRY.items()}
    arrays |= {shape.name: _array(data_file, field_id, shape.name) for field_id, shape in DATA_FILE.items()}
    columns = {name: arrays[name] for name in ENTRY_TYPES}
    columns["content"] = pc.fill_null(columns["content"], int(ManifestContent.DATA))
    struct = records.arrow.partition(partition.schema.fields, partition.parts, records.count)
    return pa.table({**columns, "partition": struct})


def _statistics(data_file: DecodedRecord) -> pa.Table:
    named = {shape.name: field_id for field_id, shape in DATA_FILE.items()}
    return pa.table({name: _map(data_file, named[name], kind) for name, kind in STATISTICS_TYPES.items()})


def _array(records: DecodedRecord, field_id: int, name: str) -> pa.Array | None:
    kind = ENTRY_TYPES.get(name)
    if kind is None:
        return None
    column = records.column(field_id)
    if column is None:
        return pa.nulls(records.count, kind)
    if pa.types.is_list(kind):
        return records.arrow.list_of(column, kind.value_type)
    if pa.types.is_string(kind):
        return records.arrow.text(column)
    return records.arrow.binary(column) if pa.types.is_binary(kind) else records.arrow.numbers(column, kind)


def _map(data_file: DecodedRecord, field_id: int, kind: pa.DataType) -> pa.Array:
    column = data_file.column(field_id)
    if column is None:
        return pa.nulls(data_file.count, kind)
    return data_file.arrow.map_of(column, "bytes" if pa.types.is_binary(kind.item_type) else "long")


def _empty() -> tuple[pa.Table, pa.Table]:
    """Return the tables of a manifest without entries; its partition has no typed fields."""
    entries = pa.schema([*ENTRY_TYPES.items(), ("partition", pa.struct([]))])
    return entries.empty_table(), pa.schema(list(STATISTICS_TYPES.items())).empty_table()
