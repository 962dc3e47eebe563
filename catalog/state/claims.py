"""Location claims: prevents tables in overlapping locations.

Policies decide whether an overlap is allowed (`table_access.overlap_requests`). This module finds overlaps,
and compares them with the authorized ones in the transaction that claims the location.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, bindparam, func, or_, select

from catalog.base.errors import CommitConflict
from catalog.db.schema import lw_table, lw_write
from catalog.state import table_state
from catalog.state.table_state import TableRecord, TableState
from catalog.state.write_states import ALIVE
from policy.location.location import Location
from policy.location.overlaps import with_ancestors

#: How long a creation can be in progress before it counts as interrupted.
_CREATION_MS: Final = 15 * 60 * 1000
#: The advisory lock for claiming locations on PostgreSQL: an arbitrary number that nothing else uses.
_LOCATIONS_LOCK: Final = 0x6C61_6B65_6C6F_6373

#: Ids of tables with a write that is neither aborted nor expired.
_BEING_WRITTEN: Final = select(lw_write.c.table_id).where(
    lw_write.c.state.in_(ALIVE), lw_write.c.expires_ms > bindparam("now_ms")
)
_CLAIMING: Final = select(lw_table).where(
    lw_table.c.catalog == bindparam("catalog"),
    lw_table.c.state != TableState.PURGED,
    or_(
        lw_table.c.state != TableState.PREPARED,
        lw_table.c.created_ms > bindparam("began_after_ms"),
        lw_table.c.id.in_(_BEING_WRITTEN),
    ),
)
#: Each signature of a request that writes runs this statement, so it is built once. Both parts read an index.
_OVERLAPPING: Final = _CLAIMING.where(lw_table.c.location.in_(bindparam("around", expanding=True))).union_all(
    _CLAIMING.where(lw_table.c.location > bindparam("inside"), lw_table.c.location < bindparam("beyond"))
)
#: The character after the slash: what is inside of a location is in order between the two.
_AFTER_SLASH: Final = chr(ord("/") + 1)


def overlapping_any(
    connection: Connection,
    catalog: str,
    locations: Iterable[Location],
    except_id: str | None,
    now_ms: int,
) -> list[TableRecord]:
    """Return other tables whose location overlaps one of several, each table once; see `overlapping`."""
    found = {
        record.id: record
        for location in dict.fromkeys(locations)
        for record in overlapping(connection, catalog, location, except_id, now_ms)
    }
    return list(found.values())


def overlapping(
    connection: Connection, catalog: str, location: Location, except_id: str | None, now_ms: int
) -> list[TableRecord]:
    """Return other tables whose location contains `location` or is inside it.

    Dropped tables count until they are purged. A creation in progress counts: with a staged write as long as
    the write can be committed, otherwise for a limited time.
    """
    wanted = {
        "catalog": catalog,
        "now_ms": now_ms,
        "began_after_ms": now_ms - _CREATION_MS,
        "around": with_ancestors(location),
        "inside": location.canonical + "/",
        "beyond": location.canonical + _AFTER_SLASH,
    }
    rows = connection.execute(_OVERLAPPING, wanted)
    return [table_state.table_of(row) for row in rows if row.id != except_id]


def require_unclaimed(
    connection: Connection, catalog: str, record: TableRecord, overlaps: frozenset[str], now_ms: int
) -> None:
    """Check, under a lock, that no table has claimed the location since overlaps were authorized.

    Args:
        connection: in the transaction that claims the location.
        catalog: the catalog's name.
        record: the table, with the location that it is getting.
        overlaps: ids of the tables that the location is allowed to overlap.
        now_ms: the time in milliseconds.

    Raises:
        CommitConflict: another table claimed an overlapping location.
    """
    lock_locations(connection)
    others = overlapping(connection, catalog, record.location, record.id, now_ms)
    if not overlaps.issuperset(other.id for other in others):
        raise CommitConflict(
            "Another table claimed an overlapping location at the same time.",
            table=str(record.name),
            rule="overlap",
            hint="Choose another location, then try again.",
        )


def is_shared(connection: Connection, catalog: str, record: TableRecord, now_ms: int) -> bool:
    """Return whether files below a table's location can belong to other tables.

    They can if the catalog did not choose the location, or if another table is located there or can be read
    from there.
    """
    return not record.default_location or meets_others(connection, catalog, record, now_ms)


def meets_others(connection: Connection, catalog: str, record: TableRecord, now_ms: int) -> bool:
    """Return whether another table's location meets a table's, or another table can be read from there."""
    return shared(connection, catalog, [record.location], record.id, now_ms) is not None


def shared(
    connection: Connection, catalog: str, locations: Iterable[Location], except_id: str, now_ms: int
) -> Location | None:
    """Return the first of several locations that another table's location meets, or that another table can be
    read from; None if they are the table's own.
    """
    given = list(dict.fromkeys(locations))
    for each in given:
        if overlapping(connection, catalog, each, except_id, now_ms):
            return each
    lists = table_state.allowed_of_others(connection, catalog, except_id, _fragments(given))
    entries = [entry for allowed in lists for entry in allowed.entries]
    return next((each for each in given if any(_meet(each, entry) for entry in entries)), None)


def lock_locations(connection: Connection) -> None:
    """Serialize transactions that claim locations or change allow-lists; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCATIONS_LOCK)))


def _meet(one: Location, other: Location) -> bool:
    return one.contains(other) or other.contains(one)


def _fragments(locations: Iterable[Location]) -> set[str]:
    """Return what a stored list has if one of its entries meets one of these: it begins so, or is above."""
    found = set()
    for each in locations:
        found |= {json.dumps(above) for above in with_ancestors(each)}
        found.add(json.dumps(each.canonical)[:-1])
    return found
