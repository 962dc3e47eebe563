"""What a store of metadata pointers does: which metadata.json is a table's current one.

A `PointerStore` loads and compare-and-swaps pointers, without checks. It is not trusted: users who can write
to it directly can move a pointer, so every pointer is checked by the seals (`catalog.state.seals`).

Properties of namespaces that protect tables are stored in the governed state (`lw_namespace_property`), not
in the pointer store. Otherwise users who can write to the pointer store could disable the protection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sqlalchemy import Connection

from catalog.base.identifiers import Namespace, TableName

MAX_LOCATION_LENGTH: Final = 1000


#: Changes the binding of a name, or the seals of a commit, in the transaction that changes the pointer. So no
#: other request comes between the two. If it raises, the pointer stays. It locks the table after the pointer.
Bind = Callable[[Connection], None]


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one pointer.

    Attributes:
        name: the table.
        expected: the location that the pointer must equal.
        location: its next location; `expected` to compare the pointer only.
    """

    name: TableName
    expected: str
    location: str


class PointerStore(Protocol):
    """Stores the pointers and the namespaces."""

    def load(self, name: TableName) -> str | None:
        """Return the location of the table's current metadata.json, or None if there is no such table."""

    def settled(self, name: TableName) -> str | None:
        """Load the pointer after waiting for a move in progress. A creation in progress is not seen."""

    def create(self, name: TableName, location: str, bind: Bind | None = None) -> None:
        """Create a pointer for a table that had none.

        Raises TableExists if there is one, and NoSuchNamespace without its namespace.
        """

    def require_free(self, name: TableName) -> None:
        """Raise TableExists if a table, or a view, has the name."""

    def swap(self, moves: Sequence[Move], bind: Bind | None = None) -> TableName | None:
        """Move pointers, all or none, in one step that others see as a whole.

        Args:
            moves: the moves.
            bind: runs in the same transaction, after all pointers moved.

        Returns:
            the first table whose pointer is elsewhere, in which case nothing moved; None if all moved.
        """

    def delete(self, name: TableName, expected: str, bind: Bind | None = None) -> bool:
        """Delete the pointer if it equals `expected`; otherwise return False without a change."""

    def rename(self, source: TableName, target: TableName, expected: str, bind: Bind | None = None) -> bool:
        """Rename the pointer if it equals `expected`; otherwise return False without a change.

        Raises TableExists or NoSuchNamespace for the target.
        """

    def tables(self, namespace: Namespace, limit: int | None = None) -> list[TableName]:
        """Return the tables directly in a namespace, in the database's order of names.

        Args:
            namespace: the namespace.
            limit: at most this many.
        """

    def children(
        self, parent: Namespace, after: str | None = None, limit: int | None = None
    ) -> list[Namespace]:
        """Return the namespaces directly below another one, or at the top, in the database's order of names.

        Args:
            parent: the namespace above; empty for the top.
            after: only names after this one.
            limit: at most this many.
        """

    def namespaces(self) -> list[Namespace]:
        """Return every namespace, including parents of nested ones, sorted."""

    def namespace_properties(self, namespace: Namespace) -> dict[str, str] | None:
        """Return the properties of a namespace, or None if it does not exist."""

    def create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> None:
        """Create a namespace; NamespaceExists if there is one."""

    def change_namespace_properties(
        self, namespace: Namespace, removals: Sequence[str], updates: Mapping[str, str]
    ) -> frozenset[str]:
        """Remove and set the named properties, in one step.

        The recorded outcome is the positions of those `removals` that existed.

        Returns:
            the names that existed and were removed.

        Raises:
            NoSuchNamespace: it does not exist.
        """

    def drop_namespace(self, namespace: Namespace, unprotected: Collection[str] = ()) -> None:
        """Drop a namespace; the caller has checked that it is empty.

        Args:
            namespace: the namespace.
            unprotected: names of protecting properties that can be dropped with it.

        Raises:
            CommitConflict: it has another property that protects tables.
        """
