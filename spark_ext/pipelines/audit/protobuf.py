"""Protocol Buffers' wire format, limited to what ORC footers need.

A message is read as the values of each field in the order of the bytes: numbers, and bytes for what has a
length. Groups, which ORC does not have, and what is truncated are `Malformed`.

Source: Protocol Buffers, "Encoding".
"""

from __future__ import annotations

import struct
from typing import Final

from catalog.client.thrift import Malformed

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST: Final = 70


class Message:
    """A message that was read once.

    Args:
        data: its bytes.

    Raises:
        Malformed: they are no message.
    """

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        at = 0
        while at < len(data):
            tag, at = varint(data, at)
            value, at = _value(data, at, tag & 7)
            if tag < 8:
                raise Malformed("a field without a number")
            self._fields.setdefault(tag >> 3, []).append(value)

    def number(self, field: int, default: int = 0) -> int:
        """Return a number; the last one if there are several.

        Raises:
            Malformed: it is no number.
        """
        found = self._fields.get(field, [default])[-1]
        if isinstance(found, bytes):
            raise Malformed("a field with an unexpected type")
        return found

    def numbers(self, field: int) -> list[int]:
        """Return all numbers of a field, packed or not.

        Raises:
            Malformed: they are none.
        """
        found: list[int] = []
        for each in self._fields.get(field, []):
            if isinstance(each, bytes):
                at = 0
                while at < len(each):
                    number, at = varint(each, at)
                    found.append(number)
            else:
                found.append(each)
        return found

    def has(self, field: int) -> bool:
        """Return whether a field is there."""
        return field in self._fields

    def parts(self, field: int) -> list[bytes]:
        """Return all values of a field that have a length: bytes, texts, messages.

        Raises:
            Malformed: they are none.
        """
        found = [each for each in self._fields.get(field, []) if isinstance(each, bytes)]
        if len(found) != len(self._fields.get(field, [])):
            raise Malformed("a field with an unexpected type")
        return found

    def text(self, field: int) -> str:
        """Return a text; the last one if there are several.

        Raises:
            Malformed: it is no text.
        """
        return (self.parts(field) or [b""])[-1].decode("utf-8", "replace")

    def messages(self, field: int) -> list[Message]:
        """Return the messages of a field.

        Raises:
            Malformed: they are none.
        """
        return [Message(each) for each in self.parts(field)]


def signed(number: int) -> int:
    """Return the number of a ``sint64``."""
    return number >> 1 ^ -(number & 1)


def _value(data: bytes, at: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return varint(data, at)
    if kind == _BYTES:
        length, at = varint(data, at)
    elif kind in (_FIXED32, _FIXED64):
        length = 4 if kind == _FIXED32 else 8
    else:
        raise Malformed("an unknown type")
    if at + length > len(data):
        raise Malformed("a value extends past the end")
    return data[at : at + length], at + length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and where it ends.

    Raises:
        Malformed: there is none of up to 64 bits.
    """
    result = shift = 0
    while at < len(data) and shift < _LONGEST:
        result |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            if result >> 64:
                raise Malformed("a number of more than 64 bits")
            return result, at
        shift += 7
    raise Malformed("the bytes are truncated")


def double(value: bytes) -> float:
    """Return the number of a ``double``.

    Raises:
        Malformed: it has not eight bytes.
    """
    if len(value) != 8:
        raise Malformed("a field with an unexpected type")
    found: float = struct.unpack("<d", value)[0]
    return found
