"""Namespaces: what is changed is what was named, whatever another user changes at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.base.errors import NoSuchNamespace
from catalog.base.identifiers import Namespace
from policy.errors import NotAuthorized
from tests.support.lake import ALICE, BOB, CAROL, Lake

FORBID = {"lakewarden.unsealed": "forbid"}


@pytest.fixture
def bobs(lake: Lake) -> Namespace:
    """The namespace `bobs`, with a property."""
    lake.services.namespaces.update(
        lake.caller(ALICE), ("bobs",), ["lakewarden.unsealed", "comment"], {"kept": "1"}
    )
    return ("bobs",)


def _properties(lake: Lake, namespace: Namespace) -> dict[str, str]:
    return lake.services.namespaces.load(lake.caller(ALICE), namespace)


def test_a_comment_does_not_lift_a_ban_that_came_meanwhile(
    lake: Lake, bobs: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: read the properties, wait for the administrator's ban, write back what was read."""
    pointers = lake.services.pointers
    change = pointers.change_namespace_properties

    def ban_then_change(*arguments: Any) -> frozenset[str]:
        monkeypatch.undo()
        lake.services.namespaces.update(lake.caller(ALICE), bobs, [], FORBID)
        return change(*arguments)

    monkeypatch.setattr(pointers, "change_namespace_properties", ban_then_change)
    lake.services.namespaces.update(lake.caller(BOB), bobs, [], {"comment": "hello"})
    assert _properties(lake, bobs) == {"kept": "1", "comment": "hello"} | FORBID


def test_the_answer_says_what_was_set_removed_and_missing(lake: Lake, bobs: Namespace) -> None:
    change = lake.services.namespaces.update(
        lake.caller(BOB), bobs, ["kept", "absent", "kept"], {"b": "2", "a": "1"}
    )
    assert change == (["a", "b"], ["kept"], ["absent"])
    assert _properties(lake, bobs) == {"a": "1", "b": "2"}
    lake.services.namespaces.update(lake.caller(BOB), bobs, ["a", "b"], {})


def test_a_refused_change_changes_nothing(lake: Lake, bobs: Namespace) -> None:
    with pytest.raises(NotAuthorized):
        lake.services.namespaces.update(lake.caller(CAROL), bobs, ["kept"], {"comment": "of carol"})
    assert _properties(lake, bobs) == {"kept": "1"}


def test_a_change_of_no_namespace_is_refused(lake: Lake) -> None:
    with pytest.raises(NoSuchNamespace):
        lake.services.namespaces.update(lake.caller(ALICE), ("absent",), [], {"a": "1"})
