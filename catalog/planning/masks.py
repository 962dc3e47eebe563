"""Decides which columns a scan shows masked.

- A user without `select` on a column that has a mask in `encryption.masks` gets the mask instead of an error.
  The plan names the column as masked. Its key is not released, and the engine reads the mask, or NULL.
- Planning ignores the conditions of a filter on a masked column, so that neither bounds nor partition values
  reveal its values. Spark filters by the mask.
- Masks are for users who can read the other columns: a scan of masked columns alone needs `select` on every
  other column.
- The audit log names each masked column that a scan reads or filters by, and the reason.
- The masks in force apply. A file of an earlier epoch can hold another mask of the column; without any, the
  column is NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    Or,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.schema import Schema

from catalog.audit.records import MAX_REASONS
from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import ACTION, ScanColumns, every_name, names_of, nested_in
from catalog.reading.loading import LoadedTable
from catalog.rules.governance import column_ids
from policy.decision import Decision, Reason
from policy.encryption.encrypted_columns import masked_fields
from policy.errors import NotAuthorized
from policy.view import ColumnNames, MaskedColumn, Scan, Visible


def scan_of(table: LoadedTable, schema: Schema, columns: ScanColumns, *, masks: bool = True) -> Scan:
    """Return the columns of a scan, and those of them that have masks.

    Args:
        table: the table.
        schema: the schema that it is read with.
        columns: what the scan touches.
        masks: whether the scan can show columns through masks.
    """
    today = table.metadata.schema()
    every = {each.field_id: each.name for each in today.fields}
    found = masked_fields(table.governed.spec, column_ids(today)) if masks else {}
    masked = []
    for field_id, mask in found.items():
        inside = nested_in(schema, field_id) or nested_in(today, field_id)
        touched = inside & columns.field_ids
        names = _names(table, schema, touched or inside)
        masked.append(
            MaskedColumn(field_id, today.find_column_name(field_id), mask, names, read=bool(touched))
        )
    plain = columns.names
    if found:
        plain = _names(table, schema, columns.field_ids - with_nested(table, schema, found))
        plain |= every_name(table, columns.sources)
    return Scan(plain, every, tuple(masked))


def _names(table: LoadedTable, schema: Schema, field_ids: frozenset[int]) -> ColumnNames:
    return names_of(schema, field_ids) | names_of(table.metadata.schema(), field_ids)


def with_nested(table: LoadedTable, schema: Schema, masked: Iterable[int]) -> frozenset[int]:
    """Return masked columns with all fields nested in them."""
    schemas = (schema, table.metadata.schema())
    return frozenset(inner for field_id in masked for each in schemas for inner in nested_in(each, field_id))


def record_masked(authorizer: Authorizer, caller: Caller, table: LoadedTable, why: Sequence[Reason]) -> None:
    """Record every column that is shown masked in the audit log, in several records if needed.

    Args:
        authorizer: records.
        caller: who is shown them.
        table: the table.
        why: for each of the columns.
    """
    for at in range(0, len(why), MAX_REASONS):
        authorizer.record(caller, ACTION, table.name, Decision.allow(*why[at : at + MAX_REASONS]))


def without_masked(table: LoadedTable, schema: Schema, columns: ScanColumns, seen: Visible) -> ScanColumns:
    """Return the columns of a scan without those that the caller sees masked."""
    if not seen.masked:
        return columns
    read = columns.field_ids - with_nested(table, schema, seen.masked)
    top_level = tuple(each for each in columns.top_level if each not in seen.masked)
    return replace(columns, top_level=top_level, field_ids=read, names=seen.names)


def refuse_masked(
    table: LoadedTable, schema: Schema, masked: frozenset[int], field_ids: frozenset[int], why: str
) -> None:
    """Refuse a scan that needs columns as they are.

    Args:
        table: the table.
        schema: the schema that it is read with.
        masked: the top-level columns that are masked for the caller.
        field_ids: the columns that are needed.
        why: a sentence that says what for.

    Raises:
        NotAuthorized: one is masked.
    """
    hidden = field_ids & with_nested(table, schema, masked)
    if hidden:
        raise NotAuthorized(
            f"The column {schema.find_column_name(min(hidden))!r} is masked for you. {why}",
            table=table.name,
            rule="masked-column",
            hint="Ask for the select permission on that column.",
        )


def weakened(
    row_filter: BooleanExpression, schema: Schema, masked: frozenset[int], *, case_sensitive: bool
) -> BooleanExpression:
    """Remove the conditions on masked columns: the result keeps every row that the filter keeps."""
    if not masked:
        return row_filter
    hidden = frozenset(inner for field_id in masked for inner in nested_in(schema, field_id))
    return _weakened(rewrite_not(row_filter), schema, hidden, case_sensitive)


def _weakened(
    part: BooleanExpression, schema: Schema, hidden: frozenset[int], case_sensitive: bool
) -> BooleanExpression:
    if isinstance(part, And | Or):
        left, right = (_weakened(each, schema, hidden, case_sensitive) for each in (part.left, part.right))
        return And(left, right) if isinstance(part, And) else Or(left, right)
    if isinstance(part, UnboundPredicate):
        bound = part.term.bind(schema, case_sensitive)
        return AlwaysTrue() if bound.ref().field.field_id in hidden else part
    return part
