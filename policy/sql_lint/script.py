"""A script while it is read: what its statements ask for, and what they make known to those after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from policy.identifiers import TableName, namespace_of
from policy.sql_lint.context import LintContext, TableFacts
from policy.sql_lint.names import Names
from policy.sql_lint.required import RequiredPrivileges
from policy.sql_lint.statements import (
    AlterColumns,
    AlterLayout,
    AlterProperties,
    AlterReference,
    CallAnalyze,
    CallChangelog,
    CallCopy,
    CallMaintenance,
    CallOnKeys,
    CallRewrite,
    ChangeRows,
    ChangeView,
    Code,
    CreateTable,
    CreateView,
    DescribeTable,
    DropTable,
    DropView,
    Explain,
    Insert,
    Namespace,
    NoPrivileges,
    Query,
    RenameTable,
    ReplaceTable,
    Select,
    Statement,
)

#: First words of statements that make no other namespace the current one.
_PLAIN: Final = (
    "ALTER ADD ANALYZE COMMENT CREATE DELETE DESC DESCRIBE DROP EXPLAIN FROM INSERT MERGE REFRESH "
    "REPLACE SELECT SHOW TRUNCATE UPDATE VALUES WITH"
)
_NO_USE: Final = frozenset(_PLAIN.split())
_NO_VIEW: Final = _NO_USE | {"USE", "SET"}
#: Words that statements begin with which make or change a temporary view.
_VIEWS: Final = ("CREATE TEMP", "CREATE OR REPLACE TEMP", "ALTER VIEW", "CACHE")

#: What is otherwise once a statement was carried out.
After = Callable[[], None]


@dataclass
class Script:
    """What is known at a point of a script.

    Attributes:
        names: how names are resolved.
        facts: what is known of the tables that were made or altered; None of one that is gone.
        views: the temporary views, with the names as they were resolved where each was made.
        stored: the permanent views that the script makes, likewise.
    """

    names: Names
    facts: dict[TableName, TableFacts | None] = field(default_factory=dict)
    views: dict[str, tuple[Names, Query]] = field(default_factory=dict)
    stored: dict[TableName, tuple[Names, Query]] = field(default_factory=dict)

    @classmethod
    def begun(cls, context: LintContext, *, hive: bool) -> Self:
        """A script at its beginning.

        Raises:
            RequestInvalid: the context names no namespace.
        """
        given = context.database
        current = None if given is None else namespace_of(given.split("."))
        return cls(Names(context.catalog, current, lost=False, hive=hive))

    def asks(self, context: LintContext) -> RequiredPrivileges:
        """What the next statement needs is collected here."""
        return RequiredPrivileges(context, self.names, self.facts, self.views, self.stored)

    def ask(self, statement: Statement, required: RequiredPrivileges) -> After:
        """Collects the privileges that a statement requires.

        Raises:
            Refusal, LakewardenError: it breaks a rule, or something that counts is not known.
        """
        match statement:
            case CreateTable():
                return self._know(*required.create_table(statement))
            case ReplaceTable():
                return self._know(*required.replace_table(statement))
            case AlterProperties():
                return self._know(*required.alter_properties(statement))
            case AlterColumns():
                return self._know(*required.alter_columns(statement))
            case AlterLayout():
                return self._know(*required.alter_layout(statement))
            case AlterReference():
                required.alter_reference(statement)
            case RenameTable():
                return self._rename(*required.rename(statement), required)
            case DropTable():
                return self._know(required.drop_table(statement), None)
            case CreateView():
                return self._view(statement, required)
            case ChangeView():
                return self._change_view(statement, required)
            case DropView():
                return self._drop_view(statement, required)
            case Namespace():
                return self._namespace(statement, required)
            case Explain():
                self.ask(statement.statement, required)
            case Insert():
                name, facts = required.insert(statement)
                return self._know(name, facts) if statement.evolves else _nothing
            case ChangeRows():
                name, facts = required.change_rows(statement)
                return self._know(name, facts) if statement.evolves else _nothing
            case Select():
                required.read(statement.query)
            case DescribeTable():
                required.describe_table(statement)
            case CallCopy():
                return self._know(*required.call_copy(statement))
            case CallOnKeys():
                required.call_on_keys(statement)
            case CallRewrite():
                required.call_rewrite(statement)
            case CallChangelog():
                return self._view(CreateView(statement.view, required.call_changelog(statement)), required)
            case CallAnalyze():
                required.call_analyze(statement)
            case CallMaintenance():
                required.call_maintenance(statement)
            case Code():
                required.code(statement.what)
            case NoPrivileges():
                pass
            case _:
                raise AssertionError("every kind of statement is above")
        return _nothing

    def denied(self, kind: str) -> None:
        """After a statement that is denied: what is no plain statement about tables may have been a USE.

        It may have had effect all the same, and so may one of a temporary view, or one that carries others
        (EXECUTE IMMEDIATE, BEGIN): who makes a view says what its name means.
        """
        first = kind.partition(" ")[0]
        if first not in _NO_USE:
            self.names = replace(self.names, lost=True)
        if kind.startswith(_VIEWS) or first not in _NO_VIEW:
            self.names = replace(self.names, hidden=True)
            self.views.clear()

    def _know(self, name: TableName, facts: TableFacts | None) -> After:
        def after() -> None:
            self.facts[name] = facts

        return after

    def _rename(self, source: TableName, target: TableName, required: RequiredPrivileges) -> After:
        facts = required.known(source)

        def after() -> None:
            self.facts[source] = None
            self.facts[target] = facts

        return after

    def _view(self, statement: CreateView, required: RequiredPrivileges) -> After:
        required.read(statement.query)
        names = self.names

        def after() -> None:
            self.views[statement.name.lower()] = (names, statement.query)

        return after

    def _change_view(self, statement: ChangeView, required: RequiredPrivileges) -> After:
        source, target = required.change_view(statement)
        known = self.stored.get(source)
        text = known if statement.query is None else (self.names, statement.query)
        # An existing view stays its owner's.
        gone = source in self.facts and self.facts[source] is None
        new = "view.create" in statement.operations and (gone or not statement.may_exist)
        facts = TableFacts(required.context.principal.name) if new else required.known(source)

        def after() -> None:
            if target != source:
                self.facts[source] = None
                self.stored.pop(source, None)
            self.facts[target] = facts
            if text is not None:
                self.stored[target] = text

        return after

    def _drop_view(self, statement: DropView, required: RequiredPrivileges) -> After:
        bare = statement.name[0].lower()
        if len(statement.name) == 1 and bare in self.views:
            return lambda: self.views.__delitem__(bare)
        name = required.drop_view(statement)

        def after() -> None:
            self.facts[name] = None
            self.stored.pop(name, None)

        return after

    def _namespace(self, statement: Namespace, required: RequiredPrivileges) -> After:
        required.namespace(statement)
        if not statement.uses or statement.name is None:
            return _nothing
        current = self.names.namespace(statement.name)

        def after() -> None:
            self.names = replace(self.names, current=current, lost=False)

        return after


def _nothing() -> None:
    """Leaves the script state unchanged."""
