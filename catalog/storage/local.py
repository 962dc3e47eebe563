"""Objects on a local or mounted file system, opened without following links.

Rules:

- Every segment from `/` on is opened relative to the descriptor of the one before, and no link is followed:
  neither in the last place nor in the middle. Who swaps a directory for a link between two steps gains
  nothing, since no step ever goes back to a path.
- Only regular files are objects. The file is opened without blocking, the open descriptor is asked what it
  is, and that same descriptor is read; there is no gap between check and use.
- Names are bytes: the UTF-8 of the location's segments, with nothing decoded and nothing folded.
- New files are made exclusively, and file and directory are synced before success is reported. New
  directories are made along the same walk. Their permissions follow the process's umask.

A warehouse whose own path leads through a link is refused as well: configure the path that the link names.
Hard links cannot be told from files, and are outside what this module promises.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import BinaryIO

from pyiceberg.io import InputStream, OutputStream

from catalog.storage import tree
from catalog.storage.base import StoredObject
from catalog.storage.errors import ObjectMissing, too_large, translated
from catalog.storage.streams import ObjectInput, ObjectOutput
from policy.errors import LocationNotAllowed
from policy.location.location import Location

# O_PATH needs only the permission to pass through a directory, not to list it. Systems without it list.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


class LocalStorage:
    """`Storage` for the scheme ``file``."""

    def __init__(self, warehouse: Location | None = None) -> None:
        """Takes the directory of the warehouse, for `is_gone`; without it, nothing is taken to be gone."""
        self._warehouse = warehouse

    def read(self, location: Location, *, limit: int) -> bytes:
        """See `Storage.read`."""
        with translated(location), os.fdopen(_open_file(location), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise too_large(location, limit)
            data = bytearray()
            while len(data) <= limit:
                chunk = os.read(file.fileno(), min(_CHUNK, limit + 1 - len(data)))
                if not chunk:
                    return bytes(data)
                data += chunk
        raise too_large(location, limit)

    def open_input(self, location: Location) -> InputStream:
        """See `Storage.open_input`; the stream reads the very descriptor that was checked."""
        with translated(location):
            return ObjectInput(os.fdopen(_open_file(location), "rb"), location)

    def create(self, location: Location, data: bytes) -> None:
        """See `Storage.create`."""
        with self.open_output(location) as stream:
            stream.write(data)

    def open_output(self, location: Location) -> OutputStream:
        """See `Storage.open_output`. The name is visible, and its content growing, before it is closed."""
        with translated(location), _parent(location, make=True) as (directory, name):
            descriptor = os.open(name, _CREATE, 0o666, dir_fd=directory)
            file = os.fdopen(descriptor, "wb")
            kept = os.dup(directory)
        return _output(file, kept, name, location)

    def exists(self, location: Location) -> bool:
        """See `Storage.exists`."""
        with translated(location):
            try:
                with _parent(location) as (directory, name):
                    return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
            except FileNotFoundError:
                return False

    def size(self, location: Location) -> int:
        """See `Storage.size`."""
        with translated(location), os.fdopen(_open_file(location), "rb", buffering=0) as file:
            return os.fstat(file.fileno()).st_size

    def is_gone(self, location: Location) -> bool:
        """See `Storage.is_gone`: the warehouse does not exist, or is empty like an unmounted mount point.

        It cannot be told of files outside the warehouse.
        """
        warehouse = self._warehouse
        if warehouse is None or not warehouse.contains(location):
            return False
        try:
            with translated(warehouse), _directory(warehouse) as top:
                return tree.is_empty(top, warehouse)
        except ObjectMissing:
            return True

    def delete(self, location: Location) -> None:
        """See `Storage.delete`; if the last component is a link, the link itself is removed."""
        with translated(location), suppress(FileNotFoundError), _parent(location) as (directory, name):
            try:
                os.unlink(name, dir_fd=directory)
            except IsADirectoryError:
                raise _irregular(location) from None
            _sync(directory)

    def list_prefix(self, location: Location) -> Iterator[StoredObject]:
        """See `Storage.list_prefix`."""
        with translated(location), suppress(FileNotFoundError), _directory(location) as top:
            for segments, found in tree.files(top, location):
                modified = datetime.fromtimestamp(found.st_mtime, UTC)
                yield StoredObject(location.child(*segments), found.st_size, modified)

    def delete_prefix(self, location: Location) -> None:
        """See `Storage.delete_prefix`."""
        with translated(location), suppress(FileNotFoundError), _parent(location) as (directory, name):
            top = _step(directory, name, location)
            try:
                tree.clear(top, location)
            finally:
                os.close(top)
            os.rmdir(name, dir_fd=directory)
            _sync(directory)


def _open_file(location: Location) -> int:
    """A descriptor, open for reading, of the regular file at a location."""
    with _parent(location) as (directory, name):
        try:
            descriptor = os.open(name, _READ, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK):  # the last component is a link; BSD says EMLINK
                raise _linked(location) from error
            if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
                raise _irregular(location) from error
            raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _irregular(location)
    return descriptor


@contextmanager
def _parent(location: Location, *, make: bool = False) -> Iterator[tuple[int, bytes]]:
    """The descriptor of the directory that holds a location, and the location's name in it."""
    with _walk(location, location.segments[:-1], make=make) as directory:
        yield directory, location.segments[-1].encode()


def _directory(location: Location) -> tree.Descriptor:
    return _walk(location, location.segments, make=False)


@contextmanager
def _walk(location: Location, segments: tuple[str, ...], *, make: bool) -> Iterator[int]:
    descriptor = os.open(b"/", _STEP)
    try:
        for segment in segments:
            following = _step(descriptor, segment.encode(), location, make=make)
            os.close(descriptor)
            descriptor = following
        yield descriptor
    finally:
        os.close(descriptor)


def _step(directory: int, name: bytes, location: Location, *, make: bool = False) -> int:
    """Open the directory `name` inside `directory`; create it first if asked."""
    try:
        return os.open(name, _STEP, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            raise _no_directory(directory, name, location) from error
        raise
    with suppress(FileExistsError):  # another writer created it first, which is equally good
        os.mkdir(name, dir_fd=directory)
        _sync(directory)
    return _step(directory, name, location)


def _sync(directory: int) -> None:
    """Makes the entries of a directory durable; a descriptor of O_PATH itself cannot be synced."""
    descriptor = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _output(file: BinaryIO, directory: int, name: bytes, location: Location) -> ObjectOutput:
    """A stream into a file just made, which owns the file and the descriptor of its directory."""

    def finish() -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        _sync(directory)
        os.close(directory)

    def discard() -> None:
        try:
            os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)
            file.close()

    return ObjectOutput(file, location, finish=finish, discard=discard)


def _no_directory(directory: int, name: bytes, location: Location) -> LocationNotAllowed:
    """The error for a path component that is not a directory."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return _linked(location)
    return _linked(location) if stat.S_ISLNK(mode) else _irregular(location)


def _linked(location: Location) -> LocationNotAllowed:
    return LocationNotAllowed(
        "The path contains a symbolic link, and links are not followed.",
        path=location.canonical,
        rule="no-links",
        hint="Store the file itself below the table's location, or use the path that the link points to.",
    )


def _irregular(location: Location) -> LocationNotAllowed:
    return LocationNotAllowed(
        "The path is not a regular file, or a component above it is not a directory.",
        path=location.canonical,
        rule="regular-file",
        hint="Only regular files are read and written. Remove what is at this path.",
    )
