"""Vault's Transit engine: who the catalog is to it, what binds a key, and what each failure is."""

from __future__ import annotations

import base64
import json
import logging
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import KeyContext
from catalog.kms.registry import load_kms
from catalog.kms.vault import VaultKms
from catalog.kms.vault_identity import AppRole
from catalog.settings.kms_options import VaultKmsOptions
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable, PropertyInvalid
from tests.support.canned_server import Canned, canned_server
from tests.support.certificates import certificate
from tests.support.transit_backends import client
from tests.support.transit_server import TransitKey, TransitServer, transit_server

CONTEXT = KeyContext("prod", UUID(int=1))
TOKEN = "hvs.token-of-this-test"
WRAPPED = bytes([1, 32, 4]) + b"lake" + bytes([0, 0, 0, 1]) + bytes(60)


@pytest.fixture
def server() -> Iterator[TransitServer]:
    with transit_server() as (running, _):
        running.keys = {name: TransitKey(derived=True) for name in ("lake", "pii")}
        yield running


@pytest.fixture
def canned() -> Iterator[Canned]:
    with canned_server() as running:
        yield running


def canned_client(canned: Canned, **options: object) -> VaultKms:
    return VaultKms.connect(VaultKmsOptions.model_validate({"url": canned.url, "token": TOKEN, **options}))


def logins(server: TransitServer) -> int:
    return server.requests.count("POST auth/approle/login")


def test_key_that_is_not_derived_is_refused_before_anything_is_made(server):
    server.keys["flat"] = TransitKey(derived=False)
    with pytest.raises(KeyNotUsable, match="derived"):
        client(server).create_key("flat", 32, CONTEXT)
    assert server.requests == ["GET transit/keys/flat"]


def test_context_binds_in_transit_itself(server):
    wrapped, _ = client(server).create_key("lake", 32, CONTEXT)
    text = "vault:v1:" + base64.b64encode(wrapped[11:]).decode()
    context = b"lakewarden/vault-kms/1\0" + wrapped[:7] + CONTEXT.to_bytes()
    assert len(server.keys["lake"].decrypt(text, context)) == 32
    with pytest.raises(Exception, match="400"):
        server.keys["lake"].decrypt(text, context + b"x")


def test_unknown_token_is_an_outage_and_a_missing_right_is_not(server):
    kms = client(server)
    wrapped, _ = kms.create_key("lake", 32, CONTEXT)
    server.denied.add("lake")
    with pytest.raises(KeyNotUsable, match="no permission"):
        kms.get_key(wrapped, CONTEXT)
    server.tokens.clear()
    with pytest.raises(KmsUnavailable, match="token"):
        kms.get_key(wrapped, CONTEXT)


def test_approle_logs_in_once_and_again_when_its_token_is_gone(server):
    role, secret = server.role()
    kms = client(server, role_id=role, secret_id=secret)
    wrapped, key = kms.create_key("lake", 32, CONTEXT)
    assert kms.get_key(wrapped, CONTEXT) == key and logins(server) == 1
    server.tokens.clear()
    assert kms.get_key(wrapped, CONTEXT) == key and logins(server) == 2
    server.denied.add("lake")
    with pytest.raises(KeyNotUsable):
        kms.get_key(wrapped, CONTEXT)
    assert logins(server) == 2, "a missing right is no reason to log in"


def test_approle_that_may_not_look_itself_up_does_not_log_in_on_every_refusal(server):
    role, secret = server.role()
    now = [0.0]
    kms = client(server, role_id=role, secret_id=secret)
    kms._identity._clock = lambda: now[0]
    wrapped, key = kms.create_key("lake", 32, CONTEXT)
    server.looked_up = False
    server.denied.add("lake")
    for expected in (2, 3):
        for _ in range(10):
            with pytest.raises(KeyNotUsable, match="default"):
                kms.get_key(wrapped, CONTEXT)
        assert logins(server) == expected
        now[0] += 60
    server.denied.clear()
    server.tokens.clear()
    assert kms.get_key(wrapped, CONTEXT) == key and logins(server) == 4


def test_approle_of_many_threads_logs_in_once(server):
    role, secret = server.role()
    kms = client(server, role_id=role, secret_id=secret)
    wrapped, key = client(server).create_key("lake", 32, CONTEXT)
    for expected in (1, 2):
        with ThreadPoolExecutor(16) as threads:
            opened = list(threads.map(lambda _: kms.get_key(wrapped, CONTEXT), range(16)))
        assert opened == [key] * 16 and logins(server) == expected
        server.tokens.clear()


