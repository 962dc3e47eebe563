"""What of a table breaks a rule.

Rules:
- A rule without columns and tags is about the whole table: its encryption, and that of each of its columns.
  So a table that encrypts some of its columns does not do what a rule on the table asks.
- Allowed algorithms, master keys, lengths, footers and readers hold for what is encrypted; that something is
  encrypted is asked by ``mustEncrypt`` alone.
- A column key is a key other than the table's own master key: who may use that one has no right to the
  column.
- A rule on columns asks the same of the table's algorithm, key length, footer and readers as soon as the
  table has such a column, because a file has one of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from policy.encryption import governed
from policy.encryption.file_formats import WRITE_FORMAT, FileFormat
from policy.encryption.specification import Footer
from policy.encryption_rules.model import NOTHING, Column, Demands, Requirement, Rule, TableFacts, Violation
from policy.encryption_rules.names import KeyPatterns

_EXPIRE: Final = "Expire the snapshots that contain it."

#: The whole table, among the field ids of its columns.
WHOLE_TABLE: Final = None


def violations(rule: Rule, facts: TableFacts) -> Iterator[Violation]:
    """What of a table breaks one rule."""
    if not rule.is_about(facts):
        return
    columns = tuple(rule.columns_of(facts))
    if rule.has_columns and not columns:
        return
    yield from _in_plaintext(rule, facts, columns)
    if rule.demands.column_key:
        yield from _without_column_key(rule, facts, columns)
    if facts.spec.encrypts:
        yield from _wrong_keys(rule, facts, columns)
        yield from _wrong_files(rule, facts)


def demands_on(rules: tuple[Rule, ...], facts: TableFacts) -> Mapping[int | None, Demands]:
    """What all rules together ask of the table (`WHOLE_TABLE`) and of each column, by field id.

    What would hold only if the table were encrypted counts only where it is.
    """
    found: dict[int | None, Demands] = {}
    for rule in rules:
        if not rule.is_about(facts) or not (rule.demands.must_encrypt or facts.spec.encrypts):
            continue
        subjects: list[int | None] = [column.field_id for column in rule.columns_of(facts)]
        if not rule.has_columns:
            subjects.append(WHOLE_TABLE)
        for subject in subjects:
            found[subject] = found.get(subject, NOTHING).plus(rule.demands)
    return MappingProxyType(found)


def _in_plaintext(rule: Rule, facts: TableFacts, columns: tuple[Column, ...]) -> Iterator[Violation]:
    if not rule.demands.must_encrypt:
        return
    if not rule.has_columns and not facts.spec.encrypts:
        yield _of_table(
            rule,
            Requirement.MUST_ENCRYPT,
            "",
            "The table must be encrypted.",
            f"Set {governed.MECHANISM}=envelope.",
        )
        return
    for column in columns:
        if facts.key_of(column) is None:
            detail = f"{_shown(column)} must be encrypted."
            yield _of_column(rule, Requirement.MUST_ENCRYPT, column, "", detail, _encrypting(facts, column))


def _encrypting(facts: TableFacts, column: Column) -> str:
    if not column.is_current:
        return _EXPIRE
    if facts.spec.encrypts:
        if facts.spec.plaintext_columns is not None:
            return f"Remove it from {governed.PLAINTEXT_COLUMNS}."
        return f"Add it to {governed.COLUMNS}, or unset that property to encrypt all columns."
    return f"Set {governed.MECHANISM}=envelope."


def _without_column_key(rule: Rule, facts: TableFacts, columns: tuple[Column, ...]) -> Iterator[Violation]:
    for column in columns:
        if column.key_id is None or column.key_id == facts.spec.master_key_id:
            detail = f"{_shown(column)} must have a column key."
            own = f"Add it to {governed.COLUMNS} under a key other than the table's {governed.MASTER_KEY_ID}."
            remedy = own if column.is_current else _EXPIRE
            yield _of_column(rule, Requirement.COLUMN_KEY, column, "", detail, remedy)


def _wrong_keys(rule: Rule, facts: TableFacts, columns: tuple[Column, ...]) -> Iterator[Violation]:
    for allowed in rule.demands.master_keys:
        remedy = f"Use one of: {', '.join(allowed.values[:10])}."
        if not rule.has_columns:
            for key_id in facts.spec.key_ids():
                if not allowed.allows(key_id):
                    detail = f"The master key {key_id!r} is not allowed for the table."
                    yield _of_table(rule, Requirement.MASTER_KEY, key_id, detail, remedy)
        else:
            yield from _wrong_column_keys(rule, facts, columns, allowed, remedy)


def _wrong_column_keys(
    rule: Rule, facts: TableFacts, columns: tuple[Column, ...], allowed: KeyPatterns, remedy: str
) -> Iterator[Violation]:
    for column in columns:
        key_id = facts.key_of(column)
        if key_id is not None and not allowed.allows(key_id):
            detail = f"The master key {key_id!r} is not allowed for the {_shown(column).lower()}."
            yield _of_column(rule, Requirement.MASTER_KEY, column, key_id, detail, remedy)


def _wrong_files(rule: Rule, facts: TableFacts) -> Iterator[Violation]:
    demands, spec = rule.demands, facts.spec
    if spec.algorithm not in demands.algorithms:
        allowed = " or ".join(sorted(demands.algorithms))
        detail = f"The algorithm {spec.algorithm} is not allowed."
        remedy = f"Set {governed.ALGORITHM}={allowed}."
        yield _of_table(rule, Requirement.ALGORITHM, spec.algorithm.value, detail, remedy)
    if spec.data_key_length < demands.min_data_key_length:
        detail = (
            f"Data keys of {spec.data_key_length} bytes are shorter than {demands.min_data_key_length} bytes."
        )
        remedy = f"Set {governed.DATA_KEY_LENGTH} to {demands.min_data_key_length} or more."
        yield _of_table(rule, Requirement.DATA_KEY_LENGTH, str(spec.data_key_length), detail, remedy)
    if demands.encrypted_footer and spec.file_format is FileFormat.ORC:
        remedy = f"Set {WRITE_FORMAT}={FileFormat.PARQUET}: ORC footers are always in plaintext."
        yield _of_table(rule, Requirement.PLAINTEXT_FOOTER, "", "A plaintext footer is not allowed.", remedy)
    if demands.encrypted_footer and spec.footer is Footer.PLAINTEXT:
        remedy = f"Set {governed.FOOTER}={Footer.ENCRYPTED}."
        yield _of_table(rule, Requirement.PLAINTEXT_FOOTER, "", "A plaintext footer is not allowed.", remedy)
    if demands.no_stock_readers and spec.stock_readers:
        remedy = f"Set {governed.STOCK_READERS}=false."
        yield _of_table(rule, Requirement.STOCK_READERS, "", "Standard readers are not allowed.", remedy)
    if demands.no_partition_values and spec.shows_partitions:
        detail = "Plaintext partition values of encrypted columns are not allowed."
        remedy = f"Unset {governed.PARTITION_VALUES}."
        yield _of_table(rule, Requirement.PARTITION_VALUES, "", detail, remedy)


def _of_table(rule: Rule, requirement: Requirement, found: str, detail: str, remedy: str) -> Violation:
    return Violation(rule.name, rule.document, requirement, found, None, None, detail, remedy)


def _of_column(
    rule: Rule, requirement: Requirement, column: Column, found: str, detail: str, remedy: str
) -> Violation:
    return Violation(
        rule.name, rule.document, requirement, found, column.field_id, column.name, detail, remedy
    )


def _shown(column: Column) -> str:
    """The column, and what it was called before, since a rule may be about that."""
    where = "" if column.is_current else " of a snapshot's schema"
    before = [name.full[:80] for name in column.names[1:4]]
    was = f", formerly {', '.join(map(repr, before))}," if before else ""
    return f"Column {column.name[:160]!r}{where}{was}"
