"""`lakewarden table list`: lists the tables of the catalog, with `--encryption` how each is encrypted."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.reports import AsCsv, HtmlFile, one_form, show
from catalog.cli.session import acting, open_services


def list_(
    ctx: typer.Context,
    encryption: Annotated[
        bool,
        typer.Option(
            "--encryption",
            help="Show epochs, keys and files of earlier epochs, from the manifests.",
        ),
    ] = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    html: HtmlFile = None,
) -> None:
    """List the tables of the catalog. Needs `audit` on the service."""
    from catalog.http.admin_access import require_service
    from catalog.reports.table_encryption import encryption_report
    from catalog.reports.tables import tables_report

    form = one_form(as_json=as_json, as_csv=as_csv, html=html)
    with (
        output.progress("Reading the catalog") as tell,
        open_services(ctx) as services,
        acting(services, as_user, changes=False) as caller,
    ):
        require_service(services, caller, "audit.states" if encryption else "audit.tables")
        make = encryption_report if encryption else tables_report
        report = make(services, partial(tell, "Tables"))
    show(report, form)
