"""Authenticates the catalog to Vault: a token, a token file, or an AppRole.

Rules:
- A token is sent in a header, to the configured server alone, and stands in no error.
- A file is read on every call, since an agent replaces it.
- An AppRole logs in when it has to, one thread for all, and again when two thirds of the lease are over or
  the token is refused. If the new token is refused too, it is a right that is missing: then no refusal makes
  it log in for a minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from catalog.crypto.secret import SecretBytes
from policy.errors import KmsUnavailable

_LONGEST_TOKEN: Final = 4096
_RENEW_AFTER: Final = 2 / 3
_IN_VAIN_S: Final = 60.0


class Identity(Protocol):
    """A source of Vault tokens."""

    def token(self) -> SecretBytes:
        """Return the current token.

        Raises:
            KmsUnavailable: there is none.
        """

    def renewed(self, refused: SecretBytes) -> SecretBytes | None:
        """Return another token instead of one that the server rejected.

        Returns:
            None if there is no other; the refused one itself if another would be refused as well.
        """

    def renewed_in_vain(self) -> None:
        """Note that the server rejected the token from `renewed`, too."""


class FixedToken:
    """A token that does not change."""

    def __init__(self, token: SecretBytes) -> None:
        self._token = token

    def token(self) -> SecretBytes:
        """See `Identity.token`."""
        return self._token

    def renewed(self, refused: SecretBytes) -> SecretBytes | None:
        """Returns no other token."""
        return None

    def renewed_in_vain(self) -> None:
        """Does nothing: nothing is renewed."""


class TokenFile:
    """A token in a file that another process renews."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def token(self) -> SecretBytes:
        """See `Identity.token`."""
        try:
            with self._path.open("rb") as file:
                text = file.read(_LONGEST_TOKEN + 1).strip()
        except OSError as failure:
            raise _no_token(f"the token file cannot be read ({failure.strerror})") from failure
        if not text or len(text) > _LONGEST_TOKEN or not is_token(text):
            raise _no_token("the token file must hold exactly one token")
        return SecretBytes(text)

    def renewed(self, refused: SecretBytes) -> SecretBytes | None:
        """Read the file again; None if it holds the same token."""
        again = self.token()
        return None if again == refused else again

    def renewed_in_vain(self) -> None:
        """Does nothing: reading a file again costs nothing."""


class AppRole:
    """An AppRole login.

    Args:
        login: logs in; returns a token and for how many seconds it is good, 0 for without end.
        clock: monotonic seconds.
    """

    def __init__(
        self, login: Callable[[], tuple[SecretBytes, float]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._login = login
        self._clock = clock
        self._lock = threading.Lock()
        self._token: SecretBytes | None = None
        self._until = 0.0
        self._in_vain_until = float("-inf")

    def token(self) -> SecretBytes:
        """See `Identity.token`."""
        with self._lock:
            if self._token is None or self._clock() >= self._until:
                return self._log_in()
            return self._token

    def renewed(self, refused: SecretBytes) -> SecretBytes | None:
        """Return the token of another thread's login, or log in again; see the rules."""
        with self._lock:
            if self._token is not None and self._token != refused:
                return self._token
            return refused if self._clock() < self._in_vain_until else self._log_in()

    def renewed_in_vain(self) -> None:
        """See `Identity.renewed_in_vain`."""
        with self._lock:
            self._in_vain_until = self._clock() + _IN_VAIN_S

    def _log_in(self) -> SecretBytes:
        asked = self._clock()
        self._token, lease = self._login()
        self._until = asked + lease * _RENEW_AFTER if lease > 0 else float("inf")
        return self._token


def is_token(text: bytes) -> bool:
    """Return whether a text can be an HTTP header value: visible ASCII characters only."""
    return all(0x21 <= each <= 0x7E for each in text)


def _no_token(what: str) -> KmsUnavailable:
    return KmsUnavailable(
        f"The catalog cannot authenticate to Vault: {what}.",
        rule="kms-credentials",
        hint="Check the Vault agent, or the kms.options settings.",
    )
