"""What the `update` permission alone does not allow: a branch that moves back, rows that come back.

Walt has `select` and `update` on a table that is encrypted, and sends commits of his own making over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from catalog.base.identifiers import TableName
from catalog.writes.new_files import FileCommit
from tests.support.attacker import DELETED, EXISTING, Attacker, again, entry, new_id, updates, write_list
from tests.support.lake import policy, standard_policies, tables
from tests.support.service import Service, open_service
from tests.support.table_keys import load
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of

WALT = "walt"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    grants = policy("walt-updates", tables("db"), {WALT: ["select", "update"]})
    directory = tmp_path_factory.mktemp("lake")
    with open_service(directory, policies=[*standard_policies(), grants]) as running:
        running.lake.catalog().create_namespace("db")
        yield running


class Attack:
    """Walt, and a table of three files that were appended one by one."""

    def __init__(self, service: Service) -> None:
        self.service = service
        # Standard clients can load it, so that nothing but the commit's own rules is in the way.
        properties = ENCRYPTED | {"encryption.standard-clients": "load"}
        self.name: TableName = name_of(make(service.lake, properties=properties))
        for _ in range(3):
            append_files(service.lake, self.name)
        self.files = Attacker(service.lake, str(self.name), WALT)

    @property
    def snapshots(self) -> list[Snapshot]:
        return self.files.metadata.snapshots

    @property
    def rows(self) -> list[str]:
        """The files that a plan lists."""
        return sorted(self.files.plan(engine="spark").files["file_path"].to_pylist())

    def send(self, *sent: TableUpdate) -> int:
        """Commit over HTTP; the status."""
        body = {
            "requirements": [],
            "updates": [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in sent],
        }
        path = f"{self.service.prefix}/namespaces/{self.name.database}/tables/{self.name.name}"
        with self.service.client(WALT) as client:
            return client.post(path, json=body).status_code

    def empty(self, parent: int | None) -> Snapshot:
        """A snapshot without files."""
        made = self.files.snapshot([], new_id(), parent_snapshot_id=parent)
        write_list(made.manifest_list, [], made.snapshot_id, parent, made.sequence_number or 0)
        return made

    def below_the_first(self) -> Snapshot:
        """A child of the first snapshot, with the files of that."""
        first = self.snapshots[0]
        return self.files.snapshot(
            self.files.manifests(first), new_id(), parent_snapshot_id=first.snapshot_id
        )

    def remove_a_file(self) -> Any:
        """Remove a file through a write; its entry as it was."""
        gone = self.files.entries()[0]
        engine = Engine.begin(self.service.lake, self.name)
        head = load(self.service.lake, self.name).metadata.current_snapshot_id
        engine.commit(FileCommit("overwrite", (engine.file(),), (gone.data_file.file_path,), head))
        return gone


@pytest.fixture
def attack(served: Service) -> Attack:
    return Attack(served)


def to(snapshot: Snapshot, branch: str = "main") -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id
    )


def expiring(*snapshots: Snapshot) -> RemoveSnapshotsUpdate:
    return RemoveSnapshotsUpdate(snapshot_ids=[each.snapshot_id for each in snapshots])


def test_how_long_a_branch_is_kept_takes_alter(attack: Attack) -> None:
    """The next expiry of snapshots would remove the branch, or all that is below its head."""
    head = attack.snapshots[-1]
    assert attack.send(to(head, "side")) == 200
    for branch in ("side", "main"):
        for setting in ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms"):
            assert attack.send(to(head, branch).model_copy(update={setting: 1})) == 403
    mine = to(head, "mine").model_copy(update={"max_ref_age_ms": 1})
    assert attack.send(mine) == 200
    assert attack.send(to(head, "mine")) == 200


def test_update_is_enough_to_remove_a_file_and_to_publish_it_from_a_branch(attack: Attack) -> None:
    """What is refused below is not refused because Walt could not commit at all."""
    head, removing = attack.snapshots[-1], new_id()
    gone, *kept = attack.files.entries()
    entries = [again(gone, DELETED, snapshot_id=removing), *(again(each, EXISTING) for each in kept)]
    made = attack.files.snapshot([attack.files.manifest(entries, removing)], removing)
    assert attack.send(to(head, "side"), *updates(made, branch="side")) == 200
    assert len(attack.rows) == 3
    assert attack.send(to(made)) == 200
    assert attack.rows == sorted(each.data_file.file_path for each in kept)


REMOVED = RemoveSnapshotRefUpdate(ref_name="main")

MOVES: dict[str, Callable[[Attack], list[TableUpdate]]] = {
    "back": lambda it: [to(it.snapshots[0])],
    "removed": lambda it: [REMOVED],
    "removed-and-set-back": lambda it: [REMOVED, to(it.snapshots[0])],
    "head-expires": lambda it: [expiring(it.snapshots[2])],
    "back-and-head-expires": lambda it: [to(it.snapshots[0]), expiring(it.snapshots[2])],
    "head-expires-and-back": lambda it: [expiring(it.snapshots[2]), to(it.snapshots[0])],
    "everything-expires": lambda it: [expiring(*it.snapshots)],
    "child-of-an-older-one": lambda it: updates(it.below_the_first()),
    "without-parent": lambda it: updates(it.empty(None)),
    "there-and-back": lambda it: [*updates(it.empty(None)), to(it.snapshots[0])],
    "by-a-branch-made-and-moved": lambda it: [
        to(it.snapshots[0], "side"),
        *updates(made := it.below_the_first(), branch="side"),
        to(made),
    ],
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("move", MOVES)
def test_main_moves_to_a_descendant_alone(attack: Attack, move: str) -> None:
    before, head = attack.rows, attack.files.metadata.current_snapshot_id
    assert attack.send(*MOVES[move](attack)) == 403
    assert (attack.rows, attack.files.metadata.current_snapshot_id) == (before, head)


def test_main_is_no_tag(attack: Attack) -> None:
    head = attack.snapshots[-1].snapshot_id
    tag = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.TAG, snapshot_id=head)
    assert attack.send(tag) in (400, 403)
    assert attack.files.metadata.refs["main"].snapshot_ref_type is SnapshotRefType.BRANCH


@pytest.mark.parametrize("staged", ["without-parent", "below-the-first"])
def test_staged_snapshot_is_no_way_round(attack: Attack, staged: str) -> None:
    before = attack.rows
    made = attack.empty(None) if staged == "without-parent" else attack.below_the_first()
    attack.send(*(AddSnapshotUpdate(snapshot=made), to(made, "side")))
    assert attack.send(to(made)) in (400, 403)
    assert attack.rows == before


@pytest.mark.nightly
@pytest.mark.parametrize("picked", [None, 0, 1], ids=["as-new", "from-its-snapshot", "from-another"])
def test_removed_file_does_not_come_back(attack: Attack, picked: int | None) -> None:
    gone = attack.remove_a_file()
    before = attack.rows
    sources = {} if picked is None else {"source-snapshot-id": str(attack.snapshots[picked].snapshot_id)}
    sent = attack.files.appending(entry(gone.data_file), summary=Summary(Operation.APPEND, **sources))
    assert attack.send(*sent) in (400, 403, 409)
    assert attack.rows == before


def test_second_snapshot_of_a_commit_does_not_undo_the_first(attack: Attack) -> None:
    before, manifests = attack.rows, attack.files.manifests()
    removing = new_id()
    gone = [again(each, DELETED, snapshot_id=removing) for each in attack.files.entries()]
    first = attack.files.snapshot([attack.files.manifest(gone, removing)], removing)
    number = attack.files.metadata.last_sequence_number + 2
    second = attack.files.snapshot(
        manifests, new_id(), parent_snapshot_id=removing, sequence_number=number
    ).model_copy(update={"timestamp_ms": first.timestamp_ms + 1})
    assert attack.send(*updates(first, second)) in (400, 403)
    assert attack.rows == before


def test_snapshot_id_is_not_used_again_for_another_list(attack: Attack) -> None:
    before, older = attack.rows, attack.snapshots[1]
    other = attack.files.snapshot(
        attack.files.manifests(attack.snapshots[0]),
        older.snapshot_id,
        parent_snapshot_id=attack.snapshots[-1].snapshot_id,
    )
    assert attack.send(expiring(older), *updates(other)) in (400, 403)
    assert attack.rows == before
