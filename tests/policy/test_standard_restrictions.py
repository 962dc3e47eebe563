"""What takes the place of a mask for clients of the Iceberg REST protocol tells no more than the mask."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import pytest

from policy.restrictions.actions import ICEBERG_ACTIONS, MaskAction, takes
from policy.restrictions.model import ColumnMask, Restriction
from policy.restrictions.predicate import FALSE, Compare, Comparison, Literal
from policy.restrictions.samples import masked
from policy.restrictions.standard import standard_action, standard_json, standard_restriction

#: Among these are values that a mask shows alike although another action does not: digits of two scripts,
#: letters of two cases, digits and letters, code points beyond U+FFFF, signs and numbers of digits.
_CHARACTERS = ("a", "b", "A", "0", "7", "\u0660", "(", "#", " ", "\U0001f600", "\U00010400", "\u00df")
VALUES = {
    "string": [
        None,
        "",
        *_CHARACTERS,
        *map("".join, product("aA07\u0660", repeat=3)),
        *("pre" + "".join(each) + "post" for each in product(_CHARACTERS, repeat=2)),
        *("".join(each) + "1234" for each in product(_CHARACTERS, repeat=2)),
        *("1234" + "".join(each) for each in product(_CHARACTERS, repeat=2)),
    ],
    "int": [None, *map(str, (0, 1, -1, 7, 12, -12, 1234, 12345, 12346, 92345, 2**31 - 1, -(2**31)))],
    "long": [None, *map(str, (0, 1, -1, 7, 12, -12, 1234, 12345, 12346, 92345, 2**63 - 1, -(2**63)))],
    "date": [None, "1969-12-31", "1970-01-01", "1970-02-01", "1582-10-04", "0001-01-01", "9999-12-31"],
}
HIVE = [
    (action, kind) for action in MaskAction if not action.of_iceberg for kind in VALUES if takes(action, kind)
]
#: The result of a hash with another salt for each query is computed from nothing but the value.
SHOWN = [each for each in ICEBERG_ACTIONS if each is not MaskAction.SHA_256_QUERY_LOCAL]


def computed(action: MaskAction, other: MaskAction, kind: str) -> bool:
    """Whether the result of an action is a function of the result of another, as far as these values tell."""
    results = defaultdict(set)
    for value in VALUES[kind]:
        results[masked(other, kind, value)].add(masked(action, kind, value))
    return all(len(each) == 1 for each in results.values())


@pytest.mark.parametrize(("mask", "kind"), HIVE)
def test_what_takes_the_place_of_a_mask_is_computed_from_what_it_shows(mask: MaskAction, kind: str) -> None:
    action = standard_action(mask, required=False)
    assert action is not None and action.of_iceberg and takes(action, kind)
    assert computed(action, mask, kind)


@pytest.mark.parametrize(("mask", "kind"), HIVE)
def test_no_action_that_shows_more_is_computed_from_what_a_mask_shows(mask: MaskAction, kind: str) -> None:
    action = standard_action(mask, required=False)
    assert action is not None
    others = [each for each in SHOWN if takes(each, kind) and computed(each, mask, kind)]
    assert all(computed(each, action, kind) for each in others)


@pytest.mark.parametrize("action", ICEBERG_ACTIONS)
def test_an_action_of_the_specification_takes_its_own_place(action: MaskAction) -> None:
    assert standard_action(action, required=False) is action
    required = standard_action(action, required=True)
    assert required is (None if action is MaskAction.REPLACE_WITH_NULL else action)


def test_a_required_column_is_never_replaced_with_null() -> None:
    masks = {2: ColumnMask(MaskAction.HIVE_MASK, "p"), 3: ColumnMask(MaskAction.REPLACE_WITH_NULL, "q")}
    assert standard_restriction(Restriction(masks=masks), {3}) == 3
    found = standard_restriction(Restriction(masks=masks), {2})
    assert isinstance(found, Restriction) and standard_json(found) == {
        "required-column-projections": [
            {"field-id": 2, "action": "mask-to-fixed-value"},
            {"field-id": 3, "action": "replace-with-null"},
        ]
    }


def test_a_restriction_leaves_out_what_does_not_restrict() -> None:
    assert standard_json(Restriction()) is None
    assert standard_json(Restriction(row_filter=FALSE)) == {"required-row-filter": False}
    compared = Compare(Comparison.EQ, 2, Literal("string", "eu"))
    assert list(standard_json(Restriction(row_filter=compared)) or {}) == ["required-row-filter"]
