"""Records the outcome of what an embedded catalog or a command does; see `catalog.audit.outcomes`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from catalog.audit.outcomes import Outcome, following
from catalog.authorization.authorizer import Authorizer, Caller


@contextmanager
def closed(authorizer: Authorizer, caller: Caller, route: str, *, changes: bool) -> Iterator[None]:
    """Put on record what becomes of what is done inside of the block.

    Args:
        authorizer: decides inside of the block, and records.
        caller: on whose behalf.
        route: what is done; the resource of what is refused before it names one.
        changes: whether it changes something.

    Raises:
        StateUnavailable: it could not be recorded.
    """
    outcome = Outcome(route, changes)
    with following(outcome):
        try:
            yield
        except Exception as error:
            authorizer.failed(caller, outcome, error)
            raise
        authorizer.succeeded(caller, outcome)
