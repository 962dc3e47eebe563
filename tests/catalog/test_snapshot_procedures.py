"""Iceberg's snapshot procedures: rollback, set current, fast-forward, cherry-pick, as the catalog decides."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo

from catalog.base.errors import ConcurrentModification
from catalog.maintenance.expiry import ExpiryRequest
from catalog.maintenance.snapshot_moves import (
    FastForward,
    Pick,
    Rollback,
    SetCurrent,
    SnapshotChange,
    ancestors,
)
from catalog.maintenance.snapshot_procedures import Moved, repeated
from catalog.tables.alter import SetProperty
from catalog.tables.ref_changes import SetRef
from catalog.writes.new_files import FileCommit
from policy.errors import LakewardenError, NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies, tables
from tests.support.row_changes import Ledger
from tests.support.table_keys import load, rotate
from tests.support.tables import ENCRYPTED, name_of

AUDITED = {"write.wap.enabled": "true"}
PROTECTIONS = {"plaintext": {}, "encrypted": ENCRYPTED | {"encryption.columns": "lakewarden:id"}}


def _ledger(lake: Lake, **properties: str) -> Ledger:
    return Ledger.of(lake, properties=AUDITED | properties)


def _change(ledger: Ledger, change: SnapshotChange, user: str = ALICE) -> Moved:
    lake = ledger.lake
    return lake.services.snapshot_procedures.change(lake.caller(user), name_of(ledger.table), change)


def _refused(ledger: Ledger, change: SnapshotChange, error: type[LakewardenError], user: str = ALICE) -> str:
    """The rule of a refusal, after which everything is as before, also the files of metadata."""
    before = _state(ledger)
    with pytest.raises(error) as refused:
        _change(ledger, change, user)
    assert _state(ledger) == before
    return str(refused.value.rule)


def _state(ledger: Ledger) -> tuple[str, set[str]]:
    table = load(ledger.lake, name_of(ledger.table))
    directory = ledger.lake.root / table.metadata.location.split(str(ledger.lake.root) + "/")[1] / "metadata"
    return table.metadata_location, {each.name for each in directory.iterdir()}


def _alter(ledger: Ledger, *changes: Any) -> None:
    lake = ledger.lake
    lake.services.alterer.alter(lake.caller(ALICE), name_of(ledger.table), changes)


def _staged(ledger: Ledger, low: int, part: str = "a", *, wap_id: str = "w", **given: Any) -> int:
    """A staged snapshot that adds a file of ten ids; its id."""
    known = {each.snapshot_id for each in load(ledger.lake, name_of(ledger.table)).metadata.snapshots}
    engine = ledger.engine()
    file = ledger.file(engine, low, low + 9, part)
    engine.commit(FileCommit(given.pop("operation", "append"), (file,), wap_id=wap_id, **given))
    (new,) = {
        each.snapshot_id for each in load(ledger.lake, name_of(ledger.table)).metadata.snapshots
    } - known
    return new


def _parts(ledger: Ledger) -> list[tuple[str, int]]:
    """Of each live file its partition, and its first id over ten; encrypted bounds are not told."""
    files = ledger.lake.catalog().load_table(ledger.table.name()).inspect.files().to_pylist()
    return sorted((each["partition"]["part"], each["record_count"]) for each in files)


@pytest.mark.nightly
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_staged_append_is_picked_once_on_top_of_what_came_since(lake: Lake, protection: str) -> None:
    ledger = _ledger(lake, **PROTECTIONS[protection])
    ledger.append(0, 9)
    staged, other = _staged(ledger, 10), _staged(ledger, 20)
    assert _parts(ledger) == [("a", 10)]
    previous = ledger.append(30, 39, "b") and ledger.head().snapshot_id
    assert _refused(ledger, Pick(wap_id="w"), RequestInvalid) == "snapshot-move"  # there are two
    moved = _change(ledger, Pick(snapshot_id=staged))
    assert (moved.branch, moved.source_id, moved.previous_id) == ("main", staged, previous)
    assert _parts(ledger) == [("a", 10), ("a", 10), ("b", 10)]
    names = ("source-snapshot-id", "published-wap-id", "added-data-files", "total-data-files")
    said = dict(zip(names, (str(staged), "w", "1", "3"), strict=True))
    assert ledger.summary(*names) == {"operation": "append", **said}
    for again in (staged, moved.current_id, other):
        assert _refused(ledger, Pick(snapshot_id=again), RequestInvalid) == "snapshot-move"
    table = load(lake, name_of(ledger.table))
    assert repeated(table, Pick(snapshot_id=staged)) == Moved("main", staged, None, moved.current_id)
    assert repeated(table, Pick(wap_id="w")).source_id == staged


def test_a_snapshot_whose_pick_can_have_expired_is_not_picked(lake: Lake) -> None:
    """Rows that were deleted since would be there again."""
    ledger = _ledger(lake)
    ledger.append(0, 9)
    staged = _staged(ledger, 10)
    _alter(ledger, SetRef("tag", "keep", "create", staged))
    ledger.append(30, 39, "b")
    picked = _change(ledger, Pick(snapshot_id=staged)).current_id
    ledger.commit("delete", delete_filter=EqualTo("part", "a"), base_snapshot_id=picked)
    expires = ExpiryRequest(snapshot_ids=[picked])
    lake.services.expiry.expire(lake.caller(ALICE), name_of(ledger.table), expires)
    assert _refused(ledger, Pick(snapshot_id=staged), RequestInvalid) == "snapshot-move"
    assert _parts(ledger) == [("b", 10)]


@pytest.mark.nightly
def test_a_snapshot_on_the_head_is_picked_by_moving_the_branch(lake: Lake) -> None:
    ledger = _ledger(lake)
    first = _staged(ledger, 0)
    assert _change(ledger, Pick(wap_id="w")) == Moved("main", first, None, first)
    ledger.append(10, 19)
    engine = ledger.engine()
    base = ledger.head().snapshot_id
    engine.commit(FileCommit("delete", (), delete_filter=AlwaysTrue(), base_snapshot_id=base, wap_id="d"))
    deleted = load(lake, name_of(ledger.table)).metadata.snapshots[-1].snapshot_id
    assert _change(ledger, Pick(snapshot_id=deleted)).current_id == deleted
    assert _parts(ledger) == []


def test_a_delete_is_not_picked_on_top_of_others(lake: Lake) -> None:
    ledger = _ledger(lake)
    ledger.append(0, 9)
    base = ledger.head().snapshot_id
    ledger.commit("delete", delete_filter=AlwaysTrue(), base_snapshot_id=base, wap_id="d")
    ledger.append(10, 19)
    assert _refused(ledger, Pick(wap_id="d"), RequestInvalid) == "snapshot-move"


@pytest.mark.nightly
def test_a_dynamic_overwrite_is_picked_unless_its_partitions_changed(lake: Lake) -> None:
    ledger = _ledger(lake)
    ledger.append(0, 9, "a")
    given = {"operation": "overwrite", "replace_partitions": True}
    first, second = _staged(ledger, 10, **given), _staged(ledger, 20, "b", wap_id="v", **given)
    ledger.append(30, 39, "b")
    assert _refused(ledger, Pick(snapshot_id=second), ConcurrentModification) == "new-data"
    _change(ledger, Pick(snapshot_id=first))
    assert _parts(ledger) == [("a", 10), ("b", 10)]
    assert ledger.summary("deleted-data-files", "added-data-files") == {
        "operation": "overwrite",
        "deleted-data-files": "1",
        "added-data-files": "1",
    }


def test_files_under_an_earlier_key_version_are_not_picked(lake: Lake) -> None:
    """The commit is checked as a client's cherry-pick is."""
    ledger = _ledger(lake, **PROTECTIONS["encrypted"])
    ledger.append(0, 9)
    staged = _staged(ledger, 10)
    ledger.append(20, 29)
    rotate(lake, name_of(ledger.table))
    before = _state(ledger)
    with pytest.raises(LakewardenError) as refused:
        _change(ledger, Pick(snapshot_id=staged))
    assert (refused.value.rule, _state(ledger)) == ("rewrap-first", before)


