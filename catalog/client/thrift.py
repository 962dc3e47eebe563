"""Thrift's compact protocol, limited to what Parquet footers need.

- A structure is read as it stands, unknown fields included, and writes back to the same meaning.
- Bytes that are not exactly one structure, a field that comes twice, a number too large for its type (which
  other readers would cut), lengths beyond the bytes at hand and nesting beyond a bound are `Malformed`.
- What nobody here looks into may be passed over. Of that only where it ends is known, by the rules that all
  readers go by; it writes back byte for byte.

Source: Apache Thrift, "Thrift Compact protocol".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12
_INTEGERS: Final = {I16: 16, I32: 32, I64: 64}
_NESTED: Final = frozenset({LIST, SET, STRUCT})
#: Bytes of a value in a field; in a list, a boolean has one.
_WIDTHS: Final = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}
_MAX_DEPTH: Final = 32
MOST_UNCHECKED: Final = 64 << 10
"""Bytes that are made into structures before they are authenticated."""


class Malformed(ValueError):
    """Bytes that are no such structure."""


class Shape(dict[int, "Shape"]):
    """Which structures and lists of a structure, or of those in a list, are read, each with its own shape."""


class Passed(bytes):
    """A structure or list that was passed over."""


class Value(NamedTuple):
    """A field of a structure: its type, and what it holds.

    That is True, int, bytes, `Items`, `Struct` or `Passed`.
    """

    kind: int
    held: Any


class Items(NamedTuple):
    """A list: the type of its elements, and these."""

    kind: int
    elements: list[Any]


@dataclass(slots=True)
class Struct:
    """A structure: its fields by id, in the order of the bytes."""

    fields: dict[int, Value] = field(default_factory=dict)

    def get(self, number: int, kind: int) -> Any:
        """What a field holds; None if it is not there.

        Raises:
            Malformed: it is of another type.
        """
        found = self.fields.get(number)
        if found is None:
            return None
        if found.kind != kind:
            raise Malformed("a field with an unexpected type")
        return found.held

    def structs(self, number: int) -> list[Struct]:
        """The elements of a list of structures; none if it is not there.

        Raises:
            Malformed: it is no such list.
        """
        items = self.get(number, LIST)
        if items is None or not items.elements:
            return []
        if items.kind != STRUCT:
            raise Malformed("a list whose elements are not structures")
        return list(items.elements)


def read(data: bytes, start: int = 0, shape: Shape | None = None) -> tuple[Struct, int]:
    """The structure that begins at a place, and where it ends.

    Args:
        data: the bytes.
        start: the place.
        shape: what of it is read; by default everything.

    Raises:
        Malformed: there is none.
    """
    try:
        return _struct(data, start, 0, shape)
    except IndexError as error:
        raise Malformed("the bytes are truncated") from error


def field_of(data: bytes, number: int) -> tuple[Value | None, int]:
    """One field of the structure that the bytes begin with, and where that ends.

    Nothing else of it is kept, and of the field no more than 64 KiB: for bytes that anyone can have written.

    Raises:
        Malformed: there is no structure, or the field is longer.
    """
    try:
        return _only(data, number)
    except IndexError as error:
        raise Malformed("the bytes are truncated") from error


def write(structure: Struct) -> bytes:
    """A structure as bytes."""
    output = bytearray()
    _put_struct(output, structure)
    return bytes(output)


def _struct(data: bytes, at: int, depth: int, shape: Shape | None) -> tuple[Struct, int]:
    if depth > _MAX_DEPTH:
        raise Malformed("nested too deeply")
    fields: dict[int, Value] = {}
    number = 0
    while head := data[at]:
        number, at = _number(data, at, number)
        kind = head & 0x0F
        if number in fields:
            raise Malformed("a field is repeated")
        held: Any
        if kind in (TRUE, FALSE):
            held = kind == TRUE
        elif shape is None or kind not in _NESTED:
            held, at = _value(data, at, kind, depth, None)
        elif number in shape:
            held, at = _value(data, at, kind, depth, shape[number])
        else:
            start, at = at, _end(data, at, kind, depth)
            held = Passed(data[start:at])
        fields[number] = Value(kind, held)
    return Struct(fields), at + 1


def _only(data: bytes, wanted: int) -> tuple[Value | None, int]:
    """One field of the structure that the bytes begin with; the others are passed over."""
    found: Value | None = None
    number = at = 0
    while head := data[at]:
        number, start = _number(data, at, number)
        kind = head & 0x0F
        at = _end(data, start, kind, 0)
        if number == wanted:
            if found is not None or at - start > MOST_UNCHECKED:
                raise Malformed("a field is repeated or too long")
            plain = kind in (TRUE, FALSE)
            found = Value(kind, kind == TRUE if plain else _value(data, start, kind, 0, None)[0])
    return found, at + 1


def _number(data: bytes, at: int, last: int) -> tuple[int, int]:
    """The number of the field whose head is at a place, and where its value begins."""
    step = data[at] >> 4
    number, at = (last + step, at + 1) if step else _integer(data, at + 1, 16)
    if number >= 1 << 15:
        raise Malformed("a number that is too large for its type")
    return number, at


def _value(data: bytes, at: int, kind: int, depth: int, shape: Shape | None) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _integer(data, at, _INTEGERS[kind])
    if kind == BINARY:
        length, at = _varint(data, at)
        return _bytes(data, at, length)
    if kind == STRUCT:
        return _struct(data, at, depth + 1, shape)
    if kind in (LIST, SET):
        return _items(data, at, depth + 1, shape)
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return _bytes(data, at, 8)
    raise Malformed("an unknown type")


def _items(data: bytes, at: int, depth: int, shape: Shape | None) -> tuple[Items, int]:
    kind, count, at = _list(data, at)
    if depth > _MAX_DEPTH:
        raise Malformed("nested too deeply")
    if kind in (TRUE, FALSE):
        return Items(kind, list(data[at : at + count])), at + count
    elements = []
    for _ in range(count):
        held, at = _value(data, at, kind, depth, shape)
        elements.append(held)
    return Items(kind, elements), at


def _bytes(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if end > len(data):
        raise Malformed("a value extends past the end")
    return data[at:end], end


def _integer(data: bytes, at: int, bits: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    if value >> bits:
        raise Malformed("a number that is too large for its type")
    return (value >> 1) ^ -(value & 1), at


def _end(data: bytes, at: int, kind: int, depth: int) -> int:
    """Where a value ends that begins at a place."""
    if kind == STRUCT:
        return _end_of_struct(data, at, depth + 1)
    if kind in (LIST, SET):
        return _end_of_list(data, at, depth + 1)
    if kind in _INTEGERS:
        return _varint(data, at)[1]
    if kind == BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind in _WIDTHS:
        return at + _WIDTHS[kind]
    raise Malformed("an unknown type")


def _end_of_struct(data: bytes, at: int, depth: int) -> int:
    """Most of a footer is passed over: here is where opening a file spends its time."""
    if depth > _MAX_DEPTH:
        raise Malformed("nested too deeply")
    while head := data[at]:
        at += 1
        if head < 0x10:
            at = _varint(data, at)[1]
        kind = head & 0x0F
        if I16 <= kind <= I64:
            while data[at] > 0x7F:
                at += 1
            at += 1
        elif kind == BINARY and data[at] < 0x80:
            at += data[at] + 1
        else:
            at = _end(data, at, kind, depth)
    return at + 1


def _end_of_list(data: bytes, at: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise Malformed("nested too deeply")
    kind, count, at = _list(data, at)
    if kind in (TRUE, FALSE):
        return at + count
    for _ in range(count):
        at = _end(data, at, kind, depth)
    return at


def _list(data: bytes, at: int) -> tuple[int, int, int]:
    """The type of a list's elements, how many there are, and where they begin."""
    head = data[at]
    count, at = _varint(data, at + 1) if head >> 4 == 15 else (head >> 4, at + 1)
    if count > len(data) - at:
        raise Malformed("a list with more elements than bytes")
    return head & 0x0F, count, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    if (byte := data[at]) < 0x80:
        return byte, at + 1
    result = shift = 0
    while (byte := data[at]) > 0x7F:
        result |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than 64 bits")
    return result | byte << shift, at + 1


