"""Commits with UPDATE alone that put together what was sealed in another way than it was before."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import ManifestEntry, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField
from sqlalchemy import update

from catalog.base.errors import CommitConflict
from catalog.db.engine import write
from catalog.db.schema import lw_sealed_file
from catalog.envelope.file_ids import file_id_of, new_file_name
from catalog.writes.new_files import FileCommit
from policy.errors import EncryptionPolicyViolation, MetadataInvalid, MetadataTampered, RequestInvalid
from tests.attacks.handmade_commits import WALT, head, listed, plain, put, rewrapped, short, users, vault
from tests.support.attacker import (
    DELETED,
    EXISTING,
    Attacker,
    again,
    data_file,
    entry,
    new_id,
    refused,
    updates,
)
from tests.support.lake import ALICE, Lake
from tests.support.rewrites import ask, migrating, rewrite
from tests.support.table_keys import encrypted, rotate
from tests.support.tables import Engine, append_files, make, name_of
from tests.support.vectors import each_row

__all__ = ["plain", "users", "vault"]


def listing(attacker: Attacker, *manifests: ManifestFile, **changes: Any) -> list[TableUpdate]:
    """The updates of a snapshot that lists these manifests."""
    return updates(attacker.snapshot(manifests, new_id(), **changes))


def remove(vault: Attacker, *paths: str) -> None:
    """Remove files through a write, and add another one."""
    engine = Engine.begin(vault.lake, short(vault))
    engine.commit(FileCommit("overwrite", (engine.file(),), paths, head(vault).snapshot_id))


# Manifests and files of before.


def test_an_old_list_does_not_undo_a_rewrap(vault: Attacker) -> None:
    refused(vault, MetadataTampered, "new-manifest", *listing(vault, *rewrapped(vault)))


def test_manifests_of_before_a_rewrap_beside_those_after_it(vault: Attacker) -> None:
    """Every row would count twice."""
    old = rewrapped(vault)
    refused(vault, MetadataTampered, "new-manifest", *listing(vault, *vault.manifests(), *old))


def test_files_of_before_a_rewrap_carried_over(vault: Attacker) -> None:
    """Key metadata that changes is the catalog's own exception."""
    before = vault.entries()
    rewrapped(vault)
    planted = vault.replacing(*(again(each, EXISTING) for each in before))
    refused(vault, MetadataTampered, "carried-file", *planted)


def test_deleted_rows_do_not_come_back(vault: Attacker) -> None:
    """The manifest is sealed, and the key metadata of a file that was deleted still opens."""
    old, [gone, *_] = vault.manifests(), vault.entries()
    remove(vault, gone.data_file.file_path)
    refused(vault, MetadataTampered, "new-manifest", *listing(vault, *old))
    added = vault.appending(entry(gone.data_file))
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *added)
    refused(vault, MetadataTampered, "carried-file", *vault.appending(again(gone, EXISTING)))


def test_a_file_does_not_disappear_without_a_deleted_entry(plain: Attacker) -> None:
    newest, *others = plain.manifests()
    refused(plain, MetadataTampered, "dropped-file", *listing(plain, *others))
    snapshot_id = new_id()
    kept = [again(each, EXISTING) for each in plain.entries()[1:]]
    manifest = plain.manifest(kept, snapshot_id)
    refused(plain, MetadataTampered, "dropped-file", *updates(plain.snapshot([manifest], snapshot_id)))
    assert newest.added_snapshot_id == head(plain).snapshot_id


def test_plaintext_manifests_do_not_come_back_after_migration(users: Lake) -> None:
    """Their files could have been overwritten with others since, which nobody would notice."""
    table = migrating(users)
    mine = Attacker(users, str(name_of(table)), WALT)
    old = mine.manifests()
    for group in ask(users, table).groups:
        rewrite(users, table, group)
    refused(mine, MetadataTampered, "new-manifest", *listing(mine, *old))
    refused(mine, MetadataTampered, "new-manifest", *listing(mine, *mine.manifests(), *old))


# What a carried entry says.


