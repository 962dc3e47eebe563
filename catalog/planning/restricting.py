"""Decides what the reader of a scan has to enforce, and refuses readers that do not.

- A plan with a row filter or masks of policies goes to an enforcing reader: an engine with its credential,
  that says so in the request (`READ_RESTRICTIONS`), and in which the user cannot run code.
- A user's own process enforces nothing. So it gets a plan only if every mask is NULL in a whole column, and
  without a row filter. `releases` makes sure that no file shows the column's values.
- Rewriting files, and reading changes, take all rows as they are, so that restrictions refuse them.
- Planning ignores conditions of the user's filter on masked columns, so that no bound and no partition value
  of these tells of their values. The row filter prunes files.
- A filter or mask that does not fit the table's schema refuses the scan. The error names the policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import ACTION, ScanColumns, nested_in, refuse_altered, view_of
from catalog.authorization.restrictions import columns_of
from catalog.planning.masks import record_masked, with_nested
from catalog.planning.request import READ_RESTRICTIONS, ScanRequest
from catalog.reading.loading import LoadedTable
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized, PolicyInvalid
from policy.privileges.operations import running_code
from policy.restrictions import predicate as filters
from policy.restrictions.actions import MaskAction
from policy.restrictions.model import UNRESTRICTED, Restriction
from policy.restrictions.predicate import TRUE, Comparison, Predicate, explicit
from policy.restrictions.wire import literal_json
from policy.view import Reading

_COMPARED: Final[dict[Comparison, type[Any]]] = {
    Comparison.EQ: EqualTo,
    Comparison.NOT_EQ: NotEqualTo,
    Comparison.LT: LessThan,
    Comparison.LT_EQ: LessThanOrEqual,
    Comparison.GT: GreaterThan,
    Comparison.GT_EQ: GreaterThanOrEqual,
    Comparison.STARTS_WITH: StartsWith,
    Comparison.NOT_STARTS_WITH: NotStartsWith,
}
#: Types that pyiceberg does not compare with literals in JSON; their conditions prune nothing.
_NOT_COMPARED: Final = (TimestampNanoType(), TimestamptzNanoType())
_POSITION: Final = "_pos"
_LISTED: Final[type[Any]] = In
_NOT_LISTED: Final[type[Any]] = NotIn
_ALONE: Final[dict[type[Predicate], type[Any]]] = {
    filters.IsNull: IsNull,
    filters.NotNull: NotNull,
    filters.IsNan: IsNaN,
    filters.NotNan: NotNaN,
}


def restrict(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    schema: Schema,
    columns: ScanColumns,
    reading: Reading,
    request: ScanRequest,
) -> Restriction:
    """Return what the reader has to enforce, with a record of it.

    Args:
        authorizer: decides and records.
        caller: who scans.
        table: the table.
        schema: the schema that it is read with.
        columns: what the scan reads and filters by.
        reading: what was decided of these.
        request: what is asked for.

    Raises:
        NotAuthorized: the reader does not enforce it, or it does not fit the schema.
    """
    if reading.altered is None:
        return UNRESTRICTED
    if request.files is not None or request.changes:
        refuse_altered(authorizer, caller, table, reading.altered)
    restriction = decided(authorizer, caller, table, schema, columns.field_ids)
    if restriction:
        why = _not_enforced(authorizer, caller, schema, restriction, request)
        if why is not None:
            _refuse(authorizer, caller, table, reading.altered, *why)
    if restriction.row_filter != TRUE and _numbers_rows(schema, request):
        why = f"{_POSITION} would tell of rows that are hidden.", f"Leave {_POSITION} out."
        _refuse(authorizer, caller, table, reading.altered, *why)
    record_masked(authorizer, caller, table, restriction.reasons)
    return restriction


def _numbers_rows(schema: Schema, request: ScanRequest) -> bool:
    """Return whether the numbers of rows in their files are read; a column of that name stands for itself."""
    return _POSITION in (request.columns or ()) and all(each.name != _POSITION for each in schema.fields)


def decided(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    schema: Schema,
    field_ids: frozenset[int] | None = None,
) -> Restriction:
    """Return the restriction of some fields, whichever client enforces it.

    Args:
        authorizer: decides and records.
        caller: whose restriction it is.
        table: the table.
        schema: the schema that it is read with.
        field_ids: the fields; by default all.

    Raises:
        NotAuthorized: a row filter or a mask does not fit the schema.
    """
    today, read = columns_of(table), columns_of(table, schema)
    try:
        return view_of(authorizer, caller, table).restriction(today, read, field_ids)
    except PolicyInvalid as problem:
        reason = Reason(problem.rule or "read-restrictions", problem.message)
        authorizer.record(caller, ACTION, table.name, Decision.deny(reason))
        raise NotAuthorized(
            problem.message,
            table=table.name,
            rule=reason.rule,
            hint=f"Ask an administrator to mend the policy. {problem.hint or ''}".rstrip(),
        ) from problem


def _not_enforced(
    authorizer: Authorizer, caller: Caller, schema: Schema, restriction: Restriction, request: ScanRequest
) -> tuple[str, str] | None:
    """Return why the caller's reader does not enforce a restriction, and what to do; None if it does."""
    if caller.engine is None:
        columns = {each.field_id for each in schema.fields}
        nulls = all(mask.action is MaskAction.REPLACE_WITH_NULL for mask in restriction.masks.values())
        if restriction.row_filter == TRUE and nulls and restriction.masks.keys() <= columns:
            return None
        return (
            "Your own process cannot apply row filters and masks.",
            "Read through an engine with its credential, or leave masked columns out.",
        )
    if READ_RESTRICTIONS not in request.enforces:
        return (
            "The reader does not apply row filters and masks.",
            "Install the plugin of the catalog's release, or leave masked columns out.",
        )
    if not enforces(authorizer, caller, request):
        return (
            f"You can run code in the engine {caller.engine.name}, which could read what the policy hides.",
            f"Use an engine in which you cannot run code, or have `code` on {caller.engine.name} revoked.",
        )
    return None


