"""Old records move to storage, and what moved can still be checked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, select, text, update

from catalog.audit import archiving
from catalog.audit.archive import Archive
from catalog.audit.archiving import Archiver, Moved
from catalog.audit.checkpoints import Checkpointer, Signer
from catalog.audit.formats import record_line
from catalog.audit.prune import removed_before
from catalog.audit.stream import checkpoint_line
from catalog.audit.trail import AuditRecord, AuditTrail, read
from catalog.audit.verify import examine
from catalog.base.errors import CommitConflict
from catalog.db.engine import read as read_transaction
from catalog.db.engine import write
from catalog.db.schema import lw_audit, lw_audit_checkpoint
from catalog.service.audit_archive import ArchiveSchedule, archive_as, archive_due, archive_of
from catalog.service.audit_retention import prune_as
from catalog.settings.catalog import Settings
from policy.decision import Reason
from policy.errors import MetadataTampered, NotAuthorized, RequestInvalid
from tests.audit.archives import archive_in, objects_of, problems_of, recorded, times_of
from tests.support.lake import ALICE, BOB, open_lake

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_in(tmp_path / "archive")


def _copies(engine: Engine) -> list[str]:
    with read_transaction(engine) as connection:
        records = [record_line(row) for row in connection.execute(select(lw_audit)).mappings()]
        rows = connection.execute(select(lw_audit_checkpoint)).mappings()
        return records + [checkpoint_line(row) for row in rows]


@pytest.mark.nightly
def test_old_records_move_and_all_can_be_verified(
    any_engine: Engine, signer: Signer, archive: Archive
) -> None:
    recorded(any_engine, signer, range(50)).close()
    running = recorded(any_engine, signer, range(20, 120))
    copies = _copies(any_engine)
    archiver = Archiver(any_engine, archive, signer, max_records=40)
    assert archiver.move(60, "w", 1_000) == Moved(90, 3)
    assert times_of(any_engine) == list(range(60, 120))
    running.append([AuditRecord("ann", None, "table.load", "db.t", True, (Reason("r", "d"),), "q", 121)])
    assert archiver.move(100, "w", 1_000) == Moved(40, 1)
    assert archiver.move(100, "w", 1_000) == Moved(0, 0)
    running.close()
    assert archiver.move(10_000, "w", 1_000) == Moved(21, 1)
    assert problems_of(any_engine, signer, archive, *copies) == []
    verdict = examine(any_engine, public_keys=frozenset({signer.public_key}), archive=archive)
    assert (verdict.records, verdict.segments, verdict.archived) == (151, 5, 5)
    assert examine(any_engine).archived == 5


def test_a_segment_is_parquet_that_anyone_can_search(
    engine: Engine, signer: Signer, archive: Archive
) -> None:
    recorded(engine, signer, range(30)).close()
    before = [record_line(row) for row in _rows(engine)]
    Archiver(engine, archive, signer).move(10_000, "w", 1_000)
    table = pq.read_table(objects_of(archive, "parquet")[0])
    assert table.filter(table["principal"].to_numpy(zero_copy_only=False) == "ann").num_rows == 20
    with read_transaction(engine) as connection:
        archived = removed_before(connection).archived
    assert archived is not None
    note = archive.note(archived.last, archived.hash)
    assert [record_line(row) for row in archive.rows(note)] == before


def _rows(engine: Engine) -> list[dict[str, object]]:
    with read_transaction(engine) as connection:
        return [dict(each) for each in connection.execute(select(lw_audit)).mappings()]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _other_user(path: Path) -> None:
    table = pq.read_table(path)
    place = table.schema.get_field_index("principal")
    pq.write_table(table.set_column(place, table.schema.field(place), [["eve"] * table.num_rows]), path)


def _older_note(path: Path) -> None:
    note = json.loads(path.read_bytes())
    path.write_bytes(json.dumps({**note, "at_ms": 1}).encode())


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("ending", "attack"),
    [
        ("parquet", Path.unlink),
        ("parquet", _cut),
        ("parquet", _other_user),
        ("json", Path.unlink),
        ("json", _cut),
        ("json", _older_note),
    ],
)
def test_a_changed_object_in_the_archive_is_found(
    engine: Engine, signer: Signer, archive: Archive, number: int, ending: str, attack: Callable[[Path], None]
) -> None:
    """Attack: a writer of the storage edits or removes an object of any segment."""
    recorded(engine, signer, range(90)).close()
    Archiver(engine, archive, signer, max_records=30).move(10_000, "w", 1_000)
    assert problems_of(engine, signer, archive) == []
    attack(objects_of(archive, ending)[number])
    assert [each.split()[0] for each in problems_of(engine, signer, archive)] == ["archive"]


def test_segments_made_again_need_the_key(engine: Engine, signer: Signer, archive: Archive) -> None:
    """Attack: a writer of database and storage archives other records in place of the true ones."""
    recorded(engine, signer, range(30)).close()
    with write(engine) as connection:
        connection.execute(text("UPDATE lw_audit SET principal = 'eve' WHERE at_ms = 5"))
    with pytest.raises(MetadataTampered, match="does not match its content"):
        Archiver(engine, archive, signer).move(10_000, "w", 1_000)
    assert len(times_of(engine)) == 30
    with write(engine) as connection:
        connection.execute(update(lw_audit).where(lw_audit.c.at_ms == 5).values(principal="ann"))
    Archiver(engine, archive, None).move(10_000, "w", 1_000)
    assert {each.split()[0] for each in problems_of(engine, signer, archive)} == {"checkpoint", "archive"}


def test_records_whose_end_was_cut_are_not_archived(engine: Engine, signer: Signer, archive: Archive) -> None:
    """Attack: remove records that a checkpoint names, and let the archive confirm the rest."""
    trail = recorded(engine, signer, range(30))
    trail.close()
    Checkpointer(engine, signer, lambda: 1, 3600).make("w")
    with write(engine) as connection:
        connection.execute(text("DELETE FROM lw_audit WHERE at_ms >= 20"))
    with pytest.raises(MetadataTampered):
        Archiver(engine, archive, signer).move(15, "w", 1_000)
    assert times_of(engine) == list(range(20))


def test_a_move_that_dies_has_changed_nothing_or_is_completed(
    engine: Engine, signer: Signer, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(engine, signer, range(40)).close()
    archiver = Archiver(engine, archive, signer, max_records=30)

    def died(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(archiving, "remove", died)
        with pytest.raises(KeyboardInterrupt):
            archiver.move(20, "w", 1_000)
    assert len(times_of(engine)) == 40
    assert problems_of(engine, signer, archive) == []
    with monkeypatch.context() as patched:
        patched.setattr("catalog.audit.prune._remove", died)
        with pytest.raises(KeyboardInterrupt):
            archiver.move(20, "w", 1_000)
    assert len(times_of(engine)) == 40
    assert problems_of(engine, signer, archive) == []
    assert archiver.move(30, "w", 1_000) == Moved(10, 1)
    assert times_of(engine) == list(range(30, 40))
    assert problems_of(engine, signer, archive) == []


@pytest.mark.nightly
def test_of_two_that_archive_at_once_one_takes_effect(
    any_engine: Engine, signer: Signer, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(any_engine, signer, range(40)).close()
    real = archiving.remove

    def overtaken(*given: object, **named: object) -> int:
        monkeypatch.setattr(archiving, "remove", real)
        Archiver(any_engine, archive, signer).move(25, "v", 1_000)
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(archiving, "remove", overtaken)
    with pytest.raises(CommitConflict):
        Archiver(any_engine, archive, signer).move(20, "w", 1_000)
    assert times_of(any_engine) == list(range(25, 40))
    assert problems_of(any_engine, signer, archive) == []


@pytest.mark.nightly
def test_old_segments_go_and_the_rest_holds(engine: Engine, signer: Signer, archive: Archive) -> None:
    recorded(engine, signer, range(100)).close()
    copies = _copies(engine)
    archiver = Archiver(engine, archive, signer, max_records=20)
    archiver.move(80, "w", 1_000)
    assert archiver.drop(45, "w", 1_000) == 40
    assert problems_of(engine, signer, archive, *copies) == []
    assert len(objects_of(archive, "json")) == len(objects_of(archive, "parquet")) == 2
    assert archiver.drop(10_000, "w", 1_000) == 20
    archiver.move(90, "w", 1_000)
    assert problems_of(engine, signer, archive, *copies) == []
    assert examine(engine, archive=archive).records == 40


def test_the_archive_is_by_schedule_or_by_who_may(tmp_path: Path) -> None:
    with open_lake(tmp_path, AUDIT__ARCHIVE=f"file://{tmp_path}/archive") as lake:
        services = lake.services
        assert archive_due(services) == Moved(0, 0)
        with pytest.raises(NotAuthorized):
            archive_as(services, lake.caller(BOB))
        _age(services.engine)
        moved = archive_due(services)
        assert (tmp_path / "archive").stat().st_mode & 0o777 == 0o700
        assert moved.segments == 1
        latest = read(services.engine, limit=2)
        assert [each.record.action for each in latest] == ["audit.archive", "audit.archive"]
        assert [each.record.begun for each in latest] == [False, True]
        assert archive_as(services, lake.caller(ALICE)) == Moved(0, 0)
        # Young segments stay, and records do not leave the database any other way.
        with pytest.raises(RequestInvalid):
            prune_as(services, lake.caller(ALICE), services.now_ms() - DAY_MS, force=True)


def test_the_schedule_archives_and_says_when_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("catalog.service.audit_archive._SPREAD", 0.0)
    (tmp_path / "archive").write_text("a file where the directory should be")
    with open_lake(tmp_path, AUDIT__ARCHIVE=f"file://{tmp_path}/archive") as lake:
        _age(lake.services.engine)
        with closing(ArchiveSchedule(lake.services)):
            _until(lambda: "were not archived" in caplog.text)
            _until(lambda: lake.services.archive_state.is_failing)
        assert 1 in times_of(lake.services.engine)
        (tmp_path / "archive").unlink()
        with closing(ArchiveSchedule(lake.services)):
            _until(lambda: 1 not in times_of(lake.services.engine))
            _until(lambda: not lake.services.archive_state.is_failing)
        archive = archive_of(lake.services.settings, lake.services.storage)
        assert examine(lake.services.engine, archive=archive).problems == []


def test_the_schedule_outlives_a_fault_that_nobody_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a value of another type in the database, which ends the thread."""
    monkeypatch.setattr("catalog.service.audit_archive._SPREAD", 0.0)
    with open_lake(tmp_path, AUDIT__ARCHIVE=f"file://{tmp_path}/archive") as lake:
        _age(lake.services.engine)
        with write(lake.services.engine) as connection:
            connection.execute(text("UPDATE lw_audit SET decisions = x'ff' WHERE at_ms = 1"))
        with closing(ArchiveSchedule(lake.services)) as schedule:
            _until(lambda: lake.services.archive_state.is_failing)
            assert schedule.is_running


