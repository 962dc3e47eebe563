"""The life of a seal: prepared, current, superseded or abandoned; at most one current one a table."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine

from catalog.db.engine import read, write
from catalog.state import seals, table_state
from catalog.state.seals import Digest, FileKind, Seal, SealedFile, SealRequest
from catalog.state.table_state import Governed, TableRecord, TableState
from policy.encryption.epochs import Epoch, Epochs
from policy.encryption.specification import EncryptionSpec, Mechanism
from policy.errors import MetadataTampered
from policy.location.allow_list import AllowList
from policy.location.location import Location
from tests.support.tables import fresh

PLAIN = EncryptionSpec(Mechanism.PLAINTEXT)


def governed(version: int, path: str = "file:///t") -> Governed:
    return Governed(version, AllowList.of([path]), PLAIN, Epochs.of([Epoch(0, PLAIN)]))


@pytest.fixture
def table(engine: Engine, catalog_name: str) -> TableRecord:
    record = TableRecord(
        table_state.new_table_id(),
        uuid4(),
        fresh(),
        "alice",
        Location.parse("file:///t"),
        True,
        TableState.PREPARED,
    )
    with write(engine) as connection:
        table_state.add_table(connection, catalog_name, record, 1)
        table_state.add_governed(connection, record.id, governed(1), "alice", 1)
    return record


def _at(table: TableRecord, location: str) -> str:
    """Metadata locations are unique in a database, which the tests share."""
    return f"{table.id}/{location}"


def request(
    table: TableRecord, location: str, base: str | None, *files: SealedFile, version: int = 1
) -> SealRequest:
    digest = Digest.of(location.encode())
    before = None if base is None else _at(table, base)
    return SealRequest(table.id, _at(table, location), before, digest, version, 0, "alice", 1, files)


def sealed(engine: Engine, wanted: SealRequest) -> Seal:
    with write(engine) as connection:
        seal = seals.prepare(connection, wanted)
        assert seals.promote(connection, seal)
    return seal


def states(connection: Connection, table: TableRecord, *locations: str) -> list[str]:
    found = [seals.find(connection, _at(table, each)) for each in locations]
    return [seal.state.value if seal else "none" for seal in found]


def a_file(path: str, data: bytes = b"m", number: int = 1) -> SealedFile:
    return SealedFile(path, FileKind.MANIFEST, Digest.of(data), 7, number, 0, 0)


def test_bytes_that_differ_from_the_sealed_ones_are_tampered_with() -> None:
    seals.check_digest(b"abc", Digest.of(b"abc"), what="manifest", path="p", table="t")
    for data in (b"abd", b"", b"abc\n"):
        with pytest.raises(MetadataTampered) as refused:
            seals.check_digest(data, Digest.of(b"abc"), what="manifest", path="p", table="t")
        assert (refused.value.path, refused.value.table, refused.value.rule) == ("p", "t", "seal")


def test_a_prepared_seal_is_not_current_until_it_is_promoted(engine: Engine, table: TableRecord) -> None:
    with write(engine) as connection:
        seal = seals.prepare(connection, request(table, "m0", None))
    with read(engine) as connection:
        assert seals.current(connection, table.id) is None
        assert states(connection, table, "m0") == ["prepared"]
        assert table_state.current_governed(connection, table.id) is None
    with write(engine) as connection:
        assert seals.promote(connection, seal)
        assert seals.promote(connection, seal)
    with read(engine) as connection:
        now = seals.current(connection, table.id)
        assert now is not None
        assert now.metadata_location == _at(table, "m0")
        assert table_state.current_governed(connection, table.id) == governed(1)


def test_the_next_seal_supersedes_the_one_before(engine: Engine, table: TableRecord) -> None:
    sealed(engine, request(table, "m0", None))
    sealed(engine, request(table, "m1", "m0"))
    with read(engine) as connection:
        assert states(connection, table, "m0", "m1") == ["superseded", "current"]


def test_of_rivals_on_one_base_one_is_promoted(engine: Engine, table: TableRecord) -> None:
    sealed(engine, request(table, "m0", None))
    with write(engine) as connection:
        left = seals.prepare(connection, request(table, "left", "m0"))
        right = seals.prepare(connection, request(table, "right", "m0"))
    with write(engine) as connection:
        assert seals.promote(connection, right)
        assert not seals.promote(connection, left)
    with read(engine) as connection:
        assert states(connection, table, "m0", "left", "right") == ["superseded", "abandoned", "current"]


def test_a_seal_whose_base_is_not_current_is_not_promoted(engine: Engine, table: TableRecord) -> None:
    sealed(engine, request(table, "m0", None))
    sealed(engine, request(table, "m1", "m0"))
    with write(engine) as connection:
        late = seals.prepare(connection, request(table, "late", "m0"))
        first = seals.prepare(connection, request(table, "first", None))
        assert not seals.promote(connection, late)
        assert not seals.promote(connection, first)
        assert states(connection, table, "m1", "late", "first") == ["current", "prepared", "prepared"]


def test_a_governed_version_takes_force_with_its_seal(engine: Engine, table: TableRecord) -> None:
    sealed(engine, request(table, "m0", None))
    with write(engine) as connection:
        table_state.add_governed(connection, table.id, governed(2, "file:///wider"), "alice", 2)
        seal = seals.prepare(connection, request(table, "m1", "m0", version=2))
        assert table_state.current_governed(connection, table.id) == governed(1)
        seals.promote(connection, seal)
        assert table_state.current_governed(connection, table.id) == governed(2, "file:///wider")


def test_abandoning_lets_go_of_the_files_and_never_of_a_promoted_seal(
    engine: Engine, table: TableRecord
) -> None:
    won = sealed(engine, request(table, "m0", None, a_file("a")))
    with write(engine) as connection:
        lost = seals.prepare(connection, request(table, "m1", "m0", a_file("b")))
        seals.abandon(connection, lost)
        seals.abandon(connection, won)
        assert states(connection, table, "m0", "m1") == ["current", "abandoned"]
        assert not seals.promote(connection, lost)
        # The path is free for the next try, with other bytes.
        seals.prepare(connection, request(table, "m2", "m0", a_file("b", b"other")))


def test_files_count_as_sealed_once_their_seal_has_been_current(engine: Engine, table: TableRecord) -> None:
    with write(engine) as connection:
        seal = seals.prepare(connection, request(table, "m0", None, a_file("a")))
        assert seals.sealed_files(connection, table.id, ["a", "b"]) == {}
        seals.promote(connection, seal)
        assert seals.sealed_files(connection, table.id, ["a", "b"]) == {"a": a_file("a")}
        assert seals.sealed_files(connection, "another-table", ["a"]) == {}
    sealed(engine, request(table, "m1", "m0"))
    with read(engine) as connection:
        assert set(seals.sealed_files(connection, table.id, ["a"])) == {"a"}


@pytest.mark.parametrize("again", [a_file("a", b"other"), a_file("a", number=2)], ids=["bytes", "number"])
def test_a_path_is_never_sealed_twice_with_another_meaning(
    engine: Engine, table: TableRecord, again: SealedFile
) -> None:
    sealed(engine, request(table, "m0", None, a_file("a")))
    with pytest.raises(MetadataTampered), write(engine) as connection:
        seals.prepare(connection, request(table, "m1", "m0", again))
    with read(engine) as connection:
        assert states(connection, table, "m0", "m1") == ["current", "none"]
    sealed(engine, request(table, "m2", "m0", a_file("a")))


@pytest.mark.nightly
def test_many_files_are_found_whatever_their_number(engine: Engine, table: TableRecord) -> None:
    files = [a_file(f"f{number}") for number in range(1201)]
    sealed(engine, request(table, "m0", None, *files))
    with read(engine) as connection:
        found = seals.sealed_files(connection, table.id, [file.path for file in files] + ["absent"])
    assert len(found) == 1201


def test_a_superseded_seal_is_reinstated_on_purpose_only(engine: Engine, table: TableRecord) -> None:
    old = sealed(engine, request(table, "m0", None))
    sealed(engine, request(table, "m1", "m0"))
    with write(engine) as connection:
        seals.reinstate(connection, old)
        assert states(connection, table, "m0", "m1") == ["current", "superseded"]


def test_a_seal_that_was_never_published_can_be_discarded_and_no_other(
    engine: Engine, table: TableRecord
) -> None:
    sealed(engine, request(table, "m0", None))
    with write(engine) as connection:
        pending = seals.prepare(connection, request(table, "m1", "m0", a_file("a")))
        seals.discard(connection, pending)
        current = seals.current(connection, table.id)
        assert current is not None
        seals.discard(connection, current)
        assert states(connection, table, "m0", "m1") == ["current", "none"]
