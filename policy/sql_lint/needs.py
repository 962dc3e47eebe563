"""What a statement needs, collected: requests to the policies, what is read, and what has to hold beside.

Where the owner of a table is not known, a request says so, and is judged for the owner and for others. Which
columns a query reads of which table is worked out as far as the tables are known; else every column that it
can read is required.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from policy.identifiers import TableName
from policy.known_table import KnownTable
from policy.privileges.operations import On, loading, required
from policy.privileges.requests import AccessRequest
from policy.sql_lint.context import LintContext, TableFacts
from policy.sql_lint.cursor import Name
from policy.sql_lint.denials import Refusal
from policy.sql_lint.functions import BUILT_IN
from policy.sql_lint.names import Names, table_of_state
from policy.sql_lint.statements import DescribeTable, Query
from policy.view import ColumnNames

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
        unaltered: whether they must be read as they are, without masks and row filters.
    """

    name: TableName
    owner: str | None
    table: KnownTable
    paths: tuple[str, ...]
    unaltered: bool = True


@dataclass(frozen=True, slots=True)
class EveryRow:
    """A table of which a statement removes rows, or counts files: no policy filters the rows.

    Attributes:
        name: the table.
        owner: its owner; None if that is not known.
        unmasked: the columns that no policy may mask, because others come in the place of the rows.
    """

    name: TableName
    owner: str | None
    unmasked: ColumnNames


Need: TypeAlias = RequiredPrivilege | Read | EveryRow
"""What a statement needs."""


@dataclass
class Needs:
    """Collects what a statement needs.

    Attributes:
        context: what it is judged by.
        names: how its names are resolved.
        facts: what the statements before made known of tables; None of one that is gone.
        views: temporary views, with the names as they were resolved where each was made.
        stored: permanent views that the script makes, likewise.
        needed: what it needs.
        assumed: what has to hold beside, and is not known.
        notes: what is worth knowing of it, and denies nothing.
    """

    context: LintContext
    names: Names
    facts: Mapping[TableName, TableFacts | None]
    views: Mapping[str, tuple[Names, Query]] = field(default_factory=dict)
    stored: Mapping[TableName, tuple[Names, Query]] = field(default_factory=dict)
    needed: list[Need] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def known(self, name: TableName) -> TableFacts:
        """What is known of a table."""
        if name in self.facts:
            return self.facts[name] or TableFacts(None)
        return self.context.known(name) or TableFacts(self.context.owner)

    def of_rows(self, name: Name) -> TableName:
        """The table whose rows a name means; `s.t.branch_x` is a state of `s.t`, unless it is a table."""
        found = self.names.table(name)
        base = None if self.names.hive else table_of_state(found)
        if base is None or self._exists(found):
            return found
        self.assumed.append(f"{base} is a table, and {found} is a state of it")
        return base

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

    def describe_table(self, statement: DescribeTable) -> None:
        """Loading a table's metadata: any of several rights lets one do it."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        self._any(loading(self._on(name, facts), facts.columns or ()))

    def read(self, query: Query) -> None:
        """What a query reads, and the code that it runs."""
        for each in query.functions:
            self._function(each)
        tables = [None if self._view(each) else self.of_rows(each) for each in query.tables]
        facts = [_NO_FACTS if each is None else self.known(each) for each in tables]
        paths = _paths(query, facts)
        for number, name in enumerate(tables):
            if name is not None:
                whole = number in query.whole or not paths[number]
                # Nothing enforces row filters and masks in Hive.
                unaltered = self.names.hive or query.unaltered
                self._columns(name, facts[number], None if whole else paths[number], unaltered=unaltered)
                self._stored(name)

    def _function(self, name: str) -> None:
        """A function that the engine does not bring along; the catalog's own are none of them."""
        if name.lower().removeprefix(f"{self.context.catalog.lower()}.") not in BUILT_IN:
            self.code(name)

    def _view(self, name: Name) -> bool:
        """Whether a name is that of a temporary view; then everything is asked for that the view reads."""
        found = self.views.get(name[0].lower()) if len(name) == 1 else None
        if found is None:
            return False
        names, query = found
        inner = replace(self, names=names, views={k: v for k, v in self.views.items() if v is not found})
        inner.read(query)
        return True

    def _stored(self, name: TableName) -> None:
        """A user who reads a permanent view needs SELECT on all of it, and what its text reads."""
        found = self.stored.get(name)
        if found is None:
            return
        self.assumed.append(f"no policy denies or masks a column of {name}")
        names, query = found
        stored = {each: text for each, text in self.stored.items() if each != name}
        replace(self, names=names, views={}, stored=stored).read(query)

    def _columns(
        self,
        name: TableName,
        facts: TableFacts,
        paths: set[tuple[str, ...]] | None,
        *,
        unaltered: bool = True,
    ) -> None:
        """What loading the table takes, and the right to read columns of it; None for all."""
        if paths is None:
            if facts.columns is None:
                raise Refusal(
                    "columns-unknown",
                    f"The query reads every column of {name}, whose columns are unknown.",
                    "List the columns, or pass --live to look them up.",
                )
            paths = {(each,) for each in facts.columns}
        named = {path[0] for path in paths}
        self._any(loading(self._on(name, facts), sorted(named.union(facts.columns or ()))))
        self._selected(name, facts, paths, unaltered=unaltered)

    def _selected(
        self, name: TableName, facts: TableFacts, paths: set[tuple[str, ...]], *, unaltered: bool = True
    ) -> None:
        """What a user has to see of columns, so that they are read: as they are, or through masks."""
        read = dict.fromkeys(each for path in sorted(paths) for each in _known_as(path, facts))
        self.needed.append(Read(name, facts.owner, facts.known, tuple(read), unaltered))
        if facts.nested is None:
            self.assumed.append(f"no policy denies a nested field of {name}")


_NO_FACTS: Final = TableFacts(None)


def _known_as(path: Name, facts: TableFacts) -> Iterator[str]:
    """The names by which the table knows what is read; a path that it does not know may read the column."""
    names = {each.lower(): each for each in (*(facts.columns or ()), *(facts.nested or ()))}
    read = ".".join(path)
    if facts.nested is not None and len(path) > 1 and read.lower() not in names:
        yield names.get(path[0].lower(), path[0])
    yield names.get(read.lower(), read)


def _paths(query: Query, facts: Sequence[TableFacts]) -> list[set[Name]]:
    """The columns, and the fields in them, that a query reads of each of its tables."""
    paths: list[set[Name]] = [set() for _ in facts]
    for reference in query.columns:
        holders = [number for number in reference.tables if _may_have(facts[number], reference.path[0])]
        if not holders and not reference.optional:
            raise Refusal(
                "column",
                f"No table in the query has a column {reference.path[0][:80]!a}.",
                "Correct the column name.",
            )
        for number in holders:
            paths[number].add(reference.path)
    return paths


def _may_have(facts: TableFacts, column: str) -> bool:
    """Spark finds columns whatever the case of their names."""
    return facts.columns is None or column.lower() in {each.lower() for each in facts.columns}
