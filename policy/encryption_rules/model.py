"""Encryption rules, the tables they are checked against, and what breaks them, as typed values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from policy.decision import Reason
from policy.encryption.specification import Algorithm, EncryptionSpec
from policy.encryption_rules.names import KeyPatterns, NamePatterns


class Requirement(StrEnum):
    """What a rule asks for; the name of the rule in reasons and errors."""

    MUST_ENCRYPT = "must-encrypt"
    COLUMN_KEY = "column-key"
    ALGORITHM = "algorithm"
    MASTER_KEY = "master-key"
    DATA_KEY_LENGTH = "data-key-length"
    PLAINTEXT_FOOTER = "plaintext-footer"
    STOCK_READERS = "stock-readers"
    PARTITION_VALUES = "partition-values"


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A name of a column, today's or an earlier one.

    Attributes:
        full: dotted, with the levels of lists and maps: ``people.element.ssn``.
        short: without those levels: ``people.ssn``; the same where there are none.
    """

    full: str
    short: str

    @property
    def spellings(self) -> tuple[str, ...]:
        """The ways to write it."""
        return (self.full,) if self.full == self.short else (self.full, self.short)


@dataclass(frozen=True, slots=True)
class Column:
    """A column that holds values: a leaf of a schema.

    Attributes:
        field_id: what it is, whatever it is called.
        names: today's name first, then every other that the table's schemas have for it.
        key_id: the master key that that it is under in files encrypted by column; None if it is under none.
        is_current: whether it is in the current schema, and not only in that of a snapshot.
    """

    field_id: int
    names: tuple[ColumnName, ...]
    key_id: str | None = None
    is_current: bool = True

    @property
    def name(self) -> str:
        """Today's full name."""
        return self.names[0].full


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What rules are checked against.

    Attributes:
        database: the namespace, its levels joined by dots.
        table: the table's name.
        columns: its leaves.
        spec: its encryption.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    spec: EncryptionSpec

    @classmethod
    def of_names(cls, database: str, table: str, names: Iterable[str], spec: EncryptionSpec) -> TableFacts:
        """The facts of a table of which only the names of its columns are known.

        Args:
            database: the namespace.
            table: the table's name.
            names: full dotted names of all leaves.
            spec: its encryption.
        """
        columns = (
            Column(number, (ColumnName(name, name),), column_key(spec, name))
            for number, name in enumerate(names, start=1)
        )
        return cls(database, table, tuple(columns), spec)

    def key_of(self, column: Column) -> str | None:
        """The master key that protects a column; None if it is in plaintext."""
        if not self.spec.encrypts:
            return None
        return column.key_id if self.spec.by_column else self.spec.master_key_id


def column_key(spec: EncryptionSpec, name: str | None) -> str | None:
    """The master key that a specification gives to a column of files that are encrypted by column.

    Args:
        spec: the specification.
        name: what the column is called in the current schema; None if it is not in it.
    """
    if not spec.by_column:
        return None
    if name is None:
        return spec.master_key_id if spec.encrypts_others else None
    return spec.key_of(name)


@dataclass(frozen=True, slots=True)
class Exempt:
    """What is taken out of a rule; what is not named is everything.

    Attributes:
        databases, tables, columns: patterns of names themselves.
    """

    databases: NamePatterns | None
    tables: NamePatterns | None
    columns: NamePatterns | None

    def takes_table(self, database: str, table: str) -> bool:
        """Whether the whole table is taken out."""
        return self.columns is None and self._about(database, table)

    def takes_column(self, database: str, table: str, name: ColumnName) -> bool:
        """Whether a column of this name is taken out."""
        named = self.columns is None or any(map(self.columns.matches, name.spellings))
        return named and self._about(database, table)

    def _about(self, database: str, table: str) -> bool:
        return (self.databases is None or self.databases.matches(database)) and (
            self.tables is None or self.tables.matches(table)
        )


@dataclass(frozen=True, slots=True)
class Area:
    """Databases, tables and columns by pattern.

    Attributes:
        databases: of names of databases.
        tables: of names of tables.
        columns: of names of columns; None for whole tables.
    """

    databases: NamePatterns
    tables: NamePatterns
    columns: NamePatterns | None

    def has_table(self, database: str, table: str) -> bool:
        """Whether a table is in it, or has columns that may be."""
        return self.databases.resembles(database) and self.tables.resembles(table)

    def has_name(self, name: ColumnName) -> bool:
        """Whether a column of this name is in it, where its table is."""
        return self.columns is None or any(map(self.columns.resembles, name.spellings))


