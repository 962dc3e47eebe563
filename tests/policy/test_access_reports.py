"""Access reports: every answer is that of a single decision, for each user and resource by itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.access import EVERYBODY_ELSE, Access, People, Question, Thing, differences, who_can
from policy.access.difference import ALLOWED, AT_OTHER_TIMES, DENIED, ROWS
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import ANY, AccessRequest, Resource
from policy.ranger import PolicySet
from policy.view import View
from policy.visible import seen
from tests.policy.naive_ranger import World
from tests.policy.test_ranger_differential import ATTRIBUTES, EXAMPLES, PLACES, ROLES, worlds
from tests.policy.test_ranger_index import TIMES, documents
from tests.support.tags import service_tags

Json = dict[str, Any]
NOW = TIMES[1]
SETS = st.frozensets(st.sampled_from(["g1", "g2"]))
NAMES = st.sampled_from(["ann", "bob", "a*", "Ann", "eve", "zoe", "ab", "a/b", "b"])
USERS = st.dictionaries(NAMES, st.tuples(SETS, st.frozensets(st.sampled_from(["r1", "r2"]))), max_size=4)
OWNERS = st.sampled_from([None, "ann", "bob", "Ann", "ab"])
COLUMNS = ("a", "b", "ab.x")


def parsed(
    policies: list[Json], world: World, roles: list[Json] = ROLES, attributes: Json = ATTRIBUTES
) -> PolicySet:
    document = {"policies": policies, "roles": roles, "securityZones": world.zones}
    read = {"p": document, "t": service_tags(world.tagged), "u": {"userAttrMapping": attributes}}
    return PolicySet.parse({name: json.dumps(each) for name, each in read.items()})


def known(drawn: dict[str, tuple[frozenset[str], frozenset[str]]]) -> list[Principal]:
    return [Principal(name, *sets) for name, sets in drawn.items()]


def everyone(people: People) -> dict[str, Principal]:
    return {each.name: each for each in people.users}


@st.composite
def things(draw: st.DrawFn, kind: str) -> list[Thing]:
    if kind == "tables":
        names = draw(
            st.lists(st.tuples(NAMES_OF_TABLES, NAMES_OF_TABLES), min_size=1, max_size=3, unique=True)
        )
        found = [Thing(Resource.table(*each), draw(OWNERS), lambda: COLUMNS) for each in names]
        return [*found, *(Thing(Resource.database(each)) for each in {database for database, _ in names})]
    if kind == "key":
        return [Thing(Resource.key(each)) for each in ("a", "ab", "ann")]
    made = Resource.url if kind == "url" else Resource.storage
    return [Thing(made(each), draw(OWNERS)) for each in draw(st.lists(PLACES, min_size=1, unique=True))]


NAMES_OF_TABLES = st.sampled_from(["a", "b", "ab", "Ab", "ann", "xann", "*"])


def expected(
    policies: PolicySet, who: Principal, resource: Resource, owner: str | None, now: datetime = NOW
) -> dict[str, str]:
    """The answers by single questions."""

    def allowed(access: str) -> bool:
        return policies.decide(AccessRequest(who, resource, access, owner), now).allowed

    found = {each: ALLOWED if allowed(each) else DENIED for each in resource.access_types}
    if len(resource.values) == 3 and allowed("select"):
        mask = policies.mask_for(who, *resource.values, now, owner=owner)
        found["select"] = ALLOWED if mask is None else f"masked: {mask.type}"
    if resource.levels[-1] == "table":
        filters = policies.row_filters_for(who, *resource.values, now, owner=owner)
        texts = sorted({f"({each.filter.text if each.filter else 'no row'})" for each in filters})
        found[ROWS] = f"where {' AND '.join(texts)}" if texts else ALLOWED
        if not allowed(ANY):
            found[ROWS] = DENIED
    return found


@EXAMPLES
@given(st.data(), st.sampled_from(["tables", "tables", "tables", "key", "storage", "url"]))
def test_a_difference_is_the_difference_of_single_decisions(data: st.DataObject, kind: str) -> None:
    drawn = data.draw(documents(kind), label="old")
    world = data.draw(worlds(kind), label="world")
    kept = [each for each in drawn if data.draw(st.booleans(), label="kept")]
    added = [policy | {"name": f"n{policy['name']}"} for policy in data.draw(documents(kind), label="new")]
    sides = [drawn, [*kept, *data.draw(st.sampled_from([[], added]))]]
    after = data.draw(st.sampled_from([world, world, data.draw(worlds(kind))]), label="world after")
    roles = data.draw(st.sampled_from([ROLES, ROLES, [{"name": "r1", "users": [{"name": "zoe"}]}]]))
    attributes = data.draw(st.sampled_from([ATTRIBUTES, ATTRIBUTES, {"ann": {"dept": "it"}, "bob": {}}]))
    old, new = parsed(sides[0], world), parsed(sides[1], after, roles, attributes)
    asked = data.draw(things(kind), label="things")
    users = known(data.draw(USERS, label="users"))
    people = People(users, (old, new), {each.owner for each in asked if each.owner})
    told: set[tuple[str, Resource, str, str, str]] = set()
    at_other_times: set[tuple[str, Resource]] = set()
    for change in differences(old, new, people, asked, NOW):
        if change.effect == AT_OTHER_TIMES:
            assert change.timed
            at_other_times |= {(user, each) for user in change.users for each in change.resources}
        else:
            assert change.access is not None and change.before != change.after
            for user in change.users:
                for resource in change.resources:
                    one = (user, resource, change.access, change.before, change.after)
                    assert one not in told
                    told.add(one)
    owners = {each.resource: each.owner for each in asked}
    parts = {each.resource: owners[each.resource] for each in asked}
    for each in asked:
        if each.resource.levels[-1] == "table":
            parts |= {Resource.column(*each.resource.values, name): each.owner for name in each.columns()}
    wanted = {
        (name, resource, access, answer, after_it[access])
        for name, who in everyone(people).items()
        for resource, owner in parts.items()
        for after_it in [expected(new, who, resource, owner)]
        for access, answer in expected(old, who, resource, owner).items()
        if answer != after_it[access]
    }
    assert told == wanted
    some = at_other_times | {(name, resource) for name, resource, *_ in told}
    for name, who in everyone(people).items():
        for resource, owner in parts.items():
            if (name, resource) not in some:
                for now in (*TIMES, datetime(2035, 1, 1, tzinfo=UTC)):
                    sides = [expected(each, who, resource, owner, now) for each in (old, new)]
                    assert sides[0] == sides[1]


def answered(found: list[Access]) -> dict[str, Access]:
    names = [name for each in found for name in each.users]
    assert len(names) == len(set(names))
    return {name: each for each in found for name in each.users}


@EXAMPLES
@given(st.data(), st.sampled_from(["read", "select", "update", "create"]))
def test_who_can_answers_as_single_questions_do(data: st.DataObject, access: str) -> None:
    policies = parsed(data.draw(documents("tables"), label="policies"), data.draw(worlds("tables")))
    owner = data.draw(OWNERS, label="owner")
    people = People(known(data.draw(USERS, label="users")), [policies], {owner} if owner else frozenset())
    table = (data.draw(NAMES_OF_TABLES), data.draw(NAMES_OF_TABLES))
    column = data.draw(st.sampled_from([None, "a", "b"]))
    about = KnownTable(columns=("a", "b"))
    question = Question(access, table, column, owner, about, NOW)
    told = answered(who_can(policies, people, question))
    assert told.keys() == everyone(people).keys()
    for name, who in everyone(people).items():
        answer = told[name].answer
        if access != "read":
            request = AccessRequest(who, question.resource, access, owner)
            assert answer.allowed is policies.decide(request, NOW).allowed
            continue
        view = View.of(policies, NOW, who, table, owner)
        columns = ("a", "b") if column is None else (column,)
        shown = tuple(each for each in columns if seen(view, about, [each]).decision.allowed)
        assert (answer.allowed, answer.columns) == (bool(shown), shown)
        masks = {each: view.mask(each) for each in shown}
        assert dict(answer.masks) == {each: mask.type for each, mask in masks.items() if mask is not None}
        filters = {"no row" if each.filter is None else each.filter.text for each in view.row_filters}
        assert answer.row_filters == (tuple(sorted(filters)) if shown else ())


def policy(name: str, group: str, **more: Any) -> Json:
    resources = {"database": {"values": ["sales"]}, "table": {"values": ["*"]}, "column": {"values": ["*"]}}
    item = {"groups": [group], "accesses": [{"type": "select"}]}
    return {"name": name, "resources": resources, "policyItems": [item], **more}


def read_by(policies: PolicySet, users: list[Principal]) -> dict[str, Access]:
    question = Question("read", ("sales", "orders"), None, "olga", KnownTable(columns=("id",)), NOW)
    return answered(who_can(policies, People(users, [policies], {"olga"}), question))


USERS_OF_SALES = [Principal("ann", frozenset({"hr"})), Principal("bob", frozenset({"hr"})), Principal("eve")]


def test_users_with_the_same_groups_are_told_apart_by_attributes() -> None:
    condition = [{"type": "expression", "values": ["USER.dept == 'hr'"]}]
    policies = parsed([policy("p", "hr", conditions=condition)], World({}, []))
    found = read_by(policies, USERS_OF_SALES)
    assert found["ann"].answer.allowed and not found["bob"].answer.allowed


def test_users_with_the_same_groups_are_told_apart_by_a_macro() -> None:
    own = policy("p", "hr")
    own["resources"]["database"]["values"] = ["{USER}"]
    policies = parsed([own], World({}, []))
    for name in ("ann", "bob"):
        question = Question("read", (name, "t"), None, None, KnownTable(columns=("id",)), NOW)
        found = answered(who_can(policies, People(USERS_OF_SALES, [policies]), question))
        assert [each for each in ("ann", "bob") if found[each].answer.allowed] == [name]


def test_an_answer_that_depends_on_the_time_says_so() -> None:
    schedule = [{"startTime": "2020/01/01 00:00:00", "endTime": "2022/01/01 00:00:00", "timeZone": "UTC"}]
    policies = parsed([policy("summer", "hr", validitySchedules=schedule)], World({}, []))
    found = read_by(policies, USERS_OF_SALES)
    assert found["ann"].answer.timed == ("summer",) and found["eve"].answer.timed == ()


def test_a_policy_that_is_not_valid_now_is_a_difference_at_other_times() -> None:
    schedule = [{"startTime": "2040/01/01 00:00:00", "timeZone": "UTC"}]
    old, new = (
        parsed([], World({}, [])),
        parsed([policy("later", "hr", validitySchedules=schedule)], World({}, [])),
    )
    people = People(USERS_OF_SALES, (old, new))
    (change,) = differences(
        old, new, people, [Thing(Resource.table("sales", "t"))], datetime(2030, 1, 1, tzinfo=UTC)
    )
    assert (change.effect, change.timed, change.users) == (AT_OTHER_TIMES, ("later",), ("ann", "bob"))


def test_users_whom_only_policies_name_and_all_others_are_asked_about() -> None:
    policies = parsed([policy("p", "public"), policy("q", "nobody-is-here")], World({}, []))
    found = read_by(policies, [])
    assert found.keys() == {"olga", EVERYBODY_ELSE, *ATTRIBUTES, "ann"}
    assert found[EVERYBODY_ELSE].answer.allowed
    assert People([], [policies]).without_members == ("g1", "nobody-is-here")


def test_columns_are_read_only_of_tables_whose_policies_differ() -> None:
    def never() -> tuple[str, ...]:
        raise AssertionError("read")

    narrow = policy("q", "hr")
    narrow["resources"]["table"]["values"] = ["other"]
    old, new = parsed([policy("p", "hr")], World({}, [])), parsed([policy("p", "hr"), narrow], World({}, []))
    things = [Thing(Resource.table("sales", "t"), None, never), Thing(Resource.table("sales", "other"))]
    assert differences(old, new, People(USERS_OF_SALES, (old, new)), things, NOW) == []


def test_a_comparison_can_be_ended_while_it_is_at_one_resource() -> None:
    """Attack: many policies whose patterns with `{USER}` take seconds for one table."""
    patterns = [policy(f"p{number}", "hr") for number in range(20)]
    for each in patterns:
        each["resources"]["table"]["values"] = ["*{USER}*{USER}*"]
    old, new = parsed([], World({}, [])), parsed(patterns, World({}, []))
    done: list[int] = []

    def pause() -> None:
        done.append(1)
        if len(done) == 10:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        differences(
            old, new, People(USERS_OF_SALES, (old, new)), [Thing(Resource.table("sales", "t"))], NOW, pause
        )


def reads_that_differ(old: PolicySet, new: PolicySet) -> dict[tuple[str, str], tuple[str, ...]]:
    people = People(USERS_OF_SALES, (old, new))
    found = differences(old, new, people, [Thing(Resource.table("sales", "t"))], NOW)
    return {(each.effect, each.access or ""): each.users for each in found if each.access == "select"}


def test_another_member_of_a_role_is_a_difference_without_any_other_policy() -> None:
    item = {"roles": ["r"], "accesses": [{"type": "select"}]}
    same = [policy("p", "hr") | {"policyItems": [item]}]
    old, new = (parsed(same, World({}, []), [{"name": "r", "users": [{"name": n}]}]) for n in ("ann", "eve"))
    assert reads_that_differ(old, new) == {
        ("takes away", "select"): ("ann",),
        ("grants", "select"): ("eve",),
    }


def test_another_attribute_of_a_user_is_a_difference_without_any_other_policy() -> None:
    condition = [{"type": "expression", "values": ["USER.dept == 'hr'"]}]
    same = [policy("p", "hr", conditions=condition)]
    old, new = (parsed(same, World({}, []), attributes={"bob": {"dept": d}}) for d in ("it", "hr"))
    assert reads_that_differ(old, new) == {("grants", "select"): ("bob",)}


def test_a_grant_that_a_policy_hides_until_tomorrow_is_a_difference_at_other_times() -> None:
    denied = {"denyPolicyItems": [{"groups": ["hr"], "accesses": [{"type": "select"}]}], "policyItems": []}
    until = [{"endTime": "2031/01/01 00:00:00", "timeZone": "UTC"}]
    hiding = policy("hiding", "hr", validitySchedules=until) | denied
    old, new = parsed([hiding], World({}, [])), parsed([hiding, policy("p", "hr")], World({}, []))
    things = [Thing(Resource.table("sales", "t"))]
    (change,) = differences(
        old, new, People(USERS_OF_SALES, (old, new)), things, datetime(2030, 1, 1, tzinfo=UTC)
    )
    assert (change.effect, change.timed, change.users) == (AT_OTHER_TIMES, ("hiding",), ("ann", "bob"))


def test_a_renamed_policy_is_no_difference_where_the_time_decides() -> None:
    until = [{"endTime": "2031/01/01 00:00:00", "timeZone": "UTC"}]
    timed = policy("timed", "hr", validitySchedules=until)
    old, new = (parsed([timed, policy(name, "hr")], World({}, [])) for name in ("p", "q"))
    assert not differences(
        old, new, People(USERS_OF_SALES, (old, new)), [Thing(Resource.table("sales", "t"))], NOW
    )


def test_users_whom_only_a_role_names_are_compared() -> None:
    item = {"roles": ["r"], "accesses": [{"type": "select"}]}
    same = [policy("p", "hr") | {"policyItems": [item]}]
    old, new = (
        parsed(same, World({}, []), [{"name": "r", "users": named}]) for named in ([], [{"name": "zoe"}])
    )
    assert reads_that_differ(old, new) == {("grants", "select"): ("zoe",)}


def test_users_of_whom_only_attributes_are_known_are_compared() -> None:
    condition = [{"type": "expression", "values": ["USER.dept == 'hr'"]}]
    same = [policy("p", "public", conditions=condition)]
    old, new = (parsed(same, World({}, []), attributes={"zoe": {"dept": d}}) for d in ("it", "hr"))
    assert reads_that_differ(old, new) == {("grants", "select"): ("zoe",)}


def test_users_with_a_slash_in_their_names_are_compared_below_locations() -> None:
    own = {"users": ["{USER}"], "accesses": [{"type": "read"}]}
    place = {"url": {"values": ["s3://lake/{USER}/x"], "isRecursive": True}}
    new = parsed([{"name": "p", "resources": place, "policyItems": [own]}], World({}, []))
    old, users = parsed([], World({}, [])), [Principal("a/b"), Principal("c")]
    people = People(users, (old, new))
    for resource in ("s3://lake/a", "s3://lake/c/x", "s3://lake/a/b/x"):
        found = differences(old, new, people, [Thing(Resource.url(resource))], NOW)
        assert {name for each in found for name in each.users} == {
            each.name
            for each in people.users
            if any(
                new.decide(AccessRequest(each, Resource.url(resource), access), NOW).allowed
                for access in ("read", "write")
            )
        }
