"""Names the policies by which answers depend on the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

from policy.access.people import People, Users
from policy.access.statements import Numbers, Statement, Statements
from policy.access.user_names import UserNames
from policy.principal import Principal
from policy.privileges.requests import Resource
from policy.ranger.model import Policy
from policy.ranger.policy_set import PolicySet

#: A resource, its owner, and the policies that can be about it.
About: TypeAlias = tuple[Resource, str | None, Sequence[Policy]]


def timed_names(sides: Iterable[Iterable[Statement]], users: Users) -> tuple[str, ...]:
    """The names of the policies that say something to some users, and in which the time decides something."""
    found = {each.timed for side in sides for each in side if each.timed is not None and each.users & users}
    return tuple(sorted(found))


def timed_for(
    policies: PolicySet, principal: Principal, asked: Iterable[About], now: datetime
) -> tuple[str, ...]:
    """The same names for one user and some resources."""
    timed = [about for each in asked for about in _timed(policies, each)]
    if not timed:
        return ()
    people = People([principal], [])
    names = UserNames([each.name for each in people.users])
    statements = Statements(policies, people, names, now, Numbers())
    return timed_names([statements.about(*each) for each in timed], 1)


def _timed(policies: PolicySet, asked: About) -> Iterator[About]:
    resource, owner, candidates = asked
    if found := [each for each in candidates if policies.depends_on_time(each)]:
        yield resource, owner, found
