"""Tables in the hands of users who write commits by hand, and what they commit."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetSnapshotRefUpdate, TableUpdate

from tests.support.attacker import Attacker, relisted
from tests.support.lake import Lake, policy, standard_policies, tables
from tests.support.table_keys import encrypted, rewrap, rotate
from tests.support.tables import make, name_of, named, rows

#: Walt updates the tables of `db`; Alma alters them, too; Alice also drops their protection.
WALT, ALMA = "walt", "alma"


@pytest.fixture
def users(lake: Lake) -> Lake:
    """The lake, where Walt and Alma have their permissions."""
    lake.catalog().create_namespace("db")
    grants = {WALT: ["select", "update"], ALMA: ["select", "update", "alter"]}
    lake.set_policies([*standard_policies(), policy("writers", tables("db"), grants)])
    return lake


@pytest.fixture
def vault(users: Lake) -> Attacker:
    """An encrypted table with two files, in Walt's hands."""
    return Attacker(users, str(encrypted(users, 2)), WALT)


@pytest.fixture
def plain(users: Lake) -> Attacker:
    """A plaintext table with two files in two snapshots, in Walt's hands."""
    table = make(users)
    for first in (1, 3):
        table.append(rows(first))
    return Attacker(users, str(name_of(table)), WALT)


def head(attacker: Attacker) -> Snapshot:
    snapshot = attacker.metadata.current_snapshot()
    assert snapshot is not None
    return snapshot


def put(snapshot_id: int, branch: str = "main") -> TableUpdate:
    """The update that puts a branch on a snapshot."""
    return SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)


def short(attacker: Attacker) -> Any:
    return named(attacker.table.rpartition(".")[2])


def rewrapped(vault: Attacker) -> list[ManifestFile]:
    """Rewrap the keys of a table; its manifests of before."""
    before = vault.manifests()
    rotate(vault.lake, short(vault))
    rewrap(vault.lake, short(vault))
    return before


def listed(manifest: ManifestFile, **changes: Any) -> ManifestFile:
    """A manifest as a list may describe it otherwise, partition summaries kept."""
    return relisted(manifest, **{"partitions": manifest.partitions} | changes)
