"""Laundering inside commits: what a snapshot says of files, manifests and itself that is not so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from catalog.base.errors import CommitConflict
from policy.errors import (
    LocationNotAllowed,
    MetadataInvalid,
    MetadataTampered,
    RequestInvalid,
    UnsupportedFormatVersion,
)
from tests.attacks.traps import OpenWatch
from tests.support.attacker import (
    ADDED,
    DELETED,
    EXISTING,
    OWN_ROWS,
    Attacker,
    Siege,
    again,
    data_file,
    entry,
    lay_siege,
    new_id,
    refused,
    relisted,
    updates,
)
from tests.support.lake import Lake, open_lake


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    """The attacker's table with two snapshots, sequence numbers 1 and 2, for commits that are all refused."""
    with open_lake(tmp_path_factory.mktemp("entries")) as lake:
        yield _two_snapshots(lay_siege(lake))


@pytest.fixture
def fresh(siege: Siege) -> Attacker:
    """A table like `mine`, for commits that are accepted."""
    return _two_snapshots(siege)


def _two_snapshots(siege: Siege) -> Attacker:
    siege.attacker.catalog.load_table("bobs.mine").append(OWN_ROWS)
    return siege.attacker


def own_file(attacker: Attacker, name: str = "new.parquet", **changes: Any) -> Any:
    """A new file in the attacker's own directory; no commit opens it."""
    return data_file(f"{attacker.location}/data/{name}", **changes)


@pytest.mark.parametrize(
    "forged",
    [{"sequence_number": 1}, {"file_sequence_number": 1}, {"sequence_number": 1, "file_sequence_number": 1}],
)
def test_existing_entry_with_forged_sequence_number(mine: Attacker, forged: dict[str, int]) -> None:
    newest, oldest = sorted(mine.entries(), key=lambda each: each.sequence_number or 0, reverse=True)
    planted = mine.replacing(again(newest, EXISTING, **forged), again(oldest, EXISTING))
    refused(mine, MetadataTampered, "carried-file", *planted)


def test_existing_entry_with_forged_key_metadata(mine: Attacker) -> None:
    known = mine.entries()[0]
    forged = data_file(known.data_file.file_path, key_metadata=b"\x02forged")
    numbers = {"sequence_number": known.sequence_number, "file_sequence_number": known.file_sequence_number}
    planted = mine.replacing(entry(forged, EXISTING, snapshot_id=known.snapshot_id, **numbers))
    refused(mine, MetadataTampered, "carried-file", *planted)


def test_existing_entry_of_a_file_that_was_never_there(mine: Attacker) -> None:
    planted = entry(own_file(mine), EXISTING, snapshot_id=1, sequence_number=1, file_sequence_number=1)
    refused(mine, MetadataTampered, "carried-file", *mine.replacing(planted))


def test_existing_entry_without_a_parent(mine: Attacker) -> None:
    planted = mine.replacing(again(mine.entries()[0], EXISTING), parent_snapshot_id=None)
    refused(mine, MetadataTampered, "carried-file", *planted)


def test_existing_entry_of_a_file_that_was_removed(fresh: Attacker) -> None:
    gone = fresh.entries()[0]
    fresh.commit(*fresh.replacing(entry(own_file(fresh))))
    refused(fresh, MetadataTampered, "carried-file", *fresh.replacing(again(gone, EXISTING)))


def test_existing_entry_of_a_carried_manifest(mine: Attacker) -> None:
    """A file whose manifest is carried over as well would count twice."""
    planted = mine.appending(again(mine.entries()[0], EXISTING))
    refused(mine, MetadataTampered, "carried-file", *planted)


def test_existing_entry_twice(mine: Attacker) -> None:
    one, two = mine.entries()
    planted = mine.replacing(again(one, EXISTING), again(two, EXISTING), again(one, EXISTING))
    refused(mine, MetadataTampered, "carried-file", *planted)


def test_existing_entry_kept_and_removed(mine: Attacker) -> None:
    one, _ = mine.entries()
    refused(
        mine, MetadataTampered, "carried-file", *mine.replacing(again(one, EXISTING), again(one, DELETED))
    )


def test_deleted_entry_of_a_foreign_file(siege: Siege, watch: OpenWatch) -> None:
    file = siege.secret_file()
    watch.opened()
    planted = entry(file, DELETED, snapshot_id=1, sequence_number=1, file_sequence_number=1)
    refused(siege.attacker, MetadataTampered, "carried-file", *siege.attacker.appending(planted))
    assert watch.opened() == []


def test_rewritten_manifest_is_accepted(fresh: Attacker) -> None:
    """What an honest client does when it merges manifests."""
    before = fresh.scan()
    fresh.commit(*fresh.replacing(*(again(each, EXISTING) for each in fresh.entries())))
    assert fresh.scan() == before
    assert fresh.plan().files["file_sequence_number"].to_pylist() == [2, 1]