def test_approle_with_a_wrong_secret_is_an_outage_without_the_secret(server):
    role, secret = server.role()
    with pytest.raises(KmsUnavailable) as caught:
        client(server, role_id=role, secret_id="wrong-secret").create_key("lake", 32, CONTEXT)
    assert "wrong-secret" not in str(caught.value) and secret not in str(caught.value)


def test_approle_logs_in_before_the_lease_is_over():
    now, logged_in = [0.0], []

    def log_in() -> tuple[SecretBytes, float]:
        logged_in.append(now[0])
        return SecretBytes(f"t{len(logged_in)}".encode()), 300.0 if len(logged_in) < 3 else 0.0

    role = AppRole(log_in, clock=lambda: now[0])
    for moment in (0.0, 199.0, 200.0, 399.0, 400.0, 1e9):
        now[0] = moment
        role.token()
    assert logged_in == [0.0, 200.0, 400.0]


def test_token_file_is_read_on_every_call(server, tmp_path):
    file = tmp_path / "token"
    kms = client(server, token_file=file)
    with pytest.raises(KmsUnavailable, match="No such file"):
        kms.create_key("lake", 32, CONTEXT)
    file.write_text(server.token() + "\n")
    wrapped, key = kms.create_key("lake", 32, CONTEXT)
    server.tokens.clear()
    with pytest.raises(KmsUnavailable, match="token"):
        kms.get_key(wrapped, CONTEXT)
    file.write_text(server.token())
    assert kms.get_key(wrapped, CONTEXT) == key
    for text in (b"", b"two words", b"a\nb: c", b"t" * 5000, b"\xff"):
        file.write_bytes(text)
        with pytest.raises(KmsUnavailable, match="one token"):
            kms.get_key(wrapped, CONTEXT)


def test_namespace_and_mounts_are_the_configured_ones():
    with transit_server(namespace="team/lake", mount="kms/transit") as (server, _):
        server.keys["lake"] = TransitKey(derived=True)
        kms = client(server, namespace="team/lake", mount="kms/transit")
        wrapped, key = kms.create_key("lake", 32, CONTEXT)
        assert kms.get_key(wrapped, CONTEXT) == key
        with pytest.raises(KmsUnavailable):
            client(server, mount="kms/transit").get_key(wrapped, CONTEXT)
        with pytest.raises(KeyNotUsable):
            client(server, namespace="team/lake").get_key(wrapped, CONTEXT)


def test_versions_that_may_not_be_opened_any_more_are_not_usable(server):
    kms = client(server)
    wrapped, key = kms.create_key("lake", 32, CONTEXT)
    server.keys["lake"].versions.append(bytes(32))
    (moved,) = kms.rewrap_keys([(wrapped, CONTEXT)])
    server.keys["lake"].min_decryption_version = 2
    assert kms.get_key(moved, CONTEXT) == key
    with pytest.raises(KeyNotUsable):
        kms.get_key(wrapped, CONTEXT)
    with pytest.raises(KeyNotUsable):
        kms.rewrap_keys([(moved, CONTEXT), (wrapped, CONTEXT)])


def test_rewrap_asks_once_for_each_master_key(server):
    kms = client(server)
    made = [kms.create_key(name, 32, CONTEXT) for name in ("lake", "pii", "lake", "lake")]
    server.requests.clear()
    moved = kms.rewrap_keys([(each.wrapped, CONTEXT) for each in made])
    assert server.requests == ["POST transit/rewrap/lake", "POST transit/rewrap/pii"]
    assert [kms.get_key(wrapped, CONTEXT) for wrapped in moved] == [each.key for each in made]


def test_sealed_server_is_an_outage(server):
    wrapped, _ = client(server).create_key("lake", 32, CONTEXT)
    server.sealed = True
    with pytest.raises(KmsUnavailable, match="503"):
        client(server).get_key(wrapped, CONTEXT)


