"""The storage interface, and the choice of a storage by scheme.

Rules:

- An object is read whole and within a limit, or as a stream of which only the asked pieces are read.
- An object is created, never overwritten, never appended to.
- What is not an object (a link, a device, a directory) is refused, and does not show up in listings.
- Every fault is one of `policy.errors` or `catalog.storage.errors`, and arrives in bounded time.
- A storage decides nothing about who may read what. Callers ask an allow-list before they come here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pyiceberg.io import InputStream, OutputStream

from catalog.base.outside_calls import Part, outside_call
from policy.errors import LocationNotAllowed
from policy.location.location import Location


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An entry of a listing.

    Attributes:
        location: where the object is.
        size: its length in bytes.
        modified: when it was last written, by the storage's clock, in UTC.
    """

    location: Location
    size: int
    modified: datetime


class Storage(Protocol):
    """Storage for the objects of one scheme. Implementations may be used from many threads at once."""

    def read(self, location: Location, *, limit: int) -> bytes:
        """Read all bytes of an object.

        Args:
            location: the object.
            limit: most bytes that the caller takes; never more than one byte beyond it is read.

        Raises:
            ObjectMissing: there is no such object.
            ObjectTooLarge: it is larger than `limit`.
            LocationNotAllowed: what is there is no plain object, or lies behind a link.
            StorageUnavailable: the storage failed, denied access, or did not answer in time.
        """

    def open_input(self, location: Location) -> InputStream:
        """Open a seekable stream of an object's bytes, for data files; errors as in `read`."""

    def create(self, location: Location, data: bytes) -> None:
        """Create an object that holds `data`; it is durable on return.

        Raises:
            ObjectExists: an object of that name exists; it is left alone.
            LocationNotAllowed, StorageUnavailable: as in `read`; then nothing of the new object is left
                where the storage lets it be cleaned up.
        """

    def open_output(self, location: Location) -> OutputStream:
        """Open a stream that creates an object, durable once closed; errors as in `create`.

        Leaving its `with` block through an exception removes what was written so far.
        """

    def exists(self, location: Location) -> bool:
        """Return whether an object with exactly this name exists; a directory or a link is not an object."""

    def size(self, location: Location) -> int:
        """Return the length of an object in bytes; errors as in `read`."""

    def is_gone(self, location: Location) -> bool:
        """Return whether the bucket or file system of a location is gone as a whole. Asked about an object
        that was stored before and is missing now.

        Raises:
            StorageUnavailable: as in `read`.
        """

    def delete(self, location: Location) -> None:
        """Remove an object; no error if it does not exist.

        Raises:
            LocationNotAllowed: a directory is there, or a link leads to it.
            StorageUnavailable: as in `read`.
        """

    def list_prefix(self, location: Location) -> Iterator[StoredObject]:
        """List every object below a location, at any depth and in any order; nothing if it does not exist.

        Raises:
            LocationInvalid: a stored name that no reader may be handed; the listing ends there, because
                leaving the name out would hide it.
            LocationNotAllowed, StorageUnavailable: as in `read`.
        """

    def delete_prefix(self, location: Location) -> None:
        """Remove everything below a location, and the directory itself.

        Links are removed, not followed. A location that does not exist is no error. An interrupted call
        may be repeated.

        Raises:
            LocationNotAllowed: the location is a whole bucket or file system, no directory, or behind a link.
            StorageUnavailable: as in `read`; a part may be gone by then.
        """


class StorageRouter:
    """Dispatches to the storage of each scheme; itself a `Storage`."""

    def __init__(self, by_scheme: Mapping[str, Storage]) -> None:
        """Takes one storage for each canonical scheme (``file``, ``s3``) that this catalog serves."""
        self._by_scheme = dict(by_scheme)

    def storage_for(self, location: Location) -> Storage:
        """The storage that holds a location.

        Raises:
            LocationNotAllowed: no storage is configured for its scheme.
        """
        storage = self._by_scheme.get(location.scheme)
        if storage is None:
            raise LocationNotAllowed(
                f"No storage is configured for the scheme {location.scheme!r}.",
                path=location.canonical,
                rule="storage-scheme",
                hint="Use one of these schemes: "
                f"{', '.join(sorted(self._by_scheme)) or 'none is configured'}.",
            )
        return storage

    def read(self, location: Location, *, limit: int) -> bytes:
        """See `Storage.read`."""
        with outside_call(Part.STORAGE, "read"):
            return self.storage_for(location).read(location, limit=limit)

    def open_input(self, location: Location) -> InputStream:
        """See `Storage.open_input`."""
        with outside_call(Part.STORAGE, "open"):
            return self.storage_for(location).open_input(location)

    def create(self, location: Location, data: bytes) -> None:
        """See `Storage.create`."""
        with outside_call(Part.STORAGE, "create"):
            self.storage_for(location).create(location, data)

    def open_output(self, location: Location) -> OutputStream:
        """See `Storage.open_output`."""
        with outside_call(Part.STORAGE, "create"):
            return self.storage_for(location).open_output(location)

    def exists(self, location: Location) -> bool:
        """See `Storage.exists`."""
        with outside_call(Part.STORAGE, "stat"):
            return self.storage_for(location).exists(location)

    def size(self, location: Location) -> int:
        """See `Storage.size`."""
        with outside_call(Part.STORAGE, "stat"):
            return self.storage_for(location).size(location)

    def is_gone(self, location: Location) -> bool:
        """See `Storage.is_gone`."""
        with outside_call(Part.STORAGE, "stat"):
            return self.storage_for(location).is_gone(location)

    def delete(self, location: Location) -> None:
        """See `Storage.delete`."""
        with outside_call(Part.STORAGE, "delete"):
            self.storage_for(location).delete(location)

    def list_prefix(self, location: Location) -> Iterator[StoredObject]:
        """See `Storage.list_prefix`."""
        return _timed(self.storage_for(location).list_prefix(location))

    def delete_prefix(self, location: Location) -> None:
        """See `Storage.delete_prefix`."""
        with outside_call(Part.STORAGE, "delete-all"):
            self.storage_for(location).delete_prefix(location)


def _timed(found: Iterator[StoredObject]) -> Iterator[StoredObject]:
    """Time a listing until its first entry: what the caller does between entries is not the storage's."""
    with outside_call(Part.STORAGE, "list"):
        first = next(found, None)
    if first is not None:
        yield first
        yield from found
