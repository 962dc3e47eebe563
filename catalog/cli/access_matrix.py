"""`lakewarden access matrix`: shows what a user, or a member of a group, can do on the whole catalog."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson
from catalog.cli.policy_check import moment_with_zone
from catalog.cli.reports import AsCsv, HtmlFile, one_form, show
from catalog.cli.session import open_services, policies_in_force
from policy.privileges.requests import Through


def matrix(
    ctx: typer.Context,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="The user, with the groups and roles that are known.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="A group: what it gives to a member of no other group.")
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(parser=moment_with_zone, metavar="TIME", help="Time of the access. Default: now."),
    ] = None,
    through: Annotated[Through, typer.Option(help="How the user reads tables.")] = Through.ENGINE,
    engine: Annotated[str | None, typer.Option(help="Name of the engine, if it is known.")] = None,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Also show the namespaces, tables and views on which nothing is allowed."),
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    html: HtmlFile = None,
) -> None:
    """Show what a user can do on namespaces, tables, views, locations, keys, engines and the service.

    Resources on which the user can do the same share a row.
    """
    from catalog.reports.access_matrix import group_subject, matrix_report, user_subject
    from policy.access import Asker

    form = one_form(as_json=as_json, as_csv=as_csv, html=html)
    if (user is None) == (group is None):
        raise typer.BadParameter("Give --user or --group.")
    policies = policies_in_force(ctx).policies
    with output.progress("Reading the catalog") as tell, open_services(ctx) as services:
        if user is not None:
            subject = user_subject(services, policies, user)
        else:
            assert group is not None
            subject = group_subject(services, policies, group)
        report = matrix_report(
            services,
            policies,
            subject,
            Asker(subject.principal, at or datetime.now(UTC), through, engine),
            show_all=show_all,
            advance=partial(tell, "Tables"),
        )
    show(report, form)
