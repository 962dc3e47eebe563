"""The outcome of a request: the grants during it, and the records at its end.

- A request that only reads collects its grants. They become `allowed` records when it has succeeded, before
  the answer begins.
- A request that changes something records each grant as *begun* before the effect. The record that closes the
  request says whether it succeeded.
- So `allowed` records name only requests that succeeded, and no effect or answer is without a record.
- More facts of a success (snapshot, files, rows) are added with `note`.
- A request on several tables, all or none, is closed by one record for each of them (`concerns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from policy.decision import Reason


@dataclass(slots=True)
class Granted:
    """The grants for one action on one resource.

    Attributes:
        columns: the reasons of granted columns; a record leaves out those for which it has no room.
        others: all other reasons.
    """

    columns: list[Reason] = field(default_factory=list)
    others: list[Reason] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The outcome of one request.

    Attributes:
        route: method and route; the resource in the record of a request that is refused before its resource
            is known.
        changes: whether the request changes something.
        grants: the grants so far, by action and resource; the first is the subject of the request.
        facts: notes for the record of a success, each with its resource if it is not about the whole request.
        refused: actions and resources of recorded refusals.
        screened: action and resource of the first authorization.
        together: actions and resources of a request that does all of them or none.
    """

    route: str
    changes: bool
    grants: dict[tuple[str, str], Granted] = field(default_factory=dict)
    facts: list[tuple[str | None, Reason]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    screened: tuple[str, str] | None = None
    together: tuple[tuple[str, str], ...] = ()

    @property
    def about(self) -> tuple[str, str] | None:
        """Return action and resource of the request; None if only its route is known."""
        return next(iter((*self.grants, *self.refused)), self.screened)

    def closing(self) -> dict[tuple[str, str], list[Reason]]:
        """Return actions and resources of the records of a success, each with its facts."""
        if self.together:
            return {
                (action, resource): [fact for of, fact in self.facts if of in (None, resource)]
                for action, resource in self.together
            }
        return {} if self.about is None else {self.about: [fact for _, fact in self.facts]}

    def grant(self, action: str, resource: str, columns: list[Reason], others: list[Reason]) -> None:
        """Add a grant."""
        granted = self.grants.setdefault((action, resource), Granted())
        granted.columns += columns
        granted.others += others


_current: Final[ContextVar[Outcome | None]] = ContextVar("lakewarden_outcome", default=None)


def current() -> Outcome | None:
    """Return the current request; None outside of `following`."""
    return _current.get()


@contextmanager
def following(outcome: Outcome) -> Iterator[None]:
    """Assign grants, refusals and notes inside of the block to a request."""
    token = _current.set(outcome)
    try:
        yield
    finally:
        _current.reset(token)


def concerns(action: str, resources: Iterable[str]) -> None:
    """Say that the current request does one action on each of several resources, or on none."""
    outcome = _current.get()
    if outcome is not None:
        outcome.together = tuple((action, resource) for resource in resources)


def note(rule: str, detail: object, resource: str | None = None) -> None:
    """Add a note for the record of a success.

    Args:
        rule: kind of note, such as ``snapshot``.
        detail: its value.
        resource: what it is about, where a request is on several.
    """
    outcome = _current.get()
    if outcome is not None:
        outcome.facts.append((resource, Reason(rule, str(detail))))
