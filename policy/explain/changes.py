"""Why a decision came out as it did, and what single change would turn a refusal into a grant.

Rules:
- `Without`: what the answer would be without an item that the decision names.
- `Change`: one thing that keeps a request from being granted: who asks, when, an item or exception, an access
  type, an owner, a condition, a policy that is disabled or speaks of another level. Only what is enough by
  itself is named; where two things stand in the way, neither is.
- Each is found by deciding again, with that one thing different. So an explanation never says what the
  evaluation would not do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeAlias

from policy.decision import Decision
from policy.errors import RequestInvalid
from policy.explain.considered import DENY_ALL_ELSE, Book, Considered, without
from policy.principal import Principal
from policy.privileges.requests import ALL
from policy.ranger.answers import relation
from policy.ranger.conditions.condition import Condition
from policy.ranger.matching import LevelPattern, Match, Pattern, ResourcePattern, Target
from policy.ranger.model import Item, Policy, PolicyType
from policy.ranger.validity import active

MAX_CHANGES: Final = 20
"""Most changes that are named."""

_MAX_TRIALS: Final = 2_000
_MAX_USERS: Final = 5


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that would have to be different.

    Attributes:
        what: ``principal``, ``owner``, ``time``, ``disabled``, ``denial``, ``exception``, ``access``,
            ``resource`` or ``conditions``.
        detail: a sentence on it.
        policy: name of the policy that would then decide.
        item: the item of it that would.
    """

    what: str
    detail: str
    policy: str | None
    item: str | None


