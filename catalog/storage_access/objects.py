"""What is decided about objects in the object store, whatever the state of the table that they are of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Final

from catalog.state.table_state import TableRecord
from policy.decision import Decision, Reason
from policy.location.location import Location

NO_WRITES: Final = Decision.deny(
    Reason("write-locations", "The location is not below one that the user can write for the table.")
)
SHARED: Final = Decision.deny(
    Reason("shared-location", "Another table lies in the table's location, or can be read from there.")
)
KEPT: Final = Decision.deny(Reason("gc-enabled", "The table sets gc.enabled=false."))
WRITTEN: Final = Decision.allow(Reason("write-locations", "The user can write below the location."))


def is_below(locations: Iterable[Location], file: Location) -> bool:
    """Return whether a file lies below one of the locations, and is none of them."""
    return any(each.contains(file) and each != file for each in locations)


def any_lies_in(locations: Collection[Location], others: Iterable[TableRecord]) -> bool:
    """Return whether one of other tables lies in one of the locations."""
    return any(each.contains(other.location) for other in others for each in locations)


class ObjectAccess(ABC):
    """What a caller's client can do with objects."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The dotted name of the table."""

    @abstractmethod
    def decide_read(self, file: Location) -> Decision:
        """Decide whether the content of a file can be read."""

    @abstractmethod
    def decide_look(self, file: Location) -> Decision:
        """Decide whether it can be asked if there is a file, and how large it is."""

    @abstractmethod
    def decide_create(self, file: Location) -> Decision:
        """Decide whether a file can be created; it is for the request to say that it overwrites none."""

    @abstractmethod
    def decide_delete(self, file: Location) -> Decision:
        """Decide whether a file can be deleted."""

    @abstractmethod
    def decide_list(self, directory: Location) -> Decision:
        """Decide whether names below a directory can be listed."""
