"""Commits that name another parent or move a branch: what UPDATE, ALTER and `unprotect` each allow."""

from __future__ import annotations

import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate, RemoveSnapshotsUpdate, TableUpdate

from catalog.base.errors import CommitConflict
from catalog.maintenance import old_epochs
from policy.errors import EncryptionPolicyViolation, KeyNotUsable, NotAuthorized
from tests.attacks.handmade_commits import ALMA, head, plain, put, rewrapped, short, users, vault
from tests.support.attacker import Attacker, data_file, entry, new_id, refused, updates
from tests.support.lake import ALICE, Lake
from tests.support.rewrites import ask, migrating, rewrite
from tests.support.table_keys import peks, rotate
from tests.support.tables import append_files, name_of

__all__ = ["plain", "users", "vault"]


def test_a_parent_that_is_not_in_the_table(plain: Attacker) -> None:
    planted = plain.appending(entry(data_file(f"{plain.location}/data/new.parquet")), parent_snapshot_id=99)
    refused(plain, CommitConflict, "parent-snapshot", *planted)


def test_a_parentless_snapshot_of_an_encrypted_table_takes_a_new_number(vault: Attacker) -> None:
    """Encryption epochs go by numbers: under an older one, a file would be judged by an older epoch."""
    vault.user = ALICE
    new = entry(data_file(f"{vault.location}/data/new.parquet"))
    planted = vault.replacing(new, sequence_number=1, parent_snapshot_id=None)
    refused(vault, CommitConflict, "sequence-number", *planted)


def _rolled_back(attacker: Attacker) -> list[list[TableUpdate]]:
    """Ways of taking the main branch back to its first snapshot, or to nothing."""
    first = attacker.metadata.snapshots[0]
    side = attacker.snapshot(attacker.manifests(first), new_id(), parent_snapshot_id=first.snapshot_id)
    new = entry(data_file(f"{attacker.location}/data/new.parquet"))
    return [
        [put(first.snapshot_id)],
        updates(side),
        attacker.replacing(new, parent_snapshot_id=None),
        [RemoveSnapshotRefUpdate(ref_name="main")],
        [RemoveSnapshotRefUpdate(ref_name="main"), put(first.snapshot_id)],
    ]


@pytest.mark.parametrize("way", range(5))
def test_taking_a_branch_back_takes_alter(plain: Attacker, way: int) -> None:
    planted = _rolled_back(plain)[way]
    refused(plain, NotAuthorized, "policy-no-match", *planted)
    plain.user = ALMA
    plain.commit(*planted)


def test_moving_a_branch_on_takes_update_alone(plain: Attacker) -> None:
    """A branch that was made at the head, and the head that follows it."""
    before = head(plain).snapshot_id
    plain.commit(put(before, "dev"))
    [add, _] = plain.appending(entry(data_file(f"{plain.location}/data/new.parquet")))
    assert hasattr(add, "snapshot")
    plain.commit(add, put(add.snapshot.snapshot_id, "dev"))
    plain.commit(put(add.snapshot.snapshot_id))
    assert head(plain).snapshot_id == add.snapshot.snapshot_id


def test_expiring_the_parent_of_the_head_is_no_rollback(plain: Attacker) -> None:
    plain.commit(RemoveSnapshotsUpdate(snapshot_ids=[plain.metadata.snapshots[0].snapshot_id]))
    assert plain.plan().files.num_rows == 2


def test_rollback_across_a_rewrap_takes_unprotect(vault: Attacker) -> None:
    before = head(vault).snapshot_id
    rewrapped(vault)
    vault.user = ALMA
    refused(vault, NotAuthorized, "policy-no-match", put(before))
    vault.user = ALICE
    vault.commit(put(before))


def test_rollback_across_an_encryption_change_takes_unprotect(users: Lake) -> None:
    table = migrating(users)
    before = users.services.loader.load_sealed(name_of(table)).metadata.current_snapshot_id
    assert before is not None
    append_files(users, name_of(table))
    mine = Attacker(users, str(name_of(table)), ALMA)
    refused(mine, NotAuthorized, "policy-no-match", put(before))
    mine.commit(RemoveSnapshotRefUpdate(ref_name="main"))
    refused(mine, NotAuthorized, "policy-no-match", put(before))
    mine.user = ALICE
    mine.commit(put(before))


def test_rollback_that_brings_plaintext_files_back_takes_unprotect(users: Lake) -> None:
    """Encryption did not change in between: the files were rewritten."""
    table = migrating(users)
    append_files(users, name_of(table))
    mine = Attacker(users, str(name_of(table)), ALMA)
    before = head(mine).snapshot_id
    for group in ask(users, table).groups:
        rewrite(users, table, group)
    refused(mine, NotAuthorized, "policy-no-match", put(before))


def test_rollback_within_one_protection_takes_alter_alone(vault: Attacker) -> None:
    before = head(vault).snapshot_id
    append_files(vault.lake, short(vault))
    vault.user = ALMA
    vault.commit(put(before))
    assert head(vault).snapshot_id == before


def test_rollback_across_a_rotation_takes_alter_alone(vault: Attacker) -> None:
    """What comes back is what the head has as well: a rotation rewraps nothing."""
    before = head(vault).snapshot_id
    rotate(vault.lake, short(vault))
    append_files(vault.lake, short(vault))
    vault.user = ALMA
    vault.commit(put(before))
    assert head(vault).snapshot_id == before


def test_rollback_to_files_under_a_key_that_awaits_destruction(vault: Attacker) -> None:
    """The permission to roll back does not suffice to make the table unreadable for all users."""
    before = head(vault).snapshot_id
    rewrapped(vault)
    [old] = [each for each in peks(vault.lake, short(vault)) if each.version == 1]
    vault.lake.services.key_life.disable(vault.lake.caller(ALICE), short(vault), old.id, 1)
    vault.user = ALICE
    refused(vault, KeyNotUsable, "pek-state", put(before))


@pytest.mark.nightly
def test_rollback_to_files_of_a_forbidden_epoch(users: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbidding asks for no such snapshot to be retained; a rollback asks again."""
    table = migrating(users)
    mine = Attacker(users, str(name_of(table)), ALICE)
    before = head(mine).snapshot_id
    for group in ask(users, table).groups:
        rewrite(users, table, group)
    monkeypatch.setattr(old_epochs, "_require_gone", lambda *_: None)
    users.services.old_epochs.forbid(users.caller(ALICE), name_of(table))
    refused(mine, EncryptionPolicyViolation, "encryption-required", put(before))
