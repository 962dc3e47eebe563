"""What the policies that are about a resource say to a request.

Rules, in this order:
1. Policies of higher priority speak first; those of lower priority only if the higher say nothing. Of masks
   of equal priority, those on tags speak before those on resources.
2. At equal priority one denial beats every grant.
3. Within a policy, its deny items less its deny exceptions come before its allow items less its allow
   exceptions; what then is left over is denied if the policy says ``isDenyAllElse``.
4. If no policy says anything, the answer is no.

What cannot be evaluated closes: an item of which it is not known whether its conditions hold denies, takes a
grant away, shows NULL in the place of what it masks, and no row of what it filters, but grants, excuses and
unmasks nothing; a policy that is only possibly in force denies but does not grant. So does a policy with a
macro for a user whose name could be taken for another's there: in a location, one that is not one plain name
(``home/{USER}`` is no grant to ``ann/x`` of a part of what is ``ann``'s); where letter case is passed over,
one that is not in lower case (``home_{USER}`` is no grant to ``Ann`` of what is ``ann``'s).

Which of a policy's answers count depends on what is asked (`Scope`). Source: Ranger's policy engine and
default policy evaluator. Stricter than Ranger: granting a location grants all that lies below it, so a denial
below it counts, and a grant of the location alone does not; and for "any access" a denial at the resource
beats every grant of equal priority.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from policy.decision import Decision, Reason
from policy.location.segments import is_one_name
from policy.privileges.requests import ALL
from policy.ranger.circumstances import Circumstances, Subject
from policy.ranger.conditions.condition import unsettled
from policy.ranger.matching import Match
from policy.ranger.model import Item, Policy, PolicyType
from policy.ranger.servicedef import MASK_NONE, MASK_NULL
from policy.restrictions.actions import MaskAction
from policy.restrictions.conditions import RowFilter

_MASK_ORDER: Final = {MASK_NULL: 0, MaskAction.REPLACE_WITH_NULL.value: 0, MASK_NONE: 2}


class Scope(enum.Enum):
    """What part of the tree of resources a question is about."""

    SELF = enum.auto()
    """The resource itself, as Ranger evaluates an ordinary access."""
    TREE = enum.auto()
    """A location with everything below it."""
    ANYWHERE = enum.auto()
    """Anything at or below the resource."""

    def counts(self, match: Match, allowed: bool) -> bool:
        """Whether a grant or denial by a policy with this match counts."""
        if match is Match.BELOW:
            return allowed if self is Scope.ANYWHERE else self is Scope.TREE and not allowed
        return match is Match.SELF_AND_BELOW if self is Scope.TREE and allowed else match.covers


@dataclass(frozen=True, slots=True)
class Applicable:
    """A policy that is about the requested resource now.

    Attributes:
        policy: the policy.
        match: how its resources relate to the requested one.
        doubt: why it is only possibly in force; None if it certainly is.
        circumstances: what its conditions look at; None if it has none.
    """

    policy: Policy
    match: Match
    doubt: str | None = None
    circumstances: Circumstances | None = None

    @property
    def by_tag(self) -> str:
        """The tag by which the policy is about the resource, for reasons."""
        return "" if self.policy.tag is None else f", on the tag {self.policy.tag.type!r},"


@dataclass(frozen=True, slots=True)
class MaskRule:
    """The mask that a principal sees a column through.

    Attributes:
        type: a mask type of the policy's item, other than ``MASK_NONE``.
        policy: name of the policy that says so.
        item: which item of it.
    """

    type: str
    policy: str
    item: str


@dataclass(frozen=True, slots=True)
class FilterRule:
    """A row filter that a principal sees a table through.

    Attributes:
        filter: the filter; None where it is only possibly in force, so that no row is seen.
        policy: name of the policy that says so.
        item: which item of it.
        doubt: why it is only possibly in force; None if it certainly is.
    """

    filter: RowFilter | None
    policy: str
    item: str
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one policy says: by which item, and why that may not hold."""

    allowed: bool
    item: str
    doubt: str | None = None


def doubt_about(policy: Policy, user: str, owner: str | None = None) -> str | None:
    """Why a policy may deny, but not grant, what `user` asks on what `owner` owns; None if it may grant.

    Its conditions are not looked at.
    """
    if policy.limit is not None:
        return policy.limit
    levels = (level for resource in policy.resources for level in resource.patterns)
    patterns = [pattern for level in levels for pattern in level.named]
    if not patterns:
        return None
    if any(pattern.names_several(user, owner) for pattern in patterns):
        return "it contains a user macro where names are compared without letter case"
    if not policy.resources[0].hierarchy[-1].location:
        return None
    names = (name for pattern in patterns for name in pattern.macro_names(user, owner))
    longer = next((name for name in names if not is_one_name(name)), None)
    return None if longer is None else f"{longer!r} is not a single path segment"


