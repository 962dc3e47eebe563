"""Rewrites: which files are to be rewritten, in what groups, and for whom."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from catalog.base.errors import CommitConflict
from catalog.envelope.data_keys import new_dek
from catalog.tables.schema_changes import RenameColumn
from catalog.writes import data_files
from catalog.writes.new_files import FileCommit
from policy.errors import EncryptionPolicyViolation, NotAuthorized, RequestInvalid
from tests.support.delete_files import add_deletes
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies, tables
from tests.support.plans import plan
from tests.support.rewrites import ask, encrypt, make_keys, migrating, paths, rewrite
from tests.support.table_keys import load, rotate
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of, rows


def test_files_of_an_earlier_epoch_are_to_be_rewritten(lake: Lake) -> None:
    table = migrating(lake)
    old = paths(lake, table)
    append_files(lake, name_of(table))
    found = ask(lake, table)
    (group,) = found.groups
    assert (set(group.paths), group.records, group.sizes) == (old, 20, (1000, 1000))
    assert (found.files, found.bytes) == (2, 2000)


def test_a_table_as_its_epoch_says_has_nothing_to_rewrite(lake: Lake) -> None:
    for properties in ({}, ENCRYPTED):
        table = make(lake, properties=properties)
        append_files(lake, name_of(table))
        assert ask(lake, table).groups == ()


def test_files_in_another_format_than_the_table_says_are_to_be_rewritten(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    for said, files in (("ORC", 1), ("parquet", 0)):
        with lake.catalog().load_table(table.name()).transaction() as transaction:
            transaction.set_properties({"write.format.default": said})
        assert ask(lake, table).files == files


@pytest.mark.nightly
def test_files_from_before_there_were_digests_of_footers_are_to_be_rewritten(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(lake, "footers")
    table = make(lake, properties={"encryption.columns": "footers:name"})
    with monkeypatch.context() as before:
        before.setattr(data_files, "_footer_digest", lambda file, table: None)
        append_files(lake, name_of(table))
    old = paths(lake, table)
    append_files(lake, name_of(table))
    (group,) = ask(lake, table).groups
    assert set(group.paths) == old
    rewrite(lake, table, group)
    assert ask(lake, table).groups == ()


@pytest.mark.nightly
def test_orc_files_with_other_masks_are_to_be_rewritten(lake: Lake) -> None:
    """Their masked values stand in them; Parquet files have none."""
    make_keys(lake, "other")
    table = make(lake, properties={"write.format.default": "orc", "encryption.columns": "other:name"})

    def masked(how: str) -> int:
        with lake.catalog().load_table(table.name()).transaction() as transaction:
            transaction.set_properties({"encryption.masks": f"{how}:name"})
        return ask(lake, table).files

    engine = Engine.begin(lake, name_of(table))
    path = engine.path().removesuffix("parquet") + "orc"
    engine.append(engine.file(path, file_format="orc", sha256=bytes(32)))
    assert ask(lake, table).files == 0
    assert masked("sha256") == 1
    (group,) = ask(lake, table).groups
    later = Engine.begin(lake, name_of(table))
    path = later.path().removesuffix("parquet") + "orc"
    file = later.file(path, file_format="orc", sha256=bytes(32), record_count=group.records)
    later.commit(FileCommit("replace", (file,), group.paths, group.snapshot_id))
    assert ask(lake, table).files == 0
    assert masked("nullify") == 1


def test_files_under_an_earlier_key_version_are_not_rewritten(lake: Lake) -> None:
    """Data keys move to later versions without it."""
    table = make(lake, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    rotate(lake, name_of(table))
    assert ask(lake, table).files == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"encryption.data-key-length": "16"}, {"encryption.data-key-length": "32"}),
        (ENCRYPTED, {"encryption.columns": "other:name"}),
        ({"encryption.columns": "other:name"}, {"encryption.columns": "other:name;third:id"}),
        (ENCRYPTED, {"encryption.mechanism": "plaintext"}),
    ],
    ids=str,
)
def test_whatever_the_epoch_says_is_what_files_are_checked_against(
    lake: Lake, before: dict[str, str], after: dict[str, str]
) -> None:
    make_keys(lake, "other", "third")
    table = make(lake, properties=before)
    length = int(before.get("encryption.data-key-length", "32"))
    engine = Engine.begin(lake, name_of(table))
    file = engine.file(keys=())
    keys = tuple(engine.key(file.path, new_dek(length), label) for label in engine.labels())
    engine.append(engine.file(file.path, keys=keys))
    assert ask(lake, table).files == 0
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(after)
    (group,) = ask(lake, table).groups
    assert group.paths == (file.path,)


@pytest.mark.nightly
def test_groups_have_no_more_bytes_than_were_asked_for(lake: Lake) -> None:
    table = migrating(lake, files=5)
    found = ask(lake, table, max_bytes=2000)
    assert [len(each.paths) for each in found.groups] == [2, 2, 1]
    assert {path for each in found.groups for path in each.paths} == paths(lake, table)
    assert [len(each.paths) for each in ask(lake, table, max_bytes=1).groups] == [1] * 5
    few = ask(lake, table, max_bytes=2000, max_groups=1)
    assert (len(few.groups), few.files) == (1, 5)
    assert ask(lake, table, max_groups=0).groups == ()


@pytest.mark.nightly
def test_groups_have_no_more_files_than_were_asked_for(lake: Lake) -> None:
    table = migrating(lake, files=5)
    few = ask(lake, table, options={"max-file-group-input-files": 2})
    assert [len(each.paths) for each in few.groups] == [2, 2, 1]


@pytest.mark.nightly
def test_files_of_a_partition_are_next_to_each_other(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = make(lake, partition_spec=spec)
    for _ in range(2):
        for value in (2, 1):
            append_files(lake, name_of(table), partition={"id": value})
    make_keys(lake, "other")
    encrypt(lake, table, **{"encryption_columns": "other:name"})
    rows = {each["file_path"]: each["partition"] for each in plan(lake, table).files.to_pylist()}
    first, second = ask(lake, table, max_bytes=2000).groups
    assert [{rows[path] for path in each.paths} for each in (first, second)] == [{'{"id": 1}'}, {'{"id": 2}'}]


@pytest.mark.nightly
def test_each_branch_is_rewritten_by_itself_and_tags_stay(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    snapshot = load(lake, name_of(table)).metadata.current_snapshot_id
    assert snapshot is not None
    stock = lake.catalog().load_table(table.name())
    stock.manage_snapshots().create_branch(snapshot, "dev").create_tag(snapshot, "audit").commit()
    engine = Engine.begin(lake, name_of(table))
    engine.commit(FileCommit("append", (engine.file(),), branch="dev"))
    encrypt(lake, table)
    found = ask(lake, table)
    assert [(each.branch, len(each.paths)) for each in found.groups] == [("main", 1), ("dev", 2)]
    assert (found.files, [each.branch for each in ask(lake, table, branch="dev").groups]) == (3, ["dev"])
    for absent in ("audit", "absent"):
        with pytest.raises(RequestInvalid):
            ask(lake, table, branch=absent)
    new = {each.branch: rewrite(lake, table, each) for each in found.groups}
    assert {ref: paths(lake, table, ref) for ref in new} == {ref: {path} for ref, path in new.items()}
    assert len(paths(lake, table, "audit")) == 1
    assert ask(lake, table).files == 0


@pytest.mark.nightly
def test_files_without_rows_are_planned_where_they_are_rewritten(lake: Lake) -> None:
    """Other scans leave them out."""
    table = make(lake)
    (empty,) = append_files(lake, name_of(table), record_count=0)
    append_files(lake, name_of(table))
    encrypt(lake, table)
    (group,) = ask(lake, table).groups
    assert empty in group.paths
    planned = plan(lake, table, ref="main", files=frozenset(group.paths))
    assert set(planned.files["file_path"].to_pylist()) == set(group.paths)
    rewrite(lake, table, group)
    assert ask(lake, table).files == 0


def test_a_masked_column_that_is_renamed_makes_no_file_old(lake: Lake) -> None:
    make_keys(lake, "other")
    masked = {"encryption.columns": "other:name", "encryption.masks": "sha256:name"}
    table = make(lake, properties=masked | {"write.format.default": "orc"})
    engine = Engine.begin(lake, name_of(table))
    path = engine.path().removesuffix("parquet") + "orc"
    engine.append(engine.file(path, file_format="orc", sha256=bytes(32)))
    lake.services.alterer.alter(lake.caller(ALICE), name_of(table), (RenameColumn(("name",), "label"),))
    assert ask(lake, table).files == 0


@pytest.mark.nightly
def test_groups_are_made_without_files_that_are_not_wanted(lake: Lake) -> None:
    table = migrating(lake, files=3)
    first, *others = sorted(paths(lake, table))
    found = ask(lake, table, without=[first, "file:///absent"])
    assert sorted(path for each in found.groups for path in each.paths) == others
    assert found.files == 3
    assert ask(lake, table, without=[first, *others]).groups == ()


@pytest.mark.nightly
def test_files_whose_delete_files_are_old_are_rewritten_without_the_deleted_rows(lake: Lake) -> None:
    table = make(lake)
    first, second = append_files(lake, name_of(table), 2)
    deletes = add_deletes(lake, table, DataFileContent.POSITION_DELETES, applies_to=[first])
    encrypt(lake, table)
    found = ask(lake, table)
    (group,) = found.groups
    assert (set(group.paths), found.files) == ({first, second}, 3)
    planned = plan(lake, table, files=frozenset(group.paths)).files
    *data, last = planned["file_path"].to_pylist()
    assert (set(data), last) == ({first, second}, deletes)
    for records in (group.records - 2, group.records + 1):
        with pytest.raises(RequestInvalid) as refused:
            rewrite(lake, table, group, records=records)
        assert refused.value.rule == "replaced-rows"
    new = rewrite(lake, table, group, records=group.records - 1)
    assert (paths(lake, table), ask(lake, table).files) == ({new}, 1)
    assert lake.services.manifests.remove_dangling(lake.caller(ALICE), name_of(table)) == 1
    assert ask(lake, table).files == 0


@pytest.mark.nightly
def test_a_plan_of_files_has_those_and_no_others(lake: Lake) -> None:
    table = migrating(lake, files=3)
    first, second, _ = sorted(paths(lake, table))
    wanted = frozenset([first, second])
    assert set(plan(lake, table, files=wanted).files["file_path"].to_pylist()) == wanted
    with pytest.raises(CommitConflict):
        plan(lake, table, files=wanted | {f"{first}.absent"})
    assert plan(lake, table, files=frozenset()).files.num_rows == 0


def test_a_plan_of_files_reads_every_column(lake: Lake) -> None:
    """What it left out would be lost with the file."""
    table = migrating(lake, files=1)
    files = frozenset(paths(lake, table))
    for narrowed in ({"columns": ("id",)}, {"columns": ()}):
        with pytest.raises(RequestInvalid) as refused:
            plan(lake, table, files=files, **narrowed)
        assert refused.value.rule == "whole-files"
    assert plan(lake, table, files=files, columns=("id", "name")).files.num_rows == 1


def test_a_rewrite_takes_update_and_every_column(lake: Lake) -> None:
    table = migrating(lake, files=1)
    files = frozenset(paths(lake, table))
    one = {"database": ["db"], "table": ["*"], "column": ["id"]}
    ssn = {"database": ["db"], "table": ["*"], "column": ["name"]}
    cases = [
        (CAROL, [], False),
        (BOB, [policy("b", tables("db"), {BOB: ["update"]})], False),
        (BOB, [policy("b", tables("db"), {BOB: ["update"]}), policy("c", one, {BOB: ["select"]})], False),
        (BOB, [policy("b", tables("db"), {BOB: ["select", "update"]})], True),
        (
            BOB,
            [
                policy("b", tables("db"), {BOB: ["select", "update"]}),
                {
                    "name": "m",
                    "service": "lake",
                    "policyType": 1,
                    "resources": {name: {"values": values} for name, values in ssn.items()},
                    "dataMaskPolicyItems": [
                        {
                            "users": [BOB],
                            "accesses": [{"type": "select", "isAllowed": True}],
                            "dataMaskInfo": {"dataMaskType": "MASK_NULL"},
                        }
                    ],
                },
            ],
            False,
        ),
    ]
    try:
        for user, more, allowed in cases:
            lake.set_policies([*standard_policies(), *more])
            if allowed:
                assert ask(lake, table, user).files == 1
                assert plan(lake, table, user=user, files=files).files.num_rows == 1
                continue
            with pytest.raises(NotAuthorized):
                ask(lake, table, user)
            if user == BOB:
                with pytest.raises(NotAuthorized):
                    plan(lake, table, user=user, files=files)
    finally:
        lake.set_policies(standard_policies())


@pytest.mark.nightly
def test_partitions_of_an_older_spec_are_rewritten_into_todays(lake: Lake) -> None:
    """A table that was partitioned by what is to be encrypted."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = make(lake, partition_spec=spec)
    for value in ("a", "b"):
        append_files(lake, name_of(table), 2, partition={"name": value})
    with lake.catalog().load_table(table.name()).update_spec() as update:
        update.remove_field("name")
    encrypt(lake, table)
    first, *_ = ask(lake, table, max_bytes=1000).groups
    engine = Engine.begin(lake, name_of(table))
    file = engine.file(spec_id=load(lake, name_of(table)).metadata.default_spec_id)
    engine.commit(FileCommit("replace", (file,), first.paths, first.snapshot_id))
    assert len(paths(lake, table)) == 4 and file.path in paths(lake, table)
    assert ask(lake, table).files == 3


