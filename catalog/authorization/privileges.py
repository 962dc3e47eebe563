"""Required privileges for changes of locations, properties and keys.

What needs no state is in `policy.privileges.tables`. What does stands here: each other table whose location
overlaps needs ALTER on that table.
"""

from __future__ import annotations

from collections.abc import Iterable

from catalog.state.table_state import TableRecord
from policy.principal import Principal
from policy.privileges.requests import AccessRequest
from policy.privileges.tables import (
    MAX_TABLE_LOCATION,
    WRITE_PATHS,
    check_ordinary_properties,
    check_table_location,
    configures_readers,
    key_requests,
    refuse_location_property,
    storage_requests,
    table_request,
    write_paths,
)

__all__ = [
    "MAX_TABLE_LOCATION",
    "WRITE_PATHS",
    "check_ordinary_properties",
    "check_table_location",
    "configures_readers",
    "key_requests",
    "overlap_requests",
    "refuse_location_property",
    "storage_requests",
    "table_request",
    "write_paths",
]


def overlap_requests(principal: Principal, others: Iterable[TableRecord]) -> list[AccessRequest]:
    """Return requests for ALTER on each other table whose location overlaps."""
    return [
        table_request(principal, other.name.database, other.name.name, "alter", other.owner)
        for other in others
    ]
