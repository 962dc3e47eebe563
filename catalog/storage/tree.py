"""Walks a directory tree by file descriptor, without following links.

Rules:

- A directory is entered relative to its parent's open descriptor; a link is never entered.
- Names are bytes here, so that even what no location can express can be removed.
- Trees deeper than `MAX_DEPTH` are refused: each level costs a descriptor, and no table nests like that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

from policy.errors import LocationNotAllowed
from policy.location.location import Location

MAX_DEPTH = 100
"The maximum depth of directories below the start of a walk."

Descriptor = AbstractContextManager[int]
"A context manager that holds an open descriptor of a directory."

_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def files(top: int, location: Location) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    """Every regular file below an open directory: its names from there on, and its `lstat`.

    Names that are not UTF-8 keep their bytes as lone surrogates, which no location accepts.

    Raises:
        LocationNotAllowed: the tree is too deep.
        OSError: as the system reports it.
    """
    yield from _files(top, b".", (), location)


def clear(top: int, location: Location) -> None:
    """Remove everything below an open directory; errors as in `files`."""
    _clear(top, b".", 0, location)


def is_empty(top: int, location: Location) -> bool:
    """Return whether an open directory is empty; errors as in `files`."""
    directory = _enter(top, b".", 0, location)
    try:
        return not _names(directory)
    finally:
        os.close(directory)


def _files(
    parent: int, name: bytes, above: tuple[str, ...], location: Location
) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    directory = _enter(parent, name, len(above), location)
    try:
        for entry in _names(directory):
            try:
                found = os.stat(entry, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted since the directory was read
            path = (*above, entry.decode("utf-8", "surrogateescape"))
            if stat.S_ISREG(found.st_mode):
                yield path, found
            elif stat.S_ISDIR(found.st_mode):
                yield from _files(directory, entry, path, location)
    finally:
        os.close(directory)


def _clear(parent: int, name: bytes, depth: int, location: Location) -> None:
    directory = _enter(parent, name, depth, location)
    try:
        for entry in _names(directory):
            with suppress(FileNotFoundError):
                _remove(directory, entry, depth, location)
    finally:
        os.close(directory)


def _remove(directory: int, entry: bytes, depth: int, location: Location) -> None:
    found = os.stat(entry, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        _clear(directory, entry, depth + 1, location)
        os.rmdir(entry, dir_fd=directory)
    else:
        os.unlink(entry, dir_fd=directory)


def _enter(parent: int, name: bytes, depth: int, location: Location) -> int:
    if depth > MAX_DEPTH:
        raise LocationNotAllowed(
            f"The directory tree is more than {MAX_DEPTH} levels deep.",
            path=location.canonical,
            rule="tree-depth",
            hint="No table writer nests that deep. Examine the tree and remove it manually.",
        )
    return os.open(name, _ENTER, dir_fd=parent)


def _names(directory: int) -> list[bytes]:
    """The names in a directory, as bytes; the system hands a descriptor's names out as text."""
    return [os.fsencode(name) for name in os.listdir(directory)]
