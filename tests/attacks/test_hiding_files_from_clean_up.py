"""Entries that a writer commits to a table, so that a later clean-up removes files that the table needs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate, TableUpdate

from catalog.maintenance.garbage import MIN_AGE
from tests.support.attacker import Attacker, data_file, entry, local
from tests.support.lake import ALICE, Lake, policy, standard_policies, tables
from tests.support.tables import make, name_of, rows

#: Walt updates the tables of `db`, and neither alters nor drops them.
WALT = "walt"


@pytest.fixture
def plain(lake: Lake) -> Attacker:
    """A plaintext table with two files in two snapshots, in Walt's hands."""
    lake.catalog().create_namespace("db")
    lake.set_policies([*standard_policies(), policy("writers", tables("db"), {WALT: ["select", "update"]})])
    table = make(lake)
    for first in (1, 3):
        table.append(rows(first))
    return Attacker(lake, str(name_of(table)), WALT)


def statistics(plain: Attacker, path: str) -> TableUpdate:
    """The update that calls a file the statistics of the current snapshot."""
    snapshot = plain.metadata.current_snapshot()
    assert snapshot is not None
    told = {"snapshot-id": snapshot.snapshot_id, "statistics-path": path, "blob-metadata": []}
    sizes = {"file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
    return SetStatisticsUpdate(statistics=StatisticsFile(**told, **sizes))


def removed_after_three_days(plain: Attacker) -> int:
    """How many files a clean-up removes once all of the table's files are old enough."""
    then = time.time() - MIN_AGE.total_seconds() - 3600
    for each in Path(local(plain.location)).rglob("*"):
        os.utime(each, (then, then))
    lake = plain.lake
    name = plain.catalog._name(plain.table)
    return lake.services.garbage.collect(lake.caller(ALICE), name, remove=True).removed


def test_a_manifest_that_is_called_a_statistics_file(plain: Attacker) -> None:
    """What a manifest lists is needed, whatever else names the manifest."""
    plain.commit(statistics(plain, plain.manifests()[0].manifest_path))
    assert removed_after_three_days(plain) == 0
    assert plain.scan(ALICE) == [1, 2, 3, 4]


def test_a_manifest_that_is_called_a_data_file(plain: Attacker) -> None:
    called = data_file(plain.manifests()[0].manifest_path)
    plain.commit(*plain.appending(entry(called)))
    assert removed_after_three_days(plain) == 0
