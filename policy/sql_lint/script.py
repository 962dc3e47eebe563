"""A script while it is read: what its statements ask for, and what they make known to those after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from policy.identifiers import TableName, namespace_of
from policy.sql_lint.context import LintContext, TableFacts
from policy.sql_lint.denials import Refusal
from policy.sql_lint.names import Names
from policy.sql_lint.required import Asks
from policy.sql_lint.statements import (
    AlterColumns,
    AlterProperties,
    CallOnKeys,
    CallRewrite,
    Code,
    CreateTable,
    CreateView,
    DropTable,
    DropView,
    Explain,
    Insert,
    Look,
    Namespace,
    Nothing,
    Query,
    RenameTable,
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
    """

    names: Names
    facts: dict[TableName, TableFacts | None] = field(default_factory=dict)
    views: dict[str, tuple[Names, Query]] = field(default_factory=dict)

    @classmethod
    def begun(cls, context: LintContext, *, hive: bool) -> Self:
        """A script at its beginning.

        Raises:
            RequestInvalid: the context names no namespace.
        """
        given = context.database
        current = None if given is None else namespace_of(given.split("."))
        return cls(Names(context.catalog, current, lost=False, hive=hive))

    def asks(self, context: LintContext) -> Asks:
        """What the next statement needs is collected here."""
        return Asks(context, self.names, self.facts, self.views)

    def ask(self, statement: Statement, asks: Asks) -> After:
        """Ask for what a statement needs.

        Raises:
            Refusal, LakewardenError: it breaks a rule, or something that counts is not known.
        """
        match statement:
            case CreateTable():
                return self._know(*asks.create_table(statement))
            case AlterProperties():
                return self._know(*asks.alter_properties(statement))
            case AlterColumns():
                return self._know(*asks.alter_columns(statement))
            case RenameTable():
                return self._rename(*asks.rename(statement), asks)
            case DropTable():
                return self._know(asks.drop_table(statement), None)
            case CreateView():
                return self._view(statement, asks)
            case DropView():
                return self._drop_view(statement)
            case Namespace():
                return self._namespace(statement, asks)
            case Explain():
                self.ask(statement.statement, asks)
                return _nothing
        self._without_effect(statement, asks)
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

    def _without_effect(
        self, statement: Insert | Select | Look | Code | CallOnKeys | CallRewrite | Nothing, asks: Asks
    ) -> None:
        if isinstance(statement, Insert):
            asks.insert(statement)
        elif isinstance(statement, Select):
            asks.read(statement.query)
        elif isinstance(statement, Look):
            asks.look(statement)
        elif isinstance(statement, CallOnKeys):
            asks.call_on_keys(statement)
        elif isinstance(statement, CallRewrite):
            asks.call_rewrite(statement)
        elif isinstance(statement, Code):
            asks.code(statement.what)

    def _know(self, name: TableName, facts: TableFacts | None) -> After:
        def after() -> None:
            self.facts[name] = facts

        return after

    def _rename(self, source: TableName, target: TableName, asks: Asks) -> After:
        facts = asks.known(source)

        def after() -> None:
            self.facts[source] = None
            self.facts[target] = facts

        return after

    def _view(self, statement: CreateView, asks: Asks) -> After:
        asks.read(statement.query)
        names = self.names

        def after() -> None:
            self.views[statement.name.lower()] = (names, statement.query)

        return after

    def _drop_view(self, statement: DropView) -> After:
        name = statement.name[0].lower()
        if len(statement.name) > 1 or name not in self.views:
            raise Refusal(
                "not-supported-yet", "Views are not kept by the catalog.", "Drop temporary views alone."
            )
        return lambda: self.views.__delitem__(name)

    def _namespace(self, statement: Namespace, asks: Asks) -> After:
        asks.namespace(statement)
        if not statement.uses or statement.name is None:
            return _nothing
        current = self.names.namespace(statement.name)

        def after() -> None:
            self.names = replace(self.names, current=current, lost=False)

        return after


def _nothing() -> None:
    """Nothing is otherwise."""
