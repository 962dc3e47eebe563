"""Principals: names that can be logged and compared."""

from __future__ import annotations

import pytest

from policy.errors import RequestInvalid
from policy.principal import Principal
from tests.support.vectors import each_row


def test_groups_and_roles_become_frozen_sets():
    ann = Principal("ann", ["etl", "etl"], {"analyst"})
    assert ann.groups == frozenset({"etl"}) and ann.roles == frozenset({"analyst"})
    assert ann == Principal("ann", frozenset({"etl"}), frozenset({"analyst"}))
    assert hash(ann)


@each_row("name", ["", " ", "\t", "a\nb", "a\0b", "a\u202eb", "x" * 1025, None, 7])
def test_a_bad_name_is_refused_everywhere(name):
    for build in (
        lambda: Principal(name),
        lambda: Principal("a", {name}),
        lambda: Principal("a", roles={name}),
    ):
        with pytest.raises(RequestInvalid):
            build()


def test_a_string_is_no_set_of_groups():
    with pytest.raises(RequestInvalid):
        Principal("ann", "etl")


NAMELESS = "A {0} name is empty or blank. [rule=principal-name] Use a {0} name that is not blank."
UNFIT = (
    "A {0} name is longer than 255 characters or contains a control character. [rule=principal-name]"
    " Use a shorter name of printable characters."
)


@each_row("kind", ["principal", "group", "role"])
@each_row(("name", "told"), [(" ", NAMELESS), (7, NAMELESS), ("x" * 256, UNFIT), ("a\n", UNFIT)])
def test_a_bad_name_is_told_by_its_kind(kind, name, told):
    given = {"name": name} if kind == "principal" else {"name": "ann", f"{kind}s": [name]}
    with pytest.raises(RequestInvalid) as caught:
        Principal(**given)
    assert str(caught.value) == told.format(kind)


def test_names_may_be_as_long_as_the_bound():
    longest = "x" * 255
    assert Principal(longest, {longest}, {longest}).name == longest
    assert Principal("a b").groups == frozenset() == Principal("a").roles


@each_row("kind", ["group", "role"])
def test_a_string_of_names_is_told_by_its_kind(kind):
    with pytest.raises(RequestInvalid) as caught:
        Principal("ann", **{f"{kind}s": "etl"})
    assert str(caught.value) == (
        f"The {kind}s of a principal are one string instead of a set. [rule=principal-name]"
        f" Pass a set of {kind} names."
    )
