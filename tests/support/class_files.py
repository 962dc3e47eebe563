"""Reads what class files declare: fields and methods with their types (JVM specification, chapter 4)."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PUBLIC, _STATIC = 0x0001, 0x0008
_TYPE = re.compile(r"\[*(?:[BCDFIJSZV]|L[^;]+;)")
#: Bytes of constants by their tag, beside text and those that take two places.
_CONSTANTS = {3: 4, 4: 4, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


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


def declared_in(jar: Path) -> Iterator[Declared]:
    """All fields and methods of all classes of a jar."""
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.endswith(".class"):
                yield from _declared(io.BytesIO(archive.read(name)))


def _declared(file: io.BytesIO) -> Iterator[Declared]:
    file.read(8)
    constants = _constants(file)
    _, this, _, interfaces = _unpack(file, ">HHHH")
    file.read(2 * interfaces)
    owner = constants[_index(constants, this)].replace("/", ".")
    for is_method in (False, True):
        (count,) = _unpack(file, ">H")
        for _ in range(count):
            flags, name, descriptor, attributes = _unpack(file, ">HHHH")
            for _ in range(attributes):
                _, length = _unpack(file, ">HI")
                file.read(length)
            types = _TYPE.findall(constants[descriptor])
            yield Declared(
                owner,
                constants[name],
                tuple(types[:-1]),
                types[-1],
                is_method,
                bool(flags & _PUBLIC),
                bool(flags & _STATIC),
            )


def _constants(file: io.BytesIO) -> dict[int, str]:
    """Texts by their number; a class's number leads to that of its name, in decimal."""
    found: dict[int, str] = {}
    (count,) = _unpack(file, ">H")
    number = 1
    while number < count:
        (tag,) = _unpack(file, ">B")
        if tag == 1:
            found[number] = file.read(_unpack(file, ">H")[0]).decode("utf-8", "replace")
        elif tag in (5, 6):
            file.read(8)
            number += 1
        else:
            content = file.read(_CONSTANTS[tag])
            if tag == 7:
                found[number] = str(int.from_bytes(content, "big"))
        number += 1
    return found


def _index(constants: dict[int, str], number: int) -> int:
    return int(constants[number])


def _unpack(file: io.BytesIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))
