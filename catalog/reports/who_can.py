"""Reports who can access a table or a column, how much they see of it, and by which policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from pyiceberg.schema import index_by_name

from catalog.authorization.definers import named_by
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName, table_name
from catalog.db.engine import read
from catalog.reports.report import Chart, Report
from catalog.reports.table_facts import find_facts
from catalog.reports.users import groups_note, known_users, refusal_note, through_note
from catalog.service.services import Services
from catalog.state import views
from policy.access import Access, People, Question, who_can
from policy.access.who_can import READ, Answer, columns_named
from policy.errors import RequestInvalid
from policy.privileges.requests import Through
from policy.ranger.policy_set import PolicySet
from policy.sql_lint import TableFacts

_COLUMNS: Final = ("access", "count", "users", "columns", "masks", "row filters", "by", "depends on time")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked about every user.

    Attributes:
        access: `READ`, or an access type of tables.
        name: dotted name of the table, or of a column of it.
        at: the time of the access, with a zone.
        through: how the table would be read.
        engine: the engine's name; None if it is not known.
    """

    access: str
    name: str
    at: datetime
    through: Through = Through.ENGINE
    engine: str | None = None


def who_can_report(services: Services, policies: PolicySet, asked: Asked, *, show_all: bool) -> Report:
    """Report who can access a table, a view or a column.

    Args:
        services: the open catalog.
        policies: the policies that decide.
        asked: the access.
        show_all: whether users who are denied are shown, too.

    Raises:
        NoSuchTable: the table does not exist.
        RequestInvalid: the table has no such column, or the name is ambiguous; or `READ` is asked of a view.
    """
    users = known_users(services.principals)
    question = _question(services, asked)
    people = People(users.principals, [policies], {question.owner} if question.owner else frozenset())
    found = who_can(policies, people, question)
    shown = [each for each in found if show_all or each.answer.allowed]
    return _report(question, shown, people, users.refused, _doors(services, question))


def label(answer: Answer, columns: Sequence[str], access: str) -> str:
    """Return an answer in a few words.

    Args:
        answer: the answer.
        columns: all columns that it is about.
        access: what was asked.
    """
    if not answer.allowed:
        return "denied"
    some = len(answer.columns) < len(columns) and access == READ
    parts = ["some columns" if some else "allowed"]
    parts += ["masked"] if answer.masks else []
    parts += ["filtered"] if answer.row_filters else []
    return ", ".join(parts)


def _question(services: Services, asked: Asked) -> Question:
    """Find the table, or the table of the column, and ask about it."""
    table, column, facts = _found(services, asked)
    if column is not None:
        columns = columns_named(facts.known, column)
        if len(columns) != 1:
            raise RequestInvalid(
                f"Column {column!r} does not exist in {table}. Columns: {', '.join(facts.columns or ())}.",
                rule="column",
                hint="Give the column as NAMESPACE.TABLE.COLUMN.",
            )
        (column,) = columns
    return Question(
        asked.access,
        (table.database, table.name),
        column,
        facts.owner,
        replace(facts.known, service=services.catalog),
        asked.at,
        asked.through,
        asked.engine,
    )


def _found(services: Services, asked: Asked) -> tuple[TableName, str | None, TableFacts]:
    """Split a dotted name where a table or view is; a name for which there are two is refused."""
    name, of_views = asked.name, set[TableName]()
    parts, found = name.split("."), []
    for end in range(2, len(parts) + 1):
        table = table_name(parts[: end - 1], parts[end - 1])
        facts = find_facts(services.loader, table)
        if facts is None and (facts := _facts_of_view(services, table)) is not None:
            of_views.add(table)
        if facts is not None:
            found.append((table, ".".join(parts[end:]) or None, facts))
    if not found:
        raise NoSuchTable(
            f"The table {name} does not exist.",
            table=name,
            hint="Give NAMESPACE.TABLE or NAMESPACE.TABLE.COLUMN.",
        )
    if len(found) > 1:
        raise RequestInvalid(
            f"{name!r} is ambiguous: the tables {' and '.join(str(each[0]) for each in found)} exist.",
            rule="table",
            hint="Give another column of the table, or the table alone.",
        )
    if asked.access == READ and found[0][0] in of_views:
        raise RequestInvalid(
            f"{found[0][0]} is a view. What it shows depends on the tables in its text.",
            rule="view",
            hint=f"Ask who can `select` from it, and who can `{READ}` its tables.",
        )
    return found[0]


def _facts_of_view(services: Services, name: TableName) -> TableFacts | None:
    """Return the facts of a view; None if there is none."""
    with read(services.engine) as connection:
        view = views.view(connection, services.catalog, name)
    if view is None:
        return None
    columns = tuple(each.name for each in view.schema.fields)
    nested = tuple(each for each in index_by_name(view.schema) if each not in columns)
    return TableFacts(view.owner, columns, nested)


def _doors(services: Services, question: Question) -> dict[str, str]:
    """The definers of the views through which others read a table, by the views' names."""
    if question.access != READ:
        return {}
    with read(services.engine) as connection:
        every = views.every_view(connection, services.catalog)
    table = table_name(question.table[0].split("."), question.table[1])
    doors = (each for each in every if each.definer_rights and table in named_by(each))
    return {str(each.name): each.definer for each in doors}


def _report(
    question: Question,
    found: list[Access],
    people: People,
    refused: dict[str, str],
    doors: dict[str, str],
) -> Report:
    what = ".".join((*question.table, *([question.column] if question.column else [])))
    rows = [
        (
            label(each.answer, question.columns, question.access),
            len(each.users),
            each.users,
            each.answer.columns,
            [f"{column}: {mask}" for column, mask in each.answer.masks],
            each.answer.row_filters,
            each.answer.policies,
            each.answer.timed,
        )
        for each in found
    ]
    named = {name for each in found for name in each.users}
    document: dict[str, Any] = {
        "access": question.access,
        "resource": what,
        "owner": question.owner,
        "at": question.now.isoformat(),
        "answers": [{"users": each.users, **asdict(each.answer)} for each in found],
        "refused-now": {name: why for name, why in refused.items() if name in named},
        "groups-without-known-users": people.without_members,
        "definer-views": doors,
    }
    amounts = Counter[str]()
    for each_label, count, *_ in rows:
        amounts[each_label] += count
    charts = [Chart("Users by access", amounts)]
    title = f"Who can {question.access} {what}"
    return Report(title, _COLUMNS, rows, document, charts, _notes(question, document))


def _notes(question: Question, document: dict[str, Any]) -> list[str]:
    notes = [through_note(question.through)] if question.access == READ else []
    notes += [refusal_note(name, why) for name, why in document["refused-now"].items()]
    if document["groups-without-known-users"]:
        notes.append(groups_note(document["groups-without-known-users"]))
    notes += [
        f"Users who can select from the view {view} can read this table through it, by the permissions of "
        f"{definer}. They are not in the rows. Run `lakewarden access who-can select {view}`."
        for view, definer in document["definer-views"].items()
    ]
    return notes
