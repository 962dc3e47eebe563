"""Caches decoded manifests by the digest of their bytes.

Rules:

- The key is the digest of the manifest's bytes, so an entry is valid forever. The caller reads the bytes and
  computes the digest each time; the path is not a key.
- With a directory, manifests that take long to decode are kept on disk, and of these, only what is used is
  read (`stored`). A file counts only if it was written with the catalog's key (`block_files`).
- Memory is bounded: by the bytes of decoded manifests, and by the number of open files. The least recently
  used entry is evicted first. The directory is bounded, too.
- Threads that need the same digest at once wait for one decoding. A failure is not cached.
- The directory only saves time: if it cannot be written or read, the manifest is decoded, with a warning.
  What is found damaged only when it is used is an error once; the next request decodes the manifest.
- The index of a manifest (hashes of its files) is cached in the same way, in a quarter of the memory.
"""

from __future__ import annotations

import re
import resource
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.base.lookups import Lookups
from catalog.base.recent import Recent
from catalog.iceberg.avro.limits import DEFAULT_LIMITS, DecodeLimits
from catalog.iceberg.manifests.cache_files import CacheFiles
from catalog.iceberg.manifests.manifest import DecodedManifest, decode_manifest
from catalog.iceberg.manifests.ranges import range_count
from catalog.iceberg.manifests.stored import StoredForm, StoredManifest

#: Sorted 64-bit hashes of the files in a manifest.
Index = npt.NDArray[np.uint64]

#: Shorter manifests are decoded as fast as a file of their decoded form is opened.
STORED_FROM: Final = 1 << 15
#: The maximum number of stored manifests that are open: a part of the files that the process can have open.
_OPEN: Final = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

_SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")


class ManifestCache:
    """A cache of decoded manifests.

    Args:
        max_bytes: maximum Arrow memory; 0 caches nothing in memory.
        files: caches decoded manifests on disk, too.
        stored_from: the length in bytes from which manifests are cached on disk.
        limits: limits for decoding.

    Attributes:
        lookups: a miss is a manifest that had to be decoded.
    """

    def __init__(
        self,
        max_bytes: int,
        files: CacheFiles | None = None,
        *,
        stored_from: int = STORED_FROM,
        limits: DecodeLimits = DEFAULT_LIMITS,
    ) -> None:
        self._max_bytes = max_bytes
        self._limits = limits
        self._files = files
        self._stored_from = stored_from
        self._kept: OrderedDict[str, DecodedManifest] = OrderedDict()
        self._stored: Recent[StoredForm] = Recent(_OPEN, lambda _: 1)
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        self._index_bytes = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self._working: dict[str, threading.Lock] = {}
        self.lookups = Lookups()

    @property
    def nbytes(self) -> int:
        """Return the size of the cached Arrow data in bytes."""
        return self._bytes

    def get(
        self, sha256: str, data: bytes, *, path: str, ranges: Sequence[int] | None = None
    ) -> DecodedManifest:
        """Return the decoded form of `data`.

        Args:
            sha256: the SHA-256 of `data` in lower-case hex, computed by the caller.
            data: the whole manifest.
            path: its location, for the error.
            ranges: the ranges of entries that are wanted (`stored`); None for all. All are returned if the
                manifest is not stored.

        Raises:
            MetadataInvalid: the bytes are malformed, or break a limit.
        """
        if not _SHA256_HEX.fullmatch(sha256):
            raise ValueError("a lower-case hexadecimal SHA-256 is needed")
        found = self._look_up(sha256, ranges)
        if found is not None:
            return found
        with self._lock:
            working = self._working.setdefault(sha256, threading.Lock())
        with working:
            try:
                found = self._look_up(sha256, ranges)
                return self._make(sha256, data, path, ranges) if found is None else found
            finally:
                with self._lock:
                    self._working.pop(sha256, None)

    def stored(self, sha256: str) -> StoredForm | None:
        """Return the stored form of the manifest with a digest, if there is one."""
        found = self._stored.known(sha256)
        if found is not None and found.damaged:
            self._stored.forget(sha256)
            found = None
        if found is None and self._files is not None:
            loaded = self._files.load(sha256)
            found = None if loaded is None else self._stored.get(sha256, lambda: loaded)
        return found

    def index(self, sha256: str) -> Index | None:
        """Return the cached index of the manifest with a digest, if there is one."""
        with self._lock:
            found = self._indexes.get(sha256)
            if found is not None:
                self._indexes.move_to_end(sha256)
                return found
        found = None if self._files is None else self._files.load_index(sha256)
        if found is not None:
            self._remember(sha256, found)
        return found

    def keep_index(self, sha256: str, index: Index) -> None:
        """Cache the index of the manifest with a digest."""
        if self._files is not None:
            self._files.store_index(sha256, index)
        self._remember(sha256, index)

    def _remember(self, sha256: str, index: Index) -> None:
        with self._lock:
            replaced = self._indexes.pop(sha256, None)
            self._index_bytes += index.nbytes - (0 if replaced is None else replaced.nbytes)
            self._indexes[sha256] = index
            while self._index_bytes > self._max_bytes // 4:
                _, dropped = self._indexes.popitem(last=False)
                self._index_bytes -= dropped.nbytes

    def _look_up(self, sha256: str, ranges: Sequence[int] | None) -> DecodedManifest | None:
        with self._lock:
            found = self._kept.get(sha256)
            if found is not None:
                self._kept.move_to_end(sha256)
        if found is None:
            form = self._stored.known(sha256)
            found = None if form is None or form.damaged else _sound(form, ranges)
        if found is not None:
            self.lookups.found(True)
        return found

    def _make(self, sha256: str, data: bytes, path: str, ranges: Sequence[int] | None) -> DecodedManifest:
        if self._files is None or len(data) < self._stored_from:
            return self._keep(sha256, self._decode(data, path))
        form = self.stored(sha256)
        found = None if form is None else _sound(form, ranges)
        if found is not None:
            self.lookups.found(True)
            return found
        self._stored.forget(sha256)
        decoded = self._decode(data, path)
        form = self._files.store(sha256, decoded)
        if form is None:
            return self._keep(sha256, decoded)
        return StoredManifest(self._stored.get(sha256, lambda: form), ranges)

    def _decode(self, data: bytes, path: str) -> DecodedManifest:
        self.lookups.found(False)
        return decode_manifest(data, path=path, limits=self._limits)

    def _keep(self, sha256: str, decoded: DecodedManifest) -> DecodedManifest:
        size = decoded.nbytes
        if size > self._max_bytes:
            return decoded
        with self._lock:
            self._kept[sha256] = decoded
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.nbytes
        return decoded


def _sound(form: StoredForm, ranges: Sequence[int] | None) -> StoredManifest | None:
    """Return some ranges of a stored manifest; None if their entries are damaged."""
    wanted = range(range_count(form.rows)) if ranges is None else ranges
    return StoredManifest(form, wanted) if form.has_entries(wanted) else None
