"""Counters: Prometheus' format, and a bounded number of series."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog.db.clock import DatabaseClock
from catalog.db.engine import open_database
from catalog.http.metrics import Metrics
from catalog.policy_store import in_force
from catalog.policy_store.documents import PolicyDocuments
from catalog.policy_store.in_force import PolicyStore
from catalog.service.archive_state import ArchiveState
from catalog.service.replicas import Replicas
from tests.support import databases
from tests.support.lake import write_unchecked


@pytest.mark.parametrize("rule", ["", "a b", 'x"}', "x" * 65, "s3://a/b", "line\nbreak"])
def test_only_names_of_rules_become_labels(rule: str) -> None:
    metrics = Metrics()
    metrics.refused(rule)
    assert 'lakewarden_refusals_total{rule="other"} 1\n' in metrics.render()


def test_number_of_series_is_bounded() -> None:
    metrics = Metrics()
    for number in range(5_000):
        metrics.refused(f"rule-{number}")
    lines = [line for line in metrics.render().splitlines() if not line.startswith("#")]
    assert len(lines) <= 2_002
    assert sum(float(line.rsplit(" ", 1)[1]) for line in lines) == 5_000


def test_policies_that_are_not_the_newest_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_force, "_RELOAD_WAIT_S", 60.0)
    seconds = [0.0]
    engine = open_database(f"sqlite:///{tmp_path}/lake.db")
    databases.upgrade(engine)
    documents = PolicyDocuments(engine, "lake")
    policies = PolicyStore(documents, clock=lambda: seconds[0])
    clock = DatabaseClock(engine, lambda: datetime.now(UTC), lambda: 0.0)
    others, archive = Replicas(engine, "lake", dict, lambda: 0, lambda: 0.0), ArchiveState()
    text = Metrics.render_states(policies, clock, others, archive)
    assert "# TYPE lakewarden_policies_outdated gauge\nlakewarden_policies_outdated 0\n" in text
    assert "lakewarden_policies_revision 0\n" in text
    write_unchecked(documents, "a", b"{")
    seconds[0] = 7.0
    assert "lakewarden_policies_age_seconds 7\n" in Metrics.render_states(
        policies, clock, others, ArchiveState()
    )
    policies.current()
    archive.is_failing = True
    text = Metrics.render_states(policies, clock, others, archive)
    assert "lakewarden_policies_outdated 1\n" in text and "lakewarden_policies_age_seconds 7\n" in text
    assert "lakewarden_audit_archive_failing 1\n" in text


def test_counts_add_up() -> None:
    metrics = Metrics()
    for seconds in (0.25, 0.5):
        metrics.answered("GET", "/healthz", 200, seconds)
    metrics.committed("engine")
    text = metrics.render()
    assert 'lakewarden_requests_total{method="GET",route="/healthz",status="200"} 2\n' in text
    assert 'lakewarden_request_seconds_total{method="GET",route="/healthz"} 0.75\n' in text
    assert 'lakewarden_commits_total{kind="engine"} 1\n' in text
