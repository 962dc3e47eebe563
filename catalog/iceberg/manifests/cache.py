"""Caches decoded manifests by the digest of their bytes.

Rules:

- The key is the digest of the manifest's bytes, so an entry is valid forever. The caller reads the bytes and
  computes the digest each time; the path is not a key.
- Memory is bounded; the least recently used entry is evicted first. A directory, if there is one, is bounded
  too.
- Threads that need the same digest at once wait for one decoding. A failure is not cached.
- A file in the directory contains the digest of its own content. A file that does not match is ignored and
  rewritten. Only the catalog must have access to the directory: that digest detects damage, not forgery.
- The directory only saves time: if it cannot be written or read, the manifest is decoded, with a warning.
- The index of a manifest (hashes of its files) is cached in the same way, in a quarter of the memory.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from catalog.iceberg.avro.limits import DEFAULT_LIMITS, DecodeLimits
from catalog.iceberg.manifests.cache_files import CacheFiles
from catalog.iceberg.manifests.manifest import DecodedManifest, decode_manifest

#: Sorted 64-bit hashes of the files in a manifest.
Index = npt.NDArray[np.uint64]

_SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}")


class ManifestCache:
    """A cache of decoded manifests.

    Args:
        max_bytes: maximum Arrow memory; 0 caches nothing in memory.
        directory: caches decoded manifests on disk too; created if missing, readable only by its owner.
        max_directory_bytes: maximum size of the directory.
        limits: limits for decoding.
    """

    def __init__(
        self,
        max_bytes: int,
        directory: Path | None = None,
        *,
        max_directory_bytes: int = 4 << 30,
        limits: DecodeLimits = DEFAULT_LIMITS,
    ) -> None:
        self._max_bytes = max_bytes
        self._limits = limits
        self._files = None if directory is None else CacheFiles(directory, max_directory_bytes)
        self._kept: OrderedDict[str, DecodedManifest] = OrderedDict()
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        self._index_bytes = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self._working: dict[str, threading.Lock] = {}

    @property
    def nbytes(self) -> int:
        """Return the size of the cached Arrow data in bytes."""
        return self._bytes

    def get(self, sha256: str, data: bytes, *, path: str) -> DecodedManifest:
        """Return the decoded form of `data`.

        Args:
            sha256: the SHA-256 of `data` in lower-case hex, computed by the caller.
            data: the whole manifest.
            path: its location, for the error.

        Raises:
            MetadataInvalid: the bytes are malformed, or break a limit.
        """
        if not _SHA256_HEX.fullmatch(sha256):
            raise ValueError("a lower-case hexadecimal SHA-256 is needed")
        found = self._look_up(sha256)
        if found is not None:
            return found
        with self._lock:
            working = self._working.setdefault(sha256, threading.Lock())
        with working:
            try:
                return self._look_up(sha256) or self._make(sha256, data, path)
            finally:
                with self._lock:
                    self._working.pop(sha256, None)

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

    def _look_up(self, sha256: str) -> DecodedManifest | None:
        with self._lock:
            found = self._kept.get(sha256)
            if found is not None:
                self._kept.move_to_end(sha256)
            return found

    def _make(self, sha256: str, data: bytes, path: str) -> DecodedManifest:
        decoded = None if self._files is None else self._files.load(sha256)
        if decoded is None:
            decoded = decode_manifest(data, path=path, limits=self._limits)
            if self._files is not None:
                self._files.store(sha256, decoded)
        self._keep(sha256, decoded)
        return decoded

    def _keep(self, sha256: str, decoded: DecodedManifest) -> None:
        size = decoded.nbytes
        if size > self._max_bytes:
            return
        with self._lock:
            self._kept[sha256] = decoded
            self._bytes += size
            while self._bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.nbytes