@pytest.mark.nightly
def test_a_partition_column_that_is_gone_does_not_hinder(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = make(lake, partition_spec=spec)
    append_files(lake, name_of(table), 2, partition={"name": "a"})
    with lake.catalog().load_table(table.name()).update_spec() as update:
        update.remove_field("name")
    with lake.catalog().load_table(table.name()).update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("name")
    encrypt(lake, table)
    first, _ = ask(lake, table, max_bytes=1000).groups
    engine = Engine.begin(lake, name_of(table))
    file = engine.file(spec_id=load(lake, name_of(table)).metadata.default_spec_id)
    engine.commit(FileCommit("replace", (file,), first.paths, first.snapshot_id))
    assert len(paths(lake, table)) == 2 and file.path in paths(lake, table)


def test_rows_stay_readable_in_a_real_rewrite(lake: Lake) -> None:
    """Files that pyiceberg wrote are counted with their own rows."""
    table = make(lake)
    table.append(rows(1, 5))
    encrypt(lake, table)
    (group,) = ask(lake, table).groups
    assert group.records == 5


@pytest.mark.nightly
def test_small_files_are_compacted_and_later_ones_wait(lake: Lake) -> None:
    """A call ends, because its own files come later, too. Only `main` is compacted by default."""
    table = make(lake, properties=ENCRYPTED)
    small = set(append_files(lake, name_of(table), 5))
    begun = ask(lake, table)
    (group,) = begun.groups
    assert (set(group.paths), group.outputs, begun.files) == (small, 1, 0)
    stock = lake.catalog().load_table(table.name())
    stock.manage_snapshots().create_branch(group.snapshot_id, "dev").commit()
    (later,) = append_files(lake, name_of(table))
    (again,) = ask(lake, table, sequence_number=begun.sequence_number).groups
    assert set(again.paths) == small
    assert [set(each.paths) for each in ask(lake, table).groups] == [small | {later}]
    assert [each.branch for each in ask(lake, table, branch="dev").groups] == ["dev"]


def test_a_filter_takes_only_files_that_can_match(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = make(lake, partition_spec=spec)
    for value in (1, 2):
        append_files(lake, name_of(table), 5, partition={"id": value})
    (group,) = ask(lake, table, row_filter=EqualTo("id", 2)).groups
    files = plan(lake, table).files.to_pylist()
    assert [row["partition"] for row in files if row["file_path"] in group.paths] == ['{"id": 2}'] * 5


def test_rows_are_not_sorted_by_what_a_sort_order_could_not_have(lake: Lake) -> None:
    make_keys(lake, "other")
    table = make(lake, properties={"encryption.columns": "other:name"})
    assert ask(lake, table, sort_columns=[["id"]]).groups == ()
    with pytest.raises(EncryptionPolicyViolation):
        ask(lake, table, sort_columns=[["name"]])
    with pytest.raises(RequestInvalid):
        ask(lake, table, sort_columns=[["absent"]])