def settled(policy: Policy, c: Circumstances) -> Policy | None:
    """A policy without what its conditions decide; None if it is not in force.

    An item whose conditions do not hold is gone. The conditions that are left are unknown. The current tag is
    the policy's own.
    """
    if policy.tag is not None:
        c = replace(c, tag=policy.tag.seen)
    conditions = unsettled(policy.conditions, c)
    if conditions is None:
        return None
    return replace(
        policy,
        conditions=conditions,
        allow=_settled(policy.allow, c),
        deny=_settled(policy.deny, c),
        allow_exceptions=_settled(policy.allow_exceptions, c),
        deny_exceptions=_settled(policy.deny_exceptions, c),
        masks=_settled(policy.masks, c),
        row_filters=_settled(policy.row_filters, c),
    )


def _settled(items: Sequence[Item], c: Circumstances) -> tuple[Item, ...]:
    found = ((item, unsettled(item.conditions, c)) for item in items)
    return tuple(replace(item, conditions=left) for item, left in found if left is not None)


def _heard(entries: Iterable[Applicable], access: str) -> Iterator[Applicable]:
    """The policies that are in force for an access type, their conditions evaluated."""
    for entry in entries:
        c, policy = entry.circumstances, entry.policy
        found = policy if c is None else settled(policy, replace(c, access=access))
        if found is policy and found.is_certain:
            yield entry
        elif found is not None:
            yield replace(entry, policy=found, doubt=entry.doubt or found.doubt)


def decide_access(
    applicable: Iterable[Applicable], subject: Subject, access: str, scope: Scope, question: str
) -> Decision:
    """Decide one access type.

    Args:
        applicable: the policies about the resource, highest priority first.
        subject: who asks.
        access: the access type.
        scope: which of the policies' answers count.
        question: the request in words, for the reasons: ``select on table a.b to 'ann'``.
    """
    doubtful: list[Reason] = []
    for _, equals in groupby(applicable, key=lambda entry: entry.policy.priority):
        grant: Reason | None = None
        for entry in _heard(equals, access):
            verdict = check(entry.policy, subject, access)
            if verdict is None or not scope.counts(entry.match, verdict.allowed):
                if verdict is not None and entry.match is Match.SELF:
                    doubtful.append(_partial(entry, verdict))
                continue
            if not verdict.allowed:
                return Decision.deny(_denial(entry, verdict, question))
            if entry.doubt is not None or verdict.doubt is not None:
                doubtful.append(_doubt(entry, verdict))
            else:
                grant = grant or _grant(entry, verdict, question)
        if grant is not None:
            return Decision.allow(grant)
    return Decision.deny(Reason("policy-no-match", f"No policy grants {question}."), *doubtful)


def mask_in_force(applicable: Iterable[Applicable], subject: Subject) -> MaskRule | None:
    """The mask on a column; None if there is none or it is lifted.

    At equal priority, masks on tags come before masks on resources. Of these, ``MASK_NULL`` and
    ``replace-with-null`` come first and ``MASK_NONE`` last, and else the policies' names decide. A mask that
    is only possibly in force is ``MASK_NULL``, the strictest.

    Of masks on tags, Ranger takes the one on the closest tag, whatever its priority. So one that lifts counts
    only if all of them lift: none shows what it would not show there.
    """
    said = [
        (entry, rule)
        for entry in _heard(applicable, "select")
        if (rule := _mask_of(entry, subject)) is not None
    ]
    if any(_is_on_tag(entry) and rule.type != MASK_NONE for entry, rule in said):
        said = [each for each in said if not (_is_on_tag(each[0]) and each[1].type == MASK_NONE)]
    first = min(said, key=_mask_order, default=None)
    return None if first is None or first[1].type == MASK_NONE else first[1]


def _is_on_tag(entry: Applicable) -> bool:
    return entry.policy.tag is not None


def _mask_order(said: tuple[Applicable, MaskRule]) -> tuple[int, bool, int, str]:
    entry, rule = said
    return -entry.policy.priority, not _is_on_tag(entry), _MASK_ORDER.get(rule.type, 1), rule.policy


def row_filters_in_force(applicable: Iterable[Applicable], subject: Subject) -> tuple[FilterRule, ...]:
    """The row filters of a table: at equal priority, a row has to pass that of every policy."""
    for _, equals in groupby(applicable, key=lambda entry: entry.policy.priority):
        deciding = [
            (entry, item)
            for entry in _heard(equals, "select")
            if (item := _deciding_item(entry, entry.policy.row_filters, subject, _filters_nothing))
            is not None
        ]
        if deciding:
            return tuple(_filter_of(entry, item) for entry, item in deciding if item.row_filter is not None)
    return ()


