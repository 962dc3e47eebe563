"""A statement checked against the encryption rules: what the table would be, from what is known of it.

Where rules are in force and it is not known which columns a table has, or how it is encrypted, nothing can be
decided; then the statement is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from policy.encryption.encrypted_columns import followed
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import Column, ColumnName, EncryptionRules, column_key, enforce
from policy.encryption_rules import TableFacts as RuleFacts
from policy.identifiers import TableName
from policy.sql_lint.context import TableFacts
from policy.sql_lint.cursor import Name
from policy.sql_lint.denials import Refusal
from policy.sql_lint.statements import AlterColumns
from policy.sql_lint.statements import Column as NewColumn


def leaves_of(columns: Iterable[NewColumn]) -> tuple[Column, ...]:
    """The columns of a new table that hold values."""
    names = [name for each in columns for name in (".".join(each.name), *each.inside)]
    outer = {name.rpartition(".")[0] for name in names}
    leaves = [name for name in names if name not in outer]
    return tuple(Column(number, (ColumnName(name, name),)) for number, name in enumerate(leaves, start=1))


def kept_leaves(before: TableFacts, after: TableFacts) -> tuple[Column, ...] | None:
    """The columns of a table that is replaced: those that it had by the same name keep their id and names."""
    if before.leaves is None or after.leaves is None:
        return None
    had = {each.name: each for each in before.leaves if each.is_current}
    last = max((each.field_id for each in before.leaves), default=0)
    return tuple(had.get(each.name, replace(each, field_id=last + each.field_id)) for each in after.leaves)


def require_new(rules: EncryptionRules, name: TableName, facts: TableFacts) -> None:
    """Check a new table by the rules.

    Raises:
        EncryptionPolicyViolation: it breaks one.
        Refusal: its columns are not known.
    """
    if rules.rules:
        enforce(rules.decide(_rule_facts(name, facts)), str(name))


def require_name(rules: EncryptionRules, source: TableName, target: TableName, facts: TableFacts) -> bool:
    """Check another name of a table by the rules; whether it drops protection.

    Raises:
        as `require_new`.
    """
    if not rules.rules:
        return False
    before, after = (_rule_facts(each, facts) for each in (source, target))
    enforce(rules.decide_name(before, after), str(source))
    return rules.downgraded(before, after)


def require_change(rules: EncryptionRules, name: TableName, before: TableFacts, after: TableFacts) -> None:
    """Check other columns, or another encryption, of a table by the rules.

    A column keeps its earlier names, so that no statement takes it out of the reach of a rule.

    Raises:
        as `require_new`.
    """
    if not rules.rules:
        return
    old, new = (_rule_facts(name, each) for each in (before, after))
    enforce(rules.decide_change(old, new), str(name))


def with_columns(facts: TableFacts, statement: AlterColumns) -> TableFacts:
    """What is known of a table after a change of its columns; one that is renamed keeps its earlier names.

    Its encryption follows the columns that it names, as in the catalog: to their new names, or off the list.
    Of columns that are replaced it is not known which stay. A statement may name a column in another letter
    case; the catalog hears of it by the name that it has.
    """
    statement = _as_known(statement, facts)
    facts = replace(facts, spec=_followed(facts.spec, statement))
    if facts.leaves is None or statement.replaced:
        return replace(facts, columns=None, nested=None, leaves=None)
    leaves = list(facts.leaves)
    if statement.renamed is not None:
        old, new = (".".join(each) for each in statement.renamed)
        leaves = [_renamed(each, old, new) for each in leaves]
    for path in statement.removed:
        leaves = [each for each in leaves if not _inside(each.name, ".".join(path))]
    facts = replace(facts, partitions=_renamed_too(facts.partitions, statement.renamed))
    last = max((each.field_id for each in facts.leaves or ()), default=0)
    for added in leaves_of(statement.added):
        leaves.append(replace(added, field_id=last + added.field_id))
    tops = dict.fromkeys(each.name.partition(".")[0] for each in leaves)
    return replace(facts, columns=tuple(tops), nested=None, leaves=tuple(leaves))


def _as_known(statement: AlterColumns, facts: TableFacts) -> AlterColumns:
    """The same change, with the columns that are there named as they are, letter by letter."""
    names = [each.name for each in facts.leaves or ()]
    if facts.spec is not None:
        names += [name for key in facts.spec.columns for name in key.columns]
        names += [name for mask in facts.spec.masks for name in mask.columns]
        names += facts.spec.plaintext_columns or ()
    known = {outer.lower(): outer for name in names for outer in accumulate(name.split("."), "{}.{}".format)}

    def spelled(path: Name) -> Name:
        for depth in range(len(path), 0, -1):
            if (found := known.get(".".join(path[:depth]).lower())) is not None:
                return (*found.split("."), *path[depth:])
        return path

    def added(column: NewColumn) -> NewColumn:
        name = (*spelled(column.name[:-1]), column.name[-1])
        cut = len(".".join(column.name))
        return NewColumn(name, tuple(".".join(name) + each[cut:] for each in column.inside))

    renaming = statement.renamed
    if renaming is not None:
        old = spelled(renaming[0])
        renaming = old, (*old[:-1], *renaming[1][len(old) - 1 :])
    return replace(
        statement,
        added=tuple(map(added, statement.added)),
        removed=tuple(map(spelled, statement.removed)),
        renamed=renaming,
    )


def _followed(spec: EncryptionSpec | None, statement: AlterColumns) -> EncryptionSpec | None:
    if spec is None or not (spec.by_column or spec.masks):
        return spec
    if statement.replaced:
        return None

    def next_name(column: str) -> str | None:
        return _name_after(column, statement)

    return followed(spec, next_name)


def _name_after(name: str, statement: AlterColumns) -> str | None:
    """What a column is called after a change; None if it goes."""
    if any(_inside(name, ".".join(path)) for path in statement.removed):
        return None
    if statement.renamed is None:
        return name
    old, new = (".".join(each) for each in statement.renamed)
    return new + name[len(old) :] if _inside(name, old) else name


def _renamed_too(names: tuple[str, ...], renamed: tuple[Name, Name] | None) -> tuple[str, ...]:
    """Names of columns, and the next names of those that are renamed."""
    if renamed is None:
        return names
    old, new = (".".join(each) for each in renamed)
    return (*names, *(new + each[len(old) :] for each in names if _inside(each, old)))


def _renamed(column: Column, old: str, new: str) -> Column:
    if not _inside(column.name, old):
        return column
    name = new + column.name[len(old) :]
    return replace(column, names=(ColumnName(name, name), *column.names))


def _inside(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")


def _rule_facts(name: TableName, facts: TableFacts) -> RuleFacts:
    if facts.leaves is None or facts.spec is None:
        raise Refusal(
            "encryption-rules",
            f"Encryption rules are in force, but the columns or the encryption of {name} are unknown.",
            "List the columns, or pass --live to look up the table.",
        )
    columns = tuple(_keyed(each, facts.spec) for each in facts.leaves)
    return RuleFacts(name.database, name.name, columns, facts.spec)


def _keyed(column: Column, spec: EncryptionSpec) -> Column:
    return replace(column, key_id=column_key(spec, column.name if column.is_current else None))
