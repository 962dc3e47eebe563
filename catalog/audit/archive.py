"""The archive of the audit log in storage: notes and Parquet files below one location.

The database names the last note by its hash, and each note names the one before. So an object that was put
there by others is never opened, and segments of another catalog are never removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from catalog.audit.checkpoints import Archived
from catalog.audit.records import Row
from catalog.audit.segments import MAX_FILE_BYTES, MAX_NOTE_BYTES, Note, note_name, rows_of
from catalog.storage.base import Storage
from catalog.storage.errors import ObjectMissing, ObjectTooLarge
from policy.errors import LakewardenError, LocationNotAllowed, MetadataTampered
from policy.location.location import Location

_HINT: Final = "Restore the object from a copy, and run `lakewarden audit verify`."


class Archive:
    """Segments in storage.

    Args:
        storage: where they are.
        location: below which they are. Only the service and its operators need access to it.
    """

    def __init__(self, storage: Storage, location: Location) -> None:
        self._storage = storage
        self.location: Final = location

    def put(self, note: Note, data: bytes) -> None:
        """Store a segment, durably: the Parquet file first. What fails is removed again, if possible.

        Raises:
            LocationNotAllowed: the location is not a directory, or behind a link.
            StorageUnavailable: the storage does not answer.
        """
        try:
            self._storage.create(self.location.child(note.file_name), data)
            self._storage.create(self.location.child(note.name), note.to_bytes())
        except LakewardenError:
            self.discard(note)
            raise

    def discard(self, note: Note) -> None:
        """Remove a segment that no checkpoint names, if the storage answers."""
        with suppress(LakewardenError):
            self._remove(note)

    def note(self, number: int, hashed: str) -> Note:
        """Return the note with a number and hash.

        Raises:
            MetadataTampered: it is missing, or is not the one with this hash.
            StorageUnavailable: the storage does not answer.
        """
        name = note_name(number, hashed)
        try:
            note = Note.parse(self._read(name, MAX_NOTE_BYTES))
        except ValueError as problem:
            raise self._tampered(name, f"is {problem}") from problem
        if (note.number, note.hash) != (number, hashed):
            raise self._tampered(name, "was edited")
        return note

    def rows(self, note: Note) -> list[Row]:
        """Return the records of a segment.

        Raises:
            MetadataTampered: the file is missing, or is not the one that the note names.
            StorageUnavailable: the storage does not answer.
        """
        data = self._read(note.file_name, MAX_FILE_BYTES)
        if (hashlib.sha256(data).hexdigest(), len(data)) != (note.file, note.length):
            raise self._tampered(note.file_name, "was edited")
        try:
            return rows_of(data, note.records)
        except ValueError as problem:
            raise self._tampered(note.file_name, f"is {problem}") from problem

    def notes(self, archived: Archived) -> Iterator[Note]:
        """Return all notes, the last one first; errors as `note`."""
        hashed = archived.hash
        for number in range(archived.last, archived.first - 1, -1):
            note = self.note(number, hashed)
            yield note
            hashed = note.previous

    def remove_before(self, first: Note) -> None:
        """Remove the segments before one, the oldest first, as far as their notes lead.

        Raises:
            StorageUnavailable: the storage does not answer; a repetition removes the rest.
        """
        old: list[Note] = []
        # Where an earlier removal ended, the note is missing.
        with suppress(MetadataTampered):
            for note in self.notes(Archived(1, first.number - 1, first.previous)):
                old.append(note)
        for note in reversed(old):
            self._remove(note)

    def _remove(self, note: Note) -> None:
        # The note is last: as long as it is there, it leads to what has to be removed.
        self._storage.delete(self.location.child(note.file_name))
        self._storage.delete(self.location.child(note.name))

    def _read(self, name: str, limit: int) -> bytes:
        try:
            return self._storage.read(self.location.child(name), limit=limit)
        except ObjectMissing as problem:
            raise self._tampered(name, "is missing") from problem
        except ObjectTooLarge as problem:
            raise self._tampered(name, "is larger than any segment") from problem
        except LocationNotAllowed as problem:
            raise self._tampered(name, "is not a plain object") from problem

    def _tampered(self, name: str, what: str) -> MetadataTampered:
        return MetadataTampered(
            f"The object {name} in the archive of the audit log {what}.",
            path=str(self.location.child(name)),
            rule="audit-archive",
            hint=_HINT,
        )
