"""The policies in force, and the questions that can be put to them.

A policy set is a value: made once from documents, never changed, and named by a digest of them. It reads no
clock; the caller says what time it is. Where no policy about the resource has a schedule, time decides
nothing, and what was answered to the same question before is answered again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

from policy.decision import Decision, Reason
from policy.digests import digest_of_documents
from policy.errors import RequestInvalid
from policy.principal import Principal
from policy.privileges.requests import ALL, AccessRequest, Resource
from policy.privileges.token_scopes import refused_by_scope, scope_refusal
from policy.ranger.administer import may_administer
from policy.ranger.answers import KEPT_USERS, Answers, Policies, relation
from policy.ranger.circumstances import Circumstances, Subject
from policy.ranger.conditions.condition import Condition
from policy.ranger.evaluate import (
    FilterRule,
    MaskRule,
    settled,
)
from policy.ranger.index import PolicyIndex
from policy.ranger.matching import ResourcePattern, Target
from policy.ranger.model import AssignedTag, Policy, PolicyType
from policy.ranger.parse import NO_KINDS, NO_MEMORY, Contents, no_pause, parse_documents
from policy.ranger.resource_tree import PossibleNames
from policy.ranger.roles import RoleGraph
from policy.ranger.tags import TagPolicies
from policy.ranger.users import UserStore
from policy.ranger.zones import ZoneName, Zones, deciding

#: Questions, the latest ones, whose answers are kept.
_KEPT_ANSWERS: Final = 16_384
_RESTRICTING: Final = (PolicyType.ROW_FILTER, PolicyType.MASK)


class PolicySet:
    """Ranger policies and roles, ready to decide.

    Attributes:
        version: SHA-256 of the documents with their names, in hexadecimal.
    """

    __slots__ = (
        "_answers",
        "_decide",
        "_masked",
        "_memory",
        "_policies",
        "_possible",
        "_roles",
        "_row_filters",
        "_scheduled",
        "_users",
        "version",
    )

    def __init__(self, contents: Contents, version: str, pause: Callable[[], None] = no_pause) -> None:
        self.version = version
        self._memory = contents.memory
        own = [policy for policy in contents.policies if not policy.is_on_tags]
        indexes = {
            kind: PolicyIndex((policy for policy in own if policy.type is kind), pause) for kind in PolicyType
        }
        on_tags = TagPolicies((policy for policy in contents.policies if policy.is_on_tags), contents.tags)
        self._policies = Policies(indexes, on_tags, Zones(contents.zones))
        self._scheduled = self._policies.are_timed
        self._users = contents.users
        self._roles = RoleGraph.of(contents.roles.values())
        self._answers = answers = Answers(self._policies, self._roles, contents.users)
        self._possible = lru_cache(KEPT_USERS)(answers.possible_names)
        self._decide = lru_cache(_KEPT_ANSWERS)(answers.decided_always)
        self._masked = lru_cache(_KEPT_ANSWERS)(answers.masked_always)
        self._row_filters = lru_cache(_KEPT_ANSWERS)(answers.row_filters_always)

    @classmethod
    def parse(
        cls,
        documents: Mapping[str, bytes | str],
        before: PolicySet | None = None,
        pause: Callable[[], None] = no_pause,
        kinds: Mapping[str, str] = NO_KINDS,
    ) -> PolicySet:
        """Read policy documents: all of them, or none.

        Args:
            documents: JSON texts by name, as `policy.ranger.parse` describes them.
            before: a set that was read before; policies that it has, too, are not read again.
            pause: is called often, so that others can use the interpreter meanwhile.
            kinds: which kind documents must be of, by name.

        Raises:
            PolicyInvalid: naming document, line and field.
        """
        memory = NO_MEMORY if before is None else before._memory
        contents = parse_documents(documents, memory, pause, kinds)
        return cls(contents, digest_of_documents(documents), pause)

    @classmethod
    def empty(cls) -> PolicySet:
        """No policies: everything is denied."""
        return cls.parse({})

    @property
    def is_scheduled(self) -> bool:
        """Whether the time decides anything: by a schedule, a condition, or the validity of a tag."""
        return self._scheduled

    def decide(self, request: AccessRequest, now: datetime) -> Decision:
        """Decide one request: first by the scope of the token, then by the policies.

        Args:
            request: the request. `ALL` is granted where each access type of the resource is; `ANY` where one
                is, at or below the resource.
            now: the time, with time zone.

        Raises:
            RequestInvalid: if `now` has no time zone.
        """
        _require_zone(now)
        if (refused := refused_by_scope(request)) is not None:
            return refused
        known = self._decide(request)
        return self._answers.decided(request, now) if known is None else known

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
        return self._answers.mask_of(principal, asked, owner, now) if known is None else known.mask

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
        return self._answers.row_filters_of(principal, asked, owner, now) if known is None else known

    def databases_with_privileges(self, principal: Principal) -> PossibleNames:
        """Names of the databases in which a user can have any privilege; in no other one. As for tables."""
        return self._possible(principal, None)

    def tables_with_privileges(self, principal: Principal, database: str) -> PossibleNames:
        """Names of the tables of a database on which a user can have any privilege; on no other one.

        What the policies say is not looked at, so that the user need not have a privilege on these.
        """
        return self._possible(principal, database)

    def about_table(self, database: str, table: str) -> tuple[Policy, ...]:
        """The access and masking policies that may be about a table or its columns; some may not be."""
        return self._about((PolicyType.ACCESS, PolicyType.MASK), (database, table))

    def about(self, *tables: tuple[str, str]) -> tuple[Policy, ...]:
        """The policies of every type that may be about some tables or their columns; some may not be."""
        return self._about(tuple(PolicyType), *tables)

    def restricting(self, database: str, table: str) -> tuple[Policy, ...]:
        """The row filter and masking policies that may be about a table or its columns; some may not be."""
        return self._about(_RESTRICTING, (database, table))

    def _about(self, kinds: Iterable[PolicyType], *tables: tuple[str, str]) -> tuple[Policy, ...]:
        """Those on tags as policies on what has the tag, in these tables or around them."""
        targets = [Target.of(Resource.table(*table)) for table in tables]
        return tuple(policy for kind in kinds for policy in self._policies.candidates(kind, targets))

    def candidates(self, resource: Resource) -> tuple[Policy, ...]:
        """The policies of every type that may be about a resource, what is in it or around it."""
        targets = [Target.of(resource)]
        return tuple(policy for kind in PolicyType for policy in self._policies.candidates(kind, targets))

    @property
    def every_policy(self) -> Iterator[Policy]:
        """All policies, those on tags as they are written."""
        for index in self._policies.indexes.values():
            yield from index.policies
        yield from self._policies.tagged.policies

    @property
    def surroundings(self) -> tuple[object, ...]:
        """What decides beside policies and roles, for comparison: attributes of users, tags and zones."""
        return (self._users, self._policies.tagged.tags.resources, self._policies.zones.known)

    def depends_on_time(self, policy: Policy) -> bool:
        """Whether the time decides something in a policy, or in the tags that its conditions look at."""
        by_tags = self._policies.tagged.tags.are_timed
        return policy.is_timed or (by_tags and any(each.looks_at_names for each in policy.every_condition))

    def zones_of(self, resource: Resource) -> tuple[ZoneName, ...]:
        """The security zones that a resource is in, one or more."""
        return self._policies.zones.of(Target.of(resource))

    def is_about(self, policy: Policy, resource: Resource) -> bool:
        """Whether a policy, one of those about its table, is about a resource and counts in its zone.

        Whom a macro in the policy's resources stands for is not known.
        """
        target = Target.of(resource)
        matches = relation(policy, target, "", None).covers
        return matches and self._policies.zones.counts(policy, self._policies.zone_of(target))

    def zone_of(self, resource: Resource) -> ZoneName:
        """The security zone whose policies decide about a resource; None for those without a zone."""
        return self._policies.zone_of(Target.of(resource))

    def counts(self, policy: Policy, resource: Resource) -> bool:
        """Whether a policy is of one of the security zones whose policies decide about a resource."""
        zones = self.zones_of(resource)
        return any(self._policies.zones.counts(policy, each) for each in {*zones, deciding(zones)})

    @property
    def attributes(self) -> UserStore:
        """The attributes of users and groups."""
        return self._users

    def tags_on(self, resource: Resource) -> tuple[tuple[AssignedTag, bool], ...]:
        """The tags of a resource, with whether they are on it or around it, rather than on what is below."""
        return self._policies.tagged.tags.on(Target.of(resource))

    def circumstances(
        self, principal: Principal, resource: Resource, owner: str | None, now: datetime
    ) -> Circumstances:
        """What the conditions of policies look at, if a user asks for a resource; without the access type."""
        return self._answers.circumstances(self.subject(principal, owner), resource, now)

    @property
    def users_beside_policies(self) -> frozenset[str]:
        """The users whom roles name, or of whom attributes are known."""
        return self._roles.users.union(self._users.users)

    @property
    def groups_in_roles(self) -> frozenset[str]:
        """The groups whose members hold roles."""
        return self._roles.groups

    @property
    def restrictions(self) -> tuple[object, ...]:
        """All row filter and masking policies, with the tags that they are about; for comparison."""
        named = (self._policies.indexes[kind].policies for kind in _RESTRICTING)
        on_tags = tuple(each for each in self._policies.tagged.policies if each.type in _RESTRICTING)
        return (*named, on_tags, self._policies.tagged.tags.resources if on_tags else ())

    def grant_to_anyone(self, resource: Resource, access: str) -> Reason | None:
        """Why a user can have a privilege at some time; None if no policy grants it to anyone.

        What takes the grant away again (denials, exceptions, schedules, conditions, names that a macro stands
        for) is not looked at: the answer is for what must be safe for every user, at every time.
        """
        target = Target.of(resource)
        for policy in self._policies.candidates(PolicyType.ACCESS, [target]):
            if policy.limit is not None or not _can_hold(policy.conditions):
                continue
            if not any(_may_match(each, target) for each in policy.resources):
                continue
            for item in policy.allow:
                if _can_hold(item.conditions) and item.accesses & {access, ALL}:
                    detail = f"{policy.title} grants {access} on {resource}."
                    return Reason("policy-grant", detail, policy.name, item.label)
        return None

    def subject(self, principal: Principal, owner: str | None) -> Subject:
        """A principal with every role that it has, and the owner of the resource."""
        return self._answers.subject(principal, owner)

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
        if principal.scope is not None:
            return scope_refusal(principal.scope, "the administration of policies")
        named = (policy for index in self._policies.indexes.values() for policy in index.policies)
        policies = (*named, *self._policies.tagged.everywhere())
        subject = self.subject(principal, None)
        c = Circumstances(subject, self._users, now, None)
        settled_now = (settled(policy, c) for policy in policies if policy.in_force(now))
        in_force = [policy for policy in settled_now if policy is not None]
        in_force.sort(key=lambda policy: policy.priority, reverse=True)
        return Decision.all_of(may_administer(in_force, subject, policy) for policy in changed)


def _can_hold(conditions: Iterable[Condition]) -> bool:
    """Whether it can be that all of these hold."""
    return all(each.is_understood for each in conditions)


def _require_zone(now: datetime) -> None:
    if now.tzinfo is None:
        raise RequestInvalid("The time has no time zone.", rule="now")


def _may_match(resource: ResourcePattern, target: Target) -> bool:
    """Whether these resources are the target's for anyone."""
    if any(level.named for level in resource.patterns):
        return resource.hierarchy[len(target.levels) - 1].name == target.levels[-1]
    return resource.match(target, "").covers
