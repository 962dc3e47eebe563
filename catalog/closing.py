"""Records the outcome of what an embedded catalog or a command does; see `catalog.audit.outcomes`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from catalog.audit.outcomes import Outcome, following
from catalog.authorization.authorizer import Authorizer, Caller


@contextmanager
def closed(
    authorizer: Authorizer, caller: Caller, route: str, *, changes: bool, begun_only: bool = False
) -> Iterator[None]:
    """Put on record what becomes of what is done inside of the block.

    Args:
        authorizer: decides inside of the block, and records.
        caller: on whose behalf.
        route: what is done; the resource of what is refused before it names one.
        changes: whether it changes something.
        begun_only: whether a failure stays off the record if nothing was granted before it, since it can
            repeat every few seconds.

    Raises:
        StateUnavailable: it could not be recorded.
    """
    outcome = Outcome(route, changes)
    with following(outcome):
        try:
            yield
        except Exception as error:
            if outcome.grants or not begun_only:
                authorizer.failed(caller, outcome, error)
            raise
        authorizer.succeeded(caller, outcome)
