"""Attacks on the credential of an engine: what a request signs, and who can register a key."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Mapping
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from catalog.client.engine_key import EngineKey
from policy.principal import Principal
from tests.support.http_calls import new_table, refused
from tests.support.lake import ALICE, BOB, policies_without_code, policy, standard_policies
from tests.support.service import ENGINE, Service

LOAD = "/engine/v1/tables/{}/t/load"


@pytest.fixture
def path(served: Service, alice: httpx.Client, namespace: str) -> str:
    """An operation that an engine's signature is looked at for."""
    assert new_table(alice, served.prefix, namespace).status_code == 200
    return LOAD.format(namespace)


@pytest.fixture
def key(served: Service) -> EngineKey:
    return served.engine_auth().key


def _user(served: Service, name: str = ALICE) -> dict[str, str]:
    return {"Authorization": f"Bearer {served.token(name)}"}


def _send(
    served: Service, path: str, headers: Mapping[str, str], body: bytes | None = None, method: str = "POST"
) -> httpx.Response:
    declared = {} if body is None else {"Content-Type": "application/json"}
    with served.client(None) as client:
        return client.request(method, path, headers={**headers, **declared}, content=body)


def _public() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _register(served: Service, token: str | None, public_key: str | None = None) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with served.client(None) as client:
        body = {"public-key": _public() if public_key is None else public_key}
        return client.post("/engine/v1/keys", headers=headers, json=body)


def _started(served: Service, token: str) -> EngineKey:
    """An engine that has registered its key."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    keys = served.lake.services.engine_keys
    return EngineKey(keys.register(keys.bootstrap(token), public).id, private)


def _loads(served: Service, key: EngineKey, path: str) -> httpx.Response:
    return _send(served, path, key.signed("POST", path, None, _user(served)))


def test_a_signed_request_is_the_engines(served: Service, key: EngineKey, path: str) -> None:
    assert _loads(served, key, path).status_code == 200


def test_a_stolen_signature_serves_no_other_path_method_query_or_body(
    served: Service, alice: httpx.Client, key: EngineKey, path: str
) -> None:
    assert new_table(alice, served.prefix, path.split("/")[4], "other").status_code == 200
    elsewhere = path.replace("/t/", "/other/")
    for url, body, method in (
        (elsewhere, None, "POST"),
        (f"{path}?a=b", None, "POST"),
        (path.replace("/load", "/plan"), b"{}", "POST"),
        (path, b"{}", "POST"),
        (path, None, "DELETE"),
        (path.replace("/t/", "/%74/"), None, "POST"),
    ):
        stolen = key.signed("POST", path, None, _user(served))
        answer = _send(served, url, stolen, body, method)
        assert answer.status_code in (401, 405), (url, body, method)


def test_a_stolen_signature_serves_no_other_idempotency_key(
    served: Service, key: EngineKey, path: str
) -> None:
    one, other = ({"Idempotency-Key": f"018f3f3e-0000-7000-8000-00000000000{n}"} for n in range(2))
    for signed_for, sent_with in ((one, other), (one, {}), ({}, one)):
        signed = key.signed("POST", path, None, _user(served) | signed_for)
        kept = {name: value for name, value in signed.items() if name != "Idempotency-Key"}
        refused(_send(served, path, kept | sent_with), 401, "NotAuthenticated")
    assert _send(served, path, key.signed("POST", path, None, _user(served) | one)).status_code == 200


def test_a_body_other_than_the_signed_one_has_no_effect(
    served: Service, alice: httpx.Client, key: EngineKey, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace)
    path = f"/engine/v1/tables/{namespace}/t/alter"
    honest = b'{"changes": [{"action": "set-property", "name": "note", "value": "honest"}]}'
    headers = key.signed("POST", path, honest, _user(served))
    refused(_send(served, path, headers, honest.replace(b"honest", b"forged")), 401, "NotAuthenticated")
    shown = alice.get(f"{served.prefix}/namespaces/{namespace}/tables/t").json()["metadata"]["properties"]
    assert "note" not in shown


def test_a_stolen_signature_serves_no_other_user(served: Service, key: EngineKey, path: str) -> None:
    stolen = key.signed("POST", path, None, _user(served))
    error = refused(_send(served, path, stolen | _user(served, BOB)), 401, "NotAuthenticated")
    assert error["rule"] == "engine-signature"


def test_a_signature_serves_once(served: Service, key: EngineKey, path: str) -> None:
    headers = key.signed("POST", path, None, _user(served))
    assert _send(served, path, headers).status_code == 200
    answer = _send(served, path, headers)
    assert refused(answer, 401, "NotAuthenticated")["rule"] == "engine-signature-stale"


@pytest.mark.parametrize("late_s", [-40, 40])
def test_a_signature_serves_only_at_its_time(
    served: Service, path: str, late_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, now = _started(served, served.engine_token()), time.time()
    with monkeypatch.context() as then:
        then.setattr("catalog.client.engine_key.time.time", lambda: now - late_s)
        headers = key.signed("POST", path, None, _user(served))
    answer = _send(served, path, headers)
    assert refused(answer, 401, "NotAuthenticated")["rule"] == "engine-signature-stale"
    assert abs(int(answer.headers["Lakewarden-Time"]) - time.time()) < 30
    assert key.corrected_by(_Status(answer))
    assert _loads(served, key, path).status_code == 200


class _Status:
    """An answer as the client sees it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status, self.headers = answer.status_code, answer.headers


