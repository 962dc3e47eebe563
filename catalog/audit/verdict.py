"""What verification of the audit log finds: problems, and what was checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from catalog.audit.checkpoints import Archived, Content, Head
from catalog.audit.records import Row, record_hash

#: The maximum number of listed problems; more would add no information.
MAX_PROBLEMS: Final = 1_000

ProblemKind: TypeAlias = Literal[
    "edited", "missing", "unlinked", "truncated", "checkpoint", "rollback", "archive"
]


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """A record or checkpoint that fails verification.

    Attributes:
        writer: writer of the chain; empty for a checkpoint or a segment of the archive.
        sequence: number of the first wrong record, of the checkpoint, or of the segment.
        kind: `edited`: the record does not match its hash; `missing`: records before it are gone; `unlinked`:
            the record matches its hash, but does not follow the record before it; `truncated`: a known
            record, or the whole chain, is gone or different; `checkpoint`: a checkpoint is edited, missing,
            not signed, or says that one was lost; `rollback`: the checkpoints are older than the evidence;
            `archive`: a segment of the archive is edited, missing, not signed, or does not fit to the log.
        detail: one sentence for people.
    """

    writer: str
    sequence: int
    kind: ProblemKind
    detail: str


@dataclass(frozen=True, slots=True)
class Known:
    """A record that a checkpoint or a copy names.

    Attributes:
        writer: writer of the chain.
        head: number and hash, and the latest time of the chain's records up to this one.
    """

    writer: str
    head: Head


class Moved:
    """Records that copies name and that are no longer in the database; the archive has to have them so."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, int], str] = {}

    def add(self, known: Known) -> None:
        """Add a record."""
        self._hashes[known.writer, known.head.sequence] = known.head.hash

    def examine(self, row: Row, verdict: Verdict) -> None:
        """Add the problem of an archived record that a copy names with another hash."""
        writer, number = str(row["writer"]), int(str(row["sequence"]))
        expected = self._hashes.get((writer, number), row["hash"])
        if row["hash"] != expected:
            detail = (
                f"A copy elsewhere names this record with the hash {expected}; the archive has another one."
            )
            verdict.add(writer, number, "archive", detail)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line of evidence: records, and a checkpoint if it is one."""

    records: tuple[Known, ...]
    checkpoint: Row | None = None


@dataclass
class Verdict:
    """What was verified, and the problems.

    Attributes:
        problems: empty if verification succeeded; at most `MAX_PROBLEMS`.
        chains: chains that have records.
        records: records that were checked.
        checkpoints: checkpoints that were checked.
        signed_from: number of the first signed checkpoint, or None.
        checkpointed_ms: time of the last checkpoint, or None; only their own chain protects later records.
        evidence: lines of evidence that were compared.
        unreadable: lines of evidence that are neither checkpoint nor record, such as an incomplete line.
        archived: number of the last segment of the archive, or None if there is no archive.
        segments: segments of the archive that were checked, each of its records included.
    """

    problems: list[AuditProblem] = field(default_factory=list)
    chains: int = 0
    records: int = 0
    checkpoints: int = 0
    signed_from: int | None = None
    checkpointed_ms: int | None = None
    evidence: int = 0
    unreadable: int = 0
    archived: int | None = None
    segments: int = 0

    def add(self, writer: str, sequence: int, kind: ProblemKind, detail: str) -> None:
        """Add a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(AuditProblem(writer, sequence, kind, detail))


@dataclass
class Pruned:
    """Records that are no longer in the database, and the archive, according to the checkpoints."""

    heads: dict[str, Head] = field(default_factory=dict)
    before_ms: int = -1
    archived: Archived | None = None

    def add(self, content: Content) -> None:
        """Add what a checkpoint says."""
        self.heads.update(content.pruned)
        self.archived = content.archived or self.archived
        self.before_ms = max(self.before_ms, -1 if content.before_ms is None else content.before_ms)

    def covers(self, known: Known, chains: Mapping[str, Head]) -> bool:
        """Return whether a missing record was pruned."""
        last = self.heads.get(known.writer)
        if last is None:
            # An ended chain that was pruned completely leaves no rows.
            return known.writer not in chains and known.head.at_ms < self.before_ms
        end = (known.head.sequence, known.head.hash)
        return known.head.sequence < last.sequence or end == (last.sequence, last.hash)


def number_of_records(removed: Mapping[str, Head], ends: Mapping[str, Head]) -> int:
    """Return the number of records after those that were removed, up to the given ends of their chains."""
    firsts = {writer: head.sequence for writer, head in removed.items()}
    return sum(max(0, end.sequence - firsts.get(writer, 0)) for writer, end in ends.items())


def examine_record(row: Row, before: Head, verdict: Verdict) -> None:
    """Add the problem of a record, given the previous one."""
    writer, number = str(row["writer"]), int(str(row["sequence"]))
    if record_hash(row) != row["hash"]:
        verdict.add(writer, number, "edited", "The hash of the record does not match its content.")
    elif number != before.sequence + 1:
        gone = f"The records {before.sequence + 1} to {number - 1} are missing."
        verdict.add(writer, number, "missing", gone)
    elif row["previous_hash"] != before.hash:
        verdict.add(writer, number, "unlinked", "The record does not follow the previous one.")
