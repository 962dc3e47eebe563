"""The Iceberg REST operations, as the specification describes them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.http_calls import SCHEMA, new_table, refused, tables_of
from tests.support.service import Service


def test_config_names_the_prefix_and_what_is_served(served: Service, alice: httpx.Client) -> None:
    config = alice.get("/v1/config").json()
    assert config["overrides"] == {"prefix": "lakewarden"}
    assert config["defaults"] == {}
    assert "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}" in config["endpoints"]
    assert all(" /v1/{prefix}/" in each for each in config["endpoints"])


def test_each_announced_operation_is_served(served: Service, alice: httpx.Client) -> None:
    for each in alice.get("/v1/config").json()["endpoints"]:
        method, path = each.split(" ")
        names = {
            "prefix": "lakewarden",
            "namespace": "no-such",
            "table": "none",
            "plan-id": "none",
            "view": "none",
        }
        filled = path.format(**names)
        answer = alice.request(method, filled)
        assert answer.status_code not in (405, 500), each
        if answer.status_code == 404 and method != "HEAD":
            assert answer.json()["error"]["lakewarden"] != "NoSuchEndpoint", each


def test_warehouse_is_the_catalog_or_its_location(served: Service, alice: httpx.Client) -> None:
    location = served.lake.settings.warehouse
    for known in ("lakewarden", location, location + "/"):
        assert alice.get("/v1/config", params={"warehouse": known}).status_code == 200
    for unknown in ("other", "s3://elsewhere/x", ""):
        answer = alice.get("/v1/config", params={"warehouse": unknown})
        assert refused(answer, 404, "NoSuchWarehouse")["type"] == "NoSuchWarehouseException"


def test_other_prefix_is_refused(alice: httpx.Client) -> None:
    refused(alice.get("/v1/other/namespaces"), 404, "NoSuchWarehouse", "prefix")


def test_namespaces_from_creation_to_drop(served: Service, alice: httpx.Client, namespace: str) -> None:
    url = f"{served.prefix}/namespaces"
    made = alice.post(url, json={"namespace": [namespace, "sub é"], "properties": {"a": "1"}})
    assert made.json() == {"namespace": [namespace, "sub é"], "properties": {"a": "1"}}
    nested = f"{url}/{namespace}%1Fsub%20%C3%A9"
    assert alice.get(nested).json()["properties"] == {"a": "1"}
    assert alice.head(nested).status_code == 204
    below = alice.get(url, params={"parent": namespace}).json()
    assert below == {"namespaces": [[namespace, "sub é"]], "next-page-token": None}
    changed = alice.post(f"{nested}/properties", json={"removals": ["a", "z"], "updates": {"b": "2"}})
    assert changed.json() == {"updated": ["b"], "removed": ["a"], "missing": ["z"]}
    refused(alice.delete(f"{url}/{namespace}"), 409, "NamespaceNotEmpty")
    assert alice.delete(nested).status_code == 204
    assert alice.head(nested).status_code == 404
    refused(alice.get(nested), 404, "NoSuchNamespace")


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("levels", [[], [""], ["a.b"], ["a/b"], [" a"], ["a\u202eb"], ["x"] * 9, ["x" * 200]])
def test_names_that_could_be_read_in_two_ways(
    served: Service, alice: httpx.Client, levels: list[str]
) -> None:
    refused(alice.post(f"{served.prefix}/namespaces", json={"namespace": levels}), 400, "RequestInvalid")


def test_loaded_table_is_what_pyiceberg_expects(served: Service, alice: httpx.Client, namespace: str) -> None:
    made = new_table(alice, served.prefix, namespace, properties={"owner": "me"}).json()
    loaded = alice.get(f"{served.prefix}/namespaces/{namespace}/tables/t").json()
    assert loaded == made
    assert loaded["config"] == {
        "lakewarden.sealed": "true",
        "lakewarden.principal": "alice",
        "lakewarden.policy-version": served.lake.services.policies.current().version,
        "lakewarden.governed-version": "1",
        "lakewarden.masked-fields": "",
    }
    properties = loaded["metadata"]["properties"]
    assert properties["owner"] == "me"
    assert properties["read.allowed.data.paths"] == loaded["metadata"]["location"]
    stored = served.lake.warehouse / namespace
    assert json.loads(next(stored.glob("*/metadata/*.json")).read_text())["properties"] == {"owner": "me"}


def test_etag_spares_the_second_load(served: Service, alice: httpx.Client, namespace: str) -> None:
    new_table(alice, served.prefix, namespace)
    url = f"{served.prefix}/namespaces/{namespace}/tables/t"
    etag = alice.get(url).headers["etag"]
    for known in (etag, etag.removeprefix("W/"), f'"x", {etag}', "*"):
        again = alice.get(url, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert alice.get(url, headers={"If-None-Match": '"x"'}).status_code == 200
    refs = alice.get(url, params={"snapshots": "refs"}, headers={"If-None-Match": etag})
    assert refs.status_code == 200 and refs.headers["etag"] != etag


def test_etag_changes_with_governed_properties(served: Service, alice: httpx.Client, namespace: str) -> None:
    made = new_table(alice, served.prefix, namespace).json()
    url = f"{served.prefix}/namespaces/{namespace}/tables/t"
    etag = alice.get(url).headers["etag"]
    paths = f"{made['metadata']['location']},file:///srv/other"
    body = {"set": {"read.allowed.data.paths": paths}}
    assert alice.patch(f"/admin/v1/tables/{namespace}/t", json=body).status_code == 200
    again = alice.get(url, headers={"If-None-Match": etag})
    assert again.status_code == 200
    assert again.json()["metadata"]["properties"]["read.allowed.data.paths"] == paths


def test_table_exists_drop_and_purge(served: Service, alice: httpx.Client, namespace: str) -> None:
    url = f"{served.prefix}/namespaces/{namespace}/tables/t"
    for arguments, left in (("", True), ("?purgeRequested=true", False)):
        made = new_table(alice, served.prefix, namespace).json()
        assert alice.head(url).status_code == 204
        assert alice.delete(url + arguments).status_code == 204
        assert alice.head(url).status_code == 404
        refused(alice.delete(url), 404, "NoSuchTable")
        directory = served.lake.warehouse / namespace / made["metadata"]["location"].rsplit("/", 1)[-1]
        assert any(directory.rglob("*.json")) == left


def test_create_is_refused_twice_and_in_no_namespace(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    assert new_table(alice, served.prefix, namespace).status_code == 200
    refused(new_table(alice, served.prefix, namespace), 409, "TableExists")
    refused(new_table(alice, served.prefix, "no-such"), 404, "NoSuchNamespace")


BAD_TABLES: dict[str, dict[str, Any]] = {
    "unknown governed property": {"properties": {"encryption.mode": "x"}},
    "other case": {"properties": {"Read.Allowed.Data.Paths": "file:///x"}},
    "confusable": {"properties": {"reаd.allowed.data.paths": "file:///x"}},
    "unparsable location in the list": {"properties": {"read.allowed.data.paths": "file:///a/../b"}},
    "list that is no JSON": {"properties": {"read.allowed.data.paths": '["file:///a'}},
    "wrong value": {"properties": {"encryption.mechanism": "rot13"}},
    "contradiction": {"properties": {"encryption.key-id": "a", "encryption.master-key-id": "b"}},
    "without effect yet": {"properties": {"orc.key.provider": "hadoop"}},
    "key metadata from a client": {"properties": {"encryption.pek-id": "x"}},
    "property that is no text": {"properties": {"a": 1}},
    "properties that are a list": {"properties": [["a", "b"]]},
    "location of a reader": {"properties": {"s3.endpoint": "http://evil"}},
    "relative location": {"location": "warehouse/t"},
    "escaping location": {"location": "file:///srv/%2e%2e/etc"},
    "format version": {"properties": {"format-version": "3"}},
    "no schema": {"schema": None},
    "schema of a list": {"schema": []},
    "unknown type": {
        "schema": {"type": "struct", "fields": [{"id": 1, "name": "a", "type": "blob", "required": True}]}
    },
    "decimal too wide": {
        "schema": {
            "type": "struct",
            "fields": [{"id": 1, "name": "a", "type": "decimal(99, 2)", "required": True}],
        }
    },
    "one field id twice": {"schema": {**SCHEMA, "fields": [SCHEMA["fields"][0]] * 2}},  # type: ignore[index]
    "spec over a missing column": {
        "partition-spec": {
            "fields": [{"source-id": 99, "field-id": 1000, "name": "p", "transform": "identity"}]
        }
    },
    "spec that is no spec": {"partition-spec": {"fields": [7]}},
    "unknown transform": {
        "partition-spec": {"fields": [{"source-id": 1, "field-id": 1000, "name": "p", "transform": {}}]}
    },
    "order that is no order": {"write-order": {"fields": "x"}},
    "name with a slash": {"name": "a/b"},
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("staged", [False, True], ids=["at once", "staged"])
@pytest.mark.parametrize("body", BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_malformed_table_is_one_error_and_nothing_half_created(
    served: Service, alice: httpx.Client, namespace: str, body: dict[str, Any], staged: bool
) -> None:
    document = {"name": "t", "schema": SCHEMA, "stage-create": staged, **body}
    answer = alice.post(f"{served.prefix}/namespaces/{namespace}/tables", json=document)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]
    assert tables_of(alice, served.prefix, namespace) == []
    assert not (served.lake.warehouse / namespace).exists()


def test_location_without_rwstorage_is_refused(served: Service, alice: httpx.Client) -> None:
    assert alice.post(f"{served.prefix}/namespaces", json={"namespace": ["bobs"]}).status_code == 200
    with served.client("bob") as bob:
        elsewhere = {"location": "file:///srv/alices"}
        refused(new_table(bob, served.prefix, "bobs", **elsewhere), 403, "NotAuthorized")
        foreign = {"properties": {"read.allowed.data.paths": "file:///srv/alices"}}
        refused(new_table(bob, served.prefix, "bobs", **foreign), 403, "NotAuthorized")
        assert new_table(bob, served.prefix, "bobs").status_code == 200


def test_staged_creation_is_completed_by_its_commit(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    governed = {"read.allowed.data.paths": "file:///srv/elsewhere"}
    staged = new_table(alice, served.prefix, namespace, properties=governed, **{"stage-create": True}).json()
    assert "metadata-location" not in staged
    assert staged["metadata"]["properties"] == governed
    assert tables_of(alice, served.prefix, namespace) == []
    answer = alice.post(
        f"{served.prefix}/namespaces/{namespace}/tables/t", json=_creation(staged["metadata"])
    )
    assert answer.status_code == 200, answer.text
    loaded = alice.get(f"{served.prefix}/namespaces/{namespace}/tables/t").json()
    assert loaded["metadata"]["table-uuid"] == staged["metadata"]["table-uuid"]
    assert loaded["metadata"]["properties"]["read.allowed.data.paths"] == "file:///srv/elsewhere"


def test_identity_that_was_not_staged_is_refused(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    staged = new_table(alice, served.prefix, namespace, **{"stage-create": True}).json()["metadata"]
    forged = {**staged, "table-uuid": "11111111-2222-4333-8444-555555555555"}
    url = f"{served.prefix}/namespaces/{namespace}/tables/t"
    refused(alice.post(url, json=_creation(forged)), 400, "RequestInvalid", "staged")
    assert tables_of(alice, served.prefix, namespace) == []


def _creation(metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": metadata["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": metadata["location"]},
            {"action": "set-properties", "updates": metadata["properties"]},
        ],
    }


def test_commit_holds_requirements_and_answers_metadata(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    made = new_table(alice, served.prefix, namespace).json()
    url = f"{served.prefix}/namespaces/{namespace}/tables/t"
    update = {"action": "set-properties", "updates": {"note": "x"}}
    right = {"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]}
    wrong = {"type": "assert-table-uuid", "uuid": "11111111-2222-4333-8444-555555555555"}
    refused(alice.post(url, json={"requirements": [wrong], "updates": [update]}), 409, "CommitConflict")
    answer = alice.post(url, json={"requirements": [right], "updates": [update]})
    assert answer.json()["metadata"]["properties"]["note"] == "x"
    assert answer.json()["metadata-location"] == alice.get(url).json()["metadata-location"]
    refused(
        alice.post(url, json={"requirements": [{"type": "assert-create"}], "updates": []}),
        400,
        "RequestInvalid",
    )


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "body",
    [
        {"requirements": [{"type": "assert-nothing"}]},
        {"requirements": [{}]},
        {"updates": [{"action": "drop-everything"}]},
        {"updates": [{"action": "set-statistics"}]},
        {"updates": [{"action": "add-snapshot", "snapshot": {"snapshot-id": "x"}}]},
        {"updates": [{"action": "add-schema", "schema": {"type": "struct", "fields": [{"id": 1}]}}]},
        {"updates": [{"action": "set-current-schema", "schema-id": 77}]},
        {"updates": [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5}]},
        {"updates": [{"action": "set-location", "location": "nowhere"}]},
        {"updates": [{"action": "upgrade-format-version", "format-version": 3}]},
        {"updates": [{"action": "set-properties", "updates": {"encryption.mode": "x"}}]},
        {"updates": [{"action": "assign-uuid", "uuid": "not-a-uuid"}]},
        {"updates": ["x"]},
        {"identifier": {"namespace": ["other"], "name": "t"}},
    ],
)
def test_malformed_commit_changes_nothing(
    served: Service, alice: httpx.Client, namespace: str, body: dict[str, Any]
) -> None:
    new_table(alice, served.prefix, namespace)
    url = f"{served.prefix}/namespaces/{namespace}/tables/t"
    before = alice.get(url).json()
    answer = alice.post(url, json=body)
    assert answer.status_code == 400, answer.text
    assert alice.get(url).json() == before


def test_rename_and_register(served: Service, alice: httpx.Client, namespace: str) -> None:
    new_table(alice, served.prefix, namespace)
    body = {
        "source": {"namespace": [namespace], "name": "t"},
        "destination": {"namespace": [namespace], "name": "u"},
    }
    assert alice.post(f"{served.prefix}/tables/rename", json=body).status_code == 204
    assert tables_of(alice, served.prefix, namespace) == ["u"]
    refused(alice.post(f"{served.prefix}/tables/rename", json=body), 404, "NoSuchTable")
    url = f"{served.prefix}/namespaces/{namespace}"
    location = alice.get(f"{url}/tables/u").json()["metadata-location"]
    assert alice.delete(f"{url}/tables/u").status_code == 204
    register = {"name": "v", "metadata-location": location}
    answer = alice.post(f"{url}/register", json=register)
    assert answer.json()["config"]["lakewarden.sealed"] == "true"
    assert tables_of(alice, served.prefix, namespace) == ["v"]


def test_what_nobody_may_see_is_not_told(served: Service, alice: httpx.Client, namespace: str) -> None:
    new_table(alice, served.prefix, namespace)
    with served.client("bob") as bob:
        for name in ("t", "missing"):
            refused(bob.get(f"{served.prefix}/namespaces/{namespace}/tables/{name}"), 403, "NotAuthorized")
            assert bob.head(f"{served.prefix}/namespaces/{namespace}/tables/{name}").status_code == 403
        assert [namespace] not in bob.get(f"{served.prefix}/namespaces").json()["namespaces"]
