"""Position delete files are planned for users who see the paths in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec

from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from policy.errors import NotAuthorized, RequestInvalid
from tests.metadata_tables.test_what_metadata_tables_show import DAN, ERIN, FAY, grant
from tests.support.lake import ALICE, CAROL, Lake
from tests.support.row_changes import Ledger
from tests.support.tables import ENCRYPTED, name_of

Policies = Callable[..., None]
SEALED = {"properties": ENCRYPTED, "partition_spec": PartitionSpec()}


def deleting(lake: Lake, **options: Any) -> tuple[Ledger, str]:
    """A table with a data file and a position delete file; by default partitioned by `part`."""
    ledger = Ledger.of(lake, **options)
    file = ledger.append(1, 5)
    engine = ledger.engine()
    partition = {"part": "a"} if ledger.table.spec().fields else {}
    deletes = ledger.deletes(engine, file, partition=partition)
    base = ledger.head().snapshot_id
    ledger.commit("delete", [deletes], engine, base_snapshot_id=base, command="delete")
    return ledger, deletes.path


def planned(
    lake: Lake, ledger: Ledger, user: str = ALICE, engine: str | None = "spark", **asked: Any
) -> Plan:
    request = ScanRequest(**({"columns": ("file_path", "pos")} | asked))
    return lake.services.position_deletes.plan(lake.caller(user, engine), name_of(ledger.table), request)


@pytest.mark.nightly
@pytest.mark.parametrize("options", [{}, SEALED], ids=["plaintext", "encrypted"])
def test_position_delete_files_come_with_their_keys(lake: Lake, options: dict[str, Any]) -> None:
    ledger, path = deleting(lake, **options)
    found = planned(lake, ledger)
    (row,) = found.files.to_pylist()
    assert (row["content"], row["file_path"]) == (1, path)
    assert bool(row["keys"]) is bool(options) is (found.header.transport is not None)
    assert "key_metadata" not in row
    assert planned(lake, ledger, snapshot_id=_first(ledger)).files.num_rows == 0


def _first(ledger: Ledger) -> int:
    return ledger.lake.catalog().load_table(ledger.table.name()).metadata.snapshots[0].snapshot_id


def test_paths_and_deleted_rows_take_their_columns(lake: Lake, policies: Policies) -> None:
    ledger, _ = deleting(lake)
    policies(grant(DAN, "id"), grant(ERIN, "part"), grant(FAY, "id", "part"))
    for user in (DAN, "nobody"):
        with pytest.raises(NotAuthorized):
            planned(lake, ledger, user)
    assert planned(lake, ledger, ERIN).files.num_rows == 1
    with pytest.raises(NotAuthorized):
        planned(lake, ledger, ERIN, columns=("row",))
    assert planned(lake, ledger, FAY, columns=None).header.columns == ("file_path", "pos", "row")
    for asked in ({"columns": ("id",)}, {"start_snapshot_id": 1}):
        with pytest.raises(RequestInvalid):
            planned(lake, ledger, **asked)


def test_keys_of_position_deletes_take_release_without_an_engine(lake: Lake) -> None:
    ledger, _ = deleting(lake, **SEALED)
    assert planned(lake, ledger, CAROL).header.transport is not None
    with pytest.raises(NotAuthorized):
        planned(lake, ledger, CAROL, engine=None)
