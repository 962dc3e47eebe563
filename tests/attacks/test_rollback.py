"""Pointers put back on older metadata that was sealed once."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import table_name
from policy.errors import LakewardenError, MetadataUnsealed, PropertyInvalid
from tests.attacks.traps import no_key_released
from tests.support.attacker import OWN_ROWS, Attacker, Siege, audited, local
from tests.support.lake import ALICE, BOB

_ENCRYPTED = {"encryption.mechanism": "envelope"}


@pytest.fixture
def rolled_back(siege: Siege) -> Siege:
    """The attacker's table, its pointer on the metadata before the last."""
    siege.attacker.catalog.load_table("bobs.mine").append(OWN_ROWS)
    siege.attacker.point(siege.attacker.metadata.metadata_log[-1].metadata_file)
    return siege


@pytest.fixture
def vault(siege: Siege) -> Attacker:
    """An encrypted table with two snapshots, its pointer on the metadata of the first."""
    siege.lake.catalog(ALICE).create_table("bobs.vault", OWN_ROWS.schema, properties=_ENCRYPTED)
    vault = Attacker(siege.lake, "bobs.vault", ALICE)
    vault.write_encrypted()
    vault.write_encrypted()
    vault.point(vault.metadata.metadata_log[-1].metadata_file)
    return vault


def test_rollback_of_plaintext_table_is_readable_as_unsealed(rolled_back: Siege) -> None:
    plan = rolled_back.attacker.plan()
    assert plan.files.num_rows == 1
    assert plan.header.to_json()["sealed"] is False
    assert rolled_back.attacker.scan() == [1, 2]


def test_rollback_is_reported(rolled_back: Siege) -> None:
    rolled_back.attacker.catalog.load_table("bobs.mine")
    [record, *_] = audited(rolled_back.lake, "table.unsealed")
    assert (record.resource, record.principal) == ("bobs.mine", BOB)
    assert rolled_back.attacker.pointer() in record.reasons[0].detail


def test_rollback_planned_is_reported(rolled_back: Siege) -> None:
    rolled_back.attacker.plan()
    assert [record.resource for record in audited(rolled_back.lake, "table.unsealed")] == ["bobs.mine"]


def test_nothing_is_committed_on_a_rollback(rolled_back: Siege) -> None:
    table = rolled_back.attacker.catalog.load_table("bobs.mine")
    before = rolled_back.attacker.pointer()
    with pytest.raises(MetadataUnsealed):
        table.append(OWN_ROWS)
    with pytest.raises(MetadataUnsealed):
        rolled_back.attacker.commit_properties({"comment": "x"})
    with pytest.raises(MetadataUnsealed):
        rolled_back.attacker.catalog.rename_table("bobs.mine", "bobs.yours")
    with pytest.raises(MetadataUnsealed):
        rolled_back.attacker.catalog.purge_table("bobs.mine")
    assert rolled_back.attacker.pointer() == before


def test_rollback_where_namespace_forbids_unsealed(rolled_back: Siege) -> None:
    rolled_back.lake.catalog(ALICE).update_namespace_properties(
        "bobs", updates={"lakewarden.unsealed": "forbid"}
    )
    with pytest.raises(MetadataUnsealed):
        rolled_back.attacker.plan()
    with pytest.raises(MetadataUnsealed):
        rolled_back.attacker.scan()


def test_namespace_that_forbids_cannot_be_softened_by_its_tables_owner(rolled_back: Siege) -> None:
    """Another spelling of the property neither counts nor is stored."""
    alice = rolled_back.lake.catalog(ALICE)
    alice.update_namespace_properties("bobs", updates={"lakewarden.unsealed": "forbid"})
    for name, value in {"Lakewarden.Unsealed": "allow", "lakewarden.unsealed": "Allow"}.items():
        with pytest.raises(PropertyInvalid):
            alice.update_namespace_properties("bobs", updates={name: value})
    with pytest.raises(MetadataUnsealed):
        rolled_back.attacker.plan()


def test_pointer_store_does_not_switch_the_protection_of_a_namespace_off(rolled_back: Siege) -> None:
    """Properties that a standard client writes to the pointer store itself are none that protect."""
    lake = rolled_back.lake
    alice = lake.catalog(ALICE)
    alice.update_namespace_properties("bobs", updates={"lakewarden.unsealed": "forbid"})
    url = lake.services.engine.url.render_as_string(hide_password=False)
    planted = {"lakewarden.unsealed": "allow", "encryption.standard-clients": "load"}
    stock = SqlCatalog(lake.settings.catalog.name, uri=url, warehouse=str(lake.warehouse))
    stock.update_namespace_properties("bobs", updates=planted)
    assert alice.load_namespace_properties("bobs").items().isdisjoint(planted.items())
    assert lake.services.loader.forbids_unsealed(table_name(["bobs"], "x"))
    with pytest.raises(MetadataUnsealed):
        rolled_back.attacker.plan()


