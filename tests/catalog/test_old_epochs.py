"""The end of old epochs: what is left of them, and that nothing of them is read once they are forbidden."""

from __future__ import annotations

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate

from catalog.base import crash_points
from catalog.maintenance.old_epochs import EpochReport
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from catalog.snapshot_checks.inspection import Inspector
from catalog.writes import data_files
from policy.encryption_rules import EncryptionRules
from policy.errors import EncryptionPolicyViolation, MetadataTampered, NotAuthorized, RequestInvalid
from tests.support.attacker import Attacker, seal_unchecked, updates
from tests.support.lake import ALICE, BOB, CAROL, Lake
from tests.support.rewrites import ask, make_keys, rewrite
from tests.support.table_keys import load, rewrap, rotate
from tests.support.tables import ENCRYPTED, append_files, make, name_of, records


def report(lake: Lake, table: Table, user: str = ALICE) -> EpochReport:
    return lake.services.old_epochs.report(lake.caller(user), name_of(table))


def forbid(lake: Lake, table: Table, user: str = ALICE) -> EpochReport:
    return lake.services.old_epochs.forbid(lake.caller(user), name_of(table))


def loaded(lake: Lake, table: Table) -> LoadedTable:
    return load(lake, name_of(table))


def read(lake: Lake, table: Table) -> int:
    """How many files a plan has."""
    plan = lake.services.planner.plan(lake.caller(ALICE, "spark"), name_of(table), ScanRequest())
    return plan.files.num_rows


def rewrite_all(lake: Lake, table: Table) -> None:
    """One file for each group."""
    for group in ask(lake, table).groups:
        rewrite(lake, table, group)


def expire(lake: Lake, table: Table) -> None:
    """Keep the heads of branches and tags alone."""
    metadata = loaded(lake, table).metadata
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    gone = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in kept]
    lake.catalog().commit_table(
        lake.catalog().load_table(table.name()), (), (RemoveSnapshotsUpdate(snapshot_ids=gone),)
    )


def encrypted_since(lake: Lake) -> Table:
    """A table with a file in plaintext and one that is encrypted."""
    table = make(lake)
    append_files(lake, name_of(table))
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(ENCRYPTED)
    append_files(lake, name_of(table))
    return table


@pytest.mark.nightly
def test_a_file_whose_footer_has_no_digest_is_left_whatever_the_epochs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(lake, "left")
    table = make(lake, properties={"encryption.columns": "left:name"})
    assert report(lake, table).forbidden
    with monkeypatch.context() as before:
        before.setattr(data_files, "_footer_digest", lambda file, table: None)
        append_files(lake, name_of(table))
    assert not report(lake, table).forbidden
    with pytest.raises(RequestInvalid) as refused:
        forbid(lake, table)
    assert refused.value.rule == "old-epoch-in-use"
    rewrite_all(lake, table)
    expire(lake, table)
    assert forbid(lake, table).forbidden


@pytest.mark.nightly
def test_what_is_left_is_counted_by_branch_and_epoch(lake: Lake) -> None:
    table = encrypted_since(lake)
    found = report(lake, table)
    assert [(each.branch, each.files, each.old_files, each.old_bytes) for each in found.branches] == [
        ("main", 1, 1, 1000),
        ("main", 1, 0, 0),
    ]
    assert [each.files for each in found.snapshots] == [1, 1]
    assert not found.forbidden
    rewrite_all(lake, table)
    after = report(lake, table)
    assert [(each.files, each.old_files) for each in after.branches] == [(2, 0)]
    assert [each.use.snapshot_id for each in after.snapshots] == [
        each.use.snapshot_id for each in found.snapshots
    ]


@pytest.mark.nightly
def test_old_epochs_are_forbidden_when_nothing_is_left(lake: Lake) -> None:
    table = encrypted_since(lake)
    rewrite_all(lake, table)
    expire(lake, table)
    before = loaded(lake, table).governed
    done = forbid(lake, table)
    assert done.forbidden and done.snapshots == ()
    after = loaded(lake, table).governed
    assert after.version > before.version == done.governed_version - 1
    (epoch,) = after.epochs.entries
    assert (epoch.from_sequence_number, epoch.spec, epoch.peks) == (
        0,
        before.epochs.current.spec,
        before.epochs.current.peks,
    )
    assert read(lake, table) == 2
    append_files(lake, name_of(table))
    assert read(lake, table) == 3


@pytest.mark.nightly
def test_reports_on_encryption_rules_know_that_nothing_is_in_plaintext_any_more(lake: Lake) -> None:
    table = encrypted_since(lake)
    rules = EncryptionRules.parse({})

    def in_plaintext() -> bool:
        (standing,) = lake.services.encryption_report.report(rules, [name_of(table)])
        return standing.earlier_files_in_plaintext

    rewrite_all(lake, table)
    expire(lake, table)
    assert in_plaintext()
    forbid(lake, table)
    assert not in_plaintext()


