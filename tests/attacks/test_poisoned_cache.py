"""What one table's metadata says must not colour how another table is read in the same process."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import ManifestFile, PartitionFieldSummary, clear_manifest_cache
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from policy.errors import LocationNotAllowed
from tests.support.attacker import SECRET_ROWS, Attacker, Siege, new_id, relisted, stock_catalog, updates
from tests.support.lake import ALICE

_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
_BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))


@pytest.fixture
def parted(siege: Siege) -> Attacker:
    """A partitioned table of Alice's."""
    table = siege.lake.catalog(ALICE).create_table("db.parted", _SCHEMA, partition_spec=_BY_ID)
    table.append(SECRET_ROWS)
    clear_manifest_cache()
    return Attacker(siege.lake, "db.parted", ALICE)


def lying_about(victim: Attacker) -> ManifestFile:
    """The victim's manifest, described as one without the rows that are there."""
    [known] = victim.manifests()
    summary = {
        "contains_null": False,
        "contains_nan": False,
        "lower_bound": bytes(8),
        "upper_bound": bytes(8),
    }
    return relisted(known, partitions=[PartitionFieldSummary.from_args(**summary)])


def test_victims_manifest_described_otherwise_in_the_attackers_list(siege: Siege, parted: Attacker) -> None:
    """pyiceberg keeps what a list says of a manifest by the manifest's path alone, for the whole process."""
    attacker = siege.attacker
    attacker.commit_behind(*updates(attacker.snapshot([lying_about(parted)], new_id())))
    with pytest.raises(LocationNotAllowed):
        attacker.scan(ALICE)
    found = siege.lake.catalog(ALICE).load_table("db.parted").scan(row_filter="id = 7001").to_arrow()
    assert found.num_rows == 1


def test_victims_manifest_described_otherwise_after_load(siege: Siege, parted: Attacker) -> None:
    """The attacker's unsealed list is edited after the table was loaded and found clean."""
    attacker, alice = siege.attacker, siege.lake.catalog(ALICE)
    planted = updates(attacker.snapshot(attacker.manifests(), new_id()))
    attacker.commit_behind(*planted)
    table = alice.load_table("bobs.mine")
    snapshot = attacker.metadata.current_snapshot()
    assert snapshot is not None
    attacker.snapshot([lying_about(parted)], snapshot.snapshot_id, at=snapshot.manifest_list)
    with pytest.raises(LocationNotAllowed):
        table.scan().to_arrow()
    found = alice.load_table("db.parted").scan(row_filter="id = 7001").to_arrow()
    assert found.num_rows == 1


def test_the_poison_works_on_a_standard_client(siege: Siege, parted: Attacker) -> None:
    """Both tables read by standard clients of one process: a row of the victim's is missing."""
    attacker = siege.attacker
    attacker.commit_behind(*updates(attacker.snapshot([lying_about(parted)], new_id())))
    catalog = stock_catalog(siege.lake)
    mine = catalog.load_table("bobs.mine")
    mine.metadata.current_snapshot().manifests(mine.io)
    found = catalog.load_table("db.parted").scan(row_filter="id = 7001").to_arrow()
    catalog.close()
    clear_manifest_cache()
    assert found.num_rows == 0
