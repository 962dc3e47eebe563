"""Reports the columns of a table: whether new files encrypt each, its tags, and whether the caller sees it.

- A column is a leaf of the current schema, by its full dotted name (``people.element.ssn``).
- It is shown to callers who can select it, unmasked, under every name that it has or had, in every row.
- Tags are those of the encryption rules in force. They are told to callers with ALTER: others learn nothing
  of the rules.

Source: docs/rest-api.md, "Tables".
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import names_by_field, view_of
from catalog.authorization.shown import sees
from catalog.authorization.table_access import TableAccess
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.rules.encryption_policy import facts_of_table
from policy.encryption_rules import TableFacts
from policy.privileges.operations import required


@dataclass(frozen=True, slots=True)
class ColumnStanding:
    """A column of a table.

    Attributes:
        name: its full dotted name, with the levels of lists and maps.
        type: its Iceberg type.
        required: whether it has no NULL.
        encrypted: whether new files encrypt it.
        shown: whether the caller can select it, unmasked, in every row.
        tags: the tags that the encryption rules assign to it, sorted; None if the caller is not told.
    """

    name: str
    type: str
    required: bool
    encrypted: bool
    shown: bool
    tags: tuple[str, ...] | None


class ColumnReporter:
    """Reports the columns of tables.

    Args:
        context: the parts that services share.
        access: loads tables for callers.
    """

    def __init__(self, context: ServiceContext, access: TableAccess) -> None:
        self._context = context
        self._access = access

    def report(self, caller: Caller, name: TableName) -> list[ColumnStanding]:
        """Report the columns of a table, in the order of its schema.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table, or SELECT on a column of it, is needed.
            NoSuchTable, MetadataTampered, MetadataUnsealed: see `TableAccess.load`.
        """
        table = self._access.load(caller, name)
        facts, schema = facts_of_table(table), table.metadata.schema()
        current = [column for column in facts.columns if column.is_current]
        shown = self._shown(caller, table, frozenset(column.field_id for column in current))
        tags = self._tags(caller, table, facts)
        return [
            ColumnStanding(
                column.name,
                str(field.field_type),
                field.required,
                facts.key_of(column) is not None,
                column.field_id in shown,
                None if tags is None else tags.get(column.field_id, ()),
            )
            for column in current
            for field in (schema.find_field(column.field_id),)
        ]

    def _shown(self, caller: Caller, table: LoadedTable, field_ids: frozenset[int]) -> frozenset[int]:
        view = view_of(self._context.authorizer, caller, table)
        names = names_by_field(table, field_ids)
        return frozenset(each for each in field_ids if sees(view, names[each]))

    def _tags(
        self, caller: Caller, table: LoadedTable, facts: TableFacts
    ) -> dict[int, tuple[str, ...]] | None:
        on = caller.on(table.record.name, table.record.owner)
        if not self._context.authorizer.decide(required("table.alter", on)).allowed:
            return None
        return self._context.policies.encryption().tags_of(facts)
