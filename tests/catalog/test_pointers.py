"""What every pointer store does, on each database; and how it shares its tables with pyiceberg."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy import Engine, event, insert, select, text, update

from catalog.base.errors import NamespaceExists, NoSuchNamespace, NoSuchTable, TableExists
from catalog.base.identifiers import TableName, table_name
from catalog.db.engine import open_database, write
from catalog.db.schema import iceberg_tables
from catalog.state.pointers import MAX_LOCATION_LENGTH, Move, PointerStore
from catalog.state.sql_pointers import SqlPointerStore
from policy.errors import RequestInvalid
from tests.support.lake import open_lake
from tests.support.tables import named, rows

T = named("t")


@pytest.fixture
def store(engine: Engine, catalog_name: str) -> PointerStore:
    made = SqlPointerStore(engine, catalog_name)
    made.create_namespace(("db",), {})
    return made


def test_a_pointer_is_what_it_was_made_or_swapped_to(store: PointerStore) -> None:
    assert store.load(T) is None
    store.create(T, "file:///m0")
    assert store.load(T) == "file:///m0"
    assert store.swap([Move(T, "file:///m0", "file:///m1")]) is None
    assert store.load(T) == "file:///m1"


def test_a_swap_from_elsewhere_changes_nothing(store: PointerStore) -> None:
    store.create(T, "file:///m0")
    assert store.swap([Move(T, "file:///other", "file:///m1")]) == T
    assert store.swap([Move(named("absent"), "file:///m0", "file:///m1")]) == named("absent")
    assert store.load(T) == "file:///m0"
    assert store.load(named("absent")) is None


def test_of_swaps_that_race_one_wins(store: PointerStore) -> None:
    store.create(T, "file:///m0")
    won: list[int] = []
    start = threading.Barrier(8)

    def swap(number: int) -> None:
        start.wait()
        if store.swap([Move(T, "file:///m0", f"file:///m{number}")]) is None:
            won.append(number)

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.load(T) == f"file:///m{won[0]}"


def test_pointers_move_together_or_not_at_all(store: PointerStore) -> None:
    other, absent = named("other"), named("absent")
    store.create(T, "file:///m0")
    store.create(other, "file:///o0")
    compared = Move(T, "file:///m0", "file:///m0")
    assert store.swap([compared, Move(other, "file:///o0", "file:///o1")]) is None
    assert (store.load(T), store.load(other)) == ("file:///m0", "file:///o1")
    assert store.swap([Move(T, "file:///m0", "file:///m1"), Move(other, "file:///o0", "file:///o2")]) == other
    assert store.swap([Move(T, "file:///m0", "file:///m1"), Move(absent, "file:///a", "file:///b")]) == absent
    elsewhere = Move(T, "file:///elsewhere", "file:///elsewhere")
    assert store.swap([elsewhere, Move(other, "file:///o1", "file:///o2")]) == T
    assert (store.load(T), store.load(other)) == ("file:///m0", "file:///o1")


@pytest.mark.nightly
def test_moves_in_opposite_orders_do_not_deadlock(store: PointerStore) -> None:
    """A deadlock would be answered by the database as a failure."""
    names = [named(f"t{number}") for number in range(8)]
    for name in names:
        store.create(name, "file:///m0")
    start = threading.Barrier(4)

    def swap(number: int) -> int:
        moved = 0
        for turn in range(12):
            start.wait(10)
            moves = [Move(each, f"file:///m{turn}", f"file:///m{turn + 1}") for each in names]
            moved += store.swap(moves[:: 1 if number % 2 else -1]) is None
            start.wait(10)
        return moved

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(swap, range(4))) == 12
    assert {store.load(each) for each in names} == {"file:///m12"}


def test_a_name_is_taken_once(store: PointerStore) -> None:
    store.create(T, "file:///m0")
    with pytest.raises(TableExists):
        store.create(T, "file:///m1")
    assert store.load(T) == "file:///m0"


def test_a_table_needs_its_namespace(store: PointerStore) -> None:
    with pytest.raises(NoSuchNamespace):
        store.create(named("t", "absent"), "file:///m0")
    store.create(T, "file:///m0")
    with pytest.raises(NoSuchNamespace):
        store.rename(T, named("t", "absent"), "file:///m0")
    assert store.load(T) == "file:///m0"


def test_a_pointer_is_removed_only_where_it_stands(store: PointerStore) -> None:
    store.create(T, "file:///m0")
    assert not store.delete(T, "file:///m1")
    assert store.delete(T, "file:///m0")
    assert not store.delete(T, "file:///m0")
    assert store.load(T) is None
    assert store.tables(("db",)) == []


def test_a_rename_moves_the_pointer_and_takes_no_name_from_others(store: PointerStore) -> None:
    store.create(T, "file:///m0")
    store.create(named("taken"), "file:///m9")
    with pytest.raises(TableExists):
        store.rename(T, named("taken"), "file:///m0")
    assert not store.rename(named("absent"), named("u"), "file:///m0")
    assert not store.rename(T, named("u"), "file:///m1")
    assert store.rename(T, named("u"), "file:///m0")
    assert (store.load(T), store.load(named("u"))) == (None, "file:///m0")


def test_tables_are_listed_of_their_own_namespace_alone_in_order(store: PointerStore) -> None:
    store.create_namespace(("db", "inner"), {})
    for name in (named("b"), named("a"), table_name(["db", "inner"], "c")):
        store.create(name, f"file:///{name.name}")
    assert store.tables(("db",)) == [named("a"), named("b")]
    assert store.tables(("db", "inner")) == [table_name(["db", "inner"], "c")]
    assert store.tables(("absent",)) == []


def test_names_are_literal(store: PointerStore) -> None:
    store.create(named("a_b"), "file:///1")
    store.create(named("%"), "file:///2")
    assert store.load(named("axb")) is None
    assert store.load(named("A_B")) is None
    assert store.load(named("%")) == "file:///2"


def test_parents_of_nested_namespaces_exist(store: PointerStore) -> None:
    store.create_namespace(("a", "b", "c"), {"k": "v"})
    assert store.namespaces() == [("a",), ("a", "b"), ("a", "b", "c"), ("db",)]
    assert store.namespace_properties(("a", "b")) == {}
    assert store.namespace_properties(("a", "x")) is None


def test_namespace_properties_are_changed_by_name(store: PointerStore) -> None:
    store.create_namespace(("n",), {"a": "1", "b": "2", "c": "3"})
    assert store.change_namespace_properties(("n",), ["a", "absent"], {"b": "4", "d": "5"}) == {"a"}
    assert store.namespace_properties(("n",)) == {"b": "4", "c": "3", "d": "5"}


def test_a_namespace_outlives_its_last_property(store: PointerStore) -> None:
    store.create_namespace(("n",), {"a": "1"})
    assert store.change_namespace_properties(("n",), ["a"], {}) == {"a"}
    assert store.namespace_properties(("n",)) == {}
    store.change_namespace_properties(("n",), [], {"exists": "false"})
    assert store.namespace_properties(("n",)) == {"exists": "false"}
    assert store.change_namespace_properties(("n",), ["exists"], {}) == {"exists"}
    assert store.change_namespace_properties(("n",), ["exists"], {}) == frozenset()
    assert store.namespace_properties(("n",)) == {}


def test_a_namespace_that_only_its_tables_imply_can_be_given_properties(
    store: PointerStore, engine: Engine, catalog_name: str
) -> None:
    row = {"catalog_name": catalog_name, "table_namespace": "implied", "table_name": "t"}
    with write(engine) as connection:
        connection.execute(insert(iceberg_tables).values(**row, metadata_location="file:///m"))
    store.change_namespace_properties(("implied",), [], {"a": "1"})
    assert store.namespace_properties(("implied",)) == {"a": "1"}


def test_properties_of_no_namespace_are_refused(store: PointerStore) -> None:
    for removals, updates in (([], {"a": "1"}), (["a"], {}), ([], {})):
        with pytest.raises(NoSuchNamespace):
            store.change_namespace_properties(("absent",), removals, updates)
    assert store.namespace_properties(("absent",)) is None


@pytest.mark.parametrize("first", ["removes", "sets"])
def test_a_change_of_other_properties_at_the_same_time_is_not_lost(
    store: PointerStore, engine: Engine, first: str
) -> None:
    """Attack: a harmless change, timed to undo another one's `lakewarden.unsealed=forbid`."""
    store.create_namespace(("n",), {"a": "1"})
    changes = {"removes": (["a"], {}), "sets": ([], {"comment": "hello"})}
    second = next(each for each in changes if each != first)
    other = threading.Thread(target=store.change_namespace_properties, args=(("n",), *changes[second]))
    with _before_the_first(engine, "DELETE", other):
        store.change_namespace_properties(("n",), *changes[first])
    other.join()
    assert store.namespace_properties(("n",)) == {"comment": "hello"}


