"""From what a statement says to what the catalog would ask for it.

Each function here follows a door of the catalog and uses the gates that it uses: creation and drafts for
CREATE TABLE, commits for ALTER, lifecycle for RENAME and DROP, namespaces, the planner for what is read.
Where the catalog would look at a table's present state and that is not known, everything is asked for that it
might ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from policy import gates, wanted
from policy import governed as governed_names
from policy.allowlist import AllowList
from policy.ddl import protection
from policy.ddl.context import LintContext, TableFacts
from policy.ddl.cursor import Name
from policy.ddl.functions import BUILT_IN
from policy.ddl.names import Names
from policy.ddl.refusals import Refusal
from policy.ddl.statements import (
    AlterColumns,
    AlterProperties,
    Column,
    CreateTable,
    DropTable,
    Insert,
    Look,
    Namespace,
    Query,
    RenameTable,
)
from policy.encryption import EncryptionSpec, judge_sources, resolve_columns
from policy.errors import EncryptionPolicyViolation, UnsupportedFormatVersion
from policy.identifiers import TableName, slug
from policy.location import Location
from policy.namespace_gates import check_namespace_properties, namespace_requests
from policy.requests import AccessRequest, Resource

_FORMAT_VERSION: Final = "format-version"
_WRITTEN: Final = "2"
_LOADING: Final = ("select", "update", "alter")


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing that a statement needs.

    Attributes:
        ways: requests, one of which has to be granted.
        owner_known: whether they say whose the resource is, where it is somebody's.
        reads: whether a column is read, so that no mask may be in the way.
        unless_denied: whether it is enough that no policy speaks against it.
    """

    ways: tuple[AccessRequest, ...]
    owner_known: bool = True
    reads: bool = False
    unless_denied: bool = False


