"""Key groups that policies split: somebody may select some of the columns under a key and not the others.

A key opens all of its columns, so that nobody gets it who may not select every one of them unmasked: who may
select some of them loses these too. That is safe, and seldom what was meant; so it is told where a group is
made.

Everybody whom a policy about the table names is asked about: each user, group and role by itself, and
somebody whom none names. Who belongs to several groups may be split although none of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from policy.principal import Principal
from policy.ranger import PolicySet
from policy.requests import AccessRequest, Resource

#: Stands for whoever is in a group, or holds a role, or is named by no policy; no user has this name.
_SOMEBODY: Final = "(somebody)"
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Split:
    """A key whose columns somebody may select in part.

    Attributes:
        key_id: the master key id.
        who: for people: ``user 'ann'``, ``group 'hr'``, ``role 'clerk'`` or ``everybody else``.
        may: columns that he may select unmasked.
        may_not: columns that he may not.
    """

    key_id: str
    who: str
    may: tuple[str, ...]
    may_not: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"The key {self.key_id!r} is split for {self.who}, who may select {_shown(self.may)} "
            f"and not {_shown(self.may_not)}: the key opens both, so neither is read."
        )


def splits(
    policies: PolicySet,
    table: tuple[str, str],
    groups: Mapping[str, Iterable[str]],
    now: datetime,
    *,
    owner: str | None = None,
) -> list[Split]:
    """The key groups of a table that policies split.

    Args:
        policies: those in force.
        table: its database and name.
        groups: by master key id the full names of the columns under the key, nested fields included.
        now: the time, with a zone.
        owner: the table's owner.
    """
    named = {key_id: sorted(columns) for key_id, columns in groups.items()}
    asked = [Resource.column(*table, column) for columns in named.values() for column in columns]
    found = []
    for who, principal in _somebodies(policies, asked):
        for key_id, columns in sorted(named.items()):
            may = tuple(each for each in columns if _entitled(policies, principal, table, each, now, owner))
            if may and len(may) < len(columns):
                may_not = tuple(each for each in columns if each not in may)
                found.append(Split(key_id, who, may, may_not))
    return found


def _somebodies(policies: PolicySet, asked: Iterable[Resource]) -> Iterator[tuple[str, Principal]]:
    named = policies.named_about(asked)
    yield from ((f"user {user!r}", Principal(user)) for user in sorted(named.users))
    for group in sorted(named.groups):
        yield f"group {group!r}", Principal(_SOMEBODY, groups=frozenset({group}))
    for role in sorted(named.roles):
        yield f"role {role!r}", Principal(_SOMEBODY, roles=frozenset({role}))
    yield "everybody else", Principal(_SOMEBODY)


def _entitled(
    policies: PolicySet,
    principal: Principal,
    table: tuple[str, str],
    column: str,
    now: datetime,
    owner: str | None,
) -> bool:
    """As a scan is decided: the top-level column granted, nothing against what is below, and no mask."""
    parts = column.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        request = AccessRequest(principal, Resource.column(*table, name), "select", owner=owner)
        decision = policies.decide(request, now)
        unheard = depth > 1 and all(each.rule == "policy-no-match" for each in decision.reasons)
        if not (decision.allowed or unheard):
            return False
        if policies.mask_for(principal, *table, name, now, owner=owner) is not None:
            return False
    return True


def _shown(columns: tuple[str, ...]) -> str:
    more = len(columns) - _SHOWN
    told = ", ".join(repr(each) for each in columns[:_SHOWN])
    return f"{told} and {more} more" if more > 0 else told
