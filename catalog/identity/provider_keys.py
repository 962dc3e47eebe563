"""Keeps the public keys of an identity provider, fetches them again, and says when they are too old.

- Fresh keys (`refresh_s`) are used at once. Older ones are used too, while one thread fetches the next. Keys
  older than `keys_max_age_s` are not used: who calls waits for one attempt, and is refused if it fails. Only
  `MOST_WAITING` wait at a time, for all providers together: the service has threads left for other users.
- An unknown key id fetches the keys again, because a provider may have a new key: one caller waits for that,
  and only if no attempt was made in the last `_PAUSE_S`. So tokens with made-up ids cost the provider and
  others nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from catalog.base.outside_calls import Part, outside_call
from catalog.identity.key_sets import KeySet, KeySetInvalid, PublicKey
from catalog.identity.provider import Provider, ProviderFailed
from catalog.identity.refusals import ProviderUnavailable
from catalog.settings.identity import IssuerSettings

#: Half of the threads of requests (`catalog.http.threads`).
MOST_WAITING: Final = 20
_PAUSE_S: Final = 10.0
_NO_KEYS: Final = KeySet(())

_log: Final = logging.getLogger("lakewarden.identity")


def fetching_from(issuer: IssuerSettings) -> Callable[[], KeySet]:
    """Return what fetches the keys of an issuer, within the time of the settings.

    It raises `ProviderFailed` if the provider gives no answer in time, or another one than a set of keys.

    Raises:
        PropertyInvalid: the file of authorities cannot be used.
    """
    provider = Provider(issuer)

    def fetch() -> KeySet:
        try:
            return KeySet.parse(provider.key_document())
        except KeySetInvalid as error:
            raise ProviderFailed(f"the key set is not valid: {error}") from None

    return fetch


class ProviderKeys:
    """The keys of one provider; thread-safe.

    Args:
        name: the issuer's name in the settings.
        issuer: how long keys are used.
        fetch: asks the provider; raises `ProviderFailed`.
        seconds: a monotonic clock.
        waiting: has room for those who wait for the keys of any provider.
    """

    def __init__(
        self,
        name: str,
        issuer: IssuerSettings,
        fetch: Callable[[], KeySet],
        seconds: Callable[[], float],
        waiting: threading.Semaphore,
    ) -> None:
        self._name = name
        self._issuer = issuer
        self._fetch = fetch
        self._seconds = seconds
        self._waiting = waiting
        self._keys, self._fetched_at = _NO_KEYS, float("-inf")
        self._tried_at = float("-inf")
        #: Held by the one who fetches.
        self._fetching = threading.Lock()
        self._failing = False

    def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """Return the key that a token is signed by; None if the provider has none.

        Args:
            key_id: the `kid` of the token.
            algorithm: its `alg`, one that is accepted.

        Raises:
            ProviderUnavailable: the keys are too old, and the provider does not answer.
        """
        age = self._seconds() - self._fetched_at
        if age > self._issuer.keys_max_age_s:
            self._wait_for_keys()
        elif age > self._issuer.refresh_s and self._may_try():
            threading.Thread(target=self._fetch_if_free, name="identity-keys", daemon=True).start()
        found = self._keys.find(key_id, algorithm)
        if found is None and self._may_try():
            self._fetch_if_free()
            found = self._keys.find(key_id, algorithm)
        return found

    def _wait_for_keys(self) -> None:
        """Have keys that can be used, or refuse."""
        if self._waiting.acquire(blocking=False):
            try:
                with self._fetching:
                    if self._too_old() and self._may_try():
                        self._try_to_fetch()
            finally:
                self._waiting.release()
        if self._too_old():
            raise ProviderUnavailable(
                f"The identity provider {self._name} does not answer, and its last keys are too old.",
                rule="identity-provider",
                hint="Try again later. The log of the service says why the keys cannot be fetched.",
            )

    def _fetch_if_free(self) -> None:
        if self._fetching.acquire(blocking=False):
            try:
                self._try_to_fetch()
            finally:
                self._fetching.release()

    def _try_to_fetch(self) -> None:
        self._tried_at = self._seconds()
        try:
            with outside_call(Part.PROVIDER, "keys"):
                keys = self._fetch()
        except ProviderFailed as failure:
            self._failing = True
            _log.warning("the keys of issuer %s cannot be fetched: %s", self._name, failure)
            return
        self._keys, self._fetched_at = keys, self._seconds()
        if self._failing:
            self._failing = False
            _log.warning("the keys of issuer %s can be fetched again", self._name)

    def _may_try(self) -> bool:
        return self._seconds() - self._tried_at >= _PAUSE_S

    def _too_old(self) -> bool:
        return self._seconds() - self._fetched_at > self._issuer.keys_max_age_s
