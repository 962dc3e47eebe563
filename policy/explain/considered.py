"""The policies that can have a say in a request, and the answer if they were different.

Rules:
- A policy has a say in a request if its resources have anything to do with the requested one, be it below or
  above it; whatever the time is, and disabled or not.
- What would be if something were different is never reasoned about: the policies are changed, and the
  evaluation of every decision (`PolicySet`) is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Final

from policy.decision import Decision
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.ranger.answers import relation
from policy.ranger.evaluate import FilterRule, MaskRule
from policy.ranger.index import PolicyIndex
from policy.ranger.matching import Match, Target
from policy.ranger.model import Item, Policy, PolicyType
from policy.ranger.parse import Contents
from policy.ranger.policy_set import PolicySet
from policy.ranger.roles import Role, RoleGraph
from policy.ranger.tags import TagPolicies
from policy.restrictions.model import UNRESTRICTED, Restriction
from policy.restrictions.text import predicate_text
from policy.standard_clients import enforced
from policy.view import ColumnNames, View
from policy.visible import Seen, enforces_filters, seen

_READING: Final = ("select", "all")
UNKNOWN_TABLE: Final = KnownTable()
"""A table of which nothing is known."""

DENY_ALL_ELSE: Final = "isDenyAllElse"
"""How the reasons of decisions call what a policy denies beside its items."""


class Book:
    """All that some documents say, ready for looking up.

    Attributes:
        contents: policies and roles, with attributes of users, tags and security zones.
    """

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self._graph = RoleGraph.of(contents.roles.values())
        everything = (*contents.policies, *contents.disabled)
        own = [policy for policy in everything if not policy.is_on_tags]
        self._indexes = {
            kind: PolicyIndex(policy for policy in own if policy.type is kind) for kind in PolicyType
        }
        self._tagged = TagPolicies((policy for policy in everything if policy.is_on_tags), contents.tags)
        self._disabled = frozenset(map(id, contents.disabled))

    def consider(
        self,
        request: AccessRequest,
        now: datetime,
        table: KnownTable = UNKNOWN_TABLE,
        through: Through = Through.ENGINE,
        engine: str | None = None,
    ) -> Considered:
        """What can have a say in a request.

        Args:
            request: the request.
            now: the time, with time zone.
            table: what is known of the table that it is about.
            through: how the table would be read.
            engine: the engine's name, if it is read through one; None if that is not known.
        """
        asked = (request.resource, *_looked_at(request, table, engine))
        related = self._related(request, dict.fromkeys(asked))
        enabled = tuple(policy for policy in related if not self._is_disabled(policy))
        disabled = tuple(policy for policy in related if self._is_disabled(policy))
        roles = self._roles_of(request.principal)
        return Considered(request, now, enabled, disabled, roles, self.contents, table, through, engine)

    def _is_disabled(self, policy: Policy) -> bool:
        return id(policy.origin or policy) in self._disabled

    def _related(self, request: AccessRequest, resources: Iterable[Resource]) -> list[Policy]:
        """The policies of every type that can have a say in a request, highest priority first."""
        found: list[Policy] = []
        for kind, index in self._indexes.items():
            targets = [Target.of(each) for each in dict.fromkeys(_policy_target(r, kind) for r in resources)]
            table = [Target.of(_table(request))] if reads(request) else []
            on_tags = self._tagged.about(kind, (*targets, *table))
            related = {
                id(policy)
                for target in targets
                for policy in (*index.candidates(target), *on_tags)
                if relation(policy, target, request.principal.name, request.owner) is not Match.NONE
            }
            for target in table:
                about = (*index.candidates(target), *on_tags)
                related |= {id(each) for each in about if _is_about(each, target, request)}
            found += (policy for policy in (*on_tags, *index.policies) if id(policy) in related)
        return found

    def _roles_of(self, principal: Principal) -> tuple[Role, ...]:
        """The roles that a principal has, as far as the documents define them."""
        held = self._graph.held_by(principal.name, principal.groups, principal.roles)
        return tuple(role for name, role in self.contents.roles.items() if name in held)


@dataclass(frozen=True)
class Considered:
    """A request with what can have a say in it.

    Attributes:
        request: the request.
        now: the time, with time zone.
        policies: enabled policies of every type that are about the resource, or about what is below or above.
        disabled: disabled ones.
        roles: the roles that the principal holds.
        contents: what else the documents say: attributes of users, tags and security zones.
        table: what is known of the table that is asked for.
        through: how the table would be read.
        engine: the engine's name, if it is read through one; None if that is not known.
    """

    request: AccessRequest
    now: datetime
    policies: tuple[Policy, ...]
    disabled: tuple[Policy, ...]
    roles: tuple[Role, ...]
    contents: Contents
    table: KnownTable = UNKNOWN_TABLE
    through: Through = Through.ENGINE
    engine: str | None = None

    @cached_property
    def decision(self) -> Decision:
        """The answer; to a question about reading, whether the service would show the values."""
        if not reads(self.request):
            return self._policies.decide(self.request, self.now)
        # A standard client gets everything in a table, whatever of it the question is about.
        whole = self.request.resource.levels[-1] == "column" or self.through is Through.STANDARD_CLIENT
        if self.request.access == "select" and whole:
            return self.seen.decision
        granted = self._policies.decide(self.request, self.now)
        restricting = tuple(self._view.restricting(ColumnNames()))
        if whole and not self.seen.decision.allowed:
            return Decision.all_of([granted, self.seen.decision])
        if not restricting or not granted.allowed:
            return granted
        if enforces_filters(self._view, self.table, self.through, self.engine):
            return Decision.allow(*restricting, *granted.reasons)
        return Decision.deny(*restricting)

    @cached_property
    def seen(self) -> Seen:
        """What is seen of the requested column; of a table, what its client needs."""
        paths = self.request.resource.values[2:]
        return seen(self._view, self.table, paths, self.through, engine=self.engine)

    @cached_property
    def _view(self) -> View:
        database, name = self.request.resource.values[:2]
        return View.of(self._policies, self.now, self.request.principal, (database, name), self.request.owner)

    @cached_property
    def mask(self) -> MaskRule | None:
        """The mask on the requested column."""
        return self._view.mask(self.request.resource.values[2])

    @cached_property
    def has_row_filter(self) -> bool:
        """Whether only some rows of the requested table, or of the requested column's table, are seen."""
        return self._view.has_row_filter

    @property
    def row_filters(self) -> tuple[FilterRule, ...]:
        """The row filters on the requested table, or on the requested column's table."""
        return self._view.row_filters

    @cached_property
    def restriction(self) -> Restriction:
        """The row filter and the masks on what the user can select of the table, as the client gets them.

        Raises:
            PolicyInvalid: a filter or mask does not fit the table's schema.
        """
        schema = self.table.schema
        if schema is None:
            return UNRESTRICTED
        seen = (each.field_id for each in schema.by_id.values() if self.selects(each.name))
        found = self._view.restriction(schema, field_ids=frozenset(seen))
        if self.through is Through.STANDARD_CLIENT:
            answered = enforced(found, schema)
            return answered if isinstance(answered, Restriction) else found
        return found

    def selects(self, path: str) -> bool:
        """Whether the user can select a column of the table, or a field, be it masked."""
        return self._view.withheld(self.table.inside(path)) is None

    @property
    def row_filter_text(self) -> str:
        """The row filter as it is decided, in SQL; it needs the table's schema.

        Raises:
            PolicyInvalid: a filter or mask does not fit the table's schema.
        """
        fields = {} if self.table.schema is None else self.table.schema.by_id
        return predicate_text(self.restriction.row_filter, lambda field_id: fields[field_id].name)

    def scheduled(self, kinds: Iterable[PolicyType]) -> list[Policy]:
        """The policies of these types in which the time decides something, if they can have a say."""
        asked = set(kinds)
        return [each for each in self.policies if each.is_timed and each.type in asked and self._counts(each)]

    def _counts(self, policy: Policy) -> bool:
        """Whether a policy, once it is valid, is heard."""
        request = self.request
        target = Target.of(_policy_target(request.resource, policy.type))
        if relation(policy, target, request.principal.name, request.owner) is not Match.ABOVE:
            return True
        return reads(request) and _is_about(policy, Target.of(_table(request)), request)

    def replacing(self, old: Policy, new: Policy) -> Considered:
        """The same with another policy in the place of one, which may be a disabled one."""
        known = any(policy is old for policy in self.policies)
        kept = self.policies if known else (*self.policies, old)
        return replace(self, policies=tuple(new if policy is old else policy for policy in kept))

    @cached_property
    def _policies(self) -> PolicySet:
        roles = {role.name: role for role in self.roles}
        return PolicySet(replace(self.contents, policies=self.policies, disabled=(), roles=roles), "")


