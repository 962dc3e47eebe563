"""Stores metadata pointers in SQL tables with the layout of pyiceberg's `SqlCatalog`.

An existing catalog database can be adopted, and other tools can still read it.

Each change records the outcome of its request in the same transaction (`catalog.state.idempotency.settle`),
and a commit what it records (`catalog.state.commit_records.settle`). A write is
closed, and one that is no longer open is not published (`catalog.state.open_writes.settle`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.exc import IntegrityError

from catalog.base.errors import CommitConflict
from catalog.base.existence import namespace_exists, no_namespace, table_exists, table_rename_taken
from catalog.base.identifiers import Namespace, TableName
from catalog.db.engine import read, write
from catalog.db.inserts import insert_into
from catalog.db.prepared import Prepared
from catalog.db.schema import iceberg_namespace_properties, iceberg_tables, lw_namespace_property
from catalog.state import commit_records, open_writes
from catalog.state.idempotency import settle
from catalog.state.pointers import MAX_LOCATION_LENGTH, Bind, Move
from policy.errors import RequestInvalid
from policy.privileges.namespaces import PROTECTING

#: A namespace without properties still has a row, as in pyiceberg; a changed namespace keeps this row.
_EXISTS: Final = {"exists": "true"}
_TABLE: Final = "TABLE"


class _Elsewhere(Exception):
    """Rolls a transaction back because the pointer of a table is not where it was expected."""

    def __init__(self, name: TableName) -> None:
        super().__init__(str(name))
        self.name = name


def is_table() -> ColumnElement[bool]:
    """Return whether a row is a table; other tools store views in the same table."""
    kind = iceberg_tables.c.iceberg_type
    return or_(kind.is_(None), kind == _TABLE)


def _bind(connection: Connection, bind: Bind | None) -> None:
    if bind is not None:
        bind(connection)


_LOCATION: Final = Prepared(
    select(iceberg_tables.c.metadata_location).where(
        *(
            iceberg_tables.c[name] == bindparam(name)
            for name in ("catalog_name", "table_namespace", "table_name")
        ),
        is_table(),
    )
)
#: By table. Each list and creation runs these statements, so they are built once.
_PROPERTIES: Final = {
    table.name: select(table.c.property_key, table.c.property_value).where(
        table.c.catalog_name == bindparam("catalog_name"), table.c.namespace == bindparam("namespace")
    )
    for table in (iceberg_namespace_properties, lw_namespace_property)
}


class SqlPointerStore:
    """Pointers in SQL tables with pyiceberg's layout.

    Args:
        engine: the database.
        catalog: the catalog's name, part of every key.
    """

    def __init__(self, engine: Engine, catalog: str) -> None:
        self._engine = engine
        self._catalog = catalog

    def load(self, name: TableName) -> str | None:
        found = _LOCATION.first(self._engine, **self._key(name))
        return None if found is None else found[0]

    def settled(self, name: TableName) -> str | None:
        statement = select(iceberg_tables.c.metadata_location).where(*self._is(name)).with_for_update()
        with write(self._engine) as connection:
            location: str | None = connection.scalar(statement)
        return location

    def create(self, name: TableName, location: str, bind: Bind | None = None) -> None:
        self._require_namespace(name.namespace)
        row = self._key(name) | {"metadata_location": _bounded(location), "iceberg_type": _TABLE}
        try:
            with write(self._engine) as connection:
                connection.execute(insert(iceberg_tables).values(**row))
                _bind(connection, bind)
                open_writes.settle(connection)
                settle(connection, location)
        except IntegrityError as error:
            raise table_exists(name, is_view=self._is_view(name)) from error

    def swap(self, moves: Sequence[Move], bind: Bind | None = None) -> TableName | None:
        try:
            with write(self._engine) as connection:
                # In one order, so that two transactions never deadlock.
                for move in sorted(moves, key=lambda each: each.name):
                    self._swap(connection, move)
                _bind(connection, bind)
                open_writes.settle(connection)
                commit_records.settle(connection)
                settle(connection, moves[0].location if len(moves) == 1 else None)
        except _Elsewhere as elsewhere:
            return elsewhere.name
        return None

    def _swap(self, connection: Connection, move: Move) -> None:
        values = {"metadata_location": _bounded(move.location)}
        if move.location != move.expected:
            values["previous_metadata_location"] = move.expected
        stands = iceberg_tables.c.metadata_location == move.expected
        statement = update(iceberg_tables).where(*self._is(move.name), stands).values(**values)
        if connection.execute(statement).rowcount != 1:
            raise _Elsewhere(move.name)

    def require_free(self, name: TableName) -> None:
        kind = self._kind(name)
        if kind is not None:
            raise table_exists(name, is_view=kind != _TABLE)

    def _is_view(self, name: TableName) -> bool:
        return self._kind(name) not in (None, _TABLE)

    def _kind(self, name: TableName) -> str | None:
        """Return what has the name: a table or something else; None if nothing has it."""
        row = [iceberg_tables.c[column] == value for column, value in self._key(name).items()]
        with read(self._engine) as connection:
            found = connection.execute(select(iceberg_tables.c.iceberg_type).where(*row)).first()
        return None if found is None else found.iceberg_type or _TABLE

    def delete(self, name: TableName, expected: str, bind: Bind | None = None) -> bool:
        stands = iceberg_tables.c.metadata_location == expected
        statement = delete(iceberg_tables).where(*self._is(name), stands)
        with write(self._engine) as connection:
            deleted = connection.execute(statement).rowcount == 1
            if deleted:
                _bind(connection, bind)
                settle(connection, expected)
        return deleted

    def rename(self, source: TableName, target: TableName, expected: str, bind: Bind | None = None) -> bool:
        self._require_namespace(target.namespace)
        stands = iceberg_tables.c.metadata_location == expected
        statement = update(iceberg_tables).where(*self._is(source), stands).values(**self._key(target))
        try:
            with write(self._engine) as connection:
                moved = connection.execute(statement).rowcount == 1
                if moved:
                    _bind(connection, bind)
                    settle(connection, expected)
        except IntegrityError as error:
            raise table_rename_taken(source, target, is_view=self._is_view(target)) from error
        return moved

    def tables(self, namespace: Namespace, limit: int | None = None) -> list[TableName]:
        name = iceberg_tables.c.table_name
        statement = select(name).where(
            iceberg_tables.c.catalog_name == self._catalog,
            iceberg_tables.c.table_namespace == ".".join(namespace),
            is_table(),
        )
        with read(self._engine) as connection:
            found = connection.scalars(statement.order_by(name).limit(limit))
            return [TableName(namespace, each) for each in found]

    def children(
        self, parent: Namespace, after: str | None = None, limit: int | None = None
    ) -> list[Namespace]:
        above = "".join(f"{level}." for level in parent)
        names = union(
            *(self._levels_below(above, each) for each in (self._declared(), self._implied()))
        ).subquery()
        level = names.c.level
        later = select(level) if after is None else select(level).where(level > after)
        with read(self._engine) as connection:
            found = connection.scalars(later.order_by(level).limit(limit))
            return [(*parent, each) for each in found]

    def _levels_below(self, above: str, stored: Select[tuple[str]]) -> Select[Any]:
        """Return the next levels of stored namespaces that begin with the levels `above`."""
        name = stored.subquery().c[0]
        rest = func.substr(name, len(above) + 1)
        dotted = rest.concat(".")
        position = func.strpos if self._engine.dialect.name == "postgresql" else func.instr
        level: ColumnElement[str] = func.substr(rest, 1, position(dotted, ".") - 1)
        return select(level.label("level")).where(func.substr(name, 1, len(above)) == above, rest != "")

    def namespaces(self) -> list[Namespace]:
        with read(self._engine) as connection:
            return self._namespaces(connection)

    def _namespaces(self, connection: Connection) -> list[Namespace]:
        stored = {*connection.scalars(self._declared()), *connection.scalars(self._implied())}
        levels = (tuple(text.split(".")) for text in stored)
        return sorted({each[:depth] for each in levels for depth in range(1, len(each) + 1)})

    def namespace_properties(self, namespace: Namespace) -> dict[str, str] | None:
        with read(self._engine) as connection:
            found = self._stored(connection, namespace, iceberg_namespace_properties)
            protecting = self._stored(connection, namespace, lw_namespace_property)
            if not found and namespace not in self._namespaces(connection):
                return None
        return _shown(found) | protecting

    def _stored(self, connection: Connection, namespace: Namespace, table: Table) -> dict[str, str]:
        key = {"catalog_name": self._catalog, "namespace": ".".join(namespace)}
        rows = connection.execute(_PROPERTIES[table.name], key)
        return {row.property_key: row.property_value for row in rows}

    def create_namespace(self, namespace: Namespace, properties: dict[str, str]) -> None:
        if self.namespace_properties(namespace) is not None:
            raise namespace_exists(namespace)
        try:
            with write(self._engine) as connection:
                ordinary = {name: value for name, value in properties.items() if name not in PROTECTING}
                rows = self._property_rows(namespace, ordinary or _EXISTS)
                connection.execute(insert(iceberg_namespace_properties), rows)
                # A namespace of this name can have been removed outside of the catalog. The properties that
                # protect its tables stay.
                self._delete_exposing(connection, namespace)
                protecting = {name: properties[name] for name in properties.keys() & PROTECTING.keys()}
                if protecting:
                    self._put(connection, lw_namespace_property, namespace, protecting, replace=True)
                settle(connection)
        except IntegrityError as error:
            raise namespace_exists(namespace) from error

    def change_namespace_properties(
        self, namespace: Namespace, removals: Sequence[str], updates: Mapping[str, str]
    ) -> frozenset[str]:
        with write(self._engine) as connection:
            present = self._locked_properties(connection, namespace)
            removed = present.keys() & set(removals)
            for table in (iceberg_namespace_properties, lw_namespace_property):
                gone = table.c.property_key.in_(sorted(removed))
                connection.execute(delete(table).where(*self._is_namespace(namespace, table), gone))
            # A transaction that removes the last property at the same time still finds the namespace in this
            # row.
            self._put(connection, iceberg_namespace_properties, namespace, _EXISTS, replace=False)
            for table, some in _by_table(updates):
                self._put(connection, table, namespace, some, replace=True)
            settle(connection, " ".join(str(at) for at, name in enumerate(removals) if name in removed))
        return frozenset(removed)

    def _locked_properties(self, connection: Connection, namespace: Namespace) -> dict[str, str]:
        """Return the properties of a namespace, locked until this transaction ends."""
        columns = iceberg_namespace_properties.c
        query = select(columns.property_key, columns.property_value).where(*self._is_namespace(namespace))
        connection.execute(query.order_by(columns.property_key).with_for_update())
        # Read again: rows that this transaction waited for, and others, can have changed.
        found = self._stored(connection, namespace, iceberg_namespace_properties)
        if not found and namespace not in self._namespaces(connection):
            raise no_namespace(namespace)
        return _shown(found) | self._stored(connection, namespace, lw_namespace_property)

    def _put(
        self,
        connection: Connection,
        table: Table,
        namespace: Namespace,
        properties: Mapping[str, str],
        *,
        replace: bool,
    ) -> None:
        """Insert properties; existing ones are replaced or kept."""
        statement = insert_into(connection, table)
        keys = list(table.primary_key)
        statement = (
            statement.on_conflict_do_update(
                index_elements=keys, set_={"property_value": statement.excluded.property_value}
            )
            if replace
            else statement.on_conflict_do_nothing(index_elements=keys)
        )
        connection.execute(statement, self._property_rows(namespace, properties))

    def drop_namespace(self, namespace: Namespace, unprotected: Collection[str] = ()) -> None:
        rows = self._is_namespace(namespace)
        with write(self._engine) as connection:
            connection.execute(
                select(iceberg_namespace_properties.c.property_key).where(*rows).with_for_update()
            )
            connection.execute(delete(iceberg_namespace_properties).where(*rows))
            gone = self._delete_protecting(connection, namespace)
            # Protecting properties can have been set after the caller was authorized.
            if any(
                gone.get(name) == safe for name, (_, safe) in PROTECTING.items() if name not in unprotected
            ):
                raise CommitConflict(
                    f"The properties of the namespace {'.'.join(namespace)} were changed at the same time.",
                    hint="Repeat the request.",
                )
            settle(connection)

    def _require_namespace(self, namespace: Namespace) -> None:
        if self.namespace_properties(namespace) is None:
            raise no_namespace(namespace)

    def _key(self, name: TableName) -> dict[str, str]:
        return {"catalog_name": self._catalog, "table_namespace": name.database, "table_name": name.name}

    def _is(self, name: TableName) -> list[ColumnElement[bool]]:
        return [iceberg_tables.c[column] == value for column, value in self._key(name).items()] + [is_table()]

    def _delete_exposing(self, connection: Connection, namespace: Namespace) -> None:
        rows = self._is_namespace(namespace, lw_namespace_property)
        columns = lw_namespace_property.c
        for name, (exposing, _) in PROTECTING.items():
            said = (columns.property_key == name, columns.property_value == exposing)
            connection.execute(delete(lw_namespace_property).where(*rows, *said))

    def _delete_protecting(self, connection: Connection, namespace: Namespace) -> dict[str, str]:
        """Delete the properties that are stored in the governed state, and return them."""
        columns = lw_namespace_property.c
        statement = delete(lw_namespace_property).where(*self._is_namespace(namespace, lw_namespace_property))
        gone = connection.execute(statement.returning(columns.property_key, columns.property_value))
        return {row.property_key: row.property_value for row in gone}

    def _is_namespace(
        self, namespace: Namespace, table: Table = iceberg_namespace_properties
    ) -> list[ColumnElement[bool]]:
        columns = table.c
        return [columns.catalog_name == self._catalog, columns.namespace == ".".join(namespace)]

    def _declared(self) -> Select[tuple[str]]:
        columns = iceberg_namespace_properties.c
        return select(columns.namespace).where(columns.catalog_name == self._catalog).distinct()

    def _implied(self) -> Select[tuple[str]]:
        """Return the namespaces that have tables: each is looked up after the one before.

        `DISTINCT` reads all tables.
        """
        name, mine = iceberg_tables.c.table_namespace, iceberg_tables.c.catalog_name == self._catalog
        found = select(func.min(name).label("name")).where(mine).cte("implied", recursive=True)
        following = select(func.min(name)).where(mine, name > found.c.name).scalar_subquery()
        found = found.union_all(select(following).where(found.c.name.is_not(None)))
        return select(found.c.name).where(found.c.name.is_not(None))

    def _property_rows(self, namespace: Namespace, properties: Mapping[str, str]) -> list[dict[str, str]]:
        """Return rows in one order, so that two transactions never deadlock."""
        key = {"catalog_name": self._catalog, "namespace": ".".join(namespace)}
        return [
            key | {"property_key": name, "property_value": properties[name]} for name in sorted(properties)
        ]


def _by_table(properties: Mapping[str, str]) -> list[tuple[Table, dict[str, str]]]:
    """Group properties by the table that stores them: those that protect tables are separate."""
    protecting = {name: value for name, value in properties.items() if name in PROTECTING}
    others = {name: value for name, value in properties.items() if name not in PROTECTING}
    parts = [(iceberg_namespace_properties, others), (lw_namespace_property, protecting)]
    return [(table, some) for table, some in parts if some]


def _shown(stored: Mapping[str, str]) -> dict[str, str]:
    """Return ordinary properties; protecting ones among them are ignored."""
    return {
        key: value
        for key, value in stored.items()
        if (key, value) not in _EXISTS.items() and key not in PROTECTING
    }


def _bounded(location: str) -> str:
    if len(location) > MAX_LOCATION_LENGTH:
        raise RequestInvalid(
            f"The metadata location is longer than {MAX_LOCATION_LENGTH} characters.",
            rule="metadata-location",
        )
    return location