def test_a_namespace_is_not_lost_where_each_of_two_removes_the_others_last_property(
    store: PointerStore, engine: Engine
) -> None:
    store.create_namespace(("n",), {"a": "1", "b": "2"})
    other = threading.Thread(target=store.change_namespace_properties, args=(("n",), ["b"], {}))
    with _before_the_first(engine, "DELETE", other):
        store.change_namespace_properties(("n",), ["a"], {})
    other.join()
    assert store.namespace_properties(("n",)) == {}


def test_a_namespace_that_is_dropped_meanwhile_does_not_come_back(
    store: PointerStore, engine: Engine
) -> None:
    store.create_namespace(("n",), {"a": "1"})
    refused: list[NoSuchNamespace] = []

    def change() -> None:
        try:
            store.change_namespace_properties(("n",), [], {"b": "2"})
        except NoSuchNamespace as error:
            refused.append(error)

    other = threading.Thread(target=change)
    with _before_the_first(engine, "DELETE", other):
        store.drop_namespace(("n",))
    other.join()
    assert refused and store.namespace_properties(("n",)) is None


@contextmanager
def _before_the_first(engine: Engine, verb: str, other: threading.Thread) -> Iterator[None]:
    """Start `other` when this thread is about to run its first statement of a kind, and let it get ahead."""
    mine = threading.get_ident()

    def start(*arguments: Any) -> None:
        if arguments[2].startswith(verb) and threading.get_ident() == mine and other.ident is None:
            other.start()
            other.join(0.1)

    event.listen(engine, "before_cursor_execute", start)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", start)
    assert other.ident is not None