def reads(request: AccessRequest) -> bool:
    """Whether a request is about reading a table or a column."""
    return request.access in _READING and request.resource.levels[:2] == ("database", "table")


def _table(request: AccessRequest) -> Resource:
    """The table that a request about reading is about; a denial on it denies what is in it."""
    return Resource.table(*request.resource.values[:2])


def _is_about(policy: Policy, target: Target, request: AccessRequest) -> bool:
    return relation(policy, target, request.principal.name, request.owner).covers


def _looked_at(request: AccessRequest, table: KnownTable, engine: str | None) -> Iterator[Resource]:
    """What else is asked for, so that a request about reading is answered."""
    if not reads(request):
        return
    database, name, *path = request.resource.values
    names = table.everything()
    for each in path:
        names |= table.inside(each)
    for group in table.spec.columns if table.spec else ():
        names |= table.ever(group.columns)
    for each in sorted(names.columns | names.nested):
        yield Resource.column(database, name, each)
    if table.service is not None:
        yield Resource.service(table.service)
    if engine is not None:
        yield Resource.engine(engine)
    yield from (Resource.key(key_id) for key_id in (table.spec.key_ids() if table.spec else ()))


def labels_of(policy: Policy) -> Iterator[str]:
    """What a policy consists of: the labels of its items, and ``isDenyAllElse`` if it says so."""
    for items in (
        policy.allow,
        policy.deny,
        policy.allow_exceptions,
        policy.deny_exceptions,
        policy.masks,
        policy.row_filters,
    ):
        yield from (item.label for item in items)
    if policy.deny_all_else:
        yield DENY_ALL_ELSE


def without(policy: Policy, label: str) -> Policy:
    """The same policy without one of its `labels_of`."""

    def rest(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(item for item in items if item.label != label)

    return replace(
        policy,
        allow=rest(policy.allow),
        deny=rest(policy.deny),
        allow_exceptions=rest(policy.allow_exceptions),
        deny_exceptions=rest(policy.deny_exceptions),
        masks=rest(policy.masks),
        row_filters=rest(policy.row_filters),
        deny_all_else=policy.deny_all_else and label != DENY_ALL_ELSE,
    )


def _policy_target(resource: Resource, kind: PolicyType) -> Resource:
    """The resource that policies of a type are asked about: row filters are a table's."""
    if kind is PolicyType.ROW_FILTER and resource.levels == ("database", "table", "column"):
        return Resource.table(*resource.values[:2])
    return resource
