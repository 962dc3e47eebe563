"""Records the outcome of each request before it is answered; see `catalog.audit.outcomes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from catalog.audit.outcomes import Outcome
from catalog.authorization.authorizer import Authorizer, Caller

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
    authorizer: Authorizer = request.app.state.services.authorizer
    caller: Caller = request.state.caller
    try:
        response = await run()
    except Exception as error:
        await run_in_threadpool(authorizer.failed, caller, outcome, error)
        raise
    await run_in_threadpool(authorizer.succeeded, caller, outcome)
    return response