@pytest.mark.parametrize("status", [204, 301, 307, 401, 405, 412, 429, 472, 473, 500, 501, 502, 503])
def test_every_other_status_is_an_outage_after_one_attempt(canned, status):
    canned.says(status, {"errors": ["cipher: message authentication failed"]})
    with pytest.raises(KmsUnavailable):
        canned_client(canned).get_key(WRAPPED, CONTEXT)
    assert len(canned.asked) == 1


def test_redirection_is_not_followed(canned, server):
    server.tokens.add(TOKEN)
    canned.says(307, Location=f"{server.url}/v1/transit/decrypt/lake")
    with pytest.raises(KmsUnavailable):
        canned_client(canned).get_key(WRAPPED, CONTEXT)
    assert server.requests == []


KEY = base64.b64encode(bytes(32)).decode()
TEXT = "vault:v1:" + base64.b64encode(bytes(60)).decode()


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        {},
        {"data": None},
        {"data": []},
        {"data": {"derived": True}},
        {"data": {"derived": True, "plaintext": KEY[:-4], "ciphertext": TEXT, "batch_results": []}},
        {"data": {"derived": True, "plaintext": "***", "ciphertext": TEXT, "batch_results": [None]}},
        {"data": {"derived": True, "plaintext": 7, "ciphertext": 7, "batch_results": [{}]}},
        {"data": {"derived": True, "plaintext": "ä" + KEY, "ciphertext": TEXT, "batch_results": {"a": 1}}},
        {
            "data": {
                "derived": True,
                "plaintext": "",
                "ciphertext": "vault:v0:AA==",
                "batch_results": [{}, {}],
            }
        },
    ],
    ids=range(13),
)
def test_malformed_answer_is_no_answer(canned, answer):
    canned.says(200, answer)
    kms = canned_client(canned)
    for call in (
        lambda: kms.create_key("lake", 32, CONTEXT),
        lambda: kms.get_key(WRAPPED, CONTEXT),
        lambda: kms.rewrap_keys([(WRAPPED, CONTEXT)]),
    ):
        with pytest.raises((KmsUnavailable, KeyNotUsable)) as caught:
            call()
        assert caught.type is KmsUnavailable or "derived" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "vault:v1:", "vault:v0:AAAA", "vault:v4294967296:AAAA", "vault:v1:***", "bao:v1:AAAA"]
)
def test_ciphertext_that_is_not_transits_is_no_answer(canned, text):
    canned.says(200, {"data": {"derived": True, "plaintext": KEY, "ciphertext": text}})
    with pytest.raises(KmsUnavailable):
        canned_client(canned).create_key("lake", 32, CONTEXT)
    canned.says(200, {"data": {"batch_results": [{"ciphertext": text}]}})
    with pytest.raises(KmsUnavailable):
        canned_client(canned).rewrap_keys([(WRAPPED, CONTEXT)])


def test_hanging_server_is_an_outage_after_one_bounded_attempt(canned):
    canned.hold.clear()
    with pytest.raises(KmsUnavailable, match="ReadTimeout"):
        canned_client(canned, request_timeout_s=0.2).get_key(WRAPPED, CONTEXT)
    with pytest.raises(KmsUnavailable, match="ReadTimeout"):
        canned_client(canned, request_timeout_s=0.2).create_key("lake", 32, CONTEXT)
    assert [each.method for each in canned.asked] == ["POST", "GET"]


def test_impossible_versions_and_lengths_are_refused_before_anything_is_asked(canned):
    for data in (
        WRAPPED[:7] + bytes(4) + WRAPPED[11:],
        *(WRAPPED[:1] + bytes([length]) + WRAPPED[2:] for length in (0, 15, 33, 255)),
        WRAPPED[:11],
        WRAPPED + bytes(1000),
    ):
        with pytest.raises(DecryptionRefused):
            canned_client(canned).get_key(data, CONTEXT)
    assert canned.asked == []


def test_words_count_with_the_status_alone(canned):
    for status, kind in ((400, DecryptionRefused), (404, KeyNotUsable)):
        canned.says(status, {"errors": ["cipher: message authentication failed"]})
        with pytest.raises(kind):
            canned_client(canned).get_key(WRAPPED, CONTEXT)


