"""Rewrapping: the same files with the same keys under later versions, and nothing else changed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate, TableUpdate

from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.envelope.data_keys import DEK_AAD, sealed_aad
from catalog.key_management import manifests as key_manifests
from catalog.key_management.rewrap import Progress
from catalog.writes.new_files import FileCommit
from policy.errors import (
    EncryptionPolicyViolation,
    KeyNotUsable,
    MetadataTampered,
    NotAuthorized,
)
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies, tables
from tests.support.table_keys import encrypted, let_waiting_end, load, pek, released, rewrap, rotate, versions
from tests.support.tables import Engine, append_files, make, name_of, records, rows


def entries(lake: Lake, name: TableName, ref: str = "main") -> list[dict[str, Any]]:
    """All that the manifests of a branch say of its live files but their keys, in order."""
    table = load(lake, name)
    head = table.metadata.snapshot_by_name(ref)
    assert head is not None
    found = []
    for manifest in lake.services.reader.open(table, lake.services.reader.manifests(table, head)):
        merged = manifest.entries.to_pylist()
        statistics = manifest.decoded.statistics.to_pylist()
        found += [a | b for a, b in zip(merged, statistics, strict=True) if a["status"] != 2]
    for each in found:
        del each["status"], each["key_metadata"]
    return sorted(found, key=lambda each: each["file_path"])


@pytest.mark.nightly
def test_only_the_keys_of_files_change(lake: Lake) -> None:
    name = encrypted(lake, files=3)
    before, keys, table = entries(lake, name), released(lake, name), load(lake, name)
    rotate(lake, name)
    assert rewrap(lake, name) == {"main": 3}
    assert set(versions(lake, name).values()) == {2}
    assert entries(lake, name) == before
    assert released(lake, name) == keys
    head = load(lake, name).metadata.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation.value == "replace"
    old = table.metadata.current_snapshot()
    assert old is not None and old.summary is not None
    assert head.parent_snapshot_id == old.snapshot_id
    for total, value in old.summary.additional_properties.items():
        if total.startswith("total-"):
            assert head.summary.additional_properties[total] == value


@pytest.mark.nightly
def test_what_is_rewrapped_is_not_rewrapped_again(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    assert rewrap(lake, name) == {"main": 0}
    rotate(lake, name)
    assert rewrap(lake, name) == {"main": 2}
    location = load(lake, name).metadata_location
    assert rewrap(lake, name) == {"main": 0}
    assert load(lake, name).metadata_location == location


@pytest.mark.nightly
def test_only_outdated_manifests_are_written(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    rotate(lake, name)
    append_files(lake, name)
    (done,) = lake.services.key_rewrap.rewrap(lake.caller(ALICE), name)
    assert (done.manifests, done.files) == (2, 2)
    summary = load(lake, name).metadata.current_snapshot().summary.additional_properties
    assert (summary["manifests-replaced"], summary["manifests-kept"]) == ("2", "1")
    assert set(versions(lake, name).values()) == {2}


@pytest.mark.nightly
def test_every_branch_is_rewrapped_and_tags_stay(lake: Lake) -> None:
    """Each branch gets manifests of its own: a manifest belongs to the snapshot that brings it."""
    name = encrypted(lake, files=2)
    snapshot = load(lake, name).metadata.current_snapshot_id
    assert snapshot is not None
    stock = lake.catalog().load_table(str(name))
    stock.manage_snapshots().create_branch(snapshot, "dev").create_tag(snapshot, "audit").commit()
    engine = Engine.begin(lake, name)
    engine.commit(FileCommit("append", (engine.file(),), branch="dev"))
    head = load(lake, name).metadata.refs["dev"].snapshot_id
    stock = lake.catalog().load_table(str(name))
    stock.manage_snapshots().create_branch(head, "kept", min_snapshots_to_keep=7).commit()
    rotate(lake, name)
    keys = {ref: released(lake, name, ref) for ref in ("main", "dev", "audit")}
    assert rewrap(lake, name) == {"dev": 3, "kept": 3, "main": 2}
    assert len(written(lake, name)) == 8
    assert {ref: released(lake, name, ref) for ref in ("main", "dev", "audit")} == keys
    assert set(versions(lake, name, "dev").values()) == set(versions(lake, name).values()) == {2}
    assert set(versions(lake, name, "audit").values()) == {1}
    refs = load(lake, name).metadata.refs
    assert refs["kept"].min_snapshots_to_keep == 7
    assert refs["audit"].snapshot_id == snapshot


@pytest.mark.nightly
def test_removed_files_are_left_out_and_the_rest_kept(lake: Lake) -> None:
    name = encrypted(lake)
    gone, *_ = append_files(lake, name, 3)
    head = load(lake, name).metadata.current_snapshot_id
    engine = Engine.begin(lake, name)
    engine.commit(FileCommit("overwrite", (engine.file(),), (gone,), head))
    rotate(lake, name)
    keys, before = released(lake, name), entries(lake, name)
    assert rewrap(lake, name) == {"main": 3}
    assert gone not in released(lake, name)
    assert (released(lake, name), entries(lake, name)) == (keys, before)


def test_files_of_plaintext_times_stay_plaintext_beside(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    name = name_of(table)
    with lake.catalog().load_table(str(name)).transaction() as transaction:
        transaction.set_properties({"encryption.mechanism": "envelope"})
    append_files(lake, name)
    rotate(lake, name)
    assert rewrap(lake, name) == {"main": 1}
    before = entries(lake, name)
    assert len(before) == 2
    assert len(lake.catalog().load_table(str(name)).inspect.files()) == 2


@pytest.mark.nightly
def test_commits_that_come_first_are_built_upon(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    rotate(lake, name)
    came: list[str] = []

    def hook(point: str) -> None:
        if point == "rewrap:listed" and len(came) < 3:
            came.extend(append_files(lake, name))

    with crash_points.hooked(hook):
        assert rewrap(lake, name) == {"main": 2}
    assert len(came) == 3
    assert set(came) < set(versions(lake, name))
    assert set(versions(lake, name).values()) == {2}
    listed = [
        each.location.name
        for each in lake.services.storage.list_prefix(load(lake, name).record.location.child("metadata"))
    ]
    assert len([each for each in listed if each.startswith("rewrap-")]) == 2
    snapshots = load(lake, name).metadata.snapshots
    lists = {each.manifest_list.rsplit("/", 1)[-1] for each in snapshots}
    assert {each for each in listed if each.startswith("snap-")} == lists


@pytest.mark.nightly
def test_a_rotation_that_comes_first_counts(lake: Lake) -> None:
    """What was written for an earlier version is not taken for the later one."""
    name = encrypted(lake, files=2)
    rotate(lake, name)
    meanwhile = iter([lambda: rotate(lake, name)])

    def hook(point: str) -> None:
        if point == "rewrap:listed":
            next(meanwhile, lambda: None)()

    with crash_points.hooked(hook):
        rewrap(lake, name)
    assert set(versions(lake, name).values()) == {3}


@pytest.mark.nightly
def test_what_an_attempt_left_is_taken_up(lake: Lake) -> None:
    name = encrypted(lake, files=3)
    rotate(lake, name)
    keys = released(lake, name)

    class Died(Exception):
        pass

    def hook(point: str) -> None:
        if point == "rewrap:listed":
            raise Died

    with pytest.raises(Died), crash_points.hooked(hook):
        rewrap(lake, name)
    left = written(lake, name)
    assert len(left) == 3
    assert rewrap(lake, name) == {"main": 3}
    assert written(lake, name) == left
    assert released(lake, name) == keys


def test_cut_short_between_branches_it_goes_on_with_the_next(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    snapshot = load(lake, name).metadata.current_snapshot_id
    assert snapshot is not None
    stock = lake.catalog().load_table(str(name))
    stock.manage_snapshots().create_branch(snapshot, "dev").commit()
    rotate(lake, name)

    class Died(Exception):
        pass

    def hook(point: str) -> None:
        if point == "published":
            raise Died

    with pytest.raises(Died), crash_points.hooked(hook):
        rewrap(lake, name)
    assert (set(versions(lake, name, "dev").values()), set(versions(lake, name).values())) == ({2}, {1})
    assert rewrap(lake, name) == {"dev": 0, "main": 1}
    assert set(versions(lake, name).values()) == {2}


def written(lake: Lake, name: TableName) -> dict[str, bytes]:
    """The manifests that were rewritten, by name."""
    directory = Path(load(lake, name).metadata.location.removeprefix("file://")) / "metadata"
    return {each.name: each.read_bytes() for each in directory.glob("rewrap-*")}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "what", ["garbage", "truncated", "of another table", "with another key", "a link", "a directory"]
)
def test_what_somebody_else_left_there_is_not(lake: Lake, what: str) -> None:
    """A user who writes the directory knows the names. What they put there is looked at, and left alone."""
    name = encrypted(lake, files=1)
    rotate(lake, name)
    keys = released(lake, name)
    _stop_before_publishing(lake, name)
    ((there, good),) = written(lake, name).items()
    path = Path(load(lake, name).metadata.location.removeprefix("file://")) / "metadata" / there
    path.unlink()
    if what == "a link":
        (lake.root / f"{there}-real").write_bytes(good)
        path.symlink_to(lake.root / f"{there}-real")
    elif what == "a directory":
        path.mkdir()
    else:
        path.write_bytes(_planted(lake, what, good))
    assert rewrap(lake, name) == {"main": 1}
    assert released(lake, name) == keys
    assert set(versions(lake, name).values()) == {2}
    table = load(lake, name)
    (listed,) = lake.services.reader.manifests(table, table.metadata.snapshot_by_name("main"))  # type: ignore[arg-type]
    assert not listed.manifest_path.endswith(there)


def _planted(lake: Lake, what: str, good: bytes) -> bytes:
    if what == "of another table":
        other = encrypted(lake, files=1)
        rotate(lake, other)
        _stop_before_publishing(lake, other)
        (foreign,) = written(lake, other).values()
        return foreign
    plain = {"garbage": b"garbage", "truncated": good[: len(good) // 2]}
    return plain.get(what) or _with_other_key(good)


def _with_other_key(manifest: bytes) -> bytes:
    """The manifest with one bit of a wrapped key changed: uncompressed, so the Avro framing holds."""
    reader = fastavro.reader(io.BytesIO(manifest))
    schema, metadata = reader.writer_schema, dict(reader.metadata)
    found = list(reader)
    keyed = bytearray(found[0]["data_file"]["key_metadata"])
    keyed[-1] ^= 1
    found[0]["data_file"]["key_metadata"] = bytes(keyed)
    out = io.BytesIO()
    kept = {k: v for k, v in metadata.items() if not k.startswith("avro.")}
    fastavro.writer(out, schema, found, metadata=kept)
    return out.getvalue()


def _stop_before_publishing(lake: Lake, name: TableName) -> None:
    class Died(Exception):
        pass

    def hook(point: str) -> None:
        if point == "rewrap:manifest":
            raise Died

    with pytest.raises(Died), crash_points.hooked(hook):
        rewrap(lake, name)


def test_what_is_written_is_read_back_before_the_pointer_moves(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewrapping that goes wrong, and would lose a key, is refused."""
    name = encrypted(lake, files=1)
    rotate(lake, name)
    real = key_manifests.rewrap_deks

    def wrong(metadata: Any, file: Any, opened: Any, targets: Any) -> Any:
        made = real(metadata, file, opened, targets)
        (entry,) = made.entries
        target = next(iter(targets.values()))
        aead = opened[target].aead
        sealed = aead.seal(b"\x00" * 32, sealed_aad(DEK_AAD, made, file, entry.binding))
        return made._replace(entries=(entry._replace(wrapped=sealed),))

    monkeypatch.setattr(key_manifests, "rewrap_deks", wrong)
    location = load(lake, name).metadata_location
    with pytest.raises(EncryptionPolicyViolation) as refused:
        rewrap(lake, name)
    assert refused.value.rule == "rewrapped-keys"
    assert load(lake, name).metadata_location == location


