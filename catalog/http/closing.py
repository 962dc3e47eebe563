"""Records the outcome of each request before it is answered; see `catalog.audit.outcomes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fastapi import Request, Response

from catalog.audit.outcomes import Outcome
from catalog.authorization.authorizer import Authorizer
from catalog.http.threads import in_thread

_Result = TypeVar("_Result")

#: Key of the outcome in the request's state, for its line in the log.
OUTCOME_STATE: Final = "outcome"


async def closed(request: Request, outcome: Outcome, run: Callable[[], Awaitable[Response]]) -> Response:
    """Run a request whose caller is known, and record its outcome.

    Args:
        request: the request.
        outcome: its outcome so far; the caller must run this function inside of `following`.
        run: runs the request.

    Raises:
        StateUnavailable: the outcome could not be recorded.
    """
    response = await unless_failed(request, outcome, run)
    await in_thread(_authorizer(request).succeeded, request.state.caller, outcome)
    return response


async def unless_failed(request: Request, outcome: Outcome, run: Callable[[], Awaitable[_Result]]) -> _Result:
    """Run a part of a request, and record the outcome if it fails; else as `closed`."""
    try:
        return await run()
    except Exception as error:
        await in_thread(_authorizer(request).failed, request.state.caller, outcome, error)
        raise


def _authorizer(request: Request) -> Authorizer:
    authorizer: Authorizer = request.app.state.services.authorizer
    return authorizer
