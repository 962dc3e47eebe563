"""The header `Idempotency-Key`: a repeated request waits for the first one, and gets its outcome.

- An operation whose endpoint takes `once` (`OnceOf`) answers repetitions: it says how it is carried out, and
  how it is answered from a kept outcome. On other operations, which change nothing or may be repeated anyway,
  the key is checked and has no effect.
- The commit of a write needs no header: its write id is the key, and its outcome is found in the catalog.
  So a commit that comes while the same commit is under way waits for it.
- Waiting takes no thread, and has an end: `CommitStateUnknown`, since it is not known how the first one ends.

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
#: Seconds that a repetition waits for the first request; clients wait 300 seconds for an answer.
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
    """Carries an operation out, or answers its repetition.

    Attributes:
        kept: the outcome of the request that is repeated; None for a first one.
        metrics: where commits are counted.
    """

    kept: Kept | None
    metrics: Metrics

    def __call__(
        self, run: Callable[[], _Result], again: Callable[[Kept], _Result], counted: str | None = None
    ) -> _Result:
        """What `run` returns, counted as a commit of this kind; or what `again` makes of a kept outcome."""
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
    """Whether an endpoint answers repeated requests from their kept outcome."""
    return "once" in inspect.signature(endpoint).parameters


def key_of(request: Request) -> str | None:
    """The idempotency key of a request.

    Raises:
        RequestInvalid: it is not one UUIDv7.
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
    """A request with the client's key, bound to method, path, query and body."""
    parts = (request.method, request.scope["path"], request.scope["query_string"].decode("utf-8"))
    bound = hashlib.sha256("\0".join(parts).encode("utf-8") + b"\0" + hashlib.sha256(body).digest())
    return KeyedRequest(_caller(request).principal.name, key, bound.hexdigest(), status)


def commit_of_write(request: Request) -> KeyedRequest | None:
    """The commit of a write, which is carried out once whatever its body; None if the write id is none."""
    try:
        write_id = UUID(request.path_params["write_id"])
    except ValueError:
        return None
    key = f"{_WRITE}{write_id}"
    return KeyedRequest(_caller(request).principal.name, key, hashlib.sha256(key.encode()).hexdigest(), None)


async def once(request: Request, wanted: KeyedRequest, run: Run) -> Response:
    """Carry out a request once.

    Args:
        request: the request; a kept outcome goes into its state, where `OnceOf` finds it.
        wanted: what is carried out once.
        run: carries it out, or answers it from the kept outcome.

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
    """What is kept of an error; None if another attempt may end differently."""
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
    """Note how an attempt stands; where that fails, its lease ends and the next attempt finds out."""
    try:
        note()
    except (StateUnavailable, CommitStateUnknown) as problem:
        _log.warning("the state of a request could not be recorded: %s", type(problem).__name__)


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller
