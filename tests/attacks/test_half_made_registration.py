"""REGISTER of tables that are not whole, or not the user's: nothing is stored, and the name stays free."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.metadata import MetadataLogEntry
from pyiceberg.table.statistics import StatisticsFile

from catalog.base.errors import ConcurrentModification
from catalog.base.identifiers import table_name
from catalog.writes.new_files import FileCommit
from policy.errors import (
    LakewardenError,
    LocationInvalid,
    LocationNotAllowed,
    MetadataInvalid,
    MetadataTampered,
    NotAuthorized,
    PropertyInvalid,
)
from tests.attacks.traps import OpenWatch
from tests.support.attacker import (
    OWN_ROWS,
    Attacker,
    Siege,
    audited,
    data_file,
    entry,
    local,
    read_metadata,
    sql,
)
from tests.support.lake import ALICE, BOB, policy, standard_policies
from tests.support.tables import Engine

Spoil = Callable[["Stray"], None]


class Stray(Attacker):
    """A table of a standard catalog elsewhere, which Bob may register; its files are spoiled first."""

    siege: Siege
    where: str

    def pointer(self) -> str:
        return self.where


@pytest.fixture
def stray(siege: Siege) -> Iterator[Stray]:
    """A whole table, made by standard tools in a directory that Bob has RWStorage on."""
    publication = siege.lake.root / "landing"
    storage = policy(
        "bob-storage",
        {"storage-type": ["iceberg"], "storage-url": [f"file://{publication}*"]},
        {BOB: ["rwstorage"]},
    )
    siege.lake.set_policies([*standard_policies(), storage])
    publication.mkdir()
    stock = SqlCatalog(
        "elsewhere", uri=f"sqlite:///{publication}/stock.db", warehouse=f"file://{publication}"
    )
    stock.create_namespace("x")
    table = stock.create_table("x.t", OWN_ROWS.schema)
    table.append(OWN_ROWS)
    found = Stray(siege.lake, "bobs.stray")
    found.siege, found.where = siege, table.metadata_location
    yield found
    stock.close()


def rows_about(siege: Siege) -> list[int]:
    """How many rows the catalog's tables have that a registration adds to."""
    tables = (
        "lw_table",
        "lw_binding",
        "lw_governed",
        "lw_seal",
        "lw_sealed_file",
        "lw_pek",
        "iceberg_tables",
    )
    return [sql(siege.lake, f"SELECT count(*) FROM {table}")[0][0] for table in tables]  # noqa: S608


