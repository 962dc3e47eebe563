"""Files edited between check and commit: whoever wins the race, no edited byte is taken for a sealed one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table.update import update_table_metadata

from catalog import faults
from catalog.errors import CommitConflict, TableExists
from policy.errors import LakewardenError, MetadataTampered, MetadataUnsealed
from tests.attacks.traps import OpenWatch
from tests.support.attacker import OWN_ROWS, Attacker, Siege, data_file, entry, local, new_id, sql, updates

POINTS = ["checked", "metadata-written", "prepared", "pointer-moved", "promoted"]


def at(point: str, action: Callable[[], object]) -> Callable[[str], None]:
    """A hook that acts once, at a point."""
    done: list[str] = []

    def hook(reached: str) -> None:
        if reached == point and not done:
            done.append(reached)
            action()

    return hook


def newest(attacker: Attacker, pattern: str) -> Path:
    """The file of the attacker's metadata directory that was written last."""
    found = (local(attacker.location) / "metadata").glob(pattern)
    return max(found, key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("what", ["manifest", "manifest list"])
def test_new_manifest_edited_after_it_was_checked(
    siege: Siege, watch: OpenWatch, point: str, what: str
) -> None:
    """The commit may land; what it sealed is what was checked, so the edited file is never read from."""
    attacker, foreign = siege.attacker, entry(siege.secret_file())
    snapshot_id = new_id()
    clean = entry(data_file(f"{attacker.location}/data/new.parquet"))
    manifest = attacker.manifest([clean], snapshot_id)
    snapshot = attacker.snapshot([*attacker.manifests(), manifest], snapshot_id)

    def edit() -> None:
        planted = attacker.manifest([foreign], snapshot_id, at=_target(what, manifest.manifest_path))
        if what == "manifest list":
            attacker.snapshot([planted], snapshot_id, at=snapshot.manifest_list)

    watch.opened()
    with faults.hooked(at(point, edit)):
        attacker.commit(*updates(snapshot))
    clear_manifest_cache()
    with pytest.raises(MetadataTampered):
        attacker.plan()
    with pytest.raises(MetadataTampered):
        attacker.scan()
    assert watch.opened() == []


def _target(what: str, manifest: str) -> str | None:
    return manifest if what == "manifest" else None


@pytest.mark.parametrize("point", POINTS[1:])
def test_new_metadata_edited_while_it_lands(siege: Siege, watch: OpenWatch, point: str) -> None:
    """The digest is of the bytes that the catalog made, not of what lies in storage a moment later."""
    attacker = siege.attacker
    planted = attacker.appending(entry(siege.secret_file()))
    forged = update_table_metadata(attacker.metadata, tuple(planted))

    def edit() -> None:
        target = newest(attacker, "*.metadata.json")
        attacker.write_metadata(forged, name=target.name)

    watch.opened()
    with faults.hooked(at(point, edit)):
        attacker.commit_properties({"comment": "x"})
    with pytest.raises(MetadataTampered):
        attacker.plan()
    with pytest.raises(MetadataTampered):
        attacker.commit_properties({"comment": "y"})
    assert watch.opened() == []


@pytest.mark.parametrize("point", POINTS[:3])
def test_pointer_moved_by_a_stock_client_during_a_commit(siege: Siege, point: str) -> None:
    """The stock client wins the pointer; the commit loses, and what stands there is unsealed."""
    attacker = siege.attacker
    planted = attacker.appending(entry(data_file(f"{attacker.location}/data/new.parquet")))
    overtaking = at(point, lambda: attacker.commit_behind(*planted))
    with faults.hooked(overtaking), pytest.raises(CommitConflict):
        attacker.commit_properties({"comment": "x"})
    assert attacker.loaded().seal is None
    with pytest.raises(MetadataUnsealed):
        attacker.commit_properties({"comment": "x"})


@pytest.mark.parametrize("point", POINTS[:3])
def test_name_taken_by_a_stock_client_during_a_creation(siege: Siege, point: str) -> None:
    """Its pointer stands on foreign metadata; the creation fails and the name is not governed."""
    attacker = siege.attacker
    taken = Attacker(siege.lake, "bobs.taken")
    statement = (
        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
        " SELECT catalog_name, 'bobs', 'taken', metadata_location FROM iceberg_tables"
        " WHERE table_name = 'victim'"
    )
    with faults.hooked(at(point, lambda: sql(siege.lake, statement))), pytest.raises(TableExists):
        attacker.catalog.create_table("bobs.taken", OWN_ROWS.schema)
    with pytest.raises(LakewardenError):
        taken.plan()


def test_metadata_swapped_between_load_and_commit(siege: Siege) -> None:
    """What the client holds was loaded from good bytes; the commit reads them again and compares."""
    attacker = siege.attacker
    table = attacker.catalog.load_table("bobs.mine")
    good = local(attacker.pointer()).read_bytes()
    local(attacker.pointer()).write_bytes(good + b" ")
    with pytest.raises(MetadataTampered):
        table.append(OWN_ROWS)
    local(attacker.pointer()).write_bytes(good)
    table.append(OWN_ROWS)
    assert attacker.loaded().seal is not None
