"""Times the calls to the parts that the catalog needs: database, KMS, storage, identity providers, Ranger.

- A call is timed where all calls to its part pass, in the thread that waits for it. It ends as `unavailable`
  if the part did not answer, else as `answered`; a refusal is an answer.
- The counts are those of the process, as its connections and threads are.
- A tracer can be installed once for the process (`trace_calls`). Without one, a call costs about a
  microsecond.
- Part, operation and outcome are names in the code. No location, key id or statement comes here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Final, ParamSpec, Protocol, TypeVar

from catalog.base.durations import Durations
from catalog.base.log_fields import fields
from policy.errors import CommitStateUnknown, Unavailable

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class Part(StrEnum):
    """What the catalog calls."""

    DATABASE = "database"
    KMS = "kms"
    STORAGE = "storage"
    PROVIDER = "identity-provider"
    RANGER = "ranger"


ANSWERED: Final = "answered"
UNAVAILABLE: Final = "unavailable"

#: Durations by part, operation and outcome.
CALLS: Final = Durations()


class NoAnswer(Exception):
    """A part did not answer; the base of errors that stay inside of the code that calls it."""


_UNANSWERED: Final = (Unavailable, CommitStateUnknown, TimeoutError, NoAnswer)
_log: Final = logging.getLogger("lakewarden.calls")


class CallTracer(Protocol):
    """Follows calls; it must neither raise nor wait."""

    def ended(self, part: Part, operation: str, outcome: str, started_ns: int, ended_ns: int) -> None:
        """Record a call of the current request.

        Args:
            part: what was called.
            operation: what was asked of it.
            outcome: `ANSWERED` or `UNAVAILABLE`.
            started_ns: when it began, in nanoseconds since 1970.
            ended_ns: when it ended.
        """

    def carried(self, function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        """Return a function whose calls belong to the current request, in any thread."""


_tracer: CallTracer | None = None


def trace_calls(tracer: CallTracer | None) -> None:
    """Tell a tracer about all calls of this process; None to stop."""
    global _tracer
    _tracer = tracer


def of_this_request(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Return a function for another thread, whose calls belong to the current request."""
    return function if _tracer is None else _tracer.carried(function)


class outside_call:
    """Times the block; see the module. An instance is used once.

    Args:
        part: what is called.
        operation: what is asked of it, a name in the code.
    """

    __slots__ = ("_operation", "_part", "_started")

    def __init__(self, part: Part, operation: str) -> None:
        self._part = part
        self._operation = operation

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._started
        outcome = UNAVAILABLE if isinstance(error, _UNANSWERED) else ANSWERED
        CALLS.add((self._part, self._operation, outcome), seconds)
        if _tracer is not None:
            now = time.time_ns()
            _tracer.ended(self._part, self._operation, outcome, now - int(seconds * 1e9), now)
        if _log.isEnabledFor(logging.DEBUG):
            about = fields(operation=self._operation, outcome=outcome, duration_ms=round(seconds * 1000, 1))
            _log.debug("call of the %s", self._part, extra=about)