@pytest.mark.parametrize(
    "forged",
    [
        {"sequence_number": 1},
        {"sequence_number": 3},
        {"added_snapshot_id": 99},
        {"partition_spec_id": 7},
        {"content": ManifestContent.DELETES},
        {"manifest_length": 1},
    ],
    ids=str,
)
def test_carried_manifest_listed_otherwise(mine: Attacker, forged: dict[str, Any]) -> None:
    newest, *others = sorted(mine.manifests(), key=lambda each: each.sequence_number, reverse=True)
    assert newest.sequence_number == 2
    planted = updates(mine.snapshot([relisted(newest, **forged), *others], new_id()))
    refused(mine, MetadataTampered, "carried-manifest", *planted)


@pytest.mark.parametrize(
    "forged",
    [
        {"sequence_number": 1},
        {"sequence_number": 9},
        {"added_snapshot_id": 99, "sequence_number": 3, "min_sequence_number": 3},
        {"partition_spec_id": 7},
    ],
    ids=str,
)
def test_new_manifest_listed_otherwise(mine: Attacker, forged: dict[str, Any]) -> None:
    snapshot_id = new_id()
    manifest = mine.manifest([entry(own_file(mine))], snapshot_id)
    planted = updates(mine.snapshot([*mine.manifests(), relisted(manifest, **forged)], snapshot_id))
    refused(mine, MetadataTampered, "new-manifest", *planted)


def test_new_manifest_listed_with_another_length(mine: Attacker) -> None:
    snapshot_id = new_id()
    manifest = mine.manifest([entry(own_file(mine))], snapshot_id)
    longer = relisted(manifest, manifest_length=manifest.manifest_length + 1)
    planted = updates(mine.snapshot([longer], snapshot_id))
    refused(mine, MetadataInvalid, "manifest-length", *planted)


def test_new_manifest_of_data_listed_as_deletes(mine: Attacker) -> None:
    snapshot_id = new_id()
    manifest = relisted(mine.manifest([entry(own_file(mine))], snapshot_id), content=ManifestContent.DELETES)
    refused(mine, MetadataInvalid, "content", *updates(mine.snapshot([manifest], snapshot_id)))


def test_manifest_listed_twice(mine: Attacker) -> None:
    manifests = mine.manifests()
    planted = updates(mine.snapshot([*manifests, manifests[0]], new_id()))
    refused(mine, MetadataInvalid, "duplicate", *planted)


@pytest.mark.parametrize(
    "forged",
    [
        {"file_sequence_number": 1},
        {"sequence_number": 1, "file_sequence_number": 1},
        {"file_sequence_number": 9},
        {"sequence_number": 9},
        {"snapshot_id": 99, "sequence_number": 3},
    ],
    ids=str,
)
def test_added_entry_under_another_snapshot_or_number(mine: Attacker, forged: dict[str, int]) -> None:
    planted = mine.appending(entry(own_file(mine), ADDED, **forged))
    refused(mine, MetadataTampered, "new-file", *planted)


def test_added_entry_with_rows_of_an_older_age_is_accepted(fresh: Attacker) -> None:
    """A compaction keeps the data sequence number of the rows that it takes over."""
    fresh.commit(*fresh.replacing(entry(own_file(fresh), ADDED, sequence_number=1)))
    assert fresh.plan().files["sequence_number"].to_pylist() == [1]
    assert fresh.plan().files["file_sequence_number"].to_pylist() == [3]


def _twice_in_one_manifest(mine: Attacker) -> list[TableUpdate]:
    return mine.appending(entry(own_file(mine)), entry(own_file(mine)))


def _in_two_manifests(mine: Attacker) -> list[TableUpdate]:
    snapshot_id = new_id()
    twice = [mine.manifest([entry(own_file(mine))], snapshot_id) for _ in range(2)]
    return updates(mine.snapshot([*mine.manifests(), *twice], snapshot_id))


def _live_already(mine: Attacker) -> list[TableUpdate]:
    return mine.appending(entry(data_file(mine.data_paths()[0])))


def _live_already_in_another_spelling(mine: Attacker) -> list[TableUpdate]:
    return mine.appending(entry(data_file(mine.data_paths()[0].replace("file:///", "file:/"))))


def _added_and_carried_over(mine: Attacker) -> list[TableUpdate]:
    one, two = mine.entries()
    fresh = entry(data_file(one.data_file.file_path))
    return mine.replacing(again(one, EXISTING), again(two, EXISTING), fresh)


def _equality_delete(path: str, field_id: int) -> ManifestEntry:
    return entry(data_file(path, content=DataFileContent.EQUALITY_DELETES, equality_ids=[field_id]))