def test_a_namespace_is_made_once_and_gone_when_dropped(store: PointerStore) -> None:
    with pytest.raises(NamespaceExists):
        store.create_namespace(("db",), {"a": "1"})
    assert store.namespace_properties(("db",)) == {}
    store.drop_namespace(("db",))
    assert store.namespace_properties(("db",)) is None


def test_catalogs_in_one_database_do_not_see_each_other(
    store: PointerStore, engine: Engine, catalog_name: str
) -> None:
    store.create(T, "file:///m0")
    other = SqlPointerStore(engine, f"{catalog_name}-other")
    assert other.load(T) is None
    assert other.namespaces() == []
    assert other.swap([Move(T, "file:///m0", "file:///m1")]) == T
    assert not other.delete(T, "file:///m0")
    assert store.load(T) == "file:///m0"


@pytest.mark.parametrize("move", ["create", "swap"])
def test_a_location_that_does_not_fit_is_refused_not_cut(store: PointerStore, move: str) -> None:
    too_long = "file:///" + "m" * MAX_LOCATION_LENGTH
    if move == "create":
        with pytest.raises(RequestInvalid):
            store.create(T, too_long)
        assert store.load(T) is None
        return
    store.create(T, "file:///m0")
    with pytest.raises(RequestInvalid):
        store.swap([Move(T, "file:///m0", too_long)])
    assert store.load(T) == "file:///m0"


