"""The encryption rules in force, and the questions that can be put to them.

A set is a value: made once from documents, never changed, and named by a digest of them. Rules add up: a
table has to fit all of them, so that another rule never makes room for what was refused before, and the order
of documents and rules makes no difference.

What a change of a table is checked against:

- A table that is made, or taken over, breaks no rule.
- A change of columns or of encryption ends with a table that breaks no rule; or at least breaks less than
  before, and nothing that it did not break before. So a table that breaks a newer rule can be brought in line
  step by step, and is not altered in other ways until it is.
- Another name, or the return of a dropped table, breaks nothing that was not broken before.
- What leaves the columns, the encryption and the name as they are is not checked against the rules: writes go
  on.
- What takes a table or a column out of the reach of a rule drops protection, which is a privilege of its
  own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from policy.decision import Decision, Reason
from policy.digests import digest_of_documents
from policy.encryption_rules.check import demands_on, violations
from policy.encryption_rules.model import NOTHING, EncryptionTag, Rule, TableFacts, Violation
from policy.encryption_rules.parse import parse_documents
from policy.errors import EncryptionPolicyViolation

#: Violated rules that an error names.
_SHOWN: Final = 3
_FITS = Decision.allow(Reason("encryption-rules", "No encryption rule is broken."))


class EncryptionRules:
    """Encryption rules, ready to decide.

    Attributes:
        version: SHA-256 of the documents with their names, in hexadecimal.
        rules: the rules, by name.
        tags: where tags are assigned, by name.
    """

    __slots__ = ("rules", "tags", "version")

    def __init__(self, rules: tuple[Rule, ...], version: str, tags: tuple[EncryptionTag, ...] = ()) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.name))
        self.tags = tuple(sorted(tags, key=lambda tag: tag.name))
        self.version = version

    @classmethod
    def parse(cls, documents: Mapping[str, bytes | str]) -> EncryptionRules:
        """Read rule documents: all of them, or none.

        Args:
            documents: JSON texts by name, as `policy.encryption_rules.parse` describes them.

        Raises:
            PolicyInvalid: naming document, line and field.
        """
        rules, tags = parse_documents(documents)
        return cls(rules, digest_of_documents(documents), tags)

    @classmethod
    def empty(cls) -> EncryptionRules:
        """No rules: nothing has to be encrypted."""
        return cls.parse({})

    def tags_of(self, facts: TableFacts) -> dict[int, tuple[str, ...]]:
        """The tags of each column of a table that has some, by its field id; sorted."""
        found: dict[int, tuple[str, ...]] = {}
        for tag in self.tags:
            for column in tag.columns_of(facts):
                found[column.field_id] = (*found.get(column.field_id, ()), tag.name)
        return found

    def violations(self, facts: TableFacts) -> tuple[Violation, ...]:
        """Everything in a table that breaks a rule, by rule."""
        return tuple(found for rule in self.rules for found in violations(rule, facts))

    def decide(self, facts: TableFacts) -> Decision:
        """Whether a table that is made, or taken over, breaks no rule."""
        return _refused(self.violations(facts))

    def decide_change(self, before: TableFacts, after: TableFacts) -> Decision:
        """Whether a change of columns or encryption leaves a table that breaks no rule, or breaks less.

        The reasons are what is newly broken; else what keeps being broken.
        """
        if before == after:
            return _FITS
        old, new = self.violations(before), self.violations(after)
        worse = tuple(each for each in new if each not in set(old))
        return _refused(worse or (() if len(new) < len(old) else new))

    def decide_name(self, before: TableFacts, after: TableFacts) -> Decision:
        """Whether a table under another name breaks nothing that was not broken before."""
        old = set(self.violations(before))
        return _refused(tuple(each for each in self.violations(after) if each not in old))

    def downgraded(self, before: TableFacts, after: TableFacts) -> bool:
        """Whether a change takes the table, or a column that stays, out of the reach of a rule."""
        asked, still = demands_on(self.rules, before), demands_on(self.rules, after)
        alive = {None, *(column.field_id for column in after.columns)}
        return any(
            not still.get(subject, NOTHING).implies(demands)
            for subject, demands in asked.items()
            if subject in alive
        )


def enforce(decision: Decision, table: str) -> None:
    """Raise if a decision of the rules is a refusal.

    Raises:
        EncryptionPolicyViolation: naming the rules that are violated.
    """
    if decision.allowed:
        return
    shown = [f"Encryption rule {each.policy!r}: {each.detail}" for each in decision.reasons[:_SHOWN]]
    more = len(decision.reasons) - len(shown)
    raise EncryptionPolicyViolation(
        " ".join([*shown, *([f"{more} more rules are violated."] if more else [])]),
        table=table,
        rule=decision.reasons[0].rule,
        hint="Change the table so that it satisfies every encryption rule.",
    )


def _refused(broken: tuple[Violation, ...]) -> Decision:
    """A refusal for what is broken, if anything is."""
    return Decision.deny(*(each.reason for each in broken)) if broken else _FITS
