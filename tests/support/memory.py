"""A file system in memory for temporary files, where there is one: a commit of SQLite waits for its disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
#: Bytes; a run of all tests leaves a fifth of it.
_ROOM = 2 * 1024**3


def temporary_files_in_memory() -> None:
    """Put the temporary files of this process and its children into memory; a `TMPDIR` that is set stays."""
    if "TMPDIR" not in os.environ and _has_room():
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None


def _has_room() -> bool:
    if not os.access(_MEMORY, os.W_OK) or os.statvfs(_MEMORY).f_flag & getattr(os, "ST_NOEXEC", 0):
        return False
    return shutil.disk_usage(_MEMORY).free >= _ROOM
