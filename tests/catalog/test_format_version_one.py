"""Tables of format version 1, which has no sequence numbers: plaintext, and written by standard clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertCreate,
    SetPropertiesUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.transforms import BucketTransform, IdentityTransform

from catalog.base.identifiers import TableName
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from catalog.tables.alter import SetProperty
from catalog.tables.drafts import NewTable
from policy.errors import (
    LakewardenError,
    MetadataInvalid,
    MetadataTampered,
    RequestInvalid,
    UnsupportedFormatVersion,
)
from tests.support.attacker import Attacker, data_file, entry, new_id, refused, updates
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, fresh, make, name_of, rows

VERSION_1 = {"format-version": "1"}


def ids(lake: Lake, table: Table) -> list[int]:
    """What a standard client reads, which plans by itself."""
    return sorted(lake.catalog().load_table(str(name_of(table))).scan().to_arrow()["id"].to_pylist())


def load(lake: Lake, name: TableName) -> LoadedTable:
    return lake.services.loader.load(name)


def planned(lake: Lake, table: Table) -> int:
    """The number of files that the catalog plans."""
    return lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest()).files.num_rows


@pytest.mark.nightly
def test_standard_clients_write_a_version_one_table_and_upgrade_it(lake: Lake) -> None:
    table = make(lake, properties=VERSION_1)
    table.append(rows(1))
    table.append(rows(3))
    table.delete(EqualTo("id", 1))
    with table.update_spec() as change:
        change.add_identity("name")
    table.append(rows(5))
    with table.update_spec() as change:
        change.remove_field("name")
    with table.update_schema() as evolution:
        evolution.rename_column("name", "label")
    table.append(rows(7).rename_columns(["id", "label"]))
    assert table.format_version == 1
    assert (ids(lake, table), planned(lake, table)) == ([2, 3, 4, 5, 6, 7, 8], 5)
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table.append(rows(9).rename_columns(["id", "label"]))
    table.delete(EqualTo("id", 9))
    assert (table.format_version, table.metadata.last_sequence_number) == (2, 2)
    assert (ids(lake, table), planned(lake, table)) == ([2, 3, 4, 5, 6, 7, 8, 10], 6)


def test_readers_of_version_one_alone_find_the_current_schema_and_spec(lake: Lake) -> None:
    table = make(lake, properties=VERSION_1)
    with table.update_schema() as evolution:
        evolution.rename_column("name", "label")
    with table.update_spec() as change:
        change.add_identity("label")
    metadata = load(lake, name_of(table)).metadata
    assert isinstance(metadata, TableMetadataV1)
    assert metadata.schema_ == metadata.schema()
    assert [each["field-id"] for each in metadata.partition_spec] == [1000]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "attempt",
    [
        lambda lake, table: make(lake, properties=VERSION_1 | ENCRYPTED),
        lambda lake, table: lake.services.alterer.alter(
            lake.caller(ALICE), name_of(table), [SetProperty("encryption.mechanism", "envelope")]
        ),
        lambda lake, table: lake.services.committer.commit(
            lake.caller(ALICE), name_of(table), [], [SetPropertiesUpdate(updates=ENCRYPTED)]
        ),
        lambda lake, table: lake.services.creator.stage(
            lake.caller(ALICE), NewTable(fresh(), SCHEMA, properties=VERSION_1 | ENCRYPTED)
        ),
        lambda lake, table: Engine.stage(lake, fresh(), properties=VERSION_1),
        lambda lake, table: Engine.begin(lake, name_of(table)),
    ],
    ids=["create", "alter", "commit", "stage", "engine creates", "engine writes"],
)
def test_encryption_and_engines_need_version_two(lake: Lake, attempt: Callable[[Lake, Table], Any]) -> None:
    """Without sequence numbers, nothing says which files are of an encrypted epoch."""
    table = make(lake, properties=VERSION_1)
    with pytest.raises(UnsupportedFormatVersion) as refusal:
        attempt(lake, table)
    assert (refusal.value.rule, refusal.value.hint.count("2")) == ("format-version", 2)
    assert not load(lake, name_of(table)).governed.ever_encrypted


@pytest.mark.parametrize("version", [0, 3])
def test_no_update_upgrades_to_a_version_that_clients_cannot_write(lake: Lake, version: int) -> None:
    name = name_of(make(lake))
    with pytest.raises(UnsupportedFormatVersion) as refusal:
        upgrade = UpgradeFormatVersionUpdate(format_version=version)
        lake.services.committer.commit(lake.caller(ALICE), name, [], [upgrade])
    assert (refusal.value.rule, refusal.value.table) == ("format-version", str(name))


def test_a_version_one_table_is_encrypted_by_the_commit_that_upgrades_it(lake: Lake) -> None:
    table = make(lake, properties=VERSION_1)
    table.append(rows(1))
    upgraded = [UpgradeFormatVersionUpdate(format_version=2), SetPropertiesUpdate(updates=ENCRYPTED)]
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], upgraded)
    epochs = load(lake, name_of(table)).governed.epochs
    assert [(each.from_sequence_number, each.spec.encrypts) for each in epochs.entries] == [
        (0, False),
        (1, True),
    ]
    attacker = Attacker(lake, str(name_of(table)), ALICE)
    plain = attacker.appending(entry(data_file(f"{attacker.location}/data/plain.parquet")))
    with pytest.raises(LakewardenError):
        attacker.commit(*plain)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("in_snapshot", "in_entry", "rule"),
    [
        (1, {}, "sequence-number"),
        (0, {"sequence_number": 7}, "new-file"),
        (0, {"file_sequence_number": 7}, "new-file"),
    ],
)
def test_no_sequence_number_enters_a_version_one_table(
    lake: Lake, in_snapshot: int, in_entry: dict[str, int], rule: str
) -> None:
    table = make(lake, properties=VERSION_1)
    attacker = Attacker(lake, str(name_of(table)), ALICE)
    attacker.commit(*appending(attacker, "honest.parquet", 0))
    refused(attacker, MetadataTampered, rule, *appending(attacker, "forged.parquet", in_snapshot, **in_entry))
    assert ids_of_files(attacker) == ["honest.parquet"]


def appending(attacker: Attacker, name: str, number: int, **in_entry: int) -> list[Any]:
    added = entry(data_file(f"{attacker.location}/data/{name}"), **in_entry)
    snapshot_id = new_id()
    manifest = attacker.manifest([added], snapshot_id)
    return updates(attacker.snapshot([*attacker.manifests(), manifest], snapshot_id, sequence_number=number))


def ids_of_files(attacker: Attacker) -> list[str]:
    return [path.rpartition("/")[2] for path in attacker.data_paths()]


def test_version_one_has_no_delete_files(lake: Lake) -> None:
    table = make(lake, properties=VERSION_1)
    attacker = Attacker(lake, str(name_of(table)), ALICE)
    snapshot_id = new_id()
    added = entry(data_file(f"{attacker.location}/data/deletes.parquet"))
    manifest = attacker.manifest([added], snapshot_id, deletes=True)
    with pytest.raises(MetadataInvalid):
        attacker.commit(*updates(attacker.snapshot([manifest], snapshot_id, sequence_number=0)))


def test_partition_fields_of_version_one_are_kept(lake: Lake) -> None:
    """Iceberg Java does not open version 1 with gaps in the ids of partition fields."""
    table = make(lake, properties=VERSION_1)
    with table.update_spec() as change:
        change.add_identity("name")
    gap = PartitionSpec(PartitionField(1, 1001, BucketTransform(4), "id_bucket"), spec_id=2)
    for spec in (gap, PartitionSpec(PartitionField(2, 1001, IdentityTransform(), "name"), spec_id=2)):
        with pytest.raises(RequestInvalid) as refusal:
            lake.services.committer.commit(
                lake.caller(ALICE), name_of(table), [], [AddPartitionSpecUpdate(spec=spec)]
            )
        assert refusal.value.rule == "partition-field"


def test_a_staged_table_without_a_version_has_version_two(lake: Lake) -> None:
    new = NewTable(fresh(), SCHEMA)
    staged = lake.services.creator.stage(lake.caller(ALICE), new).metadata
    made = [each for each in creating(staged) if not isinstance(each, UpgradeFormatVersionUpdate)]
    lake.services.creator.commit_staged(lake.caller(ALICE), new.name, [AssertCreate()], made)
    assert load(lake, new.name).metadata.format_version == 2


def creating(staged: Any) -> list[Any]:
    transaction = CreateTableTransaction(StagedTable((), staged, "", None, None))  # type: ignore[arg-type]
    return list(transaction._updates)
