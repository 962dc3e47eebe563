"""Random commits, honest and forged, against a naive model of what a commit can be.

The model (tests/support/snapshot_model.py) is written from the rules alone. Whatever it accepts is accepted,
whatever it refuses is refused for a reason that it knows, and afterwards a plan lists the files that it has.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, event, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import DataObject
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from catalog.writes.new_files import FileCommit
from policy.errors import KeyNotUsable, LakewardenError, NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, Lake, policy, standard_policies, tables
from tests.support.snapshot_drafts import FORGERIES, DraftManifest, Workshop
from tests.support.snapshot_files import Writer, local, read_list
from tests.support.snapshot_model import (
    ADDED,
    CONFLICT,
    FORBIDDEN,
    REFUSED,
    History,
    Proposal,
    Row,
    Snap,
    planned,
)
from tests.support.table_keys import peks, rewrap, rotate
from tests.support.tables import ENCRYPTED, Engine, make, name_of

pytestmark = pytest.mark.nightly

SCHEMA: Final = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
BY_PART: Final = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))

#: Who may do what: Walt updates tables, Alma alters them too, Alice may also drop their protection.
WALT, ALMA = "walt", "alma"
RIGHTS: Final = {
    WALT: frozenset({"update"}),
    ALMA: frozenset({"update", "alter"}),
    ALICE: frozenset({"update", "alter", "unprotect"}),
}
# `make fuzz` runs more of them.
PROFILE: Final = settings(
    max_examples=max(6, settings.default.max_examples // 100),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
)


class Differences(RuleBasedStateMachine):
    """Commits to a partitioned plaintext table with delete files and two partition specs."""

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self.lake = lake
        self.history = History()
        self.name, specs = self.create()
        table = self.loaded()
        writer = Writer(table.metadata.schema(), table.metadata.specs())
        location = table.metadata.location
        self.shop = Workshop(self.history, writer, location, specs, deletes=bool(specs[0]))

    def create(self) -> tuple[TableName, dict[int, tuple[str, ...]]]:
        """Make the table; its name, and the columns of each partition spec."""
        table = make(self.lake, schema=SCHEMA, partition_spec=BY_PART)
        with table.update_spec() as change:
            change.add_field("id", IdentityTransform(), "id_part")
        return name_of(table), {0: ("part",), 1: ("part", "id")}

    @rule(data=st.data(), user=st.sampled_from([WALT, WALT, ALMA, ALICE]))
    def commit_once(self, data: DataObject, user: str) -> None:
        self.commit(data, user)

    @rule(data=st.data(), user=st.sampled_from([WALT, ALMA]))
    def commit(self, data: DataObject, user: str) -> None:
        branch = data.draw(st.sampled_from(self.branches()))
        draft = self.shop.honest(data, self.history.head(branch))
        forgery = data.draw(st.sampled_from([None, None, *FORGERIES]))
        if forgery is not None and not forgery(self.shop, draft, data):
            forgery = None
        note(f"{forgery and forgery.__name__}: {draft}")
        to = data.draw(st.sampled_from([branch, branch, branch, "new", None]))
        snapshot = self.shop.write(draft)
        accepted = self.propose(Proposal((snapshot,), self.at(to, snapshot.id)), user)
        event(f"{forgery.__name__ if forgery else 'honest'}: {'accepted' if accepted else 'refused'}")

    @rule(data=st.data(), user=st.sampled_from([WALT, ALMA]))
    def commit_two_snapshots(self, data: DataObject, user: str) -> None:
        branch = data.draw(st.sampled_from(self.branches()))
        first = self.shop.write(self.shop.honest(data, self.history.head(branch)))
        last = self.history.last_number
        self.history.last_number, self.history.snapshots[first.id] = first.number, first
        draft = self.shop.honest(data, first)
        forgery = data.draw(st.sampled_from([None, None, *FORGERIES]))
        if forgery is not None:
            forgery(self.shop, draft, data)
        second = self.shop.write(draft)
        self.history.last_number = last
        del self.history.snapshots[first.id]
        note(f"{forgery and forgery.__name__}: {draft}")
        self.propose(Proposal((first, second), self.at(branch, second.id)), user)

    @rule(data=st.data(), user=st.sampled_from([WALT, ALMA, ALICE]))
    @precondition(lambda self: len(self.history.snapshots) > 1)
    def cherry_pick(self, data: DataObject, user: str) -> None:
        picked = self.history.snapshots[data.draw(st.sampled_from(list(self.history.snapshots)))]
        head = self.history.head()
        draft = self.shop.empty(head)
        draft.source = picked.id
        draft.carried = [] if head is None else list(head.listed)
        for listed in picked.listed:
            files = [row.file for row, _ in self.history.rows_of(listed) if row.status == ADDED]
            if listed.snapshot_id == picked.id and files:
                draft.new.append(
                    DraftManifest(listed.spec, listed.content, [Row(ADDED, each) for each in files])
                )
        snapshot = self.shop.write(draft)
        accepted = self.propose(Proposal((snapshot,), self.at("main", snapshot.id)), user)
        event(f"cherry-pick: {'accepted' if accepted else 'refused'}")

    @rule(data=st.data(), user=st.sampled_from([WALT, ALMA, ALICE]))
    @precondition(lambda self: self.history.snapshots)
    def move_remove_or_expire(self, data: DataObject, user: str) -> None:
        act = data.draw(st.sampled_from([self.move, self.remove, self.expire]))
        accepted = self.propose(act(data), user)
        event(f"{act.__name__}: {'accepted' if accepted else 'refused'}")

    def move(self, data: DataObject) -> Proposal:
        target = data.draw(st.sampled_from(list(self.history.snapshots)))
        name = data.draw(st.sampled_from(["main", "main", "new", "tag", *self.history.refs]))
        return Proposal(refs={name: ("tag" if name == "tag" else "branch", target)})

    def remove(self, data: DataObject) -> Proposal:
        return Proposal(refs={data.draw(st.sampled_from(["none", *self.history.refs])): None})

    def expire(self, data: DataObject) -> Proposal:
        kept = {snapshot_id for _, snapshot_id in self.history.refs.values()}
        old = [each for each in self.history.snapshots if each not in kept]
        gone = data.draw(st.lists(st.sampled_from(old), unique=True, max_size=2)) if old else []
        return Proposal(expired=tuple(gone))

    def branches(self) -> list[str]:
        """Where a commit can go."""
        return ["main", *(name for name, (kind, _) in self.history.refs.items() if kind == "branch")]

    def at(self, branch: str | None, snapshot_id: int) -> dict[str, tuple[str, int] | None]:
        return {} if branch is None else {branch: ("branch", snapshot_id)}

    def propose(self, proposal: Proposal, user: str) -> bool:
        """Commit, and compare what comes of it with the model; whether it was accepted."""
        expected = self.history.check(proposal, RIGHTS[user])
        note(f"{user} may expect {expected or 'success'}")
        before = self.loaded().metadata_location
        try:
            self.send(proposal, user)
        except LakewardenError as error:
            note(repr(error))
            assert _kind(error) in expected, error
            assert self.loaded().metadata_location == before
            return False
        assert not expected
        self.history.accept(proposal)
        self.compare(proposal.refs)
        return True

    def send(self, proposal: Proposal, user: str) -> None:
        """Commit as a standard client does."""
        metadata = self.loaded().metadata
        moment = max(metadata.last_updated_ms + 1, int(time.time() * 1000))
        updates: list[TableUpdate] = [
            AddSnapshotUpdate(snapshot=_snapshot(each, moment + place))
            for place, each in enumerate(proposal.snapshots)
        ]
        for name, ref in proposal.refs.items():
            if ref is None:
                updates.append(RemoveSnapshotRefUpdate(ref_name=name))
            else:
                kind = SnapshotRefType(ref[0])
                updates.append(SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=ref[1]))
        if proposal.expired:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=list(proposal.expired)))
        self.lake.services.committer.commit(self.lake.caller(user), self.name, [], updates)

    def compare(self, moved: Iterable[str]) -> None:
        """Refs are where the model has them; plans of those that moved list its files, by partition too."""
        refs = self.loaded().metadata.refs
        assert {name: (str(ref.snapshot_ref_type.value), ref.snapshot_id) for name, ref in refs.items()} == (
            self.history.refs
        )
        for ref in self.history.refs.keys() & set(moved):
            head = self.history.head(ref)
            if self.history.is_unreadable(head):
                with pytest.raises(KeyNotUsable):
                    self.plan(ref=ref)
                continue
            live = self.history.live(head)
            shown, expected = self.plan(ref=ref), planned(live)
            assert shown == expected, (shown - expected, expected - shown)
            if self.shop.specs[0]:
                wanted = planned(each for each in live if each.file.partition[0] == "a")
                assert wanted <= self.plan(ref=ref, filter=EqualTo("part", "a"))

    def plan(self, **request: Any) -> Counter[str]:
        """The data files of a plan, by path."""
        caller = self.lake.caller(ALICE, "spark")
        plan = self.lake.services.planner.plan(caller, self.name, ScanRequest(**request))
        rows = plan.files.select(["content", "file_path"]).to_pylist()
        return Counter(row["file_path"] for row in rows if row["content"] == 0)

    def loaded(self) -> LoadedTable:
        return self.lake.services.loader.load_sealed(self.name)


class EncryptedDifferences(Differences):
    """Commits to a table that is encrypted, from its beginning or later, through sessions and past them."""

    def create(self) -> tuple[TableName, dict[int, tuple[str, ...]]]:
        return name_of(make(self.lake, schema=SCHEMA)), {0: ()}

    @rule()
    @precondition(lambda self: self.history.encrypted_from is None)
    def encrypt(self) -> None:
        update = SetPropertiesUpdate(updates=ENCRYPTED)
        self.lake.services.committer.commit(self.lake.caller(ALICE), self.name, [], [update])
        self.history.encrypted_from = self.history.last_number + 1

    @rule(data=st.data())
    @precondition(lambda self: self.history.encrypted_from is not None)
    def write(self, data: DataObject) -> None:
        branch = data.draw(st.sampled_from(self.branches()))
        if branch != "main" and branch not in self.history.refs:
            return
        head = self.history.head(branch)
        engine = Engine.begin(self.lake, self.name)
        files = [self.new_file(engine) for _ in range(data.draw(st.integers(1, 2)))]
        live = list(dict.fromkeys(each.file.path for each in self.history.live(head)))
        gone = data.draw(st.lists(st.sampled_from(live), unique=True, max_size=2)) if live else []
        commit = FileCommit("append", tuple(files), branch=branch)
        if gone and head is not None:
            commit = replace(
                commit, operation="overwrite", deleted_paths=tuple(gone), base_snapshot_id=head.id
            )
        engine.commit(commit)
        self.learn(branch)
        self.compare([branch])

    @rule()
    @precondition(lambda self: self.history.encrypted_from is not None)
    def rotate(self) -> None:
        rotate(self.lake, self.name)
        self.history.outdated = self.history.last_number
        self.history.old_keys |= {
            row.file.key
            for manifest in self.history.manifests.values()
            for row in manifest.entries
            if row.file.key is not None
        }

    @rule()
    @precondition(lambda self: self.history.outdated and self.history.refs)
    def rewrap(self) -> None:
        for branch in sorted(name for name, files in rewrap(self.lake, self.name).items() if files):
            self.learn(branch, rewrapped=True)
        self.compare(self.history.refs)

    @rule()
    @precondition(lambda self: self.history.outdated)
    def disable_earlier_versions(self) -> None:
        """As destroying them begins, too."""
        heads = [self.history.head(ref) for ref in self.history.refs]
        if any(live.file.key in self.history.old_keys for head in heads for live in self.history.live(head)):
            return
        *earlier, _ = sorted(peks(self.lake, self.name), key=lambda pek: pek.version)
        for pek in earlier:
            self.lake.services.key_life.disable(self.lake.caller(ALICE), self.name, pek.id, pek.version)
        self.history.unusable = set(self.history.old_keys)

    @rule()
    @precondition(lambda self: self.history.encrypted_from)
    def forbid_plaintext(self) -> None:
        """Nothing of before the table was encrypted can be read any more, if none of it is left."""
        snapshots = self.history.snapshots.values()
        left = any(live.file.key is None for each in snapshots for live in self.history.live(each))
        try:
            self.lake.services.old_epochs.forbid(self.lake.caller(ALICE), self.name)
        except RequestInvalid:
            assert left
            return
        assert not left
        self.history.encrypted_from = 0

    def new_file(self, engine: Engine) -> Any:
        """A file of a session, whose bytes lie in storage."""
        file = engine.file(record_count=3, file_size_in_bytes=7)
        local(file.path).parent.mkdir(parents=True, exist_ok=True)
        local(file.path).write_bytes(bytes(7))
        return file

    def learn(self, branch: str, *, rewrapped: bool = False) -> None:
        """Take over what the catalog itself committed, which keeps the rules that hold of others."""
        metadata = self.loaded().metadata
        head = metadata.snapshot_by_name(branch)
        assert head is not None and head.manifest_list
        listed = read_list(head.manifest_list)
        for each in listed:
            if each.path not in self.history.manifests:
                self.history.manifests[each.path] = self.shop.writer.read(each.path, each.spec, each.content)
        number = head.sequence_number or 0
        snapshot = Snap(head.snapshot_id, head.parent_snapshot_id, number, listed, head.manifest_list)
        proposal = Proposal((snapshot,), self.at(branch, snapshot.id), by_session=True)
        if not rewrapped:
            assert not self.history.check(proposal, RIGHTS[WALT])
        self.history.accept(proposal)


def _snapshot(each: Snap, moment: int) -> Snapshot:
    told = {} if each.source is None else {"source-snapshot-id": str(each.source)}
    return Snapshot(
        snapshot_id=each.id,
        parent_snapshot_id=each.parent,
        sequence_number=each.number,
        timestamp_ms=moment,
        manifest_list=each.list_path,
        summary=Summary(Operation.OVERWRITE, **told),
        schema_id=0,
    )


def _kind(error: LakewardenError) -> str:
    if isinstance(error, CommitConflict):
        return CONFLICT
    return FORBIDDEN if isinstance(error, NotAuthorized) else REFUSED


@pytest.fixture(scope="module")
def users(lake: Lake) -> Lake:
    """The lake, where Walt and Alma have their permissions."""
    grants = {WALT: ["select", "update"], ALMA: ["select", "update", "alter"]}
    lake.set_policies([*standard_policies(), policy("writers", tables("db"), grants)])
    return lake


@pytest.mark.parametrize("machine", [Differences, EncryptedDifferences])
def test_random_commits_are_judged_as_the_model_judges_them(users: Lake, machine: type[Differences]) -> None:
    run_state_machine_as_test(lambda: machine(users), settings=PROFILE)
