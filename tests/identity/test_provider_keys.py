"""The keys of a provider: rotation, outages, and documents that are no set of keys."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.identity.access_tokens import AccessTokens
from catalog.identity.key_sets import KeySet, KeySetInvalid
from catalog.identity.provider import ProviderFailed
from catalog.identity.provider_keys import MOST_WAITING, fetching_from
from catalog.identity.refusals import ProviderUnavailable
from catalog.settings.identity import IssuerSettings
from policy.errors import NotAuthenticated, PropertyInvalid
from policy.principal import Principal
from tests.support.clock import Clock
from tests.support.identity_provider import AUDIENCE, IdentityProvider, identity_provider, public, rsa_key

REFRESH_S, MAX_AGE_S, PAUSE_S = 300.0, 3600.0, 10.0


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as running:
        yield running


@pytest.fixture
def seconds() -> Clock:
    return Clock()


@pytest.fixture
def tokens(provider: IdentityProvider, seconds: Clock) -> AccessTokens:
    issuer = IssuerSettings(
        issuer=provider.url, audience=AUDIENCE, refresh_s=REFRESH_S, keys_max_age_s=MAX_AGE_S, timeout_s=0.5
    )
    return AccessTokens({"corp": issuer}, time.time, seconds)


def until(condition: object, patience_s: float = 20.0) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + patience_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_keys_are_fetched_once_while_they_are_fresh(provider: IdentityProvider, tokens: AccessTokens) -> None:
    for _ in range(5):
        assert tokens.verify(provider.token())[:2] == (Principal("ann"), "corp")
    assert provider.asked == ["/.well-known/openid-configuration", "/keys"]


def test_a_new_key_is_fetched_when_a_token_names_it(
    provider: IdentityProvider, tokens: AccessTokens, seconds: Clock
) -> None:
    old = provider.token()
    tokens.verify(old)
    provider.rotate(rsa_key("second"))
    seconds.now += PAUSE_S
    assert tokens.verify(provider.token())[:2] == (Principal("ann"), "corp")
    # The provider does not publish the former key any more.
    with pytest.raises(NotAuthenticated):
        tokens.verify(old)


def test_made_up_key_ids_do_not_make_the_provider_work(
    provider: IdentityProvider, tokens: AccessTokens, seconds: Clock
) -> None:
    tokens.verify(provider.token())
    seconds.now += PAUSE_S
    asked = len(provider.asked)
    for number in range(100):
        with pytest.raises(NotAuthenticated):
            tokens.verify(provider.signed(provider.claims(), {"kid": f"made-up-{number}"}))
    assert len(provider.asked) == asked + 2


def test_who_waits_for_a_made_up_key_delays_nobody(
    provider: IdentityProvider, tokens: AccessTokens, seconds: Clock
) -> None:
    good = provider.token()
    made_up = provider.signed(provider.claims(), {"kid": "made-up"})
    tokens.verify(good)
    seconds.now += PAUSE_S
    asked = len(provider.asked)
    provider.hold.clear()

    def wait() -> None:
        with pytest.raises(NotAuthenticated):
            tokens.verify(made_up)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: len(provider.asked) > asked)
    # The first one holds the fetch: these do not wait for it, or the pause would be over.
    assert tokens.verify(good)[:2] == (Principal("ann"), "corp")
    with pytest.raises(NotAuthenticated):
        tokens.verify(made_up)
    assert len(provider.asked) == asked + 1
    provider.hold.set()
    waiting.join()


def test_keys_are_used_during_an_outage_until_their_age_is_reached(
    provider: IdentityProvider, tokens: AccessTokens, seconds: Clock
) -> None:
    good = provider.token()
    tokens.verify(good)
    provider.status = 500
    for _ in range(3):
        seconds.now += MAX_AGE_S / 3
        assert tokens.verify(good)[:2] == (Principal("ann"), "corp")
    seconds.now += PAUSE_S
    with pytest.raises(ProviderUnavailable) as caught:
        tokens.verify(good)
    assert caught.value.rule == "identity-provider"
    provider.status = 200
    # There is one attempt in the pause, for all users.
    with pytest.raises(ProviderUnavailable):
        tokens.verify(good)
    seconds.now += PAUSE_S
    assert tokens.verify(good)[:2] == (Principal("ann"), "corp")


def test_older_keys_are_fetched_again_while_they_are_used(
    provider: IdentityProvider, tokens: AccessTokens, seconds: Clock
) -> None:
    old = provider.token()
    tokens.verify(old)
    provider.rotate(rsa_key("second"))
    seconds.now += REFRESH_S + 1
    # The answer does not wait for the provider, which does not answer yet.
    provider.hold.clear()
    assert tokens.verify(old)[:2] == (Principal("ann"), "corp")
    provider.hold.set()

    def is_gone() -> bool:
        try:
            return not tokens.verify(old)
        except NotAuthenticated:
            return True

    until(is_gone)


def test_a_provider_that_was_never_reached_opens_nothing(
    provider: IdentityProvider, tokens: AccessTokens
) -> None:
    provider.hold.clear()
    with pytest.raises(ProviderUnavailable):
        tokens.verify(provider.token())


def test_not_everybody_waits_for_a_provider_that_does_not_answer(provider: IdentityProvider) -> None:
    issuer = IssuerSettings(issuer=provider.url, audience=AUDIENCE, timeout_s=4)
    tokens = AccessTokens({"corp": issuer}, time.time, time.monotonic)
    good = provider.token()
    provider.hold.clear()
    accepted: list[object] = []
    refused: list[object] = []

    def come() -> None:
        try:
            accepted.append(tokens.verify(good))
        except ProviderUnavailable as error:
            refused.append(error)

    callers = [threading.Thread(target=come) for _ in range(MOST_WAITING + 5)]
    for each in callers:
        each.start()
    # These are refused while the provider has not answered yet.
    until(lambda: len(refused) == 5)
    assert not accepted
    provider.hold.set()
    for each in callers:
        each.join()
    assert (len(accepted), len(refused)) == (MOST_WAITING, 5)


def test_a_slow_provider_is_given_up_in_time(provider: IdentityProvider) -> None:
    provider.hold.clear()
    issuer = IssuerSettings(issuer=provider.url, audience=AUDIENCE, timeout_s=0.1)
    with pytest.raises(ProviderFailed):
        fetching_from(issuer)()


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": [], "keys": []}',
        b'{"keys": NaN}',
        b"\xff",
        json.dumps({"keys": [{}] * 101}).encode(),
        json.dumps({"keys": [{"x": list(range(20_000))}]}).encode(),
    ],
)
def test_what_is_no_set_of_keys_is_refused(document: bytes) -> None:
    with pytest.raises(KeySetInvalid):
        KeySet.parse(document)


@pytest.mark.parametrize(
    "key",
    [
        7,
        {},
        {"kty": 7},
        {"kty": "RSA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": 7, "e": 7},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": "P-0", "x": "AAAA", "y": "AAAA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "!"},
        {"kty": "oct", "k": "AAAA"},
        {**public(rsa_key("first")), "use": ["sig"]},
        {**public(rsa_key("first")), "key_ops": ["encrypt"]},
        {**public(rsa_key("first")), "key_ops": 7},
        {**public(rsa_key("first")), "alg": "HS256"},
    ],
)
def test_a_key_that_is_not_understood_is_passed_over(key: object) -> None:
    good = public(rsa_key("second"))
    found = KeySet.parse(json.dumps({"keys": [key, good]}).encode())
    assert found.find("second", "RS256") is not None
    assert found.find("first", "RS256") is None


def test_two_keys_of_one_id_are_none() -> None:
    twice = [{**public(rsa_key(name)), "kid": "same"} for name in ("first", "second")]
    assert KeySet.parse(json.dumps({"keys": twice}).encode()).find("same", "RS256") is None
    one = KeySet.parse(json.dumps({"keys": twice[:1]}).encode())
    assert one.find(None, "RS256") is one.find("same", "RS256") is not None


def test_a_huge_answer_is_not_read(provider: IdentityProvider) -> None:
    provider.documents["/keys"] = b"[" * (2 << 20)
    with pytest.raises(ProviderFailed, match="too long"):
        fetching_from(IssuerSettings(issuer=provider.url, audience=AUDIENCE))()


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://other.example", "jwks_uri": "https://other.example/keys"},
        {"jwks_uri": "https://other.example/keys"},
        [],
        b"no JSON",
    ],
)
def test_a_discovery_document_of_another_issuer_is_refused(
    provider: IdentityProvider, document: object
) -> None:
    provider.documents["/.well-known/openid-configuration"] = document
    with pytest.raises(ProviderFailed, match="of another issuer"):
        fetching_from(IssuerSettings(issuer=provider.url, audience=AUDIENCE))()


@pytest.mark.parametrize("address", ["http://keys.example/", "file:///etc/passwd", "ftp://127.0.0.1/", None])
def test_a_discovered_address_has_to_be_a_private_way(provider: IdentityProvider, address: object) -> None:
    document = {"issuer": provider.url, "jwks_uri": address}
    provider.documents["/.well-known/openid-configuration"] = document
    with pytest.raises(ProviderFailed, match="jwks_uri"):
        fetching_from(IssuerSettings(issuer=provider.url, audience=AUDIENCE))()


def test_a_redirect_is_not_followed(provider: IdentityProvider) -> None:
    provider.moved["/keys"] = f"{provider.url}/elsewhere"
    provider.documents["/elsewhere"] = provider.documents["/keys"]
    with pytest.raises(ProviderFailed, match="302"):
        fetching_from(IssuerSettings(issuer=provider.url, audience=AUDIENCE))()
    assert "/elsewhere" not in provider.asked


def test_a_provider_that_wants_a_token_gets_the_one_in_the_file(
    provider: IdentityProvider, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    issuer = IssuerSettings(
        issuer="kubernetes/serviceaccount",
        audience=AUDIENCE,
        jwks_uri=f"{provider.url}/keys",
        token_file=file,
    )
    fetch = fetching_from(issuer)
    with pytest.raises(ProviderFailed, match="FileNotFoundError"):
        fetch()
    for text in ("one", "two\n"):
        file.write_text(text)
        assert fetch().find("first", "RS256") is not None
    assert provider.tokens == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("text", ["secret\ntoken", "s\u00e9cret"])
def test_a_file_that_has_no_token_is_not_quoted(
    provider: IdentityProvider, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ProviderFailed) as caught:
        fetching_from(IssuerSettings(issuer=provider.url, audience=AUDIENCE, token_file=file))()
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"issuer": "http://login.example"},
        {"issuer": "kubernetes/serviceaccount"},
        {"issuer": "https://a.example", "jwks_uri": "http://keys.example"},
        {"issuer": "https://a.example", "jwks_uri": "https://user:password@keys.example"},
        {"issuer": "https://a.example", "algorithms": ["HS256"]},
        {"issuer": "https://a.example", "algorithms": ["none"]},
        {"issuer": "https://a.example", "algorithms": []},
        {"issuer": "https://a.example", "audience": []},
        {"issuer": "https://a.example", "prefix": "ends with nothing"},
        {"issuer": "https://a.example", "keys_max_age_s": 60, "refresh_s": 300},
        {"issuer": "https://a.example", "leeway_s": 301},
    ],
)
def test_settings_that_open_a_door_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        IssuerSettings.model_validate({"audience": AUDIENCE, **settings})


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAA\n"])
def test_a_file_of_authorities_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    issuer = IssuerSettings(issuer="https://login.example", audience=AUDIENCE, ca_file=file)
    with pytest.raises(PropertyInvalid, match="ca_file"):
        AccessTokens({"corp": issuer}, time.time, time.monotonic)
