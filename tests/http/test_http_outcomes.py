"""The audit log tells outcomes: who is on record as allowed got something, and nothing happens unrecorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from catalog.audit import outcomes
from catalog.audit.trail import AuditRecord, AuditTrail, read, verify
from catalog.base import crash_points
from policy.errors import CommitStateUnknown, MetadataTampered, StateUnavailable
from tests.support.hooks import once_at
from tests.support.http_calls import new_table, refused, written_file
from tests.support.lake import BOB
from tests.support.service import Service


def named() -> dict[str, str]:
    """A header that names a request."""
    return {"X-Request-Id": uuid4().hex}


def records(service: Service, header: dict[str, str]) -> list[AuditRecord]:
    """What the audit log holds of a request, oldest first."""
    found = read(service.lake.services.engine, limit=10_000)
    mine = [each for each in found if each.record.request_id == header["X-Request-Id"]]
    return [each.record for each in sorted(mine, key=lambda each: each.sequence)]


def answers(found: list[AuditRecord]) -> list[str]:
    """What each record says."""
    return ["begun" if each.begun else "allowed" if each.allowed else "refused" for each in found]


def facts(record: AuditRecord) -> dict[str, str]:
    """The reasons of a record, by rule."""
    return {each.rule: each.detail for each in record.reasons}


@pytest.fixture
def table(served: Service, alice: httpx.Client, namespace: str) -> Iterator[str]:
    """The namespace of a table `t` with three rows."""
    new_table(alice, served.prefix, namespace)
    begun = alice.post(f"/engine/v1/tables/{namespace}/t/writes").json()
    body = {"operation": "append", "added": [written_file(begun)]}
    assert alice.post(f"/engine/v1/writes/{begun['write-id']}/commit", json=body).status_code == 200
    yield namespace


def test_a_plan_is_closed_with_columns_snapshot_files_and_rows(
    served: Service, alice: httpx.Client, table: str
) -> None:
    header = named()
    body = {"columns": ["id"]}
    assert alice.post(f"/engine/v1/tables/{table}/t/plan", json=body, headers=header).status_code == 200
    (record,) = records(served, header)
    assert (record.action, record.resource, record.allowed) == ("table.plan", f"{table}.t", True)
    told = facts(record)
    assert (told["columns"], told["files"], told["rows"]) == ("id", "1", "3")
    loaded = alice.get(f"{served.prefix}/namespaces/{table}/tables/t").json()
    assert told["snapshot"] == str(loaded["metadata"]["current-snapshot-id"])


def test_a_plan_that_fails_after_its_grants_allows_nothing(
    served: Service, alice: httpx.Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are granted when the manifests turn out to be edited."""
    header, granted = named(), list[str]()

    def edited(*_: object) -> None:
        outcome = outcomes.current()
        assert outcome is not None
        granted.extend(action for action, _ in outcome.grants)
        raise MetadataTampered("The manifest list is not what was sealed.", rule="seal")

    monkeypatch.setattr(served.lake.services.reader, "manifests", edited)
    answer = alice.post(f"/engine/v1/tables/{table}/t/plan", json={}, headers=header)
    refused(answer, 403, "MetadataTampered", "seal")
    assert granted == ["table.plan"]
    (record,) = records(served, header)
    assert answers([record]) == ["refused"] and record.reasons[0].rule == "seal"


def test_a_load_of_a_table_that_is_not_there_allows_nothing(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    header = named()
    refused(
        alice.get(f"{served.prefix}/namespaces/{namespace}/tables/none", headers=header), 404, "NoSuchTable"
    )
    (record,) = records(served, header)
    assert (record.action, record.allowed) == ("table.load", False)


def test_a_change_is_on_record_before_its_effect_and_closed_after_it(
    served: Service, alice: httpx.Client, table: str
) -> None:
    header = named()
    url = f"{served.prefix}/namespaces/{table}/tables/t"
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]}
    before: list[list[str]] = []
    with crash_points.hooked(once_at("prepared", lambda: before.append(answers(records(served, header))))):
        assert alice.post(url, json=body, headers=header).status_code == 200
    assert before == [["begun"]]
    found = records(served, header)
    assert answers(found) == ["begun", "allowed"]
    assert found[0].action == found[1].action == "table.commit"
    assert "snapshot" in facts(found[1])