def _put_struct(output: bytearray, structure: Struct) -> None:
    last = 0
    for number, (kind, held) in structure.fields.items():
        kept = (TRUE if held else FALSE) if kind in (TRUE, FALSE) else kind
        if 0 < number - last < 16:
            output.append((number - last) << 4 | kept)
        else:
            output.append(kept)
            _put_varint(output, number << 1 ^ number >> 63)
        last = number
        if kind not in (TRUE, FALSE):
            _put_value(output, kind, held)
    output.append(0)


def _put_value(output: bytearray, kind: int, held: Any) -> None:
    if isinstance(held, Passed):
        output += held
    elif kind in _INTEGERS:
        _put_varint(output, held << 1 ^ held >> 63)
    elif kind == BINARY:
        _put_varint(output, len(held))
        output += held
    elif kind == STRUCT:
        _put_struct(output, held)
    elif kind in (LIST, SET):
        _put_items(output, held)
    elif kind == DOUBLE:
        output += held
    else:
        output.append(held)


def _put_items(output: bytearray, items: Items) -> None:
    count = len(items.elements)
    if count < 15:
        output.append(count << 4 | items.kind)
    else:
        output.append(0xF0 | items.kind)
        _put_varint(output, count)
    for each in items.elements:
        _put_value(output, items.kind, each)


def _put_varint(output: bytearray, number: int) -> None:
    while number > 0x7F:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
