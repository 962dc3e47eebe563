"""Which parts of the policies the cases have reached.

Rules:
- The parts of an access policy are its items in all four lists, and ``isDenyAllElse``; those of a masking or
  row filter policy its items; of encryption rules each rule. Disabled policies have none.
- A part is *reached* by a case if the answer that the case looks at would be another one without it: another
  decision, or other reasons of it; another mask, where the case says which one it expects; other rows, where
  it says that. What matches a request and yet changes nothing (a second grant of the same, a denial of what
  nobody grants where another policy denies it too) is not reached.
- A case that fails reaches nothing: it shows that the part is not understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from policy.encryption_rules import EncryptionRules
from policy.explain.considered import labels_of
from policy.ranger.model import Policy
from policy.ranger.parse import Contents, parse_documents


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A part of the policies.

    Attributes:
        document: where it stands.
        position: of its policy among the enabled ones there, or of the rule among all, from 0.
        policy: name of the policy, or of the encryption rule.
        item: label of the item; empty for a rule.
    """

    document: str
    position: int
    policy: str
    item: str

    def __str__(self) -> str:
        named = f"{self.document}: {self.policy!r}"
        return f"{named} {self.item}" if self.item else named


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was reached.

    Attributes:
        parts: all parts.
        reached: those of them that a case has reached.
    """

    parts: frozenset[Part]
    reached: frozenset[Part]

    @property
    def missed(self) -> list[Part]:
        """The parts that no case has reached, in the order of the documents."""
        return sorted(self.parts - self.reached)

    @property
    def percent(self) -> float:
        """How many of the parts were reached; 100 where there is none."""
        return 100.0 * len(self.reached) / len(self.parts) if self.parts else 100.0

    @classmethod
    def of(cls, all_of_it: Iterable[Coverage]) -> Coverage:
        """What several runs have reached together."""
        known = tuple(all_of_it)
        return cls(
            frozenset().union(*(each.parts for each in known)),
            frozenset().union(*(each.reached for each in known)),
        )


class PartsOfPolicies:
    """Finds the parts that policies have."""

    def __init__(self, documents: Mapping[str, bytes], contents: Contents) -> None:
        self._places = dict(zip(map(id, contents.policies), _places(documents), strict=True))
        self._policies = contents.policies

    def part(self, policy: Policy, label: str) -> Part:
        """The part that an item of a policy is."""
        document, position = self._places[id(policy.origin or policy)]
        return Part(document, position, policy.name, label)

    def __iter__(self) -> Iterator[Part]:
        return (self.part(policy, label) for policy in self._policies for label in labels_of(policy))


def _places(documents: Mapping[str, bytes]) -> Iterator[tuple[str, int]]:
    """Document and position of each enabled policy, in the order in which a set has them."""
    for name, data in documents.items():
        for position in range(len(parse_documents({name: data}).policies)):
            yield name, position


def parts_of_rules(rules: EncryptionRules) -> dict[str, Part]:
    """The part that each encryption rule is, by the rule's name."""
    return {
        rule.name: Part(rule.document, position, rule.name, "") for position, rule in enumerate(rules.rules)
    }
