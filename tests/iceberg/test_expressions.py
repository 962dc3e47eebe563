"""Filters in JSON: what pyiceberg would have made of a well-formed one, and nothing of any other."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThanOrEqual,
    Not,
    NotIn,
    NotStartsWith,
    Or,
)

from catalog.iceberg.expressions import MAX_NODES, MAX_VALUES, filter_json, filter_of
from policy.errors import NotSupportedYet, RequestInvalid
from tests.support.vectors import each_row

EQ = {"type": "eq", "term": "a", "value": 1}


@each_row(
    ("document", "expected"),
    [
        (None, AlwaysTrue()),
        (True, AlwaysTrue()),
        (False, AlwaysFalse()),
        ({"type": "true"}, AlwaysTrue()),
        ({"type": "false"}, AlwaysFalse()),
        (EQ, EqualTo("a", 1)),
        ({"type": "eq", "term": "a", "value": True}, EqualTo("a", True)),
        ({"type": "gt", "term": "a.b", "value": 1.5}, GreaterThan("a.b", 1.5)),
        ({"type": "lt-eq", "term": "d", "value": "2020-01-01"}, LessThanOrEqual("d", "2020-01-01")),
        ({"type": "not-starts-with", "term": "s", "value": "x"}, NotStartsWith("s", "x")),
        ({"type": "is-null", "term": "a"}, IsNull("a")),
        ({"type": "is-null", "term": {"type": "reference", "term": "a"}}, IsNull("a")),
        ({"type": "in", "term": "a", "values": [1, 2]}, In("a", [1, 2])),
        ({"type": "in", "term": "a", "values": []}, AlwaysFalse()),
        ({"type": "not-in", "term": "a", "values": ["x", "y"]}, NotIn("a", ["x", "y"])),
        ({"type": "not", "child": EQ}, Not(EqualTo("a", 1))),
        (
            {
                "type": "and",
                "left": EQ,
                "right": {"type": "or", "left": EQ, "right": {"type": "is-null", "term": "b"}},
            },
            And(EqualTo("a", 1), Or(EqualTo("a", 1), IsNull("b"))),
        ),
    ],
)
def test_expression_is_read(document: Any, expected: BooleanExpression) -> None:
    assert filter_of(document) == expected


@each_row(
    "document",
    [
        "a = 1",
        7,
        [],
        {},
        {"type": "eq"},
        {"type": 5},
        {"type": None},
        {"type": "equals", "term": "a", "value": 1},
        {"type": "eq", "term": "a", "value": None},
        {"type": "eq", "term": "a", "value": [1]},
        {"type": "eq", "term": "", "value": 1},
        {"type": "eq", "term": ["a"], "value": 1},
        {"type": "eq", "term": "a", "value": 1, "values": [2]},
        {"type": "eq", "term": "a", "literal": 1},
        {"type": "in", "term": "a", "values": "abc"},
        {"type": "in", "term": "a", "values": {"x": 1}},
        {"type": "in", "term": "a", "values": [[1]]},
        {"type": "in", "term": "a", "values": list(range(MAX_VALUES + 1))},
        {"type": "is-null", "term": "a", "value": 1},
        {"type": "and", "left": EQ},
        {"type": "and", "left": EQ, "right": "true"},
        {"type": "not", "child": None},
        {"type": "true", "term": "a"},
        {"type": "is-null", "term": {"type": "reference", "term": "a", "id": 1}},
    ],
)
def test_anything_else_is_refused(document: Any) -> None:
    with pytest.raises(RequestInvalid) as refused:
        filter_of(document)
    assert refused.value.rule == "filter"


def _on(transform: Any, term: Any = "a") -> dict[str, Any]:
    term = {"type": "transform", "transform": transform, "term": term}
    return {"type": "eq", "term": term, "value": 1}


@each_row("transform", ["bucket[4]", "truncate[10]", "year", "month", "day", "hour", "void"])
def test_transform_terms_are_kept(transform: str) -> None:
    document = _on(transform)
    assert filter_json(filter_of(document, transforms=True)) == document
    reference = {"type": "reference", "term": "a"}
    assert filter_of(_on(transform, reference), transforms=True) == filter_of(document, transforms=True)
    with pytest.raises(NotSupportedYet):
        filter_of(document)


def test_a_filter_by_the_identity_is_one_by_the_column() -> None:
    assert filter_of(_on("identity"), transforms=True) == EqualTo("a", 1)


@each_row(
    "document",
    [
        *(_on(each) for each in (None, 4, "", "years", "bucket", "bucket[0]", "bucket[04]", "bucket[4]x")),
        *(_on(each) for each in ("truncate[-1]", "truncate[\u0664]", "zorder", "bucket[4]\n", ["day"])),
        *(
            _on("day", each)
            for each in ("", None, {}, {"type": "transform", "transform": "day", "term": "a"})
        ),
        {"type": "is-null", "term": {"type": "transform", "transform": "day"}},
        {"type": "is-null", "term": {"type": "transform", "transform": "day", "term": "a", "id": 1}},
    ],
)
def test_no_other_transform_is_read(document: Any) -> None:
    with pytest.raises(RequestInvalid) as refused:
        filter_of(document, transforms=True)
    assert refused.value.rule == "filter"


@pytest.mark.nightly
def test_number_of_parts_is_bounded() -> None:
    def tree(parts: int) -> dict[str, Any]:
        if parts < 3:
            return EQ
        half = (parts - 1) // 2
        return {"type": "or", "left": tree(half), "right": tree(parts - 1 - half)}

    filter_of(tree(1_000))
    with pytest.raises(RequestInvalid, match=str(MAX_NODES)):
        filter_of(tree(4 * MAX_NODES))
