"""Write sessions: the partitions that files are committed to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    UUIDType,
)

from catalog.base.errors import CommitConflict
from catalog.planning.request import ScanRequest
from catalog.writes.new_files import FileCommit
from policy.errors import RequestInvalid
from tests.support.lake import ALICE, Lake, policy, standard_policies, tables
from tests.support.tables import Engine, append_files, make, name_of
from tests.support.write_sessions import refused

PARTITIONED = Schema(
    NestedField(1, "d", DateType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "n", LongType()),
    NestedField(4, "m", DecimalType(9, 2)),
    NestedField(5, "u", UUIDType()),
    NestedField(6, "b", BinaryType()),
    NestedField(7, "f", DoubleType()),
    NestedField(8, "t", BooleanType()),
)
BY_ALL = PartitionSpec(
    *(
        PartitionField(each.field_id, 1000 + each.field_id, IdentityTransform(), each.name)
        for each in PARTITIONED.fields
    )
)
VALUES = {
    "d": "2024-01-31",
    "s": "a/b=c",
    "n": -7,
    "m": "12.50",
    "u": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "b": "00ff",
    "f": -1.5,
    "t": False,
}


def test_partition_values_of_every_kind_arrive(lake: Lake) -> None:
    table = make(lake, schema=PARTITIONED, partition_spec=BY_ALL)
    append_files(lake, name_of(table), partition=VALUES)
    append_files(lake, name_of(table), partition=dict.fromkeys(VALUES))
    found = lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest()).files["partition"]
    assert [json.loads(text) for text in found.to_pylist()] in (
        [VALUES, dict.fromkeys(VALUES)],
        [dict.fromkeys(VALUES), VALUES],
    )


def test_an_append_to_a_partitioned_table_takes_update_alone(lake: Lake) -> None:
    """It compares nothing with the partitions of other files, so it tells nothing of their values."""
    table = name_of(make(lake, schema=PARTITIONED, partition_spec=BY_ALL))
    writer = policy("writes", tables("db"), {"walt": ["update"]})
    lake.set_policies([*standard_policies(), writer])
    try:
        engine = Engine.begin(lake, table, "walt")
        files = FileCommit("append", (engine.file(partition=VALUES),))
        lake.services.writes.commit(lake.caller("walt"), engine.session.id, files)
    finally:
        lake.set_policies(standard_policies())


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "changes",
    [
        *({"d": "not a date"}, {"d": "2024-02-30"}, {"d": True}, {"s": 5}, {"s": None, "extra": 1}),
        *({"n": "text"}, {"n": "7"}, {"n": 1.5}, {"n": True}, {"n": 1 << 63}, {"u": "no-uuid"}, {"b": "xx"}),
        *({"m": "many"}, {"m": "NaN"}, {"m": "1.005"}, {"m": "12345678.00"}, {"m": 5.5}),
        *({"f": "x"}, {"t": "false"}, {"t": 0}),
    ],
    ids=str,
)
def test_partition_values_that_do_not_fit_are_refused(lake: Lake, changes: dict[str, Any]) -> None:
    table = make(lake, schema=PARTITIONED, partition_spec=BY_ALL)
    engine = Engine.begin(lake, name_of(table))
    refused(lake, table, RequestInvalid, lambda: engine.append(engine.file(partition=VALUES | changes)))
    refused(lake, table, RequestInvalid, lambda: engine.append(engine.file()))


@pytest.mark.nightly
def test_a_decimal_keeps_its_value_whatever_scale_it_was_written_with(lake: Lake) -> None:
    table = make(lake, schema=PARTITIONED, partition_spec=BY_ALL)
    for written in ("12.5", "12.500", "1.25E1"):
        append_files(lake, name_of(table), partition=VALUES | {"m": written})
    found = lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest()).files["partition"]
    assert [json.loads(text)["m"] for text in found.to_pylist()] == ["12.50"] * 3


def test_a_table_partitioned_again_since_the_write_began_is_a_conflict(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    with table.update_spec() as update:
        update.add_identity("name")
    refused(lake, table, CommitConflict, lambda: engine.append(engine.file()))
