"""What tests of tables' keys look at: versions, states, the keys that plans give out."""

from __future__ import annotations

from sqlalchemy import update

from catalog.base.identifiers import TableName
from catalog.db.engine import write
from catalog.db.schema import lw_pek
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.peks import PekRecord
from catalog.envelope.transport import open_transported
from catalog.key_management.states import ShownKey
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from policy.encryption.epochs import PekRef
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, LABEL, append_files, make, name_of


def encrypted(lake: Lake, files: int = 0) -> TableName:
    """A new encrypted table of Alice's, with files that were appended one by one."""
    name = name_of(make(lake, properties=ENCRYPTED))
    for _ in range(files):
        append_files(lake, name)
    return name


def load(lake: Lake, name: TableName) -> LoadedTable:
    """The table as it is now."""
    return lake.services.loader.load_sealed(name)


def peks(lake: Lake, name: TableName) -> list[PekRecord]:
    """The records of a table's keys."""
    return lake.services.keyring.records(load(lake, name).record)


def pek(lake: Lake, name: TableName, version: int) -> PekRecord:
    """The record of a version of the table's only key."""
    (found,) = [each for each in peks(lake, name) if each.version == version]
    return found


def states(lake: Lake, name: TableName) -> dict[int, str]:
    """The state of each version of the table's only key."""
    return {each.version: str(each.state) for each in peks(lake, name)}


def shown(keys: list[ShownKey]) -> dict[int, tuple[str, bool]]:
    """By version: the state, and whether it is in force."""
    return {each.pek.version: (str(each.pek.state), each.in_force) for each in keys}


def rotate(lake: Lake, name: TableName, user: str = ALICE) -> PekRef:
    """Rotate the table's only key; the version now."""
    ((before, now),) = lake.services.key_rotation.rotate(lake.caller(user), name).versions
    assert (now.pek_id, now.master_key_id) == (before.pek_id, before.master_key_id)
    assert now.version > before.version
    return now


def rewrap(lake: Lake, name: TableName) -> dict[str, int]:
    """Rewrap; how many files were, by branch."""
    done = lake.services.key_rewrap.rewrap(lake.caller(ALICE), name)
    assert all((each.snapshot_id is None) == (each.files == 0) for each in done)
    return {each.branch: each.files for each in done}


def versions(lake: Lake, name: TableName, ref: str = "main") -> dict[str, int]:
    """The version that each live file of a branch or tag is under, by path."""
    table = load(lake, name)
    head = table.metadata.snapshot_by_name(ref)
    assert head is not None
    found = {}
    for manifest in lake.services.reader.open(table, lake.services.reader.manifests(table, head)):
        for row in manifest.entries.select(["status", "file_path", "key_metadata"]).to_pylist():
            if row["status"] != 2:
                (entry,) = KeyMetadata.parse(row["key_metadata"]).entries
                found[row["file_path"]] = entry.bound.pek.version
    return found


def released(lake: Lake, name: TableName, ref: str = "main") -> dict[str, bytes]:
    """The data key that a plan gives out for each file, by path."""
    plan = lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest(ref=ref))
    transport, table = plan.header.transport, plan.header.table
    assert transport is not None
    found = {}
    for row in plan.files.to_pylist():
        identity = FileIdentity.of(table.record.table_uuid, row["file_path"])
        (key,) = row["keys"]
        found[row["file_path"]] = open_transported(transport, key["wrapped"], identity, LABEL).reveal()
    return found


def let_waiting_end(lake: Lake, name: TableName) -> None:
    """Let the time be over of the table's keys that are to be destroyed, and have them destroyed."""
    mine = lw_pek.c.table_id == load(lake, name).record.id
    with write(lake.services.engine) as connection:
        waiting = lw_pek.c.destroy_after_ms.is_not(None)
        connection.execute(update(lw_pek).where(mine, waiting).values(destroy_after_ms=1))
    lake.services.key_life.destroy_due()