def test_a_change_that_fails_after_its_grant_allows_nothing(
    served: Service, alice: httpx.Client, table: str
) -> None:
    header = named()
    url = f"{served.prefix}/namespaces/{table}/tables/t"
    conflict = {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 99}
    commit = {"requirements": [conflict], "updates": []}
    refused(alice.post(url, json=commit, headers=header), 409, "CommitConflict")
    assert answers(records(served, header)) == ["refused"]
    header = named()
    refused(
        alice.post(f"{served.prefix}/namespaces", json={"namespace": [table]}, headers=header),
        409,
        "NamespaceExists",
    )
    found = records(served, header)
    assert answers(found) == ["begun", "refused"]
    assert found[1].reasons[0].rule == "NamespaceExists"


def test_a_change_of_unknown_outcome_stays_begun(served: Service, alice: httpx.Client, table: str) -> None:
    header = named()
    url = f"{served.prefix}/namespaces/{table}/tables/t"
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]}

    def lose() -> None:
        raise CommitStateUnknown("It is not known whether the pointer moved.")

    with crash_points.hooked(once_at("published", lose)):
        assert alice.post(url, json=body, headers=header).status_code == 500
    assert answers(records(served, header)) == ["begun"]


def test_a_refusal_by_policy_is_one_record(served: Service, table: str) -> None:
    header = named()
    with served.client(BOB) as bob:
        refused(bob.post(f"/engine/v1/tables/{table}/t/plan", json={}, headers=header), 403, "NotAuthorized")
    assert answers(records(served, header)) == ["refused"]


@pytest.mark.parametrize(
    ("body", "rule"), [({"filter": {"type": "nonsense"}}, "filter"), ({"columns": 3}, "request")]
)
def test_a_request_that_is_not_understood_is_on_record_under_the_rule_that_is_answered(
    served: Service, alice: httpx.Client, table: str, body: dict[str, Any], rule: str
) -> None:
    header = named()
    answer = alice.post(f"/engine/v1/tables/{table}/t/plan", json=body, headers=header)
    refused(answer, 400, "RequestInvalid", rule)
    (record,) = records(served, header)
    assert (record.action, record.resource, record.allowed) == ("table.plan", f"{table}.t", False)
    assert list(facts(record)) == [rule]


def test_what_the_framework_refuses_without_a_screen_is_on_record_under_the_rule_that_is_answered(
    served: Service, alice: httpx.Client
) -> None:
    header = named()
    answer = alice.get("/admin/v1/audit", params={"limit": "many"}, headers=header)
    refused(answer, 400, "RequestInvalid", "request")
    (record,) = records(served, header)
    assert (record.action, record.resource) == ("request", "GET /admin/v1/audit")
    assert list(facts(record)) == ["request"]


def test_nothing_is_answered_without_its_record(
    served: Service, alice: httpx.Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database fails between the planning of a scan and the record that closes it."""

    def fail(self: AuditTrail, records: Any) -> None:
        raise StateUnavailable("The decision is not on record.", rule="audit")

    monkeypatch.setattr(AuditTrail, "append", fail)
    answer = alice.post(f"/engine/v1/tables/{table}/t/plan", json={})
    refused(answer, 503, "StateUnavailable", "audit")


def test_nothing_is_changed_without_its_record(
    served: Service, alice: httpx.Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: AuditTrail, records: Any) -> None:
        raise StateUnavailable("The decision is not on record.", rule="audit")

    monkeypatch.setattr(AuditTrail, "submit", fail)
    refused(new_table(alice, served.prefix, namespace), 503, "StateUnavailable", "audit")
    monkeypatch.undo()
    assert alice.get(f"{served.prefix}/namespaces/{namespace}/tables").json()["identifiers"] == []


def test_the_chain_holds_with_records_that_are_begun(
    served: Service, alice: httpx.Client, table: str
) -> None:
    assert verify(served.lake.services.engine) == []
    listed = alice.get("/admin/v1/audit", params={"limit": 100}).json()["records"]
    assert any(each["begun"] and not each["allowed"] for each in listed)
