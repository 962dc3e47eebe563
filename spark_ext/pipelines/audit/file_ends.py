"""Reads the end of a data file: so much of it as a check of its footer needs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from pyiceberg.io import InputStream

from catalog.envelope.key_metadata import KeyMetadata
from spark_ext.pipelines.audit.rules import DAMAGED_FILE
from spark_ext.pipelines.items import Rule

#: Bytes that are read at once: most footers are shorter.
_FIRST: Final = 64 << 10
MOST_READ: Final = 64 << 20
"""Bytes of a footer that are read at most."""
_STEP: Final = 1 << 20
PARSING: Final = Lock()
"""Held while a footer is parsed: it takes some hundred times its size, and threads would not be faster."""


class Problem(NamedTuple):
    """What is wrong with a file.

    Attributes:
        rule: the rule that it breaks.
        message: what was found, without values of rows.
        column: the column that it is about.
    """

    rule: Rule
    message: str
    column: str | None = None


class Broken(Exception):
    """A file of which no more can be checked.

    Args:
        rule: the rule that it breaks.
        message: what was found.
    """

    def __init__(self, rule: Rule, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(rule, message)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What a manifest says of the columns of one file, by field id."""

    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as its manifest lists it.

    Attributes:
        path: its location.
        content: 0 for data, 1 for position deletes, 2 for equality deletes.
        file_format: in upper case.
        records: its rows.
        size: its bytes.
        keys: its key metadata; None if it is listed as plaintext.
        statistics: of its columns.
    """

    path: str
    content: int
    file_format: str
    records: int
    size: int
    keys: KeyMetadata | None
    statistics: ColumnStatistics


class FileEnd:
    """The end of an open file, which is read once and kept.

    Args:
        stream: of the file; its owner closes it.
    """

    def __init__(self, stream: InputStream) -> None:
        self._stream = stream
        self.size = stream.seek(0, os.SEEK_END)
        self._kept = b""

    def last(self, length: int) -> bytes:
        """Return the last bytes of the file; fewer only if it is shorter.

        Args:
            length: how many, at most `MOST_READ`.
        """
        wanted = min(length, self.size)
        if wanted > len(self._kept):
            reached = min(self.size, max(wanted, _FIRST))
            self._kept = self._read(self.size - reached, reached)
        return self._kept[len(self._kept) - wanted :]

    def sha256(self) -> bytes:
        """Return the SHA-256 of the whole file, which is read step by step."""
        made = hashlib.sha256()
        self._stream.seek(0)
        while piece := self._stream.read(_STEP):
            made.update(piece)
        return made.digest()

    def _read(self, start: int, length: int) -> bytes:
        self._stream.seek(start)
        pieces = []
        while length > 0 and (piece := self._stream.read(length)):
            pieces.append(piece)
            length -= len(piece)
        if length > 0:
            raise Broken(DAMAGED_FILE, "The file became shorter while it was read.")
        return b"".join(pieces)
