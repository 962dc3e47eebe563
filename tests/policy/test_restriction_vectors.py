"""The published vectors of row filters and masks: by a naive evaluation, and by samples in policy tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy.errors import RequestInvalid
from policy.restrictions import samples
from policy.restrictions.actions import MaskAction, takes
from tests.support import naive_restrictions as naive

MASKS = naive.vectors("masks")
FILTERS = naive.vectors("filters")
FIELDS = {each["id"]: each["type"] for each in FILTERS["schema"]["fields"]}
INNER = {each["id"]: each["type"] for each in FIELDS[12]["fields"]}


def family(kind: Any) -> str:
    """A type without its arguments."""
    return kind["type"] if isinstance(kind, dict) else kind.partition("(")[0].partition("[")[0]


def plain(said: dict[str, Any]) -> dict[int, Any]:
    """A row of the vectors by field id, with the fields of its struct."""
    row = {each: naive.value_of(kind, said[str(each)]) for each, kind in FIELDS.items()}
    return row | (row[12] or dict.fromkeys(INNER))


def test_the_naive_evaluation_masks_as_the_vectors_say() -> None:
    for group in MASKS["masks"]:
        kind, salt = group["type"], bytes.fromhex(group.get("salt", ""))
        for case in group["cases"]:
            shown = naive.masked(group["action"], kind, naive.value_of(kind, case["value"]), salt)
            # repr tells the two zeros apart, and the scales of decimals.
            assert repr(shown) == repr(naive.value_of(kind, case["masked"])), (group["action"], case)


def test_the_naive_evaluation_keeps_the_rows_that_the_vectors_say() -> None:
    rows = {row["1"]: plain(row) for row in FILTERS["rows"]}
    for each in FILTERS["filters"]:
        kept = [number for number, row in rows.items() if naive.kept(each["filter"], FIELDS | INNER, row)]
        assert kept == each["kept"], each["sql"]


def test_samples_of_policy_tests_are_masked_as_the_vectors_say() -> None:
    compared = 0
    for group in MASKS["masks"]:
        kind = group["type"]
        if not isinstance(kind, str) or "salt" in group or kind.endswith("_ns"):
            continue
        for case in group["cases"]:
            given, shown = (None if each is None else text(each) for each in case.values())
            if given is None or is_sample(kind, given):
                assert samples.masked(MaskAction(group["action"]), kind, given) == shown, (group, case)
                compared += 1
    assert compared > 200


def text(said: Any) -> str:
    """A value as samples have it."""
    return said if isinstance(said, str) else json.dumps(said)


def is_sample(kind: str, given: str) -> bool:
    """Whether samples can have the value."""
    try:
        return samples.value_of(kind, given) is not None
    except RequestInvalid:
        return False


def test_actions_take_the_types_of_the_vectors() -> None:
    kinds = sorted({each for kinds in MASKS["types"].values() for each in kinds})
    said = {(action, each) for action, taken in MASKS["types"].items() for each in taken}
    assert said == {(each.value, kind) for each in MaskAction for kind in kinds if takes(each, kind)}
    assert {(each["action"], family(each["type"])) for each in MASKS["masks"]} <= said


@pytest.mark.parametrize("action", [each.value for each in MaskAction])
def test_every_action_has_vectors_for_every_type_that_it_takes(action: str) -> None:
    found = {family(each["type"]) for each in MASKS["masks"] if each["action"] == action}
    assert found == set(MASKS["types"][action])