@dataclass
class Asks:
    """Collects what a statement needs.

    Attributes:
        context: what it is judged by.
        names: how its names are resolved.
        facts: what the statements before made known of tables; None of one that is gone.
        views: temporary views, with the names as they were resolved where each was made.
        needed: what it needs.
        assumed: what has to hold beside, and is not known.
    """

    context: LintContext
    names: Names
    facts: Mapping[TableName, TableFacts | None]
    views: Mapping[str, tuple[Names, Query]] = field(default_factory=dict)
    needed: list[Ask] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)

    def known(self, name: TableName) -> TableFacts:
        """What is known of a table."""
        if name in self.facts:
            return self.facts[name] or TableFacts(None)
        return self.context.known(name) or TableFacts(self.context.owner)

    def _exists(self, name: TableName) -> bool:
        """Whether a table is known to exist."""
        return (self.facts[name] if name in self.facts else self.context.known(name)) is not None

    def create_table(self, statement: CreateTable) -> tuple[TableName, TableFacts]:
        """CREATE TABLE; what is known of the table afterwards."""
        name = self.names.table(statement.name)
        governed, ordinary = governed_names.split(statement.properties)
        _check_ordinary(ordinary, str(name))
        location = None if statement.location is None else Location.parse(statement.location)
        if location is not None:
            gates.check_table_location(location, str(name))
            self.assumed.append(f"no other table lies at or around {location}")
        asked = wanted.for_new_table(governed, location, self.context.master_key_id, str(name))
        paths = {*asked.added, *gates.write_paths(ordinary), *([location] if location else [])}
        self._table(name, "create", None)
        self._storage(paths, None, TableFacts(self.context.principal.name))
        self._keys(asked.new_keys)
        facts = self._made(statement, asked, location)
        protection.require_new(self.context.encryption, name, facts)
        _check_columns(statement, asked.spec, facts, str(name))
        if statement.like is not None:
            self.look(Look(statement.like))
        if statement.query is not None:
            self.read(statement.query)
            if governed_names.ALLOWED_PATHS in governed:
                self._require_own_place(name, asked.allowed, location)
        if statement.may_exist:
            # If it is there it stays as it is, and somebody else's.
            return name, self.known(name)
        if self._exists(name):
            raise Refusal("table-exists", f"The table {name} exists.", "Take another name.")
        self.assumed.append(f"there is no table {name} yet")
        return name, facts

    def alter_properties(self, statement: AlterProperties) -> tuple[TableName, TableFacts]:
        """SET and UNSET of properties; what is known of the table afterwards."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        governed, ordinary = governed_names.split(statement.updates)
        governed_names.check_count(len(statement.removals))
        _check_ordinary(ordinary, str(name), new=False)
        unset = {each for each in statement.removals if governed_names.is_governed(each)}
        removed = frozenset(governed_names.canonical_name(each) for each in unset)
        moved = gates.write_paths(ordinary)
        if statement.location is not None:
            moved.append(Location.parse(statement.location))
        for each in moved:
            gates.check_table_location(each, str(name))
            self.assumed.append(f"no other table lies at or around {each}")
        self._table(name, "alter", facts)
        asked = self._next(facts, governed, removed, str(name))
        own = facts.location if facts.default_location else None
        self._storage([*moved, *asked.added], own, facts)
        self._keys(asked.new_keys)
        if asked.unprotects:
            self._table(name, "unprotect", facts)
        if governed or removed:
            self.assumed.append("no live snapshot needs a location that the allowed list would lose")
        if governed or removed:
            self._check_keyed(asked.spec, facts)
        after = _with(facts, asked, touched=bool(governed or removed))
        if after.spec is None or after.spec != facts.spec:
            protection.require_change(self.context.encryption, name, facts, after)
        return name, after

    def alter_columns(self, statement: AlterColumns) -> tuple[TableName, TableFacts]:
        """A change of columns; what is known of the table afterwards."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        after = protection.with_columns(facts, statement)
        self._table(name, "alter", facts)
        protection.require_change(self.context.encryption, name, facts, after)
        self.assumed.append("the table's columns and their types allow the change")
        if facts.spec is not None and facts.spec.columns:
            self.assumed.append("a column is left that encryption.columns names")
        return name, after

    def rename(self, statement: RenameTable) -> tuple[TableName, TableName]:
        """RENAME TO: the table, and what it is called then."""
        source = self.names.table(statement.name)
        target = self.names.beside(source, statement.target)
        self._table(source, "alter", self.known(source))
        self._table(target, "create", None)
        facts = self.known(source)
        if protection.require_name(self.context.encryption, source, target, facts):
            self._table(source, "unprotect", facts)
        elif source.namespace != target.namespace:
            self.assumed.append(
                f"the table may have unsealed metadata where it is, or may not in {target.database}"
            )
        return source, target

    def drop_table(self, statement: DropTable) -> TableName:
        """DROP TABLE; of a temporary view Spark drops the view instead."""
        if len(statement.name) == 1 and statement.name[0].lower() in self.views:
            raise Refusal(
                "view", f"{statement.name[0][:80]!a} is a temporary view.", "Drop it with DROP VIEW."
            )
        name = self.names.table(statement.name)
        self._table(name, "drop", self.known(name))
        return name

    def insert(self, statement: Insert) -> None:
        """INSERT INTO."""
        name = self.names.table(statement.name)
        self._table(name, "update", self.known(name))
        self.read(statement.query)

    def look(self, statement: Look) -> None:
        """Loading a table's metadata: any of several rights lets one do it."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        self._load(name, facts, facts.columns or ())

    def namespace(self, statement: Namespace) -> None:
        """An operation on a namespace; on the catalog itself nothing is asked for."""
        current = statement.name is None
        levels = self.names.current_namespace() if current else self.names.namespace(statement.name or ())
        if not levels:
            if statement.access != "_any":
                raise Refusal("namespace", "The catalog itself is no namespace.", "Name a namespace.")
            return
        check_namespace_properties(statement.updates)
        database = ".".join(levels)
        principal, access = self.context.principal, statement.access
        removals, updates = statement.removals, statement.updates
        self._all(namespace_requests(principal, database, access, updates, removals))
        if statement.cascades:
            self.assumed.append("the namespace is empty: CASCADE does not drop its tables")

    def code(self, what: str) -> None:
        """Code of users in the engine."""
        if self.context.engine is None:
            raise Refusal(
                "code",
                f"{what[:80]} runs code in the engine, and which engine that is, is not known.",
                "Give --engine, to ask whether the user may run code in it.",
            )
        resource = Resource.engine(self.context.engine)
        self.needed.append(Ask((AccessRequest(self.context.principal, resource, "code"),)))

    def read(self, query: Query) -> None:
        """What a query reads, and the code that it runs."""
        for each in query.functions:
            self._function(each)
        tables = [None if self._view(each) else self.names.table(each) for each in query.tables]
        facts = [_NO_FACTS if each is None else self.known(each) for each in tables]
        paths = _paths(query, facts)
        for number, name in enumerate(tables):
            if name is not None:
                whole = number in query.whole or not paths[number]
                self._columns(name, facts[number], None if whole else paths[number])

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

    def _columns(self, name: TableName, facts: TableFacts, paths: set[tuple[str, ...]] | None) -> None:
        """What loading the table takes, and SELECT on top-level columns.

        On what is nested in these, it is enough that no policy speaks against it.
        """
        if paths is None:
            if facts.columns is None:
                raise Refusal(
                    "columns-unknown",
                    f"Every column of {name} is read, and which ones it has is not known.",
                    "Name the columns, or give --live to look them up.",
                )
            paths = {(each,) for each in facts.columns}
        top_level = sorted({path[0] for path in paths})
        self._load(name, facts, top_level)
        for column in top_level:
            self._column(name, column, facts, unless_denied=False)
        nested = {".".join(path) for path in paths if len(path) > 1}
        nested |= {each for each in facts.nested or () if any(_reads(path, each, facts) for path in paths)}
        for column in sorted(nested):
            self._column(name, column, facts, unless_denied=True)
        if facts.nested is None:
            self.assumed.append(f"no policy withholds a field inside of a column of {name}")

    def _column(self, name: TableName, column: str, facts: TableFacts, *, unless_denied: bool) -> None:
        request = self._select(name, column, facts)
        self.needed.append(Ask((request,), facts.owner is not None, reads=True, unless_denied=unless_denied))

    def _next(
        self, facts: TableFacts, governed: Mapping[str, str], removed: frozenset[str], table: str
    ) -> wanted.Wanted:
        """What governs an existing table next; where its present state is not known, at its widest."""
        key = self.context.master_key_id
        place_counts = governed_names.ALLOWED_PATHS in removed
        place = facts.location or (None if place_counts else _ANYWHERE)
        if facts.allowed is not None and facts.spec is not None and place is not None:
            return wanted.for_change(facts.allowed, facts.spec, governed, removed, place, key, table)
        if place_counts:
            raise Refusal(
                "state-unknown",
                "The allowed list would go back to the table's own location, which is not known.",
                "Give --live to look it up, or set the list.",
            )
        return _widest(governed, removed, key, table)

    def _check_keyed(self, spec: EncryptionSpec, facts: TableFacts) -> None:
        """Columns that get keys are there, as far as it is known which are."""
        if not spec.columns:
            return
        self.assumed.append("no column with a key partitions or sorts the table")
        if facts.columns is None or facts.nested is None:
            self.assumed.append("the table has the columns that encryption.columns names")
        else:
            names = [*facts.columns, *facts.nested]
            resolve_columns(spec, {name: number for number, name in enumerate(names, start=1)})

    def _require_own_place(self, name: TableName, allowed: AllowList, location: Location | None) -> None:
        """What is written with a table's creation has to be readable: its list covers its own place."""
        place = location or _above_default(self.context.warehouse, name)
        if place is None:
            self.assumed.append("the allowed list covers the place that the table gets")
        elif not allowed.covers(place):
            raise Refusal(
                "allowed-paths",
                "The table's own location is not in its allowed list; what is written could not be read.",
                "Add it to read.allowed.data.paths.",
            )

    def _made(self, statement: CreateTable, asked: wanted.Wanted, location: Location | None) -> TableFacts:
        columns = nested = leaves = None
        if statement.columns is not None:
            columns = tuple(each.name[-1] for each in statement.columns)
            nested = tuple(name for each in statement.columns for name in each.inside)
            leaves = protection.leaves_of(statement.columns)
        elif statement.query is not None and statement.query.outputs is not None:
            columns = statement.query.outputs
            leaves = protection.leaves_of(Column((each,)) for each in columns)
        return TableFacts(
            owner=self.context.principal.name,
            columns=columns,
            nested=nested,
            leaves=leaves,
            allowed=asked.allowed,
            spec=asked.spec,
            location=location,
            default_location=location is None,
        )

    def _select(self, name: TableName, column: str, facts: TableFacts) -> AccessRequest:
        resource = Resource.column(name.database, name.name, column)
        return AccessRequest(self.context.principal, resource, "select", owner=facts.owner)

    def _load(self, name: TableName, facts: TableFacts, columns: Iterable[str]) -> None:
        """A right on the table, or SELECT on one of its columns."""
        ways = tuple(self._request(name, access, facts) for access in _LOADING)
        ways += tuple(self._select(name, each, facts) for each in columns)
        self.needed.append(Ask(ways, owner_known=facts.owner is not None))

    def _keys(self, key_ids: Iterable[str]) -> None:
        self._all(gates.key_requests(self.context.principal, key_ids))
        self.assumed += [f"the KMS has the master key {key_id}" for key_id in sorted(key_ids)]

    def _table(self, name: TableName, access: str, facts: TableFacts | None) -> None:
        known = facts is None or facts.owner is not None
        self.needed.append(Ask((self._request(name, access, facts),), owner_known=known))

    def _request(self, name: TableName, access: str, facts: TableFacts | None) -> AccessRequest:
        owner = None if facts is None else facts.owner
        return gates.table_request(self.context.principal, name.database, name.name, access, owner)

    def _storage(self, paths: Iterable[Location], exempt: Location | None, facts: TableFacts) -> None:
        requests = gates.storage_requests(self.context.principal, paths, exempt, facts.owner)
        self.needed += [Ask((each,), owner_known=facts.owner is not None) for each in requests]

    def _all(self, requests: Iterable[AccessRequest]) -> None:
        self.needed += [Ask((each,)) for each in requests]


