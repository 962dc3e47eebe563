"""Generated policies and requests: what the index finds and what is remembered change no answer.

The same questions are put to every policy one by one, without index and without memory. Each is put several
times, at other times and by other users, so that an answer that is remembered wrongly shows.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import PolicyInvalid
from policy.principal import Principal
from policy.privileges.requests import ALL, ANY, AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.answers import relation
from policy.ranger.circumstances import Circumstances, Subject
from policy.ranger.evaluate import (
    Applicable,
    Scope,
    decide_access,
    doubt_about,
    mask_in_force,
    row_filters_in_force,
)
from policy.ranger.matching import Match, Target
from policy.ranger.model import Policy, PolicyType
from policy.ranger.parse import NO_MEMORY, parse_documents
from policy.ranger.resource_tree import ResourceTree
from policy.ranger.users import NO_USERS
from policy.ranger.validity import active
from tests.policy.test_ranger_differential import (
    EXAMPLES,
    LITERALS,
    NAMES,
    ROLES,
    access_policies,
    askers,
    filter_policies,
    mask_policies,
    requests,
)
from tests.support.tags import service_tags

Json = dict[str, Any]
TIMES = [datetime(year, 6, 1, tzinfo=UTC) for year in (2019, 2021, 2023)]
SCHEDULES = st.sampled_from(
    [
        [],
        [],
        [{"startTime": "2020/01/01 00:00:00", "timeZone": "UTC"}],
        [{"startTime": "2020/01/01 00:00:00", "endTime": "2022/01/01 00:00:00", "timeZone": "UTC"}],
    ]
)
OPEN_PLACES = st.sampled_from(
    [
        "*",
        "*://lake/a",
        "s3*://lake/a*",
        "s?://lake/a",
        "{USER}://x",
        "s3://lake*",
        "s3://*/a",
        "file:/a/*",
        "hdfs://h/*",
    ]
)
KINDS = st.sampled_from(["tables", "tables", "tables", "url", "storage", "key"])


@st.composite
def documents(draw: st.DrawFn, kind: str) -> list[Json]:
    made = access_policies(kind)
    if kind == "tables":
        made = st.one_of(made, mask_policies(), filter_policies())
    found = draw(st.lists(made, min_size=1, max_size=6))
    for number, policy in enumerate(found):
        policy |= {"name": f"p{number}", "validitySchedules": draw(SCHEDULES)}
        for level in ("url", "storage-url"):
            if level in policy["resources"] and draw(st.booleans()):
                policy["resources"][level]["values"].append(draw(OPEN_PLACES))
    return found


def plainly(
    policies: list[Policy], kind: PolicyType, resource: Resource, subject: Subject, now: datetime
) -> Any:
    """What every policy of a type says, highest priority first."""
    target = Target.of(resource)
    for policy in sorted(policies, key=lambda each: -each.priority):
        match = relation(policy, target, subject.name, subject.owner)
        if policy.type is kind and match not in (Match.NONE, Match.ABOVE) and active(policy.schedules, now):
            c = Circumstances(subject, NO_USERS, now, resource)
            yield Applicable(policy, match, doubt_about(policy, subject.name, subject.owner), c)


def granted(policies: list[Policy], request: AccessRequest, subject: Subject, now: datetime) -> bool:
    tree = Scope.TREE if request.resource.levels[-1] in ("url", "storage-url") else Scope.SELF
    scope = Scope.ANYWHERE if request.access == ANY else tree
    single = request.access not in (ALL, ANY)
    answers = [
        decide_access(
            plainly(policies, PolicyType.ACCESS, request.resource, subject, now), subject, access, scope, "it"
        ).allowed
        for access in ([request.access] if single else sorted(request.resource.access_types))
    ]
    return any(answers) if request.access == ANY else all(answers)


@EXAMPLES
@given(st.data(), KINDS)
def test_the_index_and_remembered_answers_decide_as_all_policies_one_by_one(
    data: st.DataObject, kind: str
) -> None:
    text = json.dumps({"policies": data.draw(documents(kind), label="policies"), "roles": ROLES})
    found, plain = PolicySet.parse({"p": text}), list(parse_documents({"p": text}).policies)
    asked = [data.draw(requests(kind), label="request") for _ in range(3)]
    for _ in range(3):
        asker = data.draw(askers(), label="asker")
        principal = Principal(asker.name, asker.groups)
        subject = found.subject(principal, asker.owner)
        for now in TIMES:
            for resource, access in asked:
                request = AccessRequest(principal, resource, access, asker.owner)
                assert found.decide(request, now).allowed is granted(plain, request, subject, now)


@EXAMPLES
@given(st.data())
def test_masks_and_row_filters_are_those_of_all_policies_one_by_one(data: st.DataObject) -> None:
    text = json.dumps({"policies": data.draw(documents("tables"), label="policies"), "roles": ROLES})
    found, plain = PolicySet.parse({"p": text}), list(parse_documents({"p": text}).policies)
    names = st.tuples(LITERALS, LITERALS, LITERALS)
    asked = [data.draw(names, label="column") for _ in range(3)]
    for _ in range(2):
        asker = data.draw(askers(), label="asker")
        principal = Principal(asker.name, asker.groups)
        subject = found.subject(principal, asker.owner)
        for now in TIMES:
            for database, table, column in asked:
                mask = found.mask_for(principal, database, table, column, now, owner=asker.owner)
                of_column = plainly(
                    plain, PolicyType.MASK, Resource.column(database, table, column), subject, now
                )
                assert mask == mask_in_force(of_column, subject)
                filters = found.row_filters_for(principal, database, table, now, owner=asker.owner)
                of_table = plainly(
                    plain, PolicyType.ROW_FILTER, Resource.table(database, table), subject, now
                )
                assert filters == row_filters_in_force(of_table, subject)


@EXAMPLES
@given(
    st.lists(st.tuples(st.lists(NAMES, min_size=1), SCHEDULES), min_size=1, max_size=4),
    LITERALS,
)
def test_an_answer_that_a_schedule_decides_is_never_remembered(
    named: list[tuple[list[str], list[Json]]], database: str
) -> None:
    text = json.dumps(
        [
            {
                "name": f"p{number}",
                "resources": {"database": {"values": values}, "table": {"values": ["*"]}},
                "policyItems": [{"users": ["ann"], "accesses": [{"type": "select"}]}],
                "validitySchedules": schedules,
            }
            for number, (values, schedules) in enumerate(named)
        ]
    )
    request = AccessRequest(Principal("ann"), Resource.table(database, "t"), "select")
    asked_before = PolicySet.parse({"p": text})
    for now in (*TIMES, *reversed(TIMES)):
        assert asked_before.decide(request, now) == PolicySet.parse({"p": text}).decide(request, now)


@EXAMPLES
@given(st.data())
def test_what_was_read_before_is_read_as_if_it_were_new(data: st.DataObject) -> None:
    drawn = data.draw(documents("tables"), label="policies")
    before = PolicySet.parse({"a": json.dumps(drawn[:3]), "b": json.dumps({"policies": [], "roles": ROLES})})
    changed = [policy | data.draw(st.sampled_from([{}, {"policyPriority": 1}])) for policy in drawn]
    order = data.draw(st.permutations(changed))
    repeated = data.draw(st.sampled_from([[], order[:1]]))
    texts = {"a": json.dumps(drawn[:3]), "c": json.dumps([*order[3:], *repeated])}
    if data.draw(st.booleans()):
        texts = {"b": json.dumps({"policies": order, "roles": ROLES})}
    told = []
    for memory in (before._memory, NO_MEMORY):
        try:
            told.append(str(parse_documents(texts, memory)))
        except PolicyInvalid as error:
            told.append(str(error))
    assert told[0] == told[1]


@EXAMPLES
@given(st.data())
def test_only_tables_whose_names_the_index_gives_can_be_visible(data: st.DataObject) -> None:
    text = json.dumps({"policies": data.draw(documents("tables"), label="policies"), "roles": ROLES})
    found = PolicySet.parse({"p": text})
    for _ in range(4):
        asker = data.draw(askers(), label="asker")
        database, table = data.draw(st.tuples(LITERALS, LITERALS), label="table")
        principal = Principal(asker.name, asker.groups)
        request = AccessRequest(principal, Resource.table(database, table), ANY, asker.owner)
        if any(found.decide(request, now).allowed for now in TIMES):
            assert table in found.tables_with_privileges(principal, database)
            assert database in found.databases_with_privileges(principal)


def test_a_policy_with_very_many_tables_is_looked_up_by_its_database() -> None:
    tables = [f"t{number}" for number in range(300)]
    item = {"users": ["ann"], "accesses": [{"type": "select"}]}
    resources = {"database": {"values": ["a"]}, "table": {"values": tables}}
    found = PolicySet.parse({"p": json.dumps([{"name": "p", "resources": resources, "policyItems": [item]}])})
    ann = Principal("ann")
    assert found.about_table("a", "t7") and not found.about_table("b", "t7")
    assert "t7" in found.tables_with_privileges(ann, "a")
    assert "t7" not in found.tables_with_privileges(ann, "b")
    assert "b" not in found.databases_with_privileges(ann)
    for table, granted in (("t7", True), ("t300", False)):
        request = AccessRequest(ann, Resource.table("a", table), "select")
        assert found.decide(request, TIMES[0]).allowed is granted


@pytest.mark.parametrize("levels", [2, 3])
def test_a_grant_on_any_form_of_names_makes_them_possible(levels: int) -> None:
    ann = Principal("ann")
    item = {"users": ["ann"], "accesses": [{"type": "select"}]}
    for database, table, column in product(("*", "a", "a*"), ("*", "t", "t*"), ("*", "c")):
        values = {"database": [database], "table": [table], "column": [column]}
        resources = {level: {"values": values[level]} for level in list(values)[:levels]}
        policy = {"name": "p", "resources": resources, "policyItems": [item]}
        found = PolicySet.parse({"p": json.dumps([policy])})
        assert found.decide(AccessRequest(ann, Resource.table("a", "t"), ANY), TIMES[0]).allowed
        assert "t" in found.tables_with_privileges(ann, "a") and "a" in found.databases_with_privileges(ann)


def test_a_column_is_looked_up_by_its_name_among_the_thousands_of_its_table() -> None:
    columns = [
        {
            "resource": {
                "database": {"values": ["a"]},
                "table": {"values": ["t"]},
                "column": {"values": [f"c{n}"]},
            }
        }
        for n in range(2_000)
    ]
    document = json.dumps(service_tags([each | {"tags": ["PII"]} for each in columns]))
    tree = ResourceTree([each.resource] for each in parse_documents({"t": document}).tags.resources)
    assert [sorted(each) for each in tree.about(Target.of(Resource.column("a", "T", "C7")))] == [[7]]
    assert len(frozenset().union(*tree.about(Target.of(Resource.table("a", "t"))))) == 2_000
