"""A pyiceberg `FileIO` that accesses only the allowed locations of a table.

Rules:

- A path is parsed and checked against the list before anything is opened, asked for or deleted. A refusal
  names the table, the path and the rule.
- Reading asks one list, writing and deleting another, which is usually the table's own location alone.
- Every object that is handed out as a whole passes the `verify` hook first, on the very bytes that are handed
  out. pyiceberg reads metadata, manifest lists and manifests as a whole, whatever their names, and data files
  in pieces. So a manifest cannot escape the hook by being named like a data file.
- Whole objects are bounded in size. Nothing is ever overwritten, even where pyiceberg asks for it.

pyiceberg keeps a cache of manifest *list entries*, for the whole process and by path alone. It does not keep
manifests' bytes; those come through here on every read.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from catalog.storage.base import Storage
from catalog.storage.errors import too_large
from policy.errors import LocationNotAllowed
from policy.location.allow_list import AllowList
from policy.location.location import Location, shown

Hook = Callable[[str, bytes], None]
"Receives the canonical location and all bytes of an object; raises if they must not be used."

METADATA_LIMIT = 256 << 20
"The maximum size in bytes of an object that is read into memory as a whole."

_METADATA_SUFFIXES = (".json", ".avro")


def is_metadata_name(name: str) -> bool:
    """Return whether an object's name is that of metadata, a manifest list or a manifest.

    Iceberg names them ``….metadata.json`` (also ``….gz.metadata.json``) and ``….avro``. No data file that
    pyiceberg can read or write ends so.
    """
    return name.endswith(_METADATA_SUFFIXES)


class GuardedFileIO(FileIO):
    """The `io` of pyiceberg's `Table`, `Transaction` and scans for one table."""

    def __init__(
        self,
        storage: Storage,
        *,
        table: str,
        allowed: AllowList,
        writable: AllowList,
        verify: Hook | None = None,
        limit: int = METADATA_LIMIT,
    ) -> None:
        """Binds a storage to one table's lists.

        Args:
            storage: what really reads and writes.
            table: dotted name of the table, for errors.
            allowed: the locations that may be read.
            writable: the locations in which objects may be created and deleted.
            verify: called before the bytes of a whole object are handed out.
            limit: most bytes of a whole object.
        """
        super().__init__()
        self._storage = storage
        self._table = table
        self._allowed = allowed
        self._writable = writable
        self._verify = verify
        self._limit = limit

    def new_input(self, location: str) -> InputFile:
        """A file to read.

        Raises:
            LocationNotAllowed: the path is outside the table's list; nothing was opened.
        """
        return _GuardedInput(self, location, self._admit(location, self._allowed, "read"))

    def new_output(self, location: str) -> OutputFile:
        """A file to create.

        Raises:
            LocationNotAllowed: the path is outside what may be written; nothing was made.
        """
        return _GuardedOutput(self, location, self._admit(location, self._writable, "written"))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes a file; one that does not exist is no error.

        Raises:
            LocationNotAllowed: the path is outside what may be written; nothing was deleted.
        """
        path = location if isinstance(location, str) else location.location
        self._storage.delete(self._admit(path, self._writable, "deleted"))

    def _admit(self, path: str, entries: AllowList, verb: str) -> Location:
        decision = entries.decide(path)
        if not decision:
            raise LocationNotAllowed(
                f"The table's allowed locations do not permit this path to be {verb}: {decision.explanation}",
                table=self._table,
                path=shown(path),
                rule=decision.reasons[0].rule,
                hint="Remove the path from the table, or add its location to read.allowed.data.paths "
                "(needs the rwstorage permission).",
            )
        return Location.parse(path)

    def _read_whole(self, location: Location) -> bytes:
        data = self._storage.read(location, limit=self._limit)
        if self._verify is not None:
            self._verify(location.canonical, data)
        return data


class _GuardedInput(InputFile):
    """An input file with a permitted path."""

    def __init__(self, files: GuardedFileIO, path: str, where: Location) -> None:
        super().__init__(path)
        self._files = files
        self._where = where

    def __len__(self) -> int:
        return self._files._storage.size(self._where)

    def exists(self) -> bool:
        return self._files._storage.exists(self._where)

    def open(self, seekable: bool = True) -> InputStream:
        """Open the file: metadata from memory and verified, everything else in ranges from storage."""
        if is_metadata_name(self._where.name):
            return io.BytesIO(self._files._read_whole(self._where))
        return _PiecewiseInput(self._files, self._where)


class _PiecewiseInput(io.RawIOBase):
    """A data file that is read in ranges; reading it as a whole is the same as for metadata."""

    def __init__(self, files: GuardedFileIO, where: Location) -> None:
        super().__init__()
        self._files = files
        self._where = where
        self._stream = files._storage.open_input(where)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return self._stream.read(size)
        start = self._stream.tell()
        self._stream.seek(0, io.SEEK_END)
        return self._files._read_whole(self._where)[start:]

    def readall(self) -> bytes:
        return self.read()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._stream.close()


class _GuardedOutput(OutputFile):
    """An output file with a permitted path."""

    def __init__(self, files: GuardedFileIO, path: str, where: Location) -> None:
        super().__init__(path)
        self._files = files
        self._where = where

    def __len__(self) -> int:
        return self._files._storage.size(self._where)

    def exists(self) -> bool:
        return self._files._storage.exists(self._where)

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        """A stream into a new file. `overwrite` has no effect: an existing file is refused either way."""
        if is_metadata_name(self._where.name):
            return _WholeOutput(self._files, self._where)
        return self._files._storage.open_output(self._where)


class _WholeOutput:
    """Collects a metadata file in memory; stores it when the stream is closed.

    After a refused write, or a failed `with` block, closing stores nothing.
    """

    def __init__(self, files: GuardedFileIO, where: Location) -> None:
        self._files = files
        self._where = where
        self._data = bytearray()
        self.closed = False

    def write(self, b: bytes) -> int:
        if self.closed:
            raise ValueError("write to a closed file")
        if len(self._data) + len(b) > self._files._limit:
            self.closed = True
            raise too_large(self._where, self._files._limit)
        self._data += b
        return len(b)

    def tell(self) -> int:
        return len(self._data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._files._storage.create(self._where, bytes(self._data))

    def __enter__(self) -> _WholeOutput:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        self.closed = True
