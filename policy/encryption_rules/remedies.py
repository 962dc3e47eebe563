"""Decides which properties make a table satisfy the encryption rules, if the rules leave no choice.

- What a rule asks is set; nothing else is changed. Then the rules are checked again, because a table that is
  encrypted has to satisfy more of them than one that is not.
- There is a choice where a column has to be encrypted beside others, where it needs a column key, where more
  than one master key or algorithm is allowed, and where the partitioning or the file format would have to
  change. A person decides these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from policy.encryption import governed
from policy.encryption.file_formats import FileFormat
from policy.encryption.requested import next_spec
from policy.encryption.specification import EncryptionSpec, Footer, Mechanism
from policy.encryption_rules.check import demands_on
from policy.encryption_rules.model import NOTHING, Demands, Requirement, TableFacts, Violation, column_key
from policy.encryption_rules.ruleset import EncryptionRules
from policy.errors import InvalidInput

#: Each round satisfies a requirement, or is the last one.
_ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to change of a table.

    Attributes:
        properties: the properties to set, or to remove where the value is None.
        undecided: why a person has to decide; None if nothing is left to decide.
    """

    properties: Mapping[str, str | None] = field(default_factory=dict)
    undecided: str | None = None


def remedy_of(
    rules: EncryptionRules,
    facts: TableFacts,
    catalog_master_key_id: str | None,
    file_format: FileFormat | None,
) -> Remedy:
    """Decide what to change of a table so that it breaks no rule.

    Args:
        rules: the rules.
        facts: the table.
        catalog_master_key_id: the master key of tables that name none.
        file_format: the format of its new files; None if it is not known.
    """
    wanted: dict[str, str | None] = {}
    now = facts
    for _ in range(_ROUNDS):
        broken = rules.violations(now)
        if not broken:
            return Remedy(wanted)
        whole = _whole(rules, now)
        more: dict[str, str | None] = {}
        for each in broken:
            change = _change(rules, now, whole, each)
            if not change:
                return Remedy(undecided=f"{each.detail} {each.remedy}")
            more = change | more  # of two values, the next round brings the other one, if it is still asked
        if more.items() <= wanted.items():
            return Remedy(undecided=f"{broken[0].detail} {broken[0].remedy}")
        wanted |= more
        try:
            now = _after(facts, wanted, catalog_master_key_id, file_format)
        except InvalidInput as problem:
            return Remedy(undecided=problem.message)
    return Remedy(undecided=f"{broken[0].detail} {broken[0].remedy}")


def _whole(rules: EncryptionRules, facts: TableFacts) -> Demands:
    """Return what the rules ask of files, of which the table has one kind for all columns."""
    total = NOTHING
    for each in demands_on(rules.rules, facts).values():
        total = total.plus(each)
    return total


def _after(
    facts: TableFacts,
    changes: Mapping[str, str | None],
    catalog_master_key_id: str | None,
    file_format: FileFormat | None,
) -> TableFacts:
    """Return the facts of the table after a change."""
    given = {name: value for name, value in changes.items() if value is not None}
    spec = next_spec(facts.spec, given, changes.keys() - given.keys(), catalog_master_key_id, file_format)
    columns = (
        replace(each, key_id=column_key(spec, each.name if each.is_current else None))
        for each in facts.columns
    )
    return replace(facts, spec=spec, columns=tuple(columns))


def _change(
    rules: EncryptionRules, facts: TableFacts, whole: Demands, broken: Violation
) -> dict[str, str | None]:
    """Return the properties that satisfy one requirement; none where there is a choice."""
    asked, spec = broken.requirement, facts.spec
    if asked is Requirement.MUST_ENCRYPT:
        return _encrypted(spec, broken)
    if asked is Requirement.ALGORITHM:
        allowed = [each for each in whole.algorithms if each.file_format is spec.file_format]
        return {governed.ALGORITHM: allowed[0].value} if len(allowed) == 1 else {}
    if asked is Requirement.MASTER_KEY:
        return _master_key(rules, spec, broken)
    if asked is Requirement.DATA_KEY_LENGTH:
        return {governed.DATA_KEY_LENGTH: str(whole.min_data_key_length)}
    if asked is Requirement.PLAINTEXT_FOOTER and spec.file_format is FileFormat.PARQUET:
        return {governed.FOOTER: Footer.ENCRYPTED.value}
    if asked is Requirement.STOCK_READERS:
        return {governed.STOCK_READERS: "false"}
    return {}


def _encrypted(spec: EncryptionSpec, broken: Violation) -> dict[str, str | None]:
    if not spec.encrypts:
        return {governed.MECHANISM: Mechanism.ENVELOPE.value}
    if spec.plaintext_columns is None or broken.column not in spec.plaintext_columns:
        return {}
    rest = [each for each in spec.plaintext_columns if each != broken.column]
    return {governed.PLAINTEXT_COLUMNS: ",".join(rest) or None}


def _master_key(rules: EncryptionRules, spec: EncryptionSpec, broken: Violation) -> dict[str, str | None]:
    """Return the only allowed master key of the table, if the rule is about the table's."""
    if broken.field_id is not None or broken.found != spec.master_key_id:
        return {}
    (rule,) = (each for each in rules.rules if each.name == broken.rule)
    only = {each.only for each in rule.demands.master_keys}
    key = only.pop() if len(only) == 1 else None
    return {} if key is None else {governed.MASTER_KEY_ID: key}
