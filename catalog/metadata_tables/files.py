"""Makes the metadata tables of files and entries from manifests.

Key metadata is never shown: its column is null.

Source: Apache Iceberg, `BaseFilesTable`, `BaseEntriesTable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyiceberg.types import IcebergType, NestedField, StructType

from catalog.iceberg.avro.arrow import FIELD_ID
from catalog.iceberg.manifests import ManifestListEntry
from catalog.keyring.keyring import Keyring
from catalog.metadata_tables.arrow import arrow_type, struct_array
from catalog.metadata_tables.metrics import MAPS, Metrics
from catalog.metadata_tables.schemas import measured_columns, partition_fields, sources_of
from catalog.metadata_tables.sight import Sight
from catalog.reading.loading import LoadedTable
from policy.errors import MetadataInvalid

#: Columns that are shown as manifests have them.
_PLAIN: Final = frozenset(
    {
        *("status", "snapshot_id", "sequence_number", "file_sequence_number"),
        *("content", "file_format", "record_count", "file_size_in_bytes", "split_offsets", "equality_ids"),
        *("sort_order_id", "first_row_id", "content_offset", "content_size_in_bytes"),
    }
)
_PATHS: Final = frozenset({"file_path", "referenced_data_file"})


@dataclass(frozen=True, slots=True)
class Part:
    """Some entries of one manifest.

    Attributes:
        listed: the manifest.
        entries: with inherited numbers.
        statistics: of the same rows.
    """

    listed: ManifestListEntry
    entries: pa.Table
    statistics: pa.Table


class Partitions:
    """Converts partition tuples of manifests to the struct `partition` of all specs.

    Args:
        table: the table.
        sight: what of its columns is shown.
    """

    def __init__(self, table: LoadedTable, sight: Sight) -> None:
        self._specs = table.metadata.specs()
        self._fields = partition_fields(table.metadata)
        self._sources = sources_of(table.metadata.partition_specs)
        self._sight = sight

    @property
    def names(self) -> list[str]:
        """Return the names of the partition fields."""
        return [each.name for each in self._fields.values()]

    @property
    def hidden(self) -> list[str]:
        """Return the names of partition fields that are not shown."""
        return [each.name for each in self._fields.values() if not self._is_shown(each)]

    def columns(self, part: Part, names: list[str] | None = None) -> list[pa.Array]:
        """Return the value of each partition field, or of those of some names; null where it is hidden.

        Raises:
            MetadataInvalid: the values do not match the manifest's spec.
        """
        partition = part.entries["partition"].combine_chunks()
        self._check(partition.type, part.listed)
        held = {int(each.metadata[FIELD_ID.encode()]): place for place, each in enumerate(partition.type)}
        arrays = []
        for field in self._fields.values():
            if names is not None and field.name not in names:
                continue
            kind, place = arrow_type(field.field_type), held.get(field.field_id)
            if place is None or not self._is_shown(field):
                arrays.append(pa.nulls(len(partition), kind))
            else:
                arrays.append(_converted(partition.field(place), kind, part.listed))
        return arrays

    def _is_shown(self, field: NestedField) -> bool:
        return self._sources[field.field_id] <= self._sight.columns

    def _check(self, kind: pa.StructType, listed: ManifestListEntry) -> None:
        """Check that the manifest has the partition fields of its spec. One without entries has none."""
        spec = self._specs.get(listed.partition_spec_id)
        stored = [int(each.metadata[FIELD_ID.encode()]) for each in kind]
        if spec is None or (stored and stored != [each.field_id for each in spec.fields]):
            raise _not_of_spec(listed)


class FileRows:
    """The rows of files and entries.

    Args:
        keyring: opens sealed bounds.
        table: the table.
        sight: what of its columns is shown.
    """

    def __init__(self, keyring: Keyring, table: LoadedTable, sight: Sight) -> None:
        self._keyring = keyring
        self._table = table
        self._sight = sight
        self._partitions = Partitions(table, sight)

    @cached_property
    def _measured(self) -> Mapping[str, NestedField]:
        return measured_columns(self._table.metadata.schema())

    def columns(self, kind: StructType, part: Part) -> list[pa.Array]:
        """Return some columns of a metadata table for some entries.

        Args:
            kind: the columns, or those of `data_file` and structs in it.
            part: the entries.

        Raises:
            MetadataInvalid: an entry does not match its spec.
            EncryptionPolicyViolation, DecryptionRefused, KeyNotUsable, KmsUnavailable: encrypted statistics
                are asked for, and cannot be opened.
        """
        metrics = Metrics(self._keyring, self._table, self._sight, part.entries, part.statistics)
        return [self._column(each, part, metrics) for each in kind.fields]

    def _column(self, field: NestedField, part: Part, metrics: Metrics) -> pa.Array:
        count, kind = len(part.entries), field.field_type
        name = field.name
        if name in _PLAIN:
            return _one(part.entries[name]).cast(arrow_type(kind))
        if name in _PATHS and self._sight.paths:
            return _one(part.entries[name])
        if name in MAPS:
            return metrics.map_of(name).cast(arrow_type(kind))
        if name == "spec_id":
            return pa.array([part.listed.partition_spec_id] * count, pa.int32())
        return self._nested(field, part, metrics) or pa.nulls(count, arrow_type(kind))

    def _nested(self, field: NestedField, part: Part, metrics: Metrics) -> pa.Array | None:
        """Return a struct; None for a column that is hidden."""
        kind: IcebergType = field.field_type
        if not isinstance(kind, StructType):
            return None
        if field.name == "partition":
            names = [each.name for each in kind.fields]
            return struct_array(kind, self._partitions.columns(part, names), len(part.entries))
        if field.name == "readable_metrics":
            return metrics.readable(kind, self._measured)
        return struct_array(kind, self.columns(kind, part), len(part.entries))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _converted(values: pa.Array, kind: pa.DataType, listed: ManifestListEntry) -> pa.Array:
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise _not_of_spec(listed) from problem


def _not_of_spec(listed: ManifestListEntry) -> MetadataInvalid:
    return MetadataInvalid(
        "The manifest lacks a partition field of its spec, or has a value of another type.",
        path=listed.manifest_path,
        rule="partition-spec",
    )
