"""The tail of an ORC file, as far as it is judged here: the rows of its stripes, and whether it is encrypted.

Bytes that are no such message, and lengths beyond the bytes at hand, are refused.

Source: Apache ORC specification v1, "File Tail", orc_proto.proto; Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from catalog.client.errors import damaged

# Of FileTail, Footer and StripeInformation.
_FOOTER, _STRIPES, _ENCRYPTION, _ROWS = 2, 3, 10, 5
_VARINT, _BYTES = 0, 2
_FIXED: Final = {1: 8, 5: 4}


@dataclass(frozen=True, slots=True)
class Tail:
    """What the tail says.

    Attributes:
        stripes: the rows of each stripe.
        encrypted: whether columns are encrypted.
    """

    stripes: tuple[int, ...]
    encrypted: bool

    @classmethod
    def of(cls, message: bytes) -> Tail:
        """What ORC's reader has as the tail of a file, parts that it does not know included.

        Raises:
            DataFileDamaged: that is none.
        """
        footer = [field for held in _all(message, _FOOTER, bytes) for field in _fields(held)]
        stripes = (held for number, held in footer if number == _STRIPES and isinstance(held, bytes))
        rows = tuple(sum(_all(each, _ROWS, int)) for each in stripes)
        return cls(rows, any(number == _ENCRYPTION for number, _ in footer))


def _all(message: bytes, wanted: int, kind: type) -> Iterator[Any]:
    """What the fields of one number hold, where it is of this type; ORC's reader passes over others, too."""
    return (held for number, held in _fields(message) if number == wanted and isinstance(held, kind))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: integers, and bytes of what is longer."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        held: Any = None
        if kind == _VARINT:
            held, at = _varint(message, at)
        elif kind == _BYTES:
            length, at = _varint(message, at)
            held, at = message[at : at + length], at + length
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise _no_tail()
        yield tag >> 3, held
    if at > len(message):
        raise _no_tail()


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """An integer, and the place behind it."""
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _no_tail()


def _no_tail() -> Exception:
    return damaged("The footer of the file is damaged.", "data-file")
