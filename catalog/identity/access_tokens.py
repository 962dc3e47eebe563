"""Accepts access tokens and logout tokens of the issuers in the settings: JSON Web Tokens, signed, compact.

A token says by whom it is (`iss`). Only that provider's keys, algorithms and rules count for it. Nothing of a
token is believed before its signature was checked. Signatures by a shared secret, and none, are not accepted:
the algorithms are those of the settings, where they do not exist.

Sources: RFC 7515 (JSON Web Signature); RFC 8725 (best practices), section 3.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from joserfc.errors import JoseError
from joserfc.jws import CompactSignature, JWSRegistry, validate_compact
from joserfc.util import urlsafe_b64decode

from catalog.authorization.logouts import Login, Logout
from catalog.identity.claims import issued_at, principal_of
from catalog.identity.key_sets import KeySet
from catalog.identity.logins import check_id_token, login_of, logout_of
from catalog.identity.provider_keys import MOST_WAITING, ProviderKeys, fetching_from
from catalog.identity.refusals import token_refused
from catalog.settings.identity import IssuerSettings
from policy import strict_json
from policy.errors import InvalidInput
from policy.principal import Principal

_LONGEST: Final = 16 * 1024
_LONGEST_KEY_ID: Final = 512
_MOST_ELEMENTS: Final = 10_000
#: A signed token: header, claims and signature in base64url (RFC 7515, section 7.1).
_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
#: The types of access tokens, in lower case (RFC 9068, section 2.1); many providers say JWT.
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
#: That of ID tokens (OpenID Connect Core 1.0, section 2).
_ID_TYPES: Final = frozenset({"jwt"})
#: Those of logout tokens (OpenID Connect Back-Channel Logout 1.0, section 2.4).
_LOGOUT_TYPES: Final = frozenset({"jwt", "logout+jwt", "application/logout+jwt"})


class Verified(NamedTuple):
    """What an access token says.

    Attributes:
        user: its user.
        issuer: the issuer's name in the settings.
        issued_at: when it was issued, if it says so.
        login: the login that it comes from, if its issuer tells of logouts.
    """

    user: Principal
    issuer: str
    issued_at: datetime | None
    login: Login | None


class AccessTokens:
    """The issuers in the settings; thread-safe.

    Args:
        issuers: by name.
        now: the time in seconds since 1970.
        seconds: a monotonic clock.
        fetching: returns what fetches the keys of an issuer.

    Raises:
        PropertyInvalid: a file of authorities cannot be used.
    """

    def __init__(
        self,
        issuers: Mapping[str, IssuerSettings],
        now: Callable[[], float],
        seconds: Callable[[], float],
        fetching: Callable[[IssuerSettings], Callable[[], KeySet]] = fetching_from,
    ) -> None:
        waiting = threading.Semaphore(MOST_WAITING)
        self._issuers = {
            each.issuer: _Issuer(
                name, each, issuers, ProviderKeys(name, each, fetching(each), seconds, waiting)
            )
            for name, each in issuers.items()
        }
        self._now = now

    def verify(self, text: str) -> Verified:
        """Return what an access token says.

        Raises:
            NotAuthenticated: it is not valid, for whatever reason.
            ProviderUnavailable: the issuer's keys are too old, and it does not answer.
        """
        issuer, claims = self._signed(text, _TYPES)
        user = issuer.principal(claims, self._now())
        return Verified(user, issuer.name, issued_at(claims), login_of(claims, issuer.settings))

    def logout(self, text: str) -> tuple[Logout, str]:
        """Return what a logout token says has ended, and the issuer's name in the settings; as `verify`."""
        issuer, claims = self._signed(text, _LOGOUT_TYPES)
        return logout_of(claims, issuer.settings, self._now()), issuer.name

    def check_login(self, name: str, access_token: str, id_token: str, nonce: str) -> None:
        """Check that a provider gave both tokens for one login of its client of the console.

        Args:
            name: the issuer's name in the settings, which has such a client.
            access_token: the access token, which is checked as that of a request when it is used.
            id_token: the ID token of the same answer.
            nonce: what the login was begun with.

        Raises:
            NotAuthenticated: it did not.
            ProviderUnavailable: as `verify`.
        """
        issuer, claims = self._signed(id_token, _ID_TYPES)
        access_issuer, access_claims = self._signed(access_token, _TYPES)
        if issuer.name != name or access_issuer.name != name:
            raise token_refused("issuer", "the login was begun at another provider")
        check_id_token(claims, issuer.settings, nonce, self._now())
        if access_claims.get("sub", claims["sub"]) != claims["sub"]:
            raise token_refused("subject", "the ID token is of another user than the access token")

    def _signed(self, text: str, types: frozenset[str]) -> tuple[_Issuer, dict[str, Any]]:
        """Return the issuer of a token, and its claims, if the signature is good."""
        token = _parsed(text)
        claims = _object(token.payload, "payload")
        issuer = self._issuers.get(str(claims.get("iss")))
        if issuer is None:
            raise token_refused("issuer", "it is by an issuer that is not in the settings")
        issuer.check_signature(token, types)
        return issuer, claims


class _Issuer:
    """One issuer: its rules and its keys."""

    def __init__(
        self,
        name: str,
        settings: IssuerSettings,
        issuers: Mapping[str, IssuerSettings],
        keys: ProviderKeys,
    ) -> None:
        self.name = name
        self.settings = settings
        self._registry = JWSRegistry(algorithms=settings.algorithms, strict_check_header=False)
        self._keys = keys
        self._foreign_prefixes = [each.prefix for each in issuers.values() if each is not settings]

    def check_signature(self, token: CompactSignature, types: frozenset[str]) -> None:
        header = token.headers()
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self.settings.algorithms:
            raise token_refused("algorithm", "its signature algorithm is not accepted")
        if "crit" in header or "b64" in header:
            raise token_refused("header", "it needs an extension that is not known here")
        if str(header.get("typ", "JWT")).lower() not in types:
            raise token_refused("purpose", "it is a token of another type")
        if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _LONGEST_KEY_ID):
            raise token_refused("key", "its key id is no short text")
        key = self._keys.find(key_id, algorithm)
        if key is None:
            raise token_refused("key", "the issuer has no key of this id and algorithm")
        try:
            is_good = validate_compact(token, key, registry=self._registry)
        except (JoseError, ValueError, TypeError):
            is_good = False
        if not is_good:
            raise token_refused("signature", "the signature is not by the issuer's key")

    def principal(self, claims: Mapping[str, object], now: float) -> Principal:
        return principal_of(claims, self.settings, self._foreign_prefixes, now)


def _parsed(text: str) -> CompactSignature:
    """Return the parts of a token. Its header is read as strictly as its claims: it means one thing."""
    if len(text) > _LONGEST or _FORM.fullmatch(text) is None:
        raise token_refused("form", "it is no signed JSON Web Token, or too long")
    header, payload, signature = text.encode("ascii").split(b".")
    token = CompactSignature(_object(_decoded(header), "header"), _decoded(payload))
    token.segments = {"header": header, "payload": payload, "signature": signature}
    return token


def _decoded(segment: bytes) -> bytes:
    try:
        return urlsafe_b64decode(segment)
    except ValueError:
        raise token_refused("form", "a part of it is not base64url") from None


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = strict_json.parse(text, what="The token", max_elements=_MOST_ELEMENTS)
    except InvalidInput:
        found = None
    if not isinstance(found, dict):
        raise token_refused("form", f"its {what} is no JSON object")
    return found
