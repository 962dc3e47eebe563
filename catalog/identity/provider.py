"""Asks an identity provider for its public keys, and for the tokens of a login, over bounded HTTP requests.

- TLS, or a loopback address; no redirect is followed, no proxy of the environment taken.
- The addresses come from the settings, and from the discovery document of the issuer in the settings, which
  has to name the same issuer. What a token says about addresses (`jku`, `x5u`) is never read.

Source: OpenID Connect Discovery 1.0, sections 4 and 4.3; RFC 6749, sections 2.3.1 and 4.1.3.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError

from catalog.base.ca_files import why_unusable
from catalog.base.http_answers import POOLS, AnswerOutOfBounds, read_answer
from catalog.base.outside_calls import NoAnswer
from catalog.settings.console import ConsoleClient
from catalog.settings.identity import IssuerSettings, provider_url
from policy import strict_json
from policy.errors import InvalidInput, PropertyInvalid

_SHORTEST_S: Final = 0.001
_DISCOVERY: Final = "/.well-known/openid-configuration"
_KEYS: Final = "jwks_uri"
_AUTHORIZATION: Final = "authorization_endpoint"
_TOKEN: Final = "token_endpoint"  # noqa: S105
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = MappingProxyType({"Accept": "application/json", "Accept-Encoding": "identity"})


class ProviderFailed(NoAnswer):
    """The provider's keys could not be fetched; the message says why, for the log."""


class Provider:
    """An identity provider; safe for many threads.

    Args:
        issuer: where it is, and how it is asked.

    Raises:
        PropertyInvalid: the file of authorities cannot be used.
    """

    def __init__(self, issuer: IssuerSettings) -> None:
        if (why := why_unusable(issuer.ca_file)) is not None:
            raise PropertyInvalid(
                why, rule="settings", hint=f"Correct ca_file of the issuer {issuer.issuer} in the settings."
            )
        self._issuer = issuer
        self._pool = urllib3.PoolManager(
            num_pools=2,
            maxsize=1,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=None if issuer.ca_file is None else str(issuer.ca_file),
        )
        self._pool.pool_classes_by_scheme = POOLS

    def key_document(self) -> bytes:
        """Fetch the document of public keys, within the time of the settings.

        Raises:
            ProviderFailed: no answer in time, or another one than a document.
        """
        until = self._until()
        return self._get(self._issuer.jwks_uri or self._discovered(until, _KEYS), until)

    def authorization_endpoint(self) -> str:
        """Return where users log in. Errors: `key_document`."""
        return self._discovered(self._until(), _AUTHORIZATION)

    def exchange(self, grant: Mapping[str, str], client: ConsoleClient) -> tuple[int, dict[str, Any]]:
        """Send a grant for tokens, and return the HTTP status and the document of the answer.

        Args:
            grant: the fields of the request.
            client: the client that sends it: with its secret if it has one, else by its name alone.

        Raises:
            ProviderFailed: no answer in time, or another one than JSON.
        """
        until = self._until()
        url = self._discovered(until, _TOKEN)
        headers, fields = {**_JSON, "Content-Type": _FORM}, dict(grant)
        if client.client_secret is None:
            fields["client_id"] = client.client_id
        else:
            pair = (client.client_id, client.client_secret.get_secret_value())
            headers |= urllib3.make_headers(basic_auth=":".join(quote(each, safe="") for each in pair))
        status, body = self._ask("POST", url, until, headers, urlencode(fields))
        document = _object(body)
        if document is None:
            raise ProviderFailed("the answer of the token endpoint is not valid")
        return status, document

    def _until(self) -> float:
        return time.monotonic() + self._issuer.timeout_s

    def _discovered(self, until: float, name: str) -> str:
        """Return an address of the discovery document."""
        document = _object(self._get(self._issuer.issuer.rstrip("/") + _DISCOVERY, until))
        if document is None or document.get("issuer") != self._issuer.issuer:
            raise ProviderFailed("the discovery document is not valid, or of another issuer")
        try:
            return provider_url(str(document.get(name)))
        except ValueError as error:
            raise ProviderFailed(f"the discovery document names no good {name}: {error}") from None

    def _get(self, url: str, until: float) -> bytes:
        status, body = self._ask("GET", url, until, self._headers())
        if status != 200:
            raise ProviderFailed(f"it answered with HTTP status {status}")
        return body

    def _ask(
        self, method: str, url: str, until: float, headers: Mapping[str, str], body: str | None = None
    ) -> tuple[int, bytes]:
        left = urllib3.Timeout(total=max(until - time.monotonic(), _SHORTEST_S))
        try:
            answer = self._pool.request(
                method, url, body, headers=headers, timeout=left, redirect=False, preload_content=False
            )
            return answer.status, read_answer(answer, until)
        except AnswerOutOfBounds:
            raise ProviderFailed("the answer is too long, or took too long") from None
        except (HTTPError, OSError, ValueError) as error:
            # Without its message: it can quote the token in the file.
            raise ProviderFailed(f"it cannot be asked: {type(error).__name__}") from None

    def _headers(self) -> dict[str, str]:
        headers = dict(_JSON)
        if self._issuer.token_file is not None:
            try:
                token = self._issuer.token_file.read_text("ascii").strip()
            except (OSError, ValueError) as error:
                raise ProviderFailed(f"its token cannot be read: {type(error).__name__}") from None
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _object(body: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None if it is none."""
    try:
        document = strict_json.parse(body, what="The answer")
    except InvalidInput:
        return None
    return document if isinstance(document, dict) else None
