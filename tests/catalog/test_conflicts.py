"""Changes that are made again: on what is there by then, as often as it takes, and not for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.base.errors import CommitConflict
from catalog.commits.conflicts import ATTEMPTS, made_anew
from policy.errors import RequestInvalid


@pytest.fixture
def seen() -> list[int]:
    return []


@pytest.fixture
def look(seen: list[int]) -> Callable[[], int]:
    def looking() -> int:
        seen.append(len(seen))
        return seen[-1]

    return looking


def test_each_attempt_is_built_on_what_is_there_by_then(look, seen):
    def act(on: int) -> int:
        if on < 3:
            raise CommitConflict("later")
        return on

    assert made_anew(look, act) == 3
    assert seen == [0, 1, 2, 3]


def test_whoever_comes_second_for_ever_is_told(look, seen):
    def act(on: int) -> int:
        raise CommitConflict(f"attempt {on}")

    with pytest.raises(CommitConflict, match=f"attempt {ATTEMPTS - 1}"):
        made_anew(look, act)
    assert len(seen) == ATTEMPTS


@pytest.mark.parametrize("error", [RequestInvalid, KeyboardInterrupt])
def test_nothing_else_is_tried_again(look, seen, error):
    def act(on: int) -> int:
        raise error("no")

    with pytest.raises(error):
        made_anew(look, act)
    assert seen == [0]


def test_a_conflict_in_what_it_is_built_on_is_final(seen):
    def look() -> int:
        seen.append(0)
        raise CommitConflict("replaced")

    with pytest.raises(CommitConflict, match="replaced"):
        made_anew(look, lambda on: on)
    assert seen == [0]
