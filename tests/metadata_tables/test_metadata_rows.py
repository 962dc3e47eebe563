"""Metadata tables have the rows and columns that Iceberg gives them."""

from __future__ import annotations

import math
import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform

from catalog.base.errors import ConcurrentModification
from catalog.metadata_tables import tables
from policy.errors import NotSupportedYet, RequestInvalid
from tests.catalog.checked_commits import commit
from tests.support.lake import Lake
from tests.support.made_up_files import SCHEMA, a_file
from tests.support.metadata_tables import page, pages, rows
from tests.support.row_changes import Ledger
from tests.support.table_keys import rewrap
from tests.support.tables import ENCRYPTED, Engine, make, name_of

BY_MANY = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "name"),
    PartitionField(1, 1001, BucketTransform(4), "id_bucket"),
)


def append(lake: Lake, table: Table, *files: dict[str, Any]) -> None:
    engine = Engine.begin(lake, name_of(table))
    engine.append(*(engine.file(**each) for each in files))


@pytest.fixture(scope="module")
def made_up(lake: Lake) -> Table:
    """A partitioned plaintext table with files of every kind of statistics."""
    table, rng = make(lake, schema=SCHEMA, partition_spec=BY_MANY), random.Random(5)
    for count in (3, 1, 4):
        append(lake, table, *(a_file(rng, table) for _ in range(count)))
    return lake.catalog().load_table((*name_of(table).namespace, name_of(table).name))


