"""Lists look up what policies can be about, and hold what a decision on each name gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, insert

from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.db.schema import iceberg_tables, lw_binding, lw_table, lw_view
from catalog.state import name_lists
from catalog.state.name_lists import Names, name_values
from catalog.tables.paging import PageRequest, visible_page
from policy.letter_case import fold
from policy.principal import Principal
from policy.privileges.requests import ANY, AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.resource_tree import PossibleNames
from tests.policy.test_ranger_differential import ROLES, access_policies, askers

Read = Callable[[Connection, str, Names], list[tuple[TableName, str]]]
Seen = Callable[[str, str], bool]

_NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
_EVERY = PossibleNames.of((), ("",))
_NAMES = st.sampled_from(
    [
        "a",
        "A",
        "ab",
        "Ab",
        "aB",
        "abc",
        "ann",
        "b",
        "ba",
        "bob",
        "xann",
        "*",
        "a*",
        "É",
        "é",
        "K",
        "ß",
        "z\U0001f600",
    ]
)
_OWNERS = st.sampled_from(["ann", "bob", "Ann"])


def fill_tables(connection: Connection, catalog: str, name: TableName, owner: str) -> None:
    table_id = str(uuid4())
    values = {
        "id": table_id,
        "catalog": catalog,
        "table_uuid": table_id,
        "namespace": name.database,
        "name": name.name,
        "owner": owner,
        "location": f"file:///{table_id}",
        "default_location": True,
        "state": "active",
        "created_ms": 1,
    }
    pointer = {"catalog_name": catalog, "table_namespace": name.database, "table_name": name.name}
    connection.execute(insert(lw_table).values(**values))
    connection.execute(insert(lw_binding).values(catalog=catalog, table_id=table_id, **name_values(name)))
    connection.execute(insert(iceberg_tables).values(**pointer, metadata_location="file:///m"))


def fill_views(connection: Connection, catalog: str, name: TableName, owner: str) -> None:
    values = {
        "id": str(uuid4()),
        "catalog": catalog,
        "owner": owner,
        "definer": "",
        "version": 1,
        "metadata": "",
    }
    connection.execute(insert(lw_view).values(**values, **name_values(name)))


def in_pages(
    engine: Engine,
    catalog: str,
    read_names: Read,
    possible: PossibleNames,
    seen: Callable[[str, str], bool],
    size: int,
) -> list[str]:
    def rows(after: str | None, limit: int | None) -> Sequence[tuple[TableName, str]]:
        with read(engine) as connection:
            return read_names(connection, catalog, Names(("a",), possible, after, limit))

    listed: list[str] = []
    wanted: PageRequest | None = PageRequest(None, size)
    while wanted is not None:
        page = visible_page(
            rows,
            lambda row: row[0].name,
            lambda some: [row for row in some if seen(row[0].name, row[1])],
            wanted,
        )
        listed += [name.name for name, _ in page.entries]
        wanted = None if page.following is None else PageRequest(page.following, size)
    return listed


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("fill", "read_names"),
    [(fill_tables, name_lists.tables), (fill_views, name_lists.views)],
    ids=["tables", "views"],
)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_names_that_policies_can_be_about_are_those_that_are_seen_of_all(
    engine: Engine, fill: Callable[..., None], read_names: Read, data: st.DataObject
) -> None:
    catalog = f"lake-{uuid4().hex}"
    owners = data.draw(st.dictionaries(_NAMES, _OWNERS, max_size=10), label="tables")
    with write(engine) as connection:
        for name, owner in owners.items():
            fill(connection, catalog, TableName(("a",), name), owner)
            fill(connection, catalog, TableName(("a", "a"), name), owner)
    made = data.draw(st.lists(access_policies("tables"), min_size=1, max_size=4), label="policies")
    text = json.dumps(
        {"policies": [each | {"name": f"p{at}"} for at, each in enumerate(made)], "roles": ROLES}
    )
    policies, asker = PolicySet.parse({"p": text}), data.draw(askers(), label="asker")
    principal = Principal(asker.name, asker.groups)

    def seen(name: str, owner: str) -> bool:
        request = AccessRequest(principal, Resource.table("a", name), ANY, owner)
        return policies.decide(request, _NOW).allowed

    size = data.draw(st.integers(1, 4), label="size")
    possible = policies.tables_with_privileges(principal, "a")
    found = in_pages(engine, catalog, read_names, possible, seen, size)
    assert found == in_pages(engine, catalog, read_names, _EVERY, seen, size)
    assert sorted(found) == sorted(name for name, owner in owners.items() if seen(name, owner))
    assert [fold(name) for name in found] == sorted(fold(name) for name in found)


@pytest.mark.nightly
@settings(max_examples=40, deadline=None)
@given(
    names=st.sets(_NAMES),
    whole=st.sets(_NAMES.map(fold)),
    begun=st.sets(st.sampled_from(["a", "ab", "b", "x", "é", "z", "\U0001f600"])),
    size=st.integers(1, 4),
    most=st.sampled_from([1, 100]),
)
def test_ranges_and_look_ups_give_their_names_once_and_in_order(
    engine: Engine, names: set[str], whole: set[str], begun: set[str], size: int, most: int
) -> None:
    catalog, possible = f"lake-{uuid4().hex}", PossibleNames.of(whole, begun)
    with write(engine) as connection:
        for name in names:
            fill_views(connection, catalog, TableName(("a",), name), "ann")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(name_lists, "_MAX_BEGUN", most)
        patched.setattr(name_lists, "_MAX_WHOLE", most)
        found = in_pages(engine, catalog, name_lists.views, possible, lambda name, _: name in possible, size)
    assert sorted(found) == sorted(
        name for name in names if fold(name) in whole or fold(name).startswith(tuple(begun))
    )
    assert [fold(name) for name in found] == sorted(map(fold, found))


def test_tables_without_a_pointer_or_a_binding_are_not_listed(engine: Engine) -> None:
    catalog = f"lake-{uuid4().hex}"
    with write(engine) as connection:
        for name in ("kept", "unbound", "pointless", "viewed"):
            fill_tables(connection, catalog, TableName(("a",), name), "ann")
        connection.execute(lw_binding.delete().where(lw_binding.c.name == "unbound"))
        connection.execute(iceberg_tables.delete().where(iceberg_tables.c.table_name == "pointless"))
        viewed = iceberg_tables.update().where(iceberg_tables.c.table_name == "viewed")
        connection.execute(viewed.values(iceberg_type="VIEW"))
    with read(engine) as connection:
        found = name_lists.tables(connection, catalog, Names(("a",), _EVERY))
    assert found == [(TableName(("a",), "kept"), "ann")]
