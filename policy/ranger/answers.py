"""Finds the policies about a resource that name a user, and evaluates them.

What is found is kept by functions that hold the index alone, so that nothing refers to itself. Policies that
are not in force any more are then freed at once. The collector of cycles would look at all objects for that,
while every thread waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Final

from policy.decision import Decision, Reason
from policy.principal import Principal
from policy.privileges.requests import ALL, ANY, AccessRequest, Resource
from policy.ranger.circumstances import Circumstances, Subject
from policy.ranger.evaluate import (
    Applicable,
    FilterRule,
    MaskRule,
    Scope,
    decide_access,
    doubt_about,
    mask_in_force,
    row_filters_in_force,
)
from policy.ranger.index import PolicyIndex, PossibleNames
from policy.ranger.matching import Match, Target
from policy.ranger.model import Policy, PolicyType
from policy.ranger.roles import RoleGraph
from policy.ranger.servicedef import LEVELS
from policy.ranger.users import UserStore
from policy.ranger.validity import active

#: Resources, the latest ones, of which it is kept which policies are about them.
_KEPT_RESOURCES: Final = 4096
#: Users, the latest ones, of whom it is kept which policies name them: a scan asks for each of its columns.
#: A user whom 140 of 10,000 policies name takes 8 KB.
KEPT_USERS: Final = 2_048
_APART: Final = (Match.NONE, Match.ABOVE)
#: Where the time decides nothing, it is this one.
_ANY_TIME: Final = datetime.fromtimestamp(0, UTC)

Indexes = Mapping[PolicyType, PolicyIndex]


@dataclass(frozen=True, slots=True)
class _Related:
    """The policies of a type that can be about a resource.

    Attributes:
        target: the resource.
        positions: where they stand in their index.
        matches: how they match, by where they stand; of those that were asked for and have no macro.
    """

    target: Target
    positions: tuple[frozenset[int], ...]
    matches: dict[int, Match]


@dataclass(frozen=True, slots=True)
class Masked:
    """The mask of a column; None for the values as they are."""

    mask: MaskRule | None


class Answers:
    """Answers of policies, without memory of the answers.

    Args:
        indexes: the policies.
        roles: the roles.
        users: attributes of users and groups.
    """

    __slots__ = ("_indexes", "_naming", "_related", "_roles_of", "_users")

    def __init__(self, indexes: Indexes, roles: RoleGraph, users: UserStore) -> None:
        self._indexes = indexes
        self._users = users
        self._related = lru_cache(_KEPT_RESOURCES)(partial(_related_to, indexes))
        self._roles_of = lru_cache(KEPT_USERS)(
            lambda principal: roles.held_by(principal.name, principal.groups, principal.roles)
        )
        self._naming = lru_cache(KEPT_USERS)(lambda kind, subject: indexes[kind].naming(subject))

    def subject(self, principal: Principal, owner: str | None) -> Subject:
        """A principal with every role that it has, and the owner of the resource."""
        return Subject(principal.name, principal.groups, self._roles_of(principal), owner)

    def decided_always(self, request: AccessRequest) -> Decision | None:
        """The decision at every time; None where the time decides something."""
        subject = self.subject(request.principal, request.owner)
        if self.is_timed(PolicyType.ACCESS, request.resource, subject):
            return None
        return self.decided(request, _ANY_TIME)

    def decided(self, request: AccessRequest, now: datetime) -> Decision:
        subject = self.subject(request.principal, request.owner)
        applicable = self.applicable(PolicyType.ACCESS, request.resource, subject, now)
        single = request.access not in (ALL, ANY)
        accesses = [request.access] if single else sorted(request.resource.access_types)
        scope = _scope(request)
        decisions = (
            decide_access(applicable, subject, access, scope, _question(request, access))
            for access in accesses
        )
        return _any_of(decisions, request) if request.access == ANY else Decision.all_of(decisions)

    def masked_always(self, principal: Principal, column: Resource, owner: str | None) -> Masked | None:
        """The mask at every time; None where the time decides something."""
        if self.is_timed(PolicyType.MASK, column, self.subject(principal, owner)):
            return None
        return Masked(self.mask_of(principal, column, owner, _ANY_TIME))

    def mask_of(
        self, principal: Principal, column: Resource, owner: str | None, now: datetime
    ) -> MaskRule | None:
        subject = self.subject(principal, owner)
        return mask_in_force(self.applicable(PolicyType.MASK, column, subject, now), subject)

    def row_filters_always(
        self, principal: Principal, table: Resource, owner: str | None
    ) -> tuple[FilterRule, ...] | None:
        """The row filters at every time; None where the time decides something."""
        if self.is_timed(PolicyType.ROW_FILTER, table, self.subject(principal, owner)):
            return None
        return self.row_filters_of(principal, table, owner, _ANY_TIME)

    def row_filters_of(
        self, principal: Principal, table: Resource, owner: str | None, now: datetime
    ) -> tuple[FilterRule, ...]:
        subject = self.subject(principal, owner)
        return row_filters_in_force(self.applicable(PolicyType.ROW_FILTER, table, subject, now), subject)

    def possible_names(self, principal: Principal, database: str | None) -> PossibleNames:
        """Names of databases, or of tables of one, on which access policies can say something to a user."""
        index = self._indexes[PolicyType.ACCESS]
        own = self._naming(PolicyType.ACCESS, self.subject(principal, None))
        return index.databases(own) if database is None else index.tables(database, own)

    def is_timed(self, kind: PolicyType, resource: Resource, subject: Subject) -> bool:
        """Whether the time decides something in a policy of this type on the resource that names the user."""
        scheduled, related = self._indexes[kind].scheduled, self._related(kind, resource)
        if all(scheduled.isdisjoint(each) for each in related.positions):
            return False
        return not scheduled.isdisjoint(self._positions(related, kind, subject))

    def applicable(
        self, kind: PolicyType, resource: Resource, subject: Subject, now: datetime
    ) -> list[Applicable]:
        """The policies of a type that are about `resource`, name the user and can be in force, highest
        priority first."""
        related = self._related(kind, resource)
        index, found = self._indexes[kind], []
        circumstances = Circumstances(subject, self._users, now, resource)
        for position in self._positions(related, kind, subject):
            policy = index.policies[position]
            if position in index.with_macros:
                match = relation(policy, related.target, subject.name, subject.owner)
            elif (known := related.matches.get(position)) is None:
                match = related.matches[position] = relation(policy, related.target, "", None)
            else:
                match = known
            if match not in _APART and active(policy.schedules, now):
                c = circumstances if position in index.conditional else None
                doubt = doubt_about(policy, subject.name, subject.owner)
                found.append(Applicable(policy, match, doubt, c))
        return found

    def _positions(self, related: _Related, kind: PolicyType, subject: Subject) -> list[int]:
        """Where the policies stand, in order, that can be about a resource and say something to a user."""
        own = self._naming(kind, subject)
        return sorted(frozenset().union(*(own & each for each in related.positions)))


def _related_to(indexes: Indexes, kind: PolicyType, resource: Resource) -> _Related:
    target = Target.of(resource)
    return _Related(target, indexes[kind].about(target), {})


def relation(policy: Policy, target: Target, user: str, owner: str | None) -> Match:
    """How a policy's resources relate to a requested one: the closest of all its sets of resources."""
    if len(policy.resources) == 1:
        return policy.resources[0].match(target, user, owner)
    matches = [resource.match(target, user, owner) for resource in policy.resources]
    closest = (Match.SELF_AND_BELOW, Match.SELF, Match.BELOW, Match.ABOVE, Match.NONE)
    return min(matches, key=closest.index)


def _scope(request: AccessRequest) -> Scope:
    if request.access == ANY:
        return Scope.ANYWHERE
    return Scope.TREE if LEVELS[request.resource.levels[-1]].location else Scope.SELF


def _question(request: AccessRequest, access: str) -> str:
    return f"{access} on {request.resource} to {request.principal.name!r}"


def _any_of(decisions: Iterable[Decision], request: AccessRequest) -> Decision:
    """The first grant; else a refusal that a policy spoke; else that none granted anything."""
    refused = []
    for decision in decisions:
        if decision.allowed:
            return decision
        refused.append(decision)
    spoken = next((each for each in refused if each.reasons[0].rule == "policy-deny"), None)
    if spoken is not None:
        return spoken
    doubtful = dict.fromkeys(reason for each in refused for reason in each.reasons[1:])
    who = f"{request.principal.name!r} any privilege on {request.resource} or below it"
    return Decision.deny(Reason("policy-no-match", f"No policy grants {who}."), *doubtful)