@pytest.mark.nightly
def test_forbidding_twice_is_once(lake: Lake) -> None:
    table = encrypted_since(lake)
    rewrite_all(lake, table)
    expire(lake, table)
    first = forbid(lake, table)
    assert forbid(lake, table) == first
    fresh = make(lake, properties=ENCRYPTED)
    assert forbid(lake, fresh).forbidden
    assert loaded(lake, fresh).governed.version == 1


def test_what_is_left_is_named_and_nothing_is_changed(lake: Lake) -> None:
    table = encrypted_since(lake)
    old = loaded(lake, table).metadata.snapshots[0].snapshot_id
    stock = lake.catalog().load_table(table.name())
    stock.manage_snapshots().create_tag(old, "audit").create_branch(old, "dev").commit()
    for prepare in (lambda: None, lambda: rewrite_all(lake, table), lambda: expire(lake, table)):
        prepare()
        location = loaded(lake, table).metadata_location
        with pytest.raises(RequestInvalid) as refused:
            forbid(lake, table)
        assert refused.value.rule == "old-epoch-in-use"
        assert f"{old} (" in refused.value.message and "tag audit" in refused.value.message
        assert loaded(lake, table).metadata_location == location
        assert len(loaded(lake, table).governed.epochs.entries) == 2


def test_a_file_of_an_old_epoch_is_refused_once_it_is_forbidden(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that lists a manifest of before, sealed then, brings nothing back.

    The commit is refused; and so is the plan, where the commit was not.
    """
    table = encrypted_since(lake)
    name = ".".join(table.name())
    owner = Attacker(lake, name, ALICE)
    first = loaded(lake, table).metadata.snapshots[0]
    (manifest,) = first.manifests(lake.catalog().load_table(name).io)
    rewrite_all(lake, table)
    expire(lake, table)
    planted = owner.snapshot([*owner.manifests(), manifest], 424242)
    assert read(lake, table) == 2
    forbid(lake, table)
    with pytest.raises(MetadataTampered, match="new-manifest"):
        owner.commit(*updates(planted))
    monkeypatch.setattr(Inspector, "_snapshot", seal_unchecked)
    owner.commit(*updates(planted))
    with pytest.raises(EncryptionPolicyViolation) as refused:
        read(lake, table)
    assert refused.value.rule == "encryption-required"


@pytest.mark.nightly
def test_files_under_every_key_version_stay_readable(lake: Lake) -> None:
    table = encrypted_since(lake)
    for _ in range(2):
        rotate(lake, name_of(table))
        append_files(lake, name_of(table))
    rewrite_all(lake, table)
    rewrap(lake, name_of(table))
    rotate(lake, name_of(table))
    expire(lake, table)
    forbid(lake, table)
    entries = loaded(lake, table).governed.epochs.entries
    assert [each.from_sequence_number == 0 for each in entries] == [True, False, False, False]
    assert [each.peks[0].version for each in entries] == [1, 2, 3, 4]
    assert read(lake, table) == 4
    append_files(lake, name_of(table))
    rewrap(lake, name_of(table))
    assert read(lake, table) == 5


@pytest.mark.nightly
def test_a_commit_in_between_is_looked_at_too(lake: Lake) -> None:
    """What lands while the snapshots are counted is counted again."""
    table = encrypted_since(lake)
    rewrite_all(lake, table)
    old = loaded(lake, table).metadata.snapshots[0].snapshot_id
    stock = lake.catalog().load_table(table.name())
    came: list[str] = []

    def hook(point: str) -> None:
        if point == "prepared" and not came:
            came.append(point)
            append_files(lake, name_of(table))

    assert old in {each.snapshot_id for each in stock.metadata.snapshots}
    expire(lake, table)
    with crash_points.hooked(hook):
        assert forbid(lake, table).forbidden
    assert came and read(lake, table) == 3


def test_a_table_in_plaintext_has_nothing_to_forbid(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    with pytest.raises(RequestInvalid) as refused:
        forbid(lake, table)
    assert refused.value.rule == "plaintext"
    assert not report(lake, table).forbidden


@pytest.mark.nightly
def test_forbidding_takes_alter_and_is_on_record(lake: Lake) -> None:
    table = encrypted_since(lake)
    rewrite_all(lake, table)
    expire(lake, table)
    for user in (BOB, CAROL):
        for operation in (report, forbid):
            with pytest.raises(NotAuthorized):
                operation(lake, table, user)
    caller = lake.caller(ALICE)
    lake.services.old_epochs.forbid(caller, name_of(table))
    assert [each.action for each in records(lake, caller)] == [
        "table.forbid-old-epochs",
        "table.old-epochs-forbidden",
    ]
