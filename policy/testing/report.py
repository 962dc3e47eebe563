"""What became of a case, in words."""

from __future__ import annotations

from collections.abc import Iterator

from policy.testing.run import Outcome


def failure_lines(outcome: Outcome) -> Iterator[str]:
    """Why a case failed: expected and got, what was asked, every reason, and what would change the answer."""
    yield from outcome.problems
    yield f"request: {outcome.case.question}"
    if outcome.case.at is not None:
        yield f"at: {outcome.case.at.isoformat()}"
    if outcome.decision is not None:
        yield f"decision: {'allow' if outcome.decision.allowed else 'deny'}"
        for reason in outcome.decision.reasons:
            named = " ".join(part for part in (reason.policy, reason.item) if part is not None)
            yield f"  {reason.rule}{f' [{named}]' if named else ''}: {reason.detail}"
    if outcome.mask is not None:
        yield f"mask: {outcome.mask.type} [{outcome.mask.policy}]"
    if outcome.explanation is not None:
        yield from (
            f"without {each.item} of {each.policy!r}: {each.decision.explanation}"
            for each in outcome.explanation.without
        )
        yield from (f"to allow it: {each.detail}" for each in outcome.explanation.changes)
