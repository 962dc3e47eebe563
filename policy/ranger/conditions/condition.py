"""The conditions of a policy or an item.

Rules:
- Evaluated are expressions (``expression``, ``_expression``), and the conditions on the attribute
  ``expiry_date`` of tags (``accessed-after-expiry``, ``enforce-expiry``: ``yes`` or ``no``).
- A condition of any other type, and one outside of the language of expressions, is unknown.
- A condition is also unknown where it looks at something that is not known then.

Source: Ranger's service definition of tags, RangerScriptConditionEvaluator and
RangerScriptTemplateConditionEvaluator. Stricter than Ranger, which passes over conditions of types that its
service definition does not have, over all but the first value, and over empty expressions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from policy.ranger.circumstances import Circumstances
from policy.ranger.conditions.lexer import NotUnderstood
from policy.ranger.conditions.parse import Script, parse_script
from policy.ranger.conditions.syntax import run
from policy.ranger.conditions.truth import Truth, Unknown
from policy.ranger.conditions.values import Undecided

IMPLICIT: Final = "_expression"
"""The condition that every service definition of Ranger has without saying so."""

EXPRESSIONS: Final = frozenset({"expression", IMPLICIT})
"""The types of conditions that are expressions."""

_EXPIRY: Final = frozenset({"accessed-after-expiry", "enforce-expiry"})
EVALUATED: Final = EXPRESSIONS | _EXPIRY
"""The types of conditions that are evaluated."""

_EXPIRED: Final = {
    **dict.fromkeys(("yes", "true"), "ctx.isAccessedAfter('expiry_date')"),
    **dict.fromkeys(("no", "false"), "!ctx.isAccessedAfter('expiry_date')"),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition.

    Attributes:
        type: its type, such as ``expression``.
        values: its values as they are written.
        script: what it says; None if it is unknown.
        problem: why it is unknown, as a clause.
    """

    type: str
    values: tuple[str, ...]
    script: Script | None = field(default=None, compare=False, repr=False)
    problem: str = field(default="what it looks at is not known here", compare=False)

    @classmethod
    def of(cls, kind: str, values: Iterable[str]) -> Self:
        """Read a condition; one that is not understood is unknown."""
        found = cls(kind, tuple(values))
        try:
            return replace(found, script=parse_script(_text(found)))
        except NotUnderstood as problem:
            return replace(found, problem=f"{problem}")

    @property
    def is_understood(self) -> bool:
        """Whether it can be true or false."""
        return self.script is not None

    @property
    def is_timed(self) -> bool:
        """Whether the time decides it."""
        return self.script is not None and self.script.is_timed

    @property
    def looks_at_names(self) -> bool:
        """Whether the names of the resource decide it, or tags that go by these names."""
        return self.script is not None and self.script.looks_at_names

    @property
    def doubt(self) -> str:
        """Why it is not known whether it holds, as the end of a clause."""
        return f"condition of the type {self.type!r} is unknown: {self.problem}"

    def holds(self, c: Circumstances) -> Truth:
        """Whether it holds."""
        if self.script is None:
            return Unknown(self.problem)
        try:
            return run(self.script.statements, c)
        except Undecided as problem:
            return Unknown(f"{problem}")


def unsettled(conditions: tuple[Condition, ...], c: Circumstances) -> tuple[Condition, ...] | None:
    """The conditions of which it is not known whether they hold; None if one does not hold."""
    found = []
    for each in conditions:
        truth = each.holds(c)
        if truth is False:
            return None
        if isinstance(truth, Unknown):
            found.append(replace(each, script=None, problem=truth.reason))
    return tuple(found)


def _text(condition: Condition) -> str:
    """The expression that a condition stands for."""
    kind, values = condition.type, condition.values
    if kind not in EVALUATED:
        raise NotUnderstood("conditions of this type are not evaluated")
    if len(values) != 1 or not values[0].strip():
        raise NotUnderstood("it must have exactly one value")
    if kind in EXPRESSIONS:
        return values[0]
    found = _EXPIRED.get(values[0].strip().lower())
    if found is None:
        raise NotUnderstood("its value must be yes or no")
    return found
