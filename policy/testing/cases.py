"""Cases of policy tests, as typed values.

A case asks one question (a request, a SQL statement, or how a table is to be encrypted) and says what the
answer is to be. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from policy.decision import Reason
from policy.explain.considered import UNKNOWN_TABLE
from policy.identifiers import TableName
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import Resource, Through
from policy.sql_lint.lint import Dialect
from policy.testing.fixtures import FixtureTable

Answer = Literal["allow", "deny", "masked"]
"""What a case can expect."""

NO_MASK: Final = "none"
"""How a case says that a column is seen as it is."""


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """A request.

    Attributes:
        principal: who asks.
        access: an access type of the resource.
        resource: what is asked for.
        owner: who owns it; None where nobody is known to.
        table: what is known of the table that it is, or is a column of.
        through: how the table is read.
    """

    principal: Principal
    access: str
    resource: Resource
    owner: str | None
    table: KnownTable = UNKNOWN_TABLE
    through: Through = Through.ENGINE

    def __str__(self) -> str:
        owned = "" if self.owner is None else f", owned by {self.owner!r}"
        through = "" if self.through is Through.ENGINE else f", through {self.through}"
        return f"{_who(self.principal)} requests {self.access} on {self.resource}{owned}{through}"


@dataclass(frozen=True, slots=True)
class StatementQuestion:
    """A SQL statement.

    Attributes:
        principal: the user who runs it, in an engine that acts for them.
        sql: the statement.
        dialect: whose SQL it is.
        database: the current namespace; None if there is none.
        owner: who owns the tables of which no other owner is known.
    """

    principal: Principal
    sql: str
    dialect: Dialect
    database: str | None
    owner: str | None

    def __str__(self) -> str:
        return f"{_who(self.principal)} runs {self.dialect} SQL: {' '.join(self.sql.split())}"


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """A table of the file's `tables`, as if it were made with its columns and properties."""

    table: TableName

    def __str__(self) -> str:
        return f"create table {self.table}"


Question: TypeAlias = AccessQuestion | StatementQuestion | TableQuestion


@dataclass(frozen=True, slots=True)
class ExpectedReason:
    """What a reason of the decision is to say; what is None may be anything.

    Attributes:
        rule: name of the rule.
        policy: name of the policy, or of the encryption rule.
        item: label of the policy's item.
        detail: a part of the sentence.
    """

    rule: str | None
    policy: str | None
    item: str | None
    detail: str | None

    def matches(self, reason: Reason) -> bool:
        """Whether a reason says all of it."""
        named = (self.rule, reason.rule), (self.policy, reason.policy), (self.item, reason.item)
        return all(wanted in (None, found) for wanted, found in named) and (
            self.detail is None or self.detail in reason.detail
        )

    def __str__(self) -> str:
        parts = {"rule": self.rule, "policy": self.policy, "item": self.item, "detail": self.detail}
        return ", ".join(f"{name} {value!r}" for name, value in parts.items() if value is not None)


@dataclass(frozen=True, slots=True)
class ExpectedMask:
    """The mask that a column is to have.

    Attributes:
        type: one of Ranger's mask types, an action of the Iceberg REST specification, or `NO_MASK`.
        policy: name of the policy that it comes from; None for any.
    """

    type: str
    policy: str | None


@dataclass(frozen=True, slots=True)
class Sample:
    """A row of a table, and what the user is to see of it.

    Attributes:
        row: values by the names of columns; what is left out is NULL.
        shown: the values that are to be shown, in the same form; None if the row is to be hidden.
    """

    row: Mapping[str, str]
    shown: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Expected:
    """What the answer is to be.

    Attributes:
        answer: ``allow``, ``deny``, or ``masked`` where a column is shown through a mask.
        because: what one of its reasons says; None for anything.
        mask: the mask on the column that is asked for; None if nothing is said of it.
        filtered: whether only some rows are seen; None if nothing is said of it.
        row_filter: the row filter as it is decided, in SQL; None if nothing is said of it.
        sample: a row and what is seen of it; None if there is none.
    """

    answer: Answer
    because: ExpectedReason | None
    mask: ExpectedMask | None
    filtered: bool | None
    row_filter: str | None = None
    sample: Sample | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        name: its name, one in its file.
        file: the file.
        line: where it begins there, from 1.
        at: when the question is asked; None if the time must not matter.
        question: the question.
        expected: the answer that it is to get.
    """

    name: str
    file: str
    line: int
    at: datetime | None
    question: Question
    expected: Expected


@dataclass(frozen=True, slots=True)
class Catalog:
    """The catalog that a file's SQL is run against.

    Attributes:
        name: how the engine calls it.
        master_key: its master key, for tables that name none.
        engine: the engine's name.
    """

    name: str = "lakewarden"
    master_key: str | None = None
    engine: str | None = None


@dataclass(frozen=True, slots=True)
class CaseFile:
    """What a file of cases says.

    Attributes:
        name: the file.
        policies: paths of the policies that it tests, relative to it.
        encryption_rules: paths of encryption rules, relative to it.
        catalog: the catalog.
        tables: the tables that are known to its cases.
        cases: its cases; at least one.
    """

    name: str
    policies: tuple[str, ...]
    encryption_rules: tuple[str, ...]
    catalog: Catalog
    tables: Mapping[TableName, FixtureTable]
    cases: tuple[Case, ...]


def _who(principal: Principal) -> str:
    names = {"groups": principal.groups, "roles": principal.roles}
    also = "; ".join(f"{kind} {', '.join(sorted(each))}" for kind, each in names.items() if each)
    return f"{principal.name!r} ({also})" if also else repr(principal.name)
