"""Defines the columns of metadata tables: names, types, order and comments are Iceberg's.

A column that Iceberg requires is optional where it is hidden from the user. Field ids only number the
columns: nothing finds a column by them.

Source: Apache Iceberg, the classes of package `org.apache.iceberg` that extend `BaseMetadataTable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
)

from catalog.metadata_tables.kinds import MetadataTable

#: The columns of the position and the path in position delete files.
POSITION_ID: Final = 2147483545
PATH_ID: Final = 2147483546
#: Parts of a column's readable metrics; the bounds have the column's type.
COUNTS: Final = ("column_size", "value_count", "null_value_count", "nan_value_count")
BOUNDS: Final = ("lower_bound", "upper_bound")

_INT: Final = IntegerType()
_LONG: Final = LongType()
_TEXT: Final = StringType()
_TIME: Final = TimestamptzType()
_BYTES: Final = BinaryType()


class _Fields:
    """Numbers fields as they are made."""

    def __init__(self) -> None:
        self._ids = count(1)

    def required(self, name: str, kind: IcebergType, doc: str | None = None) -> NestedField:
        return NestedField(next(self._ids), name, kind, required=True, doc=doc)

    def optional(self, name: str, kind: IcebergType, doc: str | None = None) -> NestedField:
        return NestedField(next(self._ids), name, kind, required=False, doc=doc)

    def column(self, name: str, kind: IcebergType, doc: str | None = None, *, shown: bool) -> NestedField:
        """A column that Iceberg requires."""
        return NestedField(next(self._ids), name, kind, required=shown, doc=doc)

    def map_of(self, key: IcebergType, value: IcebergType) -> MapType:
        return MapType(next(self._ids), key, next(self._ids), value, value_required=True)

    def list_of(self, element: IcebergType) -> ListType:
        return ListType(next(self._ids), element, element_required=True)

    def renumbered(self, struct: StructType) -> StructType:
        return StructType(*(self.optional(each.name, each.field_type, each.doc) for each in struct.fields))


def schema_of(kind: MetadataTable, metadata: TableMetadata, *, paths: bool, sources: bool) -> StructType:
    """Return the columns of a metadata table.

    Args:
        kind: the metadata table.
        metadata: of the table.
        paths: whether the user sees the paths of files.
        sources: whether the user sees all columns that the table is or was partitioned by.
    """
    fields = _Fields()
    match kind:
        case MetadataTable.SNAPSHOTS:
            return StructType(*_snapshots(fields))
        case MetadataTable.HISTORY:
            return StructType(*_history(fields))
        case MetadataTable.REFS:
            return StructType(*_refs(fields))
        case MetadataTable.METADATA_LOG_ENTRIES:
            return StructType(*_log(fields))
        case MetadataTable.MANIFESTS:
            return StructType(*_manifests(fields, sources=sources))
        case MetadataTable.ALL_MANIFESTS:
            return StructType(*_all_manifests(fields, sources=sources))
        case MetadataTable.PARTITIONS:
            return StructType(*_partitions(fields, metadata))
        case MetadataTable.POSITION_DELETES:
            return StructType(*_position_deletes(fields, metadata))
        case MetadataTable.ENTRIES | MetadataTable.ALL_ENTRIES:
            return StructType(*_entries(fields, metadata, paths=paths))
        case _:
            return StructType(*_files(fields, metadata, paths=paths), _readable(fields, metadata))


def partition_fields(metadata: TableMetadata) -> dict[int, NestedField]:
    """Return the partition fields of all specs, by id: the struct `partition`.

    The name is that of the newest spec; an older field that had the same name gets its id behind it, as in
    tables of version 1. Fields of columns that were dropped are left out.

    Source: Apache Iceberg, `Partitioning.partitionType`.
    """
    schema = metadata.schema()
    held = set(schema.field_ids)
    found: dict[int, NestedField] = {}
    void: set[int] = set()
    for spec in sorted(metadata.partition_specs, key=lambda each: -each.spec_id):
        kinds = {each.field_id: each for each in spec.partition_type(schema).fields}
        for field in spec.fields:
            if field.source_id not in held or isinstance(field.transform, UnknownTransform):
                continue
            kind, known = kinds[field.field_id].field_type, found.get(field.field_id)
            if known is None or (field.field_id in void and not isinstance(field.transform, VoidTransform)):
                name = field.name if known is None else known.name
                found[field.field_id] = NestedField(field.field_id, name, kind, required=False)
                void.discard(field.field_id)
                if isinstance(field.transform, VoidTransform):
                    void.add(field.field_id)
    return dict(sorted(_named_apart(found)))


def _named_apart(fields: Mapping[int, NestedField]) -> Iterator[tuple[int, NestedField]]:
    """Yield fields, newest first, each with a name of its own."""
    used = {each.name for each in fields.values()}
    seen: set[str] = set()
    for number, field in fields.items():
        name = field.name
        if name in seen:
            while name in used:
                name = f"{name}_{number}"
            used.add(name)
        seen.add(name)
        yield number, NestedField(number, name, field.field_type, required=False)


def sources_of(specs: Iterable[PartitionSpec]) -> dict[int, frozenset[int]]:
    """Return the columns that each partition field is made from, by the field's id.

    There are several if specs give one id to different fields, which version 1 of the format did not forbid.
    """
    found: dict[int, frozenset[int]] = {}
    for spec in specs:
        for field in spec.fields:
            found[field.field_id] = found.get(field.field_id, frozenset()) | {field.source_id}
    return found


def measured_columns(schema: Schema) -> dict[str, NestedField]:
    """Return the columns that have readable metrics, by full name, in order: those without nested fields."""
    leaves = (schema.find_field(each) for each in schema.field_ids)
    named = {
        schema.find_column_name(each.field_id) or "": each
        for each in leaves
        if isinstance(each.field_type, PrimitiveType)
    }
    return dict(sorted(named.items(), key=lambda each: each[0].encode("utf-16-be")))


def selected(struct: StructType, paths: Sequence[Sequence[str]] | None) -> StructType:
    """Return the fields of a struct that some paths name, each with all that is in it, in the struct's order.

    Args:
        struct: the columns.
        paths: names from a column to a field of a struct; None for all.

    Raises:
        KeyError: a path that the struct does not have.
    """
    if paths is None:
        return struct
    below: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    unknown = below.keys() - {each.name for each in struct.fields}
    if unknown:
        raise KeyError(min(unknown))
    return StructType(*_selected(struct, below))


def _selected(struct: StructType, below: Mapping[str, list[Sequence[str]]]) -> Iterator[NestedField]:
    for field in struct.fields:
        inner = below.get(field.name)
        if inner is None:
            continue
        if all(inner):
            if not isinstance(field.field_type, StructType):
                raise KeyError(field.name)
            narrowed = selected(field.field_type, inner)
            yield NestedField(field.field_id, field.name, narrowed, required=field.required, doc=field.doc)
        else:
            yield field


def has(struct: StructType, *names: str) -> bool:
    """Return whether a struct, or a struct in it, has a field of one of these names."""
    return any(
        each.name in names or (isinstance(each.field_type, StructType) and has(each.field_type, *names))
        for each in struct.fields
    )


def _snapshots(fields: _Fields) -> Iterator[NestedField]:
    yield fields.required("committed_at", _TIME)
    yield fields.required("snapshot_id", _LONG)
    yield fields.optional("parent_id", _LONG)
    yield fields.optional("operation", _TEXT)
    yield fields.optional("manifest_list", _TEXT)
    yield fields.optional("summary", fields.map_of(_TEXT, _TEXT))


def _history(fields: _Fields) -> Iterator[NestedField]:
    yield fields.required("made_current_at", _TIME)
    yield fields.required("snapshot_id", _LONG)
    yield fields.optional("parent_id", _LONG)
    yield fields.required("is_current_ancestor", BooleanType())


def _refs(fields: _Fields) -> Iterator[NestedField]:
    yield fields.required("name", _TEXT)
    yield fields.required("type", _TEXT)
    yield fields.required("snapshot_id", _LONG)
    yield fields.optional("max_reference_age_in_ms", _LONG)
    yield fields.optional("min_snapshots_to_keep", _INT)
    yield fields.optional("max_snapshot_age_in_ms", _LONG)


def _log(fields: _Fields) -> Iterator[NestedField]:
    yield fields.required("timestamp", _TIME)
    yield fields.required("file", _TEXT)
    yield fields.optional("latest_snapshot_id", _LONG)
    yield fields.optional("latest_schema_id", _INT)
    yield fields.optional("latest_sequence_number", _LONG)


def _summaries(fields: _Fields, *, sources: bool) -> ListType:
    return fields.list_of(
        StructType(
            fields.column("contains_null", BooleanType(), shown=sources),
            fields.optional("contains_nan", BooleanType()),
            fields.optional("lower_bound", _TEXT),
            fields.optional("upper_bound", _TEXT),
        )
    )


_FILE_COUNTS: Final = tuple(
    f"{state}_{kind}_files_count" for kind in ("data", "delete") for state in ("added", "existing", "deleted")
)


def _manifests(fields: _Fields, *, sources: bool) -> Iterator[NestedField]:
    yield fields.required("content", _INT)
    yield fields.required("path", _TEXT)
    yield fields.required("length", _LONG)
    yield fields.required("partition_spec_id", _INT)
    yield fields.required("added_snapshot_id", _LONG)
    for name in _FILE_COUNTS:
        yield fields.required(name, _INT)
    yield fields.required("partition_summaries", _summaries(fields, sources=sources))


def _all_manifests(fields: _Fields, *, sources: bool) -> Iterator[NestedField]:
    yield fields.required("content", _INT)
    yield fields.required("path", _TEXT)
    yield fields.required("length", _LONG)
    yield fields.optional("partition_spec_id", _INT)
    yield fields.optional("added_snapshot_id", _LONG)
    for name in _FILE_COUNTS:
        yield fields.column(name, _INT, shown="delete_files" in name)
    # Iceberg requires `contains_nan` in this table, although manifests can lack it.
    yield fields.optional("partition_summaries", _summaries(fields, sources=sources))
    yield fields.required("reference_snapshot_id", _LONG)
    yield fields.optional("key_metadata", _BYTES)


def _entries(fields: _Fields, metadata: TableMetadata, *, paths: bool) -> Iterator[NestedField]:
    yield fields.required("status", _INT)
    yield fields.optional("snapshot_id", _LONG)
    yield fields.optional("sequence_number", _LONG)
    yield fields.optional("file_sequence_number", _LONG)
    yield fields.required("data_file", StructType(*_files(fields, metadata, paths=paths)))
    yield _readable(fields, metadata)


def _files(fields: _Fields, metadata: TableMetadata, *, paths: bool) -> Iterator[NestedField]:
    counts, bounds = fields.map_of(_INT, _LONG), fields.map_of(_INT, _BYTES)
    yield fields.optional(
        "content", _INT, "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"
    )
    yield fields.column("file_path", _TEXT, "Location URI with FS scheme", shown=paths)
    yield fields.required("file_format", _TEXT, "File format name: avro, orc, or parquet")
    yield fields.optional("spec_id", _INT, "Partition spec ID")
    yield from _partition(fields, metadata, "Partition data tuple, schema based on the partition spec")
    yield fields.required("record_count", _LONG, "Number of records in the file")
    yield fields.required("file_size_in_bytes", _LONG, "Total file size in bytes")
    yield fields.optional("column_sizes", counts, "Map of column id to total size on disk")
    yield fields.optional("value_counts", counts, "Map of column id to total count, including null and NaN")
    yield fields.optional("null_value_counts", counts, "Map of column id to null value count")
    yield fields.optional(
        "nan_value_counts", counts, "Map of column id to number of NaN values in the column"
    )
    yield fields.optional("lower_bounds", bounds, "Map of column id to lower bound")
    yield fields.optional("upper_bounds", bounds, "Map of column id to upper bound")
    yield fields.optional("key_metadata", _BYTES, "Encryption key metadata blob")
    yield fields.optional("split_offsets", fields.list_of(_LONG), "Splittable offsets")
    yield fields.optional("equality_ids", fields.list_of(_INT), "Equality comparison field IDs")
    yield fields.optional("sort_order_id", _INT, "Sort order ID")
    yield fields.optional(
        "first_row_id", _LONG, "The first row ID assigned to the first row in the data file"
    )
    yield fields.optional(
        "referenced_data_file",
        _TEXT,
        "Fully qualified location (URI with FS scheme) of a data file that all deletes reference",
    )
    yield fields.optional("content_offset", _LONG, "The offset in the file where the content starts")
    yield fields.optional(
        "content_size_in_bytes", _LONG, "The length of referenced content stored in the file"
    )


def _partition(fields: _Fields, metadata: TableMetadata, doc: str | None = None) -> Iterator[NestedField]:
    """The column `partition`; there is none in a table that never was partitioned."""
    kinds = partition_fields(metadata)
    if kinds:
        yield fields.required("partition", fields.renumbered(StructType(*kinds.values())), doc)


def _readable(fields: _Fields, metadata: TableMetadata) -> NestedField:
    columns = [
        fields.optional(name, _metrics_of(fields, column.field_type), f"Metrics for column {name}")
        for name, column in measured_columns(metadata.schema()).items()
    ]
    return fields.optional("readable_metrics", StructType(*columns), "Column metrics in readable form")


def _metrics_of(fields: _Fields, kind: IcebergType) -> StructType:
    docs: dict[str, str] = {
        "column_size": "Total size on disk",
        "value_count": "Total count, including null and NaN",
        "null_value_count": "Null value count",
        "nan_value_count": "NaN value count",
        "lower_bound": "Lower bound",
        "upper_bound": "Upper bound",
    }
    parts: list[tuple[str, Any]] = [(name, _LONG) for name in COUNTS] + [(name, kind) for name in BOUNDS]
    return StructType(*(fields.optional(name, each, docs[name]) for name, each in parts))


def _partitions(fields: _Fields, metadata: TableMetadata) -> Iterator[NestedField]:
    partition = list(_partition(fields, metadata))
    if partition:
        yield from partition
        yield fields.required("spec_id", _INT)
    yield fields.required("record_count", _LONG, "Count of records in data files")
    yield fields.required("file_count", _INT, "Count of data files")
    yield fields.required("total_data_file_size_in_bytes", _LONG, "Total size in bytes of data files")
    yield fields.required("position_delete_record_count", _LONG, "Count of records in position delete files")
    yield fields.required("position_delete_file_count", _INT, "Count of position delete files")
    yield fields.required("equality_delete_record_count", _LONG, "Count of records in equality delete files")
    yield fields.required("equality_delete_file_count", _INT, "Count of equality delete files")
    yield fields.optional(
        "last_updated_at", _TIME, "Commit time of snapshot that last updated this partition"
    )
    yield fields.optional(
        "last_updated_snapshot_id", _LONG, "Id of snapshot that last updated this partition"
    )


def _position_deletes(fields: _Fields, metadata: TableMetadata) -> Iterator[NestedField]:
    yield fields.required("file_path", _TEXT, "Path of a file in which a deleted row is stored")
    yield fields.required("pos", _LONG, "Ordinal position of a deleted row in the data file")
    yield fields.optional("row", metadata.schema().as_struct(), "Deleted row values")
    yield from _partition(fields, metadata, "Partition that position delete row belongs to")
    yield fields.required("spec_id", _INT, "Spec ID used to track the file containing a row")
    yield fields.required("delete_file_path", _TEXT, "Path of the file in which a row is stored")
