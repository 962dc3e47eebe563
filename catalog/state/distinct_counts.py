"""Keeps how many distinct values the columns of a table have, as an engine counted them last.

They are estimates for the optimizer of an engine. They stay in the database, because a statistics file in
storage is in plaintext, and the number of values of an encrypted column tells of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Engine, delete, insert, select

from catalog.db.engine import read, write
from catalog.db.schema import lw_distinct_count, lw_table

_COLUMNS = lw_distinct_count.c


def keep(engine: Engine, table_id: str, snapshot_id: int, counts: Mapping[int, int], now_ms: int) -> None:
    """Replace what is known of some columns.

    Args:
        engine: the catalog's database.
        table_id: the table's internal id.
        snapshot_id: the snapshot whose values were counted.
        counts: distinct values by column id.
        now_ms: the time, in milliseconds since 1970.
    """
    rows = [
        {
            "table_id": table_id,
            "field_id": field_id,
            "snapshot_id": snapshot_id,
            "distinct_values": count,
            "counted_ms": now_ms,
        }
        for field_id, count in counts.items()
    ]
    with write(engine) as connection:
        # Two counts of a table at the same time follow one another.
        connection.execute(select(lw_table.c.id).where(lw_table.c.id == table_id).with_for_update())
        connection.execute(
            delete(lw_distinct_count).where(_COLUMNS.table_id == table_id, _COLUMNS.field_id.in_(counts))
        )
        if rows:
            connection.execute(insert(lw_distinct_count), rows)


def known(engine: Engine, table_id: str, field_ids: Collection[int]) -> dict[int, int]:
    """Return by column id what is known of some columns."""
    with read(engine) as connection:
        found = connection.execute(
            select(_COLUMNS.field_id, _COLUMNS.distinct_values).where(
                _COLUMNS.table_id == table_id, _COLUMNS.field_id.in_(field_ids)
            )
        )
        return {each.field_id: each.distinct_values for each in found}