@each_row(
    "forged",
    [
        {"record_count": 1},
        {"file_size_in_bytes": 1},
        {"equality_ids": [1]},
        {"key_metadata": b"\x02"},
        {"null_value_counts": {1: 7}},
        {"null_value_counts": {1: 7, 2: 0}},
        {"null_value_counts": {1: 0, 3: 0}},
        {"lower_bounds": {1: bytes(8)}},
        {"split_offsets": [4, 5]},
        {"sort_order_id": 7},
    ],
)
def test_carried_file_described_otherwise(plain: Attacker, forged: dict[str, Any]) -> None:
    one, *others = plain.entries()
    values = {name: getattr(one.data_file, name) for name in _DESCRIBED} | forged
    file = data_file(one.data_file.file_path, **values)
    planted = plain.replacing(
        entry(file, EXISTING, **numbers_of(one)), *(again(each, EXISTING) for each in others)
    )
    refused(plain, MetadataTampered, "carried-file", *planted)


def numbers_of(known: ManifestEntry) -> dict[str, int | None]:
    """The numbers of an entry that another one keeps."""
    return {name: getattr(known, name) for name in _NUMBERS}


_NUMBERS = ("snapshot_id", "sequence_number", "file_sequence_number")
_DESCRIBED = (
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "split_offsets",
    "sort_order_id",
)


def test_carried_file_without_statistics(plain: Attacker) -> None:
    """Writers can leave statistics out, or keep them in another order."""
    one, two = plain.entries()
    file = data_file(one.data_file.file_path, record_count=one.data_file.record_count)
    values = {name: getattr(two.data_file, name) for name in _DESCRIBED}
    counts = dict(reversed(list(two.data_file.value_counts.items())))
    turned = data_file(two.data_file.file_path, **values | {"value_counts": counts})
    before = plain.scan()
    plain.commit(
        *plain.replacing(entry(file, EXISTING, **numbers_of(one)), entry(turned, EXISTING, **numbers_of(two)))
    )
    assert plain.scan() == before


@each_row("status", [EXISTING, DELETED])
def test_carried_file_of_another_snapshot(plain: Attacker, status: Any) -> None:
    one, *others = plain.entries()
    planted = plain.replacing(again(one, status, snapshot_id=99), *(again(each, EXISTING) for each in others))
    refused(plain, MetadataTampered, "carried-file", *planted)


# What a list says of a new manifest.


@each_row(
    "count",
    [f"{kind}_{what}_count" for kind in ("added", "existing", "deleted") for what in ("files", "rows")],
)
def test_wrong_count_of_a_new_manifest(plain: Attacker, count: str) -> None:
    """A planner passes over manifests that have no live file by their counts."""
    _forged(plain, "manifest-counts", **{count: 99})


def test_min_sequence_number_of_a_new_manifest_that_is_too_great(plain: Attacker) -> None:
    """The next honest commit would drop delete files that still apply."""
    one, two = plain.entries()
    snapshot_id = new_id()
    manifest = plain.manifest([again(one, EXISTING), again(two, EXISTING)], snapshot_id)
    manifest = listed(manifest, min_sequence_number=2)
    planted = updates(plain.snapshot([manifest], snapshot_id))
    refused(plain, MetadataInvalid, "min-sequence-number", *planted)


def _forged(plain: Attacker, rule: str, **forged: Any) -> None:
    snapshot_id = new_id()
    file = data_file(f"{plain.location}/data/new.parquet")
    manifest = listed(plain.manifest([entry(file)], snapshot_id), **forged)
    planted = updates(plain.snapshot([*plain.manifests(), manifest], snapshot_id))
    refused(plain, MetadataInvalid, rule, *planted)


def _bounds(low: int, high: int) -> dict[str, bytes]:
    return {
        "lower_bound": low.to_bytes(8, "little", signed=True),
        "upper_bound": high.to_bytes(8, "little", signed=True),
    }


