"""Which roles a user has.

Rules:
- A role is held by its member users, by members of its member groups (``public`` is everyone), and by those
  who hold one of its member roles.
- Roles that come with the principal count too, and lead on to the roles that contain them.
- A cycle of roles is refused when the documents are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from policy.principal import PUBLIC


@dataclass(frozen=True, slots=True)
class Role:
    """A role with its direct members."""

    name: str
    users: frozenset[str]
    groups: frozenset[str]
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class RoleGraph:
    """Who holds which roles, looked up from the members' side."""

    _by_user: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _by_group: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _by_role: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, roles: Iterable[Role]) -> RoleGraph:
        """The graph of roles that have no cycle and distinct names."""
        known = tuple(roles)
        return cls(
            _inverted((role.name, role.users) for role in known),
            _inverted((role.name, role.groups) for role in known),
            _inverted((role.name, role.roles) for role in known),
        )

    @property
    def users(self) -> frozenset[str]:
        """The users whom a role names as members."""
        return frozenset(self._by_user)

    @property
    def groups(self) -> frozenset[str]:
        """The groups whom a role names as members."""
        return frozenset(self._by_group)

    def held_by(self, user: str, groups: frozenset[str], roles: frozenset[str]) -> frozenset[str]:
        """Every role of a user in these groups who brings these roles along."""
        waiting = [*roles, *self._by_user.get(user, ()), *self._by_group.get(PUBLIC, ())]
        for group in groups:
            waiting += self._by_group.get(group, ())
        held: set[str] = set()
        while waiting:
            role = waiting.pop()
            if role not in held:
                held.add(role)
                waiting += self._by_role.get(role, ())
        return frozenset(held)


def find_cycle(roles: Mapping[str, Role]) -> tuple[str, ...] | None:
    """The names along one cycle of roles, its first name repeated at the end; None if there is none."""
    try:
        TopologicalSorter({name: role.roles for name, role in roles.items()}).prepare()
    except CycleError as found:
        return tuple(found.args[1])
    return None


def _inverted(members: Iterable[tuple[str, frozenset[str]]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for role, names in members:
        for name in names:
            found.setdefault(name, []).append(role)
    return {name: tuple(sorted(holders)) for name, holders in found.items()}