def _with_two_contents(mine: Attacker) -> list[TableUpdate]:
    path = own_file(mine).file_path
    positions = entry(data_file(path, content=DataFileContent.POSITION_DELETES))
    return mine.appending(positions, _equality_delete(path, 1), deletes=True)


def _comparing_other_columns(mine: Attacker) -> list[TableUpdate]:
    path = own_file(mine).file_path
    return mine.appending(_equality_delete(path, 1), _equality_delete(path, 2), deletes=True)


def _a_data_file_as_a_delete_file(mine: Attacker) -> list[TableUpdate]:
    return mine.appending(_equality_delete(mine.data_paths()[0], 1), deletes=True)


@pytest.mark.parametrize(
    "plant",
    [
        _with_two_contents,
        _comparing_other_columns,
        _a_data_file_as_a_delete_file,
        _twice_in_one_manifest,
        _in_two_manifests,
        _live_already,
        _live_already_in_another_spelling,
        _added_and_carried_over,
    ],
)
def test_file_added_twice(mine: Attacker, plant: Callable[[Attacker], list[TableUpdate]]) -> None:
    refused(mine, RequestInvalid, "duplicate-file", *plant(mine))


def test_two_snapshots_the_first_with_a_foreign_file(siege: Siege, watch: OpenWatch) -> None:
    """The second, which becomes current, is clean."""
    mine = siege.attacker
    foreign = entry(siege.secret_file())
    watch.opened()
    first, second = new_id(), new_id()
    planted = updates(
        mine.snapshot([mine.manifest([foreign], first)], first),
        mine.snapshot(mine.manifests(), second, sequence_number=3, parent_snapshot_id=first),
    )
    refused(mine, LocationNotAllowed, "allowed-paths", *planted)
    assert watch.opened() == []


def test_snapshot_that_no_branch_names(siege: Siege, watch: OpenWatch) -> None:
    """It could be read by its id."""
    planted = siege.attacker.appending(entry(siege.secret_file()))
    watch.opened()
    refused(siege.attacker, LocationNotAllowed, "allowed-paths", planted[0])
    assert watch.opened() == []


def test_snapshot_on_another_branch(siege: Siege, watch: OpenWatch) -> None:
    [add, head] = siege.attacker.appending(entry(siege.secret_file()))
    assert isinstance(head, SetSnapshotRefUpdate)
    watch.opened()
    tag = head.model_copy(update={"ref_name": "side", "type": SnapshotRefType.TAG})
    refused(siege.attacker, LocationNotAllowed, "allowed-paths", add, tag)
    assert watch.opened() == []


def test_snapshot_id_used_again_in_the_commit_that_removes_it(siege: Siege, watch: OpenWatch) -> None:
    """A snapshot is known by what it is, not by its id."""
    mine = siege.attacker
    known = mine.metadata.current_snapshot()
    assert known is not None
    planted = mine.manifest([entry(siege.secret_file())], known.snapshot_id)
    watch.opened()
    forged = mine.snapshot([planted], known.snapshot_id, parent_snapshot_id=None)
    removal = RemoveSnapshotsUpdate(snapshot_ids=[known.snapshot_id])
    refused(mine, LocationNotAllowed, "allowed-paths", removal, *updates(forged))
    assert watch.opened() == []


@pytest.mark.parametrize("number", [-1, 0])
def test_snapshot_with_no_sequence_number(mine: Attacker, number: int) -> None:
    """pyiceberg lets one pass that names no parent."""
    planted = mine.replacing(entry(own_file(mine)), sequence_number=number, parent_snapshot_id=None)
    before = mine.pointer()
    with pytest.raises((MetadataTampered, RequestInvalid)) as refusal:
        mine.commit(*planted)
    assert refusal.value.rule == "sequence-number"
    assert mine.pointer() == before


def test_two_snapshots_with_one_sequence_number(mine: Attacker) -> None:
    first, second = new_id(), new_id()
    planted = updates(
        mine.snapshot([mine.manifest([entry(own_file(mine))], first)], first, parent_snapshot_id=None),
        mine.snapshot(mine.manifests(), second, parent_snapshot_id=None),
    )
    refused(mine, MetadataTampered, "sequence-number", *planted)


def test_the_last_sequence_number_does_not_fall(fresh: Attacker) -> None:
    """REPLACE TABLE sends a snapshot without a parent again as it is, when another commit came first."""
    fresh.commit(*fresh.replacing(entry(own_file(fresh)), sequence_number=1, parent_snapshot_id=None))
    assert fresh.metadata.last_sequence_number == 2
    fresh.commit(*fresh.appending(entry(own_file(fresh, "next.parquet"))))
    assert fresh.metadata.last_sequence_number == 3


