"""Required columns are in all rows that a branch has or gets: no rows without them come back or are added."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField, StructType

from catalog.base.errors import ConcurrentModification
from catalog.maintenance.snapshot_moves import Pick
from catalog.rules.required_columns import check_required_columns
from catalog.tables.schema_changes import AddColumn, MakeOptional
from catalog.writes.new_files import FileCommit
from policy.errors import RequestInvalid
from tests.support.lake import ALICE, Lake
from tests.support.replacing import REST, files, loaded, made, past_id, staged
from tests.support.tables import SCHEMA, Engine


def test_a_branch_does_not_go_back_to_rows_without_a_required_column(lake: Lake) -> None:
    name = made(lake)
    (before,) = loaded(lake, name).metadata.snapshots
    required = Schema(SCHEMA.fields[0], NestedField(2, "other", LongType(), required=True))
    staged(lake, name, schema=required).commit(REST)

    def go_back(branch: str) -> None:
        ref = SetSnapshotRefUpdate(ref_name=branch, type="branch", snapshot_id=before.snapshot_id)
        lake.services.committer.commit(lake.caller(ALICE), name, (), [ref])

    for branch in ("main", "side"):
        with pytest.raises(RequestInvalid) as refused:
            go_back(branch)
        assert refused.value.rule == "required-column" and "other" in refused.value.message
    lake.services.alterer.alter(lake.caller(ALICE), name, [MakeOptional(("other",))])
    go_back("main")
    assert len(files(lake, name)) == 1


def test_rows_without_a_required_column_are_not_picked(lake: Lake) -> None:
    name = made(lake, properties={"write.wap.enabled": "true"})
    write = Engine.begin(lake, name)
    write.commit(FileCommit("append", (write.file(),), wap_id="later"))
    required = Schema(SCHEMA.fields[0], NestedField(2, "other", LongType(), required=True))
    staged(lake, name, schema=required).commit(REST)
    with pytest.raises(RequestInvalid) as refused:
        lake.services.snapshot_procedures.change(lake.caller(ALICE), name, Pick(wap_id="later"))
    assert refused.value.rule == "required-column" and "other" in refused.value.message
    assert files(lake, name) == []
    lake.services.alterer.alter(lake.caller(ALICE), name, [MakeOptional(("other",))])
    lake.services.snapshot_procedures.change(lake.caller(ALICE), name, Pick(wap_id="later"))
    assert len(files(lake, name)) == 1


def requiring(lake: Lake, name: Any) -> Engine:
    """Begin a replacement that requires the column `other`, which the table does not have."""
    return staged(
        lake, name, schema=Schema(SCHEMA.fields[0], NestedField(2, "other", LongType(), required=True))
    )


def test_rows_written_before_a_replacement_that_requires_a_column_are_refused(lake: Lake) -> None:
    """An append that began before, and one of an engine that does not say by which schema it wrote."""
    name = made(lake)
    begun = Engine.begin(lake, name)
    added = (begun.file(),)
    requiring(lake, name).commit(REST)
    kinds: list[dict[str, Any]] = [
        {"operation": "append", "schema_id": 0},
        {"operation": "append"},
        {"operation": "append", "schema_id": 77},
        {"operation": "overwrite", "schema_id": 0, "replace_partitions": True},
        {"operation": "overwrite", "schema_id": 0, "delete_filter": AlwaysTrue()},
    ]
    for kind in kinds:
        with pytest.raises(ConcurrentModification) as refused:
            begun.commit(FileCommit(added=added, **kind))
        assert refused.value.rule == "schema" and "requires the column other" in refused.value.message
        assert ("schema-id" in (refused.value.hint or "")) is ("schema_id" not in kind)
    assert files(lake, name) == []
    lake.services.alterer.alter(lake.caller(ALICE), name, [MakeOptional(("other",))])
    begun.commit(FileCommit("append", added, schema_id=0))
    assert len(files(lake, name)) == 1


def test_rows_written_before_a_column_was_added_are_committed(lake: Lake) -> None:
    name = made(lake)
    for operation, more in (("append", {}), ("overwrite", {"delete_filter": AlwaysTrue()})):
        begun = Engine.begin(lake, name)
        lake.services.alterer.alter(lake.caller(ALICE), name, [AddColumn((operation,), LongType())])
        schema_id = begun.session.table.metadata.current_schema_id
        begun.commit(FileCommit(operation, (begun.file(),), schema_id=schema_id, **more))  # type: ignore[arg-type]
    assert len(files(lake, name)) == 1


def test_a_replacement_does_not_require_what_rows_of_another_branch_do_not_have(lake: Lake) -> None:
    name = made(lake)
    side = SetSnapshotRefUpdate(ref_name="side", type="branch", snapshot_id=past_id(loaded(lake, name)))
    lake.services.committer.commit(lake.caller(ALICE), name, (), [side])
    with pytest.raises(RequestInvalid) as refused:
        requiring(lake, name)
    assert refused.value.rule == "required-column" and "other" in refused.value.message
    gone = RemoveSnapshotRefUpdate(ref_name="side")
    lake.services.committer.commit(lake.caller(ALICE), name, (), [gone])
    requiring(lake, name).commit(REST)
    assert files(lake, name) == []


@pytest.mark.parametrize("named", ["none", "removed", "other"])
def test_snapshots_that_hide_the_schema_of_their_rows_are_not_gone_back_to(lake: Lake, named: str) -> None:
    """Without `schema-id`, after the schema was removed, or by a snapshot that names a schema of later."""
    name = made(lake)
    (past,) = loaded(lake, name).metadata.snapshots
    requiring(lake, name).commit(REST)
    before = loaded(lake, name).metadata
    if named == "none":
        unnamed = past.model_copy(update={"schema_id": None})
        before = before.model_copy(update={"snapshots": [unnamed]})
    if named == "removed":
        before = before.model_copy(update={"schemas": [before.schema()]})
    back, added = past.snapshot_id, []
    if named == "other":
        back = 99
        later = {"snapshot_id": back, "parent_snapshot_id": past.snapshot_id, "schema_id": 1}
        added = [past.model_copy(update={**later, "timestamp_ms": before.last_updated_ms})]
    staged_only = before.model_copy(update={"snapshots": [*before.snapshots, *added]})
    ref = SnapshotRef(snapshot_id=back, snapshot_ref_type=SnapshotRefType.BRANCH)
    after = staged_only.model_copy(update={"refs": {"main": ref}})
    if added:
        with pytest.raises(RequestInvalid, match="required-column"):
            check_required_columns(before, staged_only, "db.t")
    with pytest.raises(RequestInvalid, match="required-column"):
        check_required_columns(before, after, "db.t")


@pytest.mark.parametrize("schema_id", [None, 7])
def test_a_table_is_altered_whose_head_names_no_schema_of_it(lake: Lake, schema_id: int | None) -> None:
    """Its rows have what was required before, whatever schemas the table had, or has no more."""
    metadata = loaded(lake, made(lake)).metadata
    (head,) = metadata.snapshots
    of = metadata.schema()
    required = Schema(of.fields[0].model_copy(update={"required": True}), *of.fields[1:], schema_id=1)
    given = {"snapshots": [head.model_copy(update={"schema_id": schema_id})], "current_schema_id": 1}
    before = metadata.model_copy(update={"schemas": [of, required], **given})
    more = NestedField(99, "more", LongType(), required=False)
    for last, is_refused in ((more, False), (more.model_copy(update={"required": True}), True)):
        wider = Schema(*required.fields, last, schema_id=2)
        after = before.model_copy(update={"schemas": [*before.schemas, wider], "current_schema_id": 2})
        with pytest.raises(RequestInvalid, match="more") if is_refused else nullcontext():
            check_required_columns(before, after, "db.t")


def test_a_struct_that_comes_back_has_the_required_columns_of_its_rows(lake: Lake) -> None:
    """The schema in between has neither the struct nor its column."""
    metadata = loaded(lake, made(lake)).metadata
    (head,) = metadata.snapshots
    within = [NestedField(12, "x", LongType()), NestedField(13, "must", LongType(), required=True)]
    first, back = (
        Schema(NestedField(11, "s", StructType(*within[:count])), schema_id=number)
        for count, number in ((1, 0), (2, 2))
    )
    without = Schema(NestedField(10, "other", LongType()), schema_id=1)
    given = {"snapshots": [head.model_copy(update={"schema_id": 0})], "schemas": [first, without, back]}
    before, after = (metadata.model_copy(update={**given, "current_schema_id": number}) for number in (1, 2))
    with pytest.raises(RequestInvalid, match=r"s\.must"):
        check_required_columns(before, after, "db.t")


def test_an_id_that_is_used_again_does_not_stand_for_the_rows_before(lake: Lake) -> None:
    before = loaded(lake, made(lake)).metadata
    (head,) = before.snapshots
    without = Schema(NestedField(10, "other", LongType()), schema_id=1)
    required = Schema(NestedField(1, "id", LongType(), required=True), schema_id=0)
    before = before.model_copy(update={"schemas": [required, without], "current_schema_id": 0})
    other = head.model_copy(update={"schema_id": 1, "timestamp_ms": head.timestamp_ms + 1})
    with pytest.raises(RequestInvalid, match="id"):
        check_required_columns(before, before.model_copy(update={"snapshots": [other]}), "db.t")
