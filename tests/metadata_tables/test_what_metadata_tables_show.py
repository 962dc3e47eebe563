"""Metadata tables show a user nothing of columns that the user cannot select unmasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddPartitionSpecUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from catalog.base.errors import TableExists
from catalog.iceberg import layout
from catalog.metadata_tables.kinds import OF_METADATA, MetadataTable
from catalog.tables.schema_changes import RenameColumn
from policy.errors import NotAuthorized
from tests.catalog.checked_commits import commit
from tests.support.lake import ALICE, CAROL, Lake, policy
from tests.support.metadata_tables import page, rows
from tests.support.tables import ENCRYPTED, Engine, make, name_of, named, records

Policies = Callable[..., None]
DAN, ERIN, FAY = "dan", "erin", "fay"
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "secret", LongType()),
    NestedField(
        4, "person", StructType(NestedField(5, "ssn", LongType()), NestedField(6, "age", LongType()))
    ),
)
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
LONGS = (1, 3, 5, 6)
STATISTICS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")


def grant(user: str, *columns: str, table: str = "*", **more: Any) -> dict[str, Any]:
    resources = {"database": ["db"], "table": [table], "column": list(columns)}
    return policy(f"{user} reads {columns} of {table}", resources, {user: ["select"]}, **more)


def described(lake: Lake, value: int = 7, **options: Any) -> Table:
    """A table with one file whose every column has statistics."""
    table = make(lake, schema=SCHEMA, **({"partition_spec": BY_REGION} | options))
    engine = Engine.begin(lake, name_of(table))
    bounds = {number: to_bytes(LongType(), value) for number in LONGS}
    counts = {**dict.fromkeys(LONGS, 10), 2: 10}
    sizes = {} if engine.session.transport else {"column_sizes": counts}
    engine.append(
        engine.file(
            partition={"region": "eu"} if table.spec().fields else {},
            value_counts=counts,
            null_value_counts=dict.fromkeys(counts, 0),
            lower_bounds=bounds,
            upper_bounds=bounds,
            **sizes,
        )
    )
    return table


def statistics(lake: Lake, table: Table, **asked: Any) -> set[int]:
    """The columns that any statistic shows something of."""
    (row,) = rows(lake, table, "files", **asked)
    readable = {name for name, metrics in row["readable_metrics"].items() if any(metrics.values())}
    by_map = set().union(*((row[name] or {}).keys() for name in STATISTICS))
    today = lake.catalog().load_table(table.name()).schema()
    assert readable <= {today.find_column_name(each) for each in by_map}
    return by_map


@pytest.mark.parametrize("properties", [{}, ENCRYPTED, {"encryption.columns": "pii:secret;hr:id"}])
def test_statistics_of_columns_that_the_user_can_select(
    lake: Lake, policies: Policies, properties: dict[str, str]
) -> None:
    table = described(lake, properties=properties, partition_spec=PartitionSpec())
    policies(grant(DAN, "id"), grant(ERIN, "person", "region"), grant(FAY, "*"))
    assert statistics(lake, table) == {1, 2, 3, 5, 6}
    assert statistics(lake, table, user=DAN) == {1}
    assert statistics(lake, table, user=ERIN) == {2, 5, 6}
    denial = [{"users": [ERIN], "accesses": [{"type": "select"}]}]
    resources = {
        "database": {"values": ["db"]},
        "table": {"values": ["*"]},
        "column": {"values": ["person.ssn"]},
    }
    denied = {"name": "no ssn", "service": "lake", "resources": resources, "denyPolicyItems": denial}
    policies(grant(ERIN, "person", "region"), denied)
    assert statistics(lake, table, user=ERIN) == {2, 6}


def test_statistics_of_a_masked_column_are_not_shown(lake: Lake, policies: Policies) -> None:
    table = described(lake, partition_spec=PartitionSpec())
    mask = {
        "name": "mask",
        "service": "lake",
        "policyType": 1,
        "resources": {
            "database": {"values": ["db"]},
            "table": {"values": ["*"]},
            "column": {"values": ["secret"]},
        },
        "dataMaskPolicyItems": [
            {"users": [DAN], "accesses": [{"type": "select"}], "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}
        ],
    }
    policies(grant(DAN, "*"), mask)
    assert statistics(lake, table, user=DAN) == {1, 2, 5, 6}


def test_a_row_filter_refuses_what_is_made_of_files(lake: Lake, policies: Policies) -> None:
    table = described(lake)
    rows_of = {
        "name": "rows",
        "service": "lake",
        "policyType": 2,
        "resources": {"database": {"values": ["db"]}, "table": {"values": ["*"]}},
        "rowFilterPolicyItems": [
            {"users": [DAN], "accesses": [{"type": "select"}], "rowFilterInfo": {"filterExpr": "id = 1"}}
        ],
    }
    policies(grant(DAN, "*"), rows_of)
    for kind in set(MetadataTable) - OF_METADATA:
        with pytest.raises(NotAuthorized):
            page(lake, table, kind, user=DAN)
    shown, whole = (rows(lake, table, "snapshots", user=user) for user in (DAN, ALICE))
    assert len(shown) == len(whole) and shown[0]["operation"] == whole[0]["operation"]
    entries = {name for row in shown for name in row["summary"]}
    assert not any(each.startswith(("added-", "total-", "changed-")) for each in entries)
    assert all("total-records" in row["summary"] for row in whole)


def test_renamed_columns_are_hidden_under_their_old_names_too(lake: Lake, policies: Policies) -> None:
    table = described(lake, partition_spec=PartitionSpec())
    policies(grant(DAN, "id", "public"))
    lake.services.alterer.alter(lake.caller(ALICE), name_of(table), [RenameColumn(("secret",), "public")])
    assert statistics(lake, table, user=DAN) == {1}


def test_partition_values_and_paths_of_hidden_columns(lake: Lake, policies: Policies) -> None:
    table = described(lake)
    policies(grant(DAN, "id"), grant(ERIN, "region"))
    found = page(lake, table, "files", user=DAN)
    assert found.hidden == ("file_path", "referenced_data_file", "partition.region")
    (row,) = rows(lake, table, "files", user=DAN)
    assert (row["file_path"], row["partition"], row["record_count"]) == (None, {"region": None}, 10)
    (row,) = rows(lake, table, "partitions", user=DAN)
    assert (row["partition"], row["record_count"]) == ({"region": None}, 10)
    (row,) = rows(lake, table, "manifests", user=DAN)
    assert row["partition_summaries"] == [
        {"contains_null": None, "contains_nan": None, "lower_bound": None, "upper_bound": None}
    ]
    (row,) = rows(lake, table, "entries", user=DAN)
    assert row["data_file"]["file_path"] is None and row["data_file"]["partition"] == {"region": None}
    (row,) = rows(lake, table, "files", user=ERIN)
    assert row["file_path"] and row["partition"] == {"region": "eu"} and row["lower_bounds"] == {}
    assert page(lake, table, "files", user=ERIN).hidden == ()


def test_a_partition_field_with_the_id_of_a_hidden_columns_shows_none_of_its_values(
    lake: Lake, policies: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = described(lake)
    other = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "of_id"), spec_id=1)
    with monkeypatch.context() as patched:
        # As a registered table of version 1 can have it.
        patched.setattr(layout, "check_field_ids", lambda *_: None)
        commit(lake, lake.catalog().load_table(table.name()), AddPartitionSpecUpdate(spec=other))
    policies(grant(DAN, "id"))
    for kind in ("files", "all_files", "partitions"):
        assert [each["partition"] for each in rows(lake, table, kind, user=DAN)] == [{"of_id": None}], kind
    assert "partition.of_id" in page(lake, table, "files", user=DAN).hidden


def test_summaries_of_snapshots_name_no_hidden_partition(lake: Lake, policies: Policies) -> None:
    rows_of = pa.table({"id": [1], "region": ["eu"]})
    limit = {"write.summary.partition-limit": "9"}
    table = make(lake, schema=Schema(*SCHEMA.fields[:2]), partition_spec=BY_REGION, properties=limit)
    lake.catalog().load_table(table.name()).append(rows_of)
    policies(grant(DAN, "id"))

    def told(user: str) -> bool:
        (row,) = rows(lake, table, "snapshots", "summary", user=user)
        return any("eu" in name for name in row["summary"])

    assert told(ALICE) and not told(DAN)


def test_two_tables_that_differ_in_a_hidden_column_look_alike(lake: Lake, policies: Policies) -> None:
    policies(grant(DAN, "id", "region"))
    for properties in ({}, ENCRYPTED):
        one, other = (
            described(lake, value, properties=properties, partition_spec=PartitionSpec()) for value in (7, 8)
        )
        for kind, column in (
            ("files", "lower_bounds"),
            ("entries", "readable_metrics"),
            ("all_files", "upper_bounds"),
        ):
            left, right = (rows(lake, each, kind, column, user=DAN) for each in (one, other))
            assert _without_id(left) == _without_id(right)


def _without_id(found: list[dict[str, Any]]) -> list[Any]:
    return [
        {name: value for name, value in (each or {}).items() if name not in (1, "id")}
        for row in found
        for each in row.values()
    ]


def test_who_can_read_metadata_tables(lake: Lake, policies: Policies) -> None:
    table = described(lake)
    loads = policy("dan updates", {"database": ["db"], "table": ["*"], "column": ["*"]}, {DAN: ["update"]})
    policies(loads, grant(ERIN, "nothing"))
    for kind in MetadataTable:
        if kind in OF_METADATA:
            assert page(lake, table, kind, user=DAN)
        else:
            with pytest.raises(NotAuthorized):
                page(lake, table, kind, user=DAN)
        for user in (ERIN, "nobody"):
            with pytest.raises(NotAuthorized):
                page(lake, table, kind, user=user)


def test_encrypted_bounds_take_the_keys_of_a_process_without_an_engine(
    lake: Lake, policies: Policies
) -> None:
    table = described(lake, properties=ENCRYPTED, partition_spec=PartitionSpec())
    assert statistics(lake, table, engine=None) == {1, 2, 3, 5, 6}
    assert statistics(lake, table, user=CAROL) == {1, 2, 3, 5, 6}
    assert statistics(lake, table, user=CAROL, engine=None) == set()


def test_what_is_shown_is_recorded(lake: Lake, policies: Policies) -> None:
    table = described(lake)
    policies(grant(DAN, "id", "region"))
    caller = lake.caller(DAN, "spark")
    from catalog.metadata_tables.pages import PageRequest

    lake.services.metadata_tables.page(caller, name_of(table), PageRequest(MetadataTable.FILES))
    found = [each for each in records(lake, caller) if each.allowed and each.action == "table.inspect"]
    assert found


def test_a_table_of_the_same_name_comes_first_for_users_who_see_it(lake: Lake, policies: Policies) -> None:
    table = described(lake)
    name = name_of(table)
    lake.catalog().create_namespace((*name.namespace, name.name))
    lake.catalog().create_table((*name.namespace, name.name, "files"), SCHEMA)
    with pytest.raises(TableExists):
        page(lake, table, "files")
    assert rows(lake, table, "entries")
    policies(grant(DAN, "id"))
    assert rows(lake, table, "files", user=DAN)
    assert named("x")