def test_the_last_sequence_number_does_not_fall_where_its_snapshot_is_gone(fresh: Attacker) -> None:
    first, last = fresh.metadata.snapshots
    back = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=first.snapshot_id)
    fresh.commit(back, RemoveSnapshotsUpdate(snapshot_ids=[last.snapshot_id]))
    fresh.commit(*fresh.replacing(entry(own_file(fresh)), sequence_number=1, parent_snapshot_id=None))
    assert fresh.metadata.last_sequence_number == 2


def test_snapshot_without_a_manifest_list(mine: Attacker) -> None:
    refused(
        mine,
        UnsupportedFormatVersion,
        "manifest-list",
        *updates(mine.snapshot([], new_id()).model_copy(update={"manifest_list": ""})),
    )


def test_snapshot_on_a_base_that_moved(fresh: Attacker) -> None:
    """Numbers taken from an older base do not land on a newer one."""
    late = fresh.appending(entry(own_file(fresh, "late.parquet")))
    fresh.commit(*fresh.appending(entry(own_file(fresh))))
    with pytest.raises((CommitConflict, RequestInvalid, MetadataTampered)):
        fresh.commit(*late)


@pytest.mark.parametrize("name", ["encryption.pek-id", "Encryption.PEK-ID", "lakewarden.write-id"])
def test_summary_entry_of_the_catalog(mine: Attacker, name: str) -> None:
    planted = mine.appending(entry(own_file(mine)), summary=Summary(Operation.APPEND, **{name: "x"}))
    refused(mine, RequestInvalid, "summary", *planted)


def test_staged_creation_with_a_snapshot_that_is_its_own_parent(siege: Siege) -> None:
    """Its existing entries would vouch for themselves."""
    attacker = siege.attacker
    transaction = attacker.catalog.create_table_transaction("bobs.staged", OWN_ROWS.schema)
    metadata = transaction.table_metadata
    snapshot_id = new_id()
    forged = {"snapshot_id": snapshot_id, "sequence_number": 1, "file_sequence_number": 1}
    planted = entry(data_file(f"{metadata.location}/data/x.parquet"), EXISTING, **forged)
    staged = StagedAttacker(attacker.lake, "bobs.staged", metadata)
    manifest = relisted(staged.manifest([planted], snapshot_id), sequence_number=1)
    snapshot = staged.snapshot([manifest], snapshot_id, parent_snapshot_id=snapshot_id)
    transaction._updates += tuple(updates(snapshot))
    with pytest.raises(CommitConflict, match="parent-snapshot"):
        transaction.commit_transaction()
    assert ("bobs", "staged") not in attacker.catalog.list_tables("bobs")


def test_staged_creation_with_a_foreign_file(siege: Siege, watch: OpenWatch) -> None:
    attacker, foreign = siege.attacker, entry(siege.secret_file())
    transaction = attacker.catalog.create_table_transaction("bobs.staged", OWN_ROWS.schema)
    staged = StagedAttacker(attacker.lake, "bobs.staged", transaction.table_metadata)
    transaction._updates += tuple(staged.replacing(foreign))
    watch.opened()
    with pytest.raises(LocationNotAllowed):
        transaction.commit_transaction()
    assert watch.opened() == []
    assert Catalog.identifier_to_tuple("bobs.staged") not in attacker.catalog.list_tables("bobs")


@pytest.mark.parametrize(
    ("forged", "rule"),
    [
        ({"timestamp_ms": 9 * 10**15}, "snapshot-timestamp"),
        ({"summary": Summary(Operation.APPEND, **{"total-records": "many"})}, "snapshot"),
        ({"schema_id": 7}, "snapshot"),
    ],
    ids=str,
)
def test_staged_creation_with_a_snapshot_that_engines_do_not_open(
    siege: Siege, forged: dict[str, Any], rule: str
) -> None:
    attacker = siege.attacker
    transaction = attacker.catalog.create_table_transaction("bobs.staged", OWN_ROWS.schema)
    staged = StagedAttacker(attacker.lake, "bobs.staged", transaction.table_metadata)
    file = entry(data_file(f"{staged.location}/data/x.parquet"))
    transaction._updates += tuple(staged.replacing(file, parent_snapshot_id=None, **forged))
    with pytest.raises(RequestInvalid) as refusal:
        transaction.commit_transaction()
    assert refusal.value.rule == rule
    assert ("bobs", "staged") not in attacker.catalog.list_tables("bobs")


class StagedAttacker(Attacker):
    """The attacker on a table that does not exist yet."""

    def __init__(self, lake: Lake, table: str, metadata: Any) -> None:
        super().__init__(lake, table)
        self._staged = metadata

    @property
    def metadata(self) -> Any:
        return self._staged


def test_known_snapshot_added_again(mine: Attacker) -> None:
    known = mine.metadata.current_snapshot()
    assert known is not None
    with pytest.raises(RequestInvalid):
        mine.commit(AddSnapshotUpdate(snapshot=known))