#: A list is never sent back to this: see `Asks._next`.
_ANYWHERE: Final = Location.parse("file:///lakewarden/unknown")


def _above_default(warehouse: Location | None, name: TableName) -> Location | None:
    """The directory below which the catalog chooses a new table's place."""
    return None if warehouse is None else warehouse.child(*(slug(level) for level in name.namespace))


def _reads(path: Name, field: str, facts: TableFacts) -> bool:
    """Whether to read `path` is to read `field`; a path that is written in another way may read all."""
    read, known = ".".join(path).lower(), {each.lower() for each in facts.nested or ()}
    above = read if len(path) == 1 or read in known else path[0].lower()
    return f"{field.lower()}.".startswith(f"{above}.")


_NO_FACTS: Final = TableFacts(None)


def _paths(query: Query, facts: Sequence[TableFacts]) -> list[set[Name]]:
    """The columns, and the fields in them, that a query reads of each of its tables."""
    paths: list[set[Name]] = [set() for _ in facts]
    for reference in query.columns:
        holders = [number for number in reference.tables if _may_have(facts[number], reference.path[0])]
        if not holders and not reference.optional:
            raise Refusal(
                "column", f"No table of the query has a column {reference.path[0][:80]!a}.", "Correct it."
            )
        for number in holders:
            paths[number].add(reference.path)
    return paths