@each_row(
    ("values", "summary", "sound"),
    [
        ([1, 5, None], {"contains_null": True, **_bounds(1, 5)}, True),
        ([1, 5], {"contains_null": True, **_bounds(-9, 9)}, True),
        ([None], {"contains_null": True}, True),
        ([1, 5], {"contains_null": False, **_bounds(2, 5)}, False),
        ([1, 5], {"contains_null": False, **_bounds(1, 4)}, False),
        ([1, None], {"contains_null": False, **_bounds(1, 1)}, False),
        ([1], {"contains_null": False}, False),
        ([1], {"contains_null": False, "lower_bound": b"\1", "upper_bound": b"\1"}, False),
    ],
)
def test_partition_summary_of_a_new_manifest(
    users: Lake, values: list[int | None], summary: dict[str, Any], sound: bool
) -> None:
    """What a summary leaves out, a planner passes over."""
    schema = Schema(NestedField(1, "id", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = make(users, schema=schema, partition_spec=spec)
    mine = Attacker(users, str(name_of(table)), WALT)
    snapshot_id = new_id()
    files = [
        entry(data_file(f"{mine.location}/data/{place}.parquet", partition=Record(value)))
        for place, value in enumerate(values)
    ]
    manifest = mine.manifest(files, snapshot_id)
    said = {"contains_nan": False, "lower_bound": None, "upper_bound": None} | summary
    manifest = listed(manifest, partitions=[PartitionFieldSummary.from_args(**said)])
    planted = updates(mine.snapshot([manifest], snapshot_id))
    if sound:
        mine.commit(*planted)
        assert mine.plan().files.num_rows == len(values)
    else:
        refused(mine, MetadataInvalid, "partition-summary", *planted)


# Where files of an encrypted table come from.


def staged(vault: Attacker) -> Snapshot:
    """A snapshot with a file of a write, on a branch that is gone again."""
    vault.commit(put(head(vault).snapshot_id, "audit"))
    engine = Engine.begin(vault.lake, short(vault))
    engine.commit(FileCommit("append", (engine.file(),), branch="audit"))
    made = vault.metadata.snapshot_by_name("audit")
    assert made is not None
    append_files(vault.lake, short(vault))
    return made


def picking(vault: Attacker, source: Snapshot) -> list[TableUpdate]:
    """What `cherrypick_snapshot` of Iceberg commits."""
    added = [each.data_file for each in vault.entries(source) if each.snapshot_id == source.snapshot_id]
    summary = Summary(Operation.APPEND, **{"source-snapshot-id": str(source.snapshot_id)})
    return vault.appending(*(entry(each) for each in added), summary=summary)


def test_a_retained_snapshot_is_picked_once(vault: Attacker) -> None:
    source = staged(vault)
    vault.commit(*picking(vault, source))
    picked = [each for each in vault.entries() if each.snapshot_id == head(vault).snapshot_id]
    remove(vault, *(each.data_file.file_path for each in picked))
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *picking(vault, source))


def test_a_pick_is_not_picked_again(vault: Attacker) -> None:
    """Below an older parent the files are new, and from there they would come to the branch once more."""
    source = head(vault)
    gone = [each for each in vault.entries() if each.snapshot_id == source.snapshot_id]
    remove(vault, *(each.data_file.file_path for each in gone))
    older = vault.metadata.snapshots[0]
    snapshot_id = new_id()
    manifest = vault.manifest([entry(each.data_file) for each in gone], snapshot_id)
    summary = Summary(Operation.APPEND, **{"source-snapshot-id": str(source.snapshot_id)})
    side = vault.snapshot(
        [*vault.manifests(older), manifest],
        snapshot_id,
        parent_snapshot_id=older.snapshot_id,
        summary=summary,
    )
    vault.commit(updates(side)[0])
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *picking(vault, side))


def test_an_ancestor_whose_successors_expired_is_not_picked(vault: Attacker) -> None:
    """Whether the branch had its files cannot be told any more."""
    source = head(vault)
    vault.commit(put(source.snapshot_id, "kept"))
    gone = [each for each in vault.entries() if each.snapshot_id == source.snapshot_id]
    remove(vault, *(each.data_file.file_path for each in gone))
    between = head(vault).snapshot_id
    append_files(vault.lake, short(vault))
    vault.commit(RemoveSnapshotsUpdate(snapshot_ids=[between]))
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *picking(vault, source))


@pytest.mark.nightly
def test_a_pick_of_files_under_an_earlier_key_version(vault: Attacker) -> None:
    source = staged(vault)
    rotate(vault.lake, short(vault))
    refused(vault, CommitConflict, "rewrap-first", *picking(vault, source))


def test_a_file_of_a_write_of_ones_own_is_not_added_by_a_commit_of_ones_own(vault: Attacker) -> None:
    [known, *_] = vault.entries()
    summary = Summary(Operation.APPEND, **{"source-snapshot-id": str(head(vault).snapshot_id)})
    remove(vault, known.data_file.file_path)
    planted = vault.appending(entry(known.data_file), summary=summary)
    refused(vault, EncryptionPolicyViolation, "added-file-origin", *planted)


