"""Records that moved to the archive are found in their period, verified, and none is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.audit import reading
from catalog.audit.archive import Archive
from catalog.audit.archiving import Archiver
from catalog.audit.checkpoints import Signer
from catalog.audit.history import History
from catalog.audit.reading import StoredRecord
from policy.errors import MetadataTampered, RequestInvalid
from tests.audit.archives import archive_in, objects_of, recorded


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_in(tmp_path / "archive")


@pytest.fixture
def history(engine: Engine, signer: Signer, archive: Archive) -> Iterator[History]:
    """Two chains at the same times, whose first part is in segments, in the order of writers."""
    for _ in range(2):
        recorded(engine, signer, range(0, 100)).close()
    archiver = Archiver(engine, archive, signer, max_records=30)
    archiver.move(30, "w", 50)
    archiver.move(60, "w", 90)
    yield History(engine, archive, lambda done, total: None)


def _times(found: list[StoredRecord]) -> list[int]:
    return [each.record.at_ms for each in found]


@pytest.mark.parametrize(("since", "limit"), [(0, 1_000), (20, 1_000), (45, 1_000), (70, 1_000), (0, 130)])
def test_the_latest_are_those_of_the_whole_log(history: History, since: int, limit: int) -> None:
    expected = sorted([*range(since, 100)] * 2, reverse=True)[:limit]
    assert _times(history.latest(since, None, None, limit)) == expected


def test_filters_are_those_of_the_database(history: History) -> None:
    assert _times(history.latest(0, "ann", "db.t", 1_000)) == sorted(
        [each for each in range(100) if each % 3] * 2, reverse=True
    )
    assert _times(history.latest(0, None, None, 1_000, refusals=True)) == sorted(
        [each for each in range(100) if each % 3 == 0] * 2, reverse=True
    )
    assert history.latest(0, "bob", None, 1_000) == history.latest(0, None, "db.u", 1_000) == []


def test_an_export_has_each_record_once(history: History) -> None:
    rows = list(history.rows_up_to(reading.ends(history.engine), 10))
    assert sorted(int(str(row["at_ms"])) for row in rows) == sorted([*range(10, 100)] * 2)


def test_an_export_has_the_records_that_move_meanwhile(
    history: History, signer: Signer, archive: Archive
) -> None:
    rows = history.rows_up_to(reading.ends(history.engine), 0)
    found = [next(rows)]
    Archiver(history.engine, archive, signer).move(1_000, "w", 2_000)
    found += rows
    assert sorted(int(str(row["at_ms"])) for row in found) == sorted([*range(100)] * 2)


def test_segments_of_other_periods_are_not_read(history: History, archive: Archive) -> None:
    for each in objects_of(archive, "parquet"):
        each.unlink()
    for each in objects_of(archive, "json")[:2]:
        each.unlink()
    assert _times(history.latest(60, None, None, 1_000)) == sorted([*range(60, 100)] * 2, reverse=True)


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_what_was_edited_is_not_shown(history: History, archive: Archive, ending: str) -> None:
    """Attack: a writer of the storage changes what `audit show` says about an old period."""
    for each in objects_of(archive, ending):
        each.write_bytes(each.read_bytes()[:-1])
    with pytest.raises(MetadataTampered):
        history.latest(0, None, None, 1_000)
    with pytest.raises(MetadataTampered):
        list(history.rows_up_to(reading.ends(history.engine), 0))


def test_a_period_in_an_archive_that_is_not_configured_is_not_shown_in_part(history: History) -> None:
    without = History(history.engine, None, lambda done, total: None)
    with pytest.raises(RequestInvalid, match="is not set"):
        without.latest(0, None, None, 10)
    assert len(without.latest(60, None, None, 1_000)) == 80
