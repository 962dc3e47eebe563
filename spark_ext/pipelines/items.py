"""Work items of lake-wide pipelines, what becomes of each, and what is found.

All of it can be sent to executors and back: names, numbers and JSON values, never a key, token or value
of a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self

from policy.errors import LocationInvalid
from policy.location.location import Location, printable, shown

#: Characters of a message and of a name that a finding has.
_LONGEST: Final = 2_000
_LONGEST_NAME: Final = 200
#: Bits of a snapshot id.
_BITS: Final = 64


class Severity(StrEnum):
    """How bad a finding is; the levels of SARIF 2.1.0, section 3.27.10."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Status(StrEnum):
    """What became of an item.

    - DONE: nothing is left to do. A later run does not take it again.
    - FAILED: it could not be done, for a reason that concerns the item. A later run tries it again.
    - LEFT: it was not tried, or not finished, such as beside a busy writer. A later run goes on with it.
    """

    DONE = "done"
    FAILED = "failed"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that a person must look at.

    Attributes:
        table: dotted name, without the catalog.
        rule: the id of the `Rule` that it breaks.
        severity: how bad it is.
        message: what was found, with the values involved.
        hint: what to do.
        snapshot: the snapshot's id, where there is one.
        ref: the branch or tag.
        path: the file.
        column: the column.
        bytes: the size of what was found, such as of an orphan file.
    """

    table: str
    rule: str
    severity: Severity
    message: str
    hint: str
    snapshot: int | None = None
    ref: str | None = None
    path: str | None = None
    column: str | None = None
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Rule:
    """What a pipeline looks for.

    Attributes:
        id: lower-case words with hyphens, such as ``foreign-path``.
        severity: of its findings.
        title: one sentence that says what is wrong where it is found.
        hint: what to do, in one sentence or two.
    """

    id: str
    severity: Severity
    title: str
    hint: str

    def found(
        self,
        table: str,
        message: str | None = None,
        *,
        snapshot: int | None = None,
        ref: str | None = None,
        path: str | None = None,
        column: str | None = None,
        bytes: int = 0,
    ) -> Finding:
        """Make a finding of this rule; `message` is by default the rule's title.

        Hostile tables choose what is found. So texts are of one line and cut, a path that is no location is
        shown without credentials, and a number that is no snapshot id is left out. A column is named exactly:
        policies are proposed for it.
        """
        return Finding(
            table,
            self.id,
            self.severity,
            printable(message or self.title, _LONGEST),
            self.hint,
            _snapshot_id(snapshot),
            None if ref is None else printable(ref, _LONGEST_NAME),
            None if path is None else _path(path),
            column,
            bytes,
        )


def _path(text: str) -> str:
    try:
        Location.parse(text)
    except LocationInvalid:
        return shown(text)
    return text


def _snapshot_id(number: int | None) -> int | None:
    return number if number is not None and number.bit_length() < _BITS else None


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of work that is done as a whole, or not at all.

    Attributes:
        key: names the item within its run, and is the same when the run is planned again.
        table: dotted name, without the catalog; empty where the item is of no table.
        files: how many files it concerns, as far as the plan knows.
        bytes: their size.
        payload: what the work needs, as JSON values. It is not recorded.
        why: why it is to be done; empty if that is what the pipeline does.
    """

    key: str
    table: str
    files: int = 0
    bytes: int = 0
    payload: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    def to_json(self) -> str:
        """Encode for an executor."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode what `to_json` encoded."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an item.

    Attributes:
        item: its key.
        table: its table.
        status: see `Status`.
        reason: why it failed or was left; None if it was done.
        findings: what was found.
        counts: amounts by name, such as ``files`` or ``rewritten-bytes``; summed over the run.
        seconds: how long it took.
    """

    item: str
    table: str
    status: Status = Status.DONE
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def of(
        cls,
        item: Item,
        status: Status = Status.DONE,
        reason: str | None = None,
        findings: tuple[Finding, ...] = (),
        counts: Mapping[str, int] | None = None,
    ) -> Self:
        """Make the outcome of an item."""
        return cls(item.key, item.table, status, reason, findings, counts or {})

    def took(self, seconds: float) -> Outcome:
        """Return the outcome with its duration."""
        return replace(self, seconds=seconds)

    def to_json(self) -> str:
        """Encode for the driver."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode what `to_json` encoded."""
        fields = json.loads(text)
        findings = (
            Finding(**{**each, "severity": Severity(each["severity"])}) for each in fields["findings"]
        )
        return cls(**{**fields, "status": Status(fields["status"]), "findings": tuple(findings)})
