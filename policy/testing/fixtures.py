"""Tables that the cases of a file know.

Rules:
- Properties are governed ones, in any spelling, and are read as those of a new table; others say nothing here
  and are refused.
- Columns are named by the dotted names of what holds values: ``id``, ``customer.email``. With types, what a
  name is nested in is a struct. A column is optional unless ``not null`` is behind its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from policy import encryption_rules
from policy.encryption import governed
from policy.encryption.specification import EncryptionSpec
from policy.errors import PropertyInvalid
from policy.identifiers import TableName
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.restrictions.columns import SchemaField, TableColumns
from policy.sql_lint.context import TableFacts

_REQUIRED: Final = " not null"


@dataclass(frozen=True, slots=True)
class FixtureTable:
    """A table.

    Attributes:
        name: its name.
        owner: who owns it; None if that is not known.
        columns: its columns; None if they are not known.
        location: where it lies; None if that is not known.
        allowed: where it may be read from; None if that is not known.
        spec: its encryption.
        schema: its fields with their types; None if these are not known.
    """

    name: TableName
    owner: str | None
    columns: tuple[str, ...] | None
    location: Location | None
    allowed: AllowList | None
    spec: EncryptionSpec
    schema: TableColumns | None = None

    @classmethod
    def of(
        cls,
        name: TableName,
        *,
        owner: str | None,
        columns: tuple[str, ...] | None,
        location: Location | None,
        properties: Mapping[str, str],
        master_key: str | None,
        types: Mapping[str, str] | None = None,
    ) -> FixtureTable:
        """A table with these properties, governed ones in any spelling.

        Raises:
            PropertyInvalid, LocationInvalid: a property is refused, or is none that governs a table.
        """
        given, others = governed.split(properties)
        if others:
            raise PropertyInvalid(
                f"The property {next(iter(others))[:80]!r} is not a governed table property.",
                rule="governed-property",
                hint="Omit the property.",
            )
        listed = given.get(governed.ALLOWED_PATHS)
        allowed = None if location is None else AllowList.of([location])
        return cls(
            name,
            owner,
            columns,
            location,
            allowed if listed is None else AllowList.parse(listed),
            EncryptionSpec.parse(properties, catalog_master_key_id=master_key),
            None if types is None else _schema(types),
        )

    def for_statements(self) -> TableFacts:
        """What a statement finds when it names the table."""
        if self.columns is None:
            return TableFacts(
                self.owner,
                allowed=self.allowed,
                spec=self.spec,
                file_format=self.spec.file_format,
                location=self.location,
                schema=self.schema,
            )
        outer = dict.fromkeys(name.partition(".")[0] for name in self.columns)
        paths = (path for name in self.columns for path in _paths(name) if "." in path)
        return TableFacts(
            owner=self.owner,
            columns=tuple(outer),
            nested=tuple(dict.fromkeys(paths)),
            leaves=self.for_rules().columns,
            allowed=self.allowed,
            spec=self.spec,
            file_format=self.spec.file_format,
            location=self.location,
            schema=self.schema,
        )

    def for_rules(self) -> encryption_rules.TableFacts:
        """What encryption rules are checked against."""
        return encryption_rules.TableFacts.of_names(
            self.name.database, self.name.name, self.columns or (), self.spec
        )


def _schema(types: Mapping[str, str]) -> TableColumns:
    """The fields of a table by the types of its columns; ids are their numbers, from 1."""
    fields: dict[str, SchemaField] = {}
    for name, column_type in types.items():
        above: tuple[int, ...] = ()
        for path in _paths(name):
            held, required = typed(column_type)
            kind = held if path == name else "struct"
            if path not in fields:
                names, here = tuple(path.split(".")), required and path == name
                fields[path] = SchemaField(len(fields) + 1, names, kind, here, above, frozenset({path}))
            above = (*above, fields[path].field_id)
    return TableColumns(fields.values())


def typed(text: str) -> tuple[str, bool]:
    """A column's type, and whether it is required: ``long not null``."""
    return text.removesuffix(_REQUIRED), text.endswith(_REQUIRED)


def _paths(name: str) -> list[str]:
    """A dotted name and those of what it is in: ``a``, ``a.b``, ``a.b.c``."""
    return list(accumulate(name.split("."), lambda outer, inner: f"{outer}.{inner}"))
