"""Tables with keys of their own for columns: every key is rotated, and rewrapped, for itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from catalog.base.identifiers import TableName
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.transport import KeyLabel, open_transported
from catalog.planning.request import ScanRequest
from policy.errors import KeyNotUsable
from tests.support.lake import ALICE, MASTER_KEY, Lake, open_lake
from tests.support.table_keys import load, peks, rewrap
from tests.support.tables import append_files, make, name_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "amount", DecimalType(20, 3)),
    NestedField(6, "key", UUIDType()),
    NestedField(7, "text", StringType()),
    NestedField(8, "yes", BooleanType()),
    NestedField(9, "ratio", DoubleType()),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "id"),
    PartitionField(3, 1001, IdentityTransform(), "day"),
    PartitionField(4, 1002, DayTransform(), "at_day"),
    PartitionField(5, 1003, IdentityTransform(), "amount"),
    PartitionField(6, 1004, IdentityTransform(), "key"),
    PartitionField(7, 1005, IdentityTransform(), "text"),
    PartitionField(8, 1006, IdentityTransform(), "yes"),
    PartitionField(9, 1007, IdentityTransform(), "ratio"),
)
SOME: dict[str, object] = {
    "id": 7,
    "day": "2030-01-31",
    "at_day": "2029-12-31",
    "amount": "-12345678901234567.891",
    "key": "6f1c1f2e-0a63-4f6e-9d0c-0d1a2b3c4d5e",
    "text": "ü/%2F =",
    "yes": True,
    "ratio": 0.1,
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake(tmp_path_factory.mktemp("lake")) as lake:
        lake.catalog().create_namespace("db")
        lake.kms.create_master_key("pii")
        yield lake


@pytest.fixture
def name(lake: Lake) -> TableName:
    """A partitioned table whose column `ssn` has a key of its own, with two files."""
    table = make(lake, schema=SCHEMA, partition_spec=SPEC, properties={"encryption.columns": "pii:ssn"})
    name = name_of(table)
    append_files(lake, name, partition=SOME)
    append_files(lake, name, partition=dict.fromkeys(SOME) | {"ratio": math.nan})
    return name


def column(lake: Lake, name: TableName, column: str) -> list[Any]:
    """A column of the manifests' entries, of every file."""
    table, reader = load(lake, name), lake.services.reader
    head = table.metadata.current_snapshot()
    assert head is not None
    opened = reader.open(table, reader.manifests(table, head))
    return [value for manifest in opened for value in manifest.entries[column].to_pylist()]


def versions(lake: Lake, name: TableName) -> set[tuple[tuple[str, int], ...]]:
    parsed = [KeyMetadata.parse(each).entries for each in column(lake, name, "key_metadata")]
    bound = [[entry.bound.pek for entry in entries] for entries in parsed]
    return {tuple((ref.master_key_id, ref.version) for ref in refs) for refs in bound}


def released(lake: Lake, name: TableName) -> dict[tuple[str, KeyLabel], bytes]:
    plan = lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest())
    transport, found = plan.header.transport, {}
    assert transport is not None
    for row in plan.files.to_pylist():
        identity = FileIdentity.of(plan.header.table.record.table_uuid, row["file_path"])
        for key in row["keys"]:
            label = KeyLabel(key["key_name"], tuple(key["field_ids"]))
            opened = open_transported(transport, key["wrapped"], identity, label)
            found[row["file_path"], label] = opened.reveal()
    return found


def test_every_key_is_rotated_and_rewrapped(lake: Lake, name: TableName) -> None:
    keys, before = released(lake, name), sorted(map(repr, column(lake, name, "partition")))
    assert len(keys) == 4
    rotated = lake.services.key_rotation.rotate(lake.caller(ALICE), name)
    assert {now.master_key_id for _, now in rotated.versions} == {MASTER_KEY, "pii"}
    assert versions(lake, name) == {((MASTER_KEY, 1), ("pii", 1))}
    assert released(lake, name) == keys
    assert rewrap(lake, name) == {"main": 2}
    assert versions(lake, name) == {((MASTER_KEY, 2), ("pii", 2))}
    assert released(lake, name) == keys
    assert sorted(map(repr, column(lake, name, "partition"))) == before
    append_files(lake, name, partition=SOME)
    assert versions(lake, name) == {((MASTER_KEY, 2), ("pii", 2))}


def test_one_key_is_disabled_by_itself(lake: Lake, name: TableName) -> None:
    (pii,) = [each for each in peks(lake, name) if each.master_key_id == "pii"]
    lake.services.key_life.disable(lake.caller(ALICE), name, pii.id)
    with pytest.raises(KeyNotUsable):
        released(lake, name)
    plan = lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest(columns=("id",)))
    assert plan.files.num_rows == 2
