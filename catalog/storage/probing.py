"""Checks whether the warehouse can be read and written now.

- An object is created in a warehouse on a file system, and deleted again. Not in an empty one: the directory
  below a file system that is not mounted is empty, and must stay so (`catalog.storage.volumes`).
- Of an object store, the bucket is asked for. No object is created, since a bucket with versions keeps each.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from uuid import uuid4

from catalog.base.disk_space import existing, is_full
from catalog.storage.base import Storage
from catalog.storage.errors import translated
from policy.errors import StorageUnavailable
from policy.location.location import Location

#: The rule of an error that concerns writing alone.
FULL: Final = "storage-full"
_PROBE: Final = b"\0" * 4096


def require_readable(storage: Storage, warehouse: Location, *, has_tables: bool) -> None:
    """Require that the warehouse answers.

    Args:
        storage: the catalog's storage.
        warehouse: the location of the warehouse.
        has_tables: whether a table lies in it; a new warehouse is empty.

    Raises:
        StorageUnavailable: it does not, or it is gone as a whole.
    """
    if storage.is_gone(warehouse) and has_tables:
        raise StorageUnavailable(
            "The warehouse or bucket does not exist, or is empty.",
            path=warehouse.canonical,
            rule="storage-gone",
            hint="Mount the warehouse's file system, or restore the bucket.",
        )


def require_writable(storage: Storage, warehouse: Location) -> None:
    """Require that objects can be created in a warehouse that is readable.

    Raises:
        StorageUnavailable: they cannot.
    """
    if warehouse.scheme != "file":
        return
    path = Path("/", *warehouse.segments)
    with translated(warehouse):
        if is_full(path):
            raise StorageUnavailable(
                "The file system of the warehouse is full.",
                path=warehouse.canonical,
                rule=FULL,
                hint="Free disk space.",
            )
        if storage.is_gone(warehouse):
            _require_access(existing(path), warehouse)
            return
    probe = warehouse.child(f".lakewarden-probe-{uuid4().hex}")
    storage.create(probe, _PROBE)
    storage.delete(probe)


def _require_access(directory: Path, warehouse: Location) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StorageUnavailable(
            "The directory of the warehouse cannot be created or written.",
            path=warehouse.canonical,
            rule="storage-access",
            hint="Grant the catalog's user write permission.",
        )
