"""The one question about a script: which of its statements would be allowed?

- Each statement is understood as a whole, or denied. What it would need is what the catalog would ask for it;
  it is allowed if the policies grant all of that.
- What a statement makes, renames or drops is known to those after it, if it is allowed. After a USE that is
  denied, the current namespace is not known.
- Where the owner of a table is not known, a statement is allowed only if the policies grant it to the owner
  and to others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from policy.decision import Decision, Reason
from policy.errors import LakewardenError
from policy.identifiers import TableName
from policy.privileges.requests import AccessRequest
from policy.sql_lint.context import LintContext
from policy.sql_lint.denials import Refusal
from policy.sql_lint.needs import UNKNOWN_OWNER, EveryRow, Need, Read, RequiredPrivilege
from policy.sql_lint.parse import Parsed, parse
from policy.sql_lint.positions import Positions
from policy.sql_lint.problems import Problem
from policy.sql_lint.script import Script
from policy.view import View
from policy.visible import RESTRICTING, seen

Dialect = Literal["spark", "hive"]
_Answer: TypeAlias = tuple[Decision, tuple[AccessRequest, ...]]

_ASK: Final = "Ask an administrator for a policy that grants it."
_NOTHING: Final = Decision.allow(Reason("nothing-asked", "The statement requires no privilege."))


@dataclass(frozen=True, slots=True)
class StatementDecision:
    """The answer for one statement.

    Attributes:
        line: line of its first character, or of what could not be read; from 1.
        column: column of that, from 1.
        kind: its first words.
        decision: whether it would be allowed, and why or why not.
        needed: what was requested from the policies; of alternatives, the decisive one.
        assumed: what has to hold beside, and is not known here.
        hint: what to do about a denial; None if the reasons say it all.
        notes: what is worth knowing of an allowed statement, and denies nothing.
    """

    line: int
    column: int
    kind: str
    decision: Decision
    needed: tuple[AccessRequest, ...] = ()
    assumed: tuple[str, ...] = ()
    hint: str | None = None
    notes: tuple[str, ...] = ()


def lint(text: str, dialect: Dialect, context: LintContext) -> list[StatementDecision]:
    """Decide each statement of a script, in order.

    Args:
        text: the script.
        dialect: whose SQL it is.
        context: by whom, when and under what rules it would be run.

    Returns:
        one answer a statement; what cannot be read any further is one denial at its place.

    Raises:
        RequestInvalid: the context names no namespace, or a time without a zone.
    """
    decider = _Decider(context, Script.begun(context, hive=dialect == "hive"))
    positions = Positions(text)
    return [decider.decide(each, positions) for each in parse(text, hive=dialect == "hive")]


@dataclass
class _Decider:
    """Decides the statements of a script, one after the other."""

    context: LintContext
    script: Script

    def decide(self, parsed: Parsed, positions: Positions) -> StatementDecision:
        """Decide the next statement."""
        at = parsed.start
        required = self.script.asks(self.context)
        hint: str | None
        try:
            if isinstance(parsed.statement, Problem):
                raise parsed.statement
            after = self.script.ask(parsed.statement, required)
            decision, needed = self._decide(required.needed)
            hint = None if decision.allowed else _ASK
            if decision.allowed:
                after()
        except Refusal as refusal:
            decision, needed = Decision.deny(Reason(refusal.rule, refusal.message)), ()
            at, hint = refusal.at if isinstance(refusal, Problem) else at, refusal.hint
        except LakewardenError as error:
            rule = error.rule or type(error).__name__
            where = f" ({error.path})" if error.path else ""
            decision, needed = Decision.deny(Reason(rule, f"{error.message}{where}")), ()
            hint = error.hint
        if not decision.allowed:
            self.script.denied(parsed.kind)
        line, column = positions.of(at)
        assumed = tuple(dict.fromkeys(required.assumed)) if decision.allowed else ()
        masked = (each.detail for each in decision.reasons if each.rule in RESTRICTING)
        notes = tuple(dict.fromkeys((*masked, *required.notes))) if decision.allowed else ()
        return StatementDecision(line, column, parsed.kind, decision, needed, assumed, hint, notes)

    def _decide(self, required: Iterable[Need]) -> tuple[Decision, tuple[AccessRequest, ...]]:
        found = (self._answered(each) for each in _distinct(required))
        answers = [each for each in found if each is not None]
        if not answers:
            return _NOTHING, ()
        decision = Decision.all_of(answer for answer, _ in answers)
        return decision, tuple(request for _, requests in answers for request in requests)

    def _answered(self, need: Need) -> _Answer | None:
        """The answer to a need; None if nothing speaks against a need that no policy grants."""
        match need:
            case Read():
                return self._read(need)
            case EveryRow():
                return self._every_row(need)
        return self._answer(need)

    def _answer(self, privilege: RequiredPrivilege) -> _Answer:
        """The first alternative that is granted, else the refusal of the first one."""
        answers = [(self._granted(each), (replace(each, owner=each.owner or None),)) for each in privilege]
        return next((each for each in answers if each[0].allowed), answers[0])

    def _granted(self, request: AccessRequest) -> Decision:
        policies, now = self.context.policies, self.context.now
        unknown = request.owner == UNKNOWN_OWNER
        owners = [None, request.principal.name] if unknown else [request.owner]
        return Decision.all_of(policies.decide(replace(request, owner=owner), now) for owner in owners)

    def _read(self, read: Read) -> _Answer:
        """What the user sees of the columns that are read."""
        answers = [
            seen(view, read.table, read.paths, engine=self.context.engine, unaltered=read.unaltered)
            for view in self._views(read.name, read.owner)
        ]
        return Decision.all_of(each.decision for each in answers), answers[0].requests

    def _every_row(self, need: EveryRow) -> _Answer | None:
        """Why the user does not see every row of a table; None if they do."""
        filtered = (each.altered(need.unmasked) for each in self._views(need.name, need.owner))
        reason = next((each for each in filtered if each is not None), None)
        return None if reason is None else (Decision.deny(reason), ())

    def _views(self, name: TableName, owner: str | None) -> list[View]:
        """The user's views of a table: as its owner and as another one, if the owner is not known."""
        principal = self.context.principal
        owners = [owner] if owner is not None else [None, principal.name]
        table = (name.database, name.name)
        return [View.of(self.context.policies, self.context.now, principal, table, each) for each in owners]


def _distinct(required: Iterable[Need]) -> dict[Need, None]:
    """What is required, once: what must be read as it is, is not also read through masks."""
    found = dict.fromkeys(required)
    stricter = (replace(each, unaltered=True) if isinstance(each, Read) else each for each in found)
    pairs = zip(found, stricter, strict=True)
    return dict.fromkeys(strict if strict in found else each for each, strict in pairs)
