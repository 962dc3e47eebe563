"""Login to the console at an identity provider: authorization code with PKCE, state and nonce."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from catalog.audit.trail import read as read_audit
from policy.errors import RequestInvalid
from tests.support.console import COOKIE, URL, Browser, browser, session_in, text_of
from tests.support.identity_provider import AUDIENCE, IdentityProvider, identity_provider, rsa_key
from tests.support.lake import lake_settings
from tests.support.service import Service, open_service

CLIENT = "lake-console"
SECRET = "s:cret/with %"
LOGIN = f"{COOKIE}-login"
BACK = "/console/login/corp/callback"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Service]:
    """A service with two issuers: users log in to the console by one of them."""
    settings = {
        "CONSOLE__URL": URL,
        "IDENTITY__ISSUERS__CORP__ISSUER": provider.url,
        "IDENTITY__ISSUERS__CORP__AUDIENCE": AUDIENCE,
        "IDENTITY__ISSUERS__CORP__LOGOUT_AUDIENCE": "lake-client",
        "IDENTITY__ISSUERS__CORP__MAX_LIFETIME_S": "3600",
        "IDENTITY__ISSUERS__CORP__CONSOLE__CLIENT_ID": CLIENT,
        "IDENTITY__ISSUERS__CORP__CONSOLE__CLIENT_SECRET": SECRET,
        "IDENTITY__ISSUERS__OTHER__ISSUER": "https://other.example",
        "IDENTITY__ISSUERS__OTHER__AUDIENCE": AUDIENCE,
        "IDENTITY__ISSUERS__OTHER__PREFIX": "other:",
    }
    with open_service(tmp_path_factory.mktemp("lake"), **settings) as running:
        yield running


@pytest.fixture(autouse=True)
def ann_logs_in(provider: IdentityProvider) -> None:
    provider.user = "ann"


def _begun(opened: Browser) -> tuple[str, httpx.Response]:
    """Begin a login: the cookie's value, and the answer."""
    answer = opened.get("/console/login/corp")
    assert answer.status_code == 303, answer.text
    found = re.search(rf"{LOGIN}=([^;]+)", answer.headers["set-cookie"])
    assert found is not None
    return found[1], answer


def _finished(opened: Browser, kept: str | None, **query: str) -> httpx.Response:
    headers = {} if kept is None else {"Cookie": f"{LOGIN}={kept}"}
    return opened.client.get(BACK, params=query, headers=headers)


def _answered(provider: IdentityProvider, begun: httpx.Response) -> dict[str, str]:
    """What the provider sends a browser back with."""
    back = urlsplit(provider.sent_back(urlsplit(begun.headers["location"]).query))
    assert f"{back.scheme}://{back.netloc}{back.path}" == f"{URL}{BACK}"
    return {name: values[0] for name, values in parse_qs(back.query).items()}


def test_a_user_logs_in_at_the_provider(served: Service, provider: IdentityProvider) -> None:
    opened = browser(served, None)
    assert 'href="/console/login/corp"' in opened.get("/console/login").text
    kept, begun = _begun(opened)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(begun.headers["location"]).query).items()}
    assert (asked["response_type"], asked["client_id"], asked["scope"]) == ("code", CLIENT, "openid")
    assert asked["code_challenge_method"] == "S256" and kept not in begun.headers["location"]
    assert "SameSite=lax" in begun.headers["set-cookie"] and "HttpOnly" in begun.headers["set-cookie"]
    answer = _finished(opened, kept, **_answered(provider, begun))
    assert answer.status_code == 200
    opened.cookie = session_in(answer)
    assert "ann" in text_of(opened.get("/console"))
    authorization, fields = provider.exchanged[-1]
    assert authorization == f"Basic {base64.b64encode(b'lake-console:s%3Acret%2Fwith%20%25').decode()}"
    assert SECRET not in repr(fields) and "client_id" not in fields


def test_a_logout_at_the_provider_ends_the_session(served: Service, provider: IdentityProvider) -> None:
    opened, provider.user = browser(served, None), "eve"
    kept, begun = _begun(opened)
    opened.cookie = session_in(_finished(opened, kept, **_answered(provider, begun)))
    assert opened.get("/console").status_code == 200
    token = provider.logout_token(sub="eve")
    assert opened.client.post("/identity/v1/logout", data={"logout_token": token}).status_code == 200
    assert opened.get("/console").status_code == 401


def test_a_code_counts_in_the_browser_that_began_the_login(
    served: Service, provider: IdentityProvider
) -> None:
    """Attack: a victim's browser is sent back with the attacker's code, and so logged in as the attacker."""
    attacker, victim = browser(served, None), browser(served, None)
    kept, begun = _begun(attacker)
    answer = _answered(provider, begun)
    other, _ = _begun(victim)
    asked = len(provider.exchanged)
    for cookie in (None, other, "x", "A" * 43):
        refused = _finished(victim, cookie, **answer)
        assert refused.status_code == 401 and "set-cookie" not in refused.headers
    assert len(provider.exchanged) == asked
    assert _finished(attacker, kept, **answer).status_code == 200


