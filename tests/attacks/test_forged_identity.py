"""Forged UUIDs, and names that are used again: identity, governed properties and keys are never inherited."""

from __future__ import annotations

import shutil
from uuid import UUID, uuid4

import pytest
from pyiceberg.table.update import AssignUUIDUpdate

from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import table_name
from policy.errors import MetadataTampered, NotAuthorized
from tests.attacks.traps import OpenWatch, no_key_released
from tests.support.attacker import (
    OWN_ROWS,
    Attacker,
    Siege,
    entry,
    local,
    read_metadata,
    sql,
    stock_catalog,
)
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies

_ENCRYPTED = {"encryption.mechanism": "envelope"}


def _with_uuid(attacker: Attacker, table_uuid: UUID) -> str:
    """The attacker's own metadata under another UUID."""
    return attacker.write_metadata(attacker.metadata.model_copy(update={"table_uuid": table_uuid}))


def _keys(lake: Lake, table: str) -> int:
    record = lake.services.loader.load(table_name(["bobs"], table.rpartition(".")[2])).record
    return len(lake.services.keyring.records(record))


def _bobs_storage(lake: Lake) -> None:
    """Bob may register what lies below the directory of his database."""
    storage = policy(
        "bob-storage",
        {"storage-type": ["iceberg"], "storage-url": [f"file://{lake.warehouse}/bobs*"]},
        {BOB: ["rwstorage"]},
    )
    lake.set_policies([*standard_policies(), storage])


def test_victims_uuid_committed_to_pointer_store(siege: Siege, watch: OpenWatch) -> None:
    siege.attacker.point(_with_uuid(siege.attacker, siege.victim.metadata.table_uuid))
    watch.opened()
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.attacker.plan()
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.attacker.scan()
    assert watch.opened() == []


def test_unknown_uuid_committed_to_pointer_store(siege: Siege) -> None:
    siege.attacker.point(_with_uuid(siege.attacker, uuid4()))
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.attacker.plan()


@pytest.mark.parametrize("whose", ["the victim's", "an unknown one"])
def test_uuid_assigned_by_commit(siege: Siege, whose: str) -> None:
    forged = siege.victim.metadata.table_uuid if whose == "the victim's" else uuid4()
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.attacker.commit(AssignUUIDUpdate(uuid=forged))
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.attacker.commit(
            AssignUUIDUpdate(uuid=forged), *siege.attacker.appending(entry(siege.secret_file()))
        )


def test_live_uuid_registered(siege: Siege, watch: OpenWatch) -> None:
    _bobs_storage(siege.lake)
    forged = _with_uuid(siege.attacker, siege.victim.metadata.table_uuid)
    watch.opened()
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.attacker.catalog.register_table("bobs.taken", forged)
    assert watch.opened() == []
    assert siege.attacker.catalog.list_tables("bobs") == [("bobs", "mine")]


def test_dropped_uuid_registered_without_rights_on_the_old_table(siege: Siege) -> None:
    _bobs_storage(siege.lake)
    forged = _with_uuid(siege.attacker, siege.victim.metadata.table_uuid)
    siege.lake.catalog(ALICE).drop_table("db.victim")
    with pytest.raises(NotAuthorized):
        siege.attacker.catalog.register_table("bobs.taken", forged)


def test_dropped_uuid_registered_with_other_metadata(siege: Siege) -> None:
    """Not even its own older metadata, and not by a user with every right."""
    victim, table_uuid = siege.victim, siege.victim.metadata.table_uuid
    older = victim.metadata.metadata_log[-1].metadata_file
    copied = victim.write_metadata(victim.metadata)
    forged = _with_uuid(siege.attacker, table_uuid)
    alice = siege.lake.catalog(ALICE)
    alice.drop_table("db.victim")
    for location in (older, copied, forged):
        with pytest.raises(MetadataTampered, match="rollback"):
            alice.register_table("db.victim", location)
    assert not alice.table_exists("db.victim")


def test_dropped_table_registered_again_is_the_same_table(siege: Siege) -> None:
    """The one way back keeps the identity and what governs it."""
    siege.victim.commit_properties({"read.allowed.data.paths": f"file://{siege.lake.warehouse}"})
    before = siege.victim.loaded()
    alice = siege.lake.catalog(ALICE)
    alice.drop_table("db.victim")
    alice.register_table("db.again", before.metadata_location)
    after = siege.lake.services.loader.load(table_name(["db"], "again"))
    assert (after.record.id, after.governed) == (before.record.id, before.governed)


@pytest.mark.parametrize("which", ["current", "older"])
def test_pointer_on_another_tables_metadata(siege: Siege, watch: OpenWatch, which: str) -> None:
    """The victim's own sealed metadata, current or superseded, under the attacker's name."""
    log = siege.victim.metadata.metadata_log
    siege.attacker.point(siege.victim.pointer() if which == "current" else log[-1].metadata_file)
    watch.opened()
    with pytest.raises(MetadataTampered, match="binding"):
        siege.attacker.plan()
    assert watch.opened() == []


def test_victims_metadata_under_a_new_name(siege: Siege, watch: OpenWatch) -> None:
    """A name that standard tools make in the pointer store is not governed, whatever it points to."""
    pointer = siege.victim.pointer()
    watch.opened()
    sql(
        siege.lake,
        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
        " SELECT catalog_name, 'bobs', 'taken', ? FROM iceberg_tables WHERE table_name = 'mine'",
        pointer,
    )
    taken = Attacker(siege.lake, "bobs.taken")
    with pytest.raises(NoSuchTable, match="binding"):
        taken.plan()
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.lake.services.registration.adopt(siege.lake.caller(ALICE), table_name(["bobs"], "taken"))
    assert siege.lake.services.loader.load(table_name(["db"], "victim")).seal is not None


