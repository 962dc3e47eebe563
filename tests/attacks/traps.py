"""Traps that show what an attack really reached: files that were opened, keys that were asked for."""

from __future__ import annotations

import ctypes
import logging
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.service.services import Services
from tests.support.lake import Lake

_IN_OPEN, _IN_ISDIR, _IN_Q_OVERFLOW = 0x20, 0x40000000, 0x4000
_HEADER = struct.Struct("iIII")


class OpenWatch:
    """Sees every file below some directories that anything on this machine opens.

    The kernel reports it (inotify), so it makes no difference whether Python or PyArrow opens it. Opening a
    directory counts for nothing.
    """

    def __init__(self, *roots: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())
        self._watched: dict[int, Path] = {}
        for root in roots:
            for directory in (root, *(each for each in root.rglob("*") if each.is_dir())):
                number = self._libc.inotify_add_watch(self._fd, os.fsencode(directory), _IN_OPEN)
                assert number >= 0, os.strerror(ctypes.get_errno())
                self._watched[number] = directory

    def opened(self) -> list[Path]:
        """The files that were opened since the last question."""
        found = []
        while data := self._read():
            found += list(self._events(data))
        return found

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return b""

    def _events(self, data: bytes) -> Iterator[Path]:
        at = 0
        while at < len(data):
            number, mask, _, length = _HEADER.unpack_from(data, at)
            name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
            at += _HEADER.size + length
            assert not mask & _IN_Q_OVERFLOW
            if mask & _IN_OPEN and not mask & _IN_ISDIR:
                yield self._watched[number] / os.fsdecode(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


class WatchedKms(KmsClient):
    """A KMS that counts what is asked of the real one behind it."""

    def __init__(self, behind: KmsClient) -> None:
        self._behind = behind
        self.unwrapped = 0

    @property
    def identifier(self) -> str:
        return self._behind.identifier

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        return self._behind.create_key(master_key_id, length, context)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        self.unwrapped += 1
        return self._behind.get_key(wrapped, context)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        return self._behind.rewrap_keys(items)


@contextmanager
def no_key_released(lake: Lake) -> Iterator[WatchedKms]:
    """Open the catalog anew, with no key in its memory, and see that no key is asked for inside."""
    kms = WatchedKms(lake.kms)
    lake.services.close()
    lake.services = Services.open(lake.settings, kms)
    yield kms
    assert kms.unwrapped == 0


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextmanager
def s3_requests() -> Iterator[list[str]]:
    """The request lines that moto's server answers meanwhile, to every client."""
    lines: list[str] = []
    logger, handler = logging.getLogger("werkzeug"), _Lines(lines)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
