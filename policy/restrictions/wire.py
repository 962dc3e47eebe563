"""Restrictions in the form of the Iceberg REST specification's ``read-restrictions``.

- A column is named by its field id: ``{"type": "reference", "id": 7}``.
- A condition on a column with a literal has ``left`` and ``right``, one on a column alone or with a list of
  values has ``child``. ``and`` and ``or`` have two sides. True and false are JSON's.
- Literals are in Iceberg's JSON single-value form.
- The filter is the `explicit` one: without ``not``, and with the same answer whether a reader's logic has two
  values or three.

Source: Iceberg REST specification, ``ReadRestrictions``, ``Predicate``; Iceberg table specification,
"JSON single-value serialization".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from policy.restrictions.model import Restriction
from policy.restrictions.predicate import (
    TRUE,
    And,
    Compare,
    Constant,
    In,
    IsNan,
    IsNull,
    Literal,
    NotNan,
    NotNull,
    Or,
    Predicate,
    explicit,
)

UNARY: Final[Mapping[type[IsNull | NotNull | IsNan | NotNan], str]] = {
    IsNull: "is-null",
    NotNull: "not-null",
    IsNan: "is-nan",
    NotNan: "not-nan",
}
"""The conditions on a column without a value, and their names in JSON."""


def restrictions_json(restriction: Restriction) -> dict[str, Any] | None:
    """A restriction as JSON; None for an unrestricted view."""
    if not restriction:
        return None
    row_filter = restriction.row_filter
    return {
        "required-row-filter": None if row_filter == TRUE else predicate_json(row_filter),
        "required-column-projections": [
            {"field-id": field_id, "action": mask.action.value}
            for field_id, mask in sorted(restriction.masks.items())
        ],
    }


def predicate_json(predicate: Predicate) -> Any:
    """A row filter as JSON, in its explicit form."""
    return _json(explicit(predicate))


def _json(predicate: Predicate) -> Any:
    match predicate:
        case Constant(value):
            return value
        case And(parts):
            return _nested("and", parts)
        case Or(parts):
            return _nested("or", parts)
        case IsNull(field_id) | NotNull(field_id) | IsNan(field_id) | NotNan(field_id):
            return {"type": UNARY[type(predicate)], "child": _reference(field_id)}
        case Compare(comparison, field_id, literal):
            return {
                "type": comparison.value,
                "left": _reference(field_id),
                "right": {"type": "literal", "value": literal_json(literal)},
            }
        case In(field_id, literals, negated):
            return {
                "type": "not-in" if negated else "in",
                "child": _reference(field_id),
                "values": [literal_json(each) for each in literals],
            }
    raise AssertionError(predicate)


def _nested(kind: str, parts: tuple[Predicate, ...]) -> Any:
    """Conditions in pairs, as balanced as they can be: readers bound the depth of what they parse."""
    layer = [_json(each) for each in parts]
    while len(layer) > 1:
        pairs = [layer[at : at + 2] for at in range(0, len(layer), 2)]
        layer = [
            reduce(lambda left, right: {"type": kind, "left": left, "right": right}, pair) for pair in pairs
        ]
    return layer[0]


def _reference(field_id: int) -> dict[str, Any]:
    return {"type": "reference", "id": field_id}


def literal_json(literal: Literal) -> Any:
    """A literal in Iceberg's JSON single-value form."""
    value = literal.value
    if isinstance(value, datetime):
        digits = "000" if literal.type.endswith("_ns") else ""
        zone = "" if value.tzinfo is None else "+00:00"
        naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return f"{naive.isoformat(timespec='microseconds')}{digits}{zone}"
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else value
