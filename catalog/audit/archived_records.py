"""Verifies the archive of the audit log: notes, files, and each record in them.

- The checkpoints name the last note. Each note names the one before, so none can be left out or replaced.
- Each record is hashed again and has to follow the one before it, across segments. The first one that is kept
  of a chain has to follow the record that its note names.
- The last archived record of a chain has to be the one that the checkpoints name as removed from the
  database, so that archive and database have no gap between them.
"""

from __future__ import annotations

from collections.abc import Mapping

from catalog.audit.archive import Archive
from catalog.audit.checkpoints import Archived, Head
from catalog.audit.records import GENESIS
from catalog.audit.segments import Note, Part
from catalog.audit.verdict import Moved, Verdict, examine_record
from catalog.base.progress import Tell, counted
from policy.errors import MetadataTampered


def examine_archive(
    archive: Archive,
    archived: Archived,
    verdict: Verdict,
    public_keys: frozenset[str],
    removed: Mapping[str, Head],
    moved: Moved,
    tell: Tell,
) -> None:
    """Verify all segments.

    Args:
        archive: where they are.
        archived: what the checkpoints name.
        verdict: takes the problems, and what was checked.
        public_keys: trusted keys; without any, signatures are not verified.
        removed: by writer, the last record that is no longer in the database, as the checkpoints name it.
        moved: records that copies name.
        tell: is told how many segments are verified.

    Raises:
        StorageUnavailable: the storage does not answer.
    """
    ends: dict[str, Head] = {}
    notes = _notes(archive, archived, verdict)[::-1]
    for note in counted(notes, tell, "Verifying segments of the archive", len(notes)):
        is_ours = not public_keys or note.is_signed_by(public_keys)
        if not is_ours:
            verdict.add("", note.number, "archive", "The segment is not signed with a known key.")
        for writer, part in note.parts.items():
            _examine_start(note, writer, part, ends.get(writer), verdict)
            ends[writer] = part.last
        if is_ours:
            # A file that somebody else made is not parsed: it can be made to fill the memory.
            _examine_rows(archive, note, verdict, moved)
    for writer, end in ends.items():
        last = removed.get(writer)
        if last is not None and not _fits(end, last):
            detail = f"The archive ends with record {end.sequence}, but {last.sequence} was removed last."
            verdict.add(writer, end.sequence, "archive", detail)


def _notes(archive: Archive, archived: Archived, verdict: Verdict) -> list[Note]:
    found: list[Note] = []
    try:
        for note in archive.notes(archived):
            found.append(note)
    except MetadataTampered as problem:
        number = archived.last - len(found)
        verdict.add("", number, "archive", f"{problem.message} Segments before it cannot be verified.")
    return found


def _examine_start(note: Note, writer: str, part: Part, known: Head | None, verdict: Verdict) -> None:
    """Check that records follow those of earlier segments, or what was removed before the first one."""
    if known is None:
        # Of records before the archive began, or in segments that were removed, only the last hash is known.
        fits = part.before.sequence > 0 or part.before.hash == GENESIS
    else:
        fits = (part.before.sequence, part.before.hash) == (known.sequence, known.hash)
    if not fits:
        detail = f"The segment {note.number} does not follow what was archived of this chain before."
        verdict.add(writer, part.before.sequence + 1, "archive", detail)


def _examine_rows(archive: Archive, note: Note, verdict: Verdict, moved: Moved) -> None:
    try:
        rows = archive.rows(note)
    except MetadataTampered as problem:
        verdict.add("", note.number, "archive", problem.message)
        return
    before: dict[str, Head] = {}
    for row in rows:
        writer = str(row["writer"])
        if writer not in note.parts:
            verdict.add(writer, 0, "archive", f"The note of segment {note.number} does not name this chain.")
            return
        examine_record(row, before.get(writer, note.parts[writer].before), verdict)
        moved.examine(row, verdict)
        before[writer] = Head(int(str(row["sequence"])), str(row["hash"]))
    verdict.records += len(rows)
    verdict.segments += 1
    for writer, part in note.parts.items():
        end = before.get(writer, part.before)
        if (end.sequence, end.hash) != (part.last.sequence, part.last.hash):
            verdict.add(
                writer, end.sequence, "archive", f"Segment {note.number} does not have what its note names."
            )


def _fits(end: Head, removed: Head) -> bool:
    """Return whether the archive ends where the database begins; more can have been pruned without it."""
    return removed.sequence > end.sequence or (removed.sequence, removed.hash) == (end.sequence, end.hash)
