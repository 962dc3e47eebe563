"""Users who come with an access token of an identity provider, over HTTP."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.http.test_http_service_log import logging_to, until
from tests.support.http_calls import new_table, refused
from tests.support.identity_provider import AUDIENCE, IdentityProvider, identity_provider, rsa_key
from tests.support.lake import ALICE, BOB
from tests.support.service import ENGINE, Service, open_service


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Service]:
    """A service whose users come from a provider."""
    settings = {
        "IDENTITY__ISSUERS__CORP__ISSUER": provider.url,
        "IDENTITY__ISSUERS__CORP__AUDIENCE": AUDIENCE,
        "IDENTITY__OAUTH2_SERVER_URI": f"{provider.url}/token",
    }
    with open_service(tmp_path_factory.mktemp("lake"), **settings) as running:
        yield running


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def nobody(served: Service) -> Iterator[httpx.Client]:
    with served.client(None) as client:
        yield client


def test_a_user_of_the_provider_is_the_user_whom_policies_name(
    served: Service, provider: IdentityProvider, nobody: httpx.Client, namespace: str
) -> None:
    nobody.headers.update(_bearer(provider.token(ALICE)))
    assert new_table(nobody, served.prefix, namespace).status_code == 200
    nobody.headers.update(_bearer(provider.token(BOB)))
    path = f"/engine/v1/tables/{namespace}/t/load"
    refused(nobody.post(path), 403, "NotAuthorized")


def test_tokens_of_the_catalog_are_accepted_beside_those_of_the_provider(alice: httpx.Client) -> None:
    assert alice.get("/v1/config").status_code == 200


def test_an_engine_acts_for_a_user_of_the_provider_and_both_are_on_record(
    served: Service, provider: IdentityProvider, alice: httpx.Client, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace)
    path = f"/engine/v1/tables/{namespace}/t/load"
    with served.client(None, engine=ENGINE) as engine:
        engine.headers.update(_bearer(provider.token(ALICE)))
        assert engine.post(path, headers={"X-Request-Id": "for-a-user"}).status_code == 200
        engine.headers.update(_bearer(provider.token(BOB)))
        refused(engine.post(path), 403, "NotAuthorized")
        # The engine's signature does not stand in for the user's.
        engine.headers.update(_bearer(provider.token(ALICE, exp=time.time() - 100)))
        refused(engine.post(path), 401, "NotAuthenticated", "access-token")
    with served.client(None, engine="rogue") as rogue:
        rogue.headers.update(_bearer(provider.token(ALICE)))
        refused(rogue.post(path), 403, "NotAuthorized")
    records = alice.get("/admin/v1/audit").json()["records"]
    seen = {(r["principal"], r["engine"]) for r in records if r["request-id"] == "for-a-user"}
    assert seen == {(ALICE, ENGINE)}


def test_an_engine_token_of_the_provider_is_none(provider: IdentityProvider, nobody: httpx.Client) -> None:
    answer = nobody.post(
        "/engine/v1/keys", headers=_bearer(provider.token(ENGINE)), json={"public-key": "AAAA"}
    )
    refused(answer, 401, "NotAuthenticated")


def test_the_caller_does_not_learn_which_check_refused_but_the_log_and_the_audit_log_do(
    provider: IdentityProvider, nobody: httpx.Client, alice: httpx.Client
) -> None:
    wrong = {
        "audience": provider.token(aud="other"),
        "expired": provider.token(exp=time.time() - 100),
        "signature": provider.signed(provider.claims(), {"kid": "first"}, rsa_key("second")),
        "issuer": provider.token(iss="https://other.example"),
    }
    stream = io.StringIO()
    answers = set()
    with logging_to(stream, format="json"):
        for check, token in wrong.items():
            headers = {**_bearer(token), "X-Request-Id": f"wrong-{check}"}
            answer = nobody.get("/v1/config", headers=headers)
            refused(answer, 401, "NotAuthenticated", "access-token")
            answers.add(answer.text.replace(f"wrong-{check}", ""))

        def logged() -> list[dict[str, str]]:
            lines = map(json.loads, stream.getvalue().splitlines())
            return [line for line in lines if str(line.get("request_id")).startswith("wrong-")]

        found = {line["request_id"]: line["why"] for line in until(logged, len(wrong))}
    assert len(answers) == 1
    records = alice.get("/admin/v1/audit").json()["records"]
    for check, token in wrong.items():
        assert found[f"wrong-{check}"].startswith(f"{check}: ")
        assert token not in stream.getvalue() + json.dumps(records)
    # Of refusals of one kind, the first is recorded and the others are counted.
    why = [r["reasons"][0]["detail"] for r in records if r["action"] == "authenticate"]
    assert why and why[0].partition(":")[0] in {*wrong, "expired"}


def test_a_user_waits_for_no_provider_that_does_not_answer(tmp_path: Path) -> None:
    with identity_provider() as away:
        away.status = 503
        settings = {
            "IDENTITY__ISSUERS__CORP__ISSUER": away.url,
            "IDENTITY__ISSUERS__CORP__AUDIENCE": AUDIENCE,
        }
        with open_service(tmp_path, **settings) as service, service.client(None) as client:
            answer = client.get("/v1/config", headers=_bearer(away.token(ALICE)))
            refused(answer, 503, "ProviderUnavailable", "identity-provider")
            # Users with a token of the catalog need no provider.
            headers = _bearer(service.token(ALICE))
            assert client.get("/v1/config", headers=headers).status_code == 200


def test_standard_clients_are_told_where_tokens_come_from_and_get_them_there(
    served: Service, provider: IdentityProvider, alice: httpx.Client, namespace: str
) -> None:
    told = alice.get("/v1/config").json()["defaults"]
    assert told["oauth2-server-uri"] == f"{provider.url}/token"
    properties = {"credential": f"{ALICE}:secret", "oauth2-server-uri": told["oauth2-server-uri"]}
    client = RestCatalog("stock", uri=served.url, **properties)
    assert (namespace,) in client.list_namespaces()
    assert "/token" in provider.asked
