"""`lakewarden access diff`: shows what a change of policies would grant, and what it would take away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from catalog.base.identifiers import TableName
from catalog.cli.access_people import groups_note, known_users
from catalog.cli.arguments import AsJson
from catalog.cli.policy_check import moment_with_zone
from catalog.cli.reports import AsCsv, HtmlFile, Report, require_one_form, show
from catalog.cli.session import open_services, policies_in_force, settings_of
from policy.privileges.requests import Resource

if TYPE_CHECKING:
    from catalog.service.services import Services
    from policy.access import Change, Thing
    from policy.ranger import PolicySet

IN_FORCE: Final = "catalog"
"""Stands for the policies in force."""

_COLUMNS: Final = ("effect", "access", "before", "after", "users", "resources", "depends on time")
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

    It compares decisions on namespaces, tables, their columns and locations, keys, engines and the service.
    """
    from policy.access import People, differences

    require_one_form(as_json=as_json, as_csv=as_csv, html=html)
    before = _policies(ctx, old, None)
    after = _policies(ctx, new, before)
    users, now = known_users(settings_of(ctx)), at or datetime.now(UTC)
    with open_services(ctx) as services:
        things = list(_things(services, (before, after), [each.name for each in users.principals]))
        owners = frozenset(each.owner for each in things if each.owner is not None)
        people = People(users.principals, (before, after), owners)
        found = differences(before, after, people, things, now)
    document: dict[str, Any] = {
        "at": now.isoformat(),
        "changes": [_change(each) for each in found],
        "groups-without-known-users": people.without_members,
        "not-compared": sorted(_not_compared(before, after)),
    }
    report = _report(f"Access: {old} to {new}", found, document)
    show(report, as_json=as_json, as_csv=as_csv, html=html)


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


def _things(services: Services, sides: tuple[PolicySet, PolicySet], names: list[str]) -> Iterator[Thing]:
    """What is compared."""
    from catalog.db.engine import read
    from catalog.state.table_state import bound_tables
    from policy.access import Thing
    from policy.access.difference import named_keys

    catalog = services.settings.catalog.name
    for namespace in services.pointers.namespaces():
        yield Thing(Resource.database(".".join(namespace)))
    with read(services.engine) as connection:
        tables = bound_tables(connection, catalog)
    for each in tables:
        resource = Resource.table(".".join(each.name.namespace), each.name.name)
        yield Thing(resource, each.owner, partial(_columns, services, each.name))
        yield Thing(Resource.storage(each.location), each.owner)
        yield Thing(Resource.url(each.location))
    yield Thing(Resource.service(catalog))
    yield from (Thing(Resource.key(each)) for each in sorted(named_keys(sides)))
    yield from (Thing(Resource.engine(each)) for each in names)


def _columns(services: Services, name: TableName) -> list[str]:
    from pyiceberg.schema import index_by_name

    return sorted(index_by_name(services.loader.load(name).metadata.schema()))


def _not_compared(before: PolicySet, after: PolicySet) -> Iterator[str]:
    """The policies that differ and are about locations or keys that are not all compared."""
    from policy.access.difference import changed_policies

    for policy in changed_policies(before, after):
        levels = {resource.hierarchy[-1].name for resource in policy.resources}
        if levels & {"url", "storage-url", "key"}:
            yield policy.name


def _change(change: Change) -> Mapping[str, Any]:
    return {
        "effect": change.effect,
        "access": change.access,
        "before": change.before,
        "after": change.after,
        "users": change.users,
        "resources": [str(each) for each in change.resources],
        "depends-on-time": change.timed,
    }


def _report(title: str, found: list[Change], document: Mapping[str, Any]) -> Report:
    rows = [tuple(each.values()) for each in document["changes"]]
    chart: dict[str, int] = {}
    for each in found:
        chart[each.effect] = chart.get(each.effect, 0) + len(each.users) * len(each.resources)
    notes = [] if found else ["No decision differs for the users, tables and columns of the catalog."]
    if document["groups-without-known-users"]:
        notes.append(groups_note(document["groups-without-known-users"]))
    if document["not-compared"]:
        notes.append(
            "Of locations, only those of tables are compared, and of keys, those that policies name without "
            f"wildcards. Policies that differ there: {', '.join(document['not-compared'])}."
        )
    return Report(title, _COLUMNS, rows, document, chart, notes)
