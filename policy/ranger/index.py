"""Which policies can be about a resource, and which name a user, found without asking every policy.

What policies are about stands in a tree (`policy.ranger.resource_tree`). Whom a policy names is indexed, too:
one that does not name the user says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from policy.ranger.circumstances import Subject
from policy.ranger.matching import Target
from policy.ranger.model import GROUP, ROLE, USER, Policy
from policy.ranger.resource_tree import PossibleNames, ResourceTree


class PolicyIndex:
    """Policies of one type, in the order of their priority and then of the documents.

    Attributes:
        policies: the policies.
        scheduled: where those stand in which the time decides something.
        conditional: where those stand that have conditions.
        with_macros: where those stand whose resources depend on the user or the owner.
    """

    __slots__ = (
        "_of_everyone",
        "_of_subjects",
        "_tree",
        "conditional",
        "policies",
        "scheduled",
        "with_macros",
    )

    def __init__(self, policies: Iterable[Policy], pause: Callable[[], None] = lambda: None) -> None:
        self.policies: tuple[Policy, ...] = tuple(sorted(policies, key=lambda policy: -policy.priority))
        self._of_subjects: dict[tuple[str, str], set[int]] = {}
        everyone, scheduled, macros, conditional = set[int](), set[int](), set[int](), set[int]()
        for position, policy in enumerate(self.policies):
            pause()
            if _is_for_everyone(policy):
                everyone.add(position)
            if policy.is_timed:
                scheduled.add(position)
            if policy.every_condition:
                conditional.add(position)
            if has_macro(policy):
                macros.add(position)
            for item in policy.every_item:
                for name in item.named:
                    self._of_subjects.setdefault(name, set()).add(position)
        self._of_everyone, self.scheduled = frozenset(everyone), frozenset(scheduled)
        self.with_macros, self.conditional = frozenset(macros), frozenset(conditional)
        self._tree = ResourceTree((policy.resources for policy in self.policies), pause)

    def candidates(self, target: Target) -> Sequence[Policy]:
        """The policies that can match `target`, in order; some of them may not match."""
        return [self.policies[position] for position in self.positions(target)]

    def positions(self, target: Target) -> Sequence[int]:
        """Where they stand in `policies`."""
        return sorted(frozenset().union(*self.about(target)))

    def about(self, target: Target) -> tuple[frozenset[int], ...]:
        """Where they stand, in sets that were made before."""
        return self._tree.about(target)

    def names(self, database: str | None, own: frozenset[int]) -> PossibleNames:
        """Names of databases, or of tables of one, that some of these policies are about, or about something
        below."""

        def wanted(positions: Set[int], levels: int) -> bool:
            if not levels:
                return not own.isdisjoint(positions)
            return any(self._names_levels(position, levels) for position in own & positions)

        return self._tree.names(database, wanted)

    def _names_levels(self, position: int, levels: int) -> bool:
        """Whether a policy names at least this number of levels."""
        return any(len(each.patterns) >= levels for each in self.policies[position].resources)

    def naming(self, subject: Subject) -> frozenset[int]:
        """Where the policies stand that can say something to a user.

        They are for everyone, or name the user, one of the user's groups or roles.
        """
        names = [(USER, subject.name)]
        names += [(GROUP, each) for each in subject.groups] + [(ROLE, each) for each in subject.roles]
        return self._of_everyone.union(*(self._of_subjects.get(name, ()) for name in names))


def _is_for_everyone(policy: Policy) -> bool:
    """Whether it can say something to every user. Who owns a resource is another one for each."""
    return policy.deny_all_else or any(item.everyone or item.owner for item in policy.every_item)


def has_macro(policy: Policy) -> bool:
    """Whether the user or the owner decides which resources a policy is about."""
    return any(level.named for resource in policy.resources for level in resource.patterns)