def test_names_never_become_other_paths(canned):
    kms = canned_client(canned)
    for name in (
        "a/b",
        "../sys/seal",
        "a%2fb",
        "a?b",
        "a#b",
        "-a",
        "a.",
        ".",
        "..",
        "ä",
        "a b",
        "a" * 129,
        "",
    ):
        with pytest.raises(KeyNotUsable):
            kms.create_key(name, 32, CONTEXT)
        data = WRAPPED[:2] + bytes([len(name.encode())]) + name.encode() + WRAPPED[7:]
        with pytest.raises(DecryptionRefused):
            kms.get_key(data, CONTEXT)
    assert canned.asked == []


def test_environment_is_not_asked(server, canned, monkeypatch, tmp_path):
    role, secret = server.role()
    for name in ("VAULT_ADDR", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, canned.url)
    monkeypatch.setenv("VAULT_TOKEN", "token-of-the-environment")
    monkeypatch.setenv("VAULT_NAMESPACE", "namespace-of-the-environment")
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    (tmp_path / ".vault-token").write_text("token-of-the-home")
    monkeypatch.setenv("HOME", str(tmp_path))
    kms = client(server, role_id=role, secret_id=secret)
    wrapped, key = kms.create_key("lake", 32, CONTEXT)
    assert kms.get_key(wrapped, CONTEXT) == key and canned.asked == []
    canned.says(403, {"errors": []})
    with pytest.raises(KmsUnavailable):
        canned_client(canned).get_key(wrapped, CONTEXT)
    sent = json.dumps([each.headers for each in canned.asked])
    assert TOKEN in sent and "of-the-" not in sent and "authorization" not in sent


def test_nothing_secret_is_logged_or_raised(server, caplog):
    with caplog.at_level(logging.DEBUG):
        role, secret = server.role()
        kms = client(server, role_id=role, secret_id=secret)
        wrapped, key = kms.create_key("lake", 32, CONTEXT)
        kms.get_key(wrapped, CONTEXT)
        (token,) = server.tokens
        server.sealed = True
        with pytest.raises(KmsUnavailable) as caught:
            kms.get_key(wrapped, CONTEXT)
    said = (
        caplog.text + repr(caught.value) + str(caught.value) + repr(caught.value.__cause__) + repr(vars(kms))
    )
    for hidden in (token, secret, base64.b64encode(key.reveal()).decode(), key.reveal().hex()):
        assert hidden not in said


def test_wrong_options_are_refused_without_their_values():
    for options in (
        {},
        {"url": "https://vault.example"},
        {"url": "https://vault.example", "token": "hush", "role_id": "r"},
        {"url": "https://vault.example", "token": ""},
        {"url": "https://vault.example", "token": "hush hush"},
        {"url": "https://vault.example", "token": "hush", "secret_id": "s"},
        {"url": "http://vault.example", "token": "hush"},
        {"url": "http://127.0.0.1.hush.example", "token": "hush"},
        {"url": "https://vault.example/?a=hush", "token": "hush"},
        {"url": "https://a:hush@vault.example", "token": "hush"},
        {"url": "hush", "token": "hush"},
        {"url": "https://vault.example:99999", "token": "hush"},
        {"url": "https://[::1", "token": "hush"},
        {"url": "https://vault.example\n.hush", "token": "hush"},
        {"url": "https://vault.example", "token": "hush", "mount": "../sys"},
        {"url": "https://vault.example", "token": "hush", "mount": "transit/../sys"},
        {"url": "https://vault.example", "token": "hush", "namespace": "a\r\nb"},
        {"url": "https://vault.example", "token": "hush", "ca_file": "/absent/ca.pem"},
        {"url": "https://vault.example", "token": "hush", "verify": False},
        {"url": "https://vault.example", "token": "hush", "request_timeout_s": 60.0},
    ):
        with pytest.raises(PropertyInvalid) as caught:
            load_kms("vault", options)
        assert "hush" not in str(caught.value)
    assert (
        load_kms("vault", {"url": "https://vault.example", "token": SecretBytes(b"t")}).identifier == "vault"
    )


def test_server_must_be_vouched_for(tmp_path, monkeypatch):
    own, other = certificate(tmp_path), certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(own))
    with transit_server(tls=tls) as (server, _):
        server.keys["lake"] = TransitKey(derived=True)
        assert server.url.startswith("https://")
        wrapped, _ = client(server, ca_file=own).create_key("lake", 32, CONTEXT)
        for kms in (client(server, ca_file=other), client(server)):
            with pytest.raises(KmsUnavailable, match="SSL"):
                kms.get_key(wrapped, CONTEXT)
