"""Formats the log of the service: one line per record, as text or JSON, on standard error.

- A record has time (UTC), level, logger and message, and its own fields (`fields`).
- Tokens, and passwords in URLs, are masked. Control characters are escaped, so that a record is one line.
- An exception is shown by its type and place. Its message is left out, because it can repeat a secret.
- Libraries log from level WARNING on, each record by its logger and place. Their messages are left out,
  because asyncio and others put exceptions, paths and bodies into them. The same applies to unhandled errors.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from catalog.base.clean_text import clean
from catalog.base.log_fields import FIELDS, Value, fields
from catalog.identity.refusals import ProviderUnavailable
from catalog.settings.sections import LogSettings
from policy.errors import KmsUnavailable, LakewardenError, StateUnavailable, StorageUnavailable

#: The message that replaces those of libraries.
_FOREIGN: Final = "a library logged this; its message is left out"
_OURS: Final = ("lakewarden", "catalog")
_LENGTH: Final = 4_000
_FRAMES: Final = 30
_AGAIN_S: Final = 60.0
_PARTS: Final[Mapping[type[LakewardenError], str]] = {
    StateUnavailable: "database",
    KmsUnavailable: "KMS",
    StorageUnavailable: "storage",
    ProviderUnavailable: "identity provider",
}
#: Rules of `StateUnavailable` that are about a single request, or have log lines of their own.
_NO_OUTAGE: Final = frozenset({"idempotency-key", "idempotency-keys", "policy-source-age"})

_log: Final = logging.getLogger("lakewarden.service")


def places(error: BaseException) -> str:
    """Return where an exception was raised: file, line and function of each frame, outermost first."""
    frames = traceback.extract_tb(error.__traceback__, limit=-_FRAMES)
    return " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)


class JsonLines(logging.Formatter):
    """Formats records as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one JSON object, ASCII only."""
        return json.dumps(_document(record), ensure_ascii=True)


class TextLines(logging.Formatter):
    """Formats records as text: time, level, logger, message, then the fields as `name=value`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line; values with spaces or quotes are JSON strings."""
        document = _document(record)
        head = [str(document.pop(name)) for name in ("time", "level", "logger", "message")]
        return " ".join([*head, *(f"{name}={_shown(value)}" for name, value in document.items())])


def configure(settings: LogSettings, stream: TextIO = sys.stderr) -> None:
    """Log everything of this process in one format; for processes that run the service.

    Args:
        settings: format and level.
        stream: the stream to write to.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if settings.format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in _OURS:
        logging.getLogger(name).setLevel(settings.level.upper())
    logging.captureWarnings(True)
    threading.excepthook = _thread_ended
    sys.unraisablehook = _ignored


def _thread_ended(args: threading.ExceptHookArgs) -> None:
    _log.error("a thread ended with an error", exc_info=args.exc_value)


def _ignored(args: sys.UnraisableHookArgs) -> None:
    _log.error("an error was raised where nothing can handle it", exc_info=args.exc_value)


class Outages:
    """Logs when a required part does not answer, and when it answers again; thread-safe.

    An outage is one line when it begins, and one line per minute while it lasts. It ends when an operation
    succeeds that failed because of it.

    Args:
        seconds: a monotonic clock.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._failing: dict[str, set[str]] = {}
        self._told: dict[str, float] = {}
        self._count: dict[str, int] = {}

    def ended(self, route: str, error: LakewardenError | None, *, succeeded: bool) -> None:
        """Process the end of a request.

        Args:
            route: the operation.
            error: the error in its answer; None for another answer.
            succeeded: whether the answer is a success.
        """
        part = part_of(error)
        if part is None and not (succeeded and self._failing):
            return
        with self._lock:
            if part is not None:
                self._failed(part, route)
            else:
                self._succeeded(route)

    def _failed(self, part: str, route: str) -> None:
        now, begins = self._seconds(), part not in self._failing
        self._failing.setdefault(part, set()).add(route)
        self._count[part] = self._count.get(part, 0) + 1
        if begins or now - self._told[part] >= _AGAIN_S:
            self._told[part] = now
            _log.error(
                "the %s does not answer", part, extra=fields(part=part, requests_failed=self._count[part])
            )

    def _succeeded(self, route: str) -> None:
        for part in [part for part, routes in self._failing.items() if route in routes]:
            _log.warning(
                "the %s answers again", part, extra=fields(part=part, requests_failed=self._count.pop(part))
            )
            del self._failing[part], self._told[part]


def part_of(error: LakewardenError | None) -> str | None:
    """Return the part that does not answer according to an error; None for other errors."""
    if error is None or error.rule in _NO_OUTAGE:
        return None
    return next((part for kind, part in _PARTS.items() if isinstance(error, kind)), None)


class Limit:
    """Limits log lines per minute, and counts the dropped ones; thread-safe.

    Args:
        lines: maximum number of lines in a minute.
        seconds: a monotonic clock.
    """

    def __init__(self, lines: int, seconds: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._seconds = seconds
        self._lock = threading.Lock()
        self._since = seconds()
        self._passed = 0
        self._left_out = 0

    def admits(self) -> int | None:
        """Return how many lines were dropped before this one; None if this one is dropped too."""
        with self._lock:
            now = self._seconds()
            if now - self._since >= _AGAIN_S:
                self._since, self._passed = now, 0
            if self._passed >= self._lines:
                self._left_out += 1
                return None
            self._passed += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


def _document(record: logging.LogRecord) -> dict[str, Value]:
    is_ours = record.name.partition(".")[0] in _OURS
    document: dict[str, Value] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname,
        "logger": record.name,
        "message": clean(record.getMessage(), _LENGTH) if is_ours else _FOREIGN,
    }
    if not is_ours:
        document["source"] = f"{record.pathname}:{record.lineno} {record.funcName}"
    given: Mapping[str, Value] = getattr(record, FIELDS, {})
    document |= {
        name: clean(value, _LENGTH) if isinstance(value, str) else value for name, value in given.items()
    }
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        document |= {"error": type(error).__name__, "places": clean(places(error), _LENGTH)}
    return document


def _shown(value: Value) -> str:
    text = str(value)
    plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)
