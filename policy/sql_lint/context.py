"""What a script is judged by, and what is known of the catalog while it is read.

What only the catalog knows (who owns a table, what governs it, which columns it has) comes from `known`, if
that is given, and from the statements before. Where it stays unknown, the answer is the one that holds in
every case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import Column, EncryptionRules
from policy.identifiers import TableName
from policy.known_table import FieldNames, KnownTable
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.restrictions.columns import TableColumns


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is known of a table.

    Attributes:
        owner: name of its owner.
        columns: its top-level columns.
        nested: dotted names of the fields in them.
        leaves: the columns and fields that hold values, as encryption rules see them.
        allowed: its allowed list in force; None where it is not known.
        spec: its encryption in force; None where it is not known.
        file_format: the format of its new files; None for the one that its encryption says, or Parquet.
        location: where it lies; None where it is not known.
        default_location: whether the catalog chose that place.
        fields: finds names in its schemas; None if these are not known.
        partitions: every dotted name of the columns that it is or was partitioned by.
        schema: its fields with their types; None if these are not known.
    """

    owner: str | None
    columns: tuple[str, ...] | None = None
    nested: tuple[str, ...] | None = None
    leaves: tuple[Column, ...] | None = None
    allowed: AllowList | None = None
    spec: EncryptionSpec | None = None
    file_format: FileFormat | None = None
    location: Location | None = None
    default_location: bool = False
    fields: FieldNames | None = None
    partitions: tuple[str, ...] = ()
    schema: TableColumns | None = None

    @property
    def known(self) -> KnownTable:
        """What decides what a user sees of it."""
        return KnownTable(self.columns, self.nested or (), self.spec, self.fields, self.schema)


#: Answers what is known of a table; None where it does not exist, or nothing is known.
Known = Callable[[TableName], TableFacts | None]


def nothing_known(name: TableName) -> TableFacts | None:
    """Of no table anything is known."""
    return None


@dataclass(frozen=True, slots=True)
class LintContext:
    """By whom, when and under what rules a script would be run.

    Attributes:
        principal: the user who would run it, in an engine that acts for them.
        policies: the policies in force.
        encryption: the encryption rules in force.
        now: the time, with a zone.
        catalog: the name under which the engine knows the catalog; it is the engine's current one.
        database: the current namespace, its levels joined by dots; None if there is none.
        owner: the owner of every table of which no other is known; None if that is not known.
        engine: the engine's name, which code in it is asked for; None if it is not known.
        master_key_id: the catalog's master key, for tables that name none.
        warehouse: below which the catalog chooses the places of new tables; None if it is not known.
        known: answers what is known of a table.
    """

    principal: Principal
    policies: PolicySet
    encryption: EncryptionRules
    now: datetime
    catalog: str = "lakewarden"
    database: str | None = None
    owner: str | None = None
    engine: str | None = None
    master_key_id: str | None = None
    warehouse: Location | None = None
    known: Known = field(default=nothing_known)
