"""Which columns a table's files encrypt, by field id.

Rules:
- A column is encrypted if a property gives it a key. With `encryption.plaintext-columns`, every other column
  is encrypted too, under the table's master key: what is nested in a column that is named is named with it,
  and a struct is in a group only if all that it holds is.
- Columns are checked against the schema by field id, since names change.
- A file's key metadata names each field under a column key, and has a bound (docs/key-metadata.md): columns
  that would not fit into it are refused when they are named; of a table that names them already, when a write
  begins, not when its first file is committed.
- Parquet's encryption numbers the columns of a file with 15 bits: more of them are refused, in plaintext or
  not.
- Masks are of top-level columns. So are keys in ORC, whose encryption takes a struct whole.

Source: docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, TypeVar

from policy.encryption import governed
from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import NULLIFY, ColumnKey, ColumnMask, EncryptionSpec
from policy.errors import EncryptionPolicyViolation, PropertyInvalid

#: Of the 65,536 bytes and 255 keys of key metadata, what is left beside the footer's key with a long name.
_MAX_GROUPS: Final = 254
_MAX_GROUPS_BYTES: Final = 65_536 - 512
_ENTRY_BYTES: Final = 85
_FIELD_ID_BYTES: Final = 4
#: Parquet Modular Encryption, section 4.4.2: ordinals are signed numbers of two bytes, from 0 on.
_MAX_LEAVES: Final = 2**15

#: Characters of a column's name that a message shows.
_SHOWN_NAME: Final = 80

_Group = TypeVar("_Group", ColumnKey, ColumnMask)


@dataclass(frozen=True, slots=True)
class KeyedFields:
    """A column key with its columns as field ids.

    Attributes:
        key_id: master key id in the KMS.
        field_ids: ids of the columns named and of everything nested in them, ascending.
    """

    key_id: str
    field_ids: tuple[int, ...]


def resolve_columns(spec: EncryptionSpec, name_to_field_id: Mapping[str, int]) -> tuple[KeyedFields, ...]:
    """The groups of columns that files encrypt: the column keys, then the columns that no property names.

    Args:
        spec: the table's specification.
        name_to_field_id: every column of the schema by its full dotted name, nested ones included.

    Raises:
        PropertyInvalid: a column that the schema does not have, a mask on a plaintext column, or no column
            that is encrypted.
    """
    inside = _fields_inside(name_to_field_id)
    _refuse_nested(spec, name_to_field_id)
    keyed = tuple(
        KeyedFields(group.key_id, _field_ids(governed.COLUMNS, group.columns, inside))
        for group in spec.columns
    )
    if spec.plaintext_columns is not None:
        keyed += _others(spec, keyed, name_to_field_id, inside)
    protected = {field_id for group in keyed for field_id in group.field_ids}
    for mask in spec.masks:
        for column in mask.columns:
            ids = _field_ids(governed.MASKS, (column,), inside)
            if spec.by_column and not protected.issuperset(ids):
                raise PropertyInvalid(
                    f"{governed.MASKS}: column {column!r} has a mask but no column key.",
                    rule="mask-without-key",
                    hint=f"Give the column a key in {governed.COLUMNS}, or remove the mask.",
                )
    require_room(keyed)
    return keyed


def _others(
    spec: EncryptionSpec,
    keyed: tuple[KeyedFields, ...],
    name_to_field_id: Mapping[str, int],
    inside: Mapping[str, list[int]],
) -> tuple[KeyedFields, ...]:
    """The columns under the table's master key: all that no property names, if there are any."""
    plaintext = _field_ids(governed.PLAINTEXT_COLUMNS, spec.plaintext_columns or (), inside)
    named = {*plaintext, *(field_id for group in keyed for field_id in group.field_ids)}
    others = {field_id for name, field_id in name_to_field_id.items() if named.isdisjoint(inside[name])}
    if others:
        return (KeyedFields(spec.master_key_id or "", tuple(sorted(others))),)
    if not keyed:
        raise PropertyInvalid(
            f"{governed.PLAINTEXT_COLUMNS} names every column of the table.",
            rule="no-encrypted-column",
            hint=f"Leave out a column, or set {governed.MECHANISM}=plaintext.",
        )
    return ()


