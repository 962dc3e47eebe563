"""Files edited between check and commit: whatever wins the race, no edited byte is taken for a sealed one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table.update import update_table_metadata

from catalog.base import crash_points
from catalog.base.errors import CommitConflict, TableExists
from catalog.base.identifiers import table_name
from catalog.writes.new_files import FileCommit
from policy.errors import LakewardenError, MetadataTampered, MetadataUnsealed
from policy.location.location import Location
from tests.attacks.traps import OpenWatch
from tests.support.attacker import (
    ADDED,
    OWN_ROWS,
    Attacker,
    Siege,
    again,
    data_file,
    entry,
    local,
    new_id,
    read_list,
    sql,
    updates,
)
from tests.support.lake import BOB
from tests.support.tables import Engine

POINTS = ["checked", "metadata-written", "prepared", "published"]


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


@pytest.mark.rows_by_day(3)
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
    with crash_points.hooked(at(point, edit)):
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
def test_new_metadata_edited_while_it_is_published(siege: Siege, watch: OpenWatch, point: str) -> None:
    """The digest is of the bytes that the catalog made, not of what lies in storage a moment later."""
    attacker = siege.attacker
    planted = attacker.appending(entry(siege.secret_file()))
    forged = update_table_metadata(attacker.metadata, tuple(planted))

    def edit() -> None:
        target = newest(attacker, "*.metadata.json")
        attacker.write_metadata(forged, name=target.name)

    watch.opened()
    with crash_points.hooked(at(point, edit)):
        attacker.commit_properties({"comment": "x"})
    with pytest.raises(MetadataTampered):
        attacker.plan()
    with pytest.raises(MetadataTampered):
        attacker.commit_properties({"comment": "y"})
    assert watch.opened() == []


@pytest.mark.parametrize("point", POINTS[:3])
def test_pointer_moved_by_a_standard_client_during_a_commit(siege: Siege, point: str) -> None:
    """The standard client wins the pointer; the commit loses, and what stands there is unsealed."""
    attacker = siege.attacker
    planted = attacker.appending(entry(data_file(f"{attacker.location}/data/new.parquet")))
    overtaking = at(point, lambda: attacker.commit_behind(*planted))
    with crash_points.hooked(overtaking), pytest.raises(CommitConflict):
        attacker.commit_properties({"comment": "x"})
    assert attacker.loaded().seal is None
    with pytest.raises(MetadataUnsealed):
        attacker.commit_properties({"comment": "x"})


@pytest.mark.parametrize("point", POINTS[:3])
def test_name_taken_by_a_standard_client_during_a_creation(siege: Siege, point: str) -> None:
    """Its pointer stands on foreign metadata; the creation fails and the name is not governed."""
    attacker = siege.attacker
    taken = Attacker(siege.lake, "bobs.taken")
    statement = (
        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location)"
        " SELECT catalog_name, 'bobs', 'taken', metadata_location FROM iceberg_tables"
        " WHERE table_name = 'victim'"
    )
    with crash_points.hooked(at(point, lambda: sql(siege.lake, statement))), pytest.raises(TableExists):
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


@pytest.mark.parametrize("what", ["manifest", "manifest list"])
def test_files_of_a_write_exchanged_before_they_are_checked(siege: Siege, what: str) -> None:
    """What is sealed of a write is what the catalog wrote, and not another snapshot that is as good."""
    attacker, lake = siege.attacker, siege.lake
    write = Engine.begin(lake, table_name(["bobs"], "mine"), BOB)

    def exchange() -> None:
        path = newest(attacker, "snap-*.avro")
        snapshot_id = int(path.name.split("-")[1])
        listed = [each for each in read_list(f"file://{path}") if each.added_snapshot_id != snapshot_id]
        planted = entry(data_file(f"{attacker.location}/data/planted.parquet"))
        at = f"file://{newest(attacker, '*-m0.avro')}" if what == "manifest" else None
        manifest = attacker.manifest([planted], snapshot_id, at=at)
        attacker.snapshot([*listed, manifest], snapshot_id, at=f"file://{path}")

    with crash_points.hooked(at("write:built", exchange)), pytest.raises(MetadataTampered) as refused:
        write.commit(FileCommit("append", (write.file(),)), BOB)
    assert refused.value.rule == "written-files"
    assert [each.data_file.record_count for each in attacker.entries()] == [OWN_ROWS.num_rows]


def test_manifest_edited_while_a_write_is_built_from_it(
    siege: Siege, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog writes carried files into a manifest of its own, from the bytes that it checked.

    The attacker edits the sealed manifest after its first read and puts it back after the second.
    """
    attacker, lake = siege.attacker, siege.lake
    names = ("gone.parquet", "kept.parquet")
    gone, kept = (entry(data_file(f"{attacker.location}/data/{name}")) for name in names)
    attacker.commit(*attacker.replacing(gone, kept))
    [manifest], head = attacker.manifests(), attacker.metadata.current_snapshot_id
    good = local(manifest.manifest_path).read_bytes()
    forged = [again(each, ADDED) for each in attacker.entries()]
    for each in forged:
        each.data_file[3] = 999_999
    attacker.manifest(forged, manifest.added_snapshot_id, at=manifest.manifest_path)
    edited = local(manifest.manifest_path).read_bytes()
    local(manifest.manifest_path).write_bytes(good)
    read, versions = lake.services.storage.read, iter([edited, good])

    def reading(location: Location, *, limit: int) -> bytes:
        data = read(location, limit=limit)
        if location.canonical == manifest.manifest_path:
            local(manifest.manifest_path).write_bytes(next(versions, good))
        return data

    session = lake.services.writes.begin(lake.caller(BOB), table_name(["bobs"], "mine"))
    removal = FileCommit("overwrite", (), (gone.data_file.file_path,), head)
    monkeypatch.setattr(lake.services.storage, "read", reading)
    with pytest.raises(MetadataTampered):
        lake.services.writes.commit(lake.caller(BOB), session.id, removal)
    monkeypatch.undo()
    local(manifest.manifest_path).write_bytes(good)
    assert attacker.plan().files["record_count"].to_pylist() == [2, 2]
