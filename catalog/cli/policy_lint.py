"""`lakewarden policy lint`: checks which statements of a script are allowed, before it runs.

Exit codes are those of `policy check`: 0 if all are allowed, 3 if one is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, Groups, Roles, namespace_named
from catalog.cli.policy import DENIED
from catalog.cli.session import open_services, policies_in_force, settings_of, user_named
from policy.errors import RequestInvalid
from policy.location.location import Location
from policy.privileges.requests import ANY, AccessRequest

if TYPE_CHECKING:
    from policy.sql_lint import StatementDecision
    from policy.sql_lint.context import Known

_ANY_RIGHT: Final = {ANY: "any right"}


class DialectName(StrEnum):
    """The SQL dialect of a script."""

    SPARK = "spark"
    HIVE = "hive"


def lint_file(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.sql", help="The SQL script.", show_default=False)],
    dialect: Annotated[DialectName, typer.Option(help="SQL dialect of the script.")],
    as_user: Annotated[str, typer.Option("--as", metavar="USER", help="The user who would run the script.")],
    groups: Groups = None,
    roles: Roles = None,
    catalog: Annotated[
        str | None,
        typer.Option(help="Name of the catalog in the engine. Default: the name in the settings."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            parser=namespace_named, metavar="NAMESPACE", help="Current namespace at the start of the script."
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="USER", help="Owner of every table whose owner is not known.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Name of the engine, for statements that run code in it.")
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="Read owners, columns and governed properties of tables from the catalog."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check which statements of a SQL script are allowed. Exits with 0 if all are, with 3 if one is not."""
    from policy.sql_lint import LintContext, lint

    text, settings, in_force = _text_of(file), settings_of(ctx), policies_in_force(ctx)
    with output.progress("Checking statements"), lookup(ctx, live=live) as known:
        context = LintContext(
            principal=user_named(ctx, as_user, groups, roles),
            policies=in_force.policies,
            encryption=in_force.encryption,
            now=datetime.now(UTC),
            catalog=settings.catalog.name if catalog is None else catalog,
            database=database,
            owner=owner,
            engine=engine,
            master_key_id=settings.kms.default_master_key_id,
            warehouse=Location.parse(settings.warehouse),
            known=known,
        )
        answers = lint(text, dialect.value, context)
    allowed = all(each.decision.allowed for each in answers)
    if as_json:
        output.document({"allowed": allowed, "statements": [_as_json(each) for each in answers]})
    else:
        _show(file, answers)
    if not allowed:
        raise typer.Exit(DENIED)


def _text_of(file: Path) -> str:
    """Read the script.

    Raises:
        RequestInvalid: it cannot be read, is too long, or is not in UTF-8.
    """
    from policy.sql_lint.lexer import MAX_CHARACTERS

    most = 4 * MAX_CHARACTERS
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
        if len(data) > most:
            raise _unreadable(file, f"it has more than {most} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise _unreadable(file, str(error.strerror)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(file, f"byte {error.start} is not UTF-8") from error


def _unreadable(file: Path, why: str) -> RequestInvalid:
    return RequestInvalid(
        f"The script cannot be read: {why}.",
        path=str(file),
        rule="script",
        hint="Give a shorter file, in UTF-8, that you can read.",
    )


@contextmanager
def lookup(ctx: typer.Context, *, live: bool) -> Iterator[Known]:
    """Yield a function that returns known facts of tables: from the catalog, or none."""
    from policy.sql_lint.context import nothing_known

    if not live:
        yield nothing_known
        return
    from catalog.reports.table_facts import find_facts

    with open_services(ctx) as services:
        yield lambda name: find_facts(services.loader, name)


def _as_json(answer: StatementDecision) -> dict[str, Any]:
    return {
        "line": answer.line,
        "column": answer.column,
        "statement": answer.kind,
        "allowed": answer.decision.allowed,
        "reasons": [
            {"rule": each.rule, "policy": each.policy, "item": each.item, "detail": each.detail}
            for each in answer.decision.reasons
        ],
        "hint": answer.hint,
        "needed": [_request(each) for each in answer.needed],
        "assumed": list(answer.assumed),
        "notes": list(answer.notes),
    }


def _request(request: AccessRequest) -> dict[str, str]:
    return {"access": request.access, "resource": str(request.resource)}


def _show(file: Path, answers: Sequence[StatementDecision]) -> None:
    for answer in answers:
        verdict = "allowed" if answer.decision.allowed else "denied"
        place = f"{file}:{answer.line}:{answer.column}"
        style = "bold" if answer.decision.allowed else "bold red"
        output.line(f"{place}: {answer.kind}: {verdict}", style=style)
        for text in _details(answer):
            output.line(f"    {text}")
    denied = sum(not each.decision.allowed for each in answers)
    output.line(f"{len(answers)} statements, {denied} denied")


def _details(answer: StatementDecision) -> Iterator[str]:
    if answer.decision.allowed:
        yield from (
            f"needs {_ANY_RIGHT.get(each.access, each.access)} on {each.resource}" for each in answer.needed
        )
        yield from (f"provided that {each}" for each in answer.assumed)
        yield from (f"note: {each}" for each in answer.notes)
        return
    yield from (f"{each.rule}: {each.detail}" for each in answer.decision.reasons)
    if answer.hint:
        yield answer.hint
