"""Reads what class files declare: parents, fields, methods and their types (JVM specification, chapter 4)."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PUBLIC, _STATIC, _ABSTRACT = 0x0001, 0x0008, 0x0400
_TYPE = re.compile(r"\[*(?:[BCDFIJSZV]|L[^;]+;)")
#: Bytes of constants by their tag, beside texts, which have a length of their own.
_CONSTANTS = {
    **{3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4},
    **{15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2},
}
#: Texts, and what takes two numbers.
_TEXT, _LONG, _LARGE = 1, 5, {5, 6}


@dataclass(frozen=True)
class Declared:
    """A field or method.

    Attributes:
        owner: the class, with dots.
        name: its own.
        parameters: types of a method's parameters, as descriptors.
        result: type of a field, or of what a method returns.
    """

    owner: str
    name: str
    parameters: tuple[str, ...]
    result: str
    is_method: bool
    is_public: bool
    is_static: bool


@dataclass(frozen=True)
class ClassHead:
    """A class or interface.

    Attributes:
        name: its own, with dots.
        parents: the class that it extends, and its interfaces.
    """

    name: str
    parents: tuple[str, ...]
    is_abstract: bool


def declared_in(jar: Path) -> Iterator[Declared]:
    """All fields and methods of all classes of a jar."""
    for file in _files(jar):
        yield from _declared(file)


def heads_in(jar: Path) -> Iterator[ClassHead]:
    """All classes of a jar."""
    for file in _files(jar):
        yield file.head


def with_constants(data: bytes, replaced: Callable[[str], str], longs: Mapping[int, int]) -> bytes:
    """A class file with other constants.

    Args:
        data: the class file.
        replaced: the text to write for a text.
        longs: the numbers to write for numbers of the type long.
    """
    places, end = _places(data)
    starts = [place for place in places if place]
    parts = [data[: starts[0]]]
    for start, after in zip(starts, [*starts[1:], end], strict=True):
        constant = data[start:after]
        if constant[0] == _TEXT:
            text = replaced(constant[3:].decode("utf-8", "surrogateescape"))
            written = text.encode("utf-8", "surrogateescape")
            constant = struct.pack(">BH", _TEXT, len(written)) + written
        elif constant[0] == _LONG:
            (number,) = struct.unpack_from(">q", constant, 1)
            constant = struct.pack(">Bq", _LONG, longs.get(number, number))
        parts.append(constant)
    return b"".join([*parts, data[end:]])


class _ClassFile:
    """The content of a class file; constants are read when they are asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._places, at = _places(data)
        flags, this, above, count = struct.unpack_from(">HHHH", data, at)
        parents = (above, *struct.unpack_from(f">{count}H", data, at + 8))
        names = tuple(self._class(each) for each in parents if each)
        self.head = ClassHead(self._class(this), names, bool(flags & _ABSTRACT))
        #: Where the fields begin.
        self.members = at + 8 + 2 * count

    def text(self, number: int) -> str:
        """A constant that is a text."""
        at = self._places[number]
        size = int.from_bytes(self.data[at + 1 : at + 3], "big")
        return self.data[at + 3 : at + 3 + size].decode("utf-8", "replace")

    def _class(self, number: int) -> str:
        at = self._places[number]
        return self.text(int.from_bytes(self.data[at + 1 : at + 3], "big")).replace("/", ".")


def _files(jar: Path) -> Iterator[_ClassFile]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.endswith(".class"):
                yield _ClassFile(archive.read(name))


def _declared(file: _ClassFile) -> Iterator[Declared]:
    at = file.members
    for is_method in (False, True):
        (count,) = struct.unpack_from(">H", file.data, at)
        at += 2
        for _ in range(count):
            flags, name, descriptor, attributes = struct.unpack_from(">HHHH", file.data, at)
            at += 8
            for _ in range(attributes):
                at += 6 + struct.unpack_from(">I", file.data, at + 2)[0]
            types = _TYPE.findall(file.text(descriptor))
            yield Declared(
                file.head.name,
                file.text(name),
                tuple(types[:-1]),
                types[-1],
                is_method,
                bool(flags & _PUBLIC),
                bool(flags & _STATIC),
            )


def _places(data: bytes) -> tuple[list[int], int]:
    """Where each constant begins, by its number, and where they end."""
    places, at = [0], 10
    count = int.from_bytes(data[8:10], "big")
    while len(places) < count:
        tag = data[at]
        places.append(at)
        if tag == _TEXT:
            at += 3 + (data[at + 1] << 8 | data[at + 2])
        else:
            at += 1 + _CONSTANTS[tag]
            if tag in _LARGE:
                places.append(0)
    return places, at
