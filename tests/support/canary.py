"""Finds secrets in what programs wrote, in whatever form something printed them.

- Every secret is looked for by its first and by its last `WINDOW` bytes, since what prints long values often
  cuts them off.
- Forms: the bytes themselves (as Java's serialization has them, too), hexadecimal digits (either case, with
  any separators or none), base64 (both alphabets, wherever it begins in what was encoded, padded or not),
  lists of numbers (signed as Java and Scala print bytes, or unsigned; any separators), Python's escapes.
- What is compressed is not looked into: the tests that fill the haystack turn compression off.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import fastavro
import numpy as np

from catalog.crypto.secret import SecretBytes

#: Short enough to be left of a value that was cut off, long enough never to be found by chance.
WINDOW = 12

_PREFIX = 8
_BUCKET_BITS = 20
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Found:
    """A secret that was found.

    Attributes:
        secret: what it is called.
        form: the form in which it stands there.
        where: the file, page or stream.
        before: what stands in front of it.
    """

    secret: str
    form: str
    where: str
    before: str


@contextmanager
def debug_log(file: Path) -> Iterator[None]:
    """Everything in this process logs to a file at DEBUG, each SQL statement with its parameters, too; the
    servers of the tests have nothing to say there."""
    root, handler = logging.getLogger(), logging.FileHandler(file)
    handler.addFilter(lambda record: not record.name.startswith(("moto", "werkzeug")))
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    levels = {each: each.level for each in (root, logging.getLogger("sqlalchemy.engine"))}
    root.addHandler(handler)
    for each in levels:
        each.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        for each, level in levels.items():
            each.setLevel(level)
        root.removeHandler(handler)
        handler.close()


@contextmanager
def recorded_secrets() -> Iterator[set[bytes]]:
    """All secrets that the catalog makes, opens or is given in this process meanwhile."""
    seen: set[bytes] = set()
    real = SecretBytes.__init__

    def recording(self: SecretBytes, data: bytes | bytearray) -> None:
        seen.add(bytes(data))
        real(self, data)

    SecretBytes.__init__ = recording  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        SecretBytes.__init__ = real  # type: ignore[method-assign]


class Canary:
    """Looks for secrets.

    Args:
        secrets: what is looked for, by what it is called; at least `WINDOW` bytes each.
    """

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        assert all(len(each) >= WINDOW for each in secrets.values())
        self._views = [(view, _Needles(needles(secrets, forms))) for view, forms in _VIEWS]

    def search(self, where: str, content: bytes) -> list[Found]:
        """Every secret in a piece of content, at most once in each form."""
        found = {}
        for view, looked_for in self._views:
            seen_as = view(content)
            for position, secret, form in looked_for.find(seen_as):
                before = seen_as[max(0, position - 120) : position].decode("ascii", "backslashreplace")
                found.setdefault((secret, form), Found(secret, form, where, before))
        return list(found.values())

    def search_files(self, files: Iterable[Path]) -> list[Found]:
        """Every secret in the content or the name of files."""
        listed = list(files)
        found = self.search("names of files", "\n".join(map(str, listed)).encode())
        for file in listed:
            found += self.search(str(file), file.read_bytes())
        return found


def files_below(*directories: Path) -> list[Path]:
    """All regular files in directories, other than by symbolic links."""
    return [
        each
        for directory in directories
        for each in sorted(directory.rglob("*"))
        if each.is_file() and not each.is_symlink()
    ]


Needle = tuple[bytes, str, str]
Form = Callable[[bytes], Iterable[bytes]]


def unpacked(file: Path) -> bytes:
    """What a file holds, Avro's blocks unpacked."""
    data = file.read_bytes()
    if file.suffix != ".avro":
        return data
    return data + b"".join(block.bytes_.getvalue() for block in fastavro.block_reader(BytesIO(data)))


def needles(secrets: Mapping[str, bytes], forms: Mapping[str, Form]) -> list[Needle]:
    """What to look for: text, name of the secret, form."""
    return [
        (text, name, form)
        for name, secret in secrets.items()
        for window in {secret[:WINDOW], secret[-WINDOW:]}
        for form, spell in forms.items()
        for text in spell(window)
    ]


def _raw(window: bytes) -> list[bytes]:
    return [window]


def _base64(window: bytes) -> Iterator[bytes]:
    """What does not depend on the bytes around, wherever in a group of three the window begins."""
    for skipped in range(3):
        text = base64.b64encode(bytes(skipped) + window)
        sure = text[-(-8 * skipped // 6) : 8 * (skipped + len(window)) // 6]
        yield sure
        yield sure.translate(bytes.maketrans(b"+/", b"-_"))


def _escapes(window: bytes) -> list[bytes]:
    return [repr(window)[2:-1].encode()]


def _digits(window: bytes) -> list[bytes]:
    return [window.hex().encode()]


def _numbers(window: bytes) -> list[bytes]:
    signed = (each - 256 if each > 127 else each for each in window)
    return [",".join(map(str, numbers)).encode() for numbers in (signed, window)]


def _as_it_is(content: bytes) -> bytes:
    return content


def _without_separators(content: bytes) -> bytes:
    return content.lower().replace(b"0x", b"").translate(None, b" \t\r\n,:;-_[](){}\\x\"'")


def _with_commas(content: bytes) -> bytes:
    """Every run of separators as one comma."""
    text = content.translate(bytes.maketrans(b" \t\r\n;", b",,,,,"))
    while b",," in text:
        text = text.replace(b",,", b",")
    return text


#: Each form is looked for in a view of the content that takes away what may differ.
_VIEWS: list[tuple[Callable[[bytes], bytes], dict[str, Form]]] = [
    (_as_it_is, {"raw": _raw, "base64": _base64, "escapes": _escapes}),
    (_without_separators, {"hexadecimal": _digits}),
    (_with_commas, {"numbers": _numbers}),
]


class _Needles:
    """Many byte strings that are looked for at once, by their first eight bytes."""

    def __init__(self, needles: Iterable[Needle]) -> None:
        self._by_prefix: dict[int, list[Needle]] = {}
        for each in needles:
            self._by_prefix.setdefault(int.from_bytes(each[0][:_PREFIX], "little"), []).append(each)
        self._prefixes = np.array(sorted(self._by_prefix), np.uint64)
        self._table = np.zeros(1 << _BUCKET_BITS, bool)
        self._table[_bucket(self._prefixes)] = True

    def find(self, content: bytes) -> Iterator[tuple[int, str, str]]:
        """Position, name and form of each one."""
        for offset in range(_PREFIX):
            count = (len(content) - offset) // _PREFIX
            if count <= 0:
                continue
            words = np.frombuffer(content, "<u8", count, offset)
            possible = np.flatnonzero(self._table[_bucket(words)])
            likely = possible[np.isin(words[possible], self._prefixes)]
            for index in likely.tolist():
                position = offset + index * _PREFIX
                for text, name, form in self._by_prefix[int(words[index])]:
                    if content.startswith(text, position):
                        yield position, name, form


def _bucket(words: np.ndarray) -> np.ndarray:
    return (words * _MIX) >> np.uint64(64 - _BUCKET_BITS)
