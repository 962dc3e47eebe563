"""Who can access a table or a column, and how much of it they see.

Rules:
- `READ` is what a scan of each column by itself shows (`policy.visible`), with the masks and row filters that
  its reader enforces. Other access types are decided for the table or the column as a whole.
- One answer is decided for all users to whom the policies about the table, its columns, its keys, the engine
  and the service say the same.
- Nothing is left out: a user who can read nothing is in an answer, too, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from policy.access.people import People, Users, first
from policy.access.statements import Numbers, Statements, alike
from policy.access.timed import About, timed_for, timed_names
from policy.access.user_names import UserNames
from policy.decision import Decision
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.ranger.policy_set import PolicySet
from policy.view import View
from policy.visible import Seen, seen

READ: Final = "read"
"""To see values, by a scan."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about every user.

    Attributes:
        access: `READ`, or an access type of tables.
        table: database and name.
        column: the column or field that is asked about; None for the table.
        owner: the table's owner.
        known: what is known of the table; its columns, if the question is who can read the table.
        through: how the table would be read.
        engine: the engine's name; None if it is not known.
        now: the time, with a zone.
    """

    access: str
    table: tuple[str, str]
    column: str | None
    owner: str | None
    known: KnownTable
    now: datetime
    through: Through = Through.ENGINE
    engine: str | None = None

    @property
    def resource(self) -> Resource:
        """The table, or the column."""
        if self.column is None:
            return Resource.table(*self.table)
        return Resource.column(*self.table, self.column)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (self.known.columns or ()) if self.column is None else (self.column,)


@dataclass(frozen=True, slots=True)
class Answer:
    """How much a user can access.

    Attributes:
        columns: the columns that are seen; empty for another access than `READ`.
        masks: the mask of each column or field that is seen through one, by its name.
        row_filters: the row filters that a row has to pass; ``no row`` for one that cannot be evaluated.
        allowed: whether the access is granted; for `READ`, whether anything is seen.
        policies: the policies, and the rules without a policy, that say so.
        timed: the policies by which the answer depends on the time.
    """

    allowed: bool
    columns: tuple[str, ...]
    masks: tuple[tuple[str, str], ...]
    row_filters: tuple[str, ...]
    policies: tuple[str, ...]
    timed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """An answer, with the names of all users for whom it is the same."""

    answer: Answer
    users: tuple[str, ...]


def who_can(policies: PolicySet, people: People, question: Question) -> list[Access]:
    """Who can access a table or a column; most of it first.

    Args:
        policies: the policies.
        people: the users, made of these policies and the table's owner.
        question: what is asked.
    """
    names = UserNames([each.name for each in people.users])
    statements = Statements(policies, people, names, question.now, Numbers())
    heard = [each for about in _about(policies, question) for each in statements.about(*about)]
    found: dict[Answer, Users] = {}
    for some in alike(people.everybody, [heard]):
        timed = timed_names([heard], some.users)
        answer = _answer(policies, people.users[first(some.users)], question, timed)
        found[answer] = found.get(answer, 0) | some.users
    access = [Access(answer, people.names(users)) for answer, users in found.items()]
    return sorted(access, key=lambda each: (not each.answer.allowed, -len(each.answer.columns), each.users))


def answer_for(policies: PolicySet, principal: Principal, question: Question) -> Answer:
    """How much one user can access: the answer that `who_can` has for them."""
    timed = timed_for(policies, principal, _about(policies, question), question.now)
    return _answer(policies, principal, question, timed)


def _about(policies: PolicySet, question: Question) -> Iterator[About]:
    """All resources that can be asked for, with the policies that can be about them."""
    table = Resource.table(*question.table)
    candidates = policies.candidates(table)
    yield table, question.owner, candidates
    for name in _columns(question):
        yield Resource.column(*question.table, name), question.owner, candidates
    spec, service, engine = question.known.spec, question.known.service, question.engine
    others = [Resource.key(each) for each in (spec.key_ids() if spec else ())]
    others += [Resource.engine(engine)] if engine is not None else []
    others += [Resource.service(service)] if service is not None else []
    yield from ((resource, None, policies.candidates(resource)) for resource in others)


def _columns(question: Question) -> frozenset[str]:
    """The columns and fields of a table by all names that they have or had, and those that are asked for."""
    known = question.known
    every, spec = known.everything(), known.spec
    masked = (column for group in (spec.masks if spec else ()) for column in group.columns)
    return every.columns | every.nested | {*masked, *question.columns}


def _answer(policies: PolicySet, principal: Principal, question: Question, timed: tuple[str, ...]) -> Answer:
    if question.access == READ:
        return _reading(policies, principal, question, timed)
    request = AccessRequest(principal, question.resource, question.access, question.owner)
    decision = policies.decide(request, question.now)
    return Answer(decision.allowed, (), (), (), said(decision), timed)


def _reading(policies: PolicySet, principal: Principal, question: Question, timed: tuple[str, ...]) -> Answer:
    view = View.of(policies, question.now, principal, question.table, question.owner)
    each_seen = {
        name: seen(view, question.known, [name], question.through, engine=question.engine)
        for name in question.columns
    }
    shown = {name: each for name, each in each_seen.items() if each.decision.allowed}
    saying = (shown or each_seen).values()
    by = tuple(sorted({name for each in saying for name in said(each.decision)}))
    if not shown:
        return Answer(False, (), (), (), by, timed)
    masks = dict(mask for name, each in shown.items() for mask in _masks(view, question.known, name, each))
    filters = ("no row" if each.filter is None else each.filter.text for each in view.row_filters)
    return Answer(True, tuple(shown), tuple(masks.items()), tuple(sorted(set(filters))), by, timed)


def _masks(view: View, table: KnownTable, name: str, column: Seen) -> Iterator[tuple[str, str]]:
    """The masks that a column and its fields are seen through, the table's own or those of policies."""
    if column.masked:
        yield name, "mask of the table"
        return
    names = table.ever([name])
    for each in sorted(names.columns | names.nested):
        if (rule := view.mask(each)) is not None:
            yield each, rule.type


def said(decision: Decision) -> tuple[str, ...]:
    """Who says so, without the user's name, which is in the sentences."""
    return tuple(dict.fromkeys(_by(each.policy, each.item, each.rule) for each in decision.reasons))


def _by(policy: str | None, item: str | None, rule: str) -> str:
    return rule if policy is None else f"{policy} {item or ''}".strip()


def columns_named(known: KnownTable, name: str) -> list[str]:
    """The column or field of a table by a name in any letter case; none if the table does not have it."""
    names = (*(known.columns or ()), *known.nested)
    return [each for each in names if each.lower() == name.lower()]
