"""Sealed files edited in place: what is not, byte for byte, what was sealed is `MetadataTampered`.

The edits plant the victim's data file, so that a reader who went on would read it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest
from pyiceberg.manifest import clear_manifest_cache

from policy.errors import LocationNotAllowed, MetadataTampered
from tests.attacks.traps import OpenWatch, no_key_released
from tests.support.attacker import (
    ADDED,
    OWN_ROWS,
    Attacker,
    Siege,
    again,
    data_file,
    entry,
    local,
    stock_rows,
    updates,
    write_list,
)
from tests.support.lake import ALICE, BOB

Edit = Callable[[Attacker, str], None]


def edit_manifest(attacker: Attacker, foreign: str) -> None:
    """The manifest, and its length in the list as well: only the list's and the manifest's bytes change."""
    snapshot = attacker.metadata.current_snapshot()
    assert snapshot is not None
    [manifest], [mine] = attacker.manifests(), attacker.entries()
    planted = [again(mine, ADDED), entry(data_file(foreign))]
    edited = attacker.manifest(planted, snapshot.snapshot_id, at=manifest.manifest_path)
    write_list(snapshot.manifest_list, [edited], snapshot.snapshot_id, None, 1)


def edit_manifest_alone(attacker: Attacker, foreign: str) -> None:
    snapshot = attacker.metadata.current_snapshot()
    assert snapshot is not None
    [manifest] = attacker.manifests()
    attacker.manifest([entry(data_file(foreign))], snapshot.snapshot_id, at=manifest.manifest_path)


def edit_manifest_list(attacker: Attacker, foreign: str) -> None:
    """The list names another manifest, which lies in the attacker's own directory."""
    snapshot = attacker.metadata.current_snapshot()
    assert snapshot is not None
    planted = attacker.manifest([entry(data_file(foreign))], snapshot.snapshot_id)
    write_list(snapshot.manifest_list, [planted], snapshot.snapshot_id, None, 1)


def edit_metadata(attacker: Attacker, foreign: str) -> None:
    """metadata.json names another manifest list, which lies in the attacker's own directory."""
    metadata = attacker.metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    planted = attacker.manifest([entry(data_file(foreign))], snapshot.snapshot_id)
    forged = attacker.snapshot([planted], snapshot.snapshot_id, sequence_number=1)
    edited = metadata.model_copy(update={"snapshots": [forged]})
    attacker.write_metadata(edited, name=attacker.pointer().rpartition("/")[2])


def swap_whole_files(attacker: Attacker, foreign: str) -> None:
    """The metadata of another commit, put in the place of the current one's."""
    current = attacker.pointer()
    attacker.commit_behind(*attacker.appending(entry(data_file(foreign))))
    shutil.copyfile(local(attacker.pointer()), local(current))
    attacker.point(current)


EDITS = [edit_manifest, edit_manifest_alone, edit_manifest_list, edit_metadata, swap_whole_files]


@pytest.mark.parametrize("edit", EDITS)
def test_sealed_file_edited_in_place(siege: Siege, watch: OpenWatch, edit: Edit) -> None:
    attacker, foreign = siege.attacker, siege.victim.data_paths()[0]
    edit(attacker, foreign)
    assert 7001 in stock_rows(siege.lake, "bobs.mine")
    clear_manifest_cache()
    watch.opened()
    with pytest.raises(MetadataTampered):
        attacker.plan(ALICE)
    with pytest.raises(MetadataTampered):
        attacker.scan(ALICE)
    assert watch.opened() == []


@pytest.mark.parametrize("edit", [edit_manifest, edit_manifest_alone, edit_manifest_list])
def test_sealed_file_edited_after_load(siege: Siege, watch: OpenWatch, edit: Edit) -> None:
    """A table that was loaded before the edit scans no edited file either."""
    table = siege.lake.catalog(ALICE).load_table("bobs.mine")
    foreign = siege.victim.data_paths()[0]
    edit(siege.attacker, foreign)
    watch.opened()
    with pytest.raises(MetadataTampered):
        table.scan().to_arrow()
    assert watch.opened() == []


@pytest.mark.parametrize("edit", [edit_metadata, swap_whole_files])
def test_metadata_edited_after_load(siege: Siege, edit: Edit) -> None:
    """What is known of a table does not stand for the file, and the file is not what is known then."""
    catalog, current = siege.lake.catalog(ALICE), local(siege.attacker.pointer())
    sealed, before = current.read_bytes(), catalog.load_table("bobs.mine").metadata
    edit(siege.attacker, siege.victim.data_paths()[0])
    for _ in range(2):
        with pytest.raises(MetadataTampered):
            catalog.load_table("bobs.mine")
    current.write_bytes(sealed)
    assert catalog.load_table("bobs.mine").metadata == before


