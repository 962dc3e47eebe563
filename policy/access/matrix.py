"""What one user can do on many resources, those together on which it is the same.

Rules:
- Each access type is decided as for one question, and `READ` of a table as by `who_can`.
- Resources are alike if the user has the same access types on them, and sees as much of them: all columns, or
  columns of the same names, through the same masks and row filters. Which policies say so does not matter.
- What a scan shows of a table is known only if the table's columns are. They are asked for only if the user
  has any privilege on the table: without one, nothing is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from policy.access.timed import timed_for
from policy.access.who_can import READ, Answer, Question, answer_for, said
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import ANY, AccessRequest, Resource, Through
from policy.ranger.policy_set import PolicySet


@dataclass(frozen=True, slots=True)
class Asker:
    """The user about whom is asked.

    Attributes:
        principal: the user.
        now: the time, with a zone.
        through: how the user reads tables.
        engine: the engine's name; None if it is not known.
    """

    principal: Principal
    now: datetime
    through: Through = Through.ENGINE
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a user can do on a resource.

    Attributes:
        kind: the last level of the resource, such as ``table``.
        accesses: the access types that are granted, sorted.
        reads: whether a scan of a table shows anything; None if that is not known; False for other resources.
        columns: the columns that a scan shows; None for all.
        masks: the mask of each column or field that is seen through one.
        row_filters: the row filters that a row has to pass.
        timed: names of the policies by which the answers depend on the time.
    """

    kind: str
    accesses: tuple[str, ...]
    reads: bool | None
    columns: tuple[str, ...] | None
    masks: tuple[tuple[str, str], ...]
    row_filters: tuple[str, ...]
    timed: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """Whether the user can do nothing."""
        return not self.accesses and self.reads is False


@dataclass(frozen=True, slots=True)
class AbilityGroup:
    """Resources on which a user can do the same.

    Attributes:
        abilities: what.
        resources: the resources.
        policies: the policies, and the rules without a policy, that say so for one of them.
    """

    abilities: Abilities
    resources: tuple[Resource, ...]
    policies: tuple[str, ...]


def alike(found: Iterable[tuple[Resource, Abilities, tuple[str, ...]]]) -> list[AbilityGroup]:
    """Put resources together on which a user can do the same; each is in one group.

    Args:
        found: the resources with what `abilities` answered.
    """
    groups: dict[Abilities, list[tuple[Resource, tuple[str, ...]]]] = {}
    for resource, each, policies in found:
        groups.setdefault(each, []).append((resource, policies))
    return [
        AbilityGroup(
            each,
            tuple(resource for resource, _ in members),
            tuple(sorted({name for _, policies in members for name in policies})),
        )
        for each, members in groups.items()
    ]


def abilities(
    policies: PolicySet,
    asker: Asker,
    resource: Resource,
    owner: str | None = None,
    known: Callable[[], KnownTable | None] = lambda: None,
) -> tuple[Abilities, tuple[str, ...]]:
    """What a user can do on a resource, and the policies and rules that say so.

    Args:
        policies: the policies.
        asker: the user.
        resource: the resource.
        owner: its owner.
        known: what is known of a table, with its columns; None if it cannot be known.
    """
    granted, names = [], set[str]()
    for access in sorted(resource.access_types):
        request = AccessRequest(asker.principal, resource, access, owner)
        decision = policies.decide(request, asker.now)
        if decision.allowed:
            granted.append(access)
            names.update(said(decision))
    reads: bool | None = False
    columns: tuple[str, ...] | None = ()
    shown = None
    any_privilege = AccessRequest(asker.principal, resource, ANY, owner)
    if resource.levels[-1] == "table" and policies.decide(any_privilege, asker.now).allowed:
        reads, columns, shown = _reading(policies, asker, resource, owner, known())
    names.update(shown.policies if shown and shown.allowed else ())
    found = Abilities(
        resource.levels[-1],
        tuple(granted),
        reads,
        columns,
        shown.masks if shown else (),
        shown.row_filters if shown else (),
        shown.timed if shown else _timed(policies, asker, resource, owner),
    )
    return found, tuple(sorted(names))


def _reading(
    policies: PolicySet, asker: Asker, resource: Resource, owner: str | None, known: KnownTable | None
) -> tuple[bool | None, tuple[str, ...] | None, Answer | None]:
    """Whether a scan shows anything, the columns that it shows, and the whole answer."""
    if known is None:
        return None, (), None
    database, table = resource.values
    question = Question(READ, (database, table), None, owner, known, asker.now, asker.through, asker.engine)
    answer = answer_for(policies, asker.principal, question)
    everything = answer.allowed and answer.columns == question.columns
    return answer.allowed, None if everything else answer.columns, answer


def _timed(policies: PolicySet, asker: Asker, resource: Resource, owner: str | None) -> tuple[str, ...]:
    about = (resource, owner, policies.candidates(resource))
    return timed_for(policies, asker.principal, [about], asker.now)