def _refuse_nested(spec: EncryptionSpec, names: Collection[str]) -> None:
    """Masks are of top-level columns; so are keys in ORC, whose encryption takes a struct whole."""
    named = [(governed.MASKS, column) for group in spec.masks for column in group.columns]
    if spec.file_format is FileFormat.ORC:
        named += [(governed.COLUMNS, column) for group in spec.columns for column in group.columns]
        named += [(governed.PLAINTEXT_COLUMNS, column) for column in spec.plaintext_columns or ()]
    for name, column in named:
        outer = next(iter(_outer_names(column, names)), None)
        if outer is not None:
            raise PropertyInvalid(
                f"{name}: {column!r} is nested in column {outer!r}.",
                rule="nested-column",
                hint=f"Name {outer}: "
                f"{'a mask covers' if name == governed.MASKS else 'ORC encrypts'} a whole top-level column.",
            )


def _outer_names(column: str, names: Collection[str]) -> list[str]:
    parts = column.split(".")
    outer = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    return [each for each in outer if each in names]


def masked_fields(spec: EncryptionSpec, name_to_field_id: Mapping[str, int]) -> dict[int, str]:
    """By the id of each top-level column that has one, its mask."""
    return {
        name_to_field_id[column]: group.mask
        for group in spec.masks
        for column in group.columns
        if column in name_to_field_id
    }


def require_room(keyed: tuple[KeyedFields, ...]) -> None:
    """Refuse more column keys, or columns under them, than the key metadata of a file holds.

    Args:
        keyed: the column keys by field id.

    Raises:
        PropertyInvalid: there are too many.
    """
    size = sum(_ENTRY_BYTES + len(group.key_id) + _FIELD_ID_BYTES * len(group.field_ids) for group in keyed)
    if len(keyed) > _MAX_GROUPS or size > _MAX_GROUPS_BYTES:
        raise PropertyInvalid(
            f"{governed.COLUMNS}: {len(keyed)} column keys with their columns, nested ones included, do not "
            "fit into the key metadata of a file.",
            rule="too-many-columns",
            hint="Use fewer keys or columns, or unset the property to encrypt all columns under one key.",
        )


def require_numbered(spec: EncryptionSpec, leaves: int) -> None:
    """Refuse a table with more columns than its files can number.

    Args:
        spec: the table's specification.
        leaves: how many columns and nested fields have values of their own.

    Raises:
        PropertyInvalid: there are too many.
    """
    if spec.file_format is FileFormat.PARQUET and leaves > _MAX_LEAVES:
        raise PropertyInvalid(
            f"The table has {leaves} columns, nested ones included; an encrypted Parquet file has at most "
            f"{_MAX_LEAVES}.",
            rule="too-many-columns",
            hint="Split the table, or set write.format.default=orc.",
        )


def protected_fields(spec: EncryptionSpec, keyed: tuple[KeyedFields, ...]) -> frozenset[int] | None:
    """The fields that files of the specification encrypt, None for all of them.

    Args:
        spec: the table's specification.
        keyed: its columns by field id, from `resolve_columns`.
    """
    if spec.encrypts and not spec.by_column:
        return None
    return frozenset(field_id for group in keyed for field_id in group.field_ids)


def _fields_inside(name_to_field_id: Mapping[str, int]) -> Mapping[str, list[int]]:
    """By the name of each column the fields in it, itself included; in one pass over the schema."""
    inside: dict[str, list[int]] = {name: [] for name in name_to_field_id}
    for name, field_id in name_to_field_id.items():
        for outer in accumulate(name.split("."), "{}.{}".format):
            if outer in inside:
                inside[outer].append(field_id)
    return inside


def _field_ids(name: str, columns: Iterable[str], inside: Mapping[str, list[int]]) -> tuple[int, ...]:
    ids: set[int] = set()
    for column in columns:
        if column not in inside:
            raise PropertyInvalid(
                f"{name}: the table has no column {column!r}.",
                rule="unknown-column",
                hint="Use the schema's column names, in exact letter case. Separate nested names with dots.",
            )
        ids.update(inside[column])
    return tuple(sorted(ids))