@pytest.mark.nightly
def test_main_goes_back_to_its_ancestors_alone(lake: Lake) -> None:
    ledger = _ledger(lake)
    ids = [ledger.append(low, low + 9) and ledger.head().snapshot_id for low in (0, 10, 20)]
    staged = _staged(ledger, 30)
    times = [each.timestamp_ms for each in load(lake, name_of(ledger.table)).metadata.snapshots]
    for wrong in (Rollback(snapshot_id=staged), Rollback(snapshot_id=5), Rollback(before_ms=times[0])):
        assert _refused(ledger, wrong, RequestInvalid) == "snapshot-move"
    assert _change(ledger, Rollback(snapshot_id=ids[1])) == Moved("main", ids[1], ids[2], ids[1])
    assert _refused(ledger, Rollback(snapshot_id=ids[2]), RequestInvalid) == "snapshot-move"
    assert _change(ledger, Rollback(before_ms=times[1])).current_id == ids[0]
    assert _change(ledger, SetCurrent(snapshot_id=staged)).previous_id == ids[0]
    metadata = load(lake, name_of(ledger.table)).metadata
    assert [each.snapshot_id for each in ancestors(metadata, None)] == [staged, *reversed(ids)]
    assert [each.snapshot_id for each in ancestors(metadata, ids[1])] == [ids[1], ids[0]]
    with pytest.raises(RequestInvalid):
        ancestors(metadata, 5)