@pytest.mark.parametrize("edit", [edit_metadata, swap_whole_files])
def test_nothing_is_committed_on_edited_metadata(siege: Siege, edit: Edit) -> None:
    """pyiceberg's own commit would read the edited file again and launder it."""
    table = siege.lake.catalog(BOB).load_table("bobs.mine")
    edit(siege.attacker, siege.victim.data_paths()[0])
    before = siege.attacker.pointer()
    with pytest.raises(MetadataTampered):
        table.append(OWN_ROWS)
    assert siege.attacker.pointer() == before


def test_edited_manifest_that_is_carried_over_is_refused_at_the_plan(siege: Siege) -> None:
    """A commit does not open what it carries over; what reads the file compares it with its seal."""
    attacker, foreign = siege.attacker, siege.victim.data_paths()[0]
    edit_manifest_alone(attacker, foreign)
    attacker.commit(*attacker.appending(entry(data_file(f"{attacker.location}/data/new.parquet"))))
    with pytest.raises(MetadataTampered):
        attacker.plan()


@pytest.mark.parametrize("edit", [edit_manifest, edit_manifest_alone])
def test_edited_manifest_is_not_written_again(siege: Siege, edit: Edit) -> None:
    """Its files cannot be carried over into another manifest."""
    attacker, foreign = siege.attacker, siege.victim.data_paths()[0]
    edit(attacker, foreign)
    before = attacker.pointer()
    with pytest.raises(MetadataTampered):
        attacker.commit(*attacker.replacing(entry(data_file(f"{attacker.location}/data/new.parquet"))))
    assert attacker.pointer() == before


def test_edited_list_is_not_carried_into_a_commit(siege: Siege) -> None:
    """A list with the edited length contradicts what was sealed of the manifest."""
    attacker, foreign = siege.attacker, siege.victim.data_paths()[0]
    edit_manifest(attacker, foreign)
    before = attacker.pointer()
    with pytest.raises(MetadataTampered):
        attacker.commit(*attacker.appending(entry(data_file(f"{attacker.location}/data/new.parquet"))))
    assert attacker.pointer() == before


def test_edited_manifest_of_encrypted_table_releases_no_key(siege: Siege, watch: OpenWatch) -> None:
    """Neither the attacker's key nor the victim's is asked for."""
    siege.lake.catalog(ALICE).create_table(
        "bobs.sealed", OWN_ROWS.schema, properties={"encryption.mechanism": "envelope"}
    )
    attacker = Attacker(siege.lake, "bobs.sealed", ALICE)
    attacker.write_encrypted()
    edit_manifest_alone(attacker, siege.victim.data_paths()[0])
    watch.opened()
    with no_key_released(siege.lake), pytest.raises(MetadataTampered):
        attacker.plan(ALICE)
    assert watch.opened() == []


def test_manifest_cut_short(siege: Siege) -> None:
    [manifest] = siege.attacker.manifests()
    siege.attacker.edit(manifest.manifest_path, lambda data: data[:-1])
    with pytest.raises(MetadataTampered):
        siege.attacker.plan()


def test_sealed_bytes_in_a_linked_file(siege: Siege) -> None:
    """A link with the right bytes behind it is not followed: it could lead elsewhere at the next read."""
    [manifest] = siege.attacker.manifests()
    path = local(manifest.manifest_path)
    moved = path.with_suffix(".moved")
    path.rename(moved)
    os.symlink(moved, path)
    clear_manifest_cache()
    with pytest.raises(LocationNotAllowed, match="no-links"):
        siege.attacker.plan()


def test_sealed_path_written_again_under_another_snapshot(siege: Siege) -> None:
    """A manifest that was sealed once is not brought again with other bytes, even by its own table."""
    attacker = siege.attacker
    [manifest] = attacker.manifests()
    snapshot_id = 4711
    mine = entry(data_file(attacker.data_paths()[0]))
    again_there = attacker.manifest([mine], snapshot_id, at=manifest.manifest_path)
    with pytest.raises(MetadataTampered):
        attacker.commit(*updates(attacker.snapshot([again_there], snapshot_id)))