@dataclass(frozen=True, slots=True)
class Demands:
    """What is asked; several rules on one thing add up.

    Attributes:
        must_encrypt: it is encrypted. Without that, what follows holds where it is.
        column_key: it is under a key other than the table's own master key.
        algorithms: those allowed; None for all.
        master_keys: each set of allowed keys, all of which must allow the key.
        min_data_key_length: the shortest data key, in bytes.
        encrypted_footer: the footer is encrypted.
        no_stock_readers: standard readers get nothing.
        no_partition_values: no encrypted column is a partition source.
    """

    must_encrypt: bool = False
    column_key: bool = False
    algorithms: frozenset[Algorithm] = frozenset(Algorithm)
    master_keys: frozenset[KeyPatterns] = frozenset()
    min_data_key_length: int = 0
    encrypted_footer: bool = False
    no_stock_readers: bool = False
    no_partition_values: bool = False

    def plus(self, other: Demands) -> Demands:
        """Both."""
        return Demands(
            self.must_encrypt or other.must_encrypt,
            self.column_key or other.column_key,
            self.algorithms & other.algorithms,
            self.master_keys | other.master_keys,
            max(self.min_data_key_length, other.min_data_key_length),
            self.encrypted_footer or other.encrypted_footer,
            self.no_stock_readers or other.no_stock_readers,
            self.no_partition_values or other.no_partition_values,
        )

    def implies(self, other: Demands) -> bool:
        """Whether nothing that the other asks is given up."""
        return self.plus(other) == self


NOTHING: Final = Demands()
"""What is asked where no rule applies."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        name: its name, one among all documents.
        document: where it stands.
        area: what it is about; whole tables, where it names neither columns nor tags.
        tagged: where the tags that it names are assigned.
        has_columns: whether it is about columns only.
        exempt: what is taken out.
        demands: what it asks.
    """

    name: str
    document: str
    area: Area
    tagged: tuple[Area, ...]
    exempt: tuple[Exempt, ...]
    demands: Demands
    has_columns: bool = field(default=False)

    def is_about(self, facts: TableFacts) -> bool:
        """Whether it asks something of a table, or could of a column of it."""
        database, table = facts.database, facts.table
        return self.area.has_table(database, table) and not any(
            each.takes_table(database, table) for each in self.exempt
        )

    def columns_of(self, facts: TableFacts) -> Iterator[Column]:
        """The columns that it asks something of, in a table that it is about: by any of their names."""
        tagged = [area for area in self.tagged if area.has_table(facts.database, facts.table)]
        for column in facts.columns:
            if any(self._has(facts, tagged, name) for name in column.names):
                yield column

    def _has(self, facts: TableFacts, tagged: list[Area], name: ColumnName) -> bool:
        if any(each.takes_column(facts.database, facts.table, name) for each in self.exempt):
            return False
        named = not self.has_columns or (self.area.columns is not None and self.area.has_name(name))
        return named or any(area.has_name(name) for area in tagged)


@dataclass(frozen=True, slots=True)
class EncryptionTag:
    """Where a tag is assigned.

    Attributes:
        name: the tag.
        areas: the columns that it is assigned to.
    """

    name: str
    areas: tuple[Area, ...]

    def columns_of(self, facts: TableFacts) -> Iterator[Column]:
        """The columns of a table that it is assigned to: by any of their names."""
        areas = [area for area in self.areas if area.has_table(facts.database, facts.table)]
        for column in facts.columns:
            if any(area.has_name(name) for area in areas for name in column.names):
                yield column


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a rule asks and a table does not have.

    Attributes:
        rule: name of the rule.
        document: where it stands.
        requirement: what it asks.
        found: what the table has instead; empty where that is nothing.
        field_id: of the column, where it is about one.
        column: the name of that column.
        detail: one sentence.
        remedy: what to do, in one sentence.
    """

    rule: str
    document: str
    requirement: Requirement
    found: str
    field_id: int | None
    column: str | None = field(compare=False)
    detail: str = field(compare=False)
    remedy: str = field(compare=False)

    @property
    def reason(self) -> Reason:
        """The same as a reason of a decision."""
        return Reason(self.requirement.value, f"{self.detail} {self.remedy}", self.rule, self.document)
