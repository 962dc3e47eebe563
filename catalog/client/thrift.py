"""Thrift's compact protocol, as far as Parquet's footers need it.

- A structure is read as it stands, unknown fields included, and writes back to the same meaning.
- Bytes that are not exactly one structure, a field that comes twice, a number too large for its type (which
  other readers would cut), lengths beyond the bytes at hand and nesting beyond a bound are `Malformed`.

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
_MAX_DEPTH: Final = 32
MOST_UNCHECKED: Final = 64 << 10
"""Bytes that are made into structures before anybody has authenticated them."""


class Malformed(ValueError):
    """Bytes that are no such structure."""


class Value(NamedTuple):
    """A field of a structure: its type, and what it holds (True, int, bytes, `Items` or `Struct`)."""

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
            raise Malformed("a field is of another type")
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
            raise Malformed("a list holds no structures")
        return list(items.elements)


def read(data: bytes, start: int = 0) -> tuple[Struct, int]:
    """The structure that begins at a place, and where it ends.

    Raises:
        Malformed: there is none.
    """
    reader = _Reader(data, start)
    try:
        return reader.struct(0), reader.at
    except IndexError as error:
        raise Malformed("the bytes end too early") from error


def field_of(data: bytes, number: int) -> tuple[Value | None, int]:
    """One field of the structure that the bytes begin with, and where that ends.

    Nothing else of it is kept, and of the field no more than 64 KiB: for bytes that anybody may have written.

    Raises:
        Malformed: there is no structure, or the field is longer.
    """
    reader = _Reader(data, 0)
    try:
        return reader.only(number), reader.at
    except IndexError as error:
        raise Malformed("the bytes end too early") from error


def write(structure: Struct) -> bytes:
    """A structure as bytes."""
    output = bytearray()
    _put_struct(output, structure)
    return bytes(output)


class _Reader:
    """Reads forward from a place."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def struct(self, depth: int) -> Struct:
        if depth > _MAX_DEPTH:
            raise Malformed("nested too deep")
        fields: dict[int, Value] = {}
        number = 0
        while head := self._byte():
            kind = head & 0x0F
            number = self._number(head, number)
            if number in fields:
                raise Malformed("a field comes twice")
            fields[number] = Value(kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth))
        return Struct(fields)

    def only(self, wanted: int) -> Value | None:
        """One field of the structure that begins here; the others are passed over."""
        found: Value | None = None
        number = 0
        while head := self._byte():
            kind = head & 0x0F
            number = self._number(head, number)
            start = self.at
            self._pass(kind, 0)
            if number == wanted:
                if found is not None or self.at - start > MOST_UNCHECKED:
                    raise Malformed("a field comes twice, or is too long")
                again = _Reader(self._data, start)
                found = Value(kind, kind == TRUE if kind in (TRUE, FALSE) else again._value(kind, 0))
        return found

    def _pass(self, kind: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise Malformed("nested too deep")
        if kind == STRUCT:
            while head := self._byte():
                self._number(head, 0)
                self._pass(head & 0x0F, depth + 1)
        elif kind in (LIST, SET):
            inner, count = self._list()
            for _ in range(count):
                self._pass(BYTE if inner in (TRUE, FALSE) else inner, depth + 1)
        elif kind not in (TRUE, FALSE):
            self._value(kind, depth)

    def _number(self, head: int, last: int) -> int:
        number = last + (head >> 4) if head >> 4 else self._integer(16)
        if number >= 1 << 15:
            raise Malformed("a number that is too large for its type")
        return number

    def _list(self) -> tuple[int, int]:
        """The type of a list's elements, and how many there are."""
        head = self._byte()
        count = self._varint() if head >> 4 == 15 else head >> 4
        if count > len(self._data) - self.at:
            raise Malformed("a list of more elements than there are bytes")
        return head & 0x0F, count

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._integer(_INTEGERS[kind])
        if kind == BINARY:
            return self._bytes(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._items(depth + 1)
        if kind == BYTE:
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
        raise Malformed("an unknown type")

    def _items(self, depth: int) -> Items:
        kind, count = self._list()
        if depth > _MAX_DEPTH:
            raise Malformed("nested too deep")
        if kind in (TRUE, FALSE):
            return Items(kind, [self._byte() for _ in range(count)])
        return Items(kind, [self._value(kind, depth) for _ in range(count)])

    def _byte(self) -> int:
        value = self._data[self.at]
        self.at += 1
        return value

    def _bytes(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._data):
            raise Malformed("a value is longer than the bytes at hand")
        value = self._data[self.at : end]
        self.at = end
        return value

    def _integer(self, bits: int) -> int:
        value = self._varint()
        if value >> bits:
            raise Malformed("a number that is too large for its type")
        return _signed(value)

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Malformed("a number of more than 64 bits")
        return result


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


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
    if kind in _INTEGERS:
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