def test_views_of_other_tools_are_not_tables(store: PointerStore, engine: Engine, catalog_name: str) -> None:
    row = {"catalog_name": catalog_name, "table_namespace": "db", "table_name": "v", "iceberg_type": "VIEW"}
    with write(engine) as connection:
        connection.execute(insert(iceberg_tables).values(**row, metadata_location="file:///v0"))
    view = named("v")
    assert store.load(view) is None
    assert store.tables(("db",)) == []
    assert store.swap([Move(view, "file:///v0", "file:///v1")]) == view
    assert not store.rename(view, named("w"), "file:///v0")
    with pytest.raises(TableExists):
        store.create(view, "file:///m0")
    store.create(T, "file:///m0")
    with pytest.raises(TableExists):
        store.rename(T, view, "file:///m0")
    assert not store.delete(view, "file:///v0")
    with write(engine) as connection:
        mine = iceberg_tables.c.catalog_name == catalog_name
        kept = connection.execute(select(iceberg_tables.c.table_name).where(mine)).scalars()
        assert sorted(kept) == ["t", "v"]


def test_pyiceberg_reads_the_pointers_and_is_read(url: str, store: PointerStore, catalog_name: str) -> None:
    theirs = SqlCatalog(catalog_name, uri=url)
    store.create(T, "file:///m0")
    assert theirs.list_tables("db") == [("db", "t")]
    theirs.create_namespace("made-by-them", {"owner": "them"})
    assert store.namespace_properties(("made-by-them",)) == {"owner": "them"}
    theirs.drop_table("db.t")
    assert store.load(T) is None
    theirs.engine.dispose()


def _make_with_pyiceberg(root: Path, drop_type: bool) -> tuple[str, Callable[[], SqlCatalog]]:
    url = f"sqlite:///{root}/shared.db"

    def theirs() -> SqlCatalog:
        return SqlCatalog("lakewarden", uri=url, warehouse=f"file://{root}/theirs")

    catalog = theirs()
    catalog.create_namespace("db", {"comment": "theirs"})
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = catalog.create_table("db.old", schema)
    table.append(rows(1, 3))
    if drop_type:
        engine = open_database(url)
        with write(engine) as connection:
            connection.execute(text("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type"))
        engine.dispose()
    catalog.engine.dispose()
    return url, theirs


@pytest.mark.nightly
@pytest.mark.parametrize("drop_type", [False, True], ids=["v1", "v0"])
def test_a_database_that_pyiceberg_made_is_adopted_table_by_table(tmp_path: Path, drop_type: bool) -> None:
    url, _ = _make_with_pyiceberg(tmp_path, drop_type)
    with open_lake(tmp_path, DATABASE__URL=url) as lake:
        catalog = lake.catalog()
        assert catalog.load_namespace_properties("db") == {"comment": "theirs"}
        assert catalog.list_tables("db") == []
        with pytest.raises(NoSuchTable, match="does not govern"):
            catalog.load_table("db.old")
        with pytest.raises(TableExists):
            catalog.create_table("db.old", Schema(NestedField(1, "x", LongType())))
        lake.services.registration.adopt(lake.caller("alice"), TableName(("db",), "old"))
        table = catalog.load_table("db.old")
        assert table.scan().to_arrow()["id"].to_pylist() == [1, 2, 3]
        table.append(rows(10))
        assert catalog.load_table("db.old").scan().to_arrow().num_rows == 5
        assert catalog.list_tables("db") == [("db", "old")]


@pytest.mark.nightly
def test_pyiceberg_goes_on_reading_what_is_committed_here(tmp_path: Path) -> None:
    url, theirs = _make_with_pyiceberg(tmp_path, drop_type=False)
    with open_lake(tmp_path, DATABASE__URL=url) as lake:
        lake.services.registration.adopt(lake.caller("alice"), TableName(("db",), "old"))
        lake.catalog().load_table("db.old").append(rows(10))
        catalog = theirs()
        assert catalog.load_table("db.old").scan().to_arrow().num_rows == 5
        catalog.engine.dispose()


@pytest.mark.nightly
def test_a_view_of_pyiceberg_cannot_be_adopted(tmp_path: Path) -> None:
    url, _ = _make_with_pyiceberg(tmp_path, drop_type=False)
    with open_lake(tmp_path, DATABASE__URL=url) as lake:
        with write(lake.services.engine) as connection:
            connection.execute(update(iceberg_tables).values(iceberg_type="VIEW"))
        with pytest.raises(NoSuchTable):
            lake.services.registration.adopt(lake.caller("alice"), TableName(("db",), "old"))
        assert lake.catalog().list_tables("db") == []
