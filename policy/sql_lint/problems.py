"""Why a statement cannot be understood; inside of this package alone, where it becomes a denial."""

from __future__ import annotations

from policy.sql_lint.denials import Refusal


class Problem(Refusal):
    """A place in the text where understanding ended.

    Attributes:
        at: index of the character.
    """

    def __init__(self, at: int, rule: str, message: str, hint: str) -> None:
        super().__init__(rule, message, hint)
        self.at = at
