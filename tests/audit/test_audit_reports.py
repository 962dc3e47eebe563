"""Counts of audit records: every decision once, counted refusals and the archive among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from catalog.audit import reading, tallies
from catalog.audit.archiving import Archiver
from catalog.audit.checkpoints import Signer
from catalog.audit.history import History
from catalog.audit.trail import AuditRecord, AuditTrail
from catalog.reports import audited
from catalog.reports.audited import FIELDS, SEVERAL, Counting, audited_report
from policy.decision import Reason
from tests.audit.archives import archive_in, recorded

Json = dict[str, Any]
REFUSAL = AuditRecord(
    "bob", "spark", "table.load", "db.t", False, (Reason("policy-no-match", "No."),), "r", 1
)
BEGINNING = datetime.fromtimestamp(0, UTC)
LATER = datetime.fromtimestamp(10_000, UTC)


def counted(history: History, *by: str, refused: bool = True, **more: Any) -> Json:
    counting = Counting(BEGINNING, LATER, by, refused, **{"top": 1_000, **more})
    return dict(audited_report(history, counting).document)


def log_of(engine: Engine, records: Sequence[AuditRecord]) -> History:
    trail = AuditTrail(engine)
    for each in records:
        trail.append([each])
    trail.close()
    return History(engine, None, lambda done, total: None)


def amounts(document: Json, *fields: str) -> dict[tuple[str, ...], int]:
    return {tuple(each[name] for name in fields): each["decisions"] for each in document["counts"]}


def test_repeated_refusals_are_counted_with_their_first_and_last_time(engine: Engine) -> None:
    history = log_of(
        engine,
        [
            *(replace(REFUSAL, at_ms=at_ms) for at_ms in range(2_000, 52_000, 1_000)),
            replace(REFUSAL, principal="eve", resource="db.u", at_ms=9_000),
            replace(REFUSAL, allowed=True, at_ms=9_000),
        ],
    )
    document = counted(history, "user", "table", "rule")
    assert document["decisions"] == 51
    assert amounts(document, "user", "table", "rule") == {
        ("bob", "db.t", "policy-no-match"): 50,
        ("eve", "db.u", "policy-no-match"): 1,
    }
    bobs = document["counts"][0]
    assert (bobs["first"], bobs["last"]) == ("1970-01-01T00:00:02+00:00", "1970-01-01T00:00:51+00:00")
    assert counted(history, "answer", refused=False)["decisions"] == 52


def test_what_a_count_names_of_one_refusal_alone_is_not_said_of_all(engine: Engine) -> None:
    """Attack: hide what was tried on many tables in the count of one of them."""
    history = log_of(engine, [replace(REFUSAL, resource=f"db.t{number}") for number in range(1_000)])
    document = counted(history, "table")
    assert document["decisions"] == 1_000
    several = 1_000 - tallies.DISTINCT - 1
    assert document["counts"][0] == {"table": SEVERAL, "decisions": several, **times(document)}
    assert all(each["decisions"] == 1 for each in document["counts"][1:])


def times(document: Json) -> Json:
    return {name: document["counts"][0][name] for name in ("first", "last")}


def test_counts_of_many_actions_and_rules_name_none_of_them(engine: Engine) -> None:
    made = [replace(REFUSAL, action=f"a{n}", reasons=(Reason(f"rule-{n}", "No."),)) for n in range(200)]
    document = counted(log_of(engine, made), "action", "rule")
    found = amounts(document, "action", "rule")
    assert document["decisions"] == 200
    assert found.pop((SEVERAL, SEVERAL)) > 1
    assert set(found.values()) == {1} and all(action[1:] == rule[5:] for action, rule in found)


def test_refusals_of_all_users_together_are_counted_by_action_and_rule(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tallies, "USERS", 0)
    made = [replace(REFUSAL, principal=f"u{n}", action=("a", "b")[n % 2]) for n in range(30)]
    document = counted(log_of(engine, made), "user", "action", "table")
    assert amounts(document, "user", "action", "table") == {
        (SEVERAL, "a", SEVERAL): 15,
        (SEVERAL, "b", SEVERAL): 15,
    }


def test_an_edited_count_of_all_users_is_not_counted_as_less() -> None:
    reasons = (Reason("counted", "40 refusals"), Reason("r", "3 of a; some users: x"))
    record = AuditRecord("", None, "audit.counted", "*", False, reasons, "", 1, decisions=40)
    assert tallies.counted_together(record) == [record]


def test_records_of_the_archive_count_and_one_that_moves_meanwhile_counts_once(
    engine: Engine, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_in(tmp_path / "archive")
    recorded(engine, signer, range(0, 100)).close()
    archiver = Archiver(engine, archive, signer, max_records=30)
    archiver.move(30, "w", 50)
    history = History(engine, archive, lambda done, total: None)
    before = counted(history, "user", refused=False)
    assert before["decisions"] == 100 and before["counts"][0]["first"] == "1970-01-01T00:00:00+00:00"

    def ends_then_moves(database: Engine) -> dict[str, int]:
        found = reading.ends(database)
        real = reading.rows_up_to

        def rows(*given: Any) -> Any:
            yield from real(*given)
            archiver.move(1_000, "w", 2_000)

        monkeypatch.setattr(reading, "rows_up_to", rows)
        return found

    monkeypatch.setattr(audited, "ends", ends_then_moves)
    assert counted(history, "user", refused=False) == before


def test_records_of_the_archive_count_for_the_bound_of_a_page(
    engine: Engine, signer: Signer, tmp_path: Path
) -> None:
    """Attack: a page that is bounded by the records of the database reads an archive of any size."""
    archive = archive_in(tmp_path / "archive")
    recorded(engine, signer, range(0, 100)).close()
    Archiver(engine, archive, signer, max_records=30).move(50, "w", 60)
    history = History(engine, archive, lambda done, total: None)
    assert reading.count_since(engine, 0, 1_000) < 100 <= history.count_since(0, 1_000)
    assert history.count_since(1_000_000, 1_000) == 0


def test_the_rest_of_the_largest_counts_is_counted_too(engine: Engine) -> None:
    history = log_of(engine, [replace(REFUSAL, resource=f"db.t{number}") for number in range(10)])
    document = counted(history, "table", top=3)
    assert len(document["counts"]) == 3
    assert document["not-shown"] == {"rows": 7, "decisions": 7}


def test_a_time_line_has_hours_without_refusals(engine: Engine) -> None:
    hour = 3_600_000
    made = [replace(REFUSAL, resource=f"db.t{n}", at_ms=at_ms) for n, at_ms in enumerate((0, 1, 2 * hour))]
    assert list(counted(log_of(engine, made), "user")["time-line"].items()) == [
        ("1970-01-01 00:00", 2),
        ("1970-01-01 01:00", 0),
        ("1970-01-01 02:00", 1),
    ]


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_can_be_counted_by(engine: Engine, field: str) -> None:
    document = counted(log_of(engine, [REFUSAL]), field)
    assert document["counts"][0]["decisions"] == 1
