"""Takes the number of distinct values of columns, which an engine counted.

The caller needs UPDATE on the table, because the numbers change how queries of others run, and SELECT on the
columns, unmasked, because they tell of the values. A plan tells them only to users who can select the column
unmasked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyiceberg.expressions import AlwaysTrue

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import authorize, counting_former, resolve, view_of
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.planning.masks import scan_of
from catalog.state import distinct_counts
from policy.errors import RequestInvalid
from policy.view import visible

_ACTION: Final = "table.analyze"


class TableStatistics:
    """Keeps statistics of tables.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def keep(self, caller: Caller, name: TableName, snapshot_id: int, counts: Mapping[str, int]) -> None:
        """Keep how many distinct values top-level columns have.

        Args:
            caller: who asks.
            name: the table.
            snapshot_id: the snapshot whose values were counted.
            counts: by the name of the column.

        Raises:
            NotAuthorized: UPDATE on the table, and SELECT on the columns are needed.
            RequestInvalid: the table has no such snapshot, or no such top-level column of a primitive type.
            MetadataUnsealed, MetadataTampered: the table failed verification.
        """
        self._context.require(caller, _ACTION, name)
        authorizer = self._context.authorizer.settled()
        with authorizer.recorded(caller, _ACTION, str(name)):
            table = self._context.loader.load_sealed(name)
            schema = table.metadata.schema()
            columns = resolve(table, schema, list(counts), AlwaysTrue(), case_sensitive=True)
            view, scan = view_of(authorizer, caller, table), scan_of(table, schema, columns, masks=False)
            reading = counting_former(view, table, columns.field_ids, visible(view, scan).reading)
            authorize(authorizer, caller, table, reading)
            if table.metadata.snapshot_by_id(snapshot_id) is None:
                raise RequestInvalid(
                    f"The table has no snapshot {snapshot_id}.",
                    table=table.name,
                    rule="snapshot",
                    hint="Query the metadata table snapshots.",
                )
            fields = {each.name: each for each in schema.fields if each.field_type.is_primitive}
            other = next((each for each in counts if each not in fields), None)
            if other is not None:
                raise RequestInvalid(
                    f"The column {other!a} is nested, or is not of a primitive type.",
                    table=table.name,
                    rule="column",
                    hint="Name top-level columns of primitive types.",
                )
            kept = {fields[each].field_id: count for each, count in counts.items()}
            distinct_counts.keep(
                self._context.engine, table.record.id, snapshot_id, kept, self._context.now_ms()
            )
