"""Administration: behind the right that each operation needs, and without any key bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa
import pytest
from sqlalchemy import update

from catalog.db.engine import write
from catalog.db.schema import iceberg_tables, lw_audit
from tests.support.http_calls import new_table, refused
from tests.support.lake import ALLOWS_UNSEALED, standard_policies, write_unchecked
from tests.support.service import Service, open_service


@pytest.fixture
def bob(served: Service) -> Iterator[httpx.Client]:
    """Bob, who administers nothing."""
    with served.client("bob") as client:
        yield client


@pytest.fixture
def table(served: Service, alice: httpx.Client, namespace: str) -> str:
    """Where a fresh table is administered."""
    assert new_table(alice, served.prefix, namespace).status_code == 200
    return f"/admin/v1/tables/{namespace}/t"


SERVICE_OPERATIONS: list[tuple[str, str, Any]] = [
    ("GET", "/admin/v1/tables/a/b/keys", None),
    ("GET", "/admin/v1/policies", None),
    ("POST", "/admin/v1/policies/reload", None),
    (
        "POST",
        "/admin/v1/policies/check",
        {"user": "x", "resource": {"database": "d"}, "access": "select"},
    ),
    ("GET", "/admin/v1/audit", None),
    ("GET", "/admin/v1/audit/verify", None),
    ("GET", "/admin/v1/lake/tables", None),
    ("POST", "/admin/v1/lake/states", {"tables": ["db.t"]}),
    ("POST", "/admin/v1/tokens", {"principal": "mallory"}),
    ("GET", "/admin/v1/tokens", None),
    ("DELETE", "/admin/v1/tokens/11111111-2222-4333-8444-555555555555", None),
    ("GET", "/admin/v1/master-keys", None),
    ("POST", "/admin/v1/master-keys", {"id": "mine"}),
    ("POST", "/admin/v1/master-keys/disable", {"id": "lakewarden"}),
    ("POST", "/admin/v1/master-keys/enable", {"id": "lakewarden"}),
    ("POST", "/admin/v1/master-keys/rotate", {"id": "lakewarden"}),
    ("POST", "/admin/v1/master-keys/rewrap", {"id": "lakewarden"}),
    ("GET", "/admin/v1/master-keys/kms-keys", None),
    ("GET", "/admin/v1/master-keys/keys", None),
    ("GET", "/admin/v1/master-keys/needs?kms=local", None),
    ("POST", "/admin/v1/master-keys/assign", {"id": "lakewarden", "kms": "local", "kms-key-id": "mine"}),
    ("POST", "/admin/v1/master-keys/move", {"id": "lakewarden"}),
    ("POST", "/admin/v1/sweep", None),
]


def _tokens(served: Service) -> list[tuple[UUID, datetime | None]]:
    """The tokens and whether they are revoked, without when they were used."""
    return [(each.id, each.revoked_at) for each in served.lake.services.tokens.list()]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("method", "path", "body"), SERVICE_OPERATIONS)
def test_service_operations_need_their_right(
    served: Service, bob: httpx.Client, method: str, path: str, body: Any
) -> None:
    before = _tokens(served), served.lake.kms.list_master_keys()
    refused(bob.request(method, path, json=body), 403, "NotAuthorized")
    assert (_tokens(served), served.lake.kms.list_master_keys()) == before


def test_auditors_read_the_trail_and_nothing_else(service: Service) -> None:
    auditor = {
        "name": "auditors",
        "resources": {"service": {"values": ["lakewarden"]}},
        "policyItems": [{"users": ["auditor"], "accesses": [{"type": "audit", "isAllowed": True}]}],
    }
    service.lake.set_policies([*standard_policies(), auditor])
    with service.client("auditor") as client:
        assert client.get("/admin/v1/audit").status_code == 200
        verdict = client.get("/admin/v1/audit/verify").json()
        assert (verdict["intact"], verdict["problems"]) == (True, [])
        refused(client.get("/admin/v1/tokens"), 403, "NotAuthorized")


def test_governed_state_is_shown(served: Service, alice: httpx.Client, table: str) -> None:
    shown = alice.get(table).json()
    assert shown["sealed"] is True and len(shown["metadata-sha256"]) == 64
    assert shown["owner"] == "alice" and shown["default-location"] is True
    assert (shown["standard-clients"], shown["format-version"]) == ("load", 2)
    assert shown["properties"] == {
        "read.allowed.data.paths": shown["location"],
        "encryption.mechanism": "plaintext",
    }


def test_governed_properties_are_set_and_removed(alice: httpx.Client, table: str) -> None:
    first = alice.get(table)
    changed = alice.patch(table, json={"set": {"encryption.mechanism": "envelope"}})
    assert changed.json()["properties"]["encryption.pek-id"]
    assert changed.json()["governed-version"] == 2
    assert changed.headers["etag"] != first.headers["etag"]
    back = alice.patch(table, json={"set": {"encryption.mechanism": "plaintext"}})
    assert "encryption.pek-id" not in back.json()["properties"]
    widened = alice.patch(table, json={"set": {"read.allowed.data.paths": "s3://a/b"}}).json()
    assert widened["properties"]["read.allowed.data.paths"] == "s3://a/b"
    reset = alice.patch(table, json={"unset": ["read.allowed.data.paths"]}).json()
    assert reset["properties"]["read.allowed.data.paths"] == reset["location"]


def test_other_properties_are_set_and_removed(
    served: Service, alice: httpx.Client, namespace: str, table: str
) -> None:
    before = alice.get(table).json()["properties"]
    alice.patch(table, json={"set": {"comment": "a", "also": "b"}})
    answer = alice.patch(table, json={"set": {"comment": "c"}, "unset": ["also"]}).json()
    found = served.iceberg().load_table((namespace, "t")).properties
    assert found["comment"] == "c" and "also" not in found
    assert answer["properties"] == before


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("body", "ours"),
    [
        ({}, "RequestInvalid"),
        ({"set": {"encryption.mode": "x"}}, "PropertyInvalid"),
        ({"set": {"encryption.mechanism": "rot13"}}, "PropertyInvalid"),
        ({"set": {"encryption.data-key-length": "31"}}, "PropertyInvalid"),
        ({"set": {"encryption.columns": "lakewarden:absent"}}, "PropertyInvalid"),
        ({"set": {"orc.key.provider": "hadoop"}}, "NotSupportedYet"),
        ({"set": {"read.allowed.data.paths": "file:///a/../b"}}, "LocationInvalid"),
        ({"set": {"read.allowed.data.paths": 7}}, "RequestInvalid"),
        ({"set": {"encryption.pek-id": "x"}}, "PropertyInvalid"),
        ({"set": {"encryption.master-key-id": "no-such-key"}}, "KeyNotUsable"),
    ],
)
def test_malformed_change_changes_nothing(
    alice: httpx.Client, table: str, body: dict[str, Any], ours: str
) -> None:
    before = alice.get(table).json()
    refused(alice.patch(table, json=body), 403 if ours == "KeyNotUsable" else 400, ours)
    assert alice.get(table).json() == before


def test_narrowing_below_live_snapshots_needs_force(
    served: Service, alice: httpx.Client, namespace: str, table: str
) -> None:
    served.iceberg().load_table((namespace, "t")).append(pa.table({"id": [1], "name": ["x"]}))
    narrowed = {"set": {"read.allowed.data.paths": "file:///srv/elsewhere"}}
    refused(alice.patch(table, json=narrowed), 403, "LocationNotAllowed", "narrowing")
    assert alice.patch(table, json={**narrowed, "force": True}).status_code == 200


def test_change_needs_alter(alice: httpx.Client, bob: httpx.Client, table: str) -> None:
    refused(bob.patch(table, json={"unset": ["read.allowed.data.paths"]}), 403, "NotAuthorized")
    refused(bob.get(table), 403, "NotAuthorized")
    for operation in ("adopt", "reseal", "restore"):
        refused(bob.post(f"{table}/{operation}"), 403, "NotAuthorized")
    body = {"metadata-location": "file:///srv/x/metadata/v1.metadata.json"}
    refused(bob.post(f"{table}/register", json=body), 403, "NotAuthorized")


def _point(served: Service, namespace: str, location: str) -> None:
    """A writer goes straight to the pointer store."""
    statement = update(iceberg_tables).where(iceberg_tables.c.table_namespace == namespace)
    with write(served.lake.services.engine) as connection:
        connection.execute(statement.values(metadata_location=location))


def test_unsealed_metadata_is_shown_resealed_and_restored(
    served: Service, alice: httpx.Client, namespace: str, table: str
) -> None:
    properties = f"{served.prefix}/namespaces/{namespace}/properties"
    assert alice.post(properties, json={"updates": ALLOWS_UNSEALED}).status_code == 200
    sealed = alice.get(table).json()["metadata-location"]
    behind = sealed.replace("/metadata/", "/metadata/behind-")
    path = sealed.removeprefix("file://")
    with open(path) as original, open(behind.removeprefix("file://"), "w") as copy:
        copy.write(original.read())
    _point(served, namespace, behind)
    assert alice.get(table).json()["sealed"] is False
    loaded = alice.get(f"{served.prefix}/namespaces/{namespace}/tables/t").json()
    assert loaded["config"]["lakewarden.sealed"] == "false"
    assert alice.post(f"{table}/restore").json()["metadata-location"] == sealed
    _point(served, namespace, behind)
    resealed = alice.post(f"{table}/reseal").json()
    assert resealed["sealed"] is True and resealed["metadata-location"] == behind
    refused(alice.post(f"{table}/reseal"), 400, "RequestInvalid", "seal")


def test_tampered_metadata_is_refused(
    served: Service, alice: httpx.Client, namespace: str, table: str
) -> None:
    path = alice.get(table).json()["metadata-location"].removeprefix("file://")
    with open(path) as file:
        document = json.load(file)
    with open(path, "w") as file:
        json.dump({**document, "properties": {"a": "b"}}, file)
    error = refused(alice.get(table), 403, "MetadataTampered")
    assert error["type"] == "MetadataTampered"


def test_register_and_keys(served: Service, alice: httpx.Client, namespace: str, table: str) -> None:
    alice.patch(table, json={"set": {"encryption.mechanism": "envelope"}})
    (key,) = alice.get(f"{table}/keys").json()["keys"]
    assert set(key) == {
        "id",
        "version",
        "master-key-id",
        "kms",
        "state",
        "in-force",
        "destroy-after-ms",
        "invocations",
        "needs-rotation",
    }
    assert (key["master-key-id"], key["kms"], key["state"]) == ("lakewarden", "local", "active")
    location = alice.get(table).json()["metadata-location"]
    alice.delete(f"{served.prefix}/namespaces/{namespace}/tables/t")
    again = alice.post(f"{table}/register", json={"metadata-location": location})
    assert again.json()["properties"]["encryption.pek-id"] == key["id"]
    refused(alice.get(f"/admin/v1/tables/{namespace}/none/keys"), 404, "NoSuchTable")


def test_policies_are_shown_reloaded_and_asked(service: Service) -> None:
    with service.client() as alice:
        first = alice.get("/admin/v1/policies").json()
        assert first["problem"] is None and first["sources"] == ["ranger/files.lake"]
        question = {
            "user": "bob",
            "resource": {"database": "bobs", "table": "t", "column": "c"},
            "access": "select",
        }
        granted = alice.post("/admin/v1/policies/check", json=question).json()
        assert granted["allowed"] is True and granted["reasons"][0]["policy"] == "bob-tables"
        storage = {**question, "resource": {"storage-url": "s3a://b/x"}, "access": "rwstorage"}
        assert alice.post("/admin/v1/policies/check", json=storage).json()["allowed"] is False
        write_unchecked(service.lake.services.policy_documents, "zz", b'{"policies": [{"name": 7}]}')
        refused(alice.post("/admin/v1/policies/reload"), 400, "PolicyInvalid")
        after = alice.get("/admin/v1/policies").json()
        assert after["version"] == first["version"] and "ranger/zz" in after["problem"]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "change",
    [
        {"resource": {}},
        {"resource": {"table": "t"}},
        {"resource": {"database": "d", "column": "c"}},
        {"resource": {"database": "d", "key": "k"}},
        {"resource": {"url": "not a location"}},
        {"resource": {"database": ""}},
        {"access": "fly"},
        {"user": ""},
        {"groups": ["a\nb"]},
    ],
)
def test_questions_that_mean_nothing_are_refused(alice: httpx.Client, change: dict[str, Any]) -> None:
    question = {"user": "bob", "resource": {"database": "d"}, "access": "select", **change}
    assert alice.post("/admin/v1/policies/check", json=question).status_code == 400


def test_tokens_are_issued_once_listed_and_revoked(served: Service, alice: httpx.Client) -> None:
    body = {"principal": "dave", "groups": ["g"], "kind": "user", "ttl-s": 60}
    issued = alice.post("/admin/v1/tokens", json=body).json()
    headers = {"Authorization": f"Bearer {issued['token']}"}
    assert httpx.get(f"{served.url}/v1/config", headers=headers).status_code == 200
    listing = alice.get("/admin/v1/tokens")
    (listed,) = [each for each in listing.json()["tokens"] if each["id"] == issued["id"]]
    assert (listed["principal"], listed["groups"], listed["revoked-at"]) == ("dave", ["g"], None)
    assert issued["token"] not in listing.text
    assert alice.delete(f"/admin/v1/tokens/{issued['id']}").status_code == 204
    assert httpx.get(f"{served.url}/v1/config", headers=headers).status_code == 401


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "change",
    [
        {"principal": ""},
        {"principal": "x" * 300},
        {"kind": "root"},
        {"ttl-s": 0},
        {"ttl-s": -5},
        {"ttl-s": 10**12},
    ],
)
def test_malformed_token_is_not_issued(served: Service, alice: httpx.Client, change: dict[str, Any]) -> None:
    before = served.lake.services.tokens.list()
    answer = alice.post("/admin/v1/tokens", json={"principal": "dave", **change})
    assert answer.status_code == 400
    assert served.lake.services.tokens.list() == before


def test_master_keys_of_the_local_kms(service: Service) -> None:
    with service.client() as alice:
        made = alice.post("/admin/v1/master-keys", json={"id": "team/a"})
        assert made.json() == {"id": "team/a", "version": 1, "enabled": True}
        assert alice.post("/admin/v1/master-keys/disable", json={"id": "team/a"}).json()["enabled"] is False
        listed = alice.get("/admin/v1/master-keys").json()["master-keys"]
        assert [(each["id"], each["enabled"]) for each in listed] == [("lakewarden", True), ("team/a", False)]
        assert alice.post("/admin/v1/master-keys/enable", json={"id": "team/a"}).json()["enabled"] is True
        refused(alice.post("/admin/v1/master-keys", json={"id": "team/a"}), 400, "RequestInvalid")
        refused(alice.post("/admin/v1/master-keys/disable", json={"id": "none"}), 403, "KeyNotUsable")


def test_audit_trail_is_filtered_and_its_edits_are_found(service: Service) -> None:
    with service.client() as alice, service.client("bob") as bob:
        refused(bob.get(f"{service.prefix}/namespaces/db"), 403, "NotAuthorized")
        records = alice.get("/admin/v1/audit", params={"principal": "bob"}).json()["records"]
        assert [(each["action"], each["allowed"]) for each in records] == [("namespace.load", False)]
        assert records[0]["reasons"][0]["rule"] == "policy-no-match"
        assert len(alice.get("/admin/v1/audit", params={"limit": 1}).json()["records"]) == 1
        refused(alice.get("/admin/v1/audit", params={"limit": 0}), 400, "RequestInvalid")
        refused(alice.get("/admin/v1/audit", params={"since-ms": "yesterday"}), 400, "RequestInvalid")
        with write(service.lake.services.engine) as connection:
            connection.execute(update(lw_audit).where(lw_audit.c.principal == "bob").values(allowed=True))
        verdict = alice.get("/admin/v1/audit/verify").json()
        assert verdict["intact"] is False and verdict["problems"][0]["kind"] == "edited"


def test_clean_up_answers_how_many(alice: httpx.Client) -> None:
    assert alice.post("/admin/v1/sweep").json() == {"swept": 0, "keys-destroyed": 0}


def test_health_needs_no_token_and_asks_the_database(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("lost")
    with open_service(root) as service:
        assert httpx.get(f"{service.url}/healthz").json() == {"status": "ok"}
        service.lake.services.engine.dispose()
        for file in root.glob("lakewarden.db*"):
            file.unlink()
        (root / "lakewarden.db").mkdir()
        refused(httpx.get(f"{service.url}/healthz", timeout=30), 503, "StateUnavailable")


def test_metrics_count_and_name_nobody(
    served: Service, alice: httpx.Client, namespace: str, table: str
) -> None:
    refused(alice.get(f"{served.prefix}/namespaces/{namespace}/tables/none"), 404, "NoSuchTable")
    answer = alice.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    route = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
    assert f'lakewarden_requests_total{{method="GET",route="{route}",status="404"}}' in answer.text
    assert 'lakewarden_commits_total{kind="create"}' in answer.text
    assert 'lakewarden_refusals_total{rule="' in answer.text
    assert "lakewarden_policies_outdated 0" in answer.text
    assert namespace not in answer.text and "alice" not in answer.text
