"""The warehouse is read-only, full or gone: typed refusals, no pointer moves; then all works again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.storage.errors import ObjectMissing
from policy.errors import LakewardenError, StorageUnavailable
from tests.faults.conftest import Shared
from tests.faults.scenarios import PUBLISHING, SCENARIOS, Scenario, Subject
from tests.support.crash import assert_sound, seen
from tests.support.lake import Lake, open_lake
from tests.support.outages import filled, largest_file, read_only, small_disk
from tests.support.tables import make, name_of, rows

pytestmark = pytest.mark.nightly

#: Operations that write a metadata.json.
LANDINGS = [name for name, scenario in SCENARIOS.items() if set(PUBLISHING) <= set(scenario.points)]


@contextmanager
def removed(directory: Path) -> Iterator[None]:
    """A directory is gone, as when its volume is not mounted."""
    away = directory.with_name(f"away-{directory.name}")
    directory.rename(away)
    try:
        yield
    finally:
        away.rename(directory)


def _refused(
    lake: Lake, scenario: Scenario, subject: Subject, fault: Callable[[], AbstractContextManager[None]]
) -> LakewardenError:
    """The refusal of an operation whose storage fails when its metadata is about to be written."""
    with ExitStack() as stack:

        def hook(name: str) -> None:
            if name == "checked":
                stack.enter_context(fault())

        stack.enter_context(crash_points.hooked(hook))
        with pytest.raises(LakewardenError) as refusal:
            scenario.act(lake, subject)
    return refusal.value


@pytest.mark.parametrize("name", LANDINGS)
@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_metadata_that_cannot_be_written(on_sqlite: Shared, name: str, fault: str) -> None:
    lake, scenario = on_sqlite.lake, SCENARIOS[name]
    subject = scenario.before(lake)
    before = scenario.look(lake, subject)
    broken = (lambda: largest_file(64)) if fault == "full" else (lambda: read_only(lake.warehouse))
    files = set(lake.warehouse.rglob("*.metadata.json"))
    refusal = _refused(lake, scenario, subject, broken)
    assert isinstance(refusal, StorageUnavailable)
    assert refusal.hint
    assert scenario.look(lake, subject) == before
    assert set(lake.warehouse.rglob("*.metadata.json")) == files
    scenario.act(lake, subject)
    assert scenario.look(lake, subject) != before
    assert_sound(lake)


def test_a_full_disk_below_the_warehouse(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    with small_disk(tmp_path / "warehouse", "1m"), open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        table.append(rows(1))
        before = seen(lake, name_of(table))
        with filled(lake.warehouse):
            with pytest.raises(StorageUnavailable):
                table.append(rows(3))
            with pytest.raises(StorageUnavailable):
                make(lake)
            assert seen(lake, name_of(table)) == before
        table.append(rows(5))
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 5, 6]
        assert_sound(lake)


@contextmanager
def unmounted(warehouse: Path) -> Iterator[None]:
    """The warehouse's file system is not mounted: its mount point is empty."""
    with removed(warehouse):
        warehouse.mkdir()
        try:
            yield
        finally:
            warehouse.rmdir()


@pytest.mark.parametrize("fault", [removed, unmounted])
def test_a_warehouse_that_is_gone_is_unavailable(
    on_sqlite: Shared, fault: Callable[[Path], AbstractContextManager[None]]
) -> None:
    lake = on_sqlite.lake
    table = make(lake)
    table.append(rows(1))
    before, loaded = seen(lake, name_of(table)), lake.services.loader.load(name_of(table))
    with fault(lake.warehouse):
        with pytest.raises(StorageUnavailable, match="storage-gone"):
            lake.catalog().load_table(table.name())
        with pytest.raises(StorageUnavailable, match="storage-gone"):
            table.transaction().set_properties(comment="x").commit_transaction()
        snapshot = loaded.metadata.current_snapshot()
        assert snapshot is not None
        with pytest.raises(StorageUnavailable, match="storage-gone"):
            lake.services.reader.manifests(loaded, snapshot)
        added = pa.table({"file_path": [f"{table.location()}/data/f"], "file_size_in_bytes": [1]})
        with pytest.raises(StorageUnavailable, match="storage-gone"):
            lake.services.added_files.check([added], loaded.name)
    assert seen(lake, name_of(table)) == before
    table.append(rows(3))


def test_metadata_that_was_deleted_is_missing_beside_other_files(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    table = make(lake)
    path = Path(table.metadata_location.removeprefix("file://"))
    with removed(path), pytest.raises(ObjectMissing):
        lake.catalog().load_table(table.name())


def test_metadata_that_cannot_be_deleted_does_not_hide_who_won(on_sqlite: Shared) -> None:
    """The loser of a race is told that it lost, although its leftovers cannot be removed."""
    lake = on_sqlite.lake
    table = make(lake, properties={"commit.retry.num-retries": "0"})
    rival = lake.catalog().load_table(table.name())
    with ExitStack() as stack:

        def hook(name: str) -> None:
            if name == "prepared":
                hooks.close()
                rival.append(rows(1))
                stack.enter_context(read_only(lake.warehouse))

        hooks = stack.enter_context(ExitStack())
        hooks.enter_context(crash_points.hooked(hook))
        with pytest.raises(CommitConflict):
            table.append(rows(3))
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [1, 2]
    assert_sound(lake)
