"""Puts the outcome of each request on record before it is answered; see `catalog.audit.outcomes`."""

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
    """Carry out a request whose caller is known, and put on record what became of it.

    Args:
        request: the request.
        outcome: what is known of it; the caller sees to it that it is followed.
        run: carries it out.

    Raises:
        StateUnavailable: it could not be recorded.
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