def test_rollback_of_encrypted_table(vault: Attacker) -> None:
    with no_key_released(vault.lake):
        with pytest.raises(MetadataUnsealed, match="unsealed-encrypted"):
            vault.plan()
        with pytest.raises(MetadataUnsealed, match="unsealed-encrypted"):
            vault.plan(engine="spark")
        with pytest.raises(MetadataUnsealed):
            vault.lake.services.writes.begin(vault.lake.caller(ALICE), table_name(["bobs"], "vault"))


def test_rollback_of_encrypted_table_is_not_resealed(vault: Attacker) -> None:
    with no_key_released(vault.lake), pytest.raises(MetadataUnsealed, match="unsealed-encrypted"):
        vault.lake.services.registration.reseal(vault.lake.caller(ALICE), table_name(["bobs"], "vault"))


def test_rollback_to_before_encryption(siege: Siege) -> None:
    """A table that was encrypted since: its plaintext past gives no way around the present."""
    siege.attacker.user = ALICE
    before = siege.attacker.pointer()
    siege.attacker.commit_properties(_ENCRYPTED)
    siege.attacker.point(before)
    with no_key_released(siege.lake), pytest.raises(MetadataUnsealed, match="unsealed-encrypted"):
        siege.attacker.plan(ALICE)


def test_rollback_undone_by_restore(rolled_back: Siege) -> None:
    rolled_back.lake.services.registration.restore(rolled_back.lake.caller(BOB), table_name(["bobs"], "mine"))
    assert rolled_back.attacker.scan() == [1, 1, 2, 2]
    assert rolled_back.attacker.loaded().seal is not None


@pytest.mark.parametrize("point", ["checked", "metadata-written", "prepared"])
def test_rollback_under_a_commit(siege: Siege, point: str) -> None:
    """The pointer is put back before the commit lands: the commit loses."""
    siege.attacker.catalog.load_table("bobs.mine").append(OWN_ROWS)
    current = siege.attacker.pointer()
    older = siege.attacker.metadata.metadata_log[-1].metadata_file
    table = siege.attacker.catalog.load_table("bobs.mine")

    def roll_back(reached: str) -> None:
        if reached == point:
            siege.attacker.point(older)

    with crash_points.hooked(roll_back), pytest.raises(CommitConflict), table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    assert siege.attacker.pointer() == older
    assert siege.attacker.loaded().seal is None
    siege.attacker.point(current)
    assert siege.attacker.loaded().seal is not None


def test_rollback_of_a_commit_that_was_just_published(siege: Siege) -> None:
    """It was acknowledged, so it is not lost: the table is rolled back until the pointer is restored."""
    before = siege.attacker.pointer()

    def roll_back(reached: str) -> None:
        if reached == "published":
            siege.attacker.point(before)

    with crash_points.hooked(roll_back):
        siege.attacker.commit_properties({"comment": "x"})
    assert siege.attacker.loaded().seal is None
    name = table_name(["bobs"], "mine")
    restored = siege.lake.services.registration.restore(siege.lake.caller(BOB), name)
    assert restored.metadata.properties["comment"] == "x"


def test_pointer_on_a_commit_that_lost(siege: Siege) -> None:
    """Metadata that was prepared and abandoned is not sealed by moving the pointer there."""
    lost: list[str] = []

    def overtake(reached: str) -> None:
        if reached == "prepared" and not lost:
            lost.append(newest_metadata(siege))
            siege.attacker.commit_properties({"overtaken": "yes"})

    with crash_points.hooked(overtake), pytest.raises(CommitConflict):
        siege.attacker.commit_properties({"comment": "lost"})
    siege.attacker.point(lost[0])
    assert not local(lost[0]).exists()
    with pytest.raises(LakewardenError):
        siege.attacker.plan()


def newest_metadata(siege: Siege) -> str:
    """The metadata.json that was written last."""
    directory = local(siege.attacker.location) / "metadata"
    newest = max(directory.glob("*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)
    return f"file://{newest}"