def test_a_code_counts_once(served: Service, provider: IdentityProvider) -> None:
    opened = browser(served, None)
    kept, begun = _begun(opened)
    answer = _answered(provider, begun)
    assert _finished(opened, kept, **answer).status_code == 200
    assert _finished(opened, kept, **answer).status_code == 401


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "x"},
        {"state": "é"},
        {"iss": "https://other.example"},
        {"code": "made-up"},
        {"error": "access_denied", "code": ""},
    ],
    ids=["state", "state-not-ascii", "issuer", "code", "error"],
)
def test_what_the_provider_did_not_send_is_refused(
    served: Service, provider: IdentityProvider, changed: dict[str, str]
) -> None:
    opened = browser(served, None)
    kept, begun = _begun(opened)
    refused = _finished(opened, kept, **(_answered(provider, begun) | changed))
    assert refused.status_code == 401 and session_in(refused) is None
    last = read_audit(served.lake.services.engine, principal="", limit=1)[0].record
    assert (last.action, last.reasons[0].rule) == ("authenticate", "console-login")


def test_a_parameter_that_is_given_twice_is_refused(served: Service, provider: IdentityProvider) -> None:
    opened = browser(served, None)
    kept, begun = _begun(opened)
    twice = [*_answered(provider, begun).items(), ("code", "other")]
    assert opened.client.get(BACK, params=twice, headers={"Cookie": f"{LOGIN}={kept}"}).status_code == 400


Tokens = dict[str, Any]


@pytest.mark.parametrize(
    "changed",
    [
        lambda provider, login: {"id_token": None},
        lambda provider, login: {"access_token": None},
        lambda provider, login: {"token_type": "mac"},
        lambda provider, login: {"id_token": provider.token("ann", aud=CLIENT, nonce="x")},
        lambda provider, login: {"id_token": provider.token("ann", aud=CLIENT)},
        lambda provider, login: {"id_token": provider.token("ann", nonce=login["nonce"])},
        lambda provider, login: {"id_token": provider.token("bob", aud=CLIENT, nonce=login["nonce"])},
        lambda provider, login: {
            "id_token": provider.token("ann", aud=[CLIENT, "x"], azp="x", nonce=login["nonce"])
        },
        lambda provider, login: {
            "id_token": provider.token("ann", aud=CLIENT, nonce=login["nonce"], exp=1_000_000)
        },
        lambda provider, login: {
            "id_token": provider.signed(
                provider.claims("ann", aud=CLIENT, nonce=login["nonce"]), key=rsa_key("other")
            )
        },
        lambda provider, login: {"access_token": provider.token("ann", aud="another api")},
    ],
    ids=[
        "no-id",
        "no-access",
        "type",
        "nonce",
        "no-nonce",
        "audience",
        "subject",
        "party",
        "expired",
        "key",
        "access-audience",
    ],
)
def test_tokens_that_are_not_of_this_login_are_refused(
    served: Service,
    provider: IdentityProvider,
    monkeypatch: pytest.MonkeyPatch,
    changed: Callable[[IdentityProvider, dict[str, str]], Tokens],
) -> None:
    """Attack: tokens that were given to another client, for another login or user."""
    opened = browser(served, None)
    kept, begun = _begun(opened)
    answer = _answered(provider, begun)
    login = dict(provider.codes[answer["code"]])
    good = provider.tokens_for

    def forged(fields: Any) -> Any:
        given = (good(fields) or {}) | changed(provider, login)
        return {name: value for name, value in given.items() if value is not None}

    monkeypatch.setattr(provider, "tokens_for", forged)
    refused = _finished(opened, kept, **answer)
    assert refused.status_code == 401 and session_in(refused) is None


def test_a_provider_that_does_not_answer_is_named_and_others_log_in(
    served: Service, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = browser(served, None)
    kept, begun = _begun(opened)
    monkeypatch.setattr(provider, "status", 502)
    for answer in (opened.get("/console/login/corp"), _finished(opened, kept, **_answered(provider, begun))):
        assert answer.status_code == 503 and "corp" in answer.text
    assert browser(served).get("/console").status_code == 200


@pytest.mark.parametrize("name", ["other", "none", "CORP"])
def test_an_issuer_without_a_client_for_the_console_is_none_to_log_in_by(served: Service, name: str) -> None:
    opened = browser(served, None)
    assert opened.get(f"/console/login/{name}").status_code == 404
    assert opened.get(f"/console/login/{name}/callback").status_code == 404


@pytest.mark.parametrize(
    "settings",
    [
        {"CONSOLE__URL": None},
        {"IDENTITY__ISSUERS__CORP__CONSOLE__SCOPE": "profile"},
        {"IDENTITY__ISSUERS__CORP__ISSUER": "corp", "IDENTITY__ISSUERS__CORP__JWKS_URI": "https://a.example"},
    ],
    ids=["no-console", "no-openid", "no-discovery"],
)
def test_a_client_that_cannot_serve_is_refused_at_the_start(
    tmp_path: Path, settings: dict[str, str | None]
) -> None:
    good = {
        "CONSOLE__URL": URL,
        "IDENTITY__ISSUERS__CORP__ISSUER": "https://login.example",
        "IDENTITY__ISSUERS__CORP__AUDIENCE": AUDIENCE,
        "IDENTITY__ISSUERS__CORP__CONSOLE__CLIENT_ID": CLIENT,
    }
    lake_settings(tmp_path, **good)
    whole = {name: value for name, value in (good | settings).items() if value is not None}
    with pytest.raises(RequestInvalid, match="console"):
        lake_settings(tmp_path, **whole)
