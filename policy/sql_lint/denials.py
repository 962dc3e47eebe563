"""Why a statement that was understood is denied by something else than the policies; inside of this
package."""

from __future__ import annotations


class Refusal(Exception):
    """A rule that the statement breaks, or something that is not known.

    Attributes:
        rule: what was broken, as one word.
        message: a sentence on it.
        hint: a sentence that says what to do.
    """

    def __init__(self, rule: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.hint = hint