def test_records_of_a_log_with_an_archive_are_not_pruned_without_it(tmp_path: Path) -> None:
    """They would be missing between the archive and the database, and no verification would tell why."""
    with open_lake(tmp_path, AUDIT__ARCHIVE=f"file://{tmp_path}/archive") as lake:
        _age(lake.services.engine)
        assert archive_due(lake.services).records == 1
        settings = lake.services.settings
        without = settings.model_copy(update={"audit": settings.audit.model_copy(update={"archive": None})})
        before_ms = lake.services.now_ms() - 40 * DAY_MS
        with pytest.raises(RequestInvalid, match="is not set"):
            prune_as(replace(lake.services, settings=without), lake.caller(ALICE), before_ms, force=True)


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _age(engine: Engine) -> None:
    """Append records of a chain of long ago."""
    trail = AuditTrail(engine)
    trail.append([AuditRecord("ann", None, "table.load", "db.t", True, (Reason("r", "d"),), "q", 1)])
    trail.close()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"archive_after_days": 3}, "needs archive"),
        ({"archive": "{warehouse}/audit"}, "outside of the warehouse"),
        ({"archive": "{parent}"}, "outside of the warehouse"),
    ],
)
def test_an_archive_needs_a_place_of_its_own(
    tmp_path: Path, settings: dict[str, object], reason: str
) -> None:
    places = {"warehouse": f"file://{tmp_path}/warehouse", "parent": f"file://{tmp_path}"}
    audit = {
        name: value.format(**places) if isinstance(value, str) else value for name, value in settings.items()
    }
    file = tmp_path / "lakewarden.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in audit.items()]
    file.write_text(f'warehouse = "{places["warehouse"]}"\n[audit]\n' + "\n".join(lines))
    with pytest.raises(RequestInvalid, match=reason):
        Settings.load(file, {})
