"""Parses the filters of a plan, Iceberg's JSON expressions, strictly, and writes them.

pyiceberg's own models ignore unknown fields and accept a text as a list of letters, so a filter could get
another meaning than intended. This module requires exactly the fields of each form. It writes values as they
were given.

Source: Iceberg REST specification, "Expression"; Iceberg's Java library writes a bare ``true`` or ``false``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pyiceberg import expressions as iceberg
from pyiceberg.expressions import BooleanExpression, UnboundTerm

from catalog.iceberg.transform_terms import TransformTerm, term_of
from policy.errors import NotSupportedYet, RequestInvalid

MAX_NODES: Final = 10_000
MAX_VALUES: Final = 10_000

_UNARY: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "is-null": iceberg.IsNull,
        "not-null": iceberg.NotNull,
        "is-nan": iceberg.IsNaN,
        "not-nan": iceberg.NotNaN,
    }
)
_LITERAL: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "lt": iceberg.LessThan,
        "lt-eq": iceberg.LessThanOrEqual,
        "gt": iceberg.GreaterThan,
        "gt-eq": iceberg.GreaterThanOrEqual,
        "eq": iceberg.EqualTo,
        "not-eq": iceberg.NotEqualTo,
        "starts-with": iceberg.StartsWith,
        "not-starts-with": iceberg.NotStartsWith,
    }
)
_SET: Final[Mapping[str, type[Any]]] = MappingProxyType({"in": iceberg.In, "not-in": iceberg.NotIn})
_CONSTANT: Final = MappingProxyType({"true": iceberg.AlwaysTrue(), "false": iceberg.AlwaysFalse()})
_JOINED: Final[Mapping[str, type[Any]]] = MappingProxyType({"and": iceberg.And, "or": iceberg.Or})
_NAMES: Final = {kind: name for each in (_UNARY, _LITERAL, _SET, _JOINED) for name, kind in each.items()}


def filter_of(document: object, *, transforms: bool = False) -> BooleanExpression:
    """Parse a filter into pyiceberg's expression, not bound to a schema.

    Args:
        document: parsed JSON; None for no filter.
        transforms: whether it can filter by transforms of columns.

    Raises:
        RequestInvalid: it is not an expression, or it is too large.
        NotSupportedYet: it filters by a transform, and it cannot.
    """
    if document is None:
        return iceberg.AlwaysTrue()
    return _Reader(transforms).read(document)


def filter_json(expression: BooleanExpression) -> Any:
    """Return the JSON of a filter that `filter_of` parsed; values of binary columns can be bytes."""
    if isinstance(expression, iceberg.AlwaysTrue | iceberg.AlwaysFalse):
        return isinstance(expression, iceberg.AlwaysTrue)
    if isinstance(expression, iceberg.And | iceberg.Or):
        left, right = filter_json(expression.left), filter_json(expression.right)
        return {"type": _NAMES[type(expression)], "left": left, "right": right}
    if isinstance(expression, iceberg.Not):
        return {"type": "not", "child": filter_json(expression.child)}
    assert isinstance(expression, iceberg.UnboundPredicate)
    found: dict[str, Any] = {"type": _NAMES[type(expression)], "term": _term_json(expression.term)}
    if isinstance(expression, iceberg.LiteralPredicate):
        found["value"] = _written(expression.literal.value)
    elif isinstance(expression, iceberg.SetPredicate):
        found["values"] = [_written(each.value) for each in expression.literals]
    return found


def _term_json(term: UnboundTerm) -> Any:
    if isinstance(term, TransformTerm):
        return {"type": "transform", "transform": str(term.transform), "term": term.name}
    assert isinstance(term, iceberg.Reference)
    return term.name


def _written(value: Any) -> Any:
    return value.hex().upper() if isinstance(value, bytes) else value


class _Reader:
    """Reads one expression and counts its parts."""

    def __init__(self, transforms: bool) -> None:
        self._transforms = transforms
        self._nodes = 0

    def read(self, document: object) -> BooleanExpression:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _invalid(f"it has more than {MAX_NODES} parts")
        if isinstance(document, bool):
            return _CONSTANT[str(document).lower()]
        if not isinstance(document, dict):
            raise _invalid("a part is not an object")
        return self._typed(document)

    def _typed(self, document: dict[str, Any]) -> BooleanExpression:
        kind = document.get("type")
        if not isinstance(kind, str):
            raise _invalid("a part has no type")
        if kind in _CONSTANT:
            _fields(document)
            return _CONSTANT[kind]
        if kind in _JOINED:
            left, right = _fields(document, "left", "right")
            joined: BooleanExpression = _JOINED[kind](self.read(left), self.read(right))
            return joined
        if kind == "not":
            return iceberg.Not(self.read(*_fields(document, "child")))
        return _predicate(kind, document, self._transforms)


def _predicate(kind: str, document: dict[str, Any], transforms: bool) -> BooleanExpression:
    if kind in _UNARY:
        (term,) = _fields(document, "term")
        found: BooleanExpression = _UNARY[kind](_term(term, transforms))
    elif kind in _LITERAL:
        term, value = _fields(document, "term", "value")
        found = _LITERAL[kind](_term(term, transforms), _value(value))
    elif kind in _SET:
        term, values = _fields(document, "term", "values")
        found = _SET[kind](_term(term, transforms), _values(values))
    else:
        raise _invalid(f"there is no type {kind[:40]!r}")
    return found


def _fields(document: dict[str, Any], *names: str) -> list[Any]:
    """Return the values of exactly these fields."""
    if document.keys() != {"type", *names}:
        raise _invalid(
            f"a part of type {document['type'][:40]!r} has the fields {', '.join(names) or 'type'}"
        )
    return [document[name] for name in names]


def _term(term: object, transforms: bool) -> str | UnboundTerm:
    if not isinstance(term, dict) or term.get("type") != "transform":
        return _column(term)
    if not transforms:
        raise NotSupportedYet(
            "Filters on transforms are not supported.",
            rule="filter",
            hint="Filter on the column. Partitions are pruned by it.",
        )
    transform, column = _fields(term, "transform", "term")
    try:
        return term_of(_column(column), transform)
    except ValueError as problem:
        raise _invalid(str(problem)) from problem


def _column(term: object) -> str:
    if isinstance(term, dict) and term.get("type") == "reference" and term.keys() == {"type", "term"}:
        term = term["term"]
    if not isinstance(term, str) or not term:
        raise _invalid("a term is not the name of a column")
    return term


def _value(value: object) -> str | int | float | bool:
    if not isinstance(value, str | int | float):
        raise _invalid("a value is not a string, a number or a boolean")
    return value


def _values(values: object) -> list[str | int | float | bool]:
    if not isinstance(values, list) or len(values) > MAX_VALUES:
        raise _invalid(f"`values` is not a list of at most {MAX_VALUES} values")
    return [_value(value) for value in values]


def _invalid(problem: str) -> RequestInvalid:
    return RequestInvalid(
        f"The filter is not an Iceberg expression: {problem}.",
        rule="filter",
        hint="See the Iceberg REST specification, `Expression`.",
    )
