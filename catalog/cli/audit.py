"""`lakewarden audit`: read the audit trail, and check its chains."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from catalog import audit as trail
from catalog.audit import StoredRecord
from catalog.cli import output
from catalog.cli.arguments import AsJson, moment_of, table_of
from catalog.cli.session import open_state, settings_of
from catalog.identifiers import TableName

app = typer.Typer(help="The audit trail.", no_args_is_help=True)


@app.command()
def show(
    ctx: typer.Context,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=moment_of, metavar="TIME", help="From when on: ISO 8601, or how long ago, such as 12h."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only what was asked on behalf of this user.")] = None,
    table: Annotated[
        TableName | None,
        typer.Option(parser=table_of, metavar="TABLE", help="Only what was asked of this table."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many records.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the latest decisions, newest first."""
    with open_state(settings_of(ctx)) as engine:
        found = trail.read(
            engine,
            since_ms=None if since is None else int(since.timestamp() * 1000),
            principal=user,
            table=None if table is None else str(table),
            limit=limit,
        )
    if as_json:
        output.document([_full(stored) for stored in found])
    else:
        output.rows(("time", "user", "engine", "action", "resource", "answer", "why"), map(_line, found))


@app.command()
def verify(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check that no record was edited, removed from the middle or reordered; exit with 1 if one was."""
    with open_state(settings_of(ctx)) as engine:
        problems = trail.verify(engine)
    if as_json:
        output.document([asdict(problem) for problem in problems])
    elif problems:
        output.rows(
            ("writer", "record", "kind", "what"),
            [(problem.writer, problem.sequence, problem.kind, problem.detail) for problem in problems],
        )
    else:
        output.note("Every chain of the audit trail holds.")
    if problems:
        raise typer.Exit(1)


def _line(stored: StoredRecord) -> tuple[object, ...]:
    record = stored.record
    answer = "allowed" if record.allowed else "refused"
    why = record.reasons[0].detail
    return _time(record.at_ms), record.principal, record.engine, record.action, record.resource, answer, why


def _full(stored: StoredRecord) -> dict[str, object]:
    return {
        **asdict(stored.record),
        "at": _time(stored.record.at_ms),
        "writer": stored.writer,
        "sequence": stored.sequence,
    }


def _time(at_ms: int) -> str | None:
    return output.moment(datetime.fromtimestamp(at_ms / 1000, UTC))