def test_a_manifest_changed_in_storage_is_refused(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    rotate(lake, name)
    table = load(lake, name)
    (listed,) = lake.services.reader.manifests(table, table.metadata.current_snapshot())
    path = Path(listed.manifest_path.removeprefix("file://"))
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(MetadataTampered):
        rewrap(lake, name)


def test_a_disabled_version_is_not_opened_to_rewrap(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    rotate(lake, name)
    old = pek(lake, name, 1)
    lake.services.key_life.disable(lake.caller(ALICE), name, old.id, 1)
    with pytest.raises(KeyNotUsable):
        rewrap(lake, name)
    lake.services.key_life.enable(lake.caller(ALICE), name, old.id, 1)
    assert rewrap(lake, name) == {"main": 1}


def test_a_table_without_files_or_keys_has_nothing_to_rewrap(lake: Lake) -> None:
    assert rewrap(lake, encrypted(lake)) == {}
    table = make(lake)
    table.append(rows(1))
    assert rewrap(lake, name_of(table)) == {"main": 0}


@pytest.mark.nightly
def test_progress_is_told_manifest_by_manifest(lake: Lake) -> None:
    name = encrypted(lake, files=3)
    rotate(lake, name)
    told: list[Progress] = []
    lake.services.key_rewrap.rewrap(lake.caller(ALICE), name, told.append)
    assert told == [Progress("main", done, 3) for done in (1, 2, 3)]


def test_rewrapping_takes_alter_and_the_right_on_the_master_key(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    rotate(lake, name)
    with pytest.raises(NotAuthorized):
        lake.services.key_rewrap.rewrap(lake.caller(CAROL), name)
    more = policy("bob-alters", tables("db"), {BOB: ["alter"]})
    lake.set_policies([*standard_policies(), more])
    with pytest.raises(NotAuthorized):
        lake.services.key_rewrap.rewrap(lake.caller(BOB), name)
    lake.set_policies([*standard_policies(), more, policy("bob-keys", {"key": ["*"]}, {BOB: ["rotate"]})])
    assert lake.services.key_rewrap.rewrap(lake.caller(BOB), name)
    lake.set_policies(standard_policies())


def test_what_was_rewrapped_is_on_record(lake: Lake) -> None:
    name, caller = encrypted(lake, files=1), lake.caller(ALICE)
    rotate(lake, name)
    (done,) = lake.services.key_rewrap.rewrap(caller, name)
    asked, told = records(lake, caller)
    assert (asked.action, told.action) == ("key.rewrap", "key.rewrapped")
    assert str(done.snapshot_id) in told.reasons[0].detail


@pytest.mark.nightly
def test_stock_readers_see_a_replace_that_changes_no_file(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    rotate(lake, name)
    rewrap(lake, name)
    stock = lake.catalog().load_table(str(name))
    files = stock.inspect.files()
    assert isinstance(files, pa.Table) and files.num_rows == 2
    assert stock.metadata.current_snapshot().summary.operation.value == "replace"


@pytest.mark.nightly
def test_what_is_under_a_destroyed_key_keeps_nothing_else_from_being_rewrapped(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    lake.services.key_life.destroy(lake.caller(ALICE), name, str(name))
    let_waiting_end(lake, name)
    rotate(lake, name)
    (new,) = append_files(lake, name)
    rotate(lake, name)
    (done,) = lake.services.key_rewrap.rewrap(lake.caller(ALICE), name)
    assert (done.manifests, done.files, done.lost) == (1, 1, 1)
    assert sorted(versions(lake, name).values()) == [1, 3] and versions(lake, name)[new] == 3
    (again,) = lake.services.key_rewrap.rewrap(lake.caller(ALICE), name)
    assert (again.snapshot_id, again.lost) == (None, 1)


def commit(lake: Lake, name: TableName, *updates: TableUpdate) -> None:
    lake.services.committer.commit(lake.caller(ALICE), name, (), updates)


def test_a_manifest_that_was_sealed_and_removed_is_not_rewritten_under_its_name(lake: Lake) -> None:
    """A rewrap that was rolled back, expired and cleaned up: the seal of what it wrote is still there."""
    name = encrypted(lake, files=1)
    first = load(lake, name).metadata.current_snapshot_id
    keys = released(lake, name)
    rotate(lake, name)
    rewrap(lake, name)
    second = load(lake, name).metadata.current_snapshot_id
    assert first is not None and second is not None
    (cleaned,) = written(lake, name)
    commit(lake, name, SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=first))
    commit(lake, name, RemoveSnapshotsUpdate(snapshot_ids=[second]))
    directory = Path(load(lake, name).metadata.location.removeprefix("file://")) / "metadata"
    (directory / cleaned).unlink()
    assert rewrap(lake, name) == {"main": 1}
    assert cleaned not in written(lake, name)
    commit(lake, name, RemoveSnapshotsUpdate(snapshot_ids=[first]))
    assert released(lake, name) == keys
    append_files(lake, name)


@pytest.mark.nightly
def test_a_manifest_that_was_sealed_is_written_again_under_another_name(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    first = load(lake, name).metadata.current_snapshot_id
    keys = released(lake, name)
    rotate(lake, name)
    rewrap(lake, name)
    before = written(lake, name)
    assert first is not None
    commit(lake, name, SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=first))
    assert rewrap(lake, name) == {"main": 1}
    assert len(written(lake, name)) == len(before) + 1
    assert released(lake, name) == keys


def test_a_manifest_that_gets_another_seal_meanwhile_is_not_sealed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of its path when it is chosen may be outdated: the landing looks once more."""
    name = encrypted(lake, files=1)
    first = load(lake, name).metadata.current_snapshot_id
    rotate(lake, name)
    rewrap(lake, name)
    (cleaned,) = written(lake, name)
    assert first is not None
    commit(lake, name, SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=first))
    directory = Path(load(lake, name).metadata.location.removeprefix("file://")) / "metadata"
    (directory / cleaned).unlink()
    location = load(lake, name).metadata_location
    real, blind = lake.services.reader.sealed, iter([True])

    def outdated(table_id: str, paths: Any) -> Any:
        asked = list(paths)
        return {} if cleaned in asked[0] and next(blind, False) else real(table_id, asked)

    monkeypatch.setattr(lake.services.reader, "sealed", outdated)
    with pytest.raises(MetadataTampered) as refused:
        rewrap(lake, name)
    assert "already sealed with different bytes" in refused.value.message
    assert load(lake, name).metadata_location == location
