"""The policies in force, and the questions that can be put to them.

A policy set is a value: made once from documents, never changed, and named by a digest of them. It reads no
clock; the caller says what time it is. Where no policy about the resource has a schedule, time decides
nothing, and what was answered to the same question before is answered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from policy.decision import Decision, Reason
from policy.digests import digest_of_documents
from policy.errors import RequestInvalid
from policy.principal import Principal
from policy.privileges.requests import ALL, ANY, AccessRequest, Resource
from policy.ranger.administer import may_administer
from policy.ranger.evaluate import (
    Applicable,
    FilterRule,
    MaskRule,
    Scope,
    Subject,
    decide_access,
    doubt_about,
    mask_in_force,
    row_filters_in_force,
)
from policy.ranger.index import PolicyIndex, PossibleNames
from policy.ranger.matching import Match, ResourcePattern, Target
from policy.ranger.model import Policy, PolicyType
from policy.ranger.parse import NO_MEMORY, Contents, no_pause, parse_documents
from policy.ranger.roles import RoleGraph
from policy.ranger.servicedef import LEVELS
from policy.ranger.validity import active

#: Questions, the latest ones, whose answers are kept.
_KEPT_ANSWERS: Final = 16_384
#: Resources, the latest ones, of which it is kept which policies are about them.
_KEPT_RESOURCES: Final = 4096
#: Users, the latest ones, of whom it is kept which policies name them: a scan asks for each of its columns.
_KEPT_USERS: Final = 256
_APART: Final = (Match.NONE, Match.ABOVE)
_RESTRICTING: Final = (PolicyType.ROW_FILTER, PolicyType.MASK)
#: Where the time decides nothing, it is this one.
_ANY_TIME: Final = datetime.fromtimestamp(0, UTC)


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
class _Masked:
    """The mask of a column; None for the values as they are."""

    mask: MaskRule | None


class PolicySet:
    """Ranger policies and roles, ready to decide.

    Attributes:
        version: SHA-256 of the documents with their names, in hexadecimal.
    """

    __slots__ = (
        "_decide",
        "_indexes",
        "_masked",
        "_memory",
        "_naming",
        "_possible",
        "_related",
        "_roles",
        "_roles_of",
        "_row_filters",
        "_scheduled",
        "version",
    )

    def __init__(self, contents: Contents, version: str, pause: Callable[[], None] = no_pause) -> None:
        self.version = version
        self._memory = contents.memory
        self._roles = RoleGraph.of(contents.roles.values())
        self._indexes = {
            kind: PolicyIndex((policy for policy in contents.policies if policy.type is kind), pause)
            for kind in PolicyType
        }
        self._scheduled = any(policy.schedules for policy in contents.policies)
        self._related = lru_cache(_KEPT_RESOURCES)(self._related_to)
        self._roles_of = lru_cache(_KEPT_USERS)(
            lambda principal: self._roles.held_by(principal.name, principal.groups, principal.roles)
        )
        self._naming = lru_cache(_KEPT_USERS)(lambda kind, subject: self._indexes[kind].naming(subject))
        self._possible = lru_cache(_KEPT_USERS)(self._possible_names)
        self._decide = lru_cache(_KEPT_ANSWERS)(self._decided_always)
        self._masked = lru_cache(_KEPT_ANSWERS)(self._masked_always)
        self._row_filters = lru_cache(_KEPT_ANSWERS)(self._row_filters_always)

    @classmethod
    def parse(
        cls,
        documents: Mapping[str, bytes | str],
        before: PolicySet | None = None,
        pause: Callable[[], None] = no_pause,
    ) -> PolicySet:
        """Read policy documents: all of them, or none.

        Args:
            documents: JSON texts by name, as `policy.ranger.parse` describes them.
            before: a set that was read before; policies that it has, too, are not read again.
            pause: is called often, so that others can use the interpreter meanwhile.

        Raises:
            PolicyInvalid: naming document, line and field.
        """
        memory = NO_MEMORY if before is None else before._memory
        return cls(parse_documents(documents, memory, pause), digest_of_documents(documents), pause)

    @classmethod
    def empty(cls) -> PolicySet:
        """No policies: everything is denied."""
        return cls.parse({})

    @property
    def is_scheduled(self) -> bool:
        """Whether the time decides anything: a policy has a schedule."""
        return self._scheduled

    def decide(self, request: AccessRequest, now: datetime) -> Decision:
        """Decide one request.

        Args:
            request: the request. `ALL` is granted where each access type of the resource is; `ANY` where one
                is, at or below the resource.
            now: the time, with time zone.

        Raises:
            RequestInvalid: if `now` has no time zone.
        """
        _require_zone(now)
        known = self._decide(request)
        return self._decided(request, now) if known is None else known

    def _decided_always(self, request: AccessRequest) -> Decision | None:
        """The decision at every time; None where the time decides something."""
        subject = self.subject(request.principal, request.owner)
        if self._is_timed(PolicyType.ACCESS, request.resource, subject):
            return None
        return self._decided(request, _ANY_TIME)

    def _is_timed(self, kind: PolicyType, resource: Resource, subject: Subject) -> bool:
        """Whether a policy of this type about the resource, which names the user, has a schedule."""
        scheduled, related = self._indexes[kind].scheduled, self._related(kind, resource)
        if all(scheduled.isdisjoint(each) for each in related.positions):
            return False
        return not scheduled.isdisjoint(self._positions(related, kind, subject))

    def _decided(self, request: AccessRequest, now: datetime) -> Decision:
        subject = self.subject(request.principal, request.owner)
        applicable = self._applicable(PolicyType.ACCESS, request.resource, subject, now)
        single = request.access not in (ALL, ANY)
        accesses = [request.access] if single else sorted(request.resource.access_types)
        scope = _scope(request)
        decisions = (
            decide_access(applicable, subject, access, scope, _question(request, access))
            for access in accesses
        )
        return _any_of(decisions, request) if request.access == ANY else Decision.all_of(decisions)

    def mask_for(
        self,
        principal: Principal,
        database: str,
        table: str,
        column: str,
        now: datetime,
        *,
        owner: str | None = None,
    ) -> MaskRule | None:
        """The mask that `principal` sees a column through; None for the values as they are.

        It says nothing about whether the column may be selected at all. `owner` is the table's, for items
        that name ``{OWNER}``.

        Raises:
            RequestInvalid: if `now` has no time zone.
        """
        _require_zone(now)
        asked = Resource.column(database, table, column)
        known = self._masked(principal, asked, owner)
        return self._mask_of(principal, asked, owner, now) if known is None else known.mask

    def _masked_always(self, principal: Principal, column: Resource, owner: str | None) -> _Masked | None:
        """The mask at every time; None where the time decides something."""
        if self._is_timed(PolicyType.MASK, column, self.subject(principal, owner)):
            return None
        return _Masked(self._mask_of(principal, column, owner, _ANY_TIME))

    def _mask_of(
        self, principal: Principal, column: Resource, owner: str | None, now: datetime
    ) -> MaskRule | None:
        subject = self.subject(principal, owner)
        return mask_in_force(self._applicable(PolicyType.MASK, column, subject, now), subject)

    def row_filters_for(
        self, principal: Principal, database: str, table: str, now: datetime, *, owner: str | None = None
    ) -> tuple[FilterRule, ...]:
        """The row filters of a table that `owner` owns: `principal` sees the rows that pass all of them.

        Raises:
            RequestInvalid: if `now` has no time zone.
        """
        _require_zone(now)
        asked = Resource.table(database, table)
        known = self._row_filters(principal, asked, owner)
        return self._row_filters_of(principal, asked, owner, now) if known is None else known

    def _row_filters_always(
        self, principal: Principal, table: Resource, owner: str | None
    ) -> tuple[FilterRule, ...] | None:
        """The row filters at every time; None where the time decides something."""
        if self._is_timed(PolicyType.ROW_FILTER, table, self.subject(principal, owner)):
            return None
        return self._row_filters_of(principal, table, owner, _ANY_TIME)

    def _row_filters_of(
        self, principal: Principal, table: Resource, owner: str | None, now: datetime
    ) -> tuple[FilterRule, ...]:
        subject = self.subject(principal, owner)
        return row_filters_in_force(self._applicable(PolicyType.ROW_FILTER, table, subject, now), subject)

    def databases_with_privileges(self, principal: Principal) -> PossibleNames:
        """Names of the databases in which a user can have any privilege; in no other one. As for tables."""
        return self._possible(principal, None)

    def tables_with_privileges(self, principal: Principal, database: str) -> PossibleNames:
        """Names of the tables of a database on which a user can have any privilege; on no other one.

        What the policies say is not looked at, so that the user need not have a privilege on these.
        """
        return self._possible(principal, database)

    def _possible_names(self, principal: Principal, database: str | None) -> PossibleNames:
        index = self._indexes[PolicyType.ACCESS]
        own = self._naming(PolicyType.ACCESS, self.subject(principal, None))
        return index.databases(own) if database is None else index.tables(database, own)

    def about_table(self, database: str, table: str) -> tuple[Policy, ...]:
        """The access and masking policies that may be about a table or its columns; some may not be."""
        target = Target.of(Resource.table(database, table))
        kinds = (PolicyType.ACCESS, PolicyType.MASK)
        return tuple(policy for kind in kinds for policy in self._indexes[kind].candidates(target))

    def about(self, database: str, table: str) -> tuple[Policy, ...]:
        """The policies of every type that may be about a table or its columns; some may not be."""
        target = Target.of(Resource.table(database, table))
        return tuple(policy for index in self._indexes.values() for policy in index.candidates(target))

    def restricting(self, database: str, table: str) -> tuple[Policy, ...]:
        """The row filter and masking policies that may be about a table or its columns; some may not be."""
        target = Target.of(Resource.table(database, table))
        return tuple(policy for kind in _RESTRICTING for policy in self._indexes[kind].candidates(target))

    def restrictions(self) -> tuple[Policy, ...]:
        """All row filter and masking policies."""
        return tuple(policy for kind in _RESTRICTING for policy in self._indexes[kind].policies)

    def grant_to_anyone(self, resource: Resource, access: str) -> Reason | None:
        """Why a user can have a privilege at some time; None if no policy grants it to anyone.

        What takes the grant away again (denials, exceptions, schedules, names that a macro stands for) is not
        looked at: the answer is for what must be safe for every user, at every time.
        """
        target = Target.of(resource)
        for policy in self._indexes[PolicyType.ACCESS].candidates(target):
            if policy.limit is not None or not any(_may_match(each, target) for each in policy.resources):
                continue
            for item in policy.allow:
                if not item.conditional and item.accesses & {access, ALL}:
                    detail = f"{policy.title} grants {access} on {resource}."
                    return Reason("policy-grant", detail, policy.name, item.label)
        return None

    def subject(self, principal: Principal, owner: str | None) -> Subject:
        """A principal with every role that it has, and the owner of the resource."""
        return Subject(principal.name, principal.groups, self._roles_of(principal), owner)

    def may_administer(self, principal: Principal, changed: Iterable[Policy], now: datetime) -> Decision:
        """Whether `principal` may add, change or remove policies, as one who has their resources delegated.

        Args:
            principal: who wants to change them.
            changed: the policies as `policy.ranger.parse` reads them, disabled ones too; of one that is
                changed, both the one before and the one after. None at all are refused.
            now: the time, with time zone.

        Raises:
            RequestInvalid: if `now` has no time zone.
        """
        _require_zone(now)
        policies = (policy for index in self._indexes.values() for policy in index.policies)
        in_force = [policy for policy in policies if active(policy.schedules, now)]
        in_force.sort(key=lambda policy: policy.priority, reverse=True)
        subject = self.subject(principal, None)
        return Decision.all_of(may_administer(in_force, subject, policy) for policy in changed)

    def _applicable(
        self, kind: PolicyType, resource: Resource, subject: Subject, now: datetime
    ) -> list[Applicable]:
        """The policies of a type that are about `resource`, name the user and can be in force, highest
        priority first."""
        related = self._related(kind, resource)
        index, found = self._indexes[kind], []
        for position in self._positions(related, kind, subject):
            policy = index.policies[position]
            if position in index.with_macros:
                match = relation(policy, related.target, subject.name, subject.owner)
            elif (known := related.matches.get(position)) is None:
                match = related.matches[position] = relation(policy, related.target, "", None)
            else:
                match = known
            if match not in _APART and active(policy.schedules, now):
                found.append(Applicable(policy, match, doubt_about(policy, subject.name, subject.owner)))
        return found

    def _related_to(self, kind: PolicyType, resource: Resource) -> _Related:
        target = Target.of(resource)
        return _Related(target, self._indexes[kind].about(target), {})

    def _positions(self, related: _Related, kind: PolicyType, subject: Subject) -> list[int]:
        """Where the policies stand, in order, that can be about a resource and say something to a user."""
        own = self._naming(kind, subject)
        return sorted(frozenset().union(*(own & each for each in related.positions)))


def _require_zone(now: datetime) -> None:
    if now.tzinfo is None:
        raise RequestInvalid("The time has no time zone.", rule="now")


def relation(policy: Policy, target: Target, user: str, owner: str | None) -> Match:
    """How a policy's resources relate to a requested one: the closest of all its sets of resources."""
    if len(policy.resources) == 1:
        return policy.resources[0].match(target, user, owner)
    matches = [resource.match(target, user, owner) for resource in policy.resources]
    closest = (Match.SELF_AND_BELOW, Match.SELF, Match.BELOW, Match.ABOVE, Match.NONE)
    return min(matches, key=closest.index)


def _may_match(resource: ResourcePattern, target: Target) -> bool:
    """Whether these resources are the target's for anyone."""
    if any(level.named for level in resource.patterns):
        return resource.hierarchy[len(target.levels) - 1].name == target.levels[-1]
    return resource.match(target, "").covers


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
