"""Moves old audit records from the database to the archive, and removes old segments from it.

- What is moved is verified first: each record, its place in its chain, the checkpoints, and that the archive
  has its last note. A log with problems stays where it is, and so does one whose archive is not there.
- Segments move one after the other. Each is durable in storage before a new first checkpoint names it. In the
  same transaction the checkpoint says which records leave the database; then they are removed
  (`catalog.audit.prune`).
- So an interrupted archiving keeps what it has moved, and the next one completes it. Of two processes that
  archive at once, one takes effect. The segment of the other is removed again.
- Times of notes never go back, so that a reader knows where to stop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError

from catalog.audit.archive import Archive
from catalog.audit.checkpoints import Archived, Head, Signer
from catalog.audit.prune import NewSegments, due, remove, removed_before
from catalog.audit.reading import rows_between
from catalog.audit.records import GENESIS, Row
from catalog.audit.segments import MAX_RECORDS, Note, make_segment
from catalog.audit.verdict import AuditProblem, Pruned, Verdict, examine_record, number_of_records
from catalog.audit.verify import examine_checkpoints
from catalog.base.errors import CommitConflict
from catalog.base.progress import Tell, counted, silent
from catalog.db.engine import read
from policy.errors import MetadataTampered

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Moved:
    """What was archived: the number of records, and of segments."""

    records: int
    segments: int


class Archiver:
    """Archives records of one catalog.

    Args:
        engine: the catalog's database, upgraded.
        archive: where segments are stored.
        signer: signs notes and checkpoints; without it they are not signed.
        public_keys: keys of earlier signatures of checkpoints, in hexadecimal digits, besides the signer's.
        max_records: the maximum number of records in a segment.
    """

    def __init__(
        self,
        engine: Engine,
        archive: Archive,
        signer: Signer | None,
        *,
        public_keys: frozenset[str] = frozenset(),
        max_records: int = MAX_RECORDS,
    ) -> None:
        self._engine = engine
        self._archive = archive
        self._signer = signer
        self._public_keys = public_keys | ({signer.public_key} if signer is not None else set())
        self._max_records = max_records

    def is_due(self, before_ms: int) -> bool:
        """Return whether there are records from before a time.

        Raises:
            MetadataTampered: a checkpoint was edited.
            StateUnavailable: the database does not answer.
        """
        return bool(self._new(before_ms)[1])

    def move(self, before_ms: int, writer: str, now_ms: int, tell: Tell = silent) -> Moved:
        """Move records from before a time to the archive.

        Args:
            before_ms: records from this time on stay, in milliseconds since 1970 UTC.
            writer: the writer id of the checkpoint.
            now_ms: the time, in milliseconds since 1970 UTC.
            tell: is told how many records are verified, and archived.

        Raises:
            MetadataTampered: the log or the archive has problems; nothing was removed, except segments before
                a problem that came meanwhile.
            CommitConflict: another process archived at the same time; earlier segments have moved.
            StateUnavailable, CommitStateUnknown: the database does not answer.
            StorageUnavailable, LocationNotAllowed: the archive cannot be written.
            sqlalchemy.exc.IntegrityError: other processes made checkpoints first in every attempt.
        """
        self._require_checkpoints()
        known, new = self._new(before_ms)
        if not new:
            return Moved(0, 0)
        last = None if known.archived is None else self._last(known.archived)
        total = number_of_records(known.heads, new)
        for _ in counted(self._verified(known.heads, new), tell, "Verifying records", total):
            pass
        records = segments = 0
        archived, heads = known.archived, dict(known.heads)
        rows = self._verified(known.heads, new)
        while chunk := list(islice(rows, self._max_records)):
            note, data = self._segment(last, chunk, now_ms)
            # Also those that an interrupted removal left.
            heads.update({each: replace(part.last, at_ms=0) for each, part in note.parts.items()})
            after = Archived(1 if archived is None else archived.first, note.number, note.hash)
            self._archive.put(note, data)
            change = NewSegments(archived, after)
            try:
                remove(self._engine, heads, before_ms, self._signer, writer, now_ms, archived=change)
            except (CommitConflict, IntegrityError):
                # No checkpoint names it. After other errors, one can.
                self._archive.discard(note)
                raise
            last, archived = note, after
            records += note.records
            segments += 1
            tell("Archiving records", records, total)
        return Moved(records, segments)

    def drop(self, before_ms: int, writer: str, now_ms: int) -> int:
        """Remove the first segments, if each of their records is from before a time.

        Args:
            before_ms: a segment with a record from this time on stays, and so do those after it.
            writer: the writer id of the checkpoint.
            now_ms: the time, in milliseconds since 1970 UTC.

        Returns:
            the number of removed records.

        Raises:
            as `move`.
        """
        with read(self._engine) as connection:
            before = removed_before(connection).archived
        if before is None:
            return 0
        notes = list(self._archive.notes(before))[::-1]
        # The last segment stays: the next one has to follow it.
        old = _leading(notes[:-1], before_ms)
        first = notes[len(old)]
        if old:
            change = NewSegments(before, Archived(first.number, before.last, before.hash))
            remove(self._engine, {}, before_ms, self._signer, writer, now_ms, archived=change)
        self._archive.remove_before(first)
        return sum(each.records for each in old)

    def _new(self, before_ms: int) -> tuple[Pruned, dict[str, Head]]:
        """Return what the checkpoints say, and by writer the last record to move."""
        with read(self._engine) as connection:
            known = removed_before(connection)
        going = due(self._engine, before_ms)
        new = {each: head for each, head in going.items() if head.sequence > _sequence(known.heads.get(each))}
        return known, new

    def _require_checkpoints(self) -> None:
        problems = examine_checkpoints(self._engine, self._public_keys).problems
        if problems:
            raise _has_problems(problems)

    def _verified(self, gone: Mapping[str, Head], new: Mapping[str, Head]) -> Iterator[Row]:
        """Return the records to move, chain by chain, each verified."""
        for writer, last in sorted(new.items()):
            verdict, before = Verdict(), gone.get(writer, Head(0, GENESIS))
            for row in rows_between(self._engine, writer, before.sequence, last.sequence):
                examine_record(row, before, verdict)
                if verdict.problems:
                    raise _has_problems(verdict.problems)
                before = Head(int(str(row["sequence"])), str(row["hash"]))
                yield row
            if (before.sequence, before.hash) != (last.sequence, last.hash):
                verdict.add(
                    writer, before.sequence, "truncated", "The records after it are gone or different."
                )
                raise _has_problems(verdict.problems)

    def _last(self, archived: Archived) -> Note:
        """Return the last note; without it, the archive is not there, or is another one."""
        return self._archive.note(archived.last, archived.hash)

    def _segment(self, last: Note | None, rows: Sequence[Row], now_ms: int) -> tuple[Note, bytes]:
        number, previous, at_ms = (0, GENESIS, 0) if last is None else (last.number, last.hash, last.at_ms)
        return make_segment(number + 1, previous, max(now_ms, at_ms), rows, self._signer)


def _sequence(head: Head | None) -> int:
    return 0 if head is None else head.sequence


def _leading(notes: list[Note], before_ms: int) -> list[Note]:
    return list(takewhile(lambda note: note.latest_ms < before_ms, notes))


def _has_problems(problems: list[AuditProblem]) -> MetadataTampered:
    shown = "; ".join(
        f"{each.writer or 'checkpoint'} {each.sequence}: {each.detail}" for each in problems[:_SHOWN]
    )
    return MetadataTampered(
        f"The audit log has problems, so nothing was archived. {shown}",
        rule="audit-archive",
        hint="Run `lakewarden audit verify`, and keep a copy of the database. After a change of the signing "
        "key, run `lakewarden audit archive --public-key` once with the old public key.",
    )
