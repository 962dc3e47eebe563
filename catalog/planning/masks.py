"""Columns that a scan shows through masks.

- Whoever may not select a column that has a mask in `encryption.masks` gets the mask instead of an error. The
  plan names the column as masked; its key is not released, and the engine reads the mask, or NULL.
- A masked column decides nothing here: what a filter asks of it is left out, as if every row could be wanted,
  so that neither bounds nor partition values answer in its place. Spark filters by what the mask shows.
- Masks are for those who may read the rest: a scan of nothing but masked columns needs every other column.
- The audit trail names each masked column that a scan reads or filters by, and what speaks against it.
- Masks are those in force. A file of an earlier epoch may hold another mask of the column, or none and then
  it is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from catalog.authorization.columns import ACTION, ColumnNames, ScanColumns, names_of, nested_in, selects
from catalog.reading.loading import LoadedTable
from catalog.rules.governance import column_ids
from policy.decision import Decision, Reason
from policy.encryption.encrypted_columns import masked_fields


def masked_for(
    authorizer: Authorizer, caller: Caller, table: LoadedTable, schema: Schema, columns: ScanColumns
) -> dict[int, Reason]:
    """By id the top-level columns that the caller sees masked, and why; whether the scan touches them or not.

    Args:
        authorizer: decides; nothing is recorded.
        caller: who scans.
        table: the table.
        schema: the schema that it is read with.
        columns: what the scan touches.
    """
    today = table.metadata.schema()
    masks = masked_fields(table.governed.spec, column_ids(today))
    found = {}
    for field_id, mask in masks.items():
        inside = nested_in(schema, field_id) or nested_in(today, field_id)
        touched = inside & columns.field_ids or inside
        names = names_of(schema, touched) | names_of(today, touched)
        decisions = [authorizer.decide([each]) for each in selects(authorizer, caller, table, names)]
        refused = [each for each in decisions if not each.allowed]
        if refused:
            found[field_id] = _masked(today.find_column_name(field_id), mask, refused[0].reasons[0])
    return found


def _masked(column: str | None, mask: str, against: Reason) -> Reason:
    detail = f"The column {column!r} is shown through its mask, {mask}: {against.detail}"
    return replace(against, rule="column-mask", detail=detail)


def record_masked(authorizer: Authorizer, caller: Caller, table: LoadedTable, why: Sequence[Reason]) -> None:
    """Put every column that is shown through a mask into the audit trail, in as many records as it takes.

    Args:
        authorizer: records.
        caller: who is shown them.
        table: the table.
        why: for each of the columns.
    """
    for at in range(0, len(why), MAX_REASONS):
        authorizer.record(caller, ACTION, table.name, Decision.allow(*why[at : at + MAX_REASONS]))


def without_masked(
    table: LoadedTable, schema: Schema, columns: ScanColumns, masked: frozenset[int]
) -> ScanColumns:
    """What a scan touches besides masked columns; if that is nothing, every other column of the table."""
    if not masked:
        return columns
    today = table.metadata.schema()
    hidden = {inner for field_id in masked for each in (schema, today) for inner in nested_in(each, field_id)}
    read = columns.field_ids - hidden
    names = names_of(schema, read) | names_of(today, read)
    if not names.columns:
        others = frozenset(each.name for each in today.fields if each.field_id not in masked)
        names = ColumnNames(others)
    top_level = tuple(each for each in columns.top_level if each not in masked)
    return replace(columns, top_level=top_level, field_ids=read, names=names)


def weakened(
    row_filter: BooleanExpression, schema: Schema, masked: frozenset[int], *, case_sensitive: bool
) -> BooleanExpression:
    """A filter without what it asks of masked columns: true for every row that the filter is true for."""
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
