"""Asks an identity provider for its public keys, over one bounded HTTP request each.

- TLS, or a loopback address; no redirect is followed, no proxy of the environment taken.
- The addresses come from the settings, and from the discovery document of the issuer in the settings, which
  has to name the same issuer. What a token says about addresses (`jku`, `x5u`) is never read.

Source: OpenID Connect Discovery 1.0, sections 4 and 4.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import urllib3
from urllib3.exceptions import HTTPError

from catalog.base.ca_files import why_unusable
from catalog.base.http_answers import POOLS, AnswerOutOfBounds, read_answer
from catalog.base.outside_calls import NoAnswer
from catalog.identity.key_sets import KeySet, KeySetInvalid
from catalog.settings.identity import IssuerSettings, provider_url
from policy import strict_json
from policy.errors import InvalidInput, PropertyInvalid

_SHORTEST_S: Final = 0.001
_DISCOVERY: Final = "/.well-known/openid-configuration"


class ProviderFailed(NoAnswer):
    """The provider's keys could not be fetched; the message says why, for the log."""


def fetching_from(issuer: IssuerSettings) -> Callable[[], KeySet]:
    """Return what fetches the keys of an issuer. Errors: `Provider`, and `Provider.keys`."""
    return Provider(issuer).keys


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

    def keys(self) -> KeySet:
        """Fetch the keys, within the time of the settings.

        Raises:
            ProviderFailed: no answer in time, or another one than a set of keys.
        """
        until = time.monotonic() + self._issuer.timeout_s
        try:
            return KeySet.parse(self._get(self._issuer.jwks_uri or self._discovered(until), until))
        except KeySetInvalid as error:
            raise ProviderFailed(f"the key set is not valid: {error}") from None

    def _discovered(self, until: float) -> str:
        """Return the address of the keys according to the discovery document."""
        body = self._get(self._issuer.issuer.rstrip("/") + _DISCOVERY, until)
        try:
            document = strict_json.parse(body, what="The discovery document")
        except InvalidInput:
            document = None
        if not isinstance(document, dict) or document.get("issuer") != self._issuer.issuer:
            raise ProviderFailed("the discovery document is not valid, or of another issuer")
        try:
            return provider_url(str(document.get("jwks_uri")))
        except ValueError as error:
            raise ProviderFailed(f"the discovery document names no good jwks_uri: {error}") from None

    def _get(self, url: str, until: float) -> bytes:
        left = urllib3.Timeout(total=max(until - time.monotonic(), _SHORTEST_S))
        try:
            answer = self._pool.request(
                "GET", url, headers=self._headers(), timeout=left, redirect=False, preload_content=False
            )
            body = read_answer(answer, until)
        except AnswerOutOfBounds:
            raise ProviderFailed("the answer is too long, or took too long") from None
        except (HTTPError, OSError, ValueError) as error:
            # Without its message: it can quote the token in the file.
            raise ProviderFailed(f"it cannot be asked: {type(error).__name__}") from None
        if answer.status != 200:
            raise ProviderFailed(f"it answered with HTTP status {answer.status}")
        return body

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._issuer.token_file is not None:
            token = self._issuer.token_file.read_text("ascii").strip()
            headers["Authorization"] = f"Bearer {token}"
        return headers
