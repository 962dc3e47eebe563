"""Keeps storage credentials for half of their lifetime, so that loads do not wait for AWS STS.

Every use is authorized before; the cache only spares the request. Its key holds everything that a credential
depends on, so that a change of policies or of a table's locations finds nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final

from catalog.storage_access.sts import Credential

_MOST: Final = 10_000


class CredentialCache:
    """Storage credentials by what they depend on.

    Args:
        now_ms: the time in milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = Lock()
        self._kept: OrderedDict[Hashable, tuple[int, Credential]] = OrderedDict()

    def get(self, key: Hashable, issue: Callable[[], Credential]) -> Credential:
        """Return the credential of a key, with at least half of its lifetime left, or a new one."""
        now_ms = self._now_ms()
        with self._lock:
            until_ms, kept = self._kept.get(key, (0, None))
        if kept is not None and now_ms < until_ms:
            return kept
        issued = issue()
        with self._lock:
            self._kept[key] = now_ms + (issued.expires_ms - now_ms) // 2, issued
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return issued
