"""Reads from claims which login a token comes from, and which one has ended; nothing here does I/O.

The signature was checked before.

Source: OpenID Connect Back-Channel Logout 1.0, sections 2.4 and 2.6; RFC 8417 (security event tokens); OpenID
Connect Core 1.0, section 3.1.3.7 (ID tokens).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from catalog.authorization.logouts import Login, Logout
from catalog.identity.claims import EVENTS, check_audience, check_times, issued_at
from catalog.identity.refusals import token_refused
from catalog.settings.identity import IssuerSettings

_LOGOUT: Final = "http://schemas.openid.net/event/backchannel-logout"


def login_of(claims: Mapping[str, object], issuer: IssuerSettings) -> Login | None:
    """Return the login that an access token comes from; None if its provider tells of no logouts.

    Raises:
        NotAuthenticated: no logout could end the token: it names neither session nor subject, or no time.
    """
    if issuer.logout_audience is None:
        return None
    issued = _issued_at(claims)
    return Login(issuer.issuer, *_session_and_subject(claims), issued)


def logout_of(claims: Mapping[str, object], issuer: IssuerSettings, now: float) -> Logout:
    """Return what a logout token says has ended.

    Args:
        claims: the claims of a token whose signature is good.
        issuer: the provider that signed it.
        now: the time in seconds since 1970.

    Raises:
        NotAuthenticated: it is no logout token, or its provider is not to tell of logouts.
    """
    if issuer.logout_audience is None or issuer.max_lifetime_s is None:
        raise token_refused("issuer", "logouts of this issuer are not accepted")
    check_audience(claims, issuer.logout_audience)
    check_times(claims, issuer, now)
    events = claims.get(EVENTS)
    if not isinstance(events, Mapping) or not isinstance(events.get(_LOGOUT), Mapping):
        raise token_refused("purpose", "it is no message about a logout")
    if "nonce" in claims:
        raise token_refused("purpose", "it has a nonce, as no logout token has")
    if not _text(claims, "jti"):
        raise token_refused("type", "the claim jti is missing")
    issued = _issued_at(claims)
    # The provider's clock can be ahead when it issues a token, and behind when the token expires.
    lifetime = timedelta(seconds=issuer.max_lifetime_s + 2 * issuer.leeway_s)
    return Logout(issuer.issuer, *_session_and_subject(claims), issued, lifetime)


def check_id_token(claims: Mapping[str, object], issuer: IssuerSettings, nonce: str, now: float) -> None:
    """Check an ID token of a login to the console.

    Args:
        claims: the claims of a token whose signature is good.
        issuer: the provider that signed it.
        nonce: what the login was begun with.
        now: the time in seconds since 1970.

    Raises:
        NotAuthenticated: it is none of this login.
    """
    if issuer.console is None:
        raise token_refused("issuer", "users do not log in to the console by this issuer")
    client = issuer.console.client_id
    check_audience(claims, (client,))
    if claims.get("azp", client) != client:
        raise token_refused("audience", "it was issued to another client")
    check_times(claims, issuer, now)
    given = _text(claims, "nonce")
    if EVENTS in claims or given is None or not hmac.compare_digest(given.encode(), nonce.encode()):
        raise token_refused("nonce", "it is not of the login that this browser began")
    if _text(claims, "sub") is None:
        raise token_refused("subject", "the claim sub is missing")


def _issued_at(claims: Mapping[str, object]) -> datetime:
    issued = issued_at(claims)
    if issued is None:
        raise token_refused("lifetime", "the claim iat is missing")
    return issued


def _session_and_subject(claims: Mapping[str, object]) -> tuple[str | None, str | None]:
    session, subject = _text(claims, "sid"), _text(claims, "sub")
    if session is None and subject is None:
        raise token_refused("login", "it has neither of the claims sid and sub")
    return session, subject


def _text(claims: Mapping[str, object], name: str) -> str | None:
    value = claims.get(name)
    if name in claims and (not isinstance(value, str) or not value):
        raise token_refused("type", f"the claim {name} is no text, or empty")
    return value if isinstance(value, str) else None
