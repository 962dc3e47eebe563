"""Views over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from tests.support.http_calls import SCHEMA, new_key, refused
from tests.support.lake import policies_without_code, standard_policies
from tests.support.service import Service


def _body(sql: str = "SELECT id, name FROM t", **more: Any) -> dict[str, Any]:
    text = {"type": "sql", "sql": sql, "dialect": "spark"}
    version = {"representations": [text], "default-namespace": ["db"], "summary": {"a": "b"}}
    return {"schema": SCHEMA, "view-version": version, "properties": {"comment": "c"}, **more}


def test_a_view_is_icebergs_view_metadata_in_the_database(alice: httpx.Client, namespace: str) -> None:
    views, view = f"/engine/v1/namespaces/{namespace}/views", f"/engine/v1/views/{namespace}/v"
    assert alice.post(views, json=_body(name="v")).status_code == 204
    found = alice.get(view).json()
    assert (found["owner"], found["definer"], found["version"]) == ("alice", "alice", 1)
    metadata = found["metadata"]
    assert (metadata["format-version"], metadata["properties"]) == (1, {"comment": "c"})
    assert metadata["schemas"][0]["fields"] == SCHEMA["fields"]
    (version,) = metadata["versions"]
    assert version["representations"] == [
        {"type": "sql", "sql": "SELECT id, name FROM t", "dialect": "spark"}
    ]
    assert (version["default-namespace"], version["summary"]) == (["db"], {"a": "b", "operation": "create"})
    assert alice.post(view, json=_body("SELECT 1", **{"expected-version": 1})).status_code == 204
    refused(alice.post(view, json=_body("SELECT 2", **{"expected-version": 1})), 409, "CommitConflict")
    assert alice.get(view).json()["metadata"]["current-version-id"] == 2
    named = [{"namespace": [namespace], "name": "v"}]
    assert alice.get(views).json() == {"identifiers": named}
    refused(alice.post(views, json=_body(name="v")), 409, "ViewExists")
    refused(alice.get(f"{view}2"), 404, "NoSuchView")
    refused(alice.post(views, json=_body(name="w", location="s3://b/x")), 400, "RequestInvalid")
    refused(
        alice.post(views, json=_body(name="w", schema={"type": "struct", "fields": 1})), 400, "RequestInvalid"
    )


def test_a_repeated_change_of_a_view_takes_effect_once(alice: httpx.Client, namespace: str) -> None:
    view, moved = f"/engine/v1/views/{namespace}/v", {"namespace": [namespace], "name": "w"}
    changes: list[tuple[str, str, dict[str, Any] | None]] = [
        ("POST", f"/engine/v1/namespaces/{namespace}/views", _body(name="v")),
        ("POST", view, _body("SELECT 1")),
        ("POST", "/engine/v1/views/rename", {"source": {**moved, "name": "v"}, "destination": moved}),
        ("DELETE", f"/engine/v1/views/{namespace}/w", None),
    ]
    for method, path, body in changes:
        headers = new_key()
        for _ in range(2):
            assert alice.request(method, path, json=body, headers=headers).status_code == 204, path
    refused(alice.delete(f"/engine/v1/views/{namespace}/w"), 404, "NoSuchView")


def test_v1_shows_the_same_views(served: Service, alice: httpx.Client, namespace: str) -> None:
    ours, theirs = f"/engine/v1/namespaces/{namespace}/views", f"{served.prefix}/namespaces/{namespace}/views"
    assert alice.post(ours, json=_body(name="v")).status_code == 204
    found = alice.get(f"{theirs}/v").json()
    assert found["metadata"] == alice.get(f"/engine/v1/views/{namespace}/v").json()["metadata"]
    assert alice.post(f"/engine/v1/views/{namespace}/v", json=_body("SELECT 1")).status_code == 204
    assert len(alice.get(f"{theirs}/v").json()["metadata"]["versions"]) == 2
    refused(alice.get(f"{served.prefix}/namespaces/{namespace}/tables/v"), 404, "NoSuchTable")
    assert alice.get(f"{served.prefix}/namespaces/{namespace}/tables").json()["identifiers"] == []


def test_our_engine_reads_the_text_in_its_dialect(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    views, view = f"{served.prefix}/namespaces/{namespace}/views", f"/engine/v1/views/{namespace}/v"
    body, body_of_trino = _body(name="v"), _body(name="w")
    trino = {"type": "sql", "sql": "SELECT id, name FROM u", "dialect": "trino"}
    ids = {"version-id": 1, "schema-id": 0, "timestamp-ms": 1}
    body["view-version"]["representations"].insert(0, trino)
    body_of_trino["view-version"]["representations"] = [trino]
    for each in (body, body_of_trino):
        each["view-version"] |= ids
        assert alice.post(views, json=each).status_code == 200
    (version,) = alice.get(view).json()["metadata"]["versions"]
    assert [each["dialect"] for each in version["representations"]] == ["spark"]
    refused(alice.get(f"/engine/v1/views/{namespace}/w"), 400, "NotSupportedYet", "view-dialect")
    # A change of properties keeps the other texts; another text cannot leave them out.
    same = _body(properties={"a": "b"})
    assert alice.post(view, json=same).status_code == 204
    assert len(alice.get(f"{views}/v").json()["metadata"]["versions"][0]["representations"]) == 2
    refused(alice.post(view, json=_body("SELECT 1")), 400, "ViewUpdateInvalid", "view-dialect")


def test_a_table_is_read_through_a_view_by_an_engine_alone(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    view, table = f"/engine/v1/views/{namespace}/v", {"namespace": [namespace], "name": "t"}
    assert alice.post(f"{served.prefix}/namespaces/{namespace}/tables", json={"name": "t", "schema": SCHEMA})
    body = _body(name="v", properties={"security": "definer"})
    body["view-version"] |= {"default-namespace": [namespace], "summary": {"spark.catalog-name": "lake"}}
    assert alice.post(f"/engine/v1/namespaces/{namespace}/views", json=body).status_code == 204
    found = alice.get(view).json()
    assert (found["security"], found["principal"], found["definer"]) == ("definer", "alice", "alice")
    served.lake.set_policies(policies_without_code())
    try:
        asked = {"table": table, "view-uuid": found["metadata"]["view-uuid"], "version": 1}
        with served.client("alice", engine="spark") as engine:
            loaded = engine.post(f"{view}/tables/load", json=asked)
            assert loaded.json()["config"]["lakewarden.principal"] == "alice"
            assert engine.post(f"{view}/tables/plan", json={**asked, "columns": ["id"]}).status_code == 200
            refused(engine.post(f"{view}/tables/load", json={**asked, "version": 2}), 409, "CommitConflict")
            other = {**asked, "view-uuid": str(uuid4())}
            refused(engine.post(f"{view}/tables/load", json=other), 409, "CommitConflict")
            deletes = {**asked, "position-deletes": True}
            refused(engine.post(f"{view}/tables/plan", json=deletes), 400, "RequestInvalid")
        for operation in ("load", "plan"):
            refused(alice.post(f"{view}/tables/{operation}", json=asked), 403, "NotAuthorized")
    finally:
        served.lake.set_policies(standard_policies())
