"""Who calls: nothing is answered, read or logged without or about a valid token."""

from __future__ import annotations

import logging
from datetime import timedelta

import httpx
import pytest

from catalog.http.app import create_app, open_router
from catalog.http.routing import EngineRoute, GuardedRoute
from catalog.service.service_log import TextLines
from policy.principal import Principal
from tests.support.http_calls import new_table, refused
from tests.support.service import ENGINE, Service

OPEN = ("/livez", "/readyz", "/healthz")


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_every_operation_but_those_of_health_is_guarded(served: Service) -> None:
    app = create_app(served.lake.services)
    described = {(path, method) for path, item in app.openapi()["paths"].items() for method in item}
    assert len(described) > 40
    with served.client(None) as nobody:
        for path, method in sorted(described):
            answer = nobody.request(method, path)
            if path in OPEN:
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, (path, method)
                assert answer.headers["www-authenticate"].startswith("Bearer")
        refused(nobody.get("/openapi.json"), 401, "NotAuthenticated")
    assert [route.path for route in open_router.routes] == list(OPEN)


def test_only_engine_routes_take_engines() -> None:
    assert not GuardedRoute.takes_engines and EngineRoute.takes_engines


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YTpi"},
        _bearer("lw_nonsense"),
        _bearer("lw_" + "0" * 32 + "_" + "A" * 43),
        _bearer("x" * 10_000),
    ],
)
def test_wrong_tokens_are_one_error(served: Service, headers: dict[str, str]) -> None:
    with served.client(None) as nobody:
        refused(nobody.get("/v1/config", headers=headers), 401, "NotAuthenticated", "token")


def test_scheme_is_compared_without_case(served: Service) -> None:
    with served.client(None) as client:
        header = {"Authorization": f"bearer {served.token('alice')}"}
        assert client.get("/v1/config", headers=header).status_code == 200


def test_two_tokens_are_refused(served: Service) -> None:
    token = served.token("alice")
    headers = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    with served.client(None) as client:
        refused(client.get("/v1/config", headers=headers), 401, "NotAuthenticated", "token")


def test_token_in_the_address_is_no_token(served: Service) -> None:
    with served.client(None) as client:
        answer = client.get("/v1/config", params={"access_token": served.token("alice")})
        refused(answer, 401, "NotAuthenticated")


def test_revoked_token_stops_at_once(served: Service) -> None:
    tokens = served.lake.services.tokens
    issued = tokens.issue(Principal("alice"), "user", timedelta(hours=1))
    with served.client(None) as client:
        assert client.get("/v1/config", headers=_bearer(issued.text)).status_code == 200
        tokens.revoke(issued.id)
        refused(client.get("/v1/config", headers=_bearer(issued.text)), 401, "NotAuthenticated")


def test_kinds_of_tokens_do_not_replace_each_other(served: Service) -> None:
    user, engine = served.token("alice"), served.engine_token()
    with served.client(None) as client:
        refused(client.get("/v1/config", headers=_bearer(engine)), 401, "NotAuthenticated")
        answer = client.post("/engine/v1/tables/a/b/load", headers=_bearer(engine))
        refused(answer, 401, "NotAuthenticated")
        answer = client.post("/engine/v1/keys", headers=_bearer(user), json={"public-key": "AAAA"})
        refused(answer, 401, "NotAuthenticated")


def test_body_of_nobody_is_not_looked_at(served: Service) -> None:
    with served.client(None) as nobody:
        headers = {"Content-Type": "application/json"}
        answer = nobody.post(f"{served.prefix}/namespaces", content=b"[" * 5000, headers=headers)
    refused(answer, 401, "NotAuthenticated")


