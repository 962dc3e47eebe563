"""Write sessions: what is committed is what was written, under rules that hold at the commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.table import Table
from pyiceberg.types import LongType

from catalog.base.errors import CommitConflict
from catalog.planning.request import ScanRequest
from catalog.service.services import Services
from catalog.writes.new_files import FileCommit
from policy.errors import (
    LakewardenError,
    LocationNotAllowed,
    NotSupportedYet,
    RequestInvalid,
)
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, append_files, make, name_of, rows
from tests.support.write_sessions import now, refused


def head(lake: Lake, table: Table) -> int | None:
    return now(lake, table).metadata.current_snapshot_id


def live(lake: Lake, table: Table) -> list[str]:
    found = lake.services.planner.plan(lake.caller(ALICE, "spark"), name_of(table), ScanRequest()).files
    return sorted(found["file_path"].to_pylist())


def test_an_append_adds_its_files_in_one_snapshot(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    files = [engine.file(record_count=number) for number in (3, 4)]
    published = engine.commit(FileCommit("append", tuple(files), summary={"app": "test"}))
    assert live(lake, table) == sorted(file.path for file in files)
    summary = published.metadata.current_snapshot().summary
    assert summary.operation.value == "append"
    assert (summary["added-records"], summary["total-data-files"], summary["app"]) == ("7", "2", "test")
    assert summary["lakewarden.write-id"] == engine.session.id


def test_rows_that_were_there_stay(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    append_files(lake, name_of(table))
    append_files(lake, name_of(table))
    assert len(live(lake, table)) == 3
    assert now(lake, table).metadata.last_sequence_number == 3


@pytest.mark.nightly
def test_an_overwrite_removes_and_adds_at_once(lake: Lake) -> None:
    table = make(lake)
    kept, gone = append_files(lake, name_of(table), 2)
    (other,) = append_files(lake, name_of(table))
    engine = Engine.begin(lake, name_of(table))
    new = engine.file()
    published = engine.commit(FileCommit("overwrite", (new,), (gone,), head(lake, table)))
    assert live(lake, table) == sorted([kept, other, new.path])
    summary = published.metadata.current_snapshot().summary
    assert summary.operation.value == "overwrite"
    assert (summary["deleted-data-files"], summary["added-data-files"]) == ("1", "1")


@pytest.mark.nightly
def test_a_delete_is_an_overwrite_that_adds_nothing(lake: Lake) -> None:
    table = make(lake)
    first, second = append_files(lake, name_of(table), 2)
    Engine.begin(lake, name_of(table)).commit(FileCommit("overwrite", (), (first,), head(lake, table)))
    assert live(lake, table) == [second]
    Engine.begin(lake, name_of(table)).commit(FileCommit("overwrite", (), (second,), head(lake, table)))
    assert live(lake, table) == []


@pytest.mark.nightly
def test_a_replace_says_that_no_row_changed(lake: Lake) -> None:
    table = make(lake)
    old = append_files(lake, name_of(table), 2)
    engine = Engine.begin(lake, name_of(table))
    new = engine.file(record_count=20)
    published = engine.commit(FileCommit("replace", (new,), tuple(old), head(lake, table)))
    assert published.metadata.current_snapshot().summary.operation.value == "replace"
    assert live(lake, table) == [new.path]


def test_statistics_arrive_as_they_were_given(lake: Lake) -> None:
    table = make(lake)
    given = {
        "column_sizes": {1: 40, 2: 50},
        "value_counts": {1: 10, 2: 10},
        "null_value_counts": {1: 0, 2: 3},
        "nan_value_counts": {},
        "lower_bounds": {1: to_bytes(LongType(), 1), 2: b"a"},
        "upper_bounds": {1: to_bytes(LongType(), 9), 2: b"z"},
        "split_offsets": [4, 400],
        "sort_order_id": 0,
    }
    append_files(lake, name_of(table), **given)
    loaded = now(lake, table)
    (manifest,) = loaded.current_snapshot().manifests(loaded.io)  # type: ignore[union-attr]
    (entry,) = manifest.fetch_manifest_entry(loaded.io)
    assert {name: getattr(entry.data_file, name) for name in given} == given
    assert entry.data_file.record_count == 10


def test_an_append_is_based_again_when_others_came_first(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    others = append_files(lake, name_of(table))
    mine = engine.file()
    engine.append(mine)
    assert live(lake, table) == sorted([*others, mine.path])


@pytest.mark.nightly
def test_an_overwrite_on_an_old_base_is_a_conflict(lake: Lake) -> None:
    table = make(lake)
    (old,) = append_files(lake, name_of(table))
    base = head(lake, table)
    engine = Engine.begin(lake, name_of(table))
    append_files(lake, name_of(table))
    for stale in (base, None, 12345):
        commit = FileCommit("overwrite", (engine.file(),), (old,), stale)
        refused(lake, table, CommitConflict, lambda commit=commit: engine.commit(commit))
    engine.commit(FileCommit("overwrite", (engine.file(),), (old,), head(lake, table)))


def test_a_file_that_is_not_in_the_table_cannot_be_removed(lake: Lake) -> None:
    table = make(lake)
    (old,) = append_files(lake, name_of(table))
    engine = Engine.begin(lake, name_of(table))
    missing = f"{old}.absent"
    commit = FileCommit("overwrite", (engine.file(),), (old, missing), head(lake, table))
    assert refused(lake, table, CommitConflict, lambda: engine.commit(commit)).path == missing


def test_an_append_removes_nothing(lake: Lake) -> None:
    table = make(lake)
    (old,) = append_files(lake, name_of(table))
    engine = Engine.begin(lake, name_of(table))
    refused(
        lake, table, RequestInvalid, lambda: engine.commit(FileCommit("append", (engine.file(),), (old,)))
    )


def test_files_lie_below_the_writes_own_directory(lake: Lake) -> None:
    table = make(lake)
    engine, other = Engine.begin(lake, name_of(table)), Engine.begin(lake, name_of(table))
    prefix = engine.session.prefix.canonical
    for path in (other.path(), f"{prefix}-sibling/a.parquet", prefix, f"{table.location()}/data/a.parquet"):
        error = refused(lake, table, LocationNotAllowed, lambda path=path: engine.append(engine.file(path)))
        assert error.rule == "write-prefix"
    for path in (f"{prefix}/../a.parquet", f"{prefix}/%2e%2e/a.parquet", "a.parquet"):
        refused(lake, table, LakewardenError, lambda path=path: engine.append(engine.file(path)))


@pytest.mark.parametrize("changes", [{"record_count": -1}, {"file_size_in_bytes": -1}], ids=str)
def test_negative_numbers_are_refused(lake: Lake, changes: dict[str, int]) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    refused(lake, table, RequestInvalid, lambda: engine.append(engine.file(**changes)))


def test_equality_deletes_are_not_committed(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    refused(
        lake, table, NotSupportedYet, lambda: engine.commit(FileCommit("delete", (engine.file(content=2),)))
    )


def test_a_file_is_added_once(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    file = engine.file()
    refused(lake, table, RequestInvalid, lambda: engine.append(file, file))


def test_the_data_directory_has_to_be_readable(lake: Lake) -> None:
    table = make(lake, properties={"write.data.path": "file:///somewhere/else"})
    with pytest.raises(LocationNotAllowed):
        Engine.begin(lake, name_of(table))


def test_a_branch_is_written_without_touching_main(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    snapshot = head(lake, table)
    assert snapshot is not None
    now(lake, table).manage_snapshots().create_branch(snapshot, "dev").commit()
    engine = Engine.begin(lake, name_of(table))
    engine.commit(FileCommit("append", (engine.file(),), branch="dev"))
    assert head(lake, table) == snapshot
    asked = ScanRequest(ref="dev")
    assert lake.services.planner.plan(lake.caller(ALICE), name_of(table), asked).files.num_rows == 2


@pytest.mark.nightly
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_branch_keeps_its_rules_of_retention(lake: Lake, branch: str) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    rules = {"min_snapshots_to_keep": 7, "max_snapshot_age_ms": 8_000_000, "max_ref_age_ms": 9_000_000}
    snapshots = now(lake, table).manage_snapshots()
    snapshots.create_branch(head(lake, table), branch, **rules).commit()
    before = now(lake, table).metadata.refs[branch]
    engine = Engine.begin(lake, name_of(table))
    engine.commit(FileCommit("append", (engine.file(),), branch=branch))
    after = now(lake, table).metadata.refs[branch]
    assert after.snapshot_id != before.snapshot_id
    assert after.model_dump(exclude={"snapshot_id"}) == before.model_dump(exclude={"snapshot_id"})
    assert rules.items() <= after.model_dump(by_alias=False).items()


def test_committing_a_write_again_is_one_commit(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    file = engine.file()
    first = engine.append(file)
    again = engine.append(file)
    assert again.metadata_location == first.metadata_location
    engine.append(engine.file())
    assert live(lake, table) == [file.path]


def test_an_aborted_write_leaves_nothing_and_is_over(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    path = Path(engine.path().removeprefix("file://"))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"data")
    lake.services.writes.abort(lake.caller(ALICE), engine.session.id)
    assert not path.exists()
    refused(lake, table, RequestInvalid, lambda: engine.append(engine.file()))
    lake.services.writes.abort(lake.caller(ALICE), engine.session.id)  # again, as after a lost answer
    refused(lake, table, RequestInvalid, lambda: engine.append(engine.file()))


def test_a_committed_write_cannot_be_aborted(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    file = engine.file()
    engine.append(file)
    with pytest.raises(RequestInvalid):
        lake.services.writes.abort(lake.caller(ALICE), engine.session.id)
    assert Path(file.path.removeprefix("file://")).exists()


def test_a_refused_commit_may_be_corrected(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    refused(lake, table, RequestInvalid, lambda: engine.append(engine.file(record_count=-1)))
    good = engine.file()
    engine.append(good)
    assert live(lake, table) == [good.path]


@pytest.mark.nightly
def test_expired_writes_are_cleaned_up_and_no_others(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        old, committed = Engine.begin(lake, name_of(table)), Engine.begin(lake, name_of(table))
        committed.append(committed.file())
        later = timedelta(seconds=lake.settings.write_ttl_s + 1)
        lake.services.close()
        lake.services = Services.open(lake.settings, lake.kms, lambda: datetime.now(UTC) + later)
        new = Engine.begin(lake, name_of(table))
        assert lake.services.writes.clean_up() == 1
        assert lake.services.writes.clean_up() == 0
        refused(lake, table, RequestInvalid, lambda: old.append(old.file()))
        new.append(new.file())
        assert len(live(lake, table)) == 2


def test_a_write_survives_the_process_that_began_it(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    engine = Engine.begin(lake, name_of(table))
    lake.reopen()
    engine.append(engine.file())
    assert len(live(lake, table)) == 1


def test_a_write_follows_a_renamed_table_and_not_a_name(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    renamed = lake.catalog().rename_table(table.name(), f"db.{table.name()[-1]}_renamed")
    make(lake, name_of(table), SCHEMA)
    engine.append(engine.file())
    assert len(live(lake, renamed)) == 1
    assert live(lake, table) == []


def test_a_dropped_tables_write_is_over(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    lake.catalog().drop_table(table.name())
    again = make(lake, name_of(table), SCHEMA)
    with pytest.raises(LakewardenError):
        engine.append(engine.file())
    assert live(lake, again) == []
