"""Answers about the columns of tables, and about tables that break the encryption rules."""

from __future__ import annotations

from catalog.http.base_models import Answer
from catalog.maintenance.column_report import ColumnStanding
from catalog.maintenance.encryption_report import TableStanding


class Broken(Answer):
    """A violation of a rule; `column` is null if it is about the table."""

    rule: str
    document: str
    ask: str
    column: str | None
    found: str
    detail: str
    remedy: str


class TableReport(Answer):
    """The result of checking a table: `fits`, `breaks`, or `unknown` if it cannot be loaded.

    `set` and `unset` are the properties that make it fit, unless `undecided` says what a person must decide.
    """

    table: str
    standing: str
    violations: list[Broken]
    set: dict[str, str]
    unset: list[str]
    undecided: str | None
    earlier_files_in_plaintext: bool
    problem: str | None

    @classmethod
    def of(cls, found: TableStanding) -> TableReport:
        """Convert a result to an answer."""
        broken = [
            Broken(
                rule=each.rule,
                document=each.document,
                ask=each.requirement,
                column=each.column,
                found=each.found,
                detail=each.detail,
                remedy=each.remedy,
            )
            for each in found.violations
        ]
        remedy = found.remedy.properties
        return cls(
            table=found.table,
            standing=found.standing,
            violations=broken,
            set={name: value for name, value in remedy.items() if value is not None},
            unset=[name for name, value in remedy.items() if value is None],
            undecided=found.remedy.undecided,
            earlier_files_in_plaintext=found.earlier_files_in_plaintext,
            problem=found.problem,
        )


class EncryptionReport(Answer):
    """Tables sorted by name; `next` is the value of `after` for the next page, if there is one."""

    rules_version: str
    tables: list[TableReport]
    next: str | None


class ColumnAnswer(Answer):
    """A column: whether it is `encrypted` in new files and `shown` to the caller; `tags` null if not told."""

    name: str
    type: str
    required: bool
    encrypted: bool
    shown: bool
    tags: list[str] | None


class ColumnsAnswer(Answer):
    """The columns of a table, in the order of its schema."""

    columns: list[ColumnAnswer]

    @classmethod
    def of(cls, found: list[ColumnStanding]) -> ColumnsAnswer:
        """Convert a result to an answer."""
        return cls(columns=[ColumnAnswer.model_validate(each) for each in found])
