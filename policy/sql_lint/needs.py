"""What a statement needs, collected: requests to the policies, and what has to hold beside.

Where the owner of a table is not known, a request says so, and is judged for the owner and for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from policy.identifiers import TableName
from policy.privileges.operations import On, required
from policy.privileges.requests import AccessRequest
from policy.sql_lint.context import LintContext, TableFacts
from policy.sql_lint.denials import Refusal
from policy.sql_lint.names import Names
from policy.sql_lint.statements import Query
from policy.visible import KnownTable

#: Owner in requests on a table whose owner is not known; no user has this name.
UNKNOWN_OWNER: Final = ""

#: Requests, one of which has to be granted.
RequiredPrivilege: TypeAlias = tuple[AccessRequest, ...]


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
        self._all(required("engine.code", On.engine(self.context.principal, self.context.engine)))

    def _on(self, name: TableName, facts: TableFacts) -> On:
        """A table as what an operation is about, with its owner as far as it is known."""
        return On.table(self.context.principal, name, facts.owner or UNKNOWN_OWNER)

    def _all(self, requests: Iterable[AccessRequest]) -> None:
        """Each of these requests has to be granted."""
        self.needed += [(each,) for each in requests]

    def _any(self, requests: Iterable[AccessRequest]) -> None:
        """One of these requests has to be granted."""
        self.needed.append(tuple(requests))
