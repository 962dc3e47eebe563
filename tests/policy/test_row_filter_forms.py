"""The forms in which conditions of row filters are sent and shown: explicit, as JSON, and as text."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policy.restrictions.predicate import (
    FALSE,
    TRUE,
    And,
    Compare,
    Comparison,
    Constant,
    In,
    IsNan,
    IsNull,
    Literal,
    Not,
    NotNan,
    NotNull,
    Or,
    Predicate,
    explicit,
)
from policy.restrictions.text import predicate_text
from policy.restrictions.wire import literal_json, predicate_json
from tests.policy.test_row_filters import bound

# What readers make of the explicit form.

#: How readers compare numbers: by Spark, by Java's natural order, by IEEE 754.
Order = dict[str, Any]


def _spark(left: float, right: float) -> int:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    return (left > right) - (left < right)


def _java(left: float, right: float) -> int:
    if left == right == 0:
        return int(math.copysign(1, left) - math.copysign(1, right)) // 2
    return _spark(left, right)


def _ieee(left: float, right: float) -> int | None:
    return None if math.isnan(left) or math.isnan(right) else _spark(left, right)


ORDERS = (_spark, _java, _ieee)
TESTS = {
    "eq": lambda order: order == 0,
    "not-eq": lambda order: order != 0,
    "lt": lambda order: order is not None and order < 0,
    "lt-eq": lambda order: order is not None and order <= 0,
    "gt": lambda order: order is not None and order > 0,
    "gt-eq": lambda order: order is not None and order >= 0,
}


def three_valued(predicate: Predicate, row: dict[int, float | None]) -> bool | None:
    """The filter as it is meant: SQL's logic, with Spark's comparisons."""
    match predicate:
        case Constant(value):
            return value
        case Not(child):
            found = three_valued(child, row)
            return None if found is None else not found
        case And(parts) | Or(parts):
            values = [three_valued(each, row) for each in parts]
            decisive = isinstance(predicate, Or)
            return decisive if decisive in values else (None if None in values else not decisive)
        case IsNull(field_id):
            return row[field_id] is None
        case NotNull(field_id):
            return row[field_id] is not None
        case IsNan(field_id):
            return row[field_id] is not None and math.isnan(row[field_id])
        case NotNan(field_id):
            return row[field_id] is None or not math.isnan(row[field_id])
        case In(field_id, literals, negated):
            if row[field_id] is None:
                return None
            return any(_spark(row[field_id], each.value) == 0 for each in literals) != negated
        case Compare(comparison, field_id, literal):
            value = row[field_id]
            return None if value is None else TESTS[comparison.value](_spark(value, literal.value))
    raise AssertionError(predicate)


def two_valued(document: Any, row: dict[int, float | None], order: Any, null: bool) -> bool:
    """A reader of the wire form for whom a comparison with NULL is `null`."""
    if isinstance(document, bool):
        return document
    kind = document["type"]
    if kind in ("and", "or"):
        sides = [two_valued(document[side], row, order, null) for side in ("left", "right")]
        return all(sides) if kind == "and" else any(sides)
    value = row[(document.get("child") or document["left"])["id"]]
    if kind in ("is-null", "not-null"):
        return (value is None) == (kind == "is-null")
    if value is None:
        return null
    if kind in ("is-nan", "not-nan"):
        return math.isnan(value) == (kind == "is-nan")
    if kind in ("in", "not-in"):
        return any(order(value, each) == 0 for each in document["values"]) == (kind == "in")
    return TESTS[kind](order(value, document["right"]["value"]))


NUMBERS = st.sampled_from([-1.0, -0.0, 0.0, 1.0])
LEAVES = st.one_of(
    st.builds(
        lambda comparison, number: Compare(Comparison(comparison), 1, Literal("double", number)),
        st.sampled_from(sorted(TESTS)),
        NUMBERS,
    ),
    st.builds(
        lambda numbers, negated: In(1, tuple(Literal("double", each) for each in numbers), negated),
        st.lists(NUMBERS, min_size=1, max_size=3),
        st.booleans(),
    ),
    st.sampled_from([IsNull(1), NotNull(1), IsNan(1), NotNan(1), TRUE, FALSE, IsNull(2), IsNan(2)]),
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda parts: And(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
        st.builds(lambda parts: Or(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)
VALUES = (None, -1.0, -0.0, 0.0, 1.0, math.nan)


@given(PREDICATES)
def test_readers_that_compare_null_nan_and_zero_in_their_own_way_keep_the_same_rows(
    predicate: Predicate,
) -> None:
    document = predicate_json(predicate)
    for first, second in product(VALUES, (None, math.nan)):
        row = {1: first, 2: second}
        meant = three_valued(predicate, row) is True
        for order, null in product(ORDERS, (True, False)):
            assert two_valued(document, row, order, null) is meant, (document, row, order.__name__, null)


def test_the_explicit_form_has_no_negation() -> None:
    text = "not (x < 0 or name not in ('a', 'b') or flag and n = 1) and not (name like 'a%' and isnan(x))"
    made = explicit(bound(text))
    assert "not" not in {each["type"] for each in _nodes(predicate_json(made))}
    assert explicit(Not(NotNan(5))) == explicit(IsNan(5)) and explicit(Not(IsNan(5))) == explicit(NotNan(5))
    assert (
        explicit(Not(IsNull(5))) == NotNull(5)
        and explicit(Not(NotNull(5))) == IsNull(5)
        and explicit(Not(FALSE)) == TRUE
    )


def test_every_condition_is_written_for_people() -> None:
    assert predicate_text(explicit(bound("not (isnan(x) or name like 'a%')")), str) == (
        "(5 IS NULL OR NOT isnan(5)) AND 7 IS NOT NULL AND NOT startswith(7, 'a')"
    )


def _nodes(document: Any) -> list[Any]:
    if not isinstance(document, dict) or "type" not in document:
        return []
    return [document, *(node for side in ("left", "right") for node in _nodes(document.get(side)))]


def test_literals_are_in_the_single_value_form() -> None:
    assert predicate_json(bound("home.town = 'x'")) == {
        "type": "and",
        "left": {"type": "not-null", "child": {"type": "reference", "id": 21}},
        "right": {
            "type": "eq",
            "left": {"type": "reference", "id": 21},
            "right": {"type": "literal", "value": "x"},
        },
    }
    assert predicate_json(bound("is_member('us')")) is False
    moment = datetime(2026, 1, 31, 1, 2, 3, 4, tzinfo=UTC)
    assert [
        literal_json(each)
        for each in (
            Literal("decimal(9,2)", Decimal("1.50")),
            Literal("date", date(1, 1, 1)),
            Literal("timestamp", moment.replace(tzinfo=None)),
            Literal("timestamptz", moment),
            Literal("timestamptz_ns", moment),
            Literal("boolean", True),
        )
    ] == [
        "1.50",
        "0001-01-01",
        "2026-01-31T01:02:03.000004",
        "2026-01-31T01:02:03.000004+00:00",
        "2026-01-31T01:02:03.000004000+00:00",
        True,
    ]
