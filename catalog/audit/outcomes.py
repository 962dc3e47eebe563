"""The outcome of a request: the grants on the way, and what is recorded at its end.

- A request that only reads collects its grants. They become `allowed` records when it has succeeded, before a
  byte is answered.
- A request that changes something puts each grant on record as *begun* before the effect. The record that
  closes the request says whether it succeeded.
- So `allowed` records name only those who got something, and nothing happens or is answered without a record.
- What is to be told of a success beside the grants (snapshot, files, rows) is noted with `note`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from policy.decision import Reason


@dataclass(slots=True)
class Granted:
    """The grants for one action on one resource.

    Attributes:
        columns: the reasons of granted columns, of which a record leaves out what has no room.
        others: all other reasons.
    """

    columns: list[Reason] = field(default_factory=list)
    others: list[Reason] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The outcome of one request.

    Attributes:
        route: what is called, by method and route; the resource of a request that is refused before it
            names one.
        changes: whether it changes something.
        grants: what was granted so far, by action and resource; the first is what the request is about.
        facts: what is to be told of a success.
        refused: action and resource of a refusal that is on record.
        screened: action and resource by which the request was let on to be read.
    """

    route: str
    changes: bool
    grants: dict[tuple[str, str], Granted] = field(default_factory=dict)
    facts: list[Reason] = field(default_factory=list)
    refused: tuple[str, str] | None = None
    screened: tuple[str, str] | None = None

    @property
    def about(self) -> tuple[str, str] | None:
        """Return action and resource of the request; None if only its route is known."""
        return next(iter(self.grants), self.refused or self.screened)

    def grant(self, action: str, resource: str, columns: list[Reason], others: list[Reason]) -> None:
        """Add a grant."""
        granted = self.grants.setdefault((action, resource), Granted())
        granted.columns += columns
        granted.others += others


_current: Final[ContextVar[Outcome | None]] = ContextVar("lakewarden_outcome", default=None)


def current() -> Outcome | None:
    """Return the current request; None outside of `following`, where nothing ends it."""
    return _current.get()


@contextmanager
def following(outcome: Outcome) -> Iterator[None]:
    """Assign grants, refusals and notes inside of the block to a request."""
    token = _current.set(outcome)
    try:
        yield
    finally:
        _current.reset(token)


def note(rule: str, detail: object) -> None:
    """Add a note for the record of a success.

    Args:
        rule: what it is, such as ``snapshot``.
        detail: its value.
    """
    outcome = _current.get()
    if outcome is not None:
        outcome.facts.append(Reason(rule, str(detail)))
