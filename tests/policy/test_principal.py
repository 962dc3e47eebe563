"""Principals: names that can be logged and compared."""

from __future__ import annotations

import pytest

from policy.errors import RequestInvalid
from policy.principal import Principal


def test_groups_and_roles_become_frozen_sets():
    ann = Principal("ann", ["etl", "etl"], {"analyst"})
    assert ann.groups == frozenset({"etl"}) and ann.roles == frozenset({"analyst"})
    assert ann == Principal("ann", frozenset({"etl"}), frozenset({"analyst"}))
    assert hash(ann)


@pytest.mark.parametrize("name", ["", " ", "\t", "a\nb", "a\0b", "a\u202eb", "x" * 1025, None, 7])
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
