"""`lakewarden policy`: explain a decision, and show which policies are in force.

These commands read the policy files and the catalog's own policies, as the service would. They need its
database, and neither KMS nor storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, Groups, Roles, table_of
from catalog.cli.session import policies_in_force, settings_of
from policy.principal import Principal
from policy.requests import AccessRequest, Resource

app = typer.Typer(help="Policies and what they decide.", no_args_is_help=True)

DENIED: Final = 3
"""Exit code of a check whose answer is no."""


def resource_of(text: str) -> Resource:
    """The resource that ``KIND:NAME`` means.

    Raises:
        typer.BadParameter: the kind is unknown, or the name is not one of that kind.
        RequestInvalid, LocationInvalid: a part of the name is refused.
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in _KINDS:
        raise typer.BadParameter(f"give it as KIND:NAME, with one of the kinds {', '.join(_KINDS)}")
    return _KINDS[kind](name)


@app.command()
def check(
    ctx: typer.Context,
    resource: Annotated[
        Resource,
        typer.Argument(
            parser=resource_of,
            metavar="RESOURCE",
            help="database:NAMESPACE, table:NAMESPACE.TABLE, column:NAMESPACE.TABLE/COLUMN, url:LOCATION, "
            "storage:LOCATION, key:MASTER_KEY_ID, engine:NAME or service:NAME.",
            show_default=False,
        ),
    ],
    access: Annotated[str, typer.Argument(help="An access type, such as select.", show_default=False)],
    as_user: Annotated[str, typer.Option("--as", metavar="USER", help="The principal who would ask.")],
    groups: Groups = None,
    roles: Roles = None,
    as_json: AsJson = False,
) -> None:
    """Explain whether a principal may do something: exit with 0 if so, with 3 if not."""
    principal = Principal(as_user, frozenset(groups or ()), frozenset(roles or ()))
    decision = policies_in_force(ctx).policies.decide(
        AccessRequest(principal, resource, access), datetime.now(UTC)
    )
    if as_json:
        output.document({"allowed": decision.allowed, "reasons": [asdict(each) for each in decision.reasons]})
    else:
        output.line("allowed" if decision.allowed else "denied")
        output.rows(
            ("rule", "policy", "item", "why"),
            [(each.rule, each.policy, each.item, each.detail) for each in decision.reasons],
        )
    if not decision.allowed:
        raise typer.Exit(DENIED)


@app.command()
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show where the policies come from, and the version of the set; fail if they cannot be evaluated."""
    settings, found = settings_of(ctx), policies_in_force(ctx)
    sources = [str(path) for path in (*settings.policies, *settings.encryption_rules)]
    shown = {
        "version": found.policies.version,
        "encryption-version": found.encryption.version,
        "revision": found.stored.version.revision,
    }
    if as_json:
        output.document(shown | {"sources": sources})
    else:
        output.facts(shown | {f"source {n}": source for n, source in enumerate(sources, start=1)})


def _table(name: str) -> Resource:
    table = table_of(name)
    return Resource.table(table.database, table.name)


def _column(name: str) -> Resource:
    # A table's name has no slash, so the first one begins the column.
    table_text, slash, column = name.partition("/")
    if not slash:
        raise typer.BadParameter("name the column as NAMESPACE.TABLE/COLUMN")
    table = table_of(table_text)
    return Resource.column(table.database, table.name, column)


_KINDS: Final[Mapping[str, Callable[[str], Resource]]] = MappingProxyType(
    {
        "database": Resource.database,
        "table": _table,
        "column": _column,
        "url": Resource.url,
        "storage": Resource.storage,
        "key": Resource.key,
        "engine": Resource.engine,
        "service": Resource.service,
    }
)
