"""Answers about the tables that break the encryption rules."""

from __future__ import annotations

from catalog.http.base_models import Answer
from catalog.maintenance.encryption_report import TableStanding


class Broken(Answer):
    """One thing that a rule asks and a table does not have; `column` is null where it is about the table."""

    rule: str
    document: str
    ask: str
    column: str | None
    found: str
    detail: str
    remedy: str


class TableReport(Answer):
    """How a table stands with the rules: `fits`, `breaks`, or `unknown` if it cannot be loaded."""

    table: str
    standing: str
    violations: list[Broken]
    earlier_files_in_plaintext: bool
    problem: str | None

    @classmethod
    def of(cls, found: TableStanding) -> TableReport:
        """A table as it is reported."""
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
        return cls(
            table=found.table,
            standing=found.standing,
            violations=broken,
            earlier_files_in_plaintext=found.earlier_files_in_plaintext,
            problem=found.problem,
        )


class EncryptionReport(Answer):
    """Tables in the order of their names; `next` is what to ask for as `after`, if there are more."""

    rules_version: str
    tables: list[TableReport]
    next: str | None
