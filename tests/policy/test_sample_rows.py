"""Sample rows of policy tests: what row filters and masks make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policy.errors import RequestInvalid
from policy.restrictions.actions import MaskAction
from policy.restrictions.binding import Asker, bind
from policy.restrictions.samples import kept, masked, require_type, value_of
from policy.restrictions.sql import row_filter
from policy.restrictions.text import predicate_text
from policy.testing.fixtures import _schema
from tests.policy.tested_cases import FILTERED, MASKED, READ, run, sales
from tests.support.vectors import each_row

VECTORS = Path(__file__).parents[1] / "vectors" / "read-restrictions"
MASKS = json.loads((VECTORS / "masks.json").read_text("utf-8"))["masks"]
_LEFT_OUT = ("timestamp_ns", "timestamptz_ns")
_TIMES = ("date", "timestamp", "timestamptz")
TYPED = """
tables:
  sales.orders: {columns: {id: long, email: string, paid: "decimal(9,2)", home.town: string}}
"""


def _text(value: Any) -> str | None:
    """A value in JSON as a text."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None or isinstance(value, str) else repr(value)


def _vectors() -> list[tuple[str, str, str | None, str | None]]:
    found = []
    for each in MASKS:
        kind = each["type"]
        if isinstance(kind, str) and kind not in _LEFT_OUT and "salt" not in each["cases"][0]:
            pairs = ((_text(case["value"]), _text(case["masked"])) for case in each["cases"])
            # A sample has a year from 1 to 9999.
            kept_pairs = (pair for pair in pairs if kind not in _TIMES or (pair[0] or "0")[0] not in "+-")
            found += [(each["action"], kind, *pair) for pair in kept_pairs if "salt" not in each]
    return found


@each_row(("action", "kind", "value", "shown"), _vectors())
def test_masks_of_samples_are_those_of_the_vectors(
    action: str, kind: str, value: str | None, shown: str | None
) -> None:
    assert masked(MaskAction(action), kind, value) == shown


@each_row(
    ("condition", "row", "keeps"),
    [
        ("id = 1", {"id": "1"}, True),
        ("id <> 1", {}, False),
        ("NOT (id = 1)", {}, False),
        ("id <> 1 OR email IS NULL", {}, True),
        ("email LIKE 'a%' AND paid >= 1.5", {"email": "ab", "paid": "1.50"}, True),
        ("id IN (1, 2) AND home.town = current_user()", {"id": "2", "home.town": "ann"}, True),
        ("id NOT IN (1, 2)", {"id": "2"}, False),
        ("home.since < current_date()", {"home.since": "2029-12-31"}, True),
        ("is_member('g') AND id = 1", {"id": "1"}, True),
        ("FALSE", {"id": "1"}, False),
    ],
)
def test_a_row_filter_keeps_what_it_is_true_for(condition: str, row: dict[str, str], keeps: bool) -> None:
    import datetime

    kinds = {"id": "long", "email": "string", "paid": "decimal(9,2)", "home.town": "string"}
    schema = _schema(kinds | {"home.since": "date"})
    asker = Asker("ann", frozenset({"g"}), datetime.date(2030, 1, 1))
    bound = bind(row_filter(condition), asker, schema)
    fields = {each.name: each for each in schema.by_id.values()}
    values = {fields[name].field_id: value_of(fields[name].type, text) for name, text in row.items()}
    assert kept(bound, values) is keeps
    again = row_filter(predicate_text(bound, lambda field_id: schema.by_id[field_id].name))
    assert kept(bind(again, asker, schema), values) is keeps


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "2147483648"),
        ("long", "1.5"),
        ("boolean", "yes"),
        ("date", "2030-02-30"),
        ("timestamp", "2030-01-01T00:00:00Z"),
        ("timestamptz", "2030-01-01T00:00:00"),
        ("uuid", "x"),
        ("binary", "0"),
    ],
)
def test_a_sample_is_a_value_of_its_type(kind: str, text: str) -> None:
    with pytest.raises(RequestInvalid, match="is not a value of the type"):
        value_of(kind, text)


@pytest.mark.parametrize("kind", ["bigint", "struct", "decimal", "decimal(0,1)", "fixed[0]", "list<int>"])
def test_a_type_that_has_no_samples_is_refused(kind: str) -> None:
    with pytest.raises(RequestInvalid, match="holds a single value"):
        require_type(kind)


TABLE = f"{READ}, resource: table:sales.orders, expect: allow"


@each_row(
    ("said", "problem"),
    [
        ("filter: id = 1", None),
        ("filter: id = 2", "expected the row filter 'id = 2', got 'id = 1'"),
        ('row: {id: "1", email: a@b.c}, shown: {id: "1", email: x@x.x}', None),
        ('row: {id: "1", home.town: oslo}, shown: {id: "1", home.town: oslo}', None),
        ('row: {id: "2"}, shown: hidden', None),
        ("row: {email: a}, shown: hidden", None),
        ('row: {id: "2"}, shown: {id: "2"}', "expected the row id: '2', got no row"),
        ('row: {id: "1"}, shown: hidden', "expected the row no row, got id: '1'"),
        ('row: {id: "1", email: a}, shown: {id: "1", email: a}', "got id: '1', email: 'x'"),
    ],
)
def test_a_case_says_what_is_seen_of_a_row(said: str, problem: str | None) -> None:
    problems = run(f"{TABLE}, {said}", sales(), MASKED, FILTERED, top=TYPED).problems
    assert (problem is None and not problems) or (problem is not None and problem in problems[0])


def test_a_column_that_the_user_cannot_select_is_not_shown() -> None:
    denied = {"name": "no", "resources": {"database": {"values": ["sales"]}, "table": {"values": ["*"]},
              "column": {"values": ["paid"]}}, "denyPolicyItems": [
                  {"groups": ["readers"], "accesses": [{"type": "select"}]}]}  # fmt: skip
    case = f'{TABLE}, row: {{id: "1", paid: "2.50"}}, shown: {{id: "1"}}'
    assert run(case, sales(), denied, top=TYPED).passed


@each_row(
    ("said", "problem"),
    [
        ("filter: id = 1, resource: column:sales.orders/id", "requires access: select on a table"),
        ('row: {id: "1"}', "row and shown must stand together"),
        ("row: {id: one}, shown: hidden", "is not a value of the type long"),
        ("row: {home: x}, shown: hidden", "no column 'home' with a type"),
        ('row: {id: "1"}, shown: gone', "is not one of hidden"),
        ("filter: id = 1, through: process", "through an engine"),
    ],
)
def test_a_sample_that_cannot_be_asked_for_is_refused(said: str, problem: str) -> None:
    resource = "" if "resource" in said else "resource: table:sales.orders, "
    with pytest.raises(RequestInvalid, match=problem):
        run(f"{READ}, {resource}expect: allow, {said}", sales(), top=TYPED)


def test_without_types_there_is_no_sample() -> None:
    with pytest.raises(RequestInvalid, match="types of the table's columns are unknown"):
        run(f"{TABLE}, filter: id = 1", sales(), top="tables: {sales.orders: {columns: [id]}}")
