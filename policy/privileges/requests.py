"""What may be asked of the policies: who wants to do what to which resource.

Rules:
- A resource is named by the levels of its hierarchy, from the top: ``database``, ``table``, ``column``. Names
  in a request are literal: a table called ``*`` is a table called ``*``.
- A request that cannot mean anything (an access type that its resource does not have, an empty name) cannot
  be built.
- A location stands for itself and everything below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from policy.errors import RequestInvalid
from policy.location.location import Location
from policy.principal import Principal

ALL: Final = "all"
"""Every access type of the resource: granted only where each of them is."""

ANY: Final = "_any"
"""Any access type, at the resource or below it: what decides whether a resource is visible."""

MAX_NAME_LENGTH: Final = 4096
"""Longest name of one level, in characters."""

STORAGE_TYPE: Final = "iceberg"
"""The one storage type that is asked for."""

_CATALOG_ACCESS: Final = frozenset({"select", "update", "create", "drop", "alter", "unprotect"})

ACCESS_TYPES: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    ("database",): _CATALOG_ACCESS,
    ("database", "table"): _CATALOG_ACCESS,
    ("database", "table", "column"): _CATALOG_ACCESS,
    ("url",): frozenset({"read", "write"}),
    ("storage-type", "storage-url"): frozenset({"rwstorage"}),
    ("key",): frozenset({"use", "release", "rotate", "destroy"}),
    ("engine",): frozenset({"act", "code"}),
    ("service",): frozenset({"admin", "audit", "enforce"}),
}
"""The single access types of each kind of resource, by its levels."""


class Through(StrEnum):
    """How a user reads a table."""

    ENGINE = "engine"
    """A trusted engine, which holds back the columns that the user cannot read."""
    PROCESS = "process"
    """The user's own process."""
    STANDARD_CLIENT = "standard-client"
    """An Iceberg client without Lakewarden."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A thing that access is asked to; use the constructors named after the kinds.

    Attributes:
        levels: names of the levels, from the top: ``("database", "table")``.
        values: the literal name at each level.

    Raises:
        RequestInvalid: for levels that no hierarchy has, and for an empty or over-long name.
    """

    levels: tuple[str, ...]
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.levels not in ACCESS_TYPES or len(self.values) != len(self.levels):
            raise RequestInvalid(f"No resource has the levels {'/'.join(self.levels)}.", rule="resource")
        for level, value in zip(self.levels, self.values, strict=True):
            if not value or len(value) > MAX_NAME_LENGTH:
                raise RequestInvalid(
                    f"The {level} name has {len(value)} characters. It must have 1 to {MAX_NAME_LENGTH}.",
                    rule="resource",
                )

    @classmethod
    def database(cls, database: str) -> Resource:
        """A namespace, its levels joined by dots."""
        return cls(("database",), (database,))

    @classmethod
    def table(cls, database: str, table: str) -> Resource:
        """A table; what is asked of it is not asked of each column."""
        return cls(("database", "table"), (database, table))

    @classmethod
    def column(cls, database: str, table: str, column: str) -> Resource:
        """A column; nested fields are dotted."""
        return cls(("database", "table", "column"), (database, table, column))

    @classmethod
    def url(cls, location: Location | str) -> Resource:
        """A location that is read or written directly.

        Raises:
            LocationInvalid: for a text that is not an unambiguous location.
        """
        return cls(("url",), (_canonical(location),))

    @classmethod
    def storage(cls, location: Location | str) -> Resource:
        """A location that a table may be read from (RWStorage).

        Raises:
            LocationInvalid: for a text that is not an unambiguous location.
        """
        return cls(("storage-type", "storage-url"), (STORAGE_TYPE, _canonical(location)))

    @classmethod
    def key(cls, master_key_id: str) -> Resource:
        """A master key in the key management service."""
        return cls(("key",), (master_key_id,))

    @classmethod
    def engine(cls, name: str) -> Resource:
        """An engine that acts for its users."""
        return cls(("engine",), (name,))

    @classmethod
    def service(cls, name: str) -> Resource:
        """The catalog service itself."""
        return cls(("service",), (name,))

    @property
    def access_types(self) -> frozenset[str]:
        """The single access types that this kind of resource has."""
        return ACCESS_TYPES[self.levels]

    def __str__(self) -> str:
        names = self.values[-1:] if self.levels[-1] == "storage-url" else self.values
        return f"{self.levels[-1]} {'.'.join(names)}"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One question to the policies.

    Attributes:
        principal: who asks.
        resource: what is asked for.
        access: one of the resource's access types, `ANY`, or (for database, table and column) `ALL`.
        owner: name of the user who owns the resource; None where nobody does.

    Raises:
        RequestInvalid: for an access type that the resource does not have.
    """

    principal: Principal
    resource: Resource
    access: str
    owner: str | None = None

    def __post_init__(self) -> None:
        known = self.resource.access_types
        if self.access in known or self.access == ANY:
            return
        if self.access == ALL and known is _CATALOG_ACCESS:
            return
        raise RequestInvalid(
            f"A {self.resource.levels[-1]} has no access type {self.access!r}.",
            rule="access-type",
            hint=f"Use one of: {', '.join(sorted(known))}.",
        )


def _canonical(location: Location | str) -> str:
    return (Location.parse(location) if isinstance(location, str) else location).canonical
