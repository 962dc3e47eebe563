"""Reports what a user, or a member of a group, can do on all resources of the catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from catalog.db.engine import read
from catalog.reports.many_tables import Advance, of_each, silently
from catalog.reports.report import Chart, Report
from catalog.reports.table_facts import facts_of
from catalog.reports.users import refusal_note, through_note
from catalog.service.services import Services
from catalog.state.master_keys import all_assigned
from catalog.state.table_state import TableRecord, bound_tables
from catalog.state.views import every_view
from policy.access import EVERYBODY_ELSE, Abilities, AbilityGroup, Asker, abilities, alike
from policy.access.difference import named_keys
from policy.errors import LakewardenError, StateUnavailable
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.operations import On, required
from policy.privileges.requests import ACCESS_TYPES, Resource, Through
from policy.ranger.policy_set import PolicySet

#: The access types that have a column: those of namespaces and tables.
_ACCESSES: Final = ("select", "update", "create", "drop", "alter", "unprotect")
assert set(_ACCESSES) == ACCESS_TYPES[("database", "table")]

_COLUMNS: Final = (
    *("kind", "count", "resources", "read", *_ACCESSES, "other accesses"),
    *("columns", "masks", "row filters", "by", "depends on time"),
)
#: Without access, only these are shown or counted.
_LISTED: Final = ("database", "table", "view")
_KINDS: Final = {"database": "namespace", "storage-url": "storage"}
_ORDER: Final = ("database", "table", "view", "storage-url", "url", "key", "engine", "service")

_Found = tuple[Resource, Abilities, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Subject:
    """About whom a matrix is.

    Attributes:
        title: ``user 'ann'`` or ``group 'hr'``.
        principal: the user with every group and role, or a user who is in the group alone.
        notes: what to know of them.
    """

    title: str
    principal: Principal
    notes: tuple[str, ...]


def user_subject(services: Services, policies: PolicySet, name: str) -> Subject:
    """Return a user with the groups and roles that the catalog knows.

    Raises:
        RequestInvalid: the name is not valid for a user.
    """
    found = services.principals.find(name)
    if found is not None:
        why = services.principals.why_unknown(found)
        return Subject(f"user {name!r}", found.principal, () if why is None else (refusal_note(name, why),))
    principal = Principal(name)
    users = frozenset[str]().union(
        *(item.users for each in policies.every_policy for item in each.every_item)
    )
    named = "Policies name them" if name in users else "No policy names them"
    return Subject(
        f"user {name!r}",
        principal,
        (f"The catalog does not know the user {name}, nor their groups and roles. {named}.",),
    )


def group_subject(services: Services, policies: PolicySet, group: str) -> Subject:
    """Return a member of a group who is in no other group, and whom no policy names.

    Raises:
        RequestInvalid: the name is not valid for a group.
    """
    principal = Principal(EVERYBODY_ELSE, frozenset({group}))
    notes = [f"This is what the group {group} gives to a member who is in no other group."]
    members = any(group in each.principal.groups for each in services.principals.list())
    items = (item for each in policies.every_policy for item in each.every_item)
    if not members and not any(group in item.groups for item in items):
        notes.append(f"No known user is in the group {group}, and no policy names it.")
    return Subject(f"group {group!r}", principal, tuple(notes))


def matrix_report(
    services: Services,
    policies: PolicySet,
    subject: Subject,
    asker: Asker,
    *,
    show_all: bool = False,
    advance: Advance = silently,
) -> Report:
    """Report what a user can do on namespaces, tables, views, locations, keys, engines and the service.

    Args:
        services: the open catalog.
        policies: the policies that decide.
        subject: about whom it is.
        asker: the same user, with time and way of reading.
        show_all: whether namespaces and tables are shown on which nothing is allowed.
        advance: is told how many tables are done.

    Raises:
        StateUnavailable: the database does not answer.
    """
    problems: dict[str, str] = {}
    found = [
        *_tables(services, policies, asker, problems, advance),
        *_views(services, policies, asker),
        *_others(services, policies, asker),
    ]
    groups = sorted(alike(found), key=_order)
    without = {
        each.abilities.kind: len(each.resources)
        for each in groups
        if each.abilities.nothing and each.abilities.kind in _LISTED
    }
    shown = [
        each for each in groups if not each.abilities.nothing or (show_all and each.abilities.kind in _LISTED)
    ]
    held = sorted(policies.subject(asker.principal, None).roles)
    document: dict[str, Any] = {
        "subject": subject.title,
        "groups": sorted(asker.principal.groups),
        "roles": held,
        "at": asker.now.isoformat(),
        "through": asker.through.value,
        "engine": asker.engine,
        "answers": [_answer(each) for each in shown],
        "without-access": {_kind(kind): count for kind, count in without.items()},
        "not-loaded": problems,
        "notes": subject.notes,
    }
    return Report(
        f"Access of {subject.title}",
        _COLUMNS,
        [_row(each) for each in shown],
        document,
        [Chart("Tables by what can be read", _amounts(groups))],
        list(_notes(subject, document, show_all=show_all)),
    )


def _tables(
    services: Services, policies: PolicySet, asker: Asker, problems: dict[str, str], advance: Advance
) -> Iterator[_Found]:
    with read(services.engine) as connection:
        records = sorted(bound_tables(connection, services.catalog), key=lambda each: str(each.name))

    def look(record: TableRecord) -> tuple[_Found, str | None]:
        problem: list[str] = []

        def known() -> KnownTable | None:
            try:
                facts = facts_of(services.loader.load(record.name))
            except StateUnavailable:
                raise
            except LakewardenError as refusal:
                problem.append(str(refusal))
                return None
            return replace(facts.known, service=services.catalog)

        resource = Resource.table(record.name.database, record.name.name)
        answer = abilities(policies, asker, resource, record.owner, known)
        return (resource, *answer), next(iter(problem), None)

    for record, found in of_each(records, look, advance):
        if isinstance(found, LakewardenError):
            raise found
        answer, problem = found
        if problem is not None:
            problems[str(record.name)] = problem
        yield answer
        for place in (Resource.storage(record.location), Resource.url(record.location)):
            yield place, *abilities(policies, asker, place, record.owner)


def _views(services: Services, policies: PolicySet, asker: Asker) -> Iterator[_Found]:
    """The views. What is granted is said, not what is read: that depends on the tables in their texts."""
    with read(services.engine) as connection:
        views = every_view(connection, services.catalog)
    for view in views:
        resource = Resource.table(view.name.database, view.name.name)
        found, names = abilities(policies, asker, resource, view.owner)
        yield resource, replace(found, kind="view"), names


def _others(services: Services, policies: PolicySet, asker: Asker) -> Iterator[_Found]:
    """The namespaces, keys, engines and the service."""
    keys = named_keys([policies]) | _keys_of_tables(services)
    engines = (each.principal for each in services.principals.list())
    resources = [
        *(Resource.database(".".join(each)) for each in services.pointers.namespaces()),
        *(Resource.key(each) for each in sorted(keys)),
        *(Resource.engine(each.name) for each in engines if _acts(policies, each, asker.now)),
        Resource.service(services.catalog),
    ]
    for each in resources:
        yield each, *abilities(policies, asker, each)


def _acts(policies: PolicySet, principal: Principal, now: datetime) -> bool:
    """Return whether a principal can act for users, as engines do."""
    requests = required("engine.act", On.engine(principal, principal.name))
    return all(policies.decide(each, now).allowed for each in requests)


def _keys_of_tables(services: Services) -> frozenset[str]:
    with read(services.engine) as connection:
        return frozenset(all_assigned(connection, services.catalog))


def _row(group: AbilityGroup) -> tuple[Any, ...]:
    found = group.abilities
    by_type = found.kind in _LISTED
    return (
        _kind(found.kind),
        len(group.resources),
        _names(group),
        _reads(found),
        *("yes" if by_type and each in found.accesses else None for each in _ACCESSES),
        () if by_type else found.accesses,
        "all" if found.reads and found.columns is None else found.columns,
        [f"{column}: {mask}" for column, mask in found.masks],
        found.row_filters,
        group.policies,
        found.timed,
    )


def _answer(group: AbilityGroup) -> dict[str, Any]:
    found = group.abilities
    return {
        "kind": _kind(found.kind),
        "resources": _names(group),
        "accesses": found.accesses,
        "read": _reads(found),
        "columns": found.columns,
        "all-columns": found.reads is True and found.columns is None,
        "masks": dict(found.masks),
        "row-filters": found.row_filters,
        "policies": group.policies,
        "depends-on-time": found.timed,
    }


def _reads(found: Abilities) -> str | None:
    """What a scan of a table shows, in a few words."""
    if found.kind != "table":
        return None
    if found.reads is None:
        return "unknown"
    if not found.reads:
        return "denied"
    parts = ["all columns" if found.columns is None else "some columns"]
    return ", ".join(
        [*parts, *(["masked"] if found.masks else []), *(["filtered"] if found.row_filters else [])]
    )


def _names(group: AbilityGroup) -> list[str]:
    return sorted(
        ".".join(each.values) if each.levels[0] == "database" else each.values[-1] for each in group.resources
    )


def _kind(level: str) -> str:
    return _KINDS.get(level, level)


def _order(group: AbilityGroup) -> tuple[Any, ...]:
    found = group.abilities
    return (
        _ORDER.index(found.kind),
        found.nothing,
        -len(found.accesses),
        not found.reads,
        -len(group.resources),
        _names(group),
    )


def _amounts(groups: Sequence[AbilityGroup]) -> Mapping[str, int]:
    amounts = Counter[str]()
    for each in groups:
        if (what := _reads(each.abilities)) is not None:
            amounts[what] += len(each.resources)
    return amounts


def _notes(subject: Subject, document: Mapping[str, Any], *, show_all: bool) -> Iterator[str]:
    yield from subject.notes
    yield through_note(Through(document["through"]))
    for kind, name in (("groups", "Groups"), ("roles", "Roles")):
        if document[kind]:
            yield f"{name}: {', '.join(document[kind])}."
    without = document["without-access"]
    hidden = [f"{count} of the {kind}s" for kind, count in without.items()]
    if hidden and not show_all:
        yield f"Not shown, because nothing is allowed there: {', '.join(hidden)}."
    for name, problem in document["not-loaded"].items():
        yield f"What a scan of {name} shows is not known: {problem}"
