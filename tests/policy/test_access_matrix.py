"""The access matrix: what one user can do, as single decisions say it, each resource in one row."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.access import AbilityGroup, Asker, abilities, alike
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from policy.view import View
from policy.visible import seen
from tests.policy.naive_ranger import World
from tests.policy.test_access_reports import NAMES_OF_TABLES, NOW, OWNERS, parsed
from tests.policy.test_ranger_differential import EXAMPLES, PLACES, worlds
from tests.policy.test_ranger_index import documents

KNOWN = KnownTable(columns=("a", "b"))
USERS = st.builds(
    Principal,
    st.sampled_from(["ann", "bob", "Ann", "zoe"]),
    st.frozensets(st.sampled_from(["g1", "g2"])),
    st.frozensets(st.sampled_from(["r1", "r2"])),
)


@st.composite
def resources(draw: st.DrawFn, kind: str) -> list[Resource]:
    if kind == "tables":
        tables = draw(st.lists(st.tuples(NAMES_OF_TABLES, NAMES_OF_TABLES), min_size=1, unique=True))
        databases = {database for database, _ in tables}
        return [*(Resource.table(*each) for each in tables), *map(Resource.database, sorted(databases))]
    if kind == "key":
        return [Resource.key(each) for each in ("a", "ab", "ann")]
    made = Resource.url if kind == "url" else Resource.storage
    return [made(each) for each in draw(st.lists(PLACES, min_size=1, unique=True))]


def told(
    policies: PolicySet, asker: Asker, asked: dict[Resource, str | None]
) -> dict[Resource, AbilityGroup]:
    groups = alike(
        (each, *abilities(policies, asker, each, owner, lambda: KNOWN)) for each, owner in asked.items()
    )
    assert sum(len(each.resources) for each in groups) == len(asked)
    assert len({each.abilities for each in groups}) == len(groups)
    return {resource: each for each in groups for resource in each.resources}


@EXAMPLES
@given(st.data(), st.sampled_from(["tables", "tables", "tables", "key", "storage", "url"]))
def test_a_matrix_answers_as_single_questions_do(data: st.DataObject, kind: str) -> None:
    policies = parsed(data.draw(documents(kind), label="policies"), data.draw(worlds(kind), label="world"))
    who = data.draw(USERS, label="user")
    asked = {each: data.draw(OWNERS) for each in data.draw(resources(kind), label="resources")}
    found = told(policies, Asker(who, NOW), asked)
    assert found.keys() == asked.keys()
    for resource, owner in asked.items():
        answer = found[resource].abilities
        granted = {
            each
            for each in resource.access_types
            if policies.decide(AccessRequest(who, resource, each, owner), NOW).allowed
        }
        assert set(answer.accesses) == granted
        if resource.levels[-1] != "table":
            assert answer.reads is False
            continue
        view = View.of(policies, NOW, who, (resource.values[0], resource.values[1]), owner)
        shown = tuple(each for each in ("a", "b") if seen(view, KNOWN, [each]).decision.allowed)
        assert answer.reads is bool(shown)
        assert answer.columns == (None if shown == ("a", "b") else shown)
        masks = {each: view.mask(each) for each in shown}
        assert dict(answer.masks) == {each: mask.type for each, mask in masks.items() if mask is not None}
        filters = {"no row" if each.filter is None else each.filter.text for each in view.row_filters}
        assert answer.row_filters == (tuple(sorted(filters)) if shown else ())


def test_columns_are_read_only_of_tables_on_which_the_user_has_a_privilege() -> None:
    def never() -> KnownTable:
        raise AssertionError("read")

    policies = PolicySet.empty()
    answer, _ = abilities(policies, Asker(Principal("ann"), NOW), Resource.table("a", "b"), None, never)
    assert answer.reads is False and answer.nothing


def test_columns_that_a_scan_shows_are_named_unless_they_are_all() -> None:
    resources = {"database": {"values": ["d"]}, "table": {"values": ["*"]}, "column": {"values": ["a"]}}
    item = {"users": ["ann"], "accesses": [{"type": "select"}]}
    policies = parsed([{"name": "p", "resources": resources, "policyItems": [item]}], World({}, []))
    asker = Asker(Principal("ann"), NOW)
    for columns, shown in ((("a", "b"), ("a",)), (("a",), None), (("b",), ())):
        table = KnownTable(columns=columns)
        answer, _ = abilities(policies, asker, Resource.table("d", "t"), None, lambda table=table: table)
        assert (answer.reads, answer.columns) == (shown != (), shown)
