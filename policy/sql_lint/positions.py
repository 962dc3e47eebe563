"""Lines and columns of characters in a text."""

from __future__ import annotations

from bisect import bisect_right


class Positions:
    """Finds the line and column of a character; lines end at a line feed, with or without a carriage
    return."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]

    def of(self, at: int) -> tuple[int, int]:
        """Line and column of the character at an index, both from 1."""
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1
