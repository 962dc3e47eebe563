"""Tells whether a file system is full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

#: A commit writes metadata and manifests, and SQLite a write-ahead log of 4 MiB before it is written back.
LEAST_FREE_BYTES: Final = 8 * 1024**2


def is_full(path: Path) -> bool:
    """Return whether the file system of a path has less than `LEAST_FREE_BYTES` left for this process.

    Args:
        path: a file or directory; if it does not exist, the nearest directory above it counts.

    Raises:
        OSError: the file system does not say.
    """
    status = os.statvfs(existing(path))
    return status.f_bavail * status.f_frsize < LEAST_FREE_BYTES


def existing(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists."""
    return next((each for each in (path, *path.parents) if each.exists()), Path("/"))
