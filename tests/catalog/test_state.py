"""Governed state in the database: identities, names, tombstones, versions and keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine

from catalog.base.errors import CommitConflict, TableExists
from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord, PekState
from catalog.state import claims, table_state
from catalog.state import pek_records as key_records
from catalog.state.table_state import Governed, TableRecord, TableState
from policy.encryption.encrypted_columns import KeyedFields
from policy.encryption.epochs import Epoch, Epochs, PekRef
from policy.encryption.specification import ColumnKey, EncryptionSpec, Mechanism
from policy.location.allow_list import AllowList
from policy.location.location import Location
from tests.support.tables import named

PLAIN = EncryptionSpec(Mechanism.PLAINTEXT)


@dataclass(frozen=True)
class Db:
    """A catalog of its own in a shared database."""

    engine: Engine
    catalog: str


@pytest.fixture
def db(engine: Engine, catalog_name: str) -> Db:
    return Db(engine, catalog_name)


def a_table(name: str = "t", location: str = "s3://lake/db/t", table_uuid: UUID | None = None) -> TableRecord:
    where = Location.parse(location)
    return TableRecord(
        table_state.new_table_id(),
        table_uuid or uuid4(),
        named(name),
        "alice",
        where,
        True,
        TableState.PREPARED,
    )


def bound(db: Db, record: TableRecord) -> TableRecord:
    with write(db.engine) as connection:
        table_state.add_table(connection, db.catalog, record, 1)
        table_state.bind(connection, db.catalog, record)
    return replace(record, state=TableState.ACTIVE)


def found(db: Db, name: TableName) -> TableRecord | None:
    with read(db.engine) as connection:
        return table_state.bound(connection, db.catalog, name)


def test_a_table_has_a_name_only_once_it_is_bound(db: Db) -> None:
    record = a_table()
    with write(db.engine) as connection:
        table_state.add_table(connection, db.catalog, record, 1)
    assert found(db, named("t")) is None
    with write(db.engine) as connection:
        table_state.bind(connection, db.catalog, record)
    assert found(db, named("t")) == replace(record, state=TableState.ACTIVE)
    with read(db.engine) as connection:
        assert table_state.bound(connection, "other-catalog", named("t")) is None
        assert table_state.bound_tables(connection, db.catalog) == [replace(record, state=TableState.ACTIVE)]


def test_a_uuid_is_bound_once(db: Db) -> None:
    first = bound(db, a_table())
    with pytest.raises(CommitConflict), write(db.engine) as connection:
        table_state.add_table(connection, db.catalog, a_table("u", table_uuid=first.table_uuid), 1)
    with read(db.engine) as connection:
        assert table_state.table_by_uuid(connection, first.table_uuid) == first
        assert table_state.table_by_uuid(connection, uuid4()) is None
        assert table_state.table_by_id(connection, "no-such-id") is None


def test_a_name_is_bound_once(db: Db) -> None:
    first = bound(db, a_table())
    with pytest.raises(TableExists):
        bound(db, a_table(location="s3://lake/db/other"))
    second = bound(db, a_table("u"))
    with pytest.raises(TableExists), write(db.engine) as connection:
        table_state.rebind(connection, db.catalog, second, named("t"))
    assert found(db, named("t")) == first
    assert found(db, named("u")) == second


def test_a_rename_keeps_everything_but_the_name(db: Db) -> None:
    record = bound(db, a_table())
    with write(db.engine) as connection:
        table_state.intend_rename(connection, record, named("u"))
        assert table_state.table_by_id(connection, record.id) == replace(record, pending_name=named("u"))
        table_state.rebind(connection, db.catalog, record, named("u"))
    assert found(db, named("t")) is None
    assert found(db, named("u")) == replace(record, name=named("u"))


def test_a_dropped_table_leaves_a_tombstone_and_frees_its_name(db: Db) -> None:
    record = bound(db, a_table())
    with write(db.engine) as connection:
        table_state.intend_drop(connection, record, 5)
        table_state.bury(connection, record)
    assert found(db, named("t")) is None
    again = bound(db, a_table(location="s3://lake/db/t-2"))
    assert found(db, named("t")) == again
    with read(db.engine) as connection:
        tombstone = table_state.table_by_uuid(connection, record.table_uuid)
    assert tombstone is not None
    assert (tombstone.state, tombstone.id, tombstone.location) == (
        TableState.DROPPED,
        record.id,
        record.location,
    )


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("location", "overlaps"),
    [
        ("s3://lake/db/t", True),
        ("s3a://lake/db/t/", True),
        ("s3://lake/db/t/data", True),
        ("s3://lake/db", True),
        ("s3://lake", True),
        ("s3://lake/db/t1", False),
        ("s3://lake/db/T", False),
        ("s3://other/db/t", False),
        ("s3://lake/db/_", False),
        ("s3://lake/db/%25", False),
        ("file:///lake/db/t", False),
    ],
)
def test_locations_overlap_by_whole_segments(db: Db, location: str, overlaps: bool) -> None:
    record = bound(db, a_table())
    with read(db.engine) as connection:
        others = claims.overlapping(connection, db.catalog, Location.parse(location), None, 0)
        assert others == ([record] if overlaps else [])
        assert claims.overlapping(connection, db.catalog, Location.parse(location), record.id, 0) == []


NAMES = ("a", "a-b", "a0", "a.b", "A", "é", "日", "😀", "a+é", "_", "Z")


@pytest.mark.nightly
def test_overlaps_are_those_of_locations_in_any_order_of_names(db: Db) -> None:
    """Databases order text by languages, too, where `a-b` stands between `a/x` and `a0`."""
    paths = [
        *NAMES,
        *(f"{one}/{other}" for one in NAMES for other in NAMES),
        *(f"a/{name}/x" for name in NAMES),
    ]
    places = [Location.parse("s3://lake"), *(Location.parse(f"s3://lake/{path}") for path in paths)]
    with write(db.engine) as connection:
        for number, place in enumerate(places[1:]):
            table_state.add_table(connection, db.catalog, a_table(f"t{number}", place.canonical), 0)
        for place in places:
            others = claims.overlapping(connection, db.catalog, place, None, 0)
            assert {each.location for each in others} == {each for each in places[1:] if each.overlaps(place)}


def test_tombstones_overlap_until_they_are_purged(db: Db) -> None:
    record = bound(db, a_table())
    with write(db.engine) as connection:
        table_state.intend_drop(connection, record, 5)
        table_state.bury(connection, record)
        assert len(claims.overlapping(connection, db.catalog, record.location, None, 0)) == 1
        table_state.set_table_state(connection, record.id, TableState.PURGED)
        assert claims.overlapping(connection, db.catalog, record.location, None, 0) == []


def test_a_table_that_was_moved_counts_where_it_is_and_not_as_default(db: Db) -> None:
    record = bound(db, a_table())
    elsewhere = Location.parse("s3://bucket/x")
    with write(db.engine) as connection:
        table_state.set_location(connection, record.id, elsewhere)
    moved = found(db, named("t"))
    assert moved == replace(record, location=elsewhere, default_location=False)


def _encrypted() -> Governed:
    refs = (PekRef(uuid4(), 1, "main"), PekRef(uuid4(), 2, "pii"))
    spec = EncryptionSpec(
        Mechanism.ENVELOPE, "main", data_key_length=16, columns=(ColumnKey("pii", ("ssn", "who.name")),)
    )
    epoch = Epoch(3, spec, (KeyedFields("pii", (2, 5, 6)),), refs)
    allowed = AllowList.of(["s3://lake/db/t", "s3://lake/a,b"])
    return Governed(1, allowed, spec, Epochs.of([Epoch(0, PLAIN), epoch]))


def test_a_governed_version_comes_back_as_it_was_stored(db: Db) -> None:
    record = bound(db, a_table())
    with write(db.engine) as connection:
        assert table_state.next_governed_version(connection, record.id) == 1
        table_state.add_governed(connection, record.id, _encrypted(), "alice", 1)
        assert table_state.next_governed_version(connection, record.id) == 2
        assert table_state.current_governed(connection, record.id) is None


def test_two_changes_cannot_prepare_one_version(db: Db) -> None:
    record = bound(db, a_table())
    with write(db.engine) as connection:
        table_state.add_governed(connection, record.id, _encrypted(), "alice", 1)
    with pytest.raises(CommitConflict), write(db.engine) as connection:
        table_state.add_governed(connection, record.id, _encrypted(), "bob", 1)


def test_governed_properties_are_shown_by_their_canonical_names() -> None:
    governed = _encrypted()
    shown = governed.to_properties()
    assert shown["read.allowed.data.paths"] == '["s3://lake/db/t", "s3://lake/a,b"]'
    assert shown["encryption.columns"] == "pii:ssn,who.name"
    assert shown["encryption.data-key-length"] == "16"
    assert shown["encryption.pek-id"] == ",".join(str(r.pek_id) for r in governed.epochs.current.peks)
    assert governed.ever_encrypted


def test_keys_come_back_as_stored_and_only_those_of_the_table(db: Db) -> None:
    record, other = bound(db, a_table()), bound(db, a_table("u", "s3://lake/db/u"))
    pek = PekRecord(
        *(uuid4(), record.id, record.table_uuid, "main", 3, b"wrapped", "local", PekState.DECRYPT_ONLY),
        kms_key_id="main-2",
    )
    with write(db.engine) as connection:
        key_records.add(connection, db.catalog, [pek], 1)
        key_records.add(connection, db.catalog, [], 1)
        assert key_records.of_table(connection, record) == [pek]
        assert key_records.of_table(connection, other) == []


def test_a_creation_that_was_cut_short_frees_its_location_in_time(db: Db) -> None:
    record = a_table()
    with write(db.engine) as connection:
        table_state.add_table(connection, db.catalog, record, 1_000)
        minute = 60_000
        assert claims.overlapping(connection, db.catalog, record.location, None, 1_000 + minute) != []
        assert claims.overlapping(connection, db.catalog, record.location, None, 1_000 + 60 * minute) == []
