"""Distinguishes a missing object from a bucket or warehouse that is gone as a whole.

An object that the catalog stored and that is missing now was deleted; it must be restored. If all that lay
beside it is missing too, a file system is not mounted, or a bucket was removed: the storage is unavailable,
and clients try again. The storage is asked only after an object was not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from catalog.storage.base import Storage
from catalog.storage.errors import ObjectMissing
from policy.errors import StorageUnavailable
from policy.location.location import Location


@contextmanager
def stored_before(storage: Storage, location: Location) -> Iterator[None]:
    """Inside the block, read an object that was stored before.

    Raises:
        StorageUnavailable: it is missing, and so is the bucket or the warehouse that held it.
        ObjectMissing: it alone is missing.
    """
    try:
        yield
    except ObjectMissing as missing:
        if storage.is_gone(location):
            raise StorageUnavailable(
                "The warehouse or bucket that held the object does not exist, or is empty.",
                path=location.canonical,
                rule="storage-gone",
                hint="Mount the warehouse's file system, or restore the bucket, then try again.",
            ) from missing
        raise
