"""Secret bytes that `repr`, `str`, JSON and pickle do not reveal.

Rules:
- `reveal` and `lent` are the two doors. `repr`, `str`, `format`, JSON and pickle give nothing away; pickle is
  refused.
- Copies of an object that holds a secret share it, so that `wipe` reaches every holder.
- A secret is overwritten when its last holder lets go of it. What was revealed before are bytes of Python's,
  which nobody can overwrite: so `lent`, wherever what takes the secret can take a buffer.
- Secrets are compared in constant time and cannot be hashed.
- A library that logs the answers of a KMS at DEBUG is kept from it (`hush`), whatever levels are set.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, SupportsIndex

_MASK = "SecretBytes(****)"


class SecretBytes:
    """Secret bytes; only `reveal` and `lent` return them.

    Args:
        data: the secret; it is copied.
    """

    __slots__ = ("_data",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: bytes | bytearray) -> None:
        self._data: bytearray | None = bytearray(data)

    @classmethod
    def taking(cls, buffer: bytearray) -> SecretBytes:
        """The secret in a buffer, which is overwritten."""
        taken = cls(buffer)
        buffer[:] = bytes(len(buffer))
        return taken

    def reveal(self) -> bytes:
        """Return the secret.

        Raises:
            ValueError: the secret has been wiped.
        """
        return bytes(self._held())

    @contextmanager
    def lent(self) -> Iterator[memoryview]:
        """Lend the secret without a copy, as a buffer for the duration of the block.

        Raises:
            ValueError: the secret has been wiped.
        """
        yield memoryview(self._held()).toreadonly()

    def wipe(self) -> None:
        """Overwrite the secret as far as Python permits; bytes revealed before stay in memory."""
        if self._data is not None:
            self._data[:] = bytes(len(self._data))
            self._data = None

    def _held(self) -> bytearray:
        if self._data is None:
            raise ValueError("the secret has been wiped")
        return self._data

    def __del__(self) -> None:
        # If the constructor failed, there is no data.
        if hasattr(self, "_data"):
            self.wipe()

    def __len__(self) -> int:
        return 0 if self._data is None else len(self._data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretBytes):
            return NotImplemented
        return hmac.compare_digest(self._held(), other._held())

    def __repr__(self) -> str:
        return _MASK

    def __format__(self, spec: str) -> str:
        return format(_MASK, spec)

    def __copy__(self) -> SecretBytes:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> SecretBytes:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a secret cannot be pickled")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret has no state to copy")


def hush(logger: str) -> None:
    """Keep a library's logger from writing at DEBUG, where it would log responses with keys.

    Args:
        logger: its exact name; loggers below it are others.
    """
    named = logging.getLogger(logger)
    if _above_debug not in named.filters:
        named.addFilter(_above_debug)


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