def comparable(value: Any) -> Any:
    """NaN equals NaN; PyIceberg leaves out the time zone."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "kind", ["files", "data_files", "delete_files", "entries", "snapshots", "history", "refs"]
)
def test_pyiceberg_finds_the_same(lake: Lake, made_up: Table, kind: str) -> None:
    theirs: pa.Table = getattr(made_up.inspect, kind)()
    ours = rows(lake, made_up, kind)
    names = [name for name in theirs.column_names if name in pages(lake, made_up, kind)[0].schema.names]
    assert names and (kind == "delete_files" or ours)
    for mine, other in zip(ours, theirs.to_pylist(maps_as_pydicts="strict"), strict=True):
        for name in set(names) - {"readable_metrics", "data_file"}:
            left, right = comparable(mine[name]), comparable(other[name])
            assert left == right or (not left and not right), name
        for column, metrics in (mine.get("readable_metrics") or {}).items():
            theirs_of = other["readable_metrics"][column]
            assert comparable({key: metrics[key] for key in metrics}) == comparable(
                {key: theirs_of.get(key) for key in metrics}
            )


def test_encrypted_bounds_are_shown_as_plaintext_ones(lake: Lake) -> None:
    groups = {"encryption.columns": "pii:name,score;hr:at"}
    clear, *encrypted = [make(lake, schema=SCHEMA, properties=each) for each in ({}, ENCRYPTED, groups)]
    rng = random.Random(7)
    files = [a_file(rng, clear) for _ in range(9)]
    shown = (
        "record_count",
        "value_counts",
        "null_value_counts",
        "nan_value_counts",
        "lower_bounds",
        "upper_bounds",
        "readable_metrics",
        "key_metadata",
    )
    for table in (clear, *encrypted):
        append(lake, table, *files)
    rewrap(lake, name_of(encrypted[0]))
    wanted = unordered(rows(lake, clear, "files", *shown))
    assert len(wanted) == len(files) and "lower_bound" in wanted[0]
    for table in encrypted:
        assert unordered(rows(lake, table, "files", *shown)) == wanted


def unordered(found: list[dict[str, Any]]) -> list[str]:
    """Rows of files without their order, which is random in encrypted tables; an empty map is none."""
    return sorted(repr(canonical(comparable(each))) for each in found)


def canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((str(name), canonical(each)) for name, each in value.items()) or None
    return value


@pytest.mark.nightly
def test_deleted_files_and_changed_specs(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    first, _ = ledger.append(1, 5, "a"), ledger.append(6, 9, "b")
    before = ledger.head().snapshot_id
    engine = ledger.engine()
    ledger.commit(
        "delete", [ledger.deletes(engine, first)], engine, base_snapshot_id=before, command="delete"
    )
    ledger.commit("delete", deleted_paths=[first], base_snapshot_id=ledger.head().snapshot_id)
    table = ledger.table

    assert [each["status"] for each in rows(lake, table, "entries", "status")].count(2) == 1
    assert {each["partition"]["part"] for each in rows(lake, table, "files", "partition")} == {"a", "b"}
    assert [each["content"] for each in rows(lake, table, "delete_files", "content")] == [1]
    earlier = rows(lake, table, "partitions", snapshot_id=before)
    assert [(each["partition"]["part"], each["record_count"], each["file_count"]) for each in earlier] == [
        ("b", 4, 1),
        ("a", 5, 1),
    ] or sorted((each["partition"]["part"], each["record_count"]) for each in earlier) == [("a", 5), ("b", 4)]
    now = {each["partition"]["part"]: each for each in rows(lake, table, "partitions")}
    assert (now["a"]["record_count"], now["a"]["position_delete_file_count"]) == (0, 1)
    listed = rows(lake, table, "all_manifests", "path", "reference_snapshot_id")
    assert {each["reference_snapshot_id"] for each in listed} == {
        each.snapshot_id for each in lake.catalog().load_table(table.name()).metadata.snapshots
    }
    assert {each["file_path"] for each in rows(lake, table, "all_data_files", "file_path")} >= {first}
    summaries = rows(lake, table, "manifests", "partition_summaries")
    assert {"a", "b"} <= {each["lower_bound"] for row in summaries for each in row["partition_summaries"]}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["entries", "all_entries", "files", "all_manifests"])
def test_pages_put_together_are_the_whole(
    lake: Lake, made_up: Table, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pages(lake, made_up, kind)
    assert len(whole) == 1
    monkeypatch.setattr(tables, "_PAGE_ROWS", 3)
    found = pages(lake, made_up, kind)
    assert all(sum(map(len, each.batches)) <= 3 for each in found) or kind == "all_manifests"
    assert len(found) > 1
    assert list(map(comparable, rows(lake, made_up, kind))) == [
        comparable(each) for batch in whole[0].batches for each in batch.to_pylist(maps_as_pydicts="strict")
    ]


@pytest.mark.nightly
def test_pages_of_all_snapshots_end_where_the_table_changes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.of(lake)
    for number in range(3):
        ledger.append(number, number)
    monkeypatch.setattr(tables, "_PAGE_ROWS", 1)
    of_all = page(lake, ledger.table, "all_files", "file_path").next_token
    of_one = page(lake, ledger.table, "files", "file_path")
    ledger.append(9, 9)
    with pytest.raises(ConcurrentModification):
        page(lake, ledger.table, "all_files", "file_path", token=of_all)
    more = page(lake, ledger.table, "files", snapshot_id=of_one.snapshot_id, token=of_one.next_token)
    assert sum(map(len, more.batches)) == 1
    with pytest.raises(RequestInvalid):
        page(lake, ledger.table, "files", token="1.2")


@pytest.mark.nightly
def test_a_page_that_begins_behind_its_manifest_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.of(lake)
    for number in range(4):
        ledger.append(number, number)
    monkeypatch.setattr(tables, "_PAGE_ROWS", 1)
    monkeypatch.setattr(tables, "_OPENED_TOGETHER", 1)
    for kind in ("files", "all_entries"):
        following = page(lake, ledger.table, kind, "record_count" if kind == "files" else "status").next_token
        assert following is not None
        forged = f"0.999999999.{following.rpartition('.')[2]}"
        with pytest.raises(RequestInvalid, match="page token"):
            page(lake, ledger.table, kind, token=forged)


def test_partition_fields_of_one_name_are_told_apart(lake: Lake) -> None:
    names = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = make(lake, schema=SCHEMA, partition_spec=names)
    append(lake, table, {"partition": {"p": "x"}})
    later = PartitionSpec(PartitionField(1, 1001, BucketTransform(4), "p"), spec_id=1)
    updates = (AddPartitionSpecUpdate(spec=later), SetDefaultSpecUpdate(spec_id=-1))
    commit(lake, lake.catalog().load_table(table.name()), *updates)
    append(lake, table, {"partition": {"p": 3}, "spec_id": 1})
    for kind in ("files", "partitions"):
        found = [each["partition"] for each in rows(lake, table, kind)]
        assert {(each["p"], each["p_1000"]) for each in found} == {(None, "x"), (3, None)}, kind


def test_metadata_tables_of_no_snapshot_have_no_earlier_state(lake: Lake, made_up: Table) -> None:
    for kind in ("snapshots", "history", "refs", "metadata_log_entries", "all_files", "all_manifests"):
        with pytest.raises(NotSupportedYet, match="is not of one snapshot"):
            page(lake, made_up, kind, ref="main")


def test_columns_are_those_that_are_asked_for(lake: Lake, made_up: Table) -> None:
    one = page(lake, made_up, "entries", "data_file.file_path", "readable_metrics.id.lower_bound", "status")
    assert one.schema.names == ["status", "data_file", "readable_metrics"]
    assert str(one.schema.field("readable_metrics").type) == "struct<id: struct<lower_bound: int64>>"
    assert str(one.schema.field("data_file").type) == "struct<file_path: string not null>"
    for wrong in ("nope", "status.x", "data_file.nope"):
        with pytest.raises(RequestInvalid):
            page(lake, made_up, "entries", wrong)


def test_a_table_without_rows(lake: Lake) -> None:
    table = make(lake)
    for kind in ("files", "entries", "manifests", "partitions", "all_files", "snapshots", "history", "refs"):
        assert rows(lake, table, kind) == [], kind
    (log,) = rows(lake, table, "metadata_log_entries")
    assert log["latest_snapshot_id"] is None
    assert "partition" not in page(lake, table, "files").schema.names
