"""Attacks on the archive of the audit log, and accidents: no record is lost, no verification misled."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.audit import archiving
from catalog.audit.archive import Archive
from catalog.audit.archiving import Archiver, Moved
from catalog.audit.checkpoints import Signer
from catalog.audit.formats import record_line
from catalog.audit.prune import removed_before
from catalog.audit.reading import all_rows
from catalog.audit.records import chained
from catalog.audit.segments import Note, make_segment
from catalog.audit.verify import examine
from catalog.base.errors import CommitConflict
from catalog.db.engine import open_database, write
from catalog.db.engine import read as read_transaction
from catalog.db.schema import lw_audit, lw_audit_chain, lw_audit_checkpoint
from catalog.storage.local import LocalStorage
from policy.errors import MetadataTampered, StorageUnavailable
from policy.location.location import Location
from tests.audit.archives import archive_in, objects_of, problems_of, recorded, times_of
from tests.support.databases import upgrade


class Killed(BaseException):
    """The process is killed."""


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_in(tmp_path / "archive")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Engine]:
    """The database of another catalog."""
    engine = open_database(f"sqlite:///{tmp_path}/other.db")
    upgrade(engine)
    yield engine
    engine.dispose()


class Dying(LocalStorage):
    """A storage in whose hands the process is killed at a step, within the object that it writes."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.left = step

    def create(self, location: Location, data: bytes) -> None:
        self.left -= 1
        if self.left < 0:
            super().create(location, data[: len(data) // 2])
            raise Killed
        super().create(location, data)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("step", range(6))
def test_a_process_killed_while_it_writes_a_segment_is_in_nobodys_way(
    engine: Engine, signer: Signer, archive: Archive, step: int
) -> None:
    """Half of an object stays, and records of the same content are archived once more."""
    recorded(engine, signer, range(60)).close()
    dying = Archive(Dying(step), archive.location)
    with pytest.raises(Killed):
        Archiver(engine, dying, signer, max_records=20).move(100, "w", 1_000)
    # What was archived before stays archived.
    assert times_of(engine) == list(range(20 * (step // 2), 60))
    assert problems_of(engine, signer, archive) == []
    moved = Archiver(engine, archive, signer, max_records=20).move(100, "w", 1_000)
    assert (moved.records, times_of(engine)) == (60 - 20 * (step // 2), [])
    assert problems_of(engine, signer, archive) == []
    assert examine(engine, archive=archive).records == 60


class Failing(LocalStorage):
    """A storage that fails after it has stored an object of a kind: the answer is late, or lost."""

    def __init__(self, ending: str) -> None:
        super().__init__()
        self._ending = ending

    def create(self, location: Location, data: bytes) -> None:
        super().create(location, data)
        if location.name.endswith(self._ending):
            raise StorageUnavailable("The storage does not answer.", rule="storage")


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_move_that_fails_leaves_nothing_in_storage(
    engine: Engine, signer: Signer, archive: Archive, ending: str
) -> None:
    """Else each look would store the same records once more, for as long as the fault lasts."""
    recorded(engine, signer, range(30)).close()
    with pytest.raises(StorageUnavailable):
        Archiver(engine, Archive(Failing(ending), archive.location), signer).move(100, "w", 1_000)
    assert objects_of(archive, "parquet") == objects_of(archive, "json") == []
    assert times_of(engine) == list(range(30))


def test_a_move_that_is_overtaken_leaves_nothing_in_storage(
    engine: Engine, signer: Signer, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(engine, signer, range(30)).close()
    real = archiving.remove

    def overtaken(*given: object, **named: object) -> int:
        monkeypatch.setattr(archiving, "remove", real)
        Archiver(engine, archive, signer).move(100, "v", 1_000)
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(archiving, "remove", overtaken)
    with pytest.raises(CommitConflict):
        Archiver(engine, archive, signer).move(100, "w", 1_000)
    assert len(objects_of(archive, "parquet")) == len(objects_of(archive, "json")) == 1
    assert problems_of(engine, signer, archive) == []


def test_an_archive_of_other_records_is_found_by_copies_without_a_key(
    engine: Engine, signer: Signer, archive: Archive
) -> None:
    """Attack: change records, compute their chain again, and let archive and checkpoints confirm it."""
    recorded(engine, signer, range(10)).close()
    copies = [record_line(row) for row in all_rows(engine)]
    forged, before = [], "0" * 64
    for row in all_rows(engine):
        (made,) = chained(
            [{**row, "principal": "eve"}], str(row["writer"]), int(str(row["sequence"])) - 1, before
        )
        before = str(made["hash"])
        forged.append(made)
    with write(engine) as connection:
        for each in (lw_audit, lw_audit_checkpoint):
            connection.execute(each.delete())
        connection.execute(lw_audit.insert(), forged)
        connection.execute(lw_audit_chain.update().values(hash=before))
    Archiver(engine, archive, None).move(100, "w", 1_000)
    assert examine(engine, archive=archive).problems == []
    found = examine(engine, archive=archive, evidence=copies).problems
    assert {each.sequence for each in found if "copy elsewhere" in each.detail} == set(range(1, 11))


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_a_link_in_place_of_an_object_is_a_problem_of_the_archive(
    engine: Engine, signer: Signer, archive: Archive, tmp_path: Path, ending: str
) -> None:
    """Attack: end the verification with an error, so that it lists no other problem."""
    recorded(engine, signer, range(30)).close()
    Archiver(engine, archive, signer, max_records=10).move(100, "w", 1_000)
    objects_of(archive, "parquet")[2].unlink()
    first = objects_of(archive, ending)[0]
    first.rename(tmp_path / first.name)
    first.symlink_to(tmp_path / first.name)
    found = problems_of(engine, signer, archive)
    assert [each.split()[0] for each in found] == ["archive", "archive"]
    assert any("not a plain object" in each for each in found)


def test_nothing_is_archived_where_the_last_segment_is_missing(
    engine: Engine, signer: Signer, archive: Archive, tmp_path: Path
) -> None:
    """A file system that is not mounted, an archive put back to an older state, another location."""
    recorded(engine, signer, range(40)).close()
    archiver = Archiver(engine, archive, signer)
    archiver.move(20, "w", 1_000)
    shutil.move(tmp_path / "archive", tmp_path / "away")
    (tmp_path / "archive").mkdir()
    with pytest.raises(MetadataTampered, match="is missing"):
        archiver.move(30, "w", 1_000)
    assert times_of(engine) == list(range(20, 40))
    (tmp_path / "archive").rmdir()
    shutil.move(tmp_path / "away", tmp_path / "archive")
    assert archiver.move(30, "w", 1_000) == Moved(10, 1)
    assert problems_of(engine, signer, archive) == []


def test_pruning_removes_no_segment_of_another_catalog(
    engine: Engine, other: Engine, signer: Signer, archive: Archive
) -> None:
    """Two catalogs were given one location."""
    for each in (engine, other):
        recorded(each, signer, range(30)).close()
        Archiver(each, archive, signer, max_records=10).move(100, "w", 1_000)
    assert Archiver(other, archive, signer).drop(1_000, "w", 1_000) == 20
    assert problems_of(engine, signer, archive) == []
    assert problems_of(other, signer, archive) == []
    assert len(objects_of(archive, "parquet")) == len(objects_of(archive, "json")) == 3 + 1


def test_an_interrupted_removal_of_segments_is_completed(
    engine: Engine, signer: Signer, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(engine, signer, range(50)).close()
    Archiver(engine, archive, signer, max_records=10).move(100, "w", 1_000)
    real, deleted = LocalStorage.delete, 0

    def die_later(self: LocalStorage, location: Location) -> None:
        nonlocal deleted
        deleted += 1
        if deleted > 3:
            raise Killed
        real(self, location)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "delete", die_later)
        with pytest.raises(Killed):
            Archiver(engine, archive, signer).drop(1_000, "w", 1_000)
    assert problems_of(engine, signer, archive) == []
    Archiver(engine, archive, signer).drop(1_000, "w", 1_000)
    assert len(objects_of(archive, "parquet")) == len(objects_of(archive, "json")) == 1


@pytest.mark.parametrize("field", ["public_key", "signature"])
def test_a_note_with_fields_of_other_types_is_none(engine: Engine, signer: Signer, field: str) -> None:
    """Attack: end the verification with an error that nobody expects."""
    recorded(engine, signer, range(3)).close()
    note, _ = make_segment(1, "0" * 64, 1, list(all_rows(engine)), None)
    with pytest.raises(ValueError, match="not the note"):
        Note.parse(replace(note, **{field: ["x"]}).to_bytes())


def test_a_file_whose_note_is_not_signed_is_not_parsed(
    engine: Engine, signer: Signer, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a writer of database and storage has the verification parse a file that fills the memory."""
    recorded(engine, signer, range(30)).close()
    Archiver(engine, archive, None).move(100, "w", 1_000)

    def parsed(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Archive, "rows", parsed)
    assert any("not signed" in each for each in problems_of(engine, signer, archive))


def test_a_file_with_more_records_than_its_note_says_is_not_read(
    engine: Engine, signer: Signer, archive: Archive
) -> None:
    recorded(engine, signer, range(10)).close()
    note, data = make_segment(1, "0" * 64, 1, list(all_rows(engine)), signer)
    few = replace(note, records=1)
    archive.put(few, data)
    with pytest.raises(MetadataTampered, match="number of records"):
        archive.rows(few)


def test_times_of_notes_never_go_back(engine: Engine, signer: Signer, archive: Archive) -> None:
    """A clock that was put back."""
    recorded(engine, signer, range(40)).close()
    archiver = Archiver(engine, archive, signer)
    archiver.move(20, "w", 5_000)
    archiver.move(30, "w", 1_000)
    with read_transaction(engine) as connection:
        archived = removed_before(connection).archived
    assert archived is not None
    assert [note.at_ms for note in archive.notes(archived)] == [5_000, 5_000]
    assert problems_of(engine, signer, archive) == []


@pytest.mark.parametrize("attack", [shutil.rmtree, lambda path: path.rename(path.with_name("away"))])
def test_an_archive_that_is_away_is_never_good(
    engine: Engine, signer: Signer, archive: Archive, tmp_path: Path, attack: Callable[[Path], None]
) -> None:
    recorded(engine, signer, range(10)).close()
    Archiver(engine, archive, signer).move(100, "w", 1_000)
    # A log with an archive that is not configured is not good either.
    assert [each.kind for each in examine(engine).problems] == ["archive"]
    attack(tmp_path / "archive")
    assert [each.split()[0] for each in problems_of(engine, signer, archive)] == ["archive"]
