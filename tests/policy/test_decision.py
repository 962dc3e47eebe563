"""A decision has reasons, and a conjunction is all or nothing."""

from __future__ import annotations

import pytest

from policy.decision import Decision, Reason

YES = Decision.allow(Reason("granted", "A policy grants it.", "readers", "policyItems[0]"))
NO = Decision.deny(Reason("no-policy", "No policy speaks of it."))
DENIED = Decision.deny(Reason("policy-deny", "A policy denies it.", "closed", "denyPolicyItems[0]"))


def test_a_decision_is_as_true_as_it_is_allowed() -> None:
    assert YES
    assert not NO


def test_a_decision_without_a_reason_cannot_be_made() -> None:
    for allowed in (True, False):
        with pytest.raises(ValueError, match=r"^A decision must have at least one reason.$"):
            Decision(allowed, ())


def test_an_empty_conjunction_is_a_refusal() -> None:
    nothing = Decision.all_of([])
    assert not nothing
    assert nothing.reasons[0].rule == "empty-conjunction"


def test_a_conjunction_grants_only_if_every_part_does() -> None:
    assert Decision.all_of([YES, YES])
    assert not Decision.all_of([YES, NO])
    assert not Decision.all_of([NO, YES])


def test_the_reasons_of_a_refusal_are_those_of_the_refused_parts() -> None:
    refusal = Decision.all_of([YES, NO, DENIED])
    assert [reason.rule for reason in refusal.reasons] == ["no-policy", "policy-deny"]
    assert refusal.explanation == "No policy speaks of it."


def test_the_reasons_of_a_grant_are_those_of_all_parts() -> None:
    other = Decision.allow(Reason("granted", "Another policy grants it.", "writers", "policyItems[0]"))
    assert Decision.all_of([YES, other, YES]).reasons == (*YES.reasons, *other.reasons)


def test_decisions_do_not_change_once_made() -> None:
    with pytest.raises(AttributeError):
        YES.allowed = False  # type: ignore[misc]


def test_a_conjunction_names_each_reason_once() -> None:
    denied = Decision.deny(Reason("rule", "No."))
    other = Decision.deny(Reason("rule", "Never."))
    assert Decision.all_of([denied, other, denied]).reasons == (*denied.reasons, *other.reasons)


def test_an_empty_conjunction_says_so() -> None:
    assert Decision.all_of(iter(())).reasons == (
        Reason("empty-conjunction", "The request names no privilege, so it grants nothing."),
    )


def test_grants_and_refusals_keep_their_reasons_in_order() -> None:
    first, second = Reason("a", "A."), Reason("b", "B.", "p", "i")
    assert (Decision.allow(first, second).allowed, Decision.deny(first, second).allowed) == (True, False)
    assert Decision.allow(first, second).reasons == Decision.deny(first, second).reasons == (first, second)
    assert Decision.deny(second, first).explanation == "B."
    assert Decision.all_of(iter([YES, NO, YES])).reasons == NO.reasons
    assert (Decision.all_of([YES, NO]).allowed, Decision.all_of([YES]).allowed) == (False, True)
    assert (first.policy, first.item) == (None, None)