def enforces(authorizer: Authorizer, caller: Caller, request: ScanRequest) -> bool:
    """Return whether the caller's reader enforces restrictions: an engine in which the user runs no code."""
    if caller.engine is None or READ_RESTRICTIONS not in request.enforces:
        return False
    return not authorizer.decide(running_code(caller.user, caller.engine.name)).allowed


def _refuse(
    authorizer: Authorizer, caller: Caller, table: LoadedTable, reason: Reason, why: str, hint: str
) -> None:
    said = f"{reason.detail} {why}"
    authorizer.record(caller, ACTION, table.name, Decision.deny(replace(reason, detail=said)))
    raise NotAuthorized(said, table=table.name, rule=reason.rule, hint=hint)


def require_same(table: LoadedTable, before: Restriction, now: Restriction) -> None:
    """Check that policies that came into force meanwhile restrict the scan alike.

    Raises:
        NotAuthorized: they do not.
    """
    if (before.row_filter, _actions(before)) != (now.row_filter, _actions(now)):
        raise NotAuthorized(
            "The policies on rows and values of the table changed while the scan was planned.",
            table=table.name,
            rule="policy-changed",
            hint="Run the query again.",
        )


def _actions(restriction: Restriction) -> dict[int, MaskAction]:
    return {field_id: mask.action for field_id, mask in restriction.masks.items()}


def closed_columns(schema: Schema, restriction: Restriction) -> frozenset[int]:
    """Return the top-level columns that are NULL for the caller, and that the reader does not look at."""
    return frozenset(
        each.field_id
        for each in schema.fields
        if each.field_id in restriction.nulled
        and restriction.filters_by.isdisjoint(nested_in(schema, each.field_id))
    )


def without_nulled(
    table: LoadedTable, schema: Schema, columns: ScanColumns, restriction: Restriction
) -> ScanColumns:
    """Return the columns of a scan without those that are NULL for the caller."""
    closed = closed_columns(schema, restriction)
    nulled = with_nested(table, schema, restriction.nulled) - restriction.filters_by
    top_level = tuple(each for each in columns.top_level if each not in closed)
    return replace(columns, top_level=top_level, field_ids=columns.field_ids - nulled)


def pruning(restriction: Restriction, schema: Schema) -> BooleanExpression:
    """Return the row filter for pruning files, bound to a schema."""
    found = _pruning(explicit(restriction.row_filter), schema)
    return bind(schema, found, case_sensitive=True)


def _pruning(predicate: Predicate, schema: Schema) -> BooleanExpression:
    match predicate:
        case filters.Constant(value):
            return AlwaysTrue() if value else AlwaysFalse()
        case filters.And(parts):
            return And(*(_pruning(each, schema) for each in parts))
        case filters.Or(parts):
            return Or(*(_pruning(each, schema) for each in parts))
        case filters.Not():
            raise AssertionError("an explicit filter has no negation")
    if schema.find_type(predicate.field_id) in _NOT_COMPARED:
        return AlwaysTrue()
    name = schema.find_column_name(predicate.field_id) or ""
    found: BooleanExpression
    match predicate:
        case filters.Compare(comparison, _, literal):
            found = _COMPARED[comparison](name, literal_json(literal))
        case filters.In(_, literals, negated):
            values = [literal_json(each) for each in literals]
            found = (_NOT_LISTED if negated else _LISTED)(name, values)
        case _:
            found = _ALONE[type(predicate)](name)
    return found
