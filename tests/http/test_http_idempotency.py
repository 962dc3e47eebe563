"""Requests that are repeated because their answer was lost take effect once, and get the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy import select

from catalog.base import crash_points
from catalog.db.engine import read
from catalog.db.schema import lw_idempotency
from catalog.http import (
    engine_routes,
    engine_snapshots,
    engine_views,
    iceberg_namespaces,
    iceberg_plans,
    iceberg_tables,
    iceberg_transactions,
)
from catalog.http.idempotency import answers_repetitions
from catalog.state.idempotency import IdempotencyKeys, KeyedRequest
from policy.errors import StateUnavailable
from tests.support.hooks import once_at
from tests.support.http_calls import SCHEMA, commits, new_key, new_table, refused, tables_of, written_file
from tests.support.lake import ALICE, BOB, MASTER_KEY, policy, standard_policies, tables
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.service import Service, open_service

#: Operations that take no key: they change nothing, are safe to repeat, or are known by their write id.
REPEATABLE_ANYWAY = {
    "access",
    "code",
    "load",
    "plan",
    "load_through_view",
    "plan_through_view",
    "plan_table_scan",
    "fetch_scan_tasks",
    "cancel_planning",
    "report_metrics",
    "whole_files",
    "rewrites",
    "position_delete_rewrites",
    "remove_dangling_deletes",
    "rewrite_manifests",
    "keep_distinct_counts",
    "expire_snapshots",
    "remove_orphan_files",
    "begin_write",
    "stage_write",
    "forbid_old_epochs",
    "rewrap_keys",
    "inspect",
    "list_ancestors",
    "replace_table",
    "commit_write",
    "abort_write",
}


def repeated(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    """The answer to a request that is repeated, unchanged, until there is one."""
    headers = new_key()
    with pytest.raises(httpx.RemoteProtocolError):
        client.request(method, path, headers=headers, **more)
    return client.request(method, path, headers=headers, **more)


def set_property(value: str = "1") -> dict[str, Any]:
    """A commit that sets a property."""
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": value}}]}


@pytest.fixture
def lossy(served: Service) -> Iterator[LossyProxy]:
    """A way to the service on which the first answer to each request is lost."""
    with lossy_proxy(served.url) as proxy, proxy.losing_every_first_answer():
        yield proxy


@pytest.fixture
def client(served: Service, lossy: LossyProxy) -> Iterator[httpx.Client]:
    """Alice, on that way."""
    headers = {"Authorization": f"Bearer {served.token(ALICE)}"}
    with httpx.Client(base_url=lossy.url, headers=headers, timeout=60) as opened:
        yield opened


def test_config_advertises_the_lifetime(alice: httpx.Client) -> None:
    assert alice.get("/v1/config").json()["idempotency-key-lifetime"] == "PT1800S"


def test_each_operation_that_changes_something_can_be_repeated() -> None:
    changing = [
        route
        for router in (
            iceberg_namespaces.router,
            iceberg_tables.router,
            iceberg_plans.router,
            iceberg_transactions.router,
            engine_routes.router,
            engine_snapshots.router,
            engine_views.router,
        )
        for route in router.routes
        if getattr(route, "methods", set()) & {"POST", "PUT", "PATCH", "DELETE"}
    ]
    endpoints = {route.endpoint.__name__: route.endpoint for route in changing}  # type: ignore[attr-defined]
    left = {name for name, endpoint in endpoints.items() if not answers_repetitions(endpoint)}
    assert left == REPEATABLE_ANYWAY


def test_namespaces_with_every_answer_lost_once(served: Service, client: httpx.Client) -> None:
    url, name = f"{served.prefix}/namespaces", f"n{uuid4().hex[:12]}"
    body = {"namespace": [name], "properties": {"a": "1"}}
    assert repeated(client, "POST", url, json=body).json() == body
    change = {"removals": ["a", "z"], "updates": {"b": "2"}}
    changed = repeated(client, "POST", f"{url}/{name}/properties", json=change)
    assert changed.json() == {"updated": ["b"], "removed": ["a"], "missing": ["z"]}
    assert repeated(client, "DELETE", f"{url}/{name}").status_code == 204
    assert name not in [each[0] for each in served.lake.catalog().list_namespaces()]


def test_tables_with_every_answer_lost_once(
    served: Service, client: httpx.Client, alice: httpx.Client, namespace: str
) -> None:
    tables = f"{served.prefix}/namespaces/{namespace}/tables"
    new_table(alice, served.prefix, namespace, "other")
    body = {"name": "t", "schema": SCHEMA}
    created = repeated(client, "POST", tables, json=body)
    assert created.status_code == 200, created.text
    loaded = alice.get(f"{tables}/t").json()
    assert created.json() == loaded and commits(served, f"{namespace}.t") == 1
    committed = repeated(client, "POST", f"{tables}/t", json=set_property())
    assert committed.json()["metadata"]["properties"]["a"] == "1"
    assert committed.json()["metadata-location"] == alice.get(f"{tables}/t").json()["metadata-location"]
    assert commits(served, f"{namespace}.t") == 2
    rename = {
        "source": {"namespace": [namespace], "name": "t"},
        "destination": {"namespace": [namespace], "name": "u"},
    }
    renamed = repeated(client, "POST", f"{served.prefix}/tables/rename", json=rename)
    assert renamed.status_code == 204, renamed.text
    assert tables_of(alice, served.prefix, namespace) == ["other", "u"]
    assert repeated(client, "DELETE", f"{tables}/u").status_code == 204
    location = committed.json()["metadata-location"]
    register = {"name": "v", "metadata-location": location}
    registered = repeated(client, "POST", f"{served.prefix}/namespaces/{namespace}/register", json=register)
    assert registered.status_code == 200, registered.text
    assert registered.json()["metadata"]["table-uuid"] == loaded["metadata"]["table-uuid"]
    purged = repeated(client, "DELETE", f"{tables}/v", params={"purgeRequested": "true"})
    assert purged.status_code == 204
    assert tables_of(alice, served.prefix, namespace) == ["other"]


def test_staged_creation_with_every_answer_lost_once(
    served: Service, client: httpx.Client, namespace: str
) -> None:
    tables = f"{served.prefix}/namespaces/{namespace}/tables"
    body = {"name": "t", "schema": SCHEMA, "stage-create": True}
    staged = repeated(client, "POST", tables, json=body).json()["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    commit = {"requirements": [{"type": "assert-create"}], "updates": updates}
    committed = repeated(client, "POST", f"{tables}/t", json=commit)
    assert committed.status_code == 200, committed.text
    assert committed.json()["metadata"]["table-uuid"] == staged["table-uuid"]
    assert commits(served, f"{namespace}.t") == 1


def test_engine_with_every_answer_lost_once(
    served: Service, client: httpx.Client, alice: httpx.Client, namespace: str
) -> None:
    encrypted = {"encryption.master-key-id": MASTER_KEY}
    schema = Schema(NestedField(1, "id", LongType()))
    served.lake.catalog().create_table(f"{namespace}.e", schema, properties=encrypted)
    new_table(alice, served.prefix, namespace)
    table, keys = f"/engine/v1/tables/{namespace}/t", f"/engine/v1/tables/{namespace}/e/keys"
    changes = {"changes": [{"action": "add-column", "path": ["more"], "type": "long"}]}
    altered = repeated(client, "POST", f"{table}/alter", json=changes)
    assert altered.status_code == 200, altered.text
    assert commits(served, f"{namespace}.t") == 2
    begun = repeated(client, "POST", f"{table}/writes").json()
    files = {"operation": "append", "added": [written_file(begun)]}
    committed = repeated(client, "POST", f"/engine/v1/writes/{begun['write-id']}/commit", json=files)
    assert committed.status_code == 200, committed.text
    assert len(committed.json()["metadata"]["snapshots"]) == 1 and commits(served, f"{namespace}.t") == 3
    given_up = alice.post(f"{table}/writes").json()["write-id"]
    assert repeated(client, "DELETE", f"/engine/v1/writes/{given_up}").status_code == 204
    rotated = repeated(client, "POST", f"{keys}/rotate", json={})
    assert [(each["previous-version"], each["version"]) for each in rotated.json()["keys"]] == [(1, 2)]
    assert repeated(client, "POST", f"{keys}/rewrap", json={}).status_code == 200
    old = repeated(client, "POST", f"/engine/v1/tables/{namespace}/e/regimes/forbid-old", json={})
    assert old.status_code == 200, old.text


def test_key_of_another_request_is_refused(served: Service, alice: httpx.Client, namespace: str) -> None:
    url, headers = f"{served.prefix}/namespaces", new_key()
    first = {"namespace": [namespace, "a"]}
    assert alice.post(url, json=first, headers=headers).status_code == 200
    for other in (
        alice.post(url, json={"namespace": [namespace, "b"]}, headers=headers),
        alice.post(f"{url}?x=1", json=first, headers=headers),
        alice.delete(f"{url}/{namespace}%1Fa", headers=headers),
    ):
        refused(other, 422, "IdempotencyKeyReused", "idempotency-key")
    assert alice.post(url, json=first, headers=headers).status_code == 200


def test_key_of_another_user_is_another_key(served: Service, alice: httpx.Client, namespace: str) -> None:
    headers, name = new_key(), f"n{uuid4().hex[:12]}"
    url, body = f"{served.prefix}/namespaces", {"namespace": [name]}
    assert alice.post(url, json=body, headers=headers).status_code == 200
    with served.client(BOB) as bob:
        refused(bob.post(url, json=body, headers=headers), 403, "NotAuthorized")
        body = {"namespace": [f"{name}x"]}  # nor does a key tell that another user used it
        refused(bob.post(url, json=body, headers=headers), 403, "NotAuthorized")


def test_key_of_another_path_or_method_is_refused(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    spaces = f"{served.prefix}/namespaces"
    assert alice.post(spaces, json={"namespace": [f"{namespace}x"]}).status_code == 200
    headers, body = new_key(), {"updates": {"a": "1"}}
    assert alice.post(f"{spaces}/{namespace}/properties", json=body, headers=headers).status_code == 200
    answer = alice.post(f"{spaces}/{namespace}x/properties", json=body, headers=headers)
    refused(answer, 422, "IdempotencyKeyReused", "idempotency-key")
    table = f"{spaces}/{namespace}/tables/gone"
    new_table(alice, served.prefix, namespace, "gone").raise_for_status()
    headers = new_key()
    alice.delete(table, headers=headers).raise_for_status()
    refused(alice.post(table, headers=headers), 422, "IdempotencyKeyReused", "idempotency-key")


def test_a_request_that_is_refused_before_its_body_is_read_begins_no_attempt(
    served: Service, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[KeyedRequest] = []
    monkeypatch.setattr(IdempotencyKeys, "begin", lambda _, request: begun.append(request))
    with served.client(BOB) as bob:
        for url in (f"{namespace}/tables", f"{namespace}/tables/t"):
            answer = bob.post(f"{served.prefix}/namespaces/{url}", json={}, headers=new_key())
            refused(answer, 403, "NotAuthorized")
    assert begun == []


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "key",
    [
        "",
        "x",
        "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",
        "017f22e279b07cc398c4dc0c0c07398f",
        "{0}" * 12,
    ],
)
def test_malformed_key_is_refused(served: Service, alice: httpx.Client, key: str) -> None:
    answer = alice.post(
        f"{served.prefix}/namespaces", json={"namespace": ["n"]}, headers={"Idempotency-Key": key}
    )
    refused(answer, 400, "RequestInvalid", "idempotency-key")


def test_key_given_twice_is_refused(served: Service, alice: httpx.Client) -> None:
    twice = [*new_key().items(), *new_key().items()]
    answer = alice.post(f"{served.prefix}/namespaces", json={"namespace": ["n"]}, headers=twice)
    refused(answer, 400, "RequestInvalid", "idempotency-key")


def test_refusal_is_kept_although_the_reason_is_gone(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    url, headers = f"{served.prefix}/namespaces", new_key()
    body = {"namespace": [namespace]}
    refused(alice.post(url, json=body, headers=headers), 409, "NamespaceExists")
    assert alice.delete(f"{url}/{namespace}").status_code == 204
    refused(alice.post(url, json=body, headers=headers), 409, "NamespaceExists")
    assert alice.post(url, json=body, headers=new_key()).status_code == 200


def test_refusals_of_what_is_absent_or_wrong_are_kept(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    url, headers = f"{served.prefix}/namespaces/{namespace}/tables/later", new_key()
    refused(alice.post(url, json=set_property(), headers=headers), 404, "NoSuchTable")
    new_table(alice, served.prefix, namespace, "later").raise_for_status()
    refused(alice.post(url, json=set_property(), headers=headers), 404, "NoSuchTable")
    headers, wrong = new_key(), set_property()
    wrong["updates"][0]["updates"] = {"write.distribution-mode": "banana"}
    first, second = (
        refused(alice.post(url, json=wrong, headers=headers), 400, "PropertyInvalid") for _ in range(2)
    )
    assert "first request" in second["message"] and "first request" not in first["message"]


def test_repetition_is_authorized_again(tmp_path: Path) -> None:
    grants = policy("bob-more", {"database": ["n"]}, {BOB: ["create", "drop"]})
    with open_service(tmp_path) as service, service.client(BOB) as bob:
        url, body, headers = f"{service.prefix}/namespaces", {"namespace": ["n"]}, new_key()
        refused(bob.post(url, json=body, headers=headers), 403, "NotAuthorized")
        service.lake.set_policies([*standard_policies(), grants])
        assert bob.post(url, json=body, headers=headers).status_code == 200
        service.lake.set_policies(standard_policies())
        refused(bob.post(url, json=body, headers=headers), 403, "NotAuthorized")


@pytest.mark.nightly
def test_repeated_commit_or_drop_is_authorized_again(tmp_path: Path) -> None:
    grants = policy("bob-more", tables("n"), {BOB: ["select", "update", "alter", "drop"]})
    with open_service(tmp_path) as service, service.client(BOB) as bob, service.client() as alice:
        service.lake.catalog().create_namespace("n")
        new_table(alice, service.prefix, "n").raise_for_status()
        service.lake.set_policies([*standard_policies(), grants])
        url, headers = f"{service.prefix}/namespaces/n/tables/t", new_key()
        for _ in range(2):
            assert bob.post(url, json=set_property(), headers=headers).status_code == 200
        selects = policy("bob-less", tables("n"), {BOB: ["select"]})
        service.lake.set_policies([*standard_policies(), selects])
        refused(bob.post(url, json=set_property(), headers=headers), 403, "NotAuthorized")
        service.lake.set_policies([*standard_policies(), grants])
        headers = new_key()
        for _ in range(2):
            assert bob.delete(url, headers=headers).status_code == 204
        service.lake.set_policies([*standard_policies(), selects])
        refused(bob.delete(url, headers=headers), 403, "NotAuthorized")


@pytest.mark.nightly
@pytest.mark.parametrize("kept", [["select", "create"], ["select", "alter"]], ids=["create", "alter"])
def test_repeated_rename_is_authorized_again(tmp_path: Path, kept: list[str]) -> None:
    """ALTER on the table, CREATE of its new name: neither is enough alone."""
    grants = policy("bob-more", tables("n"), {BOB: ["select", "alter", "create"]})
    with open_service(tmp_path) as service, service.client(BOB) as bob, service.client() as alice:
        service.lake.catalog().create_namespace("n")
        new_table(alice, service.prefix, "n").raise_for_status()
        service.lake.set_policies([*standard_policies(), grants])
        url, headers = f"{service.prefix}/tables/rename", new_key()
        body = {
            "source": {"namespace": ["n"], "name": "t"},
            "destination": {"namespace": ["n"], "name": "t2"},
        }
        for _ in range(2):
            assert bob.post(url, json=body, headers=headers).status_code == 204
        service.lake.set_policies([*standard_policies(), policy("bob-less", tables("n"), {BOB: kept})])
        refused(bob.post(url, json=body, headers=headers), 403, "NotAuthorized")


def test_repeated_creation_shows_no_later_state_to_those_who_cannot_load_the_table(tmp_path: Path) -> None:
    """CREATE alone shows the table as it was made, not what others put into it."""
    with open_service(tmp_path) as service, service.client(BOB) as bob, service.client() as alice:
        service.lake.catalog().create_namespace("n")
        service.lake.set_policies([*standard_policies(), policy("makes", tables("n"), {BOB: ["create"]})])
        url, headers = "/engine/v1/namespaces/n/tables", new_key()
        body = {"name": "t", "schema": SCHEMA}
        assert bob.post(url, json=body, headers=headers).status_code == 200
        assert bob.post(url, json=body, headers=headers).status_code == 200
        changed = alice.post(f"{service.prefix}/namespaces/n/tables/t", json=set_property("x"))
        assert changed.status_code == 200, changed.text
        refused(bob.post("/engine/v1/tables/n/t/load"), 403, "NotAuthorized")
        refused(bob.post(url, json=body, headers=headers), 403, "NotAuthorized")


def test_repetition_does_not_tell_where_a_table_went(tmp_path: Path) -> None:
    with open_service(tmp_path) as service, service.client(BOB) as bob, service.client() as alice:
        for each in ("n", "hidden"):
            service.lake.catalog().create_namespace(each)
        service.lake.set_policies([*standard_policies(), policy("makes", tables("n"), {BOB: ["create"]})])
        url, headers = f"{service.prefix}/namespaces/n/tables", new_key()
        body = {"name": "t", "schema": SCHEMA}
        assert bob.post(url, json=body, headers=headers).status_code == 200
        names = ({"namespace": ["n"], "name": "t"}, {"namespace": ["hidden"], "name": "t2"})
        rename = dict(zip(("source", "destination"), names, strict=True))
        assert alice.post(f"{service.prefix}/tables/rename", json=rename).status_code == 204
        again = bob.post(url, json=body, headers=headers)
        refused(again, 404, "NoSuchTable", "idempotency-key")
        assert "hidden" not in again.text and "t2" not in again.text


def test_unavailability_is_not_kept(served: Service, alice: httpx.Client, namespace: str) -> None:
    headers = new_key()

    def fail() -> None:
        raise StateUnavailable("The database does not answer.")

    with crash_points.hooked(once_at("checked", fail)):
        body = {"name": "t", "schema": {"type": "struct", "fields": []}}
        url = f"{served.prefix}/namespaces/{namespace}/tables"
        refused(alice.post(url, json=body, headers=headers), 503, "StateUnavailable")
        assert alice.post(url, json=body, headers=headers).status_code == 200


def test_outcome_is_recorded_with_the_pointer(served: Service, alice: httpx.Client, namespace: str) -> None:
    new_table(alice, served.prefix, namespace)
    url, headers = f"{served.prefix}/namespaces/{namespace}/tables/t", new_key()

    def die() -> None:
        raise OSError("the process ends here")

    with crash_points.hooked(once_at("published", die)):
        assert alice.post(url, json=set_property(), headers=headers).status_code == 500
        again = alice.post(url, json=set_property(), headers=headers)
    assert again.status_code == 200, again.text
    assert commits(served, f"{namespace}.t") == 2


def test_commit_that_changes_nothing_is_kept(served: Service, alice: httpx.Client, namespace: str) -> None:
    new_table(alice, served.prefix, namespace)
    url, headers = f"{served.prefix}/namespaces/{namespace}/tables/t", new_key()
    held = {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}
    nothing = {"requirements": [held], "updates": []}
    assert alice.post(url, json=nothing, headers=headers).status_code == 200
    changes = {"changes": [{"action": "add-column", "path": ["more"], "type": "long"}]}
    assert alice.post(f"/engine/v1/tables/{namespace}/t/alter", json=changes).status_code == 200
    again = alice.post(url, json=nothing, headers=headers)
    assert again.json()["metadata"]["last-column-id"] == 3
    refused(alice.post(url, json=nothing, headers=new_key()), 409, "CommitConflict")
    assert commits(served, f"{namespace}.t") == 2


def test_answer_names_the_table_by_its_name_of_now(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace)
    tables, headers = f"{served.prefix}/namespaces/{namespace}/tables", new_key()
    alice.post(f"{tables}/t", json=set_property(), headers=headers)
    rename = {
        "source": {"namespace": [namespace], "name": "t"},
        "destination": {"namespace": [namespace], "name": "u"},
    }
    alice.post(f"{served.prefix}/tables/rename", json=rename)
    new_table(alice, served.prefix, namespace)
    again = alice.post(f"{tables}/t", json=set_property(), headers=headers)
    assert again.json()["metadata"]["properties"]["a"] == "1"
    alice.delete(f"{tables}/u")
    refused(alice.post(f"{tables}/t", json=set_property(), headers=headers), 404, "NoSuchTable")


def test_nothing_is_kept_of_a_body(served: Service, alice: httpx.Client, namespace: str) -> None:
    body = {"namespace": [namespace, "a"], "properties": {"secret-name": "secret-value"}}
    alice.post(f"{served.prefix}/namespaces", json=body, headers=new_key())
    with read(served.lake.services.engine) as connection:
        rows = connection.execute(select(lw_idempotency)).all()
    assert rows and "secret" not in repr(rows)