def require_sources(
    spec: EncryptionSpec, keyed: tuple[KeyedFields, ...], sources: Iterable[tuple[str, int]], table: str
) -> None:
    """Refuse encrypted columns as partition sources, unless the table shows partition values.

    Manifests and paths show partition values in plaintext.

    Args:
        spec: the table's specification.
        keyed: its columns by field id, from `resolve_columns`.
        sources: name and field id of the source of each partition field that is not void.
        table: dotted name, for errors.

    Raises:
        EncryptionPolicyViolation: one of them is encrypted.
    """
    refused = [] if spec.shows_partitions else _encrypted(spec, keyed, sources)
    if refused:
        names = ", ".join(f"{name[:_SHOWN_NAME]!a}" for name in refused)
        raise EncryptionPolicyViolation(
            f"Encrypted columns cannot partition a table: {names}.",
            table=table,
            rule="encrypted-source",
            hint=f"Partition by plaintext columns ({governed.PLAINTEXT_COLUMNS}), or sort by these columns "
            f"(WRITE ORDERED BY). To show their partition values, set {governed.PARTITION_VALUES}=plaintext.",
        )


def require_sorted(
    spec: EncryptionSpec,
    keyed: tuple[KeyedFields, ...],
    sources: Iterable[tuple[str, int]],
    others: Iterable[tuple[str, int]],
    table: str,
) -> None:
    """Refuse encrypted columns that sort a table in which plaintext columns would show their order.

    The values of a plaintext column can be read row by row, in the order of the encrypted one. So can the
    hashes and redacted values that ORC stores beside the values of an encrypted column.

    Args:
        spec: the table's specification.
        keyed: its columns by field id, from `resolve_columns`.
        sources: name and field id of the source of each sort field that is not void.
        others: name and field id of each column with values that can differ within a file.
        table: dotted name, for errors.

    Raises:
        EncryptionPolicyViolation: one of the sources is encrypted, and one of the others is not.
    """
    sealed, encrypted = _encrypted(spec, keyed, sources), protected_fields(spec, keyed)
    masked = {column for group in spec.masks if group.mask != NULLIFY for column in group.columns}
    shown = [
        name
        for name, field_id in others
        if (encrypted is not None and field_id not in encrypted) or name.partition(".")[0] in masked
    ]
    if sealed and shown:
        raise EncryptionPolicyViolation(
            f"The encrypted column {sealed[0][:_SHOWN_NAME]!a} cannot sort the table: files show values of "
            f"{shown[0][:_SHOWN_NAME]!a} in the order of its rows, in plaintext or masked.",
            table=table,
            rule="encrypted-order",
            hint="Encrypt that column without a mask that shows values, partition by it (identity), or sort "
            "by plaintext columns.",
        )


def _encrypted(
    spec: EncryptionSpec, keyed: tuple[KeyedFields, ...], sources: Iterable[tuple[str, int]]
) -> list[str]:
    encrypted = protected_fields(spec, keyed)
    return [name for name, field_id in sources if encrypted is None or field_id in encrypted]


def followed(spec: EncryptionSpec, next_name: Callable[[str], str | None]) -> EncryptionSpec:
    """A specification by the names that its columns have from now on.

    Args:
        spec: the specification.
        next_name: what a column is called next; None if it goes.
    """
    plaintext = spec.plaintext_columns
    if plaintext is not None:
        plaintext = tuple(sorted(name for name in map(next_name, plaintext) if name is not None))
    return replace(
        spec,
        masks=renamed(spec.masks, next_name),
        columns=renamed(spec.columns, next_name),
        plaintext_columns=plaintext,
    )


def renamed(groups: Iterable[_Group], next_name: Callable[[str], str | None]) -> tuple[_Group, ...]:
    """Groups by the names that their columns have from now on; one that loses all of them goes.

    Args:
        groups: columns under keys, or masks.
        next_name: what a column is called next; None if it goes.
    """
    named = []
    for group in groups:
        left = tuple(sorted(name for name in map(next_name, group.columns) if name is not None))
        if left:
            named.append(replace(group, columns=left))
    return tuple(named)


def require_column_left(before: EncryptionSpec, after: EncryptionSpec, table: str) -> None:
    """Refuse that the last column goes that has a key: without a list, all would be under one key.

    Raises:
        EncryptionPolicyViolation: no column of the list is left.
    """
    if before.columns and not after.by_column:
        raise EncryptionPolicyViolation(
            "The change removes the last column that encryption.columns names.",
            table=table,
            rule="last-column",
            hint="Unset encryption.columns first. All columns are then encrypted under one key.",
        )
