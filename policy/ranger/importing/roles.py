"""Takes over roles, and says whether it is unknown who holds them.

Rules:
- Roles of one name are one: Ranger adds up their members.
- A role that cannot be read blocks, and so do roles that contain each other: policies of any document can
  restrict for it.
- If no document has roles, it is unknown who holds any.

Source: Ranger's RangerRolesUtil.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.ranger.importing.report import Line, Outcome
from policy.ranger.importing.sources import Part
from policy.ranger.importing.strict import problem_of
from policy.ranger.roles import Role, find_cycle

Json = dict[str, Any]

_MEMBERS: Final = ("users", "groups", "roles")


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles as they are taken over.

    Attributes:
        roles: the roles.
        unknown: whether it is unknown who holds any role.
        lines: what became of each.
    """

    roles: tuple[Json, ...]
    unknown: bool
    lines: tuple[Line, ...]


def take_roles(parts: Sequence[Part] | None) -> Roles:
    """Take over the roles of all documents; None if no document has any."""
    if parts is None:
        return Roles((), True, ())
    problems = [(part.name, problem_of({"roles": [part.value]})) for part in parts]
    bad = {name: problem for name, problem in problems if problem is not None}
    merged: dict[str, Json] = {}
    for part in parts:
        if part.name not in bad:
            _merge(merged, part.value)
    while (cycle := find_cycle({name: _role(role) for name, role in merged.items()})) is not None:
        bad |= dict.fromkeys(cycle, f"roles: the roles {' → '.join(cycle)} contain each other.")
        merged = {name: role for name, role in merged.items() if name not in cycle}
    return Roles(tuple(merged.values()), False, tuple(_line(part, bad) for part in parts))


def _merge(merged: dict[str, Json], role: Any) -> None:
    found = merged.setdefault(role["name"], {"name": role["name"]} | {kind: [] for kind in _MEMBERS})
    for kind in _MEMBERS:
        names = {each["name"] for each in found[kind]}
        found[kind] += [{"name": each["name"]} for each in role.get(kind) or () if each["name"] not in names]


def _role(role: Json) -> Role:
    users, groups, roles = (frozenset(each["name"] for each in role[kind]) for kind in _MEMBERS)
    return Role(role["name"], users, groups, roles)


def _line(part: Part, bad: Mapping[str, str]) -> Line:
    problem = bad.get(part.name)
    if problem is None:
        return part.line("role", Outcome.TAKEN)
    return part.line("role", Outcome.BLOCKED, problem)
