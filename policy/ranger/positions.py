"""Where a field stands in a JSON text, for messages that people act on.

Python's decoder gives values without positions. A message needs one position in one text that is already
known to be JSON, so the text is walked once more, only along the path asked for.
"""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import Final

PathStep = str | int

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = JSONDecoder()


def line_of(text: str, path: tuple[PathStep, ...]) -> int:
    """The line, counted from 1, of the value at `path`; of its nearest parent if the path does not exist.

    Args:
        text: a JSON text that parses.
        path: names and list positions from the top.
    """
    start = _skip_space(text, 0)
    for step in path:
        inner = _child(text, start, step)
        if inner is None:
            break
        start = inner
    return text.count("\n", 0, start) + 1


def _child(text: str, start: int, wanted: PathStep) -> int | None:
    """Where the member or element `wanted` of the container at `start` begins."""
    if text[start] != ("{" if isinstance(wanted, str) else "["):
        return None
    at = _skip_space(text, start + 1)
    position = 0
    while text[at] not in "]}":
        name: PathStep = position
        if isinstance(wanted, str):
            name, at = _DECODER.raw_decode(text, at)
            at = _skip_space(text, _skip_space(text, at) + 1)
        if name == wanted:
            return at
        _, at = _DECODER.raw_decode(text, at)
        at = _skip_space(text, at)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
        position += 1
    return None


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
