"""Policy sources over HTTP: their state, and what is answered while their policies are too old."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.service.policy_sync import sources_of
from tests.support.lake import BOB, policy, tables
from tests.support.ranger_admin import PASSWORD, RangerAdmin, ranger_admin
from tests.support.service import Service, open_service


@pytest.fixture
def ranger() -> Iterator[RangerAdmin]:
    with ranger_admin() as running:
        running.put("hive", 5, [policy("of ranger", tables("db"), {BOB: ["select"]})])
        yield running


@pytest.fixture
def served(tmp_path: Path, ranger: RangerAdmin) -> Iterator[Service]:
    given = {"URL": ranger.url, "SERVICE": "hive", "ROLES": "false"}
    with open_service(
        tmp_path, **{f"RANGER__PROD__{name}": value for name, value in given.items()}
    ) as running:
        yield running


def _sync(served: Service) -> None:
    for each in sources_of(served.lake.services):
        each.look()
        each.close()


def test_the_state_of_a_source_is_shown(served: Service, ranger: RangerAdmin) -> None:
    _sync(served)
    with served.client() as client:
        (found,) = client.get("/admin/v1/policies").raise_for_status().json()["ranger"]
        text = client.get("/metrics").text
        health = client.get("/healthz").json()
    assert found["name"] == "prod" and found["state"] == "current" and found["versions"] == {"policies": 5}
    assert found["confirmed-at"] and found["age-s"] < found["max-age-s"]
    assert 'lakewarden_policy_source_failing{source="prod"} 0' in text
    assert 'lakewarden_policy_source_version{source="prod",part="policies"} 5' in text
    assert re.search(
        r'call_duration_seconds_count{part="ranger",operation="policies",outcome="answered"} [1-9]', text
    )
    assert health == {"status": "ok"}


def test_a_source_that_fails_is_told_without_its_name(served: Service, ranger: RangerAdmin) -> None:
    _sync(served)
    ranger.fault = 401, "text/html", b""
    (source,) = sources_of(served.lake.services)
    source._interrupted = True  # It is not due yet.
    source.look()
    source.close()
    served.lake.services.policies.reload()
    with served.client() as client:
        health = client.get("/healthz").json()
        (found,) = client.get("/admin/v1/policies").json()["ranger"]
    assert health["status"] == "degraded" and "prod" not in str(health)
    assert found["state"] == "failing" and "credentials" in found["problem"]
    assert PASSWORD not in str(found)


def test_while_policies_are_too_old_every_request_is_answered_with_503(served: Service) -> None:
    with served.client() as client:
        for path in ("/admin/v1/policies", f"{served.prefix}/namespaces", "/healthz"):
            refused = client.get(path)
            assert refused.status_code == 503
            assert refused.json()["error"]["rule"] == "policy-source-age"
        assert client.get("/readyz").status_code == 503
        assert client.get("/metrics").status_code == 200
        _sync(served)
        assert client.get(f"{served.prefix}/namespaces").status_code == 200
