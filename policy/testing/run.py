"""Runs cases against policies.

Rules:
- A case passes if the decision is the expected one, one of its reasons says all that `because` says, and mask
  and rows are those that are expected, where something is.
- No case depends on the day on which it runs: where a policy that is valid at some times only can have a say,
  the case has to say at which time it asks.
- A statement is one statement; what a script would be is several cases.
- Decisions are those of `PolicySet`, `policy.sql_lint.lint` and `EncryptionRules`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeAlias

from policy.decision import Decision
from policy.encryption_rules import EncryptionRules
from policy.errors import RequestInvalid
from policy.explain.changes import Explanation, explain
from policy.explain.considered import Book, Considered, labels_of, reads, without
from policy.identifiers import TableName
from policy.privileges.requests import AccessRequest
from policy.ranger.evaluate import MaskRule
from policy.ranger.model import Policy, PolicyType
from policy.ranger.parse import Contents, parse_documents
from policy.ranger.policy_set import PolicySet
from policy.restrictions.samples import kept, masked, value_of
from policy.sql_lint.context import LintContext, TableFacts
from policy.sql_lint.lint import StatementDecision, lint
from policy.testing.cases import (
    NO_MASK,
    AccessQuestion,
    Answer,
    Case,
    CaseFile,
    Expected,
    Sample,
    StatementQuestion,
    TableQuestion,
)
from policy.testing.coverage import Coverage, Part, PartsOfPolicies, parts_of_rules
from policy.view import SHOWN_MASKED

_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)

_Shown: TypeAlias = Mapping[str, str]
_Answer: TypeAlias = tuple[Decision, MaskRule | None, bool | None, str | None, _Shown | str | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    Attributes:
        case: the case.
        problems: how the answer differs from the expected one; none if the case passed.
        decision: the decision; None where there was none.
        mask: the mask on the column, where the case says something of it.
        filtered: whether rows are filtered, where the case says something of it.
        row_filter: the row filter in SQL, where the case says something of it.
        reached: the parts of the policies that it has reached.
        explanation: what the decision of a request hangs on, where the case failed.
    """

    case: Case
    problems: tuple[str, ...]
    decision: Decision | None
    mask: MaskRule | None = None
    filtered: bool | None = None
    row_filter: str | None = None
    reached: frozenset[Part] = frozenset()
    explanation: Explanation | None = None

    @property
    def passed(self) -> bool:
        """Whether the answer is the expected one."""
        return not self.problems


class UnderTest:
    """The policies that cases test.

    Attributes:
        book: policies and roles.
        parts: the parts of the policies.
        rules: encryption rules.
        rule_parts: the parts that these are, by name.

    Raises:
        PolicyInvalid: a document has a mistake.
    """

    def __init__(self, policies: Mapping[str, bytes], encryption: Mapping[str, bytes]) -> None:
        contents = parse_documents(policies)
        self.book = Book(contents)
        self.parts = PartsOfPolicies(policies, contents)
        self.rules = EncryptionRules.parse(encryption)
        self.rule_parts = parts_of_rules(self.rules)

    def coverage(self, outcomes: Iterable[Outcome]) -> Coverage:
        """What these outcomes have reached of everything that there is."""
        reached: frozenset[Part] = frozenset().union(*(outcome.reached for outcome in outcomes))
        return Coverage(frozenset((*self.parts, *self.rule_parts.values())), reached)


class RecordingPolicySet(PolicySet):
    """Policies that keep what they were asked.

    Attributes:
        requests: each request, in the order in which they came.
    """

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents, "")
        self.requests: list[AccessRequest] = []

    def decide(self, request: AccessRequest, now: datetime) -> Decision:
        """As `PolicySet.decide`."""
        self.requests.append(request)
        return super().decide(request, now)


