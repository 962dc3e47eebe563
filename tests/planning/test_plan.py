"""What a plan says and to whom: columns, snapshots, refusals, keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, IsNull, NotStartsWith, StartsWith
from pyiceberg.expressions.parser import parse
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, StructType, TimestampType

from catalog.envelope.data_keys import new_dek
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.transport import open_transported
from catalog.planning.request import ScanRequest
from catalog.writes.new_files import FileCommit
from policy.errors import LocationNotAllowed, NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy
from tests.support.plans import plan
from tests.support.tables import (
    ENCRYPTED,
    LABEL,
    Engine,
    append_files,
    make,
    name_of,
    named,
    paths_in,
    records,
    rows,
)

NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(
        2, "who", StructType(NestedField(3, "name", StringType()), NestedField(4, "age", LongType()))
    ),
)
PATHS = "read.allowed.data.paths"


def deny(column: str, table: Table, users: Sequence[str] = (CAROL,)) -> dict[str, Any]:
    item = {"users": list(users), "accesses": [{"type": "select", "isAllowed": True}]}
    resources = {"database": ["db"], "table": [table.name()[-1]], "column": [column]}
    return policy(f"no-{column}", resources, {}, denyPolicyItems=[item])


def test_an_empty_table_has_an_empty_plan(lake: Lake) -> None:
    made = plan(lake, make(lake))
    assert (made.files.num_rows, made.header.snapshot_id, made.header.transport) == (0, None, None)
    assert made.header.columns == ("id", "name")
    json.dumps(made.header.to_json())


def test_a_table_of_which_everything_was_deleted_has_no_files(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    table.delete("id > 0")
    assert plan(lake, lake.catalog().load_table(table.name())).files.num_rows == 0


def test_a_plan_names_each_file_once_with_what_a_reader_needs(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    table.append(rows(3))
    made = plan(lake, table)
    found = made.files.to_pylist()
    assert [row["record_count"] for row in found] == [2, 2]
    assert sorted(row["sequence_number"] for row in found) == [1, 2]
    assert {row["file_format"] for row in found} == {"PARQUET"}
    assert all(
        Path(row["file_path"].removeprefix("file://")).stat().st_size == row["file_size_in_bytes"]
        for row in found
    )
    assert made.header.snapshot_id == lake.catalog().load_table(table.name()).metadata.current_snapshot_id
    assert made.header.to_json()["sealed"] is True


def test_no_statistics_and_no_key_metadata_are_in_the_answer(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    append_files(lake, name_of(table), value_counts={1: 987654}, column_sizes={1: 876543})
    made = plan(lake, table)
    assert made.files.column_names == [
        *("content", "file_path", "file_format", "record_count", "file_size_in_bytes", "sequence_number"),
        *(
            "file_sequence_number",
            "split_offsets",
            "sort_order_id",
            "spec_id",
            "partition",
            "deletes",
            "equality_ids",
            "location",
            "algorithm",
            "footer",
            "column_keys",
            "digest",
            "footer_digest",
            "keys",
        ),
    ]
    said = repr(made.files.to_pylist()) + json.dumps(made.header.to_json()) + repr(made.header.transport)
    assert "987654" not in said
    assert "876543" not in said
    assert made.header.transport is not None
    assert made.header.transport.key.reveal().hex() not in said


def test_partition_values_are_given_in_json_form(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "day", DateType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "at", TimestampType()),
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "day"),
        PartitionField(2, 1001, IdentityTransform(), "name"),
        PartitionField(3, 1002, DayTransform(), "at_day"),
        PartitionField(3, 1003, IdentityTransform(), "at"),
    )
    table = make(lake, schema=schema, partition_spec=spec)
    values = {"day": "2024-02-29", "name": 'é"', "at_day": "1969-12-31", "at": "1969-12-31T23:59:59.000001"}
    nothing = dict.fromkeys(values)
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(partition=values), engine.file(partition=nothing))
    found = [json.loads(row["partition"]) for row in plan(lake, table).files.to_pylist()]
    assert sorted(found, key=str) == sorted([values, nothing], key=str)


def test_columns_are_projected_and_named(lake: Lake) -> None:
    table = make(lake, schema=NESTED)
    assert plan(lake, table, columns=("who.name",)).header.columns == ("who",)
    assert plan(lake, table, columns=("ID",), case_sensitive=False).header.columns == ("id",)
    assert plan(lake, table, columns=("id",), filter=GreaterThan("who.age", 3)).header.columns == (
        "id",
        "who",
    )
    assert plan(lake, table).header.columns == ("id", "who")


def test_no_columns_is_not_all_columns(lake: Lake) -> None:
    """What counts rows reads none of them."""
    assert plan(lake, make(lake), columns=()).header.columns == ()


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "request_",
    [
        {"columns": ("absent",)},
        {"columns": ("ID",)},
        {"columns": ("",)},
        {"filter": EqualTo("absent", 1)},
        {"filter": EqualTo("id", "not a number")},
        {"snapshot_id": 12345},
        {"ref": "absent"},
        {"as_of_ms": 0},
        {"snapshot_id": 1, "ref": "main"},
        {"ref": "main", "as_of_ms": 1},
    ],
    ids=str,
)
def test_what_the_table_does_not_have_is_one_typed_error(lake: Lake, request_: dict[str, Any]) -> None:
    table = make(lake)
    table.append(rows(1))
    with pytest.raises(RequestInvalid) as refused:
        plan(lake, table, **request_)
    assert refused.value.table == ".".join(table.name())


@pytest.mark.parametrize("text", ["id > 1.5", "id in (1.0, 2.5)", "not (id = '2.25')"])
def test_a_filter_with_a_value_that_no_row_can_have_is_refused_and_not_rounded(lake: Lake, text: str) -> None:
    table = make(lake)
    table.append(rows(1))
    with pytest.raises(RequestInvalid) as refused:
        plan(lake, table, filter=parse(text))
    assert (refused.value.rule, refused.value.table) == ("filter", ".".join(table.name()))
    assert plan(lake, table, filter=parse("id = 1.0")).files.num_rows == 1


def test_how_a_number_begins_is_not_compared(lake: Lake) -> None:
    """Also not by the value of a partition, which would be taken for one of another type."""
    table = make(lake, partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id")))
    table.append(rows(1))
    for each in (StartsWith("id", "1"), NotStartsWith("id", "1")):
        with pytest.raises(RequestInvalid, match="Column id has the type long; starts-with") as refused:
            plan(lake, table, filter=each)
        assert (refused.value.rule, refused.value.table) == ("filter", ".".join(table.name()))


@pytest.mark.nightly
def test_snapshots_branches_tags_and_times_are_read(lake: Lake) -> None:
    table = make(lake)
    for first in (1, 3, 5):
        table.append(rows(first))
    first, second, _ = table.snapshots()
    table.manage_snapshots().create_tag(first.snapshot_id, "v1").create_branch(
        second.snapshot_id, "dev"
    ).commit()
    counts = {"snapshot_id": (first.snapshot_id, 1), "ref": ("dev", 2), "as_of_ms": (second.timestamp_ms, 2)}
    for way, (value, files) in counts.items():
        assert plan(lake, table, **{way: value}).files.num_rows == files
    assert plan(lake, table, ref="v1").files.num_rows == 1
    assert plan(lake, table, ref="main").files.num_rows == 3
    with pytest.raises(RequestInvalid):
        plan(lake, table, as_of_ms=first.timestamp_ms - 1)


def test_the_past_is_read_with_its_own_schema_and_a_branch_with_todays(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "v1").create_branch(
        snapshot.snapshot_id, "b"
    ).commit()
    with table.update_schema() as update:
        update.rename_column("name", "label")
    for way in ({"snapshot_id": snapshot.snapshot_id}, {"ref": "v1"}, {"as_of_ms": snapshot.timestamp_ms}):
        assert plan(lake, table, **way).header.columns == ("id", "name")
    for way in ({}, {"ref": "b"}, {"ref": "main"}):
        assert plan(lake, table, **way).header.columns == ("id", "label")


def test_a_denied_column_is_neither_projected_nor_filtered_by(lake: Lake, policies: Any) -> None:
    table = make(lake)
    table.append(rows(1))
    policies(deny("name", table))
    assert plan(lake, table, user=CAROL, columns=("id",)).files.num_rows == 1
    for request in ({}, {"columns": ("name",)}, {"columns": ("id",), "filter": IsNull("name")}):
        with pytest.raises(NotAuthorized, match="name"):
            plan(lake, table, user=CAROL, **request)
    with pytest.raises(NotAuthorized):
        plan(lake, table, user=CAROL, columns=())
    assert plan(lake, table, user=ALICE).files.num_rows == 1


def test_a_denied_column_is_denied_with_everything_nested_in_it(lake: Lake, policies: Any) -> None:
    table = make(lake, schema=NESTED)
    policies(deny("who", table))
    assert plan(lake, table, user=CAROL, columns=("id",)).header.columns == ("id",)
    for request in ({"columns": ("who.age",)}, {"columns": ("id",), "filter": EqualTo("who.name", "x")}):
        with pytest.raises(NotAuthorized):
            plan(lake, table, user=CAROL, **request)


def test_a_renamed_column_needs_rights_on_both_names(lake: Lake, policies: Any) -> None:
    table = make(lake)
    table.append(rows(1))
    old = table.current_snapshot()
    assert old is not None
    with table.update_schema() as update:
        update.rename_column("name", "secret")
    policies(deny("secret", table))
    with pytest.raises(NotAuthorized):
        plan(lake, table, user=CAROL, snapshot_id=old.snapshot_id, columns=("name",))
    policies(deny("name", table))
    with pytest.raises(NotAuthorized):
        plan(lake, table, user=CAROL, snapshot_id=old.snapshot_id, columns=("name",))
    assert plan(lake, table, user=CAROL, columns=("secret",)).files.num_rows == 1
    assert plan(lake, table, user=CAROL, snapshot_id=old.snapshot_id, columns=("id",)).files.num_rows == 1


def _mask(table: Table, column: str) -> dict[str, Any]:
    item = {
        "users": [CAROL],
        "accesses": [{"type": "select", "isAllowed": True}],
        "dataMaskInfo": {"dataMaskType": "MASK_HASH"},
    }
    resources = {"database": ["db"], "table": [table.name()[-1]], "column": [column]}
    return policy("mask", resources, {}, policyType=1, dataMaskPolicyItems=[item]) | {"policyItems": []}


def _row_filter(table: Table) -> dict[str, Any]:
    item = {
        "users": [CAROL],
        "accesses": [{"type": "select", "isAllowed": True}],
        "rowFilterInfo": {"filterExpr": "id < 5"},
    }
    resources = {"database": ["db"], "table": [table.name()[-1]]}
    return policy("rows", resources, {}, policyType=2, rowFilterPolicyItems=[item]) | {"policyItems": []}


def test_a_masked_column_is_refused_and_the_others_are_not(lake: Lake, policies: Any) -> None:
    table = make(lake)
    policies(_mask(table, "name"))
    for request in ({}, {"columns": ("id",), "filter": EqualTo("name", "x")}):
        with pytest.raises(NotAuthorized) as refused:
            plan(lake, table, user=CAROL, **request)
        assert refused.value.rule == "mask"
    assert plan(lake, table, user=CAROL, columns=("id",)).header.columns == ("id",)
    assert plan(lake, table, user=ALICE).header.columns == ("id", "name")


def test_a_table_with_a_row_filter_is_refused(lake: Lake, policies: Any) -> None:
    table = make(lake)
    policies(_row_filter(table))
    with pytest.raises(NotAuthorized) as refused:
        plan(lake, table, user=CAROL, columns=("id",))
    assert refused.value.rule == "row-filter"
    assert plan(lake, table, user=ALICE).files.num_rows == 0


@pytest.mark.parametrize(
    "make_policy", [lambda table: _mask(table, "name"), _row_filter], ids=["mask", "rows"]
)
def test_a_refusal_for_masks_and_row_filters_is_on_record(
    lake: Lake, policies: Any, make_policy: Any
) -> None:
    table = make(lake)
    policies(make_policy(table))
    caller = lake.caller(CAROL, "spark")
    with pytest.raises(NotAuthorized):
        lake.services.planner.plan(caller, name_of(table), ScanRequest())
    assert records(lake, caller)[-1].allowed is False


def test_the_keys_of_a_plan_open_the_files_planned(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    engine = Engine.begin(lake, name_of(table))
    deks = {engine.path(): new_dek(32) for _ in range(3)}
    engine.append(*(engine.file(path, keys=(engine.key(path, dek),)) for path, dek in deks.items()))
    made = plan(lake, table)
    assert made.header.transport is not None
    for row in made.files.to_pylist():
        (key,) = row["keys"]
        identity = FileIdentity.of(table.metadata.table_uuid, row["file_path"])
        assert (key["key_name"], key["field_ids"]) == ("lakewarden", [])
        assert (
            open_transported(made.header.transport, key["wrapped"], identity, LABEL) == deks[row["file_path"]]
        )


def test_each_scan_has_a_key_of_its_own(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    first, second = plan(lake, table).header, plan(lake, table).header
    assert first.transport is not None
    assert second.transport is not None
    assert first.transport.id != second.transport.id
    assert first.transport.key != second.transport.key


def test_plaintext_tables_have_no_keys(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    made = plan(lake, table)
    assert made.header.transport is None
    assert made.files["keys"].to_pylist() == [None]
    assert made.files["algorithm"].to_pylist() == [None]


def test_each_file_is_judged_by_the_epoch_that_it_was_written_under(lake: Lake) -> None:
    """A plan says of each file what an engine has to find in it, whatever new files are written with."""
    table = make(lake)
    (plain,) = append_files(lake, name_of(table))
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(ENCRYPTED)
    (encrypted,) = append_files(lake, name_of(table))
    found = {plain: None, encrypted: "AES_GCM_V1"}
    files = plan(lake, table).files.to_pylist()
    assert {row["file_path"]: row["algorithm"] for row in files} == found
    assert all((row["keys"] is None) == (row["algorithm"] is None) for row in files)


def test_a_plan_says_for_whom_it_is_and_where_its_files_may_lie(lake: Lake) -> None:
    table = make(lake)
    elsewhere = f"file://{lake.root}/elsewhere"
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(
            {"read.allowed.data.paths": f"{table.location()},file:{lake.root}/elsewhere/"}
        )
    header = plan(lake, table).header.to_json()
    assert header["allowed-paths"] == [table.location(), elsewhere]
    assert (header["principal"], header["governed-version"]) == (ALICE, 2)
    assert header["policy-version"] == lake.services.policies.current().version


def test_a_users_own_process_needs_release_and_every_column(lake: Lake, policies: Any) -> None:
    table = make(lake, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    assert plan(lake, table, user=CAROL).header.transport is not None
    with pytest.raises(NotAuthorized, match="release"):
        plan(lake, table, user=CAROL, engine=None)
    release = policy("carol-release", {"key": ["*"]}, {CAROL: ["release"]})
    policies(release)
    assert plan(lake, table, user=CAROL, engine=None, columns=("id",)).header.transport is not None
    policies(release, deny("name", table))
    with pytest.raises(NotAuthorized, match="name"):
        plan(lake, table, user=CAROL, engine=None, columns=("id",))
    assert plan(lake, table, user=CAROL, columns=("id",)).header.transport is not None


def test_foreign_paths_are_named_with_their_number_to_those_who_look_after_the_table(
    lake: Lake, tmp_path: Path
) -> None:
    own, other = f"file://{tmp_path}/own", f"file://{tmp_path}/other"
    properties = {"write.data.path": other, PATHS: f"{own},{other}"}
    table = make(lake, location=own, properties=properties)
    paths = append_files(lake, name_of(table), count=5)
    lake.services.committer.commit(
        lake.caller(ALICE), name_of(table), [], [SetPropertiesUpdate(updates={PATHS: own})], force=True
    )
    caller = lake.caller(ALICE)
    with pytest.raises(LocationNotAllowed, match="5 of 5") as seen:
        lake.services.planner.plan(caller, name_of(table), ScanRequest())
    named_paths = (seen.value.path or "").split(", ")
    assert len(named_paths) == 3
    assert set(named_paths) <= set(paths)
    reader = lake.caller(CAROL)
    with pytest.raises(LocationNotAllowed, match="5 of 5") as hidden:
        lake.services.planner.plan(reader, name_of(table), ScanRequest())
    assert hidden.value.path is None
    assert other not in str(hidden.value)
    assert other in records(lake, reader)[-1].reasons[0].detail


def test_files_that_a_filter_would_spare_are_checked_all_the_same(lake: Lake, tmp_path: Path) -> None:
    own, other = f"file://{tmp_path}/own", f"file://{tmp_path}/other"
    table = make(lake, location=own, properties={"write.data.path": other, PATHS: f"{own},{other}"})
    bounds = {1: (5).to_bytes(8, "little")}
    append_files(lake, name_of(table), lower_bounds=bounds, upper_bounds=bounds)
    assert plan(lake, table, filter=GreaterThan("id", 9)).files.num_rows == 0
    lake.services.committer.commit(
        lake.caller(ALICE), name_of(table), [], [SetPropertiesUpdate(updates={PATHS: own})], force=True
    )
    with pytest.raises(LocationNotAllowed):
        plan(lake, table, filter=GreaterThan("id", 9))


def test_a_table_that_nobody_has_granted_is_not_spoken_of(lake: Lake) -> None:
    table = make(lake)
    told = []
    for name in (name_of(table), named("absent")):
        with pytest.raises(NotAuthorized) as refused:
            lake.services.planner.plan(lake.caller(BOB), name, ScanRequest())
        told.append(str(refused.value).replace(name.name, "NAME"))
    assert told[0] == told[1]


def test_a_plan_is_of_the_snapshot_as_it_was_committed(lake: Lake) -> None:
    table = make(lake)
    (gone,) = append_files(lake, name_of(table))
    before = lake.catalog().load_table(table.name()).metadata.current_snapshot_id
    engine = Engine.begin(lake, name_of(table))
    new = engine.file()
    engine.commit(FileCommit("overwrite", (new,), (gone,), before))
    assert paths_in(plan(lake, table).files.to_pylist()) == {new.path}
    assert paths_in(plan(lake, table, snapshot_id=before).files.to_pylist()) == {gone}