def spoil_truncated_metadata(stray: Stray) -> None:
    stray.edit(stray.where, lambda data: data[: len(data) // 2])


def spoil_empty_metadata(stray: Stray) -> None:
    stray.edit(stray.where, lambda data: b"")


def spoil_duplicate_key(stray: Stray) -> None:
    """Two readers of such JSON see two tables."""
    stray.edit(stray.where, lambda data: data.replace(b"{", b'{"location":"file:///elsewhere",', 1))


def spoil_missing_list(stray: Stray) -> None:
    snapshot = stray.metadata.current_snapshot()
    assert snapshot is not None
    local(snapshot.manifest_list).unlink()


def spoil_missing_manifest(stray: Stray) -> None:
    local(stray.manifests()[0].manifest_path).unlink()


def spoil_truncated_list(stray: Stray) -> None:
    snapshot = stray.metadata.current_snapshot()
    assert snapshot is not None
    stray.edit(snapshot.manifest_list, lambda data: data[:-40])


def spoil_truncated_manifest(stray: Stray) -> None:
    stray.edit(stray.manifests()[0].manifest_path, lambda data: data[:-40])


def spoil_metadata_without_uuid(stray: Stray) -> None:
    table_uuid = str(stray.metadata.table_uuid).encode()
    stray.edit(stray.where, lambda data: data.replace(table_uuid, b"not-a-uuid"))


def spoil_foreign_data_file(stray: Stray) -> None:
    stray.where = stray.write_behind(stray.appending(entry(stray.siege.secret_file())))


def spoil_foreign_manifest_list(stray: Stray) -> None:
    snapshot = stray.siege.victim.metadata.current_snapshot()
    assert snapshot is not None
    changed = {"snapshots": [snapshot], "current_snapshot_id": snapshot.snapshot_id, "refs": {}}
    stray.where = stray.write_metadata(stray.metadata.model_copy(update=changed))


def spoil_foreign_metadata_log(stray: Stray) -> None:
    log = [MetadataLogEntry(metadata_file=stray.siege.victim.pointer(), timestamp_ms=1)]
    stray.where = stray.write_metadata(stray.metadata.model_copy(update={"metadata_log": log}))


def spoil_foreign_statistics(stray: Stray) -> None:
    file = StatisticsFile(
        snapshot_id=stray.metadata.current_snapshot_id,
        statistics_path=stray.siege.victim.data_paths()[0],
        file_size_in_bytes=10,
        file_footer_size_in_bytes=5,
        blob_metadata=[],
    )
    stray.where = stray.write_metadata(stray.metadata.model_copy(update={"statistics": [file]}))


def spoil_live_uuid(stray: Stray) -> None:
    table_uuid = stray.siege.victim.metadata.table_uuid
    stray.where = stray.write_metadata(stray.metadata.model_copy(update={"table_uuid": table_uuid}))


def spoil_foreign_location(stray: Stray) -> None:
    location = stray.siege.victim.location
    there = stray.metadata.model_copy(update={"location": location})
    path = f"{stray.location}/metadata/forged.metadata.json"
    local(path).write_text(there.model_dump_json())
    stray.where = path


def spoil_relative_location(stray: Stray) -> None:
    location = stray.location.encode()
    stray.edit(stray.where, lambda data: data.replace(b'"' + location + b'"', b'"landing/x/t"'))


def spoil_foreign_write_path(stray: Stray) -> None:
    properties = {"write.data.path": stray.siege.victim.location}
    stray.where = stray.write_metadata(stray.metadata.model_copy(update={"properties": properties}))


def spoil_reader_configuration(stray: Stray) -> None:
    properties = {"py-io-impl": "os.system"}
    stray.where = stray.write_metadata(stray.metadata.model_copy(update={"properties": properties}))


SPOILT: list[tuple[Spoil, type[LakewardenError]]] = [
    (spoil_truncated_metadata, MetadataInvalid),
    (spoil_empty_metadata, MetadataInvalid),
    (spoil_duplicate_key, MetadataInvalid),
    (spoil_metadata_without_uuid, MetadataInvalid),
    (spoil_missing_list, LakewardenError),
    (spoil_missing_manifest, LakewardenError),
    (spoil_truncated_list, MetadataInvalid),
    (spoil_truncated_manifest, MetadataInvalid),
    (spoil_foreign_data_file, LocationNotAllowed),
    (spoil_foreign_manifest_list, LocationNotAllowed),
    (spoil_foreign_metadata_log, LocationNotAllowed),
    (spoil_foreign_statistics, LocationNotAllowed),
    (spoil_live_uuid, MetadataTampered),
    (spoil_foreign_location, NotAuthorized),
    (spoil_relative_location, LocationInvalid),
    (spoil_foreign_write_path, NotAuthorized),
    (spoil_reader_configuration, PropertyInvalid),
]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("spoil", "error"), SPOILT, ids=lambda each: getattr(each, "__name__", ""))
def test_half_made_table_registered(
    stray: Stray, watch: OpenWatch, spoil: Spoil, error: type[LakewardenError]
) -> None:
    whole = {path: path.read_bytes() for path in local(stray.location).rglob("*") if path.is_file()}
    good = stray.where
    spoil(stray)
    before = rows_about(stray.siege)
    watch.opened()
    with pytest.raises(error):
        stray.catalog.register_table("bobs.stray", stray.where)
    assert watch.opened() == []
    assert rows_about(stray.siege) == before
    for path, data in whole.items():
        path.write_bytes(data)
    stray.catalog.register_table("bobs.stray", good)
    assert Attacker(stray.lake, "bobs.stray").scan() == [1, 2]


def test_half_made_table_adopted(stray: Stray) -> None:
    """The same rules hold for a pointer that a standard catalog made in the store itself."""
    spoil_foreign_data_file(stray)
    sql(
        stray.lake,
        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
        " SELECT catalog_name, 'bobs', 'stray', ? FROM iceberg_tables WHERE table_name = 'mine'",
        stray.where,
    )
    with pytest.raises(LocationNotAllowed):
        stray.lake.services.registration.adopt(stray.lake.caller(BOB), table_name(["bobs"], "stray"))


def test_governed_properties_of_a_registered_file_count_for_nothing(stray: Stray) -> None:
    """They are ignored, whatever they say, and reported when the table is read."""
    forged = {
        "read.allowed.data.paths": "file:///",
        "encryption.mechanism": "plaintext",
        "Encryption.Mechanism": "envelope",
    }
    location = stray.write_metadata(stray.metadata.model_copy(update={"properties": forged}))
    table = stray.catalog.register_table("bobs.stray", location)
    assert table.properties["read.allowed.data.paths"] == table.location()
    assert "Encryption.Mechanism" not in table.properties
    stray.catalog.load_table("bobs.stray")
    [record, *_] = audited(stray.lake, "table.governed-copy")
    assert "read.allowed.data.paths" in record.reasons[0].detail


def test_governed_properties_edited_into_unsealed_metadata(siege: Siege, watch: OpenWatch) -> None:
    """Written to the pointer store together with a foreign file: the list in force is the catalog's."""
    attacker = siege.attacker
    planted = attacker.appending(entry(siege.secret_file()))
    location = attacker.commit_behind(*planted)
    forged = read_metadata(location).model_copy(
        update={"properties": {"read.allowed.data.paths": siege.victim.location}}
    )
    attacker.point(attacker.write_metadata(forged))
    watch.opened()
    with pytest.raises(LocationNotAllowed):
        attacker.plan(ALICE)
    with pytest.raises(LocationNotAllowed):
        attacker.scan(ALICE)
    shown = attacker.loaded().shown_metadata.properties
    assert shown["read.allowed.data.paths"] == attacker.location
    assert watch.opened() == []


def test_registered_table_carries_no_foreign_key_metadata(stray: Stray) -> None:
    """A registered table is plaintext: files with key metadata are not taken over."""
    own = data_file(stray.data_paths()[0].replace(".parquet", "-2.parquet"), key_metadata=b"\x02x")
    location = stray.write_behind(stray.appending(entry(own)))
    with pytest.raises(LakewardenError, match="plaintext-required"):
        stray.catalog.register_table("bobs.stray", location)


def test_history_that_turns_in_a_circle_has_an_end(stray: Stray) -> None:
    """Nothing walks the history of a registered table forever."""
    file = local(stray.where)
    metadata = json.loads(file.read_text())
    (snapshot,) = metadata["snapshots"]
    snapshot["parent-snapshot-id"] = snapshot["snapshot-id"]
    file.write_text(json.dumps(metadata))
    lake, name = stray.siege.lake, table_name(("bobs",), "stray")
    lake.services.registration.register(lake.caller(BOB), name, stray.where)
    others = FileCommit("delete", (), delete_filter=AlwaysTrue(), base_snapshot_id=5)
    with pytest.raises(ConcurrentModification, match="not an ancestor"):
        Engine.begin(lake, name, BOB).commit(others, BOB)