def test_a_time_far_from_the_hosts_is_not_followed(served: Service, key: EngineKey) -> None:
    far = httpx.Response(401, headers={"Lakewarden-Time": str(int(time.time()) + 3600)})
    assert not key.corrected_by(_Status(far))


@pytest.mark.parametrize("header", ["Signature", "Signature-Input", "Content-Digest"])
def test_a_part_of_a_signature_that_is_missing_given_twice_or_altered_is_refused(
    served: Service, key: EngineKey, path: str, header: str
) -> None:
    signed = key.signed("POST", path, None, _user(served))
    without = {name: value for name, value in signed.items() if name != header}
    twice = [*signed.items(), (header, signed[header])]
    altered = {**signed, header: signed[header].replace("=", "==", 1)}
    unlabelled = {**signed, header: signed[header].partition("=")[2]}
    with served.client(None) as client:
        for headers in (without, twice, altered, unlabelled):
            refused(client.post(path, headers=headers), 401, "NotAuthenticated")


@pytest.mark.parametrize("header", ["Signature", "Content-Digest"])
@pytest.mark.parametrize("way", ["no bytes", "fewer bytes", "other spelling"])
def test_bytes_of_another_length_or_spelling_are_refused(
    served: Service, key: EngineKey, path: str, header: str, way: str
) -> None:
    """Base64 leaves bits over at its end; each value has one spelling all the same."""
    signed = key.signed("POST", path, None, _user(served))
    label, _, value = signed[header].partition(":")
    text = value.rstrip("=:")
    last = _ALPHABET[_ALPHABET.index(text[-1]) + 1]
    other = {
        "no bytes": "",
        "fewer bytes": value[4:-1],
        "other spelling": value[:-1].replace(text, text[:-1] + last),
    }
    signed[header] = f"{label}:{other[way]}:"
    refused(_send(served, path, signed), 401, "NotAuthenticated")


_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('("@method" "@path" "@query" "authorization" "content-digest")', '("@method" "@path")'),
        (' "authorization"', ""),
        ('"authorization"', '"authorization" "idempotency-key"'),
        ('alg="ed25519"', 'alg="none"'),
        (';tag="lakewarden-engine"', ""),
        (";created=", ";expires=9999999999;created="),
    ],
)
def test_a_signature_that_covers_less_is_refused(
    served: Service, key: EngineKey, path: str, old: str, new: str
) -> None:
    signed = key.signed("POST", path, None, _user(served))
    assert old in signed["Signature-Input"]
    signed["Signature-Input"] = signed["Signature-Input"].replace(old, new)
    refused(_send(served, path, signed), 401, "NotAuthenticated")


