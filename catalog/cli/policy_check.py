"""`lakewarden policy check`: explains one decision, its reasons, and what would change it.

It reads the policies in the catalog's database, as the service does. It needs the database, but neither KMS
nor storage. With `--live` it loads the table: owner, columns, keys and masks.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, Groups, Roles
from catalog.cli.policy import DENIED
from catalog.cli.policy_lint import lookup
from catalog.cli.session import policies_in_force, settings_of, user_named
from policy.errors import RequestInvalid
from policy.identifiers import TableName
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.resource_names import resource_named

if TYPE_CHECKING:
    from policy.decision import Reason
    from policy.explain import Considered, Explanation
    from policy.sql_lint.context import Known, TableFacts


def resource_of(text: str) -> Resource:
    """Parse a resource from ``KIND:NAME``.

    Raises:
        typer.BadParameter: it is not a resource.
        LocationInvalid: the name is not a valid location.
    """
    try:
        return resource_named(text)
    except RequestInvalid as error:
        raise typer.BadParameter(str(error)) from error


def moment_with_zone(text: str) -> datetime:
    """Parse a time in ISO 8601 with a zone.

    Raises:
        typer.BadParameter: it is not such a time.
    """
    try:
        moment = datetime.fromisoformat(text)
        # Times within a day of the calendar's ends cannot be shown in every zone.
        _ = moment - timedelta(days=2), moment + timedelta(days=2)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} is not a time with a zone. Give one such as 2030-01-31T12:00+01:00."
        )
    return moment


def check(
    ctx: typer.Context,
    resource: Annotated[
        Resource,
        typer.Argument(
            parser=resource_of,
            metavar="RESOURCE",
            help="What to access: database:NAMESPACE, table:NAMESPACE.TABLE, "
            "column:NAMESPACE.TABLE/COLUMN, url:LOCATION, storage:LOCATION, "
            "key:MASTER_KEY_ID, engine:NAME or service:NAME.",
            show_default=False,
        ),
    ],
    access: Annotated[str, typer.Argument(help="Access type, such as select.", show_default=False)],
    as_user: Annotated[str, typer.Option("--as", metavar="USER", help="The user to decide for.")],
    groups: Groups = None,
    roles: Roles = None,
    owner: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Owner of the resource, for policies that grant to {OWNER}."),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            parser=moment_with_zone,
            metavar="TIME",
            help="Time of the request, such as 2030-01-31T12:00+01:00. Default: now.",
        ),
    ] = None,
    through: Annotated[
        Through, typer.Option(help="How the user reads a table or a column.")
    ] = Through.ENGINE,
    engine: Annotated[
        str | None,
        typer.Option(
            help="Name of the engine. It enforces row filters and masks for users who cannot run code in it."
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Look the table up in the catalog: its owner, columns, keys and masks."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Explain whether a user is allowed an access. Exits with 0 if allowed, with 3 if denied."""
    from catalog.service.explanations import Question, explained

    if live and not _is_of_table(resource):
        raise typer.BadParameter("--live needs a table or a column. Leave it out for other resources.")
    principal = user_named(ctx, as_user, groups, roles)
    stored = policies_in_force(ctx).stored
    with lookup(ctx, live=live) as known:
        facts = _facts(resource, known, live=live)
    request = AccessRequest(principal, resource, access, facts.owner if owner is None else owner)
    table = replace(facts.known, service=settings_of(ctx).catalog.name)
    question = Question(request, at or datetime.now(UTC), table, through, engine)
    considered, explanation = explained(stored, question)
    if as_json:
        output.document(_document(considered, explanation))
    else:
        _show(considered, explanation)
    if not explanation.decision.allowed:
        raise typer.Exit(DENIED)


def _is_of_table(resource: Resource) -> bool:
    return resource.levels[:2] == ("database", "table")


def _facts(resource: Resource, known: Known, *, live: bool) -> TableFacts:
    """Return what is known of a resource's table.

    Raises:
        NoSuchTable: it was looked up, and does not exist.
    """
    from catalog.base.errors import NoSuchTable
    from policy.sql_lint.context import TableFacts

    if not _is_of_table(resource):
        return TableFacts(None)
    name = TableName(tuple(resource.values[0].split(".")), resource.values[1])
    found = known(name)
    if found is None and live:
        raise NoSuchTable(
            f"The table {name} does not exist.",
            table=str(name),
            hint="Leave --live out to ask by the policies alone.",
        )
    return found or TableFacts(None)


def _document(considered: Considered, explanation: Explanation) -> dict[str, Any]:
    from catalog.service.explanations import values_seen

    decision = explanation.decision
    return {
        "allowed": decision.allowed,
        "reasons": [asdict(each) for each in decision.reasons],
        "at": considered.now.isoformat(),
        "roles-held": explanation.held,
        **values_seen(considered),
        "without": [
            {
                "policy": each.policy,
                "item": each.item,
                "allowed": each.decision.allowed,
                "reasons": [asdict(reason) for reason in each.decision.reasons],
            }
            for each in explanation.without
        ],
        "changes": [asdict(each) for each in explanation.changes],
    }


def _show(considered: Considered, explanation: Explanation) -> None:
    from catalog.service.explanations import remarks

    decision = explanation.decision
    output.line("allowed" if decision.allowed else "denied")
    output.rows(("rule", "policy", "item", "why"), map(_row, decision.reasons))
    for remark in remarks(considered, explanation):
        output.line(remark)
    if explanation.changes:
        output.line("Each of these changes alone would allow it:")
        output.rows(
            ("what", "change", "then granted by"),
            ((each.what, each.detail, f"{each.policy} {each.item}") for each in explanation.changes),
        )
    elif not decision.allowed:
        output.line("No single change of the user, the time or one policy would allow it.")


def _row(reason: Reason) -> tuple[str | None, ...]:
    return reason.rule, reason.policy, reason.item, reason.detail
