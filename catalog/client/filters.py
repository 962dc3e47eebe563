"""Filters: the catalog skips files with them, and the client applies them to rows.

A filter is pyiceberg's expression, or a text of its language (``"amount > 100 and region in ('eu', 'us')"``).
As in SQL, a comparison with null holds for no row.

Source: Iceberg REST specification, "Expression"; docs/rest-api.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions as iceberg
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, literals, parser
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.utils.datetime import days_to_date
from pyparsing.exceptions import ParseBaseException

from catalog.client.columns import arrow_type
from catalog.iceberg.filter_values import require_exact
from policy.errors import RequestInvalid

_UNARY: Final[Mapping[type[Any], str]] = {
    iceberg.IsNull: "is-null",
    iceberg.NotNull: "not-null",
    iceberg.IsNaN: "is-nan",
    iceberg.NotNaN: "not-nan",
}
_LITERAL: Final[Mapping[type[Any], str]] = {
    iceberg.LessThan: "lt",
    iceberg.LessThanOrEqual: "lt-eq",
    iceberg.GreaterThan: "gt",
    iceberg.GreaterThanOrEqual: "gt-eq",
    iceberg.EqualTo: "eq",
    iceberg.NotEqualTo: "not-eq",
    iceberg.StartsWith: "starts-with",
    iceberg.NotStartsWith: "not-starts-with",
}
_SET: Final[Mapping[type[Any], str]] = {iceberg.In: "in", iceberg.NotIn: "not-in"}


def parsed(given: str | BooleanExpression | None) -> BooleanExpression:
    """A filter as an expression; None filters nothing.

    Raises:
        RequestInvalid: a text that is none.
    """
    if given is None:
        return AlwaysTrue()
    if isinstance(given, BooleanExpression):
        return given
    try:
        return parser.parse(given)
    except (ParseBaseException, ValueError, RecursionError) as error:
        raise RequestInvalid(
            f"The filter cannot be parsed: {given[:200]!r}.",
            rule="filter",
            hint="Example: amount > 100 and region in ('eu', 'us').",
        ) from error


def terms(expression: BooleanExpression) -> list[str]:
    """The names of the columns that an expression filters by."""
    if isinstance(expression, iceberg.And | iceberg.Or):
        return [*terms(expression.left), *terms(expression.right)]
    if isinstance(expression, iceberg.Not):
        return terms(expression.child)
    if isinstance(expression, iceberg.UnboundPredicate):
        return [_name(expression)]
    return []


def to_json(expression: BooleanExpression) -> dict[str, Any] | None:
    """An expression as the catalog takes it; None for one that JSON has no form for."""
    try:
        return _json(expression)
    except _NoForm:
        return None


class _NoForm(Exception):
    """Raised inside this module for a literal that JSON has no form for."""


def _json(expression: BooleanExpression) -> dict[str, Any]:
    kind = type(expression)
    if isinstance(expression, iceberg.And | iceberg.Or):
        joined = "and" if isinstance(expression, iceberg.And) else "or"
        return {"type": joined, "left": _json(expression.left), "right": _json(expression.right)}
    if isinstance(expression, iceberg.Not):
        return {"type": "not", "child": _json(expression.child)}
    if isinstance(expression, iceberg.AlwaysTrue | iceberg.AlwaysFalse):
        return {"type": "true" if isinstance(expression, iceberg.AlwaysTrue) else "false"}
    if kind in _UNARY:
        return {"type": _UNARY[kind], "term": _name(expression)}
    if kind in _LITERAL:
        value = _value(cast(Any, expression).literal)
        return {"type": _LITERAL[kind], "term": _name(expression), "value": value}
    if kind in _SET:
        values = [_value(each) for each in cast(Any, expression).literals]
        return {"type": _SET[kind], "term": _name(expression), "values": values}
    raise _unknown(kind.__name__)


def _name(expression: BooleanExpression) -> str:
    term = cast(Any, expression).term
    if not isinstance(term, iceberg.Reference):
        raise _unknown("a transform")
    return term.name


def _unknown(what: str) -> RequestInvalid:
    return RequestInvalid(
        f"A filter cannot contain {what} in it.", rule="filter", hint="Compare columns with values."
    )


def _value(literal: literals.Literal[Any]) -> Any:
    """A value in Iceberg's single-value form."""
    value = literal.value
    if isinstance(literal, literals.DateLiteral):
        return days_to_date(value).isoformat()
    if isinstance(literal, literals.DecimalLiteral):
        return str(value)
    if isinstance(literal, literals.UUIDLiteral):
        return str(UUID(bytes=value))
    if isinstance(literal, literals.TimestampLiteral) or value in (math.inf, -math.inf) or value != value:
        # pyiceberg does not keep whether a timestamp has a zone; all numbers of JSON are finite.
        raise _NoForm
    if isinstance(value, str | int | float | bool):
        return value
    raise _NoForm


