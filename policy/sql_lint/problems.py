"""Why a statement cannot be judged; inside of this package alone, where it becomes a denial."""

from __future__ import annotations


class Problem(Exception):
    """A place in the text where judging ended.

    Attributes:
        at: index of the character.
        rule: what was broken, as one word.
        message: a sentence on it.
        hint: a sentence that says what to do.
    """

    def __init__(self, at: int, rule: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.at = at
        self.rule = rule
        self.message = message
        self.hint = hint
