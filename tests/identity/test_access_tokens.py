"""Access tokens of identity providers: what is accepted, and each way in which one is not."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

from catalog.identity.access_tokens import AccessTokens
from catalog.identity.claims import principal_of
from catalog.settings.identity import IdentitySettings, IssuerSettings
from policy.errors import NotAuthenticated
from policy.principal import Principal
from tests.support.identity_provider import AUDIENCE, IdentityProvider, identity_provider, public, rsa_key

NOW = 1_800_000_000.0
#: Which checks can refuse a token of which one character was changed.
_CHECKS = {"form", "issuer", "signature", "algorithm", "key", "purpose"}
ISSUER = IssuerSettings(issuer="https://login.example", audience=AUDIENCE)
GROUPS = ISSUER.model_copy(update={"groups_claim": ("groups",), "roles_claim": ("realm", "roles")})


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    """A provider that the tests of a module share; its keys do not change."""
    with identity_provider() as running:
        ed25519 = OKPKey.generate_key("Ed25519", {"kid": "ed"})
        running.publish(rsa_key("first"), EC_KEY, ed25519, X25519)
        yield running


EC_KEY = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
X25519 = OKPKey.generate_key("X25519", {"kid": "x"})


@pytest.fixture(scope="module")
def accepted(provider: IdentityProvider) -> AccessTokens:
    return of(provider)


def of(provider: IdentityProvider, **settings: Any) -> AccessTokens:
    """The issuer that a running provider is."""
    issuer = IssuerSettings(**{"issuer": provider.url, "audience": AUDIENCE, **settings})
    return AccessTokens({"corp": issuer}, time.time, time.monotonic)


def why_refused(tokens: AccessTokens, token: str) -> str:
    """The check that refused a token."""
    with pytest.raises(NotAuthenticated) as caught:
        tokens.verify(token)
    assert caught.value.why is not None
    assert len(token) < 9 or token not in str(caught.value) + caught.value.why
    return caught.value.why.partition(":")[0]


def test_a_good_token_names_its_user(provider: IdentityProvider, accepted: AccessTokens) -> None:
    assert accepted.verify(provider.token("ann"))[:2] == (Principal("ann"), "corp")
    assert accepted.verify(provider.signed(provider.claims("bob"), key=EC_KEY))[:2] == (
        Principal("bob"),
        "corp",
    )


def test_a_token_of_another_issuer_is_refused(provider: IdentityProvider, accepted: AccessTokens) -> None:
    with identity_provider() as other:
        assert why_refused(accepted, other.token()) == "issuer"
        # Its keys do not count for the first issuer's name either.
        forged = other.signed(provider.claims(), key=rsa_key("other"), header={"kid": "first"})
        assert why_refused(accepted, forged) == "signature"
        assert not other.asked


@pytest.mark.parametrize("audience", ["other", ["other"], [], None, 7, {"lake": 1}, ["lake", 7], "LAKE"])
def test_a_token_for_another_audience_is_refused(
    provider: IdentityProvider, accepted: AccessTokens, audience: object
) -> None:
    assert why_refused(accepted, provider.token(aud=audience)) == "audience"


def test_one_of_several_audiences_is_enough(provider: IdentityProvider, accepted: AccessTokens) -> None:
    assert accepted.verify(provider.token(aud=["other", AUDIENCE]))[:2] == (Principal("ann"), "corp")


def test_no_signature_is_no_signature(provider: IdentityProvider, accepted: AccessTokens) -> None:
    for algorithm in ("none", "None", "NONE"):
        header = _encoded({"alg": algorithm, "kid": "first"})
        assert why_refused(accepted, f"{header}.{_encoded(provider.claims())}.") in ("algorithm", "form")


def test_the_public_key_is_no_shared_secret(provider: IdentityProvider, accepted: AccessTokens) -> None:
    key = rsa_key("first")
    for secret in (key.as_pem(private=False), key.as_der(private=False), json.dumps(public(key)).encode()):
        text = f"{_encoded({'alg': 'HS256', 'kid': 'first'})}.{_encoded(provider.claims())}"
        forged = f"{text}.{_text(hmac.digest(secret, text.encode(), 'sha256'))}"
        assert why_refused(accepted, forged) == "algorithm"


def test_a_published_secret_is_not_used(provider: IdentityProvider) -> None:
    with identity_provider() as careless:
        secret = OctKey.import_key(b"x" * 32, {"kid": "shared"})
        careless.documents["/keys"] = {"keys": [dict(secret.as_dict(private=True))]}
        forged = careless.signed(careless.claims(), key=secret)
        assert why_refused(of(careless), forged) == "algorithm"
        as_rsa = careless.signed(careless.claims(), header={"kid": "shared"}, key=rsa_key("other"))
        assert why_refused(of(careless), as_rsa) == "key"


def test_a_key_for_another_algorithm_is_not_used(provider: IdentityProvider, accepted: AccessTokens) -> None:
    crossed = provider.signed(provider.claims(), header={"kid": "first"}, key=EC_KEY)
    assert why_refused(accepted, crossed) == "key"
    assert why_refused(accepted, provider.signed(provider.claims(), {"alg": "RS512"})) == "algorithm"


@pytest.mark.filterwarnings("ignore:Key size")
@pytest.mark.parametrize(
    "make",
    [
        lambda: rsa_key("weak", 1024),
        lambda: RSAKey.generate_key(2048, {"kid": "enc", "use": "enc"}),
        lambda: rsa_key("private"),
    ],
    ids=["short", "for encryption", "with its private part"],
)
def test_a_key_that_cannot_be_trusted_is_not_used(make: Callable[[], Key]) -> None:
    key = make()
    with identity_provider() as careless:
        document = public(key) if key.kid != "private" else dict(key.as_dict(private=True))
        careless.documents["/keys"] = {"keys": [document]}
        signing = RSAKey.import_key({**key.as_dict(private=True), "use": "sig"})
        assert why_refused(of(careless), careless.signed(careless.claims(), key=signing)) == "key"


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"exp": NOW - 61}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "1900000000"}, "type"),
        ({"exp": True}, "type"),
        ({"nbf": NOW + 61}, "not-yet-valid"),
        ({"nbf": []}, "type"),
        ({"iat": NOW + 61}, "not-yet-valid"),
        ({"iat": {}}, "type"),
        ({"exp": 10**400}, "type"),
        ({"exp": 1e300}, "type"),
        ({"nbf": -(10**400)}, "type"),
        ({"sub": None}, "user"),
        ({"sub": 7}, "user"),
        ({"sub": ["ann"]}, "user"),
        ({"sub": ""}, "name"),
        ({"sub": " "}, "name"),
        ({"sub": "a" * 256}, "name"),
        ({"sub": "an\u0000n"}, "name"),
        ({"sub": "an\u200bn"}, "name"),
        ({"sub": "ann\u202e"}, "name"),
        ({"sub": "Ame\u0301lie"}, "name"),
        ({"sub": "ann "}, "name"),
        ({"sub": "\u00a0ann"}, "name"),
        ({"sub": "an\u034fn"}, "name"),
        ({"sub": "ann\u3164"}, "name"),
        ({"sub": "ann\ufe0f"}, "name"),
        ({"groups": ["staff\u2003"]}, "name"),
        ({"groups": 7}, "groups"),
        ({"groups": None}, "groups"),
        ({"groups": {"staff": True}}, "groups"),
        ({"groups": ["staff", 7]}, "groups"),
        ({"groups": [["staff"]]}, "groups"),
        ({"groups": ["staff", ""]}, "name"),
        ({"groups": ["g"] * 2001}, "groups"),
        ({"realm": ["roles"]}, "groups"),
        ({"realm": {"roles": [None]}}, "groups"),
        ({"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}, "purpose"),
    ],
)
def test_a_claim_that_is_not_as_it_must_be_refuses_the_token(
    changed: Mapping[str, object], check: str
) -> None:
    claims = {**good_claims(), **changed}
    with pytest.raises(NotAuthenticated) as caught:
        principal_of({name: value for name, value in claims.items() if value is not None}, GROUPS, (), NOW)
    assert caught.value.why is not None and caught.value.why.startswith(f"{check}:")


def good_claims() -> dict[str, object]:
    return {"aud": AUDIENCE, "exp": NOW + 60, "sub": "ann", "groups": ["staff"], "realm": {"roles": ["dba"]}}


def test_clocks_can_differ_by_the_leeway() -> None:
    for changed in ({"exp": NOW - 59}, {"nbf": NOW + 59}, {"iat": NOW + 59}):
        assert principal_of({**good_claims(), **changed}, GROUPS, (), NOW).name == "ann"


def test_groups_and_roles_are_those_of_the_claims() -> None:
    assert principal_of(good_claims(), GROUPS, (), NOW) == Principal("ann", {"staff"}, {"dba"})


@given(st.sampled_from([",", ";", " ", "/", "|", ":", "."]), st.booleans())
def test_a_separator_in_a_group_separates_nothing(separator: str, is_list: bool) -> None:
    name = f"staff{separator}admins"
    found = principal_of({**good_claims(), "groups": [name] if is_list else name}, GROUPS, (), NOW)
    assert found.groups == {name}


def test_groups_that_are_elsewhere_are_not_none() -> None:
    lenient = GROUPS.model_copy(update={"missing_groups": "none", "roles_claim": None})
    claims = {name: value for name, value in good_claims().items() if name != "groups"}
    assert principal_of(claims, lenient, (), NOW) == Principal("ann")
    for overage in ({"_claim_names": {"groups": "src1"}}, {"hasgroups": True}):
        with pytest.raises(NotAuthenticated):
            principal_of({**claims, **overage}, lenient, (), NOW)


def test_users_whose_names_differ_in_case_are_two_unless_the_provider_has_one() -> None:
    lower = GROUPS.model_copy(update={"names": "lower"})
    claims = {**good_claims(), "sub": "Ann"}
    assert principal_of(claims, GROUPS, (), NOW).name == "Ann"
    assert principal_of(claims, lower, (), NOW).name == "ann"


@pytest.mark.parametrize("sign", ["\u212a", "\u212b", "\u2126"])
def test_a_sign_whose_lower_case_is_a_letter_does_not_stand_for_it(sign: str) -> None:
    lower = GROUPS.model_copy(update={"names": "lower"})
    with pytest.raises(NotAuthenticated) as caught:
        principal_of({**good_claims(), "sub": f"{sign}ate"}, lower, (), NOW)
    assert caught.value.why is not None and caught.value.why.startswith("name:")


def test_no_issuer_gives_a_name_of_another_one() -> None:
    cluster = GROUPS.model_copy(update={"prefix": "k8s:"})
    known = Principal("k8s:ann", {"k8s:staff"}, {"k8s:dba"})
    assert principal_of(good_claims(), cluster, ("",), NOW) == known
    for changed in ({"sub": "k8s:ann"}, {"groups": ["k8s:staff"]}, {"realm": {"roles": ["k8s:dba"]}}):
        with pytest.raises(NotAuthenticated) as caught:
            principal_of({**good_claims(), **changed}, GROUPS, ("k8s:",), NOW)
        assert caught.value.why is not None and caught.value.why.startswith("prefix:")


@pytest.mark.parametrize("name", ["issuer", "prefix"])
def test_two_issuers_with_the_same_name_or_prefix_are_refused(name: str) -> None:
    first, second = ({"issuer": f"https://{n}.example", "audience": "a", "prefix": f"{n}:"} for n in "ab")
    with pytest.raises(ValueError, match=f"the same {name}"):
        IdentitySettings.model_validate({"issuers": {"a": first, "b": {**second, name: first[name]}}})


@pytest.mark.parametrize(
    ("claim", "accepted", "is_accepted"),
    [
        ("lake", ["lake"], True),
        (["x", "lake"], ["lake"], True),
        ("lakes", ["lake"], False),
        ("x lake", ["lake"], False),
        (7, ["7"], False),
        (None, ["lake"], False),
    ],
)
def test_required_claims(claim: object, accepted: list[str], is_accepted: bool) -> None:
    issuer = GROUPS.model_copy(update={"required_claims": {"tenant": tuple(accepted)}})
    claims = {**good_claims(), "tenant": claim}
    if is_accepted:
        assert principal_of(claims, issuer, (), NOW).name == "ann"
        return
    with pytest.raises(NotAuthenticated):
        principal_of(claims, issuer, (), NOW)


def test_scope_is_a_text_of_several_values() -> None:
    issuer = GROUPS.model_copy(update={"required_claims": {"scope": ("lake",)}})
    assert principal_of({**good_claims(), "scope": "openid lake"}, issuer, (), NOW).name == "ann"


@pytest.mark.parametrize(
    "header",
    [
        {"kid": "../../../../dev/null"},
        {"kid": "/etc/passwd"},
        {"kid": "' OR 1=1 --"},
        {"kid": "x" * 600},
        {"crit": ["exp"], "exp": 1},
        {"b64": False, "crit": ["b64"]},
        {"typ": "logout+jwt"},
        {"typ": "dpop+jwt"},
    ],
)
def test_a_header_that_asks_for_more_is_refused(
    provider: IdentityProvider, accepted: AccessTokens, header: dict[str, object]
) -> None:
    asked = len(provider.asked)
    whole = {"alg": "RS256", "kid": "first", **header}
    assert why_refused(accepted, _signed(provider, whole)) in ("key", "header", "purpose", "form")
    assert set(provider.asked[asked:]) <= {"/keys", "/.well-known/openid-configuration"}


def test_keys_that_a_token_brings_or_names_are_not_used(
    provider: IdentityProvider, accepted: AccessTokens
) -> None:
    with identity_provider() as evil:
        mine = rsa_key("mine")
        for header in (
            {"jwk": public(mine)},
            {"jku": f"{evil.url}/keys"},
            {"x5u": f"{evil.url}/keys"},
        ):
            for key_id in ("first", "mine"):
                forged = evil.signed(provider.claims(), {**header, "kid": key_id}, mine)
                assert why_refused(accepted, forged) in ("signature", "key")
        assert not evil.asked


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(min_value=0), st.sampled_from("AZaz09-_."))
def test_a_changed_token_is_refused(
    provider: IdentityProvider, accepted: AccessTokens, place: int, character: str
) -> None:
    token = provider.token()
    place %= token.rindex(".")
    changed = token[:place] + character + token[place + 1 :]
    if changed != token:
        assert why_refused(accepted, changed) in _CHECKS


@pytest.mark.parametrize(
    "text", ["a.b.c", "..", "a.b", ".", "a.b.c.d.e", "e30.e30.", "\u00e4.b.c", "." * 20_000]
)
def test_what_is_no_token_is_refused(accepted: AccessTokens, text: str) -> None:
    assert why_refused(accepted, text) in ("form", "issuer")


@pytest.mark.parametrize(
    "header",
    [
        b'["alg"]',
        b'"alg"',
        b"7",
        b"null",
        b'{"alg": "none", "alg": "RS256", "kid": "first"}',
        b'{"alg": "RS256", "kid": "other", "k\\u0069d": "first"}',
        b'{"alg": "RS256", "kid": "first", "x": NaN}',
        b'{"alg": "RS256", "kid": "first", "x": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        '{"alg": "RS256", "kid": "first"}'.encode("utf-16"),
    ],
)
def test_a_header_that_can_mean_two_things_is_refused(
    provider: IdentityProvider, accepted: AccessTokens, header: bytes
) -> None:
    assert why_refused(accepted, _signed_text(header, provider.claims())) == "form"


@pytest.mark.parametrize("changed", ["{} ", " {}", "{}.", "{}\n", "{}=", "{}\u0000"])
def test_a_token_has_one_spelling(provider: IdentityProvider, accepted: AccessTokens, changed: str) -> None:
    assert why_refused(accepted, changed.format(provider.token())) == "form"


def _encoded(document: object) -> str:
    return _text(json.dumps(document).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _signed(provider: IdentityProvider, header: Mapping[str, object]) -> str:
    return _signed_text(json.dumps(header).encode(), provider.claims())


def _signed_text(header: bytes, claims: Mapping[str, object]) -> str:
    """Sign with any header, as a library that checks its headers would not."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    text = f"{_text(header)}.{_encoded(claims)}"
    signature = rsa_key("first").private_key.sign(text.encode(), PKCS1v15(), SHA256())
    return f"{text}.{_text(signature)}"