def bound(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> BooleanExpression | None:
    """A filter bound to the columns of `schema`, without negations; None for one that keeps all rows.

    Raises:
        RequestInvalid: a column that is not there, or a value that is not of its type.
    """
    if isinstance(expression, AlwaysTrue):
        return None
    try:
        require_exact(expression, schema, case_sensitive=case_sensitive)
        return bind(schema, rewrite_not(expression), case_sensitive=case_sensitive)
    except (ValueError, TypeError) as error:
        raise RequestInvalid(
            f"The filter does not match the table's schema: {error}", rule="filter"
        ) from error


def row_filter(expression: BooleanExpression, schema: Schema) -> pc.Expression:
    """What keeps the wanted rows of a table whose columns are `schema`'s.

    Args:
        expression: as `bound` made it.
        schema: the columns.
    """
    return visit(expression, _Rows(schema))


class _Rows(BoundBooleanExpressionVisitor[pc.Expression]):
    """Makes Arrow's expression of one that is bound; a result that is null keeps no row."""

    def __init__(self, schema: Schema) -> None:
        self._ways = _ways(schema.as_struct().fields, ())

    def _field(self, term: Any) -> pc.Expression:
        return pc.field(self._ways[term.ref().field.field_id])

    def _compare(
        self, term: Any, literal: Any, holds: Callable[[pc.Expression, pa.Scalar], pc.Expression]
    ) -> pc.Expression:
        return holds(self._field(term), pa.scalar(literal.value, arrow_type(term.ref().field.field_type)))

    def _among(self, term: Any, given: set[Any]) -> pc.Expression:
        values = pa.array(sorted(given), arrow_type(term.ref().field.field_type))
        return self._field(term).isin(values)

    def visit_in(self, term: Any, literals: set[Any]) -> pc.Expression:
        return self._among(term, literals)

    def visit_not_in(self, term: Any, literals: set[Any]) -> pc.Expression:
        return self._field(term).is_valid() & ~self._among(term, literals)

    def visit_is_nan(self, term: Any) -> pc.Expression:
        return pc.is_nan(self._field(term))

    def visit_not_nan(self, term: Any) -> pc.Expression:
        return ~pc.is_nan(self._field(term))

    def visit_is_null(self, term: Any) -> pc.Expression:
        return self._field(term).is_null(nan_is_null=False)

    def visit_not_null(self, term: Any) -> pc.Expression:
        return self._field(term).is_valid()

    def visit_equal(self, term: Any, literal: Any) -> pc.Expression:
        return self._compare(term, literal, lambda field, value: field == value)

    def visit_not_equal(self, term: Any, literal: Any) -> pc.Expression:
        return self._compare(term, literal, lambda field, value: field != value)

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> pc.Expression:
        return self._compare(term, literal, lambda field, value: field >= value)

    def visit_greater_than(self, term: Any, literal: Any) -> pc.Expression:
        return self._compare(term, literal, lambda field, value: field > value)

    def visit_less_than(self, term: Any, literal: Any) -> pc.Expression:
        return self._compare(term, literal, lambda field, value: field < value)

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> pc.Expression:
        return self._compare(term, literal, lambda field, value: field <= value)

    def visit_starts_with(self, term: Any, literal: Any) -> pc.Expression:
        return pc.starts_with(self._field(term), literal.value)

    def visit_not_starts_with(self, term: Any, literal: Any) -> pc.Expression:
        return ~pc.starts_with(self._field(term), literal.value)

    def visit_true(self) -> pc.Expression:
        return pc.scalar(True)

    def visit_false(self) -> pc.Expression:
        return pc.scalar(False)

    def visit_not(self, child_result: pc.Expression) -> pc.Expression:
        return ~child_result

    def visit_and(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result & right_result

    def visit_or(self, left_result: pc.Expression, right_result: pc.Expression) -> pc.Expression:
        return left_result | right_result


def _ways(fields: Any, above: tuple[str, ...]) -> dict[int, tuple[str, ...]]:
    """The names from the top to each field that is nested in structs alone."""
    found: dict[int, tuple[str, ...]] = {}
    for each in fields:
        way = (*above, each.name)
        found[each.field_id] = way
        if each.field_type.is_struct:
            found |= _ways(each.field_type.fields, way)
    return found
