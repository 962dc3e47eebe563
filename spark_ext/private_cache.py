"""A cache directory for built jars that only the user can write.

The JVM loads what lies there, so a jar planted by someone else would be code of theirs in the user's engine.

- The directory belongs to the user, and nobody else may write it. Those above it belong to the user or root,
  and others may write none of them but sticky ones such as /tmp, where they cannot rename entries.
- Where the user's cache directory cannot be written or is not safe, one below the temporary one is used.
- If that is not safe either, there is no cache and no jar: it is an error that says what to mend.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_ext.errors import SparkUnavailable

_NAME: Final = "lakewarden"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def private_cache(environ: Mapping[str, str]) -> Path:
    """The directory, without links in its path; it is made if it is missing.

    Args:
        environ: the environment variables; `XDG_CACHE_HOME`, `HOME` and `TMPDIR` matter.

    Raises:
        SparkUnavailable: there is no directory that is the user's alone.
    """
    wanted = _user_cache(environ)
    if wanted is not None:
        try:
            return _private(wanted)
        except SparkUnavailable:
            pass  # A home that is read-only or shared is common; the temporary directory is as good.
    return _private(Path(environ.get("TMPDIR") or tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}")


def _user_cache(environ: Mapping[str, str]) -> Path | None:
    chosen = environ.get("XDG_CACHE_HOME") or ""
    # The XDG base directory specification: a relative path is invalid and ignored.
    if chosen.startswith("/"):
        return Path(chosen) / _NAME
    home = environ.get("HOME") or ""
    return Path(home) / ".cache" / _NAME if home.startswith("/") else None


def _private(directory: Path) -> Path:
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        real = directory.resolve(strict=True)
        problem = _problem(real)
    except OSError as failure:
        raise _unusable(f"{directory} cannot be created: {failure.strerror}") from failure
    if problem is not None:
        raise _unusable(problem)
    return real


def _problem(real: Path) -> str | None:
    """Why a directory, given without links in its path, cannot be used; None if it can."""
    found = real.stat()
    if found.st_uid != os.getuid():
        return f"{real} belongs to another user"
    if found.st_mode & _OTHERS_WRITE:
        return f"others may write {real}"
    for each in real.parents:
        if _others_may_rename_in(each.stat()):
            return f"others may write {each}"
    return None if os.access(real, os.W_OK | os.X_OK) else f"{real} cannot be written"


def _others_may_rename_in(parent: os.stat_result) -> bool:
    if parent.st_uid not in (os.getuid(), 0):
        return True
    return bool(parent.st_mode & _OTHERS_WRITE) and not parent.st_mode & stat.S_ISVTX


def _unusable(problem: str) -> SparkUnavailable:
    return SparkUnavailable(
        f"No directory for the plugin's jar is writable by this user only: {problem}.",
        rule="jar-cache",
        hint="Change its owner or mode, or set XDG_CACHE_HOME to a directory of your own.",
    )
