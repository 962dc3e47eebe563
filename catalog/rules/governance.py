"""Computes the next governed version of a table, from a request and the table's columns to encryption epochs.

There is no I/O. The caller has the keyring create new PEKs after all checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import IdentityTransform, VoidTransform

from catalog.iceberg.metadata import SEQUENCE_NUMBERS_VERSION, last_sequence_number, unsupported_version
from catalog.reading.loading import LoadedTable
from catalog.rules.column_masks import check_masks
from catalog.rules.table_changes import Changes
from catalog.state.table_state import Governed
from policy.encryption import governed
from policy.encryption import requested as wanted_rules
from policy.encryption.downgrade import downgrades_files, hidden_fields, uncovers, uncovers_fields
from policy.encryption.encrypted_columns import (
    followed,
    masked_fields,
    protected_fields,
    require_column_left,
    require_numbered,
    require_room,
    require_sorted,
    require_sources,
    resolve_columns,
)
from policy.encryption.epochs import Epoch, Epochs, PekRef
from policy.encryption.file_formats import FileFormat
from policy.encryption.requested import Requested, for_new_table
from policy.encryption.specification import ColumnKey, ColumnMask, EncryptionSpec
from policy.errors import EncryptionPolicyViolation, PropertyInvalid, RequestInvalid
from policy.location.allow_list import AllowList
from policy.location.location import Location

__all__ = [
    "Requested",
    "begins_epoch",
    "check_room",
    "check_schema",
    "column_ids",
    "first_version",
    "following",
    "for_change",
    "for_new_table",
    "for_replacement",
    "next_version",
    "replaced",
    "rotated",
    "shows_more",
]


def for_change(
    current: Governed,
    changes: Changes,
    location: Location,
    catalog_master_key_id: str | None,
    table: str,
    file_format: FileFormat | None = None,
) -> Requested:
    """Return the governed properties after a change of them, or of the table's file format.

    Without `file_format`, the format stays.

    Raises:
        as `for_new_table`.
    """
    return wanted_rules.for_change(
        current.allowed,
        current.spec,
        changes.governed_set,
        changes.governed_unset,
        location,
        catalog_master_key_id,
        table,
        file_format=file_format,
    )


def following(
    current: Governed,
    wanted: Requested,
    before: TableMetadata,
    after: Schema,
    table: str,
    *,
    said: Collection[str],
) -> Requested:
    """Adapt the lists of encrypted and masked columns to a change of the schema.

    Lists contain names, and refer to columns by id. A renamed column stays under its key. A dropped column
    leaves the list. A list in the same commit uses the names of the new schema. Downgrades are found by id
    too, because a name can refer to another column after the change.

    Args:
        current: the governed version in force.
        wanted: the requested properties.
        before: the metadata in force, whose schema names the columns of `current`.
        after: the new schema.
        table: dotted name, for errors.
        said: the governed properties that the commit sets, including those set to the value in force.

    Raises:
        EncryptionPolicyViolation: no column of the list is left; or a column that was encrypted returns in
            plaintext.
        RequestInvalid: a list is sent unchanged, and a name in it now refers to another column.
    """
    spec = wanted.spec
    if not spec.encrypts or before.schema() == after:
        return wanted
    ids = column_ids(before.schema())
    for name, columns, in_force in (
        (governed.MASKS, _grouped(spec.masks), _grouped(current.spec.masks)),
        (governed.COLUMNS, _grouped(spec.columns), _grouped(current.spec.columns)),
        (governed.PLAINTEXT_COLUMNS, spec.plaintext_columns, current.spec.plaintext_columns),
    ):
        if name in said and columns == in_force:
            _refuse_other_meaning(name, columns or (), ids, column_ids(after), table)
    was = _named_next(current.spec, ids, after)
    if spec.masks == current.spec.masks:
        spec = replace(spec, masks=was.masks)
    if spec.columns == current.spec.columns:
        spec = replace(spec, columns=was.columns)
    if spec.plaintext_columns == current.spec.plaintext_columns:
        spec = replace(spec, plaintext_columns=was.plaintext_columns)
    if spec.columns == was.columns:
        require_column_left(current.spec, spec, table)
    keyed, epoch = resolve_columns(spec, column_ids(after)), current.epochs.current
    _refuse_returning(current, protected_fields(spec, keyed), before, after, table)
    uncovers = uncovers_fields(
        hidden_fields(epoch.spec, epoch.columns, before.schema().field_ids),
        hidden_fields(spec, keyed, after.field_ids),
        after.field_ids,
    )
    return replace(wanted, spec=spec, unprotects=uncovers or downgrades_files(was, spec))


def for_replacement(
    current: Governed, wanted: Requested, before: Schema, after: Schema, table: str, *, said: Collection[str]
) -> Requested:
    """Adapt the lists of encrypted, plaintext and masked columns to a schema that replaces another one.

    Columns are found by name: a column of the new schema is under the key that the list gives its name,
    whether or not it keeps its field id. It stays in plaintext only if it keeps its field id, since it is
    another column otherwise. Columns that vanish leave the lists.

    Args:
        current: the governed version in force.
        wanted: the requested properties.
        before: the schema in force.
        after: the new schema.
        table: dotted name, for errors.
        said: the governed properties that the request sets, including those set to the value in force.

    Raises:
        EncryptionPolicyViolation: no column of the list is left.
    """
    spec, left = wanted.spec, _left(current.spec, before, after)
    if governed.MASKS not in said and spec.masks == current.spec.masks:
        spec = replace(spec, masks=left.masks)
    plaintext, columns = left.plaintext_columns, left.columns
    if governed.PLAINTEXT_COLUMNS not in said and spec.plaintext_columns == current.spec.plaintext_columns:
        spec = replace(spec, plaintext_columns=plaintext)
    if governed.COLUMNS not in said and spec.columns == current.spec.columns:
        spec = replace(spec, columns=columns)
        require_column_left(current.spec, spec, table)
    return replaced(current, wanted.allowed, spec, before, after)


def replaced(
    current: Governed, allowed: AllowList, spec: EncryptionSpec, before: Schema, after: Schema
) -> Requested:
    """Return what a replacement requires, from what governs the table before and after it.

    Args:
        current: the governed version in force.
        allowed: the next allowed list.
        spec: the next encryption specification.
        before: the schema in force.
        after: the new schema.
    """
    left = _left(current.spec, before, after)
    # Without a column that it names, a list would mean all columns.
    emptied = current.spec.columns and not left.columns and left.plaintext_columns is None
    covers_less = not spec.encrypts if emptied else uncovers(left, spec)
    return Requested(
        allowed=allowed,
        spec=spec,
        added=tuple(entry for entry in allowed.entries if not current.allowed.covers(entry)),
        new_keys=tuple(key for key in spec.key_ids() if key not in current.spec.key_ids()),
        unprotects=covers_less or downgrades_files(left, spec),
    )


def _left(spec: EncryptionSpec, before: Schema, after: Schema) -> EncryptionSpec:
    """Return the specification without the columns that a schema does not have, or has in plaintext anew."""
    had, names = column_ids(before), column_ids(after)

    def next_name(column: str) -> str | None:
        return column if column in names else None

    left = followed(spec, next_name)
    if left.plaintext_columns is None:
        return left
    return replace(
        left, plaintext_columns=tuple(each for each in left.plaintext_columns if names[each] == had.get(each))
    )


def _refuse_other_meaning(
    name: str,
    columns: Iterable[str],
    before: Mapping[str, int],
    after: Mapping[str, int],
    table: str,
) -> None:
    """Refuse an unchanged list of columns in which a name now refers to another column."""
    for column in columns:
        if after.get(column, before[column]) != before[column]:
            raise RequestInvalid(
                f"{name} is sent unchanged, but {column!r} is now the name of another column.",
                table=table,
                rule="columns-repeated",
                hint="Leave out the property, and it follows the columns to their new names; or "
                "change it in a separate commit.",
            )


def _named_next(spec: EncryptionSpec, ids: Mapping[str, int], after: Schema) -> EncryptionSpec:
    """Return the specification in force, with the new names of its columns."""

    def next_name(column: str) -> str | None:
        return after.find_column_name(ids[column])

    return followed(spec, next_name)


def _grouped(groups: Iterable[ColumnKey | ColumnMask]) -> tuple[str, ...]:
    return tuple(column for group in groups for column in group.columns)


def _refuse_returning(
    current: Governed, hidden: frozenset[int] | None, before: TableMetadata, after: Schema, table: str
) -> None:
    """Refuse a column that was encrypted in an older schema and would return in plaintext."""
    bare = set() if hidden is None else _once_hidden(current, before) & set(after.field_ids) - hidden
    bare -= set(before.schema().field_ids)
    if bare:
        raise EncryptionPolicyViolation(
            f"The column {after.find_column_name(min(bare))!r} was encrypted before, and would "
            "return in plaintext.",
            table=table,
            rule="column-without-key",
            hint="Give the column a key in encryption.columns in the same commit.",
        )


def _once_hidden(current: Governed, before: TableMetadata) -> set[int]:
    """Return the fields that files of any epoch encrypt; if an epoch encrypts all, those of every schema."""
    each = [protected_fields(epoch.spec, epoch.columns) for epoch in current.epochs.entries]
    if None in each:
        return {field_id for schema in before.schemas for field_id in schema.field_ids}
    return {field_id for fields in each if fields is not None for field_id in fields}


def check_schema(spec: EncryptionSpec, metadata: TableMetadata, table: str) -> None:
    """Check an encryption specification against a table's columns, partition spec and sort order.

    Raises:
        PropertyInvalid: a column does not exist, or there are too many.
        EncryptionPolicyViolation: an encrypted column is a partition source, or a plaintext column would show
            the order of an encrypted one; or the name of a column has a dot.
        UnsupportedFormatVersion: without sequence numbers, files cannot be told by their epochs.
    """
    if not spec.encrypts:
        return
    if metadata.format_version < SEQUENCE_NUMBERS_VERSION:
        raise unsupported_version("Encrypting", metadata, table)
    require_numbered(spec, _leaves(metadata.schema()))
    keyed = resolve_columns(spec, column_ids(metadata.schema()))
    check_masks(spec, metadata.schema(), table)
    _refuse_dots(spec, metadata.schema(), table)
    require_sources(spec, keyed, _named(metadata, _partition_sources(metadata)), table)
    check_sorted(spec, metadata, _sources(metadata.sort_order().fields), table)


def check_sorted(spec: EncryptionSpec, metadata: TableMetadata, columns: Iterable[int], table: str) -> None:
    """Check the columns that rows of a table are sorted by.

    Args:
        spec: the table's specification.
        metadata: its metadata.
        columns: the field ids.
        table: dotted name, for errors.

    Raises:
        EncryptionPolicyViolation: a plaintext column would show the order of an encrypted one.
    """
    if not spec.encrypts:
        return
    keyed = resolve_columns(spec, column_ids(metadata.schema()))
    constant = {
        each.source_id for each in metadata.spec().fields if isinstance(each.transform, IdentityTransform)
    }
    varying = [each for each in _leaf_ids(metadata.schema()) if each not in constant]
    require_sorted(spec, keyed, _named(metadata, columns), _named(metadata, varying), table)


def shows_more(current: Governed, before: TableMetadata, spec: EncryptionSpec, after: TableMetadata) -> bool:
    """Return whether a change makes manifests show partition values of encrypted columns that they did not.

    Another transform of a column that partitions the table already can show more of its values.
    """
    had = _shown_values(before) if current.spec.encrypts else set()
    new = {source for source, _ in _shown_values(after) - had}
    if not spec.shows_partitions or not new:
        return False
    hidden = protected_fields(spec, resolve_columns(spec, column_ids(after.schema())))
    return hidden is None or not hidden.isdisjoint(new)


def _shown_values(metadata: TableMetadata) -> set[tuple[int, str]]:
    fields = (each for each in metadata.spec().fields if not isinstance(each.transform, VoidTransform))
    return {(each.source_id, str(each.transform)) for each in fields}


def _partition_sources(metadata: TableMetadata) -> list[int]:
    return _sources(metadata.spec().fields)


def _sources(fields: Iterable[PartitionField | SortField]) -> list[int]:
    return [each.source_id for each in fields if not isinstance(each.transform, VoidTransform)]


def _named(metadata: TableMetadata, field_ids: Iterable[int]) -> list[tuple[str, int]]:
    name_of = metadata.schema().find_column_name
    return [(name_of(each) or str(each), each) for each in field_ids]


def _refuse_dots(spec: EncryptionSpec, schema: Schema, table: str) -> None:
    """Refuse a column that could be taken for one that is nested in a plaintext column."""
    fields = index_by_id(schema).values() if spec.plaintext_columns is not None else ()
    dotted = next((each.name for each in fields if "." in each.name), None)
    if dotted is not None:
        raise PropertyInvalid(
            f"{governed.PLAINTEXT_COLUMNS}: the name of the column {dotted[:80]!r} has a dot.",
            table=table,
            rule="dotted-column",
            hint="Rename the column, so that no nested column can have its name.",
        )


def check_room(table: LoadedTable) -> None:
    """Refuse a table with more columns than key metadata can hold, before any file is written.

    Raises:
        PropertyInvalid: there are too many columns, or too many with column keys.
    """
    epoch = table.governed.epochs.current
    require_numbered(epoch.spec, _leaves(table.metadata.schema()))
    require_room(epoch.columns)


def _leaves(schema: Schema) -> int:
    return len(_leaf_ids(schema))


def _leaf_ids(schema: Schema) -> list[int]:
    return [each.field_id for each in index_by_id(schema).values() if each.field_type.is_primitive]


def first_version(
    wanted: Requested, metadata: TableMetadata, peks: Iterable[PekRef], version: int = 1
) -> Governed:
    """Return the first governed version of a table that takes effect.

    Lower version numbers belong to interrupted creations.
    """
    epoch = _epoch(0, wanted.spec, metadata, peks)
    return Governed(version, wanted.allowed, wanted.spec, Epochs.of([epoch]))


def next_version(
    current: Governed, wanted: Requested, metadata: TableMetadata, peks: Iterable[PekRef] | None, version: int
) -> Governed:
    """Return the next governed version.

    Args:
        current: the governed version in force.
        wanted: the requested properties.
        metadata: the new metadata.
        peks: the PEKs of a new epoch, which begins at the next sequence number; None if no epoch begins.
        version: the number of the new version.
    """
    changed = replace(current, version=version, allowed=wanted.allowed, spec=wanted.spec)
    if peks is None:
        return changed
    epoch = _epoch(last_sequence_number(metadata) + 1, wanted.spec, metadata, peks)
    return replace(changed, epochs=current.epochs.followed_by(epoch))


def rotated(current: Governed, metadata: TableMetadata, peks: Iterable[PekRef], version: int) -> Governed:
    """Return the next governed version, with later versions of the same PEKs for new files."""
    start = last_sequence_number(metadata) + 1
    epoch = replace(current.epochs.current, from_sequence_number=start, peks=tuple(peks))
    return replace(current, version=version, epochs=current.epochs.followed_by(epoch))


def column_ids(schema: Schema) -> dict[str, int]:
    """Return the field id of every column, by full dotted name."""
    return {schema.find_column_name(field_id) or "": field_id for field_id in schema.field_ids}


def begins_epoch(current: Governed, spec: EncryptionSpec, schema: Schema) -> bool:
    """Return whether new files are encrypted differently.

    This is also the case if a field is added to an encrypted struct.
    """
    if not spec.encrypts_as(current.spec) or not spec.by_column:
        return not spec.encrypts_as(current.spec)
    return resolve_columns(spec, column_ids(schema)) != current.epochs.current.columns


def _epoch(number: int, spec: EncryptionSpec, metadata: TableMetadata, peks: Iterable[PekRef]) -> Epoch:
    ids = column_ids(metadata.schema())
    keyed = resolve_columns(spec, ids) if spec.encrypts else ()
    return Epoch(number, spec, keyed, tuple(peks), tuple(sorted(masked_fields(spec, ids).items())))
