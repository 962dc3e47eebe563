"""Lines of JSON elsewhere: nothing is missed, nothing waits for them, and no name can disturb a reader."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, select, update

from catalog.audit.checkpoints import Checkpointer
from catalog.audit.formats import record_line
from catalog.audit.reading import ends, rows_up_to
from catalog.audit.records import record_hash
from catalog.audit.stream import Exports, LineFile, NewRecords
from catalog.audit.trail import AuditRecord, AuditTrail
from catalog.audit.trail import read as read_trail
from catalog.audit.verify import examine
from catalog.db.engine import read, write
from catalog.db.schema import lw_audit
from policy.decision import Reason


def _record(at_ms: int = 1, principal: str = "ann", detail: str = "d") -> AuditRecord:
    return AuditRecord(principal, None, "table.load", "db.t", True, (Reason("r", detail),), "q", at_ms)


def _row(engine: Engine) -> dict[str, object]:
    with read(engine) as connection:
        return dict(connection.execute(select(lw_audit)).mappings().one())


def _keys(lines: list[str]) -> list[tuple[str, int]]:
    return [(each["writer"], each["sequence"]) for each in map(json.loads, lines)]


def test_a_line_holds_what_was_hashed(engine: Engine) -> None:
    trail = AuditTrail(engine)
    trail.append([_record(at_ms=1_795_181_714_211, principal="müller")])
    trail.close()
    fields = json.loads(record_line(_row(engine)))
    assert fields["at"] == "2026-11-20T13:35:14.211+00:00"
    fields["reasons"] = json.dumps(fields["reasons"], sort_keys=True, separators=(",", ":"))
    assert record_hash(fields) == fields["hash"]


def test_control_characters_of_a_name_do_not_reach_a_terminal(engine: Engine) -> None:
    """Attack: a name that drives the terminal or begins a line, in the trail or put into the table itself."""
    trail = AuditTrail(engine)
    trail.append([_record(principal="eve\x1b[2J\n{}", detail="\x9b31m\u202e")])
    trail.close()
    row = _row(engine) | {"sequence": 2, "principal": "raw\x1b]0;\x07\n\u2028"}
    with write(engine) as connection:
        connection.execute(insert(lw_audit).values(**row))
    lines = [record_line(row) for row in rows_up_to(engine, {str(row["writer"]): 2}, 0)]
    assert len(lines) == 2
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_secrets_are_in_no_line(engine: Engine) -> None:
    token = "lw_" + "0" * 32 + "_" + "s" * 43
    trail = AuditTrail(engine)
    trail.append([_record(principal=token, detail=f"s3://AKIA:sss@b/{token}")])
    trail.close()
    assert "sss" not in record_line(_row(engine))


def test_who_follows_misses_nothing_and_has_nothing_twice(any_engine: Engine) -> None:
    """Clocks that go back and writers that take turns do not matter."""
    trails = [AuditTrail(any_engine) for _ in range(3)]
    coming = NewRecords(any_engine)
    seen: list[tuple[str, int]] = []
    for number in range(30):
        trails[number % 3].append([_record(at_ms=1_000 - number)] * (number % 4 + 1))
        if number % 5 == 0:
            while lines := coming.lines():
                assert lines == coming.lines()
                coming.taken()
                seen += _keys(lines)
    while lines := coming.lines():
        coming.taken()
        seen += _keys(lines)
    for trail in trails:
        trail.close()
    assert sorted(seen) == sorted(
        (writer, at) for writer, end in ends(any_engine).items() for at in range(1, end + 1)
    )


def test_what_is_printed_at_first_and_what_is_followed_meet(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.audit.reading._PAGE", 3)
    trail = AuditTrail(engine)
    trail.append([_record(at_ms=number // 4) for number in range(20)])
    numbers = ends(engine)
    trail.append([_record(at_ms=0)])
    first = [int(str(row["sequence"])) for row in rows_up_to(engine, numbers, 0)]
    late = [int(str(row["sequence"])) for row in rows_up_to(engine, numbers, 3)]
    coming = NewRecords(engine, numbers)
    following = _keys(coming.lines())
    trail.close()
    assert sorted(first) == list(range(1, 21))
    assert sorted(late) == list(range(13, 21))
    assert following == [(trail.writer_id, 21)]


def _exports(engine: Engine, monkeypatch: pytest.MonkeyPatch, *paths: Path | None) -> Exports:
    monkeypatch.setattr("catalog.audit.stream._LOOK_S", 0.01)
    return Exports(engine, *paths)


def test_the_files_of_a_service_hold_records_and_checkpoints(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, checkpoints = tmp_path / "records.jsonl", tmp_path / "checkpoints.jsonl"
    before = AuditTrail(engine)
    before.append([_record(principal="before")])
    before.close()
    exports = _exports(engine, monkeypatch, records, checkpoints)
    trail = AuditTrail(engine, checkpointer=Checkpointer(engine, None, lambda: 1, 3600))
    trail.append([_record(number) for number in range(250)])
    trail.close()
    exports.close()
    assert _keys(records.read_text().splitlines()) == [(trail.writer_id, number) for number in range(1, 251)]
    assert records.stat().st_mode & 0o777 == 0o600
    evidence = [*records.read_text().splitlines(), *checkpoints.read_text().splitlines()]
    verdict = examine(engine, evidence=evidence)
    assert (verdict.problems, verdict.unreadable) == ([], 0)
    assert verdict.evidence >= 251


def test_a_file_that_was_rotated_or_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    file = LineFile(path)
    file.append(["1"])
    path.rename(tmp_path / "records.jsonl.1")
    file.append(["2"])
    path.unlink()
    file.append(["3", "4"])
    file.close()
    assert (tmp_path / "records.jsonl.1").read_text() == "1\n"
    assert path.read_text() == "3\n4\n"


def test_a_full_disk_loses_nothing_and_stops_nobody(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "records.jsonl"
    path.symlink_to("/dev/full")
    exports = _exports(engine, monkeypatch, path, None)
    trail = AuditTrail(engine)
    with caplog.at_level(logging.ERROR):
        for number in range(20):
            trail.append([_record(number)])
        while not caplog.records:
            pass
    assert "No space left" in caplog.text
    path.unlink()
    trail.append([_record(20)])
    trail.close()
    exports.close()
    assert [number for _, number in _keys(path.read_text().splitlines())] == list(range(1, 22))
    assert len(caplog.records) == 1


def test_a_torn_line_is_ended_and_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    file = LineFile(path)
    real = os.write
    room = [7]

    def full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = real(descriptor, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr("catalog.audit.stream.os.write", full)
    with pytest.raises(OSError, match="No space left"):
        file.append(["1111", "2222"])
    room[0] = 100
    file.append(["1111", "2222"])
    file.close()
    assert path.read_text().splitlines() == ["1111", "22", "1111", "2222"]


def test_a_pipe_that_nobody_reads_stops_nobody(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    exports = _exports(engine, monkeypatch, tmp_path / "pipe", None)
    trail = AuditTrail(engine)
    trail.append([_record(number) for number in range(2_000)])
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    trail.append([_record()])
    trail.close()
    exports.close()
    os.close(reader)
    assert not exports._thread.is_alive()
    assert ends(engine)[trail.writer_id] == 2_001


@pytest.mark.parametrize(
    "change", [{"reasons": "x"}, {"reasons": "[]"}, {"reasons": "[" * 10_000}, {"at_ms": 2**62}]
)
def test_a_record_that_was_edited_keeps_no_other_from_being_read(
    engine: Engine, change: dict[str, object]
) -> None:
    """Attack: make one's own record unreadable, so that nothing newer is shown or copied."""
    trail = AuditTrail(engine)
    trail.append([_record(), _record(2, "bob")])
    trail.close()
    with write(engine) as connection:
        connection.execute(update(lw_audit).where(lw_audit.c.sequence == 1).values(**change))
    assert {found.record.principal for found in read_trail(engine)} == {"ann", "bob"}
    lines = [record_line(row) for row in rows_up_to(engine, ends(engine), 0)]
    assert {json.loads(line)["principal"] for line in lines} == {"ann", "bob"}
