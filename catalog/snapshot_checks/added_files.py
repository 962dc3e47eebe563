"""Checks that added data and delete files exist, with one HEAD or stat per file.

If a file is missing or has another size than its entry states, users cannot read the table. So the files of
every commit, from any client, are checked before the commit is accepted: each is a regular file (no link,
pipe or directory) of exactly the size in its entry. Files are not opened.

All commits share one thread pool for these requests, so that a large commit does not use up the storage's
connections or the threads that read manifests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import pyarrow as pa

from catalog.base.outside_calls import of_this_request
from catalog.storage.base import Storage
from catalog.storage.errors import ObjectMissing
from catalog.storage.volumes import stored_before
from policy.errors import LakewardenError, MetadataInvalid
from policy.location.location import Location

#: Paths and sizes of entries that add files.
ADDED_COLUMNS: Final = ("file_path", "file_size_in_bytes")


class AddedFiles:
    """Checks the files that commits add.

    Args:
        storage: stores the files.
        threads: maximum number of concurrent checks, for all commits together.
    """

    def __init__(self, storage: Storage, threads: int) -> None:
        self._storage = storage
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="added-files")

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def check(self, added: Iterable[pa.Table], table: str) -> None:
        """Check files whose paths were already checked against the allowed locations.

        Args:
            added: entries that add files, with `ADDED_COLUMNS`.
            table: dotted name, for errors.

        Raises:
            MetadataInvalid: a file does not exist, or has another size than its entry says.
            LocationNotAllowed: the path is not a regular file, or it is behind a link.
            StorageUnavailable: the storage does not answer, or the warehouse does not exist.
        """

        def look(file: tuple[str, int]) -> None:
            self._look(*file, table)

        for _ in self._ahead(look, _files(added)):
            pass

    def _look(self, path: str, size: int, table: str) -> None:
        location = Location.parse(path)
        try:
            with stored_before(self._storage, location):
                found = self._storage.size(location)
        except ObjectMissing as missing:
            raise MetadataInvalid(
                "A file that the commit adds does not exist.",
                table=table,
                path=path,
                rule="file-missing",
                hint="Write the file before you commit it.",
            ) from missing
        except LakewardenError as refusal:
            refusal.table = table
            raise
        if found != size:
            raise MetadataInvalid(
                f"A file that the commit adds has {found} bytes, but its entry states {size}.",
                table=table,
                path=path,
                rule="file-size",
                hint="Commit the size of the stored file.",
            )

    def _ahead(
        self, look: Callable[[tuple[str, int]], None], files: Iterator[tuple[str, int]]
    ) -> Iterator[None]:
        """Yield results of `look`, with at most one file in progress per thread."""
        under_way: deque[Future[None]] = deque()
        look = of_this_request(look)
        try:
            for file in files:
                if len(under_way) == self._threads:
                    yield under_way.popleft().result()
                under_way.append(self._pool.submit(look, file))
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def _files(added: Iterable[pa.Table]) -> Iterator[tuple[str, int]]:
    for entries in added:
        for batch in entries.select(ADDED_COLUMNS).to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
