"""Logs users in at their identity provider: authorization code with PKCE, state and nonce.

- A login begins with random bytes, which the browser keeps in a cookie. State, nonce and code verifier are
  derived from them and the issuer's name. So a code counts in the browser that began the login alone, and for
  the provider where it began.
- Each issuer has its own address to come back to, and a provider's `iss` is compared (RFC 9207).
- The provider gives an access token, which becomes the session's token and is checked as in each request, and
  an ID token, which ties it to this login.
- Requests to providers are bounded: `MOST_WAITING` at a time, so that a provider that does not answer leaves
  threads for other users.

Sources: RFC 6749, section 4.1; RFC 7636 (PKCE); RFC 9700 (best practices), sections 2.1 and 4.4; OpenID
Connect Core 1.0, section 3.1.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from catalog.base.outside_calls import Part, outside_call
from catalog.crypto.hkdf import derived
from catalog.identity.provider import Provider, ProviderFailed
from catalog.identity.refusals import ProviderUnavailable
from catalog.settings.console import ConsoleClient
from catalog.settings.identity import IssuerSettings
from policy.errors import NotAuthenticated

#: A quarter of the threads of requests (`catalog.http.threads`).
MOST_WAITING: Final = 10
_BYTES: Final = 32
_KEPT: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_ERROR_LENGTH: Final = 60

#: Checks that a provider gave an access token and an ID token for one login (`AccessTokens.check_login`).
CheckLogin = Callable[[str, str, str, str], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a provider sent a user back with.

    Attributes:
        state: the state of the login.
        code: the code, or None.
        issuer: the provider's `iss`, or None.
        error: why the provider did not log the user in, or None.
    """

    state: str | None
    code: str | None = field(repr=False)
    issuer: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a login consists of, derived from what the browser keeps."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def of(cls, kept: str, name: str) -> _Begun:
        def part(what: str) -> str:
            return _text(derived(kept.encode("ascii"), _BYTES, f"lakewarden/login/1/{what}/{name}".encode()))

        return cls(part("state"), part("nonce"), part("verifier"))

    @property
    def challenge(self) -> str:
        """The challenge of PKCE, by S256."""
        return _text(hashlib.sha256(self.verifier.encode("ascii")).digest())


class CodeLogins:
    """Logins at the issuers in the settings that have a client for the console; thread-safe.

    Args:
        issuers: all issuers, by name.
        address: the address of the console.
        check: checks the tokens of a login.
    """

    def __init__(self, issuers: Mapping[str, IssuerSettings], address: str, check: CheckLogin) -> None:
        self._sites = {
            name: (each, each.console, Provider(each))
            for name, each in issuers.items()
            if each.console is not None
        }
        self._address = address
        self._check = check
        self._waiting = threading.Semaphore(MOST_WAITING)

    def begin(self, name: str) -> tuple[str, str]:
        """Return the address at the provider to send a browser to, and what the browser has to keep.

        Args:
            name: the issuer's name in the settings, which has a client for the console.

        Raises:
            KeyError: it has none.
            ProviderUnavailable: the provider does not answer.
        """
        _, client, provider = self._sites[name]
        kept = _text(secrets.token_bytes(_BYTES))
        begun = _Begun.of(kept, name)
        with self._asking(name, "login"):
            endpoint = provider.authorization_endpoint()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": self._comes_back_to(name),
            "scope": client.scope,
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": begun.challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", kept

    def finish(self, name: str, kept: str | None, answer: Answer) -> str:
        """Return the access token of a user whom a provider sent back.

        Args:
            name: as in `begin`.
            kept: what the browser kept.
            answer: what the provider sent.

        Raises:
            KeyError: the issuer has no client for the console.
            NotAuthenticated: the login was begun elsewhere, or the provider did not log the user in.
            ProviderUnavailable: the provider does not answer.
        """
        issuer, client, provider = self._sites[name]
        if kept is None or _KEPT.fullmatch(kept) is None or answer.state is None:
            raise _refused("state: this browser has begun no login")
        begun = _Begun.of(kept, name)
        if not hmac.compare_digest(answer.state.encode("utf-8", "replace"), begun.state.encode("ascii")):
            raise _refused("state: the login was begun elsewhere")
        if answer.issuer is not None and answer.issuer != issuer.issuer:
            raise _refused("issuer: another provider answered")
        if answer.code is None:
            raise _refused(f"provider: {(answer.error or 'no code')[:_ERROR_LENGTH]!a}")
        access_token, id_token = self._tokens(name, client, provider, answer.code, begun)
        self._check(name, access_token, id_token, begun.nonce)
        return access_token

    def _tokens(
        self, name: str, client: ConsoleClient, provider: Provider, code: str, begun: _Begun
    ) -> tuple[str, str]:
        grant = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._comes_back_to(name),
            "code_verifier": begun.verifier,
        }
        with self._asking(name, "code"):
            status, document = provider.exchange(grant, client)
            if status >= 500:
                raise ProviderFailed(f"it answered with HTTP status {status}")
        if status != 200:
            raise _refused(f"provider: it did not take the code (HTTP status {status})")
        if str(document.get("token_type")).lower() != "bearer":
            raise _refused("provider: it gave no bearer token")
        return _given(document, "access_token"), _given(document, "id_token")

    def _comes_back_to(self, name: str) -> str:
        return f"{self._address}/console/login/{name}/callback"

    @contextmanager
    def _asking(self, name: str, operation: str) -> Iterator[None]:
        """Ask a provider; its failure is an error for the user, with the reason for the log."""
        if not self._waiting.acquire(blocking=False):
            raise _unavailable(name, "too many logins wait for their providers")
        try:
            with outside_call(Part.PROVIDER, operation):
                yield
        except ProviderFailed as failure:
            raise _unavailable(name, str(failure)) from None
        finally:
            self._waiting.release()


def _given(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise _refused(f"provider: it gave no {name}")
    return value


def _refused(why: str) -> NotAuthenticated:
    return NotAuthenticated(
        "The login at the identity provider did not succeed.",
        rule="console-login",
        hint="Log in again. An administrator finds the reason in the log.",
        why=why,
    )


def _unavailable(name: str, why: str) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"The identity provider {name} does not answer.",
        rule="identity-provider",
        hint="Try again later. An administrator finds the reason in the log.",
        why=why,
    )


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
