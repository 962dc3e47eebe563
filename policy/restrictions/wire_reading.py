"""Reads restrictions in the form that `policy.restrictions.wire` writes, for readers that apply them.

What is not understood cannot be obeyed: everything unknown is refused.

Source: docs/plan-format.md, "Restrictions"; Iceberg table specification, "JSON single-value serialization".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

from policy.errors import NotSupportedYet
from policy.restrictions.actions import MaskAction, takes
from policy.restrictions.columns import NESTED
from policy.restrictions.model import UNRESTRICTED, ColumnMask, Restriction
from policy.restrictions.predicate import (
    TRUE,
    And,
    Compare,
    Comparison,
    Constant,
    In,
    Literal,
    Or,
    Predicate,
)
from policy.restrictions.wire import UNARY

MAX_LEVELS: Final = 300
"""Deepest nesting of a row filter. Those of policies have fewer: `policy.restrictions.sql`."""

_FILTER: Final = "required-row-filter"
_MASKS: Final = "required-column-projections"
_UNARY: Final[Mapping[str, Callable[[int], Predicate]]] = {name: kind for kind, name in UNARY.items()}
_OF_NAN: Final = frozenset({"is-nan", "not-nan"})
_PREFIXES: Final = frozenset({Comparison.STARTS_WITH, Comparison.NOT_STARTS_WITH})


def restriction_of(said: Any, types: Mapping[int, str]) -> Restriction:
    """The restriction that a plan says.

    Args:
        said: ``read-restrictions``; None for an unrestricted view.
        types: by field id the types of all fields of the table's schema, nested ones too, as Iceberg writes
            them without spaces; ``struct``, ``list`` and ``map`` for those that are not primitive.

    Raises:
        NotSupportedYet: a condition, action or field that is not known.
    """
    if said is None:
        return UNRESTRICTED
    if not isinstance(said, dict) or not said.keys() <= {_FILTER, _MASKS}:
        raise _unknown("a restriction")
    condition = said.get(_FILTER)
    projections = said.get(_MASKS, [])
    if not isinstance(projections, list):
        raise _unknown("masks that are not in a list")
    masks: dict[int, ColumnMask] = {}
    for each in projections:
        field_id, mask = _mask(each, types)
        if field_id in masks:
            raise _unknown(f"two masks of the field {field_id}")
        masks[field_id] = mask
    return Restriction(TRUE if condition is None else _predicate(condition, types), masks)


def _mask(said: Any, types: Mapping[int, str]) -> tuple[int, ColumnMask]:
    if not isinstance(said, dict) or said.keys() != {"field-id", "action"}:
        raise _unknown("a mask")
    field_id, name = said["field-id"], said["action"]
    try:
        action = MaskAction(name)
    except ValueError as error:
        raise _unknown(f"the mask {str(name)[:40]!r}") from error
    kind = _type_of(field_id, types)
    if not takes(action, _family(kind)):
        raise _unknown(f"the mask {action} of the field {field_id}, whose type is {kind}")
    return field_id, ColumnMask(action)


def _predicate(said: Any, types: Mapping[int, str], level: int = 0) -> Predicate:
    if level > MAX_LEVELS:
        raise _unknown(f"a row filter with more than {MAX_LEVELS} levels")
    if isinstance(said, bool):
        return Constant(said)
    kind = str(said.get("type")) if isinstance(said, dict) else ""
    if kind in ("and", "or") and said.keys() == {"type", "left", "right"}:
        left, right = (_predicate(said[each], types, level + 1) for each in ("left", "right"))
        parts = left, right
        return And(parts) if kind == "and" else Or(parts)
    if kind in _UNARY and said.keys() == {"type", "child"}:
        field_id = _reference(said["child"], types)
        if kind in _OF_NAN and types[field_id] not in ("float", "double"):
            raise _unknown(f"{kind} of the field {field_id}, whose type is {types[field_id]}")
        return _UNARY[kind](field_id)
    if kind in ("in", "not-in") and said.keys() == {"type", "child", "values"}:
        field_id = _reference(said["child"], types)
        values = tuple(_literal(each, field_id, types) for each in said["values"])
        return In(field_id, values, negated=kind == "not-in")
    if kind in list(Comparison) and said.keys() == {"type", "left", "right"}:
        return _comparison(Comparison(kind), said, types)
    raise _unknown(f"the condition {kind[:40]!r}")


def _comparison(comparison: Comparison, said: Mapping[str, Any], types: Mapping[int, str]) -> Compare:
    field_id, right = _reference(said["left"], types), said["right"]
    if not isinstance(right, dict) or right.keys() != {"type", "value"} or right["type"] != "literal":
        raise _unknown("a comparison with what is no literal")
    if comparison in _PREFIXES and types[field_id] != "string":
        raise _unknown(f"a prefix of the field {field_id}, whose type is {types[field_id]}")
    return Compare(comparison, field_id, _literal(right["value"], field_id, types))


def _reference(said: Any, types: Mapping[int, str]) -> int:
    if not isinstance(said, dict) or said.keys() != {"type", "id"} or said["type"] != "reference":
        raise _unknown("a condition on what is no column")
    field_id: int = said["id"]
    if _type_of(field_id, types) in NESTED:
        raise _unknown(f"a condition on the field {field_id}, whose type is {types[field_id]}")
    return field_id


def _type_of(field_id: Any, types: Mapping[int, str]) -> str:
    if type(field_id) is not int or field_id not in types:
        raise _unknown(f"the field {str(field_id)[:40]}, which the schema of the plan does not have")
    return types[field_id]


def _family(kind: str) -> str:
    return kind.partition("(")[0].partition("[")[0]


def _literal(said: Any, field_id: int, types: Mapping[int, str]) -> Literal:
    kind = types[field_id]
    form, read = _READ.get(_family(kind), (None, None))
    if form is None or read is None or type(said) not in form:
        raise _unknown(f"a value for the field {field_id} that is not of the type {kind}")
    try:
        return Literal(kind, read(said))
    except (ValueError, ArithmeticError, struct.error) as error:
        raise _unknown(f"a value for the field {field_id} that is not of the type {kind}") from error


def _single(said: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", said))[0])


def _timestamp(said: str) -> datetime:
    value = datetime.fromisoformat(said)
    if value.tzinfo is not None:
        raise ValueError
    return value


def _with_zone(said: str) -> datetime:
    value = datetime.fromisoformat(said)
    if value.tzinfo is None:
        raise ValueError
    return value.astimezone(UTC)


#: By type the forms of its values in JSON, and what reads them.
_READ: Final[Mapping[str, tuple[tuple[type, ...], Callable[[Any], Any]]]] = {
    "boolean": ((bool,), bool),
    "int": ((int,), int),
    "long": ((int,), int),
    "float": ((float, int), _single),
    "double": ((float, int), float),
    "decimal": ((str,), Decimal),
    "string": ((str,), str),
    "date": ((str,), date.fromisoformat),
    "timestamp": ((str,), _timestamp),
    "timestamptz": ((str,), _with_zone),
}


def _unknown(what: str) -> NotSupportedYet:
    return NotSupportedYet(
        f"The catalog restricts the scan by {what}, which this client does not support.",
        rule="read-restrictions",
        hint="Install the client of the catalog's release.",
    )
