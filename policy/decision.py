"""A decision is a value with its reasons, never a bare boolean.

`Decision` is what every rule of this package answers. It can be tested for truth, but the reasons are what
the audit log and the user get to see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a decision came out as it did.

    Attributes:
        rule: short stable name of the rule, such as ``allowed-paths`` or ``policy-deny``.
        detail: one sentence for people.
        policy: name of the policy that decided, if one did.
        item: which item of that policy, such as ``denyPolicyItems[0]``.
    """

    rule: str
    detail: str
    policy: str | None = None
    item: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one question of authorization or containment.

    Attributes:
        allowed: whether what was asked may happen.
        reasons: at least one reason, the decisive one first.
    """

    allowed: bool
    reasons: tuple[Reason, ...]

    def __post_init__(self) -> None:
        if not self.reasons:
            raise ValueError("A decision must have at least one reason.")

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def explanation(self) -> str:
        """The decisive reason as one sentence."""
        return self.reasons[0].detail

    @classmethod
    def allow(cls, *reasons: Reason) -> Decision:
        """A grant, with why."""
        return cls(True, reasons)

    @classmethod
    def deny(cls, *reasons: Reason) -> Decision:
        """A refusal, with why."""
        return cls(False, reasons)

    @classmethod
    def all_of(cls, decisions: Iterable[Decision]) -> Decision:
        """All or nothing: a grant only if every part is granted; an empty conjunction is a refusal.

        The reasons of a refusal are those of the refused parts alone, each once.
        """
        parts = tuple(decisions)
        if not parts:
            return cls.deny(
                Reason("empty-conjunction", "The request names no privilege, so it grants nothing.")
            )
        decisive = [part for part in parts if not part.allowed] or parts
        reasons = dict.fromkeys(reason for part in decisive for reason in part.reasons)
        return cls(all(part.allowed for part in parts), tuple(reasons))
