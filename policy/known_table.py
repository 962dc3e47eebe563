"""What is known of a table without its files: for `policy check`, `policy test` and `policy lint`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from policy.encryption.specification import EncryptionSpec
from policy.restrictions.columns import TableColumns
from policy.view import ColumnNames


class FieldNames(Protocol):
    """Finds the names of a table's fields in its schemas. A policy can be about any of them."""

    def today(self, path: str) -> ColumnNames | None:
        """The names in the current schema of a field in any letter case, of what it is nested in, and of what
        is nested in it; None if the schema does not have it."""

    def ever(self, paths: Iterable[str] | None) -> ColumnNames:
        """The same names of some fields in every schema of the table; of all fields if `paths` is None."""

    def former(self) -> ColumnNames:
        """The names of the fields that only older schemas have, and of what these are nested in."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What is known of a table without its files.

    Attributes:
        columns: its top-level columns; None if they are not known.
        nested: dotted names of the fields in them.
        spec: its encryption; None if it is not known.
        fields: finds names in its schemas; None if these are not known.
        schema: its fields with their types, by which row filters and masks are decided; None if these are not
            known.
        service: the catalog that it is in, which is the service's name in policies; None if it is not known.
    """

    columns: tuple[str, ...] | None = None
    nested: tuple[str, ...] = ()
    spec: EncryptionSpec | None = None
    fields: FieldNames | None = None
    schema: TableColumns | None = None
    service: str | None = None

    def inside(self, path: str) -> ColumnNames:
        """A column or field in any letter case, with what it is nested in, and what is nested in it."""
        found = None if self.fields is None else self.fields.today(path)
        if found is not None:
            return found
        outer = self._outer(path)
        inner = path[len(outer) + 1 :]
        around = accumulate(inner.split("."), "{}.{}".format, initial=outer) if inner else ()
        below = (each for each in self.nested if each.lower().startswith(f"{path.lower()}."))
        return ColumnNames(frozenset({outer}), frozenset({*around, *below} - {outer}))

    def each_inside(self, paths: Collection[str]) -> ColumnNames:
        """The names that `inside` finds of some columns and fields."""
        found = [self.inside(each) for each in paths]
        return ColumnNames(
            frozenset().union(*(each.columns for each in found)),
            frozenset().union(*(each.nested for each in found)),
        )

    def ever(self, paths: Collection[str]) -> ColumnNames:
        """The names that `inside` finds of some columns and fields, and those that they had."""
        names = self.each_inside(paths)
        return names if self.fields is None else names | self.fields.ever(paths)

    def column(self, path: str) -> str:
        """The top-level column that a path is, or is nested in."""
        return next(iter(self.inside(path).columns))

    def everything(self) -> ColumnNames:
        """Every column and field, under every name that it has or had."""
        today = ColumnNames(frozenset(self.columns or ()), frozenset(self.nested))
        return today if self.fields is None else today | self.fields.ever(None)

    def _outer(self, path: str) -> str:
        """The top-level column of a path, by names alone: a column's own name can have dots."""
        known: Iterable[str] = self.columns or ()
        if self.columns is None and self.spec is not None:
            keyed = [column for group in self.spec.columns for column in group.columns]
            masked = [column for group in self.spec.masks for column in group.columns]
            plaintext = self.spec.plaintext_columns or ()
            known = (column.partition(".")[0] for column in (*keyed, *masked, *plaintext))
        lower, first = f"{path.lower()}.", path.partition(".")[0]
        holders = (each for each in known if lower.startswith(f"{each.lower()}."))
        return max(holders, key=lambda each: (len(each), path.startswith(each)), default=first)