def _widest(
    governed: Mapping[str, str], removed: frozenset[str], key: str | None, table: str
) -> wanted.Wanted:
    """All that a change could bring or take away, whatever governs the table now."""
    nothing = EncryptionSpec.parse({}, catalog_master_key_id=key)
    given = wanted.for_change(AllowList.of([]), nothing, governed, frozenset(), _ANYWHERE, key, table)
    keys = set(given.new_keys)
    if removed and key is not None:
        keys.add(key)
    touched = bool(removed) or (governed_names.MECHANISM in governed and not given.spec.encrypts)
    return wanted.Wanted(given.allowed, given.spec, given.added, tuple(sorted(keys)), touched)


def _with(facts: TableFacts, asked: wanted.Wanted, *, touched: bool) -> TableFacts:
    if not touched:
        return facts
    certain = facts.allowed is not None and facts.spec is not None
    return replace(facts, allowed=asked.allowed if certain else None, spec=asked.spec if certain else None)


def _may_have(facts: TableFacts, column: str) -> bool:
    """Spark finds columns whatever the case of their names."""
    return facts.columns is None or column.lower() in {each.lower() for each in facts.columns}


def _check_ordinary(ordinary: Mapping[str, str], table: str, *, new: bool = True) -> None:
    gates.check_ordinary_properties(ordinary, table)
    gates.refuse_location_property(ordinary, table)
    version = ordinary.get(_FORMAT_VERSION, _WRITTEN)
    if new and version != _WRITTEN:
        raise UnsupportedFormatVersion(
            f"Tables of format version {version[:20]!r} are not written here.",
            table=table,
            rule="format-version",
            hint=f"Use format version {_WRITTEN}.",
        )


def _check_columns(statement: CreateTable, spec: EncryptionSpec, facts: TableFacts, table: str) -> None:
    """Encrypted columns exist, and are neither partition nor sort sources."""
    names = [*(facts.columns or ()), *(facts.nested or ())]
    ids = {name: number for number, name in enumerate(names, start=1)}
    sources = [".".join(each) for each in statement.sources]
    unknown = [each for each in sources if facts.columns is not None and not _has(each, names)]
    if unknown:
        raise Refusal("partition-spec", f"There is no column {unknown[0][:80]!a}.", "Correct it.")
    if not spec.encrypts:
        return
    keyed = resolve_columns(spec, ids)
    folded = {name.lower(): number for name, number in ids.items()}
    decision = judge_sources(spec, keyed, [folded.get(each.lower(), 0) for each in sources])
    if not decision.allowed:
        raise EncryptionPolicyViolation(
            decision.explanation,
            table=table,
            rule=decision.reasons[0].rule,
            hint="Partition by columns that are not encrypted.",
        )


def _has(column: str, names: Iterable[str]) -> bool:
    return column.lower() in {each.lower() for each in names}
