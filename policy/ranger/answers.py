"""Finds the policies about a resource that name a user, and evaluates them.

Which policies are about a resource depends on its security zone and on its tags; without zones and tags,
neither is looked at.

What is found is kept by functions that hold the index alone, so that nothing refers to itself. Policies that
are not in force any more are then freed at once. The collector of cycles would look at all objects for that,
while every thread waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Final

from policy.decision import Decision, Reason
from policy.principal import Principal
from policy.privileges.requests import ALL, ANY, AccessRequest, Resource
from policy.ranger.circumstances import Circumstances, Subject, Tag
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
from policy.ranger.index import PolicyIndex
from policy.ranger.matching import Match, Target
from policy.ranger.model import AssignedTag, Policy, PolicyType
from policy.ranger.resource_tree import PossibleNames
from policy.ranger.roles import RoleGraph
from policy.ranger.servicedef import LEVELS
from policy.ranger.tags import TagPolicies
from policy.ranger.users import UserStore
from policy.ranger.validity import active
from policy.ranger.zones import ZoneName, Zones, deciding

#: Resources, the latest ones, of which it is kept which policies are about them.
_KEPT_RESOURCES: Final = 4096
#: Users, the latest ones, of whom it is kept which policies name them: a scan asks for each of its columns.
#: A user whom 140 of 10,000 policies name takes 8 KB.
KEPT_USERS: Final = 2_048
_APART: Final = (Match.NONE, Match.ABOVE)
_OUTSIDE: Final[tuple[ZoneName, ...]] = (None,)
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
        tagged: the policies on its tags, with how they match.
        tags: its tags, with whether they are on it or around it, rather than on what is below.
    """

    target: Target
    positions: tuple[frozenset[int], ...]
    matches: dict[int, Match]
    tagged: tuple[tuple[Policy, Match], ...]
    tags: tuple[tuple[AssignedTag, bool], ...]

    def tags_at(self, now: datetime) -> tuple[Tag, ...] | None:
        """The tags that conditions see; None where there are some on what is below only, since "any access"
        looks at these too."""
        if not all(covers for _, covers in self.tags):
            return None
        return tuple(tag.seen for tag, _ in self.tags if active(tag.validity, now))


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies that answer.

    Attributes:
        indexes: those that name resources, by type.
        tagged: those on tags.
        zones: the security zones.
    """

    indexes: Indexes
    tagged: TagPolicies
    zones: Zones

    def candidates(self, kind: PolicyType, targets: Sequence[Target]) -> Iterator[Policy]:
        """The policies of a type, of any zone, that can be about one of these resources; some may not be."""
        index = self.indexes[kind]
        positions = {position for target in targets for position in index.positions(target)}
        yield from (index.policies[position] for position in sorted(positions))
        yield from self.tagged.about(kind, targets)

    @property
    def are_timed(self) -> bool:
        """Whether the time decides anything."""
        return any(index.scheduled for index in self.indexes.values()) or self.tagged.are_timed

    def zone_of(self, target: Target) -> ZoneName:
        """The zone whose policies decide about a resource; None for those without a zone."""
        return deciding(self.zones.of(target)) if self.zones else None


@dataclass(frozen=True, slots=True)
class Masked:
    """The mask of a column; None for the values as they are."""

    mask: MaskRule | None


class Answers:
    """Answers of policies, without memory of the answers.

    Args:
        policies: the policies.
        roles: the roles.
        users: attributes of users and groups.
    """

    __slots__ = ("_indexes", "_naming", "_policies", "_related", "_roles_of", "_users")

    def __init__(self, policies: Policies, roles: RoleGraph, users: UserStore) -> None:
        self._policies = policies
        self._indexes = indexes = policies.indexes
        self._users = users
        self._related = lru_cache(_KEPT_RESOURCES)(partial(_related_to, policies))
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
        if any(
            self._is_timed(PolicyType.ACCESS, request.resource, subject, zone)
            for zone in self._zones_of(request)
        ):
            return None
        return self.decided(request, _ANY_TIME)

    def decided(self, request: AccessRequest, now: datetime) -> Decision:
        zones = self._zones_of(request)
        if len(zones) == 1:
            return self._decided_in(zones[0], request, now)
        decisions = (self._decided_in(zone, request, now) for zone in zones)
        return _any_of(decisions, request) if request.access == ANY else Decision.all_of(decisions)

    def _zones_of(self, request: AccessRequest) -> tuple[ZoneName, ...]:
        """The zones whose policies decide: one, but for "any access" and for locations."""
        zones = self._policies.zones
        if not zones:
            return _OUTSIDE
        found = zones.of(Target.of(request.resource))
        if request.access == ANY:
            return found
        more = found if _is_location(request.resource) else ()
        return tuple(dict.fromkeys((deciding(found), *more)))

    def _decided_in(self, zone: ZoneName, request: AccessRequest, now: datetime) -> Decision:
        subject = self.subject(request.principal, request.owner)
        applicable = self._applicable(PolicyType.ACCESS, request.resource, subject, now, zone)
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
        zone = self._zone_of(column)
        if self._is_timed(PolicyType.MASK, column, self.subject(principal, owner), zone):
            return None
        return Masked(self.mask_of(principal, column, owner, _ANY_TIME))

    def mask_of(
        self, principal: Principal, column: Resource, owner: str | None, now: datetime
    ) -> MaskRule | None:
        subject = self.subject(principal, owner)
        zone = self._zone_of(column)
        return mask_in_force(self._applicable(PolicyType.MASK, column, subject, now, zone), subject)

    def row_filters_always(
        self, principal: Principal, table: Resource, owner: str | None
    ) -> tuple[FilterRule, ...] | None:
        """The row filters at every time; None where the time decides something."""
        zone = self._zone_of(table)
        if self._is_timed(PolicyType.ROW_FILTER, table, self.subject(principal, owner), zone):
            return None
        return self.row_filters_of(principal, table, owner, _ANY_TIME)

    def row_filters_of(
        self, principal: Principal, table: Resource, owner: str | None, now: datetime
    ) -> tuple[FilterRule, ...]:
        subject = self.subject(principal, owner)
        zone = self._zone_of(table)
        return row_filters_in_force(
            self._applicable(PolicyType.ROW_FILTER, table, subject, now, zone), subject
        )

    def possible_names(self, principal: Principal, database: str | None) -> PossibleNames:
        """Names of databases, or of tables of one, on which access policies can say something to a user."""
        subject = self.subject(principal, None)
        own = self._naming(PolicyType.ACCESS, subject)
        named = self._indexes[PolicyType.ACCESS].names(database, own)
        return named | self._policies.tagged.names(database, subject)

    def _zone_of(self, resource: Resource) -> ZoneName:
        return self._policies.zone_of(Target.of(resource)) if self._policies.zones else None

    def _is_timed(self, kind: PolicyType, resource: Resource, subject: Subject, zone: ZoneName) -> bool:
        """Whether the time decides something in a policy of this type on the resource that names the user."""
        scheduled, related = self._indexes[kind].scheduled, self._related(kind, resource, zone)
        if any(policy.is_timed for policy, _ in related.tagged) or any(
            tag.validity for tag, _ in related.tags
        ):
            return True
        if all(scheduled.isdisjoint(each) for each in related.positions):
            return False
        return not scheduled.isdisjoint(self._positions(related, kind, subject))

    def _applicable(
        self, kind: PolicyType, resource: Resource, subject: Subject, now: datetime, zone: ZoneName
    ) -> list[Applicable]:
        """The policies of a type that are about `resource`, name the user and can be in force, highest
        priority first; of equal priority, those on tags first."""
        related = self._related(kind, resource, zone)
        index, found = self._indexes[kind], []
        circumstances = self._circumstances(subject, resource, related, now)
        for position in self._positions(related, kind, subject):
            policy = index.policies[position]
            if position in index.with_macros:
                match = relation(policy, related.target, subject.name, subject.owner)
            elif (known := related.matches.get(position)) is None:
                match = related.matches[position] = relation(policy, related.target, "", None)
            else:
                match = known
            if match not in _APART and policy.in_force(now):
                c = circumstances if position in index.conditional else None
                doubt = doubt_about(policy, subject.name, subject.owner)
                found.append(Applicable(policy, match, doubt, c))
        if not related.tagged:
            return found
        tagged = (
            Applicable(policy, match, policy.limit, circumstances)
            for policy, match in related.tagged
            if policy.in_force(now)
        )
        return sorted((*tagged, *found), key=lambda each: -each.policy.priority)

    def circumstances(self, subject: Subject, resource: Resource, now: datetime) -> Circumstances:
        """What conditions look at, without the access type and the current tag."""
        related = self._related(PolicyType.ACCESS, resource, self._zone_of(resource))
        return self._circumstances(subject, resource, related, now)

    def _circumstances(
        self, subject: Subject, resource: Resource, related: _Related, now: datetime
    ) -> Circumstances:
        # Without any tag, tags are not known: that there are none on a resource would lift denials.
        tags = related.tags_at(now) if self._policies.tagged.tags.resources else None
        return Circumstances(subject, self._users, now, resource, tags=tags)

    def _positions(self, related: _Related, kind: PolicyType, subject: Subject) -> list[int]:
        """Where the policies stand, in order, that can be about a resource and say something to a user."""
        own = self._naming(kind, subject)
        return sorted(frozenset().union(*(own & each for each in related.positions)))


def _related_to(policies: Policies, kind: PolicyType, resource: Resource, zone: ZoneName) -> _Related:
    target = Target.of(resource)
    index, counts = policies.indexes[kind], partial(policies.zones.counts, zone=zone)
    about = index.about(target)
    if policies.zones:
        about = tuple(frozenset(each for each in some if counts(index.policies[each])) for some in about)
    tagged = (
        (policy, match)
        for policy in policies.tagged.about(kind, [target])
        if (match := relation(policy, target, "", None)) not in _APART and counts(policy)
    )
    return _Related(target, about, {}, tuple(tagged), policies.tagged.tags.on(target))


def _is_location(resource: Resource) -> bool:
    return LEVELS[resource.levels[-1]].location


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
    return Scope.TREE if _is_location(request.resource) else Scope.SELF


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
