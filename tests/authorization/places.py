"""The states of a location in the authorization matrix, and what each of them needs.

`STATES` is part of the table: can a user who can make the change at all make it with a location like this?
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.authorization.world import World

LIST: Final = "read.allowed.data.paths"
LOCATION: Final = "location"
WRITE_PATHS: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)

#: By state: what it needs when the table or its writers are sent there, and when it is only put on the list.
STATES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        "in the default location": ((), ()),
        "on the list already": (("far:storage",), ()),
        "outside, granted": (("storage",), ("storage",)),
        "outside, not granted": (("far:storage",), ("far:storage",)),
        "over another table": (("storage", "taken:alter"), ("storage",)),
        "granted, spelled otherwise": (("storage",), ("storage",)),
        "not granted, spelled otherwise": (("far:storage",), ("far:storage",)),
        "beside what is granted": (("far:storage",), ("far:storage",)),
    }
)
#: A table that does not exist has no default location to name, and nothing on its list.
NEW_TABLES: Final = tuple(STATES)[2:]
#: Where a namespace is said to lie overlaps nothing.
NAMESPACES: Final = NEW_TABLES


def needs(state: str | None, via: str) -> tuple[str, ...]:
    """What a location in this state needs."""
    if state is None:
        return ()
    sent, listed = STATES[state]
    return listed if via in (LIST, "namespace") else sent


def place(world: World, state: str, table: str | None = None) -> str:
    """A location in this state, for a table that exists or for a new one."""
    if state == "in the default location":
        assert table is not None
        return f"{world.location(table)}/{world.new('d')}"
    if state == "on the list already":
        return f"file://{world.root}/listed/{world.new('d')}"
    if state == "over another table":
        return f"file://{world.root}/granted/taken/{world.new('d')}"
    if state == "beside what is granted":
        return world.directory("granted-not")
    found = world.directory("foreign" if "not granted" in state else "granted")
    return found.replace("file:///", "file:/") if "spelled" in state else found
