"""Tables in the hands of users who write commits by hand, and what they commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetSnapshotRefUpdate, TableUpdate

from tests.support.attacker import Attacker, relisted
from tests.support.lake import ALLOWS_UNSEALED, Lake, open_lake, policy, standard_policies, tables
from tests.support.table_keys import encrypted, rewrap, rotate
from tests.support.tables import make, name_of, named, rows

#: Walt updates the tables of `db`; Alma alters them, too; Alice also drops their protection.
WALT, ALMA = "walt", "alma"


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake for all tests of a module, where Walt and Alma have their permissions."""
    grants = {WALT: ["select", "update"], ALMA: ["select", "update", "alter"]}
    policies = [*standard_policies(), policy("writers", tables("db"), grants)]
    with open_lake(tmp_path_factory.mktemp("lake"), policies=policies) as lake:
        lake.catalog().create_namespace("db", ALLOWS_UNSEALED)
        yield lake


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
