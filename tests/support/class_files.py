"""Reads what class files declare: parents, fields, methods and their types (JVM specification, chapter 4)."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PUBLIC, _STATIC, _ABSTRACT = 0x0001, 0x0008, 0x0400
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
        head, constants = _head(file)
        yield from _declared(file, head.name, constants)


def heads_in(jar: Path) -> Iterator[ClassHead]:
    """All classes of a jar."""
    for file in _files(jar):
        yield _head(file)[0]


def _files(jar: Path) -> Iterator[io.BytesIO]:
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.endswith(".class"):
                yield io.BytesIO(archive.read(name))


def _head(file: io.BytesIO) -> tuple[ClassHead, dict[int, str]]:
    file.read(8)
    constants = _constants(file)
    flags, this, above, count = _unpack(file, ">HHHH")
    interfaces = _unpack(file, f">{count}H")
    name, *parents = (_class(constants, each) for each in (this, above, *interfaces) if each)
    return ClassHead(name, tuple(parents), bool(flags & _ABSTRACT)), constants


def _declared(file: io.BytesIO, owner: str, constants: dict[int, str]) -> Iterator[Declared]:
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


def _class(constants: dict[int, str], number: int) -> str:
    return constants[int(constants[number])].replace("/", ".")


def _unpack(file: io.BytesIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))
