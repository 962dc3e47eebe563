"""The checker of histories finds what cannot have happened, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.checker import check, check_audit
from tests.soak.history import Kind, Operation, Outcome, State

T = "uuid-1"


def made_up(seed: int, length: int = 40) -> list[Operation]:
    """A history that is right: each operation takes effect at one moment between its start and its end."""
    rng = random.Random(seed)
    elements: list[str] = []
    note: str | None = None
    version, now, history = 0, 0.0, [created(-1.0, -0.5)]
    for number in range(length):
        now += rng.random()
        start, end = now - rng.random() * 5, now + rng.random() * 5
        kind = rng.choice((Kind.APPEND, Kind.READ, Kind.ALTER))
        outcome = rng.choice((Outcome.OK, Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN))
        takes_effect = outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and rng.random() < 0.5)
        value = None if kind is Kind.READ else f"v{number}"
        if kind is not Kind.READ and takes_effect:
            version += 1
            elements += [value] if kind is Kind.APPEND else []
            note = value if kind is Kind.ALTER else note
        shown = State(T, tuple(elements), version, f"m{version}", note) if outcome is Outcome.OK else None
        history.append(Operation(kind, "t", start, end, outcome, value, shown))
    final = State(T, tuple(elements), version, f"m{version}", note)
    return [*history, Operation(Kind.READ, "t", now + 10, now + 11, Outcome.OK, None, final)]


def created(start: float, end: float, table: str = T) -> Operation:
    return Operation(Kind.CREATE, "t", start, end, Outcome.OK, None, State(table, (), 0, "m0"))


def append(value: str, start: float, end: float, outcome: Outcome = Outcome.OK) -> Operation:
    return Operation(Kind.APPEND, "t", start, end, outcome, value)


def read(elements: str, start: float, end: float, **more: object) -> Operation:
    return Operation(Kind.READ, "t", start, end, Outcome.OK, None, State(T, tuple(elements), **more))


def dropped(start: float, end: float, outcome: Outcome = Outcome.OK) -> Operation:
    return Operation(Kind.DROP, "t", start, end, outcome)


def nothing(start: float, end: float) -> Operation:
    return Operation(Kind.READ, "t", start, end, Outcome.OK)


def rules(*history: Operation) -> set[str]:
    return {finding.rule for finding in check(history)}


@given(st.integers(0, 2**32))
def test_what_one_order_explains_has_no_finding(seed: int) -> None:
    assert check(made_up(seed)) == []


def _changed(history: list[Operation], change: Callable[[State], State], index: int) -> list[Operation]:
    each = history[index]
    return [*history[:index], replace(each, state=change(each.state)), *history[index + 1 :]]


MUTATIONS: dict[str, Callable[[State], State]] = {
    "an element is lost": lambda state: replace(state, elements=state.elements[1:]),
    "an element is there twice": lambda state: replace(state, elements=(*state.elements, state.elements[0])),
    "two elements change places": lambda state: replace(
        state, elements=(state.elements[1], state.elements[0], *state.elements[2:])
    ),
    "an element of nobody": lambda state: replace(state, elements=(*state.elements, "x")),
    "another metadata of the same version": lambda state: replace(state, location="other"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@given(seed=st.integers(0, 2**32))
def test_a_change_of_one_answer_is_found(mutation: str, seed: int) -> None:
    history = made_up(seed, 60)
    if len(history[-1].state.elements) < 3:
        return
    twice = [*history, replace(history[-1], start=history[-1].end + 1, end=history[-1].end + 2)]
    assert check(twice) == []
    assert check(_changed(twice, MUTATIONS[mutation], len(twice) - 2))


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("history", "rule"),
    [
        ((append("a", 0, 1), append("b", 2, 3), read("b", 4, 5)), "acknowledged-append-lost"),
        ((append("a", 0, 1), read("a", 2, 3), read("", 4, 5)), "list-order"),
        ((append("a", 0, 1), read("", 2, 3), read("a", 4, 5)), "list-order"),
        ((read("a", 0, 1), append("a", 2, 3)), "list-order"),
        ((append("a", 0, 1), append("b", 2, 3), read("ba", 4, 5)), "list-order"),
        ((append("a", 0, 1), read("aa", 2, 3)), "element-twice"),
        ((append("a", 0, 1), append("b", 0, 1), read("ab", 2, 3), read("ba", 2, 3)), "not-a-prefix"),
        ((append("a", 0, 1, Outcome.REFUSED), read("a", 2, 3)), "refused-append-took-effect"),
        ((read("a", 2, 3),), "element-of-nobody"),
        (
            (append("a", 0, 1), append("b", 2, 3), read("ab", 4, 5), read("b", 4, 5, ordered=False)),
            "not-a-prefix",
        ),
        (
            (read("", 0, 1, version=2, location="m"), read("", 2, 3, version=1, location="n")),
            "version-order",
        ),
        ((read("", 0, 1, version=2, location="m", note="n"),), "note-of-nobody"),
        ((created(0, 1), nothing(2, 3)), "created-table-is-missing"),
        ((created(0, 1), dropped(2, 3), read("", 4, 5)), "ended-table-is-seen"),
        ((created(0, 1), created(2, 3, "uuid-2"), read("", 4, 5)), "ended-table-is-seen"),
    ],
)
def test_each_rule_is_found_broken(history: tuple[Operation, ...], rule: str) -> None:
    assert rule in rules(*history)


@pytest.mark.parametrize(
    "history",
    [
        (append("a", 0, 1, Outcome.UNKNOWN), read("", 2, 3), read("a", 4, 5)),
        (append("a", 0, 1, Outcome.UNKNOWN), read("", 2, 3)),
        (append("a", 0, 9), read("a", 1, 2), append("b", 0, 9), read("ab", 3, 4)),
        (append("a", 0, 9), append("b", 0, 9), read("ab", 10, 11), read("a", 1, 2, ordered=False)),
        (created(0, 1), dropped(2, 3), nothing(4, 5), created(6, 7, "uuid-2")),
        (created(0, 1), dropped(2, 3, Outcome.UNKNOWN), nothing(4, 5)),
        (created(0, 1), dropped(2, 3, Outcome.UNKNOWN), read("", 4, 5)),
        (created(0, 5), nothing(1, 2), dropped(1, 9), read("", 3, 4)),
    ],
)
def test_what_can_have_happened_is_no_finding(history: tuple[Operation, ...]) -> None:
    assert rules(*history) == set()


def test_a_commit_that_two_were_told_is_found() -> None:
    one, other = (
        Operation(Kind.ALTER, "t", 0, 1, Outcome.OK, value, State(T, (), 1, "m1", value)) for value in "ab"
    )
    assert {"two-commits-of-a-version", "two-states-of-a-version"} <= rules(one, other)


def test_a_grant_without_a_record_is_found() -> None:
    granted = replace(read("", 0, 1), request_id="r1")
    assert check_audit([granted], {"r1"}.__contains__) == []
    assert [each.rule for each in check_audit([granted], {"r2"}.__contains__)] == [
        "acknowledged-without-a-record"
    ]
