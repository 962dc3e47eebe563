"""`lakewarden access who-can`: lists the users who can access a table or a column."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.base.identifiers import TableName, table_name
from catalog.cli.access_people import groups_note, known_users
from catalog.cli.arguments import AsJson
from catalog.cli.policy_check import moment_with_zone
from catalog.cli.policy_lint import lookup
from catalog.cli.reports import AsCsv, HtmlFile, Report, require_one_form, show
from catalog.cli.session import policies_in_force, settings_of
from policy.errors import RequestInvalid
from policy.privileges.requests import ACCESS_TYPES, Through

if TYPE_CHECKING:
    from policy.access import Access, People, Question
    from policy.sql_lint.context import Known, TableFacts

_READ = "read"
_COLUMNS = ("access", "count", "users", "columns", "masks", "row filters", "by", "depends on time")


def access_named(text: str) -> str:
    """Parse `read`, or an access type of tables.

    Raises:
        typer.BadParameter: it is neither.
    """
    known = (_READ, *sorted(ACCESS_TYPES["database", "table"]))
    if text not in known:
        raise typer.BadParameter(f"{text!r} is not an access type. Give one of: {', '.join(known)}.")
    return text


def who_can(
    ctx: typer.Context,
    access: Annotated[
        str,
        typer.Argument(
            parser=access_named,
            metavar="ACCESS",
            help="read (values, as a scan shows them), or an access type of tables, such as update.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(metavar="TABLE[.COLUMN]", help="The table, or a column of it.", show_default=False),
    ],
    at: Annotated[
        datetime | None,
        typer.Option(parser=moment_with_zone, metavar="TIME", help="Time of the access. Default: now."),
    ] = None,
    through: Annotated[
        Through | None,
        typer.Option(help=f"For read: how the users read the table. Default: {Through.ENGINE}."),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="For read: name of the engine, if it is known.")] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also show the users who cannot access it, and why.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    html: HtmlFile = None,
) -> None:
    """List the users who can access a table or a column, how much they see of it, and by which policies."""
    from policy.access import People, who_can

    require_one_form(as_json=as_json, as_csv=as_csv, html=html)
    if access != _READ and (through is not None or engine is not None):
        raise typer.BadParameter(f"--through and --engine are for {_READ} alone.")
    policies, users = policies_in_force(ctx).policies, known_users(settings_of(ctx))
    with lookup(ctx, live=True) as known:
        asked = _question(known, access, name, at or datetime.now(UTC))
    service = replace(asked.known, service=settings_of(ctx).catalog.name)
    question = replace(asked, known=service, through=through or Through.ENGINE, engine=engine)
    people = People(users.principals, [policies], {question.owner} if question.owner else frozenset())
    found = who_can(policies, people, question)
    wanted = [each for each in found if show_all or each.answer.allowed]
    report = _report(question, wanted, people, users.refused)
    show(report, as_json=as_json, as_csv=as_csv, html=html)


def _question(known: Known, access: str, name: str, now: datetime) -> Question:
    """Find the table, or the table of the column, and ask about it.

    Raises:
        NoSuchTable: neither exists.
        RequestInvalid: the table has no such column, or the name is ambiguous.
    """
    from policy.access import Question
    from policy.access.who_can import columns_named

    table, column, facts = _found(known, name)
    if column is not None:
        columns = columns_named(facts.known, column)
        if len(columns) != 1:
            raise RequestInvalid(
                f"Column {column!r} does not exist in {table}. Columns: {', '.join(facts.columns or ())}.",
                rule="column",
                hint="Give the column as NAMESPACE.TABLE.COLUMN.",
            )
        (column,) = columns
    return Question(access, (".".join(table.namespace), table.name), column, facts.owner, facts.known, now)


def _found(known: Known, name: str) -> tuple[TableName, str | None, TableFacts]:
    """Split a dotted name where a table is; a name for which there are two is refused."""
    from catalog.base.errors import NoSuchTable

    parts, found = name.split("."), []
    for end in range(2, len(parts) + 1):
        table = table_name(parts[: end - 1], parts[end - 1])
        if (facts := known(table)) is not None:
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
    return found[0]


def _report(question: Question, found: list[Access], people: People, refused: dict[str, str]) -> Report:
    what = ".".join((*question.table, *([question.column] if question.column else [])))
    rows = [
        (
            _label(each, question),
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
    }
    chart: dict[str, int] = {}
    for label, count, *_ in rows:
        chart[label] = chart.get(label, 0) + count
    return Report(f"Who can {question.access} {what}", _COLUMNS, rows, document, chart, _notes(document))


def _label(each: Access, question: Question) -> str:
    answer = each.answer
    if not answer.allowed:
        return "denied"
    some = len(answer.columns) < len(question.columns) and question.access == _READ
    parts = ["some columns" if some else "allowed"]
    parts += ["masked"] if answer.masks else []
    parts += ["filtered"] if answer.row_filters else []
    return ", ".join(parts)


def _notes(document: dict[str, Any]) -> list[str]:
    notes = [f"The service refuses {name} now ({why})." for name, why in document["refused-now"].items()]
    if document["groups-without-known-users"]:
        notes.append(groups_note(document["groups-without-known-users"]))
    return notes
