"""Reads records of the audit log from the database and its archive, as one log.

- The archive is read only if the period reaches back to it, and only the segments that can have such records.
- Segments are verified by the hashes in their notes, from the one that the database names on.
- Records that move meanwhile are not left out. An export can have them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain

from sqlalchemy import Engine

from catalog.audit import reading
from catalog.audit.archive import Archive
from catalog.audit.prune import removed_before
from catalog.audit.reading import StoredRecord
from catalog.audit.records import Row, from_columns, is_refusal, principal_column, resource_column
from catalog.audit.segments import Note
from catalog.db.engine import read as read_transaction
from policy.errors import RequestInvalid


@dataclass(frozen=True)
class History:
    """The audit log with its archive.

    Attributes:
        engine: the catalog's database.
        archive: where old records are; None if none is configured.
        advance: is called with the number of segments that were read, and of those to read.
    """

    engine: Engine
    archive: Archive | None
    advance: Callable[[int, int], None]

    def latest(
        self, since_ms: int, principal: str | None, table: str | None, limit: int, *, refusals: bool = False
    ) -> list[StoredRecord]:
        """Return the latest records, newest first.

        Args:
            since_ms: only records from this time on, in milliseconds since 1970 UTC.
            principal: only records of this user.
            table: only records whose resource is this dotted table name.
            limit: maximum number of records.
            refusals: only refusals.

        Raises:
            RequestInvalid: the period reaches back to an archive that is not configured.
            MetadataTampered: the archive was changed.
            StateUnavailable, StorageUnavailable: database or storage do not answer.
        """
        # The database first: what moves meanwhile is found in the archive too.
        found = reading.read(
            self.engine,
            since_ms=since_ms,
            principal=principal,
            table=table,
            refusals=refusals,
            limit=limit,
        )
        known = {(each.writer, each.sequence) for each in found}
        archived = (
            _stored(row)
            for row in self._rows(self._notes(since_ms), since_ms)
            if principal is None or row["principal"] == principal_column(principal)
            if table is None or row["resource"] == resource_column(table)
            if not refusals or is_refusal(row)
            if (row["writer"], row["sequence"]) not in known
        )
        return nlargest(limit, chain(found, archived), key=lambda each: each.position)

    def count_since(self, since_ms: int, most: int) -> int:
        """Count the records that a reading from a time on looks at, about: at least `most` if they are more.

        Args:
            since_ms: as `latest`.
            most: how many records of the database are counted at most. Of the archive, the notes of segments
                are read alone.

        Raises:
            as `latest`.
        """
        archived = sum(note.records for note in self._notes(since_ms) if note.latest_ms >= since_ms)
        return archived + reading.count_since(self.engine, since_ms, most)

    def rows_up_to(self, numbers: Mapping[str, int], since_ms: int) -> Iterator[Row]:
        """Return records up to given numbers in their chains: of the archive, then of the database.

        Args:
            numbers: the result of `reading.ends`.
            since_ms: as `latest`.

        Raises:
            as `latest`.
        """
        notes = self._notes(since_ms)
        yield from self._rows(notes, since_ms)
        yield from reading.rows_up_to(self.engine, numbers, since_ms)
        seen = notes[-1].number if notes else 0
        moved = [note for note in self._notes(since_ms) if note.number > seen]
        yield from (
            row
            for row in self._rows(moved, since_ms)
            if int(str(row["sequence"])) <= numbers.get(str(row["writer"]), 0)
        )

    def _notes(self, since_ms: int) -> list[Note]:
        """Return the notes of segments that can have records from a time on, the oldest first."""
        with read_transaction(self.engine) as connection:
            known = removed_before(connection)
        if known.archived is None or since_ms >= known.before_ms:
            return []
        notes: list[Note] = []
        for note in self._required().notes(known.archived):
            # Its records are older than the note, and notes before it are not younger.
            if note.at_ms <= since_ms:
                break
            notes.append(note)
        return notes[::-1]

    def _rows(self, notes: list[Note], since_ms: int) -> Iterator[Row]:
        """Return records from a time on, segment by segment, in each the oldest first."""
        for done, note in enumerate(notes, start=1):
            if note.latest_ms >= since_ms:
                rows = (row for row in self._required().rows(note) if _at(row) >= since_ms)
                yield from sorted(rows, key=_at)
            self.advance(done, len(notes))

    def _required(self) -> Archive:
        if self.archive is None:
            raise RequestInvalid(
                "The period reaches back to the archive of the audit log, and `audit.archive` is not set.",
                rule="audit-archive",
                hint="Set `audit.archive` to the location of the archive, or give a later time.",
            )
        return self.archive


def _at(row: Row) -> int:
    return int(str(row["at_ms"]))


def _stored(row: Row) -> StoredRecord:
    return StoredRecord(str(row["writer"]), int(str(row["sequence"])), from_columns(row))