def test_a_signature_by_another_key_is_refused(served: Service, key: EngineKey, path: str) -> None:
    forger = EngineKey(key._id, Ed25519PrivateKey.generate())
    unknown = EngineKey(uuid4(), Ed25519PrivateKey.generate())
    refusals = [refused(_loads(served, each, path), 401, "NotAuthenticated") for each in (forger, unknown)]
    assert refusals[0] == refusals[1]


def test_the_engines_token_is_no_longer_taken_with_a_request(served: Service, path: str) -> None:
    headers = _user(served) | {"Lakewarden-Engine-Token": served.engine_token()}
    assert "sign" in refused(_send(served, path, headers), 401, "NotAuthenticated")["message"]


def test_a_key_is_registered_by_nobody_but_an_engine(served: Service) -> None:
    revoked = served.lake.services.tokens.issue(Principal(ENGINE), "engine", None)
    served.lake.services.tokens.revoke(revoked.id)
    for token in (None, served.token(ALICE), "lw_x", revoked.text):
        refused(_register(served, token), 401, "NotAuthenticated")
    refused(_register(served, served.engine_token("rogue")), 403, "NotAuthorized")


def test_a_one_time_token_registers_one_key(served: Service, alice: httpx.Client) -> None:
    token, public_key = served.engine_token(), _public()
    first, again = (_register(served, token, public_key) for _ in range(2))
    assert first.status_code == again.status_code == 200
    assert first.json()["key-id"] == again.json()["key-id"]
    other = _register(served, token)
    assert refused(other, 401, "NotAuthenticated")["rule"] == "engine-token-used"
    records = alice.get("/admin/v1/audit").json()["records"]
    seen = [r["allowed"] for r in records if r["request-id"] == other.headers["X-Request-Id"]]
    assert False in seen


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_public_key_of_another_length_is_refused(served: Service, length: int) -> None:
    public_key = base64.b64encode(bytes(length)).decode()
    refused(_register(served, served.engine_token(), public_key), 400, "RequestInvalid")


def test_a_revoked_token_ends_its_keys(served: Service, path: str) -> None:
    issued = served.lake.services.tokens.issue(Principal(ENGINE), "engine", timedelta(hours=1))
    key = _started(served, issued.text)
    assert _loads(served, key, path).status_code == 200
    served.lake.services.tokens.revoke(issued.id)
    refused(_loads(served, key, path), 401, "NotAuthenticated")


@pytest.fixture
def code_for_bob(served: Service) -> dict[str, object]:
    return policy("code", {"engine": ["*"]}, {BOB: ["code"]})


def test_a_reusable_token_serves_where_nobody_can_run_code(
    served: Service, path: str, code_for_bob: Mapping[str, object]
) -> None:
    served.lake.set_policies(policies_without_code())
    token = served.engine_token(kind="engine-reusable")
    keys = [_started(served, token) for _ in range(2)]
    assert [_loads(served, each, path).status_code for each in keys] == [200, 200]
    once = _started(served, served.engine_token())
    try:
        served.lake.set_policies([*standard_policies(), code_for_bob])
        error = refused(_loads(served, keys[0], path), 403, "NotAuthorized")
        assert error["rule"] == "engine-token-reusable" and "code" in error["message"]
        refused(_register(served, token), 403, "NotAuthorized")
        assert _loads(served, once, path).status_code == 200
        served.lake.set_policies(policies_without_code())
        assert _loads(served, keys[0], path).status_code == 200
    finally:
        served.lake.set_policies(standard_policies())