def test_victim_renamed_in_the_pointer_store(siege: Siege, watch: OpenWatch) -> None:
    stock = stock_catalog(siege.lake)
    stock.rename_table("db.victim", "bobs.taken")
    stock.close()
    watch.opened()
    with pytest.raises(NoSuchTable, match="binding"):
        Attacker(siege.lake, "bobs.taken").plan()
    with pytest.raises(NoSuchTable, match="pointer"):
        siege.lake.catalog(ALICE).load_table("db.victim")
    assert watch.opened() == []


def test_names_swapped_in_the_pointer_store(siege: Siege, watch: OpenWatch) -> None:
    mine, theirs = siege.attacker.pointer(), siege.victim.pointer()
    siege.attacker.point(theirs)
    siege.victim.point(mine)
    watch.opened()
    for table in (siege.attacker, siege.victim):
        with pytest.raises(MetadataTampered, match="binding"):
            table.plan(ALICE)
    assert watch.opened() == []


def test_name_used_again_after_drop(siege: Siege) -> None:
    """Neither directory, nor list, nor keys, nor the plan of the old table."""
    bob, alice = siege.lake.catalog(BOB), siege.lake.catalog(ALICE)
    extra = f"file://{siege.lake.root}/extra"
    old = alice.create_table(
        "bobs.vault",
        OWN_ROWS.schema,
        properties=_ENCRYPTED | {"read.allowed.data.paths": f"file://{siege.lake.warehouse},{extra}"},
    )
    Attacker(siege.lake, "bobs.vault", ALICE).write_encrypted()
    alice.drop_table("bobs.vault")
    new = bob.create_table("bobs.vault", OWN_ROWS.schema)
    assert new.metadata.table_uuid != old.metadata.table_uuid
    assert new.location() != old.location()
    assert new.properties["read.allowed.data.paths"] == new.location()
    assert not any(
        name.startswith("encryption.") and name != "encryption.mechanism" for name in new.properties
    )
    assert _keys(siege.lake, "bobs.vault") == 0
    assert Attacker(siege.lake, "bobs.vault").plan().files.num_rows == 0


def test_name_used_again_after_rename(siege: Siege) -> None:
    alice, bob = siege.lake.catalog(ALICE), siege.lake.catalog(BOB)
    old = alice.create_table("bobs.vault", OWN_ROWS.schema, properties=_ENCRYPTED)
    alice.rename_table("bobs.vault", "bobs.safe")
    new = bob.create_table("bobs.vault", OWN_ROWS.schema)
    assert new.location() != old.location()
    assert (_keys(siege.lake, "bobs.vault"), _keys(siege.lake, "bobs.safe")) == (0, 1)
    assert not siege.lake.services.loader.load(table_name(["bobs"], "vault")).governed.ever_encrypted
    assert siege.lake.services.loader.load(table_name(["bobs"], "safe")).governed.ever_encrypted


def test_name_used_again_in_the_pointer_store(siege: Siege) -> None:
    """An encrypted table dropped and made again by standard tools: nothing of the old governs the new."""
    alice = siege.lake.catalog(ALICE)
    old = alice.create_table("bobs.vault", OWN_ROWS.schema, properties=_ENCRYPTED)
    stock = stock_catalog(siege.lake)
    stock.drop_table("bobs.vault")
    stock.create_table("bobs.vault", OWN_ROWS.schema, location=f"{old.location()}/again").append(OWN_ROWS)
    stock.close()
    with no_key_released(siege.lake):
        with pytest.raises(MetadataTampered, match="table-uuid"):
            Attacker(siege.lake, "bobs.vault", ALICE).plan()
        with pytest.raises(MetadataTampered, match="table-uuid"):
            siege.lake.services.writes.begin(siege.lake.caller(ALICE), table_name(["bobs"], "vault"))


def test_dropped_by_us_and_used_again_in_the_pointer_store(siege: Siege) -> None:
    """The tombstone is no binding: the new table is not governed at all."""
    alice = siege.lake.catalog(ALICE)
    old = alice.create_table("bobs.vault", OWN_ROWS.schema, properties=_ENCRYPTED)
    metadata = read_metadata(old.metadata_location)
    alice.drop_table("bobs.vault")
    stock = stock_catalog(siege.lake)
    stock.register_table("bobs.vault", old.metadata_location)
    stock.close()
    assert metadata.table_uuid == old.metadata.table_uuid
    with no_key_released(siege.lake), pytest.raises(NoSuchTable, match="binding"):
        Attacker(siege.lake, "bobs.vault", ALICE).plan()


def test_directory_of_the_victim_copied(siege: Siege, watch: OpenWatch) -> None:
    """A copy of the victim's metadata in the attacker's directory still names the victim's files and UUID."""
    copied = local(siege.attacker.location) / "metadata" / "00009-copied.metadata.json"
    shutil.copyfile(local(siege.victim.pointer()), copied)
    siege.attacker.point(f"file://{copied}")
    watch.opened()
    with pytest.raises(MetadataTampered, match="table-uuid"):
        siege.attacker.plan()
    assert watch.opened() == []
