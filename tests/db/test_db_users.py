"""What stands on the database works alike on both kinds: audit trail and tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine, insert, text

from catalog.audit import reading as audit_reading
from catalog.audit.trail import AuditRecord, AuditTrail, read, verify
from catalog.authorization.tokens import TokenStore
from catalog.db.engine import open_database, write
from catalog.db.schema import lw_table
from catalog.state import scan_plans
from catalog.state.scan_plans import KeptPlan, ScanPlans
from policy.decision import Reason
from policy.errors import NotAuthenticated, StateUnavailable
from policy.principal import Principal
from tests.support.databases import upgrade
from tests.support.postgres import PostgresServer


def _record(principal: str = "ann", at_ms: int = 1) -> AuditRecord:
    return AuditRecord(principal, None, "load", "db.t", True, (Reason("r", "d"),), "q", at_ms)


def test_the_audit_trail_is_written_read_and_checked(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reading, "_PAGE", 3)
    for _ in range(2):
        trail = AuditTrail(engine)
        trail.append([_record("a\x00b\ud800é", number) for number in range(7)])
        trail.close()
    assert verify(engine) == []
    assert len(read(engine, principal="a\x00b\ud800é", limit=5)) == 5
    with write(engine) as connection:
        connection.execute(text("DELETE FROM lw_audit WHERE sequence = 5"))
    assert [(problem.sequence, problem.kind) for problem in verify(engine)] == [(6, "missing")] * 2


def test_tokens_are_issued_checked_and_revoked(engine: Engine) -> None:
    tokens = TokenStore(engine)
    ann = Principal("ann", frozenset({"g"}), frozenset({"r"}))
    issued = tokens.issue(ann, "user", timedelta(hours=1))
    assert tokens.verify(issued.text, "user") == ann
    tokens.revoke(issued.id)
    with pytest.raises(NotAuthenticated):
        tokens.verify(issued.text, "user")
    assert tokens.list()[0].revoked_at is not None


def test_a_server_that_went_away_fails_appends_and_the_chain_goes_on(postgres: PostgresServer) -> None:
    engine = open_database(postgres.create_database())
    upgrade(engine)
    trail = AuditTrail(engine)
    trail.append([_record()])
    postgres.stop()
    try:
        with pytest.raises(StateUnavailable, match="could not be recorded in the audit log"):
            trail.append([_record()])
    finally:
        postgres.start()
    trail.append([_record()])
    trail.close()
    assert [found.sequence for found in read(engine)] == [2, 1]
    assert verify(engine) == []
    engine.dispose()


def test_scan_plans_are_kept_found_and_removed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = dict.fromkeys(("catalog", "table_uuid", "namespace", "name", "owner", "location"), "x")
    with write(engine) as connection:
        given = {"id": "t", "default_location": True, "state": "active", "created_ms": 1, **columns}
        connection.execute(insert(lw_table).values(given))
    now = [1_000]
    plans = ScanPlans(engine, lambda: now[0], 60_000)
    kept = KeptPlan("t", "ann", {"filter": True}, ((0, 2), (3,)), None)
    plan_id = plans.keep(kept)
    assert plans.find(plan_id, "t", "ann") == kept
    for other in ((plan_id, "t", "bob"), (plan_id, "u", "ann"), ("p", "t", "ann")):
        assert plans.find(*other) is None and not plans.remove(*other)
    monkeypatch.setattr(scan_plans, "MAX_PLANS", 1)
    with pytest.raises(StateUnavailable):
        plans.keep(kept)
    assert plans.remove(plan_id, "t", "ann") and not plans.remove(plan_id, "t", "ann")
    again = plans.keep(kept)
    now[0] += 60_000
    assert plans.find(again, "t", "ann") is None
    assert plans.keep(kept) != again, "the plan that expired is no longer counted"
