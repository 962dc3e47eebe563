"""Runs a check in the background and keeps its result for a short time.

- One check runs at a time, whoever asks, so that many requests cost no more than one.
- A check that does not end is a result as well. Nobody waits for it longer than `ANSWER_S`, and no other one
  begins until it ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from catalog.base.log_fields import fields
from catalog.service.service_log import places

#: The longest wait for a check, in seconds.
ANSWER_S: Final = 4.0

_log: Final = logging.getLogger("lakewarden.service")


class Ability(StrEnum):
    """What a catalog can do for its clients."""

    READING = "reading"
    WRITING = "writing"
    ENCRYPTED_TABLES = "encrypted-tables"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something cannot be served.

    Attributes:
        text: one sentence that names no table, path, user or host.
        lost: what cannot be served.
    """

    text: str
    lost: frozenset[Ability]


class Probe:
    """Runs one check; thread-safe.

    Args:
        part: the part of the catalog that is checked, in the words of the log.
        check: returns the problem, or None; runs in a thread of its own.
        lost: what cannot be served while the check does not end.
        kept_s: seconds for which a result is kept.
        seconds: a monotonic clock.
    """

    def __init__(
        self,
        part: str,
        check: Callable[[], Problem | None],
        lost: frozenset[Ability],
        *,
        kept_s: float,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.part = part
        self._check = check
        self._unanswered = Problem(f"The {part} does not answer in time.", lost)
        self._failed = Problem(f"The check of the {part} failed. The service log has the reason.", lost)
        self._kept_s = kept_s
        self._seconds = seconds
        self._lock = threading.Lock()
        self._running: Future[None] | None = None
        self._started = 0.0
        self._ended: float | None = None
        self._found: Problem | None = None

    def begin(self) -> Future[None] | None:
        """Begin a check if it is time to; return what to wait for, or None for nothing."""
        with self._lock:
            now = self._seconds()
            if self._running is not None:
                return None if now - self._started >= ANSWER_S else self._running
            if self._ended is not None and now - self._ended < self._kept_s:
                return None
            self._running, self._started = Future(), now
            running = self._running
        try:
            threading.Thread(target=self._run, name="lakewarden-probe", daemon=True).start()
        except RuntimeError as error:
            # No thread is left. The check is made with the next request.
            self._end(self._failed, error)
        return running

    def problem(self) -> Problem | None:
        """Return the problem that is known now."""
        with self._lock:
            overdue = self._running is not None and self._seconds() - self._started >= ANSWER_S
            return self._unanswered if overdue or self._ended is None else self._found

    def _run(self) -> None:
        try:
            found, error = self._check(), None
        except Exception as failure:  # noqa: BLE001 - whatever fails, the part cannot be said to work
            found, error = self._failed, failure
        self._end(found, error)

    def _end(self, found: Problem | None, error: Exception | None) -> None:
        if error is not None:
            # The message is not logged, because it can contain a secret.
            about = fields(error=type(error).__name__, places=places(error))
            _log.error("the check of the %s failed", self.part, extra=about)
        with self._lock:
            running, self._running = self._running, None
            changed, self._found, self._ended = found != self._found, found, self._seconds()
        if running is not None:
            running.set_result(None)
        if changed:
            text = "it works again" if found is None else found.text
            _log.warning("the readiness of the %s changed: %s", self.part, text)
