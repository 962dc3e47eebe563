"""`lakewarden access who-can`: lists the users who can access a table or a column."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from catalog.cli.arguments import AsJson
from catalog.cli.policy_check import moment_with_zone
from catalog.cli.reports import AsCsv, HtmlFile, one_form, show
from catalog.cli.session import open_services, policies_in_force
from policy.privileges.requests import ACCESS_TYPES, Through

_READ = "read"


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
    from catalog.reports.who_can import Asked, who_can_report

    form = one_form(as_json=as_json, as_csv=as_csv, html=html)
    if access != _READ and (through is not None or engine is not None):
        raise typer.BadParameter(f"--through and --engine are for {_READ} alone.")
    policies = policies_in_force(ctx).policies
    asked = Asked(access, name, at or datetime.now(UTC), through or Through.ENGINE, engine)
    with open_services(ctx) as services:
        report = who_can_report(services, policies, asked, show_all=show_all)
    show(report, form)
