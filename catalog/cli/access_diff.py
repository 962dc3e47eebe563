"""`lakewarden access diff`: shows what a change of policies would grant, and what it would take away."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson
from catalog.cli.policy_check import moment_with_zone
from catalog.cli.reports import AsCsv, HtmlFile, one_form, show
from catalog.cli.session import open_services, policies_in_force

if TYPE_CHECKING:
    from policy.ranger import PolicySet

IN_FORCE: Final = "catalog"
"""Stands for the policies in force."""
_Side = Annotated[
    str,
    typer.Argument(
        help="File of policies, directory of them, or catalog for those in force.", show_default=False
    ),
]


def diff(
    ctx: typer.Context,
    old: _Side,
    new: _Side,
    at: Annotated[
        datetime | None,
        typer.Option(parser=moment_with_zone, metavar="TIME", help="Time of the decisions. Default: now."),
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    html: HtmlFile = None,
) -> None:
    """Show what a change of policies would grant to users of the catalog, and what it would take away.

    It compares decisions on namespaces, tables, views, columns, locations, keys, engines and the service.
    """
    from catalog.reports.access_changes import changes_report

    form = one_form(as_json=as_json, as_csv=as_csv, html=html)
    before = _policies(ctx, old, None)
    after = _policies(ctx, new, before)
    with output.progress("Comparing policies") as tell, open_services(ctx) as services:
        report = changes_report(
            services,
            before,
            after,
            at or datetime.now(UTC),
            f"Access: {old} to {new}",
            partial(tell, "Resources"),
        )
    show(report, form)


def _policies(ctx: typer.Context, side: str, before: PolicySet | None) -> PolicySet:
    """Read one side.

    Raises:
        PolicyInvalid: a file cannot be read, or has a mistake.
        StateUnavailable: the database does not answer.
    """
    from catalog.policy_store.files import read_documents
    from catalog.policy_store.kinds import OF_POLICIES
    from policy.ranger import PolicySet

    if side == IN_FORCE:
        stored = policies_in_force(ctx).stored
        return PolicySet.parse(stored.contents(*OF_POLICIES), before, kinds=stored.kinds())
    return PolicySet.parse(read_documents([Path(side)]), before)