@pytest.mark.nightly
def test_a_branch_goes_forward_alone(lake: Lake) -> None:
    ledger = _ledger(lake)
    ledger.append(0, 9)
    first = ledger.head().snapshot_id
    _alter(ledger, SetRef("tag", "v1", "create"), SetRef("branch", "audit", "create"))
    ledger.append(10, 19, branch="audit")
    audited = ledger.head("audit").snapshot_id
    for wrong in (FastForward("v1", "audit"), FastForward("main", "absent"), FastForward("audit", "main")):
        assert _refused(ledger, wrong, RequestInvalid) == "snapshot-move"
    assert _change(ledger, FastForward("main", "audit")) == Moved("main", audited, first, audited)
    assert _change(ledger, FastForward("new", "v1")) == Moved("new", first, None, first)
    ledger.append(20, 29)
    assert _refused(ledger, FastForward("new", "absent"), RequestInvalid) == "snapshot-move"
    assert _change(ledger, SetCurrent(ref="v1")).current_id == first
    assert _refused(ledger, SetCurrent(ref="absent"), RequestInvalid) == "snapshot-move"


def test_going_back_takes_alter_and_across_a_change_of_encryption_unprotect(lake: Lake) -> None:
    ledger = _ledger(lake)
    ledger.append(0, 9)
    first = ledger.head().snapshot_id
    ledger.append(10, 19)
    staged = _staged(ledger, 30)
    name = tables("*")
    lake.set_policies([*standard_policies(), policy("bob", name, {BOB: ["update", "select"]})])
    for back in (Rollback(snapshot_id=first), SetCurrent(snapshot_id=first)):
        assert _refused(ledger, back, NotAuthorized, BOB) == "policy-no-match"
    _change(ledger, Pick(snapshot_id=staged), BOB)
    encrypts = ENCRYPTED | {"encryption.columns": "lakewarden:id"}
    _alter(ledger, *(SetProperty(name, value) for name, value in encrypts.items()))
    ledger.append(20, 29)
    lake.set_policies([*standard_policies(), policy("bob", name, {BOB: ["update", "select", "alter"]})])
    for back in (Rollback(snapshot_id=first), SetCurrent(snapshot_id=first)):
        assert _refused(ledger, back, NotAuthorized, BOB) == "policy-no-match"
    everything = ["update", "select", "alter", "unprotect"]
    lake.set_policies([*standard_policies(), policy("bob", name, {BOB: everything})])
    assert _change(ledger, Rollback(snapshot_id=first), BOB).current_id == first


def test_users_without_update_are_refused_before_anything_is_told(lake: Lake) -> None:
    ledger = _ledger(lake)
    ledger.append(0, 9)
    reads = policy("bob", tables("*"), {BOB: ["select", "alter"]})
    lake.set_policies([*standard_policies(), reads])
    changes = (Rollback(snapshot_id=5), SetCurrent(ref="x"), FastForward("main", "x"), Pick(wap_id="x"))
    for change in changes:
        assert _refused(ledger, change, NotAuthorized, BOB) == "policy-no-match"


def test_a_pick_that_the_commit_refuses_leaves_no_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = _ledger(lake)
    ledger.append(0, 9)
    staged = _staged(ledger, 10)
    ledger.append(20, 29)

    def refuse(*_: object, **__: object) -> None:
        raise RequestInvalid("no", rule="refused-here")

    monkeypatch.setattr(lake.services.committer, "commit", refuse)
    assert _refused(ledger, Pick(snapshot_id=staged), RequestInvalid) == "refused-here"
