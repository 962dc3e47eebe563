"""Garbage collection removes what nothing names after three days, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetPropertiesUpdate

from catalog.base import crash_points
from catalog.maintenance.expiry import ExpiryRequest
from catalog.maintenance.garbage import MIN_AGE, Garbage
from policy.errors import NotAuthorized, RequestInvalid
from policy.location.location import Location
from tests.faults.conftest import Shared
from tests.faults.garbage import (
    MARGIN_S,
    SHARING,
    age_all,
    aged,
    check_refused,
    collected,
    directory,
    left_behind,
    paths,
    touched,
    written,
)
from tests.support.clock import at_time
from tests.support.hooks import once_at
from tests.support.lake import ALICE, BOB, Lake, open_lake, policy, standard_policies, tables
from tests.support.moto_server import MotoS3
from tests.support.service import s3_settings
from tests.support.tables import ENCRYPTED, Engine, make, name_of, rows


def test_what_nothing_names_is_listed_and_then_removed(shared: Shared) -> None:
    table = make(shared.lake)
    table.append(rows(1))
    table.append(rows(3))
    kept = age_all(table)
    left = {
        left_behind(table),
        left_behind(table, "part=a"),
        aged(written(table, "metadata/lost.metadata.json")),
    }
    listed = collected(shared.lake, table, remove=False)
    assert paths(listed) == left and listed.removed == 0
    assert listed.bytes == sum(each.stat().st_size for each in left)
    assert all(each.exists() for each in left)
    assert collected(shared.lake, table).removed == 3
    assert not any(each.exists() for each in left) and all(each.exists() for each in kept)
    assert table.refresh().scan().to_arrow().num_rows == 4
    assert collected(shared.lake, table) == Garbage((), 0)


def test_a_young_file_is_no_garbage(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    young, old = left_behind(table), left_behind(table)
    aged(young, seconds=MIN_AGE.total_seconds() - MARGIN_S)
    assert paths(collected(on_sqlite.lake, table)) == {old}
    assert young.exists()


def test_everything_that_a_retained_snapshot_or_statistics_file_names_is_kept(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    table.append(rows(1))
    first = table.current_snapshot()
    assert first is not None
    table.overwrite(rows(5))
    statistics = written(table, "metadata/s.puffin")
    with table.update_statistics() as update:
        update.set_statistics(_statistics(first.snapshot_id, statistics))
    with table.manage_snapshots() as change:
        change.create_tag(first.snapshot_id, "kept")
    kept = age_all(table)
    assert collected(on_sqlite.lake, table).files == ()
    assert all(each.exists() for each in kept)
    assert table.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 2


def _statistics(snapshot_id: int, path: Path) -> StatisticsFile:
    return StatisticsFile(
        **{
            "snapshot-id": snapshot_id,
            "statistics-path": f"file://{path}",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
    )


def test_files_of_an_expired_snapshot_become_garbage(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    table.append(rows(1))
    first = table.current_snapshot()
    assert first is not None
    table.overwrite(rows(5))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    age_all(table)
    assert Path(first.manifest_list.removeprefix("file://")) in paths(collected(on_sqlite.lake, table))
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [5, 6]


def test_files_of_a_write_that_is_open_are_kept(shared: Shared) -> None:
    table = make(shared.lake, properties=ENCRYPTED)
    engine = Engine.begin(shared.lake, name_of(table))
    path = Path(engine.path().removeprefix("file://"))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")
    aged(path)
    assert collected(shared.lake, table).files == ()
    assert path.exists()
    shared.lake.services.writes.abort(shared.lake.caller("alice"), engine.session.id)
    assert not path.exists()


def test_a_location_that_the_catalog_did_not_choose_is_left_alone(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake, location=f"file://{on_sqlite.lake.root}/chosen-{uuid4()}")
    directory(table).mkdir(exist_ok=True)
    left = left_behind(table)
    check_refused(on_sqlite.lake, table, left)
    _not_listed(on_sqlite.lake, table)


@pytest.mark.parametrize("sharing", SHARING.values(), ids=SHARING)
def test_a_location_where_another_table_lies_or_reads_is_left_alone(
    lake: Lake, sharing: Callable[[str], dict[str, Any]]
) -> None:
    lake.catalog().create_namespace("db")
    table = make(lake)
    left = left_behind(table)
    make(lake, **sharing(table.location()))
    check_refused(lake, table, left)
    _not_listed(lake, table)


@pytest.mark.parametrize("sharing", SHARING.values(), ids=SHARING)
def test_a_purge_leaves_what_another_table_can_read(
    lake: Lake, sharing: Callable[[str], dict[str, Any]]
) -> None:
    """It takes the files that its own table names, and no others there."""
    lake.catalog().create_namespace("db")
    table = make(lake)
    table.append(rows(1))
    mine = {Path(each.removeprefix("file://")) for each in table.inspect.files()["file_path"].to_pylist()}
    left = left_behind(table)
    make(lake, **sharing(table.location()))
    lake.catalog().purge_table(table.name())
    assert left.exists() and not any(each.exists() for each in mine)


def _not_listed(lake: Lake, table: Table) -> None:
    """What others have there is not shown either."""
    with pytest.raises(RequestInvalid, match="shared-location"):
        collected(lake, table, remove=False)


def test_a_link_is_neither_followed_nor_removed(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    left_behind(table)
    elsewhere = on_sqlite.lake.root / f"elsewhere-{uuid4()}"
    elsewhere.mkdir()
    victim = aged(touched(elsewhere / "victim"))
    (directory(table) / "data" / "link").symlink_to(elsewhere)
    assert collected(on_sqlite.lake, table).removed == 1
    assert victim.exists()


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize("right", ["alter", "drop"])
def test_alter_and_drop_are_both_needed(tmp_path: Path, right: str, remove: bool) -> None:
    policies = [*standard_policies(), policy("one", tables("db"), {"one": [right, "select", "update"]})]
    with open_lake(tmp_path, policies=policies) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        left = left_behind(table)
        for user in ("one", BOB):
            with pytest.raises(NotAuthorized):
                lake.services.garbage.collect(lake.caller(user), name_of(table), remove=remove)
        assert left.exists()


def test_files_of_a_table_that_forbids_it_are_not_deleted(on_sqlite: Shared) -> None:
    """Also if it does so while they are listed."""
    lake = on_sqlite.lake
    table = make(lake)
    table.append(rows(1))
    age_all(table)
    left, name = left_behind(table), name_of(table)

    def forbid() -> None:
        update = SetPropertiesUpdate(updates={"gc.enabled": "False"})
        lake.services.committer.commit(lake.caller(ALICE), name, (), [update])

    def refuse(action: Callable[[], object]) -> None:
        with pytest.raises(RequestInvalid) as refused:
            action()
        assert refused.value.rule == "gc-enabled" and left.exists()

    collect = lake.services.garbage.collect
    with crash_points.hooked(once_at("clean-up:listed", forbid)):
        refuse(lambda: collect(lake.caller(ALICE), name, remove=True))
    refuse(lambda: collect(lake.caller(ALICE), name, remove=True))
    refuse(lambda: lake.services.lifecycle.purge(lake.caller(ALICE), name))
    refuse(lambda: lake.services.expiry.expire(lake.caller(ALICE), name, ExpiryRequest()))
    assert len(collect(lake.caller(ALICE), name).files) == 1
    lake.services.committer.commit(
        lake.caller(ALICE), name, (), [SetPropertiesUpdate(updates={"gc.enabled": "true"})]
    )
    assert collect(lake.caller(ALICE), name, remove=True).removed == 1 and not left.exists()


@pytest.mark.nightly
def test_garbage_in_an_object_store(tmp_path: Path, moto: MotoS3) -> None:
    with open_lake(tmp_path, **s3_settings(moto)) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        table.append(rows(1))
        storage = lake.services.storage
        left = Location.parse(f"{table.location()}/data/left.parquet")
        storage.create(left, b"PAR1")
        assert collected(lake, table).files == ()
        later = int((time.time() + MIN_AGE.total_seconds() + MARGIN_S) * 1000)
        with at_time(lake.services.garbage, later):
            garbage = collected(lake, table)
        assert [each.location for each in garbage.files] == [left] and garbage.removed == 1
        assert not storage.exists(left)
        assert table.refresh().scan().to_arrow().num_rows == 2
