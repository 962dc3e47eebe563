"""Snapshots, committed with UPDATE alone, that engines could not read, or nobody build on."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import FloatType, IcebergType, IntegerType, LongType, NestedField

from catalog.base.errors import ConcurrentModification
from catalog.rules.openable import check_commit
from catalog.writes.new_files import FileCommit
from policy.errors import EncryptionPolicyViolation, MetadataInvalid, RequestInvalid
from tests.attacks.handmade_commits import ALMA, WALT, head, listed, plain, put, short, users, vault
from tests.support.attacker import (
    DELETED,
    EXISTING,
    Attacker,
    again,
    data_file,
    entry,
    local,
    new_id,
    refused,
    relisted,
    updates,
    write_entries,
)
from tests.support.lake import Lake
from tests.support.snapshot_files import Writer
from tests.support.snapshot_model import File, Row
from tests.support.tables import Engine, append_files, make, name_of, rows
from tests.support.vectors import each_row

__all__ = ["plain", "users", "vault"]


def new_file(attacker: Attacker) -> Any:
    return entry(data_file(f"{attacker.location}/data/new.parquet"))


def of_id(attacker: Attacker, snapshot_id: int, **changes: Any) -> Any:
    """The updates of a snapshot that adds a file, under this id."""
    manifest = attacker.manifest([new_file(attacker)], snapshot_id)
    kept = attacker.manifests() if changes.get("parent_snapshot_id", snapshot_id) is not None else []
    return updates(attacker.snapshot([*kept, manifest], snapshot_id, **changes))


def test_the_id_that_says_that_a_table_has_no_snapshot(plain: Attacker) -> None:
    """Readers would take a table with rows for an empty one."""
    refused(plain, RequestInvalid, "snapshot", *of_id(plain, -1))


@each_row(
    ("name", "said"),
    itertools.product(
        ("total-records", "total-position-deletes", "added-data-files"),
        ("many", "-1", "9" * 19, "٣", ""),
    ),
)
def test_totals_that_the_next_commit_cannot_count_on_with(plain: Attacker, name: str, said: str) -> None:
    summary = Summary(Operation.APPEND, **{name: said})
    refused(plain, RequestInvalid, "snapshot", *plain.appending(new_file(plain), summary=summary))


@pytest.mark.parametrize("name", ["total-records", "total-files-size"])
def test_totals_that_leave_no_room_for_the_next_commit(plain: Attacker, name: str) -> None:
    """PyIceberg counts on past the largest number of 64 bits, and Java does not read the sum."""
    summary = Summary(Operation.APPEND, **{name: str((1 << 63) - 1)})
    plain.commit(*plain.appending(new_file(plain), summary=summary))
    plain.lake.catalog().load_table(plain.table).append(rows(5))
    assert name not in head(plain).summary.additional_properties  # type: ignore[union-attr]


@each_row("number", [{"first_row_id": -1}, {"first_row_id": 0}, {"added_rows": 1}])
def test_row_ids_that_the_format_version_does_not_have(plain: Attacker, number: dict[str, int]) -> None:
    """Iceberg Java refuses metadata with a negative one, or with one of both."""
    refused(plain, RequestInvalid, "snapshot", *plain.appending(new_file(plain), **number))


def test_a_tag_that_is_called_main(users: Lake) -> None:
    """Iceberg Java adds no snapshot to it, and a tag has no descendants to move to."""
    empty = Attacker(users, str(name_of(make(users))), WALT)
    made = empty.appending(new_file(empty))
    tag = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.TAG,
        snapshot_id=made[-1].snapshot_id,  # type: ignore[union-attr]
    )
    refused(empty, RequestInvalid, "snapshot-reference", made[0], tag)


def test_fields_of_statistics_that_engines_do_not_read(plain: Attacker) -> None:
    blob = BlobMetadata(
        type="apache-datasketches-theta-v1",
        snapshot_id=head(plain).snapshot_id,
        sequence_number=1,
        fields=[1 << 31],
    )
    file = StatisticsFile(
        snapshot_id=head(plain).snapshot_id,
        statistics_path=f"{plain.location}/metadata/x.puffin",
        file_size_in_bytes=100,
        file_footer_size_in_bytes=10,
        blob_metadata=[blob],
    )
    refused(plain, RequestInvalid, "id-range", SetStatisticsUpdate(statistics=file))


def test_a_schema_that_the_table_does_not_have(plain: Attacker) -> None:
    refused(plain, RequestInvalid, "snapshot", *plain.appending(new_file(plain), schema_id=1 << 40))


def test_a_branch_that_keeps_more_snapshots_than_engines_read(plain: Attacker) -> None:
    ref = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=head(plain).snapshot_id,
        min_snapshots_to_keep=1 << 31,
    )
    refused(plain, RequestInvalid, "snapshot-reference", ref)


def test_a_snapshot_from_the_future_under_an_id_that_was_used(plain: Attacker) -> None:
    """Every later snapshot would run backwards."""
    used = plain.metadata.snapshots[0].snapshot_id
    [add, _] = of_id(plain, used, timestamp_ms=9 * 10**15, parent_snapshot_id=None)
    refused(plain, RequestInvalid, "snapshot-timestamp", RemoveSnapshotsUpdate(snapshot_ids=[used]), add)


def test_parents_that_lead_back_to_a_snapshot(plain: Attacker) -> None:
    """Engines that expire snapshots leave the ids of their parents; a walk over a circle never ends."""
    one, two = plain.metadata.snapshots
    orphan = one.model_copy(update={"parent_snapshot_id": 99})
    base = plain.metadata.model_copy(update={"snapshots": [orphan, two]})
    circle = two.model_copy(update={"snapshot_id": 99, "parent_snapshot_id": two.snapshot_id})
    made = base.model_copy(update={"snapshots": [orphan, two, circle]})
    with pytest.raises(RequestInvalid) as refusal:
        check_commit(base, made, base.last_updated_ms, "db.t")
    assert refusal.value.rule == "snapshot"


@each_row(("schema_id", "field_id"), [(1 << 40, 3), (-(1 << 40), 3), (7, 1 << 40)])
def test_ids_that_engines_do_not_read(plain: Attacker, schema_id: int, field_id: int) -> None:
    plain.user = ALMA
    fields = [*plain.metadata.schema().fields, NestedField(field_id, "more", LongType())]
    schema = Schema(*fields, schema_id=schema_id)
    refused(plain, RequestInvalid, "id-range", AddSchemaUpdate(schema_=schema))


@each_row(
    ("of", "wrong"),
    itertools.product(("spec", "partition field", "sort order"), (1 << 31, -(1 << 31) - 1)),
)
def test_ids_of_layouts_that_engines_do_not_read(plain: Attacker, of: str, wrong: int) -> None:
    plain.user = ALMA
    field = PartitionField(1, wrong if of == "partition field" else 1000, IdentityTransform(), "part")
    spec = PartitionSpec(field, spec_id=wrong if of == "spec" else 7)
    order = SortOrder(SortField(1, IdentityTransform()), order_id=wrong)
    made = AddSortOrderUpdate(sort_order=order) if of == "sort order" else AddPartitionSpecUpdate(spec=spec)
    refused(plain, RequestInvalid, "id-range", made)


# Manifests that readers understand in different ways.


def partitioned(users: Lake, kind: IcebergType, *names: str) -> Attacker:
    """A table with columns of one type, partitioned by their values."""
    schema = Schema(*(NestedField(i, name, kind) for i, name in enumerate(names, 1)))
    fields = [PartitionField(i, 999 + i, IdentityTransform(), name) for i, name in enumerate(names, 1)]
    table = make(users, schema=schema, partition_spec=PartitionSpec(*fields))
    return Attacker(users, str(name_of(table)), WALT)


def in_order(
    attacker: Attacker, of: ManifestEntry, snapshot_id: int, *fields: PartitionField
) -> ManifestFile:
    """A manifest whose partition fields are in this order."""
    spec = PartitionSpec(*fields, spec_id=0)
    metadata = attacker.metadata.model_copy(update={"partition_specs": [spec]})
    attacker._lay_down(of)
    path = f"{attacker.location}/metadata/{snapshot_id}-m0.avro"
    return write_entries(metadata, path, [of], snapshot_id)


def test_partition_fields_in_another_order_than_the_spec(users: Lake) -> None:
    """Readers that go by places would find no deletes for its files, so that deleted rows come back."""
    mine = partitioned(users, LongType(), "a", "b")
    one, other = mine.metadata.spec().fields
    snapshot_id = new_id()
    file = entry(data_file(f"{mine.location}/data/a.parquet", partition=Record(2, 1)))
    manifest = in_order(mine, file, snapshot_id, other, one)
    manifest = listed(manifest, partitions=list(reversed(manifest.partitions or [])))
    planted = updates(mine.snapshot([manifest], snapshot_id))
    refused(mine, MetadataInvalid, "partition-spec", *planted)


@pytest.mark.parametrize("kind", [IntegerType(), FloatType()], ids=str)
def test_bounds_longer_than_their_type(users: Lake, kind: IcebergType) -> None:
    """Readers take the first four bytes, and pass over the manifest, or fail."""
    mine = partitioned(users, kind, "a")
    snapshot_id = new_id()
    file = entry(data_file(f"{mine.location}/data/a.parquet", partition=Record(1)))
    manifest = in_order(mine, file, snapshot_id, *mine.metadata.spec().fields)
    form = "<q" if kind == IntegerType() else "<d"
    bounds = {"lower_bound": struct.pack(form, -(1 << 40)), "upper_bound": struct.pack(form, 1 << 40)}
    said = PartitionFieldSummary.from_args(contains_null=False, contains_nan=False, **bounds)
    planted = updates(mine.snapshot([listed(manifest, partitions=[said])], snapshot_id))
    refused(mine, MetadataInvalid, "partition-summary", *planted)


def test_partition_values_wider_than_their_type(users: Lake) -> None:
    mine = partitioned(users, IntegerType(), "a")
    wide = Schema(NestedField(1, "a", LongType()))
    file = entry(data_file(f"{mine.location}/data/a.parquet", partition=Record(1)))
    mine._lay_down(file)
    snapshot_id = new_id()
    metadata = mine.metadata.model_copy(update={"schemas": [wide]})
    manifest = write_entries(metadata, f"{mine.location}/metadata/w.avro", [file], snapshot_id)
    planted = updates(mine.snapshot([relisted(manifest)], snapshot_id))
    refused(mine, MetadataInvalid, "partition-spec", *planted)


def test_data_files_with_fields_of_delete_files(users: Lake) -> None:
    """Writers drop them, and so could not carry the file over as it was."""
    mine = partitioned(users, LongType(), "a")
    writer = Writer(mine.metadata.schema(), mine.metadata.specs())
    path = f"{mine.location}/data/a.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    local(path).write_bytes(b"1")
    file = File(path, partition=(1,), referenced=path)
    snapshot_id = new_id()
    made = writer.manifest(f"{mine.location}/metadata/r.avro", 0, 0, (Row(1, file),))
    described = write_entries(
        mine.metadata,
        f"{mine.location}/metadata/s.avro",
        [entry(data_file(path, partition=Record(1), record_count=1))],
        snapshot_id,
    )
    manifest = relisted(described, manifest_path=made.path, manifest_length=made.length)
    planted = updates(mine.snapshot([manifest], snapshot_id))
    refused(mine, MetadataInvalid, "file-fields", *planted)


def test_a_delete_file_that_is_there_twice_takes_no_other_ones_place(plain: Attacker) -> None:
    """By an offset it is another one than itself; what it deletes in other plans stays deleted."""
    snapshot_id = new_id()
    kind = DataFileContent.POSITION_DELETES
    twice, other = (
        entry(data_file(f"{plain.location}/data/{name}.parquet", content=kind)) for name in ("twice", "other")
    )
    first = plain.manifest([twice], snapshot_id, deletes=True)
    both = plain.manifest([twice, other], snapshot_id, deletes=True)
    snapshot = plain.snapshot([*plain.manifests(), first, both], snapshot_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("catalog.snapshot_checks.duplicates._Added.require_distinct", lambda _: None)
        plain.commit(*updates(snapshot))
    files = plain.plan().files.to_pylist()
    applied = {files[number]["file_path"] for number in files[0]["deletes"]}
    assert applied == {twice.data_file.file_path, other.data_file.file_path}


# Cherry-picks.


def side_snapshot(vault: Attacker, operation: str, *deleted: str, replaces: bool = False) -> Snapshot:
    """A snapshot of a branch, which adds two files."""
    before = head(vault).snapshot_id
    vault.commit(put(before, "audit"))
    engine = Engine.begin(vault.lake, short(vault))
    base = before if deleted else None
    files = (engine.file(), engine.file())
    engine.commit(FileCommit(operation, files, deleted, base, branch="audit", replace_partitions=replaces))
    made = vault.metadata.snapshot_by_name("audit")
    assert made is not None
    append_files(vault.lake, short(vault))
    return made


def pick(vault: Attacker, source: Snapshot, count: int = 2, **numbers: int) -> list[TableUpdate]:
    """The updates of a pick of so many of its files."""
    added = [each.data_file for each in vault.entries(source) if each.snapshot_id == source.snapshot_id]
    summary = Summary(Operation.APPEND, **{"source-snapshot-id": str(source.snapshot_id)})
    return vault.appending(*(entry(each, **numbers) for each in added[:count]), summary=summary)


def test_a_pick_of_some_files_or_under_an_older_number(vault: Attacker) -> None:
    """New versions of rows without the deletes of the old ones would double them."""
    source = side_snapshot(vault, "append")
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *pick(vault, source, 1))
    number = vault.metadata.last_sequence_number + 1
    older = pick(vault, source, sequence_number=1, file_sequence_number=number)
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *older)
    vault.commit(*pick(vault, source))


def test_a_pick_of_a_rewrite_without_what_it_removed(vault: Attacker) -> None:
    """The rows of the rewritten file would be there twice."""
    source = side_snapshot(vault, "overwrite", vault.data_paths()[0])
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *pick(vault, source))


def test_a_pick_of_a_file_described_otherwise(vault: Attacker) -> None:
    """It is the file that the other snapshot added, in each field."""
    source = side_snapshot(vault, "append")
    one, two = (each.data_file for each in vault.entries(source) if each.snapshot_id == source.snapshot_id)
    more = {"key_metadata": one.key_metadata, "record_count": one.record_count + 1}
    forged = data_file(one.file_path, **more, file_size_in_bytes=one.file_size_in_bytes)
    summary = Summary(Operation.APPEND, **{"source-snapshot-id": str(source.snapshot_id)})
    planted = vault.appending(entry(forged), entry(two), summary=summary)
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *planted)


def test_a_pick_of_a_whole_rewrite(vault: Attacker) -> None:
    """Rows that were deleted from the rewritten file on the branch since would be there again."""
    gone = vault.data_paths()[0]
    source = side_snapshot(vault, "overwrite", gone)
    added = [each.data_file for each in vault.entries(source) if each.snapshot_id == source.snapshot_id]
    kept = [again(each, EXISTING) for each in vault.entries() if each.data_file.file_path != gone]
    summary = Summary(Operation.APPEND, **{"source-snapshot-id": str(source.snapshot_id)})
    planted = vault.replacing(*(entry(each) for each in added), *kept, summary=summary)
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *planted)


@pytest.mark.nightly
def test_a_pick_of_replaced_partitions(vault: Attacker) -> None:
    """Iceberg lists what it removes in another manifest than what it adds."""
    gone = set(vault.data_paths())
    source = side_snapshot(vault, "overwrite", replaces=True)
    made = [each for each in vault.entries(source) if each.snapshot_id == source.snapshot_id]
    snapshot_id = new_id()
    added = [entry(each.data_file) for each in made]
    carried = [
        again(each, DELETED, snapshot_id=snapshot_id)
        if each.data_file.file_path in gone
        else again(each, EXISTING)
        for each in vault.entries()
    ]
    said = {"replace-partitions": "true", "source-snapshot-id": str(source.snapshot_id)}
    summary = Summary(Operation.OVERWRITE, **said)
    manifests = [vault.manifest(part, snapshot_id) for part in (added, carried)]
    vault.commit(*updates(vault.snapshot(manifests, snapshot_id, summary=summary)))
    assert gone.isdisjoint(vault.data_paths())


def test_an_append_that_calls_itself_a_replace(plain: Attacker) -> None:
    """Statements are validated against its rows nevertheless."""
    base = head(plain).snapshot_id
    plain.commit(*plain.appending(new_file(plain), summary=Summary(Operation.REPLACE)))
    engine = Engine.begin(plain.lake, short(plain))
    commit = FileCommit("overwrite", (engine.file(),), base_snapshot_id=base, command="update")
    with pytest.raises(ConcurrentModification) as refusal:
        engine.commit(commit)
    assert refusal.value.rule == "new-data"


def test_a_pick_of_an_id_that_is_no_number_of_64_bits(plain: Attacker) -> None:
    summary = Summary(Operation.APPEND, **{"source-snapshot-id": "9" * 5000})
    plain.commit(*plain.appending(new_file(plain), summary=summary))