class Suite:
    """The cases of a file with the policies that they test.

    Attributes:
        file: what the file says.
        tested: the policies.

    Raises:
        RequestInvalid: there is no policy, or no encryption rule, that the cases could test: without any,
            every case that expects a denial, or a table that fits all rules, would pass.
    """

    def __init__(self, file: CaseFile, tested: UnderTest) -> None:
        self.file = file
        self.tested = tested
        self._book, self._rules, self._rule_parts = tested.book, tested.rules, tested.rule_parts
        made = [isinstance(case.question, TableQuestion) for case in file.cases]
        if not all(made) and not tested.book.contents.policies:
            raise _untested(file, "policies")
        if any(made) and not tested.rules.rules:
            raise _untested(file, "encryption_rules")

    def run(self, case: Case) -> Outcome:
        """Ask a case's question, and compare the answer."""
        question = case.question
        if isinstance(question, AccessQuestion):
            return self._answer_access(case, question)
        if isinstance(question, StatementQuestion):
            return self._answer_statement(case, question)
        return self._answer_table(case, question)

    def _answer_access(self, case: Case, question: AccessQuestion) -> Outcome:
        request = AccessRequest(question.principal, question.resource, question.access, question.owner)
        table = replace(question.table, service=self.file.catalog.name)
        considered = self._book.consider(
            request, case.at or _ANY_TIME, table, question.through, self.file.catalog.engine
        )
        scheduled = considered.scheduled(_looked_at(request))
        if case.at is None and scheduled:
            return _needs_time(case, scheduled[0])
        decision, mask, filtered, row_filter, _ = answer = _answer(considered, case.expected)
        problems = (*_differences(decision, case.expected), *_other_values(answer, case.expected))
        if problems:
            explained = explain(self._book, considered)
            return Outcome(case, problems, decision, mask, filtered, row_filter, explanation=explained)
        reached = frozenset(self._reached(considered, case, answer))
        return Outcome(case, problems, decision, mask, filtered, row_filter, reached)

    def _reached(self, considered: Considered, case: Case, answer: _Answer) -> Iterator[Part]:
        for policy in considered.policies:
            for label in labels_of(policy):
                changed = considered.replacing(policy, without(policy, label))
                if _answer(changed, case.expected) != answer:
                    yield self.tested.parts.part(policy, label)

    def _answer_statement(self, case: Case, question: StatementQuestion) -> Outcome:
        policies = self._book.contents.policies
        recording = self._recording(policies)
        statements = self._lint(case, question, recording, self._rules)
        considered = [self._book.consider(request, case.at or _ANY_TIME) for request in recording.requests]
        scheduled = [policy for each in considered for policy in each.scheduled(PolicyType)]
        if case.at is None and scheduled:
            return _needs_time(case, scheduled[0])
        if len(statements) != 1:
            return Outcome(
                case, (f"sql has {len(statements)} statements. A case must have exactly one.",), None
            )
        decision = statements[0].decision
        problems = _differences(decision, case.expected)
        if problems:
            return Outcome(case, problems, decision)
        related = {id(policy) for each in considered for policy in each.policies}
        heard = tuple(policy for policy in policies if id(policy) in related)
        return Outcome(
            case, (), decision, reached=frozenset(self._reached_by(case, question, heard, decision))
        )

    def _reached_by(
        self, case: Case, question: StatementQuestion, heard: tuple[Policy, ...], decision: Decision
    ) -> Iterator[Part]:
        """The parts without which a statement would be answered in another way."""
        for policy in heard:
            for label in labels_of(policy):
                changed = (without(each, label) if each is policy else each for each in heard)
                answered = self._lint(case, question, self._recording(changed), self._rules)
                if answered[0].decision != decision:
                    yield self.tested.parts.part(policy, label)
        for name, part in self._rule_parts.items():
            answered = self._lint(case, question, self._recording(heard), _lacking(self._rules, name))
            if answered[0].decision != decision:
                yield part

    def _lint(
        self, case: Case, question: StatementQuestion, policies: PolicySet, rules: EncryptionRules
    ) -> list[StatementDecision]:
        catalog = self.file.catalog
        context = LintContext(
            principal=question.principal,
            policies=policies,
            encryption=rules,
            now=case.at or _ANY_TIME,
            catalog=catalog.name,
            database=question.database,
            owner=question.owner,
            engine=catalog.engine,
            master_key_id=catalog.master_key,
            known=self._known,
        )
        return lint(question.sql, question.dialect, context)

    def _known(self, name: TableName) -> TableFacts | None:
        table = self.file.tables.get(name)
        return None if table is None else table.for_statements()

    def _recording(self, policies: Iterable[Policy]) -> RecordingPolicySet:
        return RecordingPolicySet(replace(self._book.contents, policies=tuple(policies), disabled=()))

    def _answer_table(self, case: Case, question: TableQuestion) -> Outcome:
        facts = self.file.tables[question.table].for_rules()
        decision = self._rules.decide(facts)
        problems = _differences(decision, case.expected)
        reached = (
            part
            for name, part in self._rule_parts.items()
            if not problems and _lacking(self._rules, name).decide(facts) != decision
        )
        return Outcome(case, problems, decision, reached=frozenset(reached))


