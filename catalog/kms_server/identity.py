"""Authenticates requests to the KMS endpoint.

- A token of the catalog without a scope, of kind `user` or `kms`: in `Authorization: Bearer`, or as a
  delegation token in `X-Hadoop-Delegation-Token`, which is how standard clients send one. Never in the
  address.
- Only where the settings say so: the name in `user.name` (Hadoop's "simple" authentication). Then the service
  listens on loopback alone, the request comes from this host and names it, and it bears no trace of a proxy
  or of a page in a browser. Every user of the host can then take any name; so can every user who reaches a
  proxy on it that leaves no trace.
- Standard clients name themselves at a handshake only, so its answer sets a signed cookie, `hadoop.auth`,
  which counts under the same conditions as the name in it. The key that signs lives as long as the process.
  Such a user has the groups and roles that the catalog knows of them, and is refused if they are disabled.
- More than one credential is refused, and so are `doAs` and a token in the address: two readers could
  understand such a request differently.

Source: Hadoop 3.4.3, `DelegationTokenAuthenticationHandler`, `PseudoAuthenticationHandler`, `AuthToken`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers

from catalog.authorization.principals import Principals
from catalog.authorization.tokens import TokenStore
from catalog.base.addresses import is_this_machine
from catalog.kms_server.hadoop_token import secret_of
from policy.errors import NotAuthenticated
from policy.principal import Principal

COOKIE: Final = "hadoop.auth"
DELEGATION_HEADER: Final = "X-Hadoop-Delegation-Token"
_AUTHORIZATION: Final = "Authorization"
_COOKIE_TTL_MS: Final = 3_600_000
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,127}", re.ASCII)
_COOKIE: Final = re.compile(r"(u=([^&]+)&p=[^&]+&t=simple-dt&e=([0-9]{1,15}))&s=([0-9a-f]{64})", re.ASCII)
#: Everywhere a reader of the header could take for the start of the cookie.
_COOKIES: Final = re.compile(r"(?<![^\s;,])hadoop\.auth\s*=")
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
#: What proxies add, and what browsers do for pages of other sites.
_FORWARDED: Final = re.compile(
    r"forwarded|via|(x-)?(real|client)-ip|true-client-ip|cf-connecting-ip|x-([a-z-]+-)?forwarded(-.*)?"
    r"|origin|sec-fetch-.*"
)
#: Hadoop clients are written in Java, which speaks HTTP/1.1; nginx forwards requests as 1.0, without an
#: additional header.
_OLD_HTTP: Final = "1.0"
_NEVER: Final = frozenset({"doas", "delegation", "token"})


@dataclass(frozen=True, slots=True)
class Visit:
    """The parts of a request that identify the caller.

    Attributes:
        headers: of the request.
        query: of the address, in order.
        cookie: the value of `hadoop.auth`, or None.
        address: the network address that the request came from.
        http_version: of the request.
    """

    headers: Headers = field(repr=False)
    query: Sequence[tuple[str, str]] = field(repr=False)
    cookie: str | None = field(repr=False)
    address: str
    http_version: str


class CallerIdentification:
    """Identifies the caller.

    Args:
        tokens: the catalog's tokens.
        principals: what is known of users.
        pseudo: whether those on this host are believed who name themselves.
        now_ms: the time in milliseconds.
    """

    def __init__(
        self, tokens: TokenStore, principals: Principals, pseudo: bool, now_ms: Callable[[], int]
    ) -> None:
        self._tokens = tokens
        self._principals = principals
        self._pseudo = pseudo
        self._now_ms = now_ms
        self._secret = secrets.token_bytes(32)

    def principal(self, visit: Visit) -> Principal:
        """Return the principal of the request.

        Raises:
            NotAuthenticated: nobody's who can be told for certain.
            StateUnavailable: the database does not answer.
        """
        if any(name.lower() in _NEVER for name, _ in visit.query):
            raise _refused("The URL contains a token, or a user to act for (doAs).")
        names = [value for name, value in visit.query if name == "user.name"]
        headers = [visit.headers.getlist(name) for name in (_AUTHORIZATION, DELEGATION_HEADER)]
        cookies = sum(len(_COOKIES.findall(sent)) for sent in visit.headers.getlist("Cookie"))
        given = sum(map(len, headers)) + len(names) + cookies
        if given != 1:
            raise _refused(
                "The request carries no credential."
                if not given
                else "The request carries more than one credential."
            )
        if names or cookies:
            name = self._local_name(visit, names[0] if names else self._signed(visit.cookie or ""))
            return self._principals.named(name)
        bearer, delegation = headers
        text = secret_of(delegation[0]) if delegation else _bearer(bearer[0])
        principal = self._tokens.verify(text, "user", "kms")
        if principal.scope is not None:
            raise _refused("The token has a scope. Keys of this endpoint are in no scope.")
        return principal

    def greet(self, visit: Visit) -> str | None:
        """Return the cookie for a handshake by an authenticated user; None for all others."""
        names = [value for name, value in visit.query if name == "user.name"]
        if len(names) != 1:
            return None
        try:
            name = self._local_name(visit, names[0])
        except NotAuthenticated:
            # The handshake reveals nothing: clients would take an error in it as a reason to show masks.
            return None
        text = f"u={name}&p={name}&t=simple-dt&e={self._now_ms() + _COOKIE_TTL_MS}"
        return f"{text}&s={self._signature(text)}"

    def _local_name(self, visit: Visit, name: str) -> str:
        """Return the name by which a user of this host calls themselves, where that counts."""
        if not (self._pseudo and _is_local(visit)):
            raise _refused("A user name without a credential is not accepted here.")
        if _USER.fullmatch(name) is None:
            raise _refused("The user name is not valid.")
        return name

    def _signed(self, cookie: str) -> str:
        """Return the name in a cookie of this process."""
        found = _COOKIE.fullmatch(cookie)
        if (
            found is None
            or not hmac.compare_digest(found[4], self._signature(found[1]))
            or int(found[3]) <= self._now_ms()
        ):
            raise _refused("The cookie was not issued by this process, or has expired.")
        return found[2]

    def _signature(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8"), hashlib.sha256).hexdigest()


def _is_local(visit: Visit) -> bool:
    """Return whether the request comes directly from this host, and is addressed to it."""
    hosts = visit.headers.getlist("Host")
    passed_on = visit.http_version == _OLD_HTTP or any(map(_FORWARDED.fullmatch, visit.headers.keys()))
    if len(hosts) != 1 or passed_on:
        return False
    name = re.sub(r":[0-9]{1,5}\Z", "", hosts[0]).lower()
    return name in _LOCAL_NAMES and is_this_machine(visit.address)


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise _refused("The request carries no bearer token.")
    return token


def _refused(message: str) -> NotAuthenticated:
    return NotAuthenticated(
        message, rule="token", hint="Send a token of the catalog as described in docs/kms-endpoint.md."
    )