# Tables of before.


def forget(attacker: Attacker) -> None:
    """Make the heads of a table ones of before commits were compared with their parents."""
    with write(attacker.lake.services.engine) as connection:
        connection.execute(update(lw_sealed_file).values(verified=None))


def test_what_an_unverified_head_says_is_checked_when_it_is_carried_over(
    plain: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_id = new_id()
    file = data_file(f"{plain.location}/data/new.parquet")
    manifest = listed(plain.manifest([entry(file)], snapshot_id), added_rows_count=99)
    monkeypatch.setattr("catalog.snapshot_checks.inspection.check_described", lambda *_: None)
    plain.commit(*updates(plain.snapshot([*plain.manifests(), manifest], snapshot_id)))
    monkeypatch.undo()
    more = entry(data_file(f"{plain.location}/data/more.parquet"))
    forget(plain)
    refused(plain, MetadataInvalid, "manifest-counts", *plain.appending(more))
    plain.commit(*plain.replacing(*(again(each, EXISTING) for each in plain.entries())))
    plain.commit(*plain.appending(more))


def test_an_unverified_head_of_an_encrypted_table_has_no_file_twice(
    vault: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    [known, *_] = vault.entries()
    monkeypatch.setattr("catalog.snapshot_checks.inspection.check_picked", lambda *_: None)
    monkeypatch.setattr("catalog.snapshot_checks.duplicates.LiveFiles.check_added", lambda *_: None)
    vault.commit(*vault.appending(entry(known.data_file)))
    monkeypatch.undo()
    forget(vault)
    with pytest.raises(RequestInvalid) as refusal:
        append_files(vault.lake, short(vault))
    assert refusal.value.rule == "duplicate-file"


@pytest.mark.nightly
def test_an_unverified_head_has_no_file_id_and_no_plaintext_file_twice(
    users: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of one id could be exchanged; plaintext files of before an encryption have none."""
    monkeypatch.setattr("catalog.snapshot_checks.inspection.check_picked", lambda *_: None)
    monkeypatch.setattr("catalog.snapshot_checks.duplicates.LiveFiles.check_added", lambda *_: None)
    vault = Attacker(users, str(encrypted(users, 2)), WALT)
    known = vault.entries()[0].data_file
    path = f"{vault.location}/data/other-{file_id_of(known.file_path).hex()}.parquet"
    vault.commit(*vault.appending(entry(data_file(path, key_metadata=known.key_metadata))))
    moved = Attacker(users, str(name_of(make(users))), ALICE)
    for _ in range(2):
        moved.commit(*moved.appending(entry(data_file(f"{moved.location}/data/x.parquet"))))
    moved.commit_properties({"encryption.mechanism": "envelope"})
    monkeypatch.undo()
    for each in (vault, moved):
        forget(each)
        with pytest.raises(RequestInvalid) as refusal:
            append_files(users, short(each))
        assert refusal.value.rule == "duplicate-file"


def test_files_of_one_id_in_a_plaintext_table(plain: Attacker) -> None:
    """Nothing is bound to the id there: writers name files as they like."""
    name = new_file_name("part", "parquet")
    plain.commit(*plain.appending(*(entry(data_file(f"{plain.location}/{each}/{name}")) for each in "ab")))
    assert plain.plan().files.num_rows == 4


def test_an_unverified_head_that_is_sound_is_carried_over(vault: Attacker) -> None:
    forget(vault)
    append_files(vault.lake, short(vault))
    assert vault.plan(engine="spark").files.num_rows == 3


def test_a_plan_refuses_unsealed_metadata_that_a_load_refuses(plain: Attacker) -> None:
    snapshot_id = new_id()
    file = data_file(f"{plain.location}/data/new.parquet")
    manifest = listed(plain.manifest([entry(file)], snapshot_id), added_rows_count=99)
    plain.commit_behind(*updates(plain.snapshot([*plain.manifests(), manifest], snapshot_id)))
    for read in (plain.plan, plain.scan):
        with pytest.raises(MetadataInvalid) as refusal:
            read()
        assert refusal.value.rule == "manifest-counts"
