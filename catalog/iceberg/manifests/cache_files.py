"""The on-disk cache of decoded manifests and their indexes: one file per digest.

A file begins with the SHA-256 of the rest. For a decoded manifest, the rest is the length of the first
stream, the entries as an Arrow IPC stream with the manifest's header in the schema metadata, and the
statistics as another stream. For an index, it is its 64-bit hashes. A file is written under another name, and
renamed when complete.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import secrets
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.iceberg.manifests.manifest import DecodedManifest, ManifestHeader
from catalog.iceberg.manifests.manifest_list import ManifestContent

_LOG: Final = logging.getLogger(__name__)
_HEADER: Final = b"lakewarden.manifest"
_DIGEST_BYTES: Final = 32
_LENGTH_BYTES: Final = 8
#: Part of the file name, so that files of another layout are ignored.
_SUFFIX: Final = ".v1.arrow"
_INDEX_SUFFIX: Final = ".v1.index"
_HASH_TYPE: Final = np.dtype("<u8")


class CacheFiles:
    """The files of decoded manifests.

    Args:
        directory: created if missing.
        max_bytes: maximum total size; the oldest files are deleted first.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._max_bytes = max_bytes

    def load(self, sha256: str) -> DecodedManifest | None:
        """Return the manifest with a digest, or None if there is no valid file of it."""
        body = self._read(sha256 + _SUFFIX)
        return None if body is None else _unpack(body)

    def store(self, sha256: str, decoded: DecodedManifest) -> None:
        """Write the manifest, if the directory permits it."""
        self._write(sha256 + _SUFFIX, _pack(decoded))

    def load_index(self, sha256: str) -> npt.NDArray[np.uint64] | None:
        """Return the index of the manifest with a digest, or None if there is no valid file of it."""
        body = self._read(sha256 + _INDEX_SUFFIX)
        return None if body is None else np.frombuffer(body, _HASH_TYPE).astype(np.uint64, copy=False)

    def store_index(self, sha256: str, index: npt.NDArray[np.uint64]) -> None:
        """Write the index of a manifest, if the directory permits it."""
        self._write(sha256 + _INDEX_SUFFIX, index.astype(_HASH_TYPE, copy=False).tobytes())

    def _read(self, name: str) -> bytes | None:
        try:
            content = (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            _LOG.warning("cannot read the manifest cache: %s", problem.strerror)
            return None
        body = content[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != content[:_DIGEST_BYTES]:
            _LOG.warning("ignored a damaged file in the manifest cache")
            return None
        return body

    def _write(self, name: str, body: bytes) -> None:
        temporary = self._directory / f".{secrets.token_hex(8)}.tmp"
        try:
            self._make_room(len(body))
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(body).digest())
                file.write(body)
            temporary.replace(self._directory / name)
        except OSError as problem:
            temporary.unlink(missing_ok=True)
            _LOG.warning("cannot write the manifest cache: %s", problem.strerror)

    def _make_room(self, size: int) -> None:
        files = sorted(
            (file.stat().st_mtime_ns, file.stat().st_size, file) for file in self._directory.iterdir()
        )
        total = size + sum(length for _, length, _ in files)
        for _, length, file in files:
            if total <= self._max_bytes:
                return
            file.unlink(missing_ok=True)
            total -= length


def _pack(decoded: DecodedManifest) -> bytes:
    header = json.dumps(dataclasses.asdict(decoded.header)).encode()
    entries = _stream(decoded.entries.replace_schema_metadata({_HEADER: header}))
    return len(entries).to_bytes(_LENGTH_BYTES, "big") + entries + _stream(decoded.statistics)


def _unpack(body: bytes) -> DecodedManifest:
    split = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "big")
    entries = pa.ipc.open_stream(pa.py_buffer(body)[_LENGTH_BYTES:split]).read_all()
    statistics = pa.ipc.open_stream(pa.py_buffer(body)[split:]).read_all()
    header = json.loads(entries.schema.metadata[_HEADER])
    known = ManifestHeader(header["partition_spec_id"], ManifestContent(header["content"]))
    return DecodedManifest(known, entries.replace_schema_metadata(None), statistics)


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
