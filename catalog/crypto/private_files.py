"""Reads, replaces and locks files that only their owner can read.

Rules:
- Neither symbolic nor hard links are followed, nothing but a regular file is read, and a file that its group
  or others could read is refused: what it says may be known to anyone.
- A file is replaced whole: written beside, flushed to disk, renamed over, and the directory flushed.
- The lock is a file of its own, held through the kernel, so that a killed process leaves none behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policy.errors import KmsUnavailable

LOCK_TIMEOUT_SECONDS: Final = 5.0
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_private(path: Path, *, limit: int) -> bytes:
    """Read a private file.

    Args:
        path: the file.
        limit: most bytes it may have.

    Raises:
        KmsUnavailable: missing, a link, not a regular file, not the caller's, open to group or others, or
            larger than the limit.
    """
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as failure:
        raise _unusable(
            path,
            f"cannot be opened ({failure.strerror})",
            "Check that the file exists and that this user can read it.",
        ) from failure
    try:
        _require_private(path, os.fstat(descriptor))
        data = _read_at_most(descriptor, limit + 1)
    except OSError as failure:
        raise _unusable(
            path, f"cannot be read ({failure.strerror})", "Check the disk, then try again."
        ) from failure
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise _unusable(path, f"has more than {limit} bytes", "Check that the path names the right file.")
    return data


def _read_at_most(descriptor: int, count: int) -> bytes:
    parts = []
    while count > 0 and (part := os.read(descriptor, count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _require_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _unusable(path, "is not a regular file", "Name the file itself, not a link or directory.")
    if status.st_nlink > 1:
        raise _unusable(
            path, "has a second name (hard link)", "Remove the other hard link, or make a new file."
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise _unusable(path, "belongs to another user", "Run as the owner of the file, or change its owner.")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise _unusable(
            path, "can be read or written by group or others", "Set its mode to 0600 (`chmod 600 FILE`)."
        )


def create_private(path: Path, data: bytes) -> None:
    """Write a new file of mode 0600.

    Raises:
        KmsUnavailable: it is there already, or cannot be written.
    """
    try:
        _write_new(path, data)
        _flush_directory(path.parent)
    except OSError as failure:
        raise _unusable(path, f"cannot be created ({failure.strerror})", "Choose another path.") from failure


def replace_private(path: Path, data: bytes) -> None:
    """Replace a file whole; after a crash there is the old one or the new one.

    Raises:
        KmsUnavailable: it cannot be written.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_new(beside, data)
        beside.replace(path)
        _flush_directory(path.parent)
    except OSError as failure:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        raise _unusable(
            path,
            f"cannot be written ({failure.strerror})",
            "Check the free space of the disk and the permissions of the directory.",
        ) from failure


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, _CREATE_FLAGS, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, timeout: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """Hold the exclusive lock of a file, against threads and processes.

    Args:
        path: the file; the lock is ``<path>.lock`` beside it.
        timeout: how many seconds to wait at most.

    Raises:
        KmsUnavailable: the lock cannot be had in time.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        descriptor = os.open(lock, _LOCK_FLAGS, 0o600)
    except OSError as failure:
        raise _unusable(
            lock, f"cannot be opened ({failure.strerror})", "Check that the directory exists and is writable."
        ) from failure
    try:
        _wait_for(lock, descriptor, time.monotonic() + timeout)
        yield
    finally:
        os.close(descriptor)


def _wait_for(lock: Path, descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as failure:
            if time.monotonic() >= deadline:
                raise _unusable(lock, "is locked by another process", "Try again.") from failure
            time.sleep(0.01)


def _unusable(path: Path, what: str, hint: str) -> KmsUnavailable:
    return KmsUnavailable(f"{path.name} {what}.", path=str(path), rule="keystore-file", hint=hint)