def _untested(file: CaseFile, what: str) -> RequestInvalid:
    return RequestInvalid(
        f"{file.name}: no {what} to test.",
        rule="policy-test",
        hint=f"List documents under {what}, or pass them on the command line.",
    )


def _lacking(rules: EncryptionRules, name: str) -> EncryptionRules:
    return EncryptionRules(tuple(rule for rule in rules.rules if rule.name != name), "")


def _needs_time(case: Case, policy: Policy) -> Outcome:
    problem = f'{policy.title} is not always valid. Set a time, such as at: "2030-01-31T12:00Z".'
    return Outcome(case, (problem,), None)


def _looked_at(request: AccessRequest) -> Iterable[PolicyType]:
    """The types of policies that have a say in a request."""
    return PolicyType if reads(request) else (PolicyType.ACCESS,)


def _answer(considered: Considered, expected: Expected) -> _Answer:
    """What a case looks at."""
    mask = None if expected.mask is None else considered.mask
    filtered = None if expected.filtered is None else considered.has_row_filter
    row_filter = None if expected.row_filter is None else considered.row_filter_text
    sample = None if expected.sample is None else _shown(considered, expected.sample)
    return considered.decision, mask, filtered, row_filter, sample


def _shown(considered: Considered, sample: Sample) -> _Shown | str:
    """What the user sees of a sample row; a sentence if nothing of it can be shown."""
    schema, restriction = considered.table.schema, considered.restriction
    if schema is None or not considered.decision.allowed:
        return "nothing"
    by_name = {each.name: each for each in schema.by_id.values()}
    row = {by_name[name].field_id: value_of(by_name[name].type, text) for name, text in sample.row.items()}
    if not kept(restriction.row_filter, row):
        return "no row"
    shown = {}
    for name, text in sample.row.items():
        if not considered.selects(name):
            continue
        field = by_name[name]
        masks = (restriction.masks.get(each) for each in (*field.above, field.field_id))
        mask = next((each for each in masks if each is not None), None)
        try:
            seen = text if mask is None else masked(mask.action, field.type, text)
        except RequestInvalid as problem:
            return f"{name}: {problem.message}"
        if seen is not None:
            shown[name] = seen
    return shown


def _differences(decision: Decision, expected: Expected) -> tuple[str, ...]:
    answer = _word(decision)
    if answer != expected.answer:
        return (f"expected {expected.answer}, got {answer}.",)
    because = expected.because
    if because is not None and not any(map(because.matches, decision.reasons)):
        return (f"no reason matches {because}.",)
    return ()


def _other_values(answer: _Answer, expected: Expected) -> Iterator[str]:
    _, mask, filtered, row_filter, shown = answer
    expected_mask = expected.mask
    if expected_mask is not None:
        found = NO_MASK if mask is None else mask.type
        if found != expected_mask.type:
            yield f"expected the mask {expected_mask.type}, got {found}."
        elif mask is not None and expected_mask.policy not in (None, mask.policy):
            yield f"expected the mask of policy {expected_mask.policy!r}, got that of {mask.policy!r}."
    if filtered != expected.filtered:
        yield f"expected {_rows(expected.filtered)}, got {_rows(filtered)}."
    if row_filter != expected.row_filter:
        yield f"expected the row filter {expected.row_filter!r}, got {row_filter!r}."
    if expected.sample is not None and shown != (expected.sample.shown or "no row"):
        yield f"expected the row {_row(expected.sample.shown or 'no row')}, got {_row(shown)}."


def _row(shown: _Shown | str | None) -> str:
    """A row in words; columns that are NULL are left out."""
    if shown is None or isinstance(shown, str):
        return f"{shown}"
    return ", ".join(f"{name}: {value!r}" for name, value in shown.items())


def _rows(filtered: bool | None) -> str:
    return "filtered rows" if filtered else "all rows"


def _word(decision: Decision) -> Answer:
    if not decision.allowed:
        return "deny"
    return "masked" if any(each.rule in (SHOWN_MASKED, "mask") for each in decision.reasons) else "allow"