def check(policy: Policy, subject: Subject, access: str) -> Verdict | None:
    """What one access policy says, by its items alone."""
    deny = _first(policy.deny, subject, access)
    if deny is not None and not _excused(policy.deny_exceptions, subject, access):
        return Verdict(False, deny.label, deny.doubt)
    allow = _best_grant(policy.allow, subject, access)
    if _first(policy.allow_exceptions, subject, access) is not None:
        allow = None
    if policy.deny_all_else and (allow is None or not allow.is_certain):
        return Verdict(False, "isDenyAllElse")
    if allow is None:
        return None
    return Verdict(True, allow.label, allow.doubt)


def restriction(policy: Policy, subject: Subject) -> Verdict | None:
    """The mask or row filter that a policy of that type has for a user, as a denial."""
    masks = policy.type is PolicyType.MASK
    lifts, items = (_unmasks, policy.masks) if masks else (_filters_nothing, policy.row_filters)
    entry = Applicable(policy, Match.SELF, policy.doubt or doubt_about(policy, subject.name))
    item = _deciding_item(entry, items, subject, lifts)
    return None if item is None or lifts(item) else Verdict(False, item.label)


def _first(items: Sequence[Item], subject: Subject, access: str) -> Item | None:
    """The first item that concerns the request, even if it is not known whether it holds."""
    return next((item for item in items if _concerns(item, subject, access)), None)


def _best_grant(items: Sequence[Item], subject: Subject, access: str) -> Item | None:
    """The first item that certainly holds and concerns the request; else the first one that may hold."""
    found = [item for item in items if _concerns(item, subject, access)]
    return next((item for item in found if item.is_certain), found[0] if found else None)


def _excused(exceptions: Sequence[Item], subject: Subject, access: str) -> bool:
    return any(item.is_certain and _concerns(item, subject, access) for item in exceptions)


def is_named(item: Item, subject: Subject) -> bool:
    """Whether an item is for a user, whatever it gives or takes."""
    return (
        item.everyone
        or subject.name in item.users
        or not item.groups.isdisjoint(subject.groups)
        or not item.roles.isdisjoint(subject.roles)
        or (item.owner and subject.name == subject.owner)
    )


def _concerns(item: Item, subject: Subject, access: str) -> bool:
    if access not in item.accesses and ALL not in item.accesses:
        return False
    return is_named(item, subject)


def _mask_of(entry: Applicable, subject: Subject) -> MaskRule | None:
    item = _deciding_item(entry, entry.policy.masks, subject, _unmasks)
    if item is None or item.mask is None:
        return None
    doubtful = entry.doubt is not None or not item.is_certain
    return MaskRule(MASK_NULL if doubtful else item.mask.type, entry.policy.name, item.label)


def _filter_of(entry: Applicable, item: Item) -> FilterRule:
    doubt = entry.doubt or item.doubt
    return FilterRule(None if doubt else item.row_filter, entry.policy.name, item.label, doubt)


def _deciding_item(
    entry: Applicable, items: Sequence[Item], subject: Subject, lifts: Callable[[Item], bool]
) -> Item | None:
    """The first item for the subject, in the policy's own order; what lifts a restriction must be certain."""
    for item in items:
        if not _concerns(item, subject, "select"):
            continue
        if not lifts(item):
            return item
        if item.is_certain:
            return item if entry.doubt is None else None
    return None


def _unmasks(item: Item) -> bool:
    return item.mask is not None and item.mask.type == MASK_NONE


def _filters_nothing(item: Item) -> bool:
    return item.row_filter is None


def _grant(entry: Applicable, verdict: Verdict, question: str) -> Reason:
    detail = f"{entry.policy.title}{entry.by_tag} grants {question} by {verdict.item}."
    return Reason("policy-allow", detail, entry.policy.name, verdict.item)


def _denial(entry: Applicable, verdict: Verdict, question: str) -> Reason:
    doubts = [doubt for doubt in (entry.doubt, verdict.doubt) if doubt is not None]
    because = f"; {', and '.join(doubts)}, so the denial holds" if doubts else ""
    detail = f"{entry.policy.title}{entry.by_tag} denies {question} by {verdict.item}{because}."
    return Reason("policy-deny", detail, entry.policy.name, verdict.item)


def _partial(entry: Applicable, verdict: Verdict) -> Reason:
    detail = (
        f"{entry.policy.title} does not grant it by {verdict.item}: it covers the location only, not "
        "what is below it. Set isRecursive."
    )
    return Reason("policy-not-recursive", detail, entry.policy.name, verdict.item)


def _doubt(entry: Applicable, verdict: Verdict) -> Reason:
    doubts = [doubt for doubt in (entry.doubt, verdict.doubt) if doubt is not None]
    detail = f"{entry.policy.title} does not grant it by {verdict.item}: {', and '.join(doubts)}."
    return Reason("policy-unevaluable", detail, entry.policy.name, verdict.item)
