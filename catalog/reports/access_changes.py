"""Reports what a change of policies would grant, and what it would take away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from pyiceberg.schema import Schema, index_by_name

from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.reports.many_tables import Advance, silently
from catalog.reports.report import Chart, Report
from catalog.reports.users import groups_note, known_users
from catalog.service.services import Services
from catalog.state.table_state import bound_tables
from catalog.state.views import every_view
from policy.access import Change, People, Thing, differences
from policy.access.difference import changed_policies, named_engines, named_keys
from policy.privileges.requests import Resource
from policy.ranger.parse import no_pause
from policy.ranger.policy_set import PolicySet

#: Resources between two reports of the progress.
_STEP: Final = 100
_COLUMNS: Final = ("effect", "access", "before", "after", "users", "resources", "depends on time")


def changes_report(
    services: Services,
    old: PolicySet,
    new: PolicySet,
    now: datetime,
    title: str = "Changes of access",
    advance: Advance = silently,
    pause: Callable[[], None] = no_pause,
) -> Report:
    """Report what `new` policies would grant and take away, for the users and resources of the catalog.

    Args:
        services: the open catalog.
        old: the policies before.
        new: the policies after.
        now: the time of the decisions, with a zone.
        title: the title of the report.
        advance: is told how many resources are compared.
        pause: called often meanwhile; an error that it raises ends the comparison.

    Raises:
        StateUnavailable: the database does not answer.
        as `TableLoader.load`, for a table whose policies differ.
    """
    users = known_users(services.principals)
    things = list(_things(services, (old, new), [each.name for each in users.principals]))
    owners = frozenset(each.owner for each in things if each.owner is not None)
    people = People(users.principals, (old, new), owners)
    found = differences(old, new, people, _counted(things, advance), now, pause)
    document: dict[str, Any] = {
        "at": now.isoformat(),
        "changes": [_change(each) for each in found],
        "groups-without-known-users": people.without_members,
        "not-compared": sorted({*_not_compared(old, new)}),
    }
    return _report(title, found, document)


def _counted(things: Sequence[Thing], advance: Advance) -> Iterator[Thing]:
    for done, thing in enumerate(things):
        if done % _STEP == 0:
            advance(done, len(things))
        yield thing
    advance(len(things), len(things))


def _things(services: Services, sides: tuple[PolicySet, PolicySet], names: list[str]) -> Iterator[Thing]:
    """What is compared."""
    for namespace in services.pointers.namespaces():
        yield Thing(Resource.database(".".join(namespace)))
    with read(services.engine) as connection:
        tables = bound_tables(connection, services.catalog)
        views = every_view(connection, services.catalog)
    for each in tables:
        resource = Resource.table(each.name.database, each.name.name)
        yield Thing(resource, each.owner, partial(_columns, services, each.name))
        yield Thing(Resource.storage(each.location), each.owner)
        yield Thing(Resource.url(each.location))
    for view in views:
        columns = partial(_names, view.schema)
        yield Thing(Resource.table(view.name.database, view.name.name), view.owner, columns)
    yield Thing(Resource.service(services.catalog))
    yield from (Thing(Resource.key(each)) for each in sorted(named_keys(sides)))
    yield from (Thing(Resource.engine(each)) for each in sorted({*names, *named_engines(sides)}))


def _columns(services: Services, name: TableName) -> list[str]:
    return _names(services.loader.load(name).metadata.schema())


def _names(schema: Schema) -> list[str]:
    return sorted(index_by_name(schema))


def _not_compared(before: PolicySet, after: PolicySet) -> Iterator[str]:
    """The policies that differ in what is not compared, or not everywhere: see `_report`."""
    for policy in changed_policies(before, after):
        levels = {resource.hierarchy[-1].name for resource in policy.resources}
        delegates = any(item.delegates for item in policy.every_item)
        if delegates or levels & {"url", "storage-url", "key", "engine"}:
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


def _report(title: str, found: Sequence[Change], document: Mapping[str, Any]) -> Report:
    rows = [tuple(each.values()) for each in document["changes"]]
    amounts = Counter[str]()
    for each in found:
        amounts[each.effect] += len(each.users) * len(each.resources)
    notes = [] if found else ["No decision differs for the users, tables and columns of the catalog."]
    if document["groups-without-known-users"]:
        notes.append(groups_note(document["groups-without-known-users"]))
    if document["not-compared"]:
        notes.append(
            "Of locations, only those of tables are compared, of keys, those that policies name without "
            "wildcards, and of engines, these and the users of the catalog. Who can administer policies is "
            f"not compared. Policies that differ there: {', '.join(document['not-compared'])}."
        )
    return Report(title, _COLUMNS, rows, document, [Chart("Changed answers by effect", amounts)], notes)
