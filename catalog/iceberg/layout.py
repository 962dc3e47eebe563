"""Checks that Iceberg engines can open a schema, partition spec or sort order.

pyiceberg's models accept more than other readers do. Iceberg Java does not open metadata with an unknown
transform, a field id used twice, or a partition field with the name of another column.

Source: Iceberg table specification, "Schemas", "Default values", "Partitioning" and "Sorting"; Apache
Iceberg's `PartitionSpec.Builder` and `BaseUpdatePartitionSpec`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, NestedField, StructType

from catalog.iceberg.metadata import SEQUENCE_NUMBERS_VERSION
from policy.errors import RequestInvalid
from policy.privileges.requests import MAX_NAME_LENGTH

#: The first format version whose columns can have defaults (specification, "Default values").
_DEFAULTS_VERSION: Final = 3
_LARGEST_INT: Final = 2**31 - 1
_SHOWN: Final = 80

_TRANSFORM_HINT: Final = (
    "Use identity, bucket[N] or truncate[W] with N and W from 1 to 2147483647, or year, month, day or hour "
    "of a date or timestamp."
)


def check_schema(schema: Schema, format_version: int, table: str) -> None:
    """Check a table's new schema.

    Raises:
        RequestInvalid: a field id is used twice, or is not above 0; as `check_columns`.
    """
    check_distinct_ids(schema, table)
    for field in _fields(schema.as_struct()):
        if field.field_id < 1:
            _refuse(
                f"The field id {field.field_id} must be greater than 0",
                "field-id",
                "Number field ids from 1.",
                table,
            )
    check_columns(schema, format_version, table)


def check_distinct_ids(schema: Schema, table: str) -> None:
    """Check that each field of a table's or view's schema has an id of its own, at every level.

    Raises:
        RequestInvalid: two fields have the same id.
    """
    twice = _repeated(field.field_id for field in _fields(schema.as_struct()))
    if twice:
        _refuse(
            f"The schema uses the field id {twice[0]} twice",
            "field-id",
            "Give each field a different id.",
            table,
        )


def check_columns(schema: Schema, format_version: int, table: str) -> None:
    """Check the columns of a schema whose field ids are not assigned yet.

    Raises:
        RequestInvalid: a type is not of the format version, a column has a default value in a format
            version without defaults, or no privilege can name a column, so that nobody could read it.
    """
    for field in _fields(schema.as_struct()):
        if not 0 < len(field.name) <= MAX_NAME_LENGTH:
            _refuse(
                f"The column name {_named(field.name)} has {len(field.name)} characters. "
                f"It must have 1 to {MAX_NAME_LENGTH}",
                "column-name",
                "Give the column another name.",
                table,
            )
        if format_version < field.field_type.minimum_format_version():
            _refuse(
                f"The type {field.field_type} of column {_named(field.name)} is not supported by "
                f"format version {format_version}",
                "column-type",
                "Use a type of the table's format version, or upgrade the table.",
                table,
            )
        if isinstance(field.field_type, FixedType) and len(field.field_type) > _LARGEST_INT:
            _refuse(
                f"The type of column {_named(field.name)} is too long",
                "column-type",
                "Use a shorter type.",
                table,
            )
        if format_version < _DEFAULTS_VERSION and _has_default(field):
            _refuse(
                f"Column {_named(field.name)} has a default value, which format version "
                f"{format_version} does not support",
                "column-default",
                "Remove initial-default and write-default.",
                table,
            )


def check_spec(spec: PartitionSpec, schema: Schema, table: str) -> None:
    """Check a table's new partition spec.

    Raises:
        RequestInvalid: a transform that does not exist or that its source's type does not support, a source
            that is missing or inside of a list or map, or a field id or name used twice.
    """
    twice = [
        *_repeated(field.field_id for field in spec.fields),
        *_repeated(field.name for field in spec.fields),
    ]
    if twice:
        _refuse(
            f"The partition spec uses the field {_named(twice[0])} twice",
            "partition-field",
            "Give each partition field a different id and name.",
            table,
        )
    for field in spec.fields:
        if not field.name:
            _refuse("A partition field has no name", "partition-field", "Name each partition field.", table)
        _check_source(field.transform, field.source_id, schema, "partition", table)
    check_names(spec, schema, table)


def check_sequential(spec: PartitionSpec, format_version: int, table: str) -> None:
    """Check that a new partition spec of version 1 numbers its fields from 1000 on, without a gap.

    Source: Apache Iceberg, `TableMetadata.Builder`; table specification, "Partition Evolution".

    Raises:
        RequestInvalid: it does not.
    """
    ids = [field.field_id for field in spec.fields]
    first = PARTITION_FIELD_ID_START
    if format_version < SEQUENCE_NUMBERS_VERSION and ids != list(range(first, first + len(ids))):
        _refuse(
            f"The partition fields have the ids {', '.join(map(str, ids[:10]))}, which are not the numbers "
            f"from {first} on",
            "partition-field",
            "In format version 1, keep each field, and give one that is dropped the transform void.",
            table,
        )


def check_field_ids(spec: PartitionSpec, others: Iterable[PartitionSpec], table: str) -> None:
    """Check that a new partition spec gives no id to a field that another column's field has.

    Source: Apache Iceberg, `Partitioning.partitionType`, which cannot open such a table.

    Raises:
        RequestInvalid: it does.
    """
    sources = {field.field_id: field.source_id for each in others for field in each.fields}
    for field in spec.fields:
        if sources.get(field.field_id, field.source_id) != field.source_id:
            _refuse(
                f"The partition field {_named(field.name)} has the id {field.field_id}, which is another "
                "column's field in an earlier partition spec",
                "partition-field",
                "Continue the ids from last-partition-id.",
                table,
            )


def check_names(spec: PartitionSpec, schema: Schema, table: str) -> None:
    """Check that no partition field has the name of a column other than its source.

    Raises:
        RequestInvalid: a field has such a name.
    """
    columns, present = schema._name_to_id, schema._lazy_id_to_field
    for field in spec.fields:
        if field.source_id in present and columns.get(field.name, field.source_id) != field.source_id:
            _refuse(
                f"The partition field {_named(field.name)} has the name of another column; "
                "Iceberg engines cannot open such a table",
                "partition-name",
                "Rename the column or the partition field.",
                table,
            )


def check_redundancy(added: Sequence[PartitionField], table: str) -> None:
    """Check that no partition field contains another one of the same column, such as years and months.

    As in Iceberg Java, only fields that are added together are checked: a table that is partitioned by months
    can also be partitioned by days later.

    Raises:
        RequestInvalid: two fields have the same source column, and one contains the other.
    """
    seen: dict[Hashable, PartitionField] = {}
    for field in added:
        if isinstance(field.transform, VoidTransform):
            continue
        kind = "time" if isinstance(field.transform, TimeTransform) else str(field.transform)
        other = seen.setdefault((field.source_id, kind), field)
        if other is not field:
            _refuse(
                f"The partition fields {_named(other.name)} ({other.transform}) and "
                f"{_named(field.name)} ({field.transform}) have the same source column, and one "
                "contains the other",
                "redundant-partition",
                "Keep only the finer partition field.",
                table,
            )


def check_order(order: SortOrder, schema: Schema, table: str) -> None:
    """Check a table's new sort order.

    Raises:
        RequestInvalid: a transform that does not exist or that its source's type does not support, or a
            source that is missing.
    """
    for field in order.fields:
        _check_source(field.transform, field.source_id, schema, "sort", table)


def _check_source(
    transform: Transform[Any, Any], source_id: int, schema: Schema, what: str, table: str
) -> None:
    if isinstance(transform, VoidTransform):
        return
    source = schema._lazy_id_to_field.get(source_id)
    if source is None:
        _refuse(
            f"The source column {source_id} of a {what} field does not exist",
            f"{what}-source",
            "Use the id of a column of the current schema.",
            table,
        )
    if not source.field_type.is_primitive or not _in_structs(schema, source_id):
        _refuse(
            f"The column {_named(source.name)} of type {source.field_type!s:.80} cannot be the source of a "
            f"{what} field",
            f"{what}-source",
            "Use a column of a primitive type that is not inside a list or map.",
            table,
        )
    if not _has_meaning(transform) or not transform.can_transform(source.field_type):
        _refuse(
            f"The transform {transform!s:.80} cannot be used on column {_named(source.name)} of type "
            f"{source.field_type}",
            f"{what}-transform",
            _TRANSFORM_HINT,
            table,
        )


def _has_meaning(transform: Transform[Any, Any]) -> bool:
    if isinstance(transform, BucketTransform):
        return 0 < transform.num_buckets <= _LARGEST_INT
    if isinstance(transform, TruncateTransform):
        return 0 < transform.width <= _LARGEST_INT
    return isinstance(transform, IdentityTransform | TimeTransform)


def _in_structs(schema: Schema, field_id: int) -> bool:
    parent = schema._lazy_id_to_parent.get(field_id)
    while parent is not None:
        if not schema.find_type(parent).is_struct:
            return False
        parent = schema._lazy_id_to_parent.get(parent)
    return True


def _fields(kind: IcebergType) -> Iterator[NestedField]:
    """Yield every field in a type, at every level."""
    match kind:
        case StructType(fields=fields):
            inner: Iterable[NestedField] = fields
        case ListType():
            inner = (kind.element_field,)
        case MapType():
            inner = (kind.key_field, kind.value_field)
        case _:
            inner = ()
    for each in inner:
        yield each
        yield from _fields(each.field_type)


def _has_default(field: NestedField) -> bool:
    return field.initial_default is not None or field.write_default is not None


def _repeated(values: Iterable[Hashable]) -> list[Hashable]:
    return [value for value, count in Counter(values).items() if count > 1]


def _named(name: object) -> str:
    return repr(name)[:_SHOWN]


def _refuse(problem: str, rule: str, hint: str, table: str) -> NoReturn:
    raise RequestInvalid(f"{problem}.", table=table, rule=rule, hint=hint)
