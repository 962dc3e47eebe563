"""Files of named blocks that only a holder of a key can have written.

    magic (8 bytes) | blocks, each at a multiple of 64 bytes | footer (JSON)
    | length of the footer (8 bytes, big endian) | HMAC-SHA-256 over magic, name and footer (32 bytes)

The footer has the SHA-256 of each block. Opening a file checks the footer alone. A block is checked when it
is first used, so that a reader pays for what it reads. A large file is mapped into memory: its bytes count as
the system's cache, and only pages that are used are read.

Who can write the directory while a process runs can change mapped bytes after they were checked, or end the
process by making a file shorter. The directory is its owner's alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from catalog.crypto.secret import SecretBytes

MAGIC: Final = b"LWBLOCK2"
_ALIGNED: Final = 64
_LENGTH_BYTES: Final = 8
_MAC_BYTES: Final = 32
#: A smaller file is read whole: a mapping costs more than that.
_MAPPED_FROM: Final = 1 << 16


class Damaged(Exception):
    """The file is not what a holder of the key wrote."""


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    length: int
    sha256: str


class BlockFile:
    """An open file whose footer was checked.

    Attributes:
        about: what its writer says of the blocks.
        mapped: whether it is mapped into memory.
        size: its length in bytes.
    """

    def __init__(self, data: pa.Buffer, places: Mapping[str, _Place], about: Any, *, mapped: bool) -> None:
        self.about = about
        self.mapped = mapped
        self.size = data.size
        self._data = data
        self._places = places
        self._checked: set[str] = set()

    @classmethod
    def open(cls, path: Path, name: str, key: SecretBytes) -> BlockFile:
        """Open a file, and check its footer.

        Args:
            path: the file.
            name: what it was written as.
            key: of the MAC.

        Raises:
            OSError: it cannot be read.
            Damaged: it was not written with this key as `name`.
        """
        with path.open("rb") as file:
            size = file.seek(0, 2)
            mapped = size >= _MAPPED_FROM
            file.seek(0)
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mapped else file.read()
        data = pa.py_buffer(content)
        end = data.size - _MAC_BYTES - _LENGTH_BYTES
        length = int.from_bytes(data[max(end, 0) : end + _LENGTH_BYTES].to_pybytes(), "big")
        if end < len(MAGIC) or not 0 < length <= end - len(MAGIC):
            raise Damaged
        footer = data[end - length : end].to_pybytes()
        expected = data[end + _LENGTH_BYTES :].to_pybytes()
        if not hmac.compare_digest(_mac(key, name, footer), expected):
            raise Damaged
        parsed = json.loads(footer)
        places = {each: _Place(*where) for each, where in parsed["blocks"].items()}
        return cls(data, places, parsed["about"], mapped=mapped)

    def __contains__(self, block: str) -> bool:
        return block in self._places

    def block(self, block: str) -> pa.Buffer:
        """Return the bytes of a block; they are checked the first time.

        Raises:
            Damaged: they are not those that were written.
        """
        place = self._places[block]
        found = self._data[place.start : place.start + place.length]
        if block not in self._checked:
            if hashlib.sha256(found).hexdigest() != place.sha256:
                raise Damaged
            self._checked.add(block)
        return found


def write_blocks(
    file: BinaryIO, name: str, key: SecretBytes, blocks: Iterable[tuple[str, pa.Buffer]], about: Any
) -> None:
    """Write a file of blocks.

    Args:
        file: to write to, empty.
        name: the name that it is opened by.
        key: of the MAC.
        blocks: names and bytes.
        about: JSON about them.
    """
    file.write(MAGIC)
    at = len(MAGIC)
    places: dict[str, tuple[int, int, str]] = {}
    for block, content in blocks:
        gap = -at % _ALIGNED
        file.write(bytes(gap))
        file.write(content)
        places[block] = at + gap, content.size, hashlib.sha256(content).hexdigest()
        at += gap + content.size
    footer = json.dumps({"about": about, "blocks": places}, separators=(",", ":")).encode()
    file.write(footer)
    file.write(len(footer).to_bytes(_LENGTH_BYTES, "big"))
    file.write(_mac(key, name, footer))


def _mac(key: SecretBytes, name: str, footer: bytes) -> bytes:
    named = name.encode()
    return hmac.digest(
        key.reveal(), MAGIC + len(named).to_bytes(_LENGTH_BYTES, "big") + named + footer, hashlib.sha256
    )
