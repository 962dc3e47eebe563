"""What the chain shows, what a record may carry, and how the trail is searched."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine, delete, select, text, update

from catalog.audit import reading as audit_reading
from catalog.audit.records import GENESIS, record_hash
from catalog.audit.trail import AuditRecord, AuditTrail, read, verify
from catalog.base.clean_text import clean
from catalog.db.engine import read as read_transaction
from catalog.db.engine import write
from catalog.db.schema import lw_audit
from policy.decision import Reason

_TOKEN = "lw_" + "0" * 32 + "_" + "s" * 43


def _record(**changes: object) -> AuditRecord:
    fields: dict[str, object] = {
        "principal": "ann",
        "engine": None,
        "action": "table-load",
        "resource": "db.t",
        "allowed": False,
        "reasons": (Reason("policy-deny", "Policy p denies it."),),
        "request_id": "request-1",
        "at_ms": 1,
    }
    return AuditRecord(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def chain(engine: Engine) -> str:
    """Ten records of one writer; its id."""
    trail = AuditTrail(engine)
    trail.append([_record(at_ms=number) for number in range(10)])
    trail.close()
    return trail.writer_id


def _kinds(engine: Engine) -> list[tuple[int, str]]:
    return [(problem.sequence, problem.kind) for problem in verify(engine)]


@pytest.mark.parametrize(
    "change",
    [
        {"at_ms": 77},
        {"principal": "bob"},
        {"engine": "spark"},
        {"action": "table-drop"},
        {"resource": "db.other"},
        {"allowed": True},
        {"reasons": "[]"},
        {"request_id": "other"},
        {"previous_hash": GENESIS},
        {"hash": GENESIS},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_edited_field_is_found(engine: Engine, chain: str, change: dict[str, object]) -> None:
    with write(engine) as connection:
        connection.execute(update(lw_audit).where(lw_audit.c.sequence == 5).values(**change))
    assert (5, "edited") in _kinds(engine)


def test_a_record_deleted_from_the_middle_is_found(engine: Engine, chain: str) -> None:
    with write(engine) as connection:
        connection.execute(delete(lw_audit).where(lw_audit.c.sequence.in_([4, 5])))
    assert _kinds(engine) == [(6, "missing")]


def test_a_first_record_deleted_is_found(engine: Engine, chain: str) -> None:
    with write(engine) as connection:
        connection.execute(delete(lw_audit).where(lw_audit.c.sequence == 1))
    assert _kinds(engine) == [(2, "missing")]


def test_records_that_changed_places_are_found(engine: Engine, chain: str) -> None:
    with write(engine) as connection:
        for old, new in ((4, 99), (5, 4), (99, 5)):
            connection.execute(update(lw_audit).where(lw_audit.c.sequence == old).values(sequence=new))
    assert {4, 5} <= {sequence for sequence, _ in _kinds(engine)}


def test_a_record_replaced_by_one_with_a_right_hash_of_its_own_is_found(engine: Engine, chain: str) -> None:
    with write(engine) as connection:
        row = connection.execute(select(lw_audit).where(lw_audit.c.sequence == 5)).mappings().one()
        forged = {**row, "allowed": True}
        connection.execute(
            update(lw_audit).where(lw_audit.c.sequence == 5).values(allowed=True, hash=record_hash(forged))
        )
    assert _kinds(engine) == [(6, "unlinked")]


def test_a_record_moved_to_another_writer_is_found(engine: Engine, chain: str) -> None:
    with write(engine) as connection:
        connection.execute(update(lw_audit).where(lw_audit.c.sequence == 10).values(writer="zz", sequence=1))
    assert _kinds(engine) == [(1, "edited"), (10, "truncated"), (1, "missing")]


def test_chains_longer_than_a_page_are_checked_whole(
    engine: Engine, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_reading, "_PAGE", 3)
    other = AuditTrail(engine)
    other.append([_record(at_ms=number) for number in range(10)])
    other.close()
    assert verify(engine) == []
    with write(engine) as connection:
        connection.execute(text("UPDATE lw_audit SET principal = 'x' WHERE sequence = 10"))
    assert _kinds(engine) == [(10, "edited"), (10, "edited")]


def test_reading_filters_and_answers_the_newest_first(engine: Engine) -> None:
    trail = AuditTrail(engine)
    trail.append(
        [
            _record(at_ms=1),
            _record(at_ms=2, principal="bob"),
            _record(at_ms=3, resource="db.t10"),
            _record(at_ms=4, principal="a\nb"),
        ]
    )
    trail.close()

    def times(**filters: object) -> list[int]:
        return [found.record.at_ms for found in read(engine, **filters)]  # type: ignore[arg-type]

    assert times() == [4, 3, 2, 1]
    assert times(since_ms=3) == [4, 3]
    assert times(principal="bob") == [2]
    assert times(principal="a\nb") == [4]
    assert times(table="db.t") == [4, 2, 1]
    assert times(limit=2) == [4, 3]


def test_line_breaks_and_control_characters_cannot_forge_a_line(engine: Engine) -> None:
    trail = AuditTrail(engine)
    reason = Reason("r\n", "first\r\nsecond\u2028\u202e\x1b[2J\x00", "p\n", "i\n")
    trail.append([_record(principal="eve\nann allowed", resource="a\tb\ud800", reasons=(reason,))])
    trail.close()
    (found,) = read(engine)
    assert found.record.principal == "eve\\nann allowed"
    assert found.record.resource == "a\\tb\\ud800"
    assert found.record.reasons[0].detail == "first\\r\\nsecond\\u2028\\u202e\\u001b[2J\\u0000"
    assert verify(engine) == []


def test_names_stay_readable_in_every_script() -> None:
    assert clean("müller/データ a=b", 100) == "müller/データ a=b"


def test_overlong_values_are_cut_and_say_so(engine: Engine) -> None:
    trail = AuditTrail(engine)
    reasons = tuple(Reason("r" * 5_000, "d" * 5_000) for _ in range(1_000))
    huge = "x" * 1_000_000
    trail.append(
        [_record(principal=huge, engine=huge, action=huge, resource=huge, request_id=huge, reasons=reasons)]
    )
    trail.close()
    with read_transaction(engine) as connection:
        row = connection.execute(select(lw_audit)).mappings().one()
    for name in ("principal", "engine", "action", "request_id"):
        assert len(row[name]) <= lw_audit.c[name].type.length  # type: ignore[attr-defined]
        assert row[name].endswith("…[cut]")
    assert len(row["resource"]) <= 2_000
    stored = json.loads(row["reasons"])
    assert len(stored) == 17
    assert "984 more" in stored[-1]["detail"]


@pytest.mark.parametrize(
    "secret",
    [_TOKEN, f"Bearer {_TOKEN}", f"x{_TOKEN}", "s3://AKIA:ssss@bucket/x", "postgresql://ann:ssss@host/db"],
)
def test_tokens_and_passwords_are_masked_in_every_field(engine: Engine, secret: str) -> None:
    trail = AuditTrail(engine)
    reasons = (Reason(secret, secret, secret, secret),)
    trail.append(
        [
            _record(
                principal=secret,
                engine=secret,
                action=secret,
                resource=secret,
                request_id=secret,
                reasons=reasons,
            )
        ]
    )
    trail.close()
    with read_transaction(engine) as connection:
        row = connection.execute(select(lw_audit)).one()
    assert "sss" not in repr(row)


def test_the_hash_is_that_of_the_documented_canonical_form() -> None:
    row = {
        "writer": "w",
        "sequence": 1,
        "at_ms": 2,
        "principal": "é",
        "engine": None,
        "action": "a",
        "resource": "r",
        "allowed": True,
        "reasons": "[]",
        "request_id": "q",
        "previous_hash": GENESIS,
        "hash": "not part of it",
        "decisions": 1,
    }
    assert record_hash(row) == "97724d211008d9cf2753f05f9388359306bcc1d3b92db914a238a4ea21e98584"
