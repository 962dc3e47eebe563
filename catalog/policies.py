"""The policies in force, read from files.

- A path is a Ranger JSON document, or a directory whose `*.json` files are read in the order of their names.
- All documents together are one set. A set with a mistake anywhere is refused as a whole: at the start that
  is an error, later the set before stays in force and `problem` says why.
- A change is noticed when a file's size, times or identity, or the names in a directory, change; this is
  looked at when policies are asked for, at most once each `poll_s`.
- Without any document nothing is granted.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from policy.errors import PolicyInvalid
from policy.ranger import PolicySet
from policy.ranger.parse import MAX_DOCUMENT_SIZE

#: What tells that a file is another one than before: device, inode, size, time of change of content and of
#: inode.
_Fingerprint: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Loaded:
    policies: PolicySet
    fingerprints: dict[str, _Fingerprint]


class PolicyStore:
    """Answers the policies in force. Safe for use by many threads.

    Args:
        paths: documents and directories; none at all means that nothing is granted.
        poll_s: seconds between two looks at the files.
        clock: seconds that only go forward.

    Raises:
        PolicyInvalid: a document cannot be read, or the set has a mistake.
    """

    def __init__(
        self, paths: Sequence[Path], poll_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths = tuple(paths)
        self._poll_s = poll_s
        self._clock = clock
        self._lock = threading.Lock()
        self._refused: dict[str, _Fingerprint] | None = None
        self._problem: str | None = None
        self._looked_at = clock()
        self._loaded = self._load()

    @property
    def problem(self) -> str | None:
        """Why the files on disk are not what is in force, or None if they are."""
        return self._problem

    def current(self) -> PolicySet:
        """The policies in force; reads changed files first if it is time to look."""
        if self._clock() - self._looked_at >= self._poll_s and self._lock.acquire(blocking=False):
            try:
                self._looked_at = self._clock()
                self._refresh()
            finally:
                self._lock.release()
        return self._loaded.policies

    def reload(self) -> PolicySet:
        """Read all files now.

        Raises:
            PolicyInvalid: the new set has a mistake; the set before stays in force.
        """
        with self._lock:
            self._looked_at = self._clock()
            try:
                self._accept(self._load())
            except PolicyInvalid as error:
                self._problem = str(error)
                raise
            return self._loaded.policies

    def _refresh(self) -> None:
        try:
            seen = _fingerprints(self._paths)
            if seen == self._loaded.fingerprints:
                self._accept(self._loaded)
            elif seen != self._refused:
                self._accept(self._load())
        except PolicyInvalid as error:
            self._problem = str(error)

    def _load(self) -> _Loaded:
        documents, fingerprints = _read_all(self._paths)
        # Remembered, so that a bad set is parsed once; what could not be read is tried again each time.
        self._refused = fingerprints
        return _Loaded(PolicySet.parse(documents), fingerprints)

    def _accept(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        self._problem = None
        self._refused = None


def _read_all(paths: Sequence[Path]) -> tuple[dict[str, bytes], dict[str, _Fingerprint]]:
    documents: dict[str, bytes] = {}
    fingerprints: dict[str, _Fingerprint] = {}
    for path in _files(paths):
        documents[str(path)], fingerprints[str(path)] = _read(path)
    return documents, fingerprints


def _fingerprints(paths: Sequence[Path]) -> dict[str, _Fingerprint]:
    found: dict[str, _Fingerprint] = {}
    for path in _files(paths):
        try:
            found[str(path)] = _fingerprint(path.stat())
        except OSError as error:
            raise _unreadable(path, error) from error
    return found


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            is_directory = stat.S_ISDIR(path.stat().st_mode)
            names = sorted(entry.name for entry in path.iterdir()) if is_directory else []
        except OSError as error:
            raise _unreadable(path, error) from error
        if is_directory:
            yield from (path / name for name in names if name.endswith(".json"))
        else:
            yield path


def _read(path: Path) -> tuple[bytes, _Fingerprint]:
    """A document and the fingerprint of the very file that was read."""
    try:
        # Opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            # One byte more than is accepted, so that the parser sees that it is too much.
            content = file.read(MAX_DOCUMENT_SIZE + 1) if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        raise _unreadable(path, error) from error
    if content is None:
        raise PolicyInvalid(
            "A policy document is not a regular file.",
            path=str(path),
            rule="policy-file",
            hint="Name JSON files, or directories that hold them.",
        )
    return content, _fingerprint(status)


def _fingerprint(status: os.stat_result) -> _Fingerprint:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _unreadable(path: Path, error: OSError) -> PolicyInvalid:
    return PolicyInvalid(
        f"A policy document cannot be read: {error.strerror}.",
        path=str(path),
        rule="policy-file",
        hint="Check `policies` in the settings, and who may read the file.",
    )