@dataclass(frozen=True, slots=True)
class Without:
    """What the answer would be without an item.

    Attributes:
        policy: name of the policy.
        item: label of the item.
        decision: the answer.
    """

    policy: str
    item: str
    decision: Decision


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, and what it hangs on.

    Attributes:
        decision: the decision.
        without: each deciding item, and the answer if it were not there.
        changes: what single changes would turn a refusal into a grant; none for a grant.
        held: names of the roles that the principal holds, with those that the documents give it.
    """

    decision: Decision
    without: tuple[Without, ...]
    changes: tuple[Change, ...]
    held: tuple[str, ...]


#: What would be different, in words, and the question with that difference.
_Trial: TypeAlias = tuple[str, str, Considered]


def explain(book: Book, considered: Considered) -> Explanation:
    """Explain the decision of a request.

    Args:
        book: the documents.
        considered: the request with what can have a say in it, as `Book.consider` gives it.
    """
    decision = considered.decision
    held = {role.name for role in considered.roles} | considered.request.principal.roles
    changes = () if decision.allowed else tuple(islice(_changes(book, considered), MAX_CHANGES))
    return Explanation(decision, tuple(_without(considered)), changes, tuple(sorted(held)))


def _without(considered: Considered) -> Iterator[Without]:
    named = dict.fromkeys((reason.policy, reason.item) for reason in considered.decision.reasons)
    for name, item in named:
        if name is None or item is None:
            continue
        changed = considered
        for policy in considered.policies:
            if policy.name == name:
                changed = changed.replacing(policy, without(policy, item))
        yield Without(name, item, changed.decision)


def _changes(book: Book, considered: Considered) -> Iterator[Change]:
    """The trials that would be granted, each said once."""
    said: set[str] = set()
    for what, detail, trial in islice(_trials(book, considered), _MAX_TRIALS):
        if detail in said or not trial.decision.allowed:
            continue
        said.add(detail)
        reason = trial.decision.reasons[0]
        yield Change(what, detail, reason.policy, reason.item)


def _trials(book: Book, considered: Considered) -> Iterator[_Trial]:
    policies = [policy for policy in considered.policies if policy.type is PolicyType.ACCESS]
    disabled = [policy for policy in considered.disabled if policy.type is PolicyType.ACCESS]
    for policy in policies:
        yield from _of_policy(considered, policy)
    for policy in disabled:
        yield "disabled", f"{policy.title} must be enabled.", considered.replacing(policy, policy)
    yield from _of_owner(book, considered)
    yield from _of_principal(book, considered, policies)


def _of_policy(considered: Considered, policy: Policy) -> Iterator[_Trial]:
    """What could be different in one policy."""
    title = policy.title
    for item in policy.deny:
        detail = f"{item.label} of {_inside(policy)} must be removed, or must not name this principal."
        yield "denial", detail, considered.replacing(policy, without(policy, item.label))
    if policy.deny_all_else:
        detail = f"{title} must grant it, or must not set isDenyAllElse."
        yield "denial", detail, considered.replacing(policy, without(policy, DENY_ALL_ELSE))
    for item in policy.allow_exceptions:
        detail = f"{item.label} of {_inside(policy)} removes the grant. The exception must be removed."
        yield "exception", detail, considered.replacing(policy, without(policy, item.label))
    if not active(policy.schedules, considered.now):
        detail = f"{title} must be valid at {considered.now.isoformat(timespec='seconds')}."
        yield "time", detail, considered.replacing(policy, replace(policy, schedules=()))
    if policy.limit is not None:
        detail = f"{title} can only deny, because {policy.limit}."
        yield "conditions", detail, considered.replacing(policy, replace(policy, limit=None))
    if policy.conditions:
        detail = f"The conditions of {_inside(policy)} must hold: {_kinds(policy.conditions)}."
        yield "conditions", detail, considered.replacing(policy, replace(policy, conditions=()))
    yield from _of_items(considered, policy)
    yield from _of_level(considered, policy)


def _of_items(considered: Considered, policy: Policy) -> Iterator[_Trial]:
    """What could be different in one item that grants."""
    access = considered.request.access
    for item in policy.allow:
        if not item.accesses & {access, ALL}:
            granted = ", ".join(sorted(item.accesses))
            detail = f"{item.label} of {_inside(policy)} grants {granted}. It must grant {access}."
            wider = replace(item, accesses=item.accesses | considered.request.resource.access_types)
            yield "access", detail, _with_item(considered, policy, item, wider)
        if item.conditions:
            detail = (
                f"The conditions of {item.label} of {_inside(policy)} must hold: {_kinds(item.conditions)}."
            )
            yield "conditions", detail, _with_item(considered, policy, item, replace(item, conditions=()))


def _kinds(conditions: Iterable[Condition]) -> str:
    """The conditions in words; of one that is never known, why."""
    return "; ".join(
        " ".join((each.type, *each.values)) if each.is_understood else f"{each.type} ({each.problem})"
        for each in conditions
    )


def _with_item(considered: Considered, policy: Policy, old: Item, new: Item) -> Considered:
    allow = tuple(new if item is old else item for item in policy.allow)
    return considered.replacing(policy, replace(policy, allow=allow))


def _inside(policy: Policy) -> str:
    """How a policy is called inside of a sentence."""
    return f"p{policy.title[1:]}"


def _of_level(considered: Considered, policy: Policy) -> Iterator[_Trial]:
    """A policy on what is above or below what is asked for, or on a location without what is below it."""
    request = considered.request
    target = Target.of(request.resource)
    match = relation(policy, target, request.principal.name, request.owner)
    level = target.levels[-1]
    ways = {
        Match.ABOVE: f"about a level above the {level}, and must name it",
        Match.BELOW: f"about a level below the {level}, and must name it",
    }
    if target.is_location:
        ways[Match.SELF] = "about the location only, and must be recursive (isRecursive)"
    if match not in ways:
        return
    hierarchy = policy.resources[0].hierarchy
    everything = [
        LevelPattern.of([Pattern.of("*", level)], False) for level in hierarchy[: len(target.levels)]
    ]
    wider = replace(policy, resources=(ResourcePattern(hierarchy, tuple(everything)),))
    yield "resource", f"{policy.title} is {ways[match]}.", considered.replacing(policy, wider)


def _of_owner(book: Book, considered: Considered) -> Iterator[_Trial]:
    request = considered.request
    user = request.principal.name
    if request.owner != user:
        known = "no owner was given" if request.owner is None else f"{request.owner!r} owns it"
        owned = book.consider(
            replace(request, owner=user),
            considered.now,
            considered.table,
            considered.through,
            considered.engine,
        )
        yield "owner", f"{user!r} must own it; {known}.", owned


def _of_principal(book: Book, considered: Considered, policies: Iterable[Policy]) -> Iterator[_Trial]:
    """Groups and roles to have or not to have, and other users."""
    request = considered.request
    for detail, principal in _others(request.principal, policies):
        trial = book.consider(
            replace(request, principal=principal),
            considered.now,
            considered.table,
            considered.through,
            considered.engine,
        )
        yield "principal", f"{request.principal.name!r} must {detail}.", trial


def _others(who: Principal, policies: Iterable[Policy]) -> Iterator[tuple[str, Principal]]:
    """Principals like this one, and in what they differ."""
    items = [item for policy in policies for item in (*policy.allow, *policy.deny_exceptions)]
    for group in sorted(who.groups):
        yield f"leave the group {group!r}", replace(who, groups=who.groups - {group})
    for role in sorted(who.roles):
        yield f"lose the role {role!r}", replace(who, roles=who.roles - {role})
    for group in _nameable(name for item in items for name in item.groups - who.groups):
        yield f"join the group {group!r}", replace(who, groups=who.groups | {group})
    for role in _nameable(name for item in items for name in item.roles - who.roles):
        yield f"have the role {role!r}", replace(who, roles=who.roles | {role})
    for user in islice(_nameable(name for item in items for name in item.users), _MAX_USERS):
        yield f"be the user {user!r}", replace(who, name=user)


def _nameable(names: Iterable[str]) -> Iterator[str]:
    """The names that a principal, a group or a role can have, each once."""
    for name in sorted(set(names)):
        with suppress(RequestInvalid):
            yield Principal(name).name
