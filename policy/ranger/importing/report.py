"""The report of an import: what became of every policy, role, zone, tag and user of Ranger's documents."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Outcome(enum.StrEnum):
    """What became of a part of a document."""

    TAKEN = "taken"
    DIFFERENT = "taken with a difference"
    REFUSED = "refused"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one part of a document.

    Attributes:
        document: the name of the document.
        place: where the part stands in it: ``policies[3]``.
        what: its kind, such as ``policy``.
        name: its name; empty for a whole document.
        outcome: what became of it. What is refused only grants, so that it can be left out. What is blocked
            denies, masks or filters, or says whom or what this concerns.
        reasons: why, and what the difference is; none for what is taken as it is.
    """

    document: str
    place: str
    what: str
    name: str
    outcome: Outcome
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import makes of Ranger's documents.

    Attributes:
        documents: strict documents by kind: ``ranger``, ``tags``, ``users``. None if anything is blocked.
        report: a line for each part, in the order of the documents.
    """

    documents: Mapping[str, bytes]
    report: tuple[Line, ...]

    @property
    def blocked(self) -> tuple[Line, ...]:
        """Lines of what can neither be taken nor left out: nothing is imported."""
        return self.of(Outcome.BLOCKED)

    @property
    def refused(self) -> tuple[Line, ...]:
        """Lines of what is left out."""
        return self.of(Outcome.REFUSED)

    def of(self, outcome: Outcome) -> tuple[Line, ...]:
        """Lines of an outcome."""
        return tuple(line for line in self.report if line.outcome is outcome)
