"""Another table's rows through one's own: the planted path, in all three ways in.

A standard client that plans by itself reads the foreign rows; the catalog refuses them at commit, plan and
scan, before anything of the victim's is opened.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate, SetStatisticsUpdate, TableUpdate

from policy.errors import LocationNotAllowed
from tests.attacks.traps import OpenWatch
from tests.support.attacker import Siege, entry, lay_siege, local, new_id, stock_rows, updates
from tests.support.lake import ALICE, BOB
from tests.support.service import Service

Plant = Callable[[Siege], list[TableUpdate]]


def plant_data_file(siege: Siege) -> list[TableUpdate]:
    return siege.attacker.appending(entry(siege.secret_file()))


def plant_position_deletes(siege: Siege) -> list[TableUpdate]:
    file = siege.secret_file(content=DataFileContent.POSITION_DELETES)
    return siege.attacker.appending(entry(file), deletes=True)


def plant_equality_deletes(siege: Siege) -> list[TableUpdate]:
    file = siege.secret_file(content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    return siege.attacker.appending(entry(file), deletes=True)


def plant_manifest(siege: Siege) -> list[TableUpdate]:
    """The victim's own manifest in the attacker's list."""
    attacker, snapshot_id = siege.attacker, new_id()
    foreign = siege.victim.manifests()
    return updates(attacker.snapshot([*attacker.manifests(), *foreign], snapshot_id))


def plant_manifest_list(siege: Siege) -> list[TableUpdate]:
    """The victim's own manifest list as the attacker's snapshot."""
    snapshot = siege.victim.metadata.current_snapshot()
    assert snapshot is not None
    return updates(siege.attacker.snapshot([], new_id(), at=snapshot.manifest_list))


def plant_statistics(siege: Siege) -> list[TableUpdate]:
    file = StatisticsFile(
        snapshot_id=siege.attacker.metadata.current_snapshot_id,
        statistics_path=siege.victim.data_paths()[0],
        file_size_in_bytes=100,
        file_footer_size_in_bytes=10,
        blob_metadata=[],
    )
    return [SetStatisticsUpdate(statistics=file)]


def plant_partition_statistics(siege: Siege) -> list[TableUpdate]:
    file = PartitionStatisticsFile(
        snapshot_id=siege.attacker.metadata.current_snapshot_id,
        statistics_path=siege.victim.data_paths()[0],
        file_size_in_bytes=100,
    )
    return [SetPartitionStatisticsUpdate(partition_statistics=file)]


ALL_PLANTS = [
    plant_data_file,
    plant_position_deletes,
    plant_equality_deletes,
    plant_manifest,
    plant_manifest_list,
    plant_statistics,
    plant_partition_statistics,
]


@pytest.mark.parametrize("plant", [plant_data_file, plant_manifest, plant_manifest_list])
def test_standard_client_reads_foreign_rows(siege: Siege, watch: OpenWatch, plant: Plant) -> None:
    """The attack is real, and the trap sees it."""
    siege.attacker.commit_behind(*plant(siege))
    watch.opened()
    assert set(stock_rows(siege.lake, "bobs.mine")) >= {7001, 7002}
    assert watch.opened()


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("plant", ALL_PLANTS)
def test_foreign_path_committed_through_catalog(siege: Siege, watch: OpenWatch, plant: Plant) -> None:
    planted = plant(siege)
    before = siege.attacker.pointer()
    watch.opened()
    with pytest.raises(LocationNotAllowed) as refusal:
        siege.attacker.commit(*planted)
    assert watch.opened() == []
    assert refusal.value.table == "bobs.mine"
    assert siege.attacker.pointer() == before


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("plant", ALL_PLANTS)
def test_foreign_path_committed_to_pointer_store(siege: Siege, watch: OpenWatch, plant: Plant) -> None:
    """Not even for a user who can read both tables, or with unsealed metadata allowed."""
    siege.attacker.commit_behind(*plant(siege))
    watch.opened()
    with pytest.raises(LocationNotAllowed):
        siege.attacker.plan(ALICE)
    with pytest.raises(LocationNotAllowed):
        siege.attacker.scan(ALICE)
    assert watch.opened() == []


def test_foreign_path_committed_over_rest(service: Service) -> None:
    """A standard client of the running service; the answer names the error and the hint."""
    siege = lay_siege(service.lake)
    stock = service.iceberg(BOB)
    table = stock.load_table("bobs.mine")
    with OpenWatch(local(siege.victim.location)) as watch:
        planted = plant_data_file(siege)
        watch.opened()
        with pytest.raises(ForbiddenError, match="LocationNotAllowed"):
            stock.commit_table(table, (), tuple(planted))
        assert watch.opened() == []
    assert stock.load_table("bobs.mine").metadata_location == table.metadata_location


def test_foreign_path_committed_to_pointer_store_seen_over_rest(service: Service) -> None:
    siege = lay_siege(service.lake)
    siege.attacker.commit_behind(*plant_data_file(siege))
    with OpenWatch(local(siege.victim.location)) as watch, service.client(BOB, "spark") as client:
        answer = client.post("/engine/v1/tables/bobs/mine/plan", json={})
        assert answer.status_code == 403
        assert answer.json()["error"]["type"] == "LocationNotAllowed"
        assert watch.opened() == []


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("plant", ALL_PLANTS)
def test_foreign_path_is_never_sealed(siege: Siege, watch: OpenWatch, plant: Plant) -> None:
    """What went behind the catalog's back is not sealed afterwards either."""
    siege.attacker.commit_behind(*plant(siege))
    watch.opened()
    with pytest.raises(LocationNotAllowed):
        siege.lake.services.registration.reseal(siege.lake.caller(ALICE), siege.attacker.loaded().record.name)
    assert watch.opened() == []
    assert siege.attacker.loaded().seal is None
