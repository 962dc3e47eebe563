"""Checks that the columns of a filter can store its values exactly.

pyiceberg rounds values: for an integer column, `id > 1.5` would become `id > 2` and omit rows. Floating-point
columns are compared with the nearest representable number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from pyiceberg import expressions as iceberg
from pyiceberg.expressions import BooleanExpression, UnboundTerm
from pyiceberg.expressions import literals as values
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from catalog.iceberg.transform_terms import TransformTerm, compared_field
from policy.errors import RequestInvalid

_DAY_MICROS: Final = 24 * 3600 * 1_000_000
_HEXADECIMAL: Final = re.compile("(?:[0-9A-Fa-f]{2})*", re.ASCII)
_WITHOUT_ZONE: Final = re.compile(r"[+-]?\d{4,}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?", re.ASCII)


def require_exact(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool, table: str | None = None
) -> None:
    """Check the values in a filter against the types of their columns.

    Args:
        expression: the filter, not bound to a schema.
        schema: the columns.
        case_sensitive: whether column names are case-sensitive.
        table: its dotted name, for errors.

    Raises:
        RequestInvalid: the type of a column cannot store its value, or has no beginnings to compare.
        ValueError: a column does not exist.
    """
    for _, predicate in comparisons(expression):
        if isinstance(predicate, iceberg.StartsWith | iceberg.NotStartsWith):
            _require_text(compared_field(predicate.term, schema, case_sensitive), table)
    for term, literal in _compared(expression):
        column = compared_field(term, schema, case_sensitive)
        if not _holds(column.field_type, literal):
            raise _inexact(column, literal, table)


def typed(expression: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> BooleanExpression:
    """Return a filter whose texts are values of their columns, where PyIceberg does not read them so.

    - Values of binary and fixed columns are in hexadecimal.
    - PyIceberg 0.12 writes timestamps with a time zone in UTC and leaves the zone out.

    Source: Iceberg table specification, "Appendix D: JSON single-value serialization".

    Args:
        expression: the filter, not bound to a schema.
        schema: the columns; conditions on others stay as they are.
        case_sensitive: whether column names are case-sensitive.
    """
    if isinstance(expression, iceberg.And | iceberg.Or):
        parts = (typed(each, schema, case_sensitive=case_sensitive) for each in _children(expression))
        return type(expression)(*parts)
    if isinstance(expression, iceberg.Not):
        return iceberg.Not(typed(expression.child, schema, case_sensitive=case_sensitive))
    if not isinstance(expression, iceberg.LiteralPredicate | iceberg.SetPredicate):
        return expression
    kind = _type_of(expression, schema, case_sensitive)
    if isinstance(expression, iceberg.LiteralPredicate):
        return type(expression)(expression.term, _typed(expression.literal, kind))
    return type(expression)(expression.term, {_typed(each, kind) for each in expression.literals})


def _children(expression: iceberg.And | iceberg.Or) -> tuple[BooleanExpression, BooleanExpression]:
    return expression.left, expression.right


def _type_of(predicate: iceberg.UnboundPredicate, schema: Schema, case_sensitive: bool) -> IcebergType | None:
    """Return the type of the values that are compared; None if there is no such column."""
    try:
        return compared_field(predicate.term, schema, case_sensitive).field_type
    except ValueError:
        return None


def _typed(literal: values.Literal[Any], kind: IcebergType | None) -> values.Literal[Any]:
    if not isinstance(literal, values.StringLiteral):
        return literal
    if isinstance(kind, BinaryType | FixedType) and _HEXADECIMAL.fullmatch(literal.value):
        return values.BinaryLiteral(bytes.fromhex(literal.value))
    if isinstance(kind, TimestamptzType) and _WITHOUT_ZONE.fullmatch(literal.value):
        return values.StringLiteral(f"{literal.value}+00:00")
    return literal


def filtered_columns(expression: BooleanExpression) -> list[str]:
    """Return the names of columns in a filter, as written."""
    return [name for name, _ in comparisons(expression)]


def comparisons(
    expression: BooleanExpression,
) -> Iterator[tuple[str, iceberg.UnboundPredicate]]:
    """Return the comparisons in a filter, each with the name of its column."""
    if isinstance(expression, iceberg.And | iceberg.Or):
        yield from comparisons(expression.left)
        yield from comparisons(expression.right)
    elif isinstance(expression, iceberg.Not):
        yield from comparisons(expression.child)
    elif isinstance(expression, iceberg.UnboundPredicate):
        assert isinstance(expression.term, iceberg.Reference | TransformTerm)
        yield expression.term.name, expression


def _compared(expression: BooleanExpression) -> Iterator[tuple[UnboundTerm, values.Literal[Any]]]:
    """Return columns and transforms of them, each with the value it is compared with."""
    for _, predicate in comparisons(expression):
        if isinstance(predicate, iceberg.LiteralPredicate):
            yield predicate.term, predicate.literal
        elif isinstance(predicate, iceberg.SetPredicate):
            for each in predicate.literals:
                yield predicate.term, each


def _holds(kind: IcebergType, literal: values.Literal[Any]) -> bool:
    """Return whether a type can store the value, if binding would round it; otherwise binding decides."""
    if isinstance(kind, DateType):
        given = literal.value
        return not (
            isinstance(literal, values.TimestampLiteral) and isinstance(given, int) and given % _DAY_MICROS
        )
    if not isinstance(kind, IntegerType | LongType | DecimalType):
        return True
    number = _number(literal.value)
    return number is None or _places(number) <= (kind.scale if isinstance(kind, DecimalType) else 0)


def _number(value: object) -> Decimal | None:
    """Return the number as written; None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _places(number: Decimal) -> float:
    """Return the number of decimal digits after the point, without trailing zeros."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return math.inf
    written = "".join(map(str, digits))
    return len(written.rstrip("0")) - len(written) - exponent if written.strip("0") else 0


def _require_text(column: NestedField, table: str | None) -> None:
    if not isinstance(column.field_type, StringType | BinaryType | FixedType):
        raise RequestInvalid(
            f"Column {column.name} has the type {column.field_type}; starts-with compares text.",
            table=table,
            rule="filter",
            hint="Use starts-with on string columns only.",
        )


def _inexact(column: NestedField, literal: values.Literal[Any], table: str | None) -> RequestInvalid:
    return RequestInvalid(
        f"The type {column.field_type} of column {column.name} cannot hold the value {literal!s:.100}.",
        table=table,
        rule="filter",
        hint=f"Compare the column with a value of the type {column.field_type}.",
    )
