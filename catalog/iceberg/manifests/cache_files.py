"""The on-disk cache of decoded manifests and their indexes: one file per digest (`block_files`).

A file is written under another name, and renamed when it is complete, so that several processes can share the
directory. A file that was not written with the catalog's key, or that is damaged, is ignored and rewritten.

The directory is read whole only from time to time: each process lets it grow by a sixteenth of its maximum
size before it looks again. Files that were opened least recently are deleted first. Files that have other
names than those of a cache are never deleted, and do not count.

Mapped files end a process if another user makes them shorter (`block_files`), so a directory that others can
write is refused.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.crypto.secret import SecretBytes
from catalog.iceberg.manifests.block_files import BlockFile, Damaged, write_blocks
from catalog.iceberg.manifests.manifest import DecodedManifest
from catalog.iceberg.manifests.stored import StoredForm, blocks_of
from policy.errors import RequestInvalid

_LOG: Final = logging.getLogger(__name__)
#: Part of the file name, so that files of another layout are ignored.
_SUFFIX: Final = ".v2.blocks"
_INDEX_SUFFIX: Final = ".v2.index"
#: Names of files of this and of other layouts, and of files that are being written or were left half-written.
_OWN: Final = re.compile(r"[0-9a-f]{64}\.v[0-9]+\.[a-z]+|\.[0-9a-f]{16}\.tmp")
_HASHES: Final = "hashes"
_HASH_TYPE: Final = np.dtype("<u8")
#: A process looks through the directory again when it has added this part of its maximum size.
_LOOKS: Final = 16
DEFAULT_BYTES: Final = 8 << 30


class CacheFiles:
    """The files of decoded manifests.

    Args:
        directory: created if missing, readable only by its owner.
        key: returns the key by which files are authenticated; asked for once.
        max_bytes: maximum total size.

    Raises:
        RequestInvalid: the directory cannot be made, or other users can write it.
    """

    def __init__(
        self, directory: Path, key: Callable[[], SecretBytes], max_bytes: int = DEFAULT_BYTES
    ) -> None:
        _require_own(directory)
        self._directory = directory
        self._make_key = key
        self._key: SecretBytes | None = None
        self._max_bytes = max_bytes
        #: How much can be written before the directory is looked through again.
        self._room = 0
        self._lock = threading.Lock()

    def load(self, sha256: str) -> StoredForm | None:
        """Return the manifest with a digest, or None if there is no valid file of it."""
        file = self._open(sha256 + _SUFFIX)
        try:
            return None if file is None else StoredForm(file, lambda: self._discard(sha256 + _SUFFIX))
        except Damaged:
            self._discard(sha256 + _SUFFIX)
            return None

    def store(self, sha256: str, decoded: DecodedManifest) -> StoredForm | None:
        """Write the manifest, if the directory permits it, and return its stored form."""
        blocks, about = blocks_of(decoded)
        return self.load(sha256) if self._write(sha256 + _SUFFIX, blocks, about) else None

    def load_index(self, sha256: str) -> npt.NDArray[np.uint64] | None:
        """Return the index of the manifest with a digest, or None if there is no valid file of it."""
        file = self._open(sha256 + _INDEX_SUFFIX)
        try:
            return None if file is None else np.frombuffer(file.block(_HASHES), _HASH_TYPE).astype(np.uint64)
        except Damaged:
            self._discard(sha256 + _INDEX_SUFFIX)
            return None

    def store_index(self, sha256: str, index: npt.NDArray[np.uint64]) -> None:
        """Write the index of a manifest, if the directory permits it."""
        content = pa.py_buffer(index.astype(_HASH_TYPE, copy=False).tobytes())
        self._write(sha256 + _INDEX_SUFFIX, [(_HASHES, content)], None)

    def _open(self, name: str) -> BlockFile | None:
        path = self._directory / name
        try:
            file = BlockFile.open(path, name, self._secret())
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as problem:
            _LOG.warning("cannot read the manifest cache: %s", problem.strerror)
            return None
        except Damaged:
            self._discard(name)
            return None
        return file

    def _discard(self, name: str) -> None:
        _LOG.warning("ignored a damaged file in the manifest cache")
        try:
            (self._directory / name).unlink(missing_ok=True)
        except OSError as problem:
            _LOG.warning("cannot write the manifest cache: %s", problem.strerror)

    def _write(self, name: str, blocks: Iterable[tuple[str, pa.Buffer]], about: Any) -> bool:
        temporary = self._directory / f".{secrets.token_hex(8)}.tmp"
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                write_blocks(file, name, self._secret(), blocks, about)
            if not self._make_room(temporary):
                temporary.unlink()
                return False
            temporary.replace(self._directory / name)
        except OSError as problem:
            temporary.unlink(missing_ok=True)
            _LOG.warning("cannot write the manifest cache: %s", problem.strerror)
            return False
        return True

    def _secret(self) -> SecretBytes:
        if self._key is None:
            self._key = self._make_key()
        return self._key

    def _make_room(self, added: Path) -> bool:
        """Delete the files that were used least recently, if there can be too many.

        Returns:
            whether there is room for the new file.
        """
        size = added.stat().st_size
        kept = self._max_bytes - self._max_bytes // _LOOKS
        if size > kept:
            return False
        with self._lock:
            self._room -= size
            if self._room >= 0:
                return True
            files = sorted(self._others(added))
            total = size + sum(length for _, length, _ in files)
            for _, length, file in files:
                if total <= kept:
                    break
                file.unlink(missing_ok=True)
                total -= length
            self._room = min(self._max_bytes - total, self._max_bytes // _LOOKS)
        return True

    def _others(self, added: Path) -> Iterable[tuple[int, int, Path]]:
        for file in self._directory.iterdir():
            try:
                status = file.lstat()
            except FileNotFoundError:  # another process deleted it
                continue
            if file != added and _OWN.fullmatch(file.name) and not stat.S_ISDIR(status.st_mode):
                yield status.st_mtime_ns, status.st_size, file


def _require_own(directory: Path) -> None:
    """Make a directory, if it is missing, that no other user can write."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as problem:
        raise _unusable(directory, f"cannot be used: {problem.strerror}") from problem
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unusable(directory, "can be written by other users")


def _unusable(directory: Path, problem: str) -> RequestInvalid:
    return RequestInvalid(
        f"The directory of the manifest cache {problem}.",
        path=str(directory),
        rule="settings",
        hint="Set `cache.directory` to a directory that belongs to the user of the service, with mode 0700.",
    )
