"""Histories: what clients asked, when, and what they were told.

Times are those of one monotonic clock. An operation takes effect between its start and its end, if it does.
One whose outcome is unknown can take effect at any time after its start, or never.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """What a client was told."""

    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """What a client asked."""

    APPEND = "append"
    ALTER = "alter"
    READ = "read"
    CREATE = "create"
    DROP = "drop"


@dataclass(frozen=True)
class State:
    """What a table was said to be.

    Attributes:
        table: its UUID.
        elements: what was appended, in order.
        version: the number of its metadata; None if the answer does not tell it.
        location: of its metadata; None if the answer does not tell it.
        note: the value of its register.
        ordered: whether the order of the elements is that of the table.
    """

    table: str
    elements: tuple[str, ...]
    version: int | None = None
    location: str | None = None
    note: str | None = None
    ordered: bool = True


@dataclass(frozen=True)
class Operation:
    """One operation of a client.

    Attributes:
        kind: what was asked.
        name: the name of the table.
        start: when it was asked.
        end: when the client was told, or gave up.
        outcome: what the client was told.
        value: what it would append or set: unique.
        state: the table in the answer; None if there is no table, or the answer does not show it.
        request_id: of the request that was granted.
        error: the error of an answer that is none of those that are expected.
    """

    kind: Kind
    name: str
    start: float
    end: float
    outcome: Outcome
    value: str | None = None
    state: State | None = None
    request_id: str | None = None
    error: str | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True)
class Span:
    """A fault.

    Attributes:
        name: its kind.
        start: when it began.
        end: when it was over.
    """

    name: str
    start: float
    end: float


@dataclass
class History:
    """Everything that happened; clients add to it at the same time."""

    operations: list[Operation] = field(default_factory=list)
    faults: list[Span] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, operation: Operation) -> None:
        """Add what a client was told."""
        with self._lock:
            self.operations.append(operation)

    def count(self) -> int:
        """How many operations have ended."""
        return len(self.operations)

    def write(self, path: Path) -> None:
        """Write it as lines of JSON."""
        with path.open("w") as file:
            for line in _lines(self.operations, self.faults):
                file.write(line + "\n")


def _lines(operations: Iterable[Operation], faults: Iterable[Span]) -> Iterator[str]:
    for each in (*operations, *faults):
        yield json.dumps(asdict(each))
