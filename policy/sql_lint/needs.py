"""What a statement needs, collected: requests to the policies, and what has to hold beside.

Where the owner of a table is not known, a request says so, and is judged for the owner and for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.identifiers import TableName
from policy.location.location import Location
from policy.privileges import tables
from policy.privileges.requests import AccessRequest, Resource
from policy.sql_lint.context import LintContext, TableFacts
from policy.sql_lint.denials import Refusal
from policy.sql_lint.names import Names
from policy.sql_lint.statements import Query
from policy.visible import KnownTable

_LOADING: Final = ("select", "update", "alter")


@dataclass(frozen=True, slots=True)
class RequiredPrivilege:
    """One thing that a statement needs.

    Attributes:
        alternatives: requests, one of which has to be granted.
        owner_known: whether they name the resource's owner, where it has one.
    """

    alternatives: tuple[AccessRequest, ...]
    owner_known: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """Columns of a table that a statement reads.

    Attributes:
        name: the table.
        owner: its owner; None if that is not known.
        table: what is known of it.
        paths: the columns, those of fields dotted.
    """

    name: TableName
    owner: str | None
    table: KnownTable
    paths: tuple[str, ...]


@dataclass
class Needs:
    """Collects what a statement needs.

    Attributes:
        context: what it is judged by.
        names: how its names are resolved.
        facts: what the statements before made known of tables; None of one that is gone.
        views: temporary views, with the names as they were resolved where each was made.
        needed: what it needs.
        assumed: what has to hold beside, and is not known.
        notes: what is worth knowing of it, and denies nothing.
    """

    context: LintContext
    names: Names
    facts: Mapping[TableName, TableFacts | None]
    views: Mapping[str, tuple[Names, Query]] = field(default_factory=dict)
    needed: list[RequiredPrivilege | Read] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def known(self, name: TableName) -> TableFacts:
        """What is known of a table."""
        if name in self.facts:
            return self.facts[name] or TableFacts(None)
        return self.context.known(name) or TableFacts(self.context.owner)

    def _exists(self, name: TableName) -> bool:
        """Whether a table is known to exist."""
        return (self.facts[name] if name in self.facts else self.context.known(name)) is not None

    def code(self, what: str) -> None:
        """Code of users in the engine."""
        if self.context.engine is None:
            raise Refusal(
                "code",
                f"{what[:80]} runs code in the engine, and the engine's name is unknown.",
                "Pass --engine to check the `code` privilege on that engine.",
            )
        resource = Resource.engine(self.context.engine)
        self.needed.append(RequiredPrivilege((AccessRequest(self.context.principal, resource, "code"),)))

    def _keys(self, key_ids: Iterable[str]) -> None:
        self._all(tables.key_requests(self.context.principal, key_ids))
        self.assumed += [f"the KMS has the master key {key_id}" for key_id in sorted(key_ids)]

    def _table(self, name: TableName, access: str, facts: TableFacts | None) -> None:
        known = facts is None or facts.owner is not None
        self.needed.append(RequiredPrivilege((self._request(name, access, facts),), owner_known=known))

    def _select(self, name: TableName, column: str, facts: TableFacts) -> AccessRequest:
        resource = Resource.column(name.database, name.name, column)
        return AccessRequest(self.context.principal, resource, "select", owner=facts.owner)

    def _load(self, name: TableName, facts: TableFacts, columns: Iterable[str]) -> None:
        """A right on the table, or SELECT on one of its columns."""
        alternatives = tuple(self._request(name, access, facts) for access in _LOADING)
        alternatives += tuple(self._select(name, each, facts) for each in columns)
        self.needed.append(RequiredPrivilege(alternatives, owner_known=facts.owner is not None))

    def _request(self, name: TableName, access: str, facts: TableFacts | None) -> AccessRequest:
        owner = None if facts is None else facts.owner
        return tables.table_request(self.context.principal, name.database, name.name, access, owner)

    def _storage(self, paths: Iterable[Location], exempt: Location | None, facts: TableFacts) -> None:
        requests = tables.storage_requests(self.context.principal, paths, exempt, facts.owner)
        self.needed += [RequiredPrivilege((each,), owner_known=facts.owner is not None) for each in requests]

    def _all(self, requests: Iterable[AccessRequest]) -> None:
        self.needed += [RequiredPrivilege((each,)) for each in requests]
