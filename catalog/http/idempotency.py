"""The header `Idempotency-Key`: a repeated request waits for the first one, and gets its outcome.

- An operation whose endpoint has the parameter `once` (`OnceOf`) answers repetitions: it gives one function
  that runs it, and one that answers from a stored outcome. Other operations change nothing or can be
  repeated. For these, the key is checked and has no effect.
- The commit of a write needs no header: its write id is the key, and its outcome is read from the catalog. So
  a repeated commit waits for a commit of the same write in progress.
- Waiting uses no thread, and ends after a time-out with `CommitStateUnknown`: it is not known how the first
  one ends.

Source: Iceberg REST catalog specification, parameter `idempotency-key`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from catalog.authorization.authorizer import Caller
from catalog.http.errors import shape_of
from catalog.http.metrics import Metrics
from catalog.state.idempotency import LEASE_MS, Attempt, IdempotencyKeys, Kept, KeyedRequest, attempting
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid, StateUnavailable

HEADER: Final = "Idempotency-Key"
#: Seconds that a repetition waits for the first request. Clients wait 300 seconds for an answer.
WAIT_S: Final = 240.0
_LOOK_AGAIN_S: Final = (0.02, 1.0)
_RENEW_S: Final = LEASE_MS / 3000
_TEXT_LENGTH: Final = 36
_VERSION: Final = 7
_FINAL: Final = frozenset({400, 404, 409})
_WRITE: Final = "write/"

_log: Final = logging.getLogger(__name__)

Run = Callable[[], Awaitable[Response]]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Once:
    """Runs an operation, or answers its repetition.

    Attributes:
        kept: the stored outcome of the repeated request; None for a first request.
        metrics: counts commits.
    """

    kept: Kept | None
    metrics: Metrics

    def __call__(
        self, run: Callable[[], _Result], again: Callable[[Kept], _Result], counted: str | None = None
    ) -> _Result:
        """Return the result of `run`, counted as this kind of commit, or of `again` for a stored outcome."""
        if self.kept is not None:
            return again(self.kept)
        result = run()
        if counted is not None:
            self.metrics.committed(counted)
        return result


async def _once(request: Request) -> Once:
    return Once(getattr(request.state, "kept", None), request.app.state.metrics)


OnceOf = Annotated[Once, Depends(_once)]


def answers_repetitions(endpoint: Callable[..., Any]) -> bool:
    """Return whether an endpoint answers repeated requests from their stored outcome."""
    return "once" in inspect.signature(endpoint).parameters


def key_of(request: Request) -> str | None:
    """Return the idempotency key of a request, or None.

    Raises:
        RequestInvalid: the header is not exactly one UUIDv7.
    """
    values = request.headers.getlist(HEADER)
    if not values:
        return None
    if len(values) == 1 and len(values[0]) == _TEXT_LENGTH:
        try:
            key = UUID(values[0])
        except ValueError:
            pass
        else:
            if key.version == _VERSION and str(key) == values[0].lower():
                return str(key)
    raise RequestInvalid(
        f"The header {HEADER} does not hold exactly one UUIDv7.",
        rule="idempotency-key",
        hint="Send a UUIDv7 (RFC 9562), such as 017f22e2-79b0-7cc3-98c4-dc0c0c07398f.",
    )


def keyed(request: Request, body: bytes, key: str, status: int) -> KeyedRequest:
    """Build a request record with the client's key, bound to method, path, query and body."""
    parts = (request.method, request.scope["path"], request.scope["query_string"].decode("utf-8"))
    bound = hashlib.sha256("\0".join(parts).encode("utf-8") + b"\0" + hashlib.sha256(body).digest())
    return KeyedRequest(_caller(request).principal.name, key, bound.hexdigest(), status)


def commit_of_write(request: Request) -> KeyedRequest | None:
    """Build the record of a write's commit, which runs once for any body; None if the id is not valid."""
    try:
        write_id = UUID(request.path_params["write_id"])
    except ValueError:
        return None
    key = f"{_WRITE}{write_id}"
    return KeyedRequest(_caller(request).principal.name, key, hashlib.sha256(key.encode()).hexdigest(), None)


async def once(request: Request, wanted: KeyedRequest, run: Run) -> Response:
    """Run a request once.

    Args:
        request: the request; a stored outcome is put into its state for `OnceOf`.
        wanted: the record of the request.
        run: runs the request, or answers it from the stored outcome.

    Raises:
        IdempotencyKeyReused: the key belongs to another request.
        CommitStateUnknown: the first request did not end while this one waited.
        LakewardenError: as `run`.
    """
    keys: IdempotencyKeys = request.app.state.services.idempotency
    begun = await _begun(keys, wanted)
    if isinstance(begun, Kept):
        request.state.kept = begun
        return await run()
    renewing = asyncio.create_task(_renewed(keys, begun))
    try:
        return await _attempted(keys, begun, run)
    finally:
        renewing.cancel()


async def _begun(keys: IdempotencyKeys, wanted: KeyedRequest) -> Attempt | Kept:
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + WAIT_S, _LOOK_AGAIN_S[0]
    while (begun := await run_in_threadpool(keys.begin, wanted)) is None:
        if loop.time() + pause > deadline:
            raise CommitStateUnknown(
                "The same request was sent before and is still in progress.",
                rule="idempotency-key",
                hint="Repeat it later, unchanged, with the same idempotency key or write id.",
            )
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LOOK_AGAIN_S[1])
    return begun


async def _attempted(keys: IdempotencyKeys, attempt: Attempt, run: Run) -> Response:
    try:
        with attempting(attempt):
            response = await run()
    except Exception as error:
        outcome = _outcome(error)
        await run_in_threadpool(_noted, lambda: keys.end(attempt, outcome))
        raise
    if not attempt.settled:
        await run_in_threadpool(_noted, lambda: keys.end(attempt))
    return response


def _outcome(error: Exception) -> Kept | None:
    """Return the outcome to store for an error; None if another attempt can end differently."""
    if not isinstance(error, LakewardenError):
        return None
    shape = shape_of(type(error))
    if shape is None or shape.status not in _FINAL:
        return None
    return Kept(shape.status, None, type(error).__name__, error.rule)


async def _renewed(keys: IdempotencyKeys, attempt: Attempt) -> None:
    while True:
        await asyncio.sleep(_RENEW_S)
        await run_in_threadpool(_noted, lambda: keys.renew(attempt))


def _noted(note: Callable[[], None]) -> None:
    """Record the state of an attempt. If that fails, its lease ends, and the next attempt finds out."""
    try:
        note()
    except (StateUnavailable, CommitStateUnknown) as problem:
        _log.warning("the state of a request could not be recorded: %s", type(problem).__name__)


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller
