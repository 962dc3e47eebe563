"""Outages of databases and disks, caused for real and ended again."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, event


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another program holds the write lock of a SQLite database."""
    holder = sqlite3.connect(database, isolation_level=None, timeout=10)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.close()


@contextmanager
def full(engine: Engine) -> Iterator[None]:
    """The quota of a SQLite database is used up: it cannot take another page."""

    def bound(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size instead

    def unbound(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA max_page_count = 1073741823")

    event.listen(engine, "checkout", bound)
    try:
        yield
    finally:
        event.remove(engine, "checkout", bound)
        event.listen(engine, "checkout", unbound)


@contextmanager
def absent(database: Path) -> Iterator[None]:
    """The files of a SQLite database are gone, as when its volume is not mounted."""
    files = [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm")]
    away = [(file, file.with_name(f"away-{file.name}")) for file in files if file.exists()]
    for file, elsewhere in away:
        file.rename(elsewhere)
    try:
        yield
        assert not database.exists(), "an absent database was made again"
    finally:
        for file, elsewhere in away:
            elsewhere.rename(file)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Nothing below a directory can be written, not even by root."""
    if os.geteuid() != 0:
        with _without_rights(directory):
            yield
        return
    _mount("--bind", directory, directory)
    try:
        _mount("-o", "remount,ro,bind", directory)
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True, timeout=20)


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[None]:
    """A disk of its own, of that size, is mounted on a directory; only root can do so."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True, timeout=20)


@contextmanager
def filled(directory: Path) -> Iterator[None]:
    """The disk on which a directory lies has no byte left."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1 << 12, 1 << 6, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size):
                    pass
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes, as with a quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@contextmanager
def frozen(postmaster: int) -> Iterator[None]:
    """A PostgreSQL server and all its processes stand still, but their sockets are open."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    stopped = [postmaster, *(int(child) for child in children)]
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@contextmanager
def _without_rights(directory: Path) -> Iterator[None]:
    paths = [directory, *directory.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(modes[path] & ~0o222)
    try:
        yield
    finally:
        for path in paths:
            path.chmod(modes[path])


def _mount(*arguments: str | Path) -> None:
    done = subprocess.run(["mount", *arguments], check=False, timeout=20, capture_output=True)
    if done.returncode != 0:
        pytest.skip("this machine does not let the tests mount a file system")