def test_engine_needs_the_right_to_act(served: Service, alice: httpx.Client, namespace: str) -> None:
    assert new_table(alice, served.prefix, namespace).status_code == 200
    with served.client("alice", engine="rogue") as rogue:
        error = refused(rogue.post(f"/engine/v1/tables/{namespace}/t/load"), 403, "NotAuthorized")
        assert "rogue" in error["message"]
    with served.client("alice", engine=ENGINE) as spark:
        assert spark.post(f"/engine/v1/tables/{namespace}/t/load").status_code == 200


def test_engine_and_user_stand_in_the_audit_trail(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace)
    with served.client("alice", engine=ENGINE) as spark:
        spark.post(f"/engine/v1/tables/{namespace}/t/load", headers={"X-Request-Id": "by-engine"})
    records = alice.get("/admin/v1/audit").json()["records"]
    seen = {(r["action"], r["principal"], r["engine"]) for r in records if r["request-id"] == "by-engine"}
    assert seen == {("table.load", "alice", ENGINE)}


def test_refusal_of_an_engine_stands_in_the_audit_trail(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    with served.client("alice", engine="stranger") as stranger:
        stranger.post(f"/engine/v1/tables/{namespace}/t/load", headers={"X-Request-Id": "by-stranger"})
    records = alice.get("/admin/v1/audit").json()["records"]
    seen = {(r["action"], r["principal"], r["allowed"]) for r in records if r["request-id"] == "by-stranger"}
    assert seen == {("engine.act", "stranger", False)}


def test_engine_gives_a_user_no_more_rights(served: Service, alice: httpx.Client, namespace: str) -> None:
    new_table(alice, served.prefix, namespace)
    with served.client("bob", engine=ENGINE) as spark:
        refused(spark.post(f"/engine/v1/tables/{namespace}/t/load"), 403, "NotAuthorized")
        refused(spark.post(f"/engine/v1/tables/{namespace}/t/plan", json={}), 403, "NotAuthorized")
        refused(spark.post(f"/engine/v1/tables/{namespace}/t/writes"), 403, "NotAuthorized")


def test_tokens_are_never_logged(served: Service, caplog: pytest.LogCaptureFixture) -> None:
    user, engine = served.token("alice"), served.engine_token()
    caplog.set_level(logging.DEBUG, "lakewarden")
    caplog.set_level(logging.DEBUG, "uvicorn")
    with served.client("alice", engine=ENGINE) as client:
        client.get("/v1/config", params={"warehouse": user})
        client.get(f"/{user}")
        client.get("/v1/config", headers={"X-Request-Id": "logged-1"})
        client.post("/engine/v1/tables/a/b/load")
    with served.client(None) as client:
        client.post("/engine/v1/keys", headers=_bearer(engine), json={"public-key": "AAAA"})
    own = [
        TextLines().format(record)
        for record in caplog.records
        if not record.name.startswith(("httpx", "httpcore"))
    ]
    assert any("logged-1" in line for line in own)
    assert not any(user in line or engine in line for line in own)


def test_engine_header_counts_for_nothing_in_administration(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    """Administration is the user's own, whichever engine signs the request."""
    headers = {"Signature": "lakewarden=:AAAA:", "X-Request-Id": "elsewhere-1"}
    new_table(alice, served.prefix, namespace)
    assert alice.get(f"/admin/v1/tables/{namespace}/t", headers=headers).status_code == 200
    records = alice.get("/admin/v1/audit").json()["records"]
    assert {r["engine"] for r in records if r["request-id"] == "elsewhere-1"} == {None}


def test_engine_header_counts_under_v1(served: Service, alice: httpx.Client, namespace: str) -> None:
    url = f"{served.prefix}/namespaces/{namespace}"
    refused(alice.get(url, headers={"Signature": "lakewarden=:AAAA:"}), 401, "NotAuthenticated")
    with served.client("alice", engine=ENGINE) as spark:
        assert spark.get(url, headers={"X-Request-Id": "v1-by-engine"}).status_code == 200
    records = alice.get("/admin/v1/audit").json()["records"]
    assert {r["engine"] for r in records if r["request-id"] == "v1-by-engine"} == {ENGINE}
