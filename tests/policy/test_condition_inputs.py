"""What a condition looks at: where that is the same, the condition comes out the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.privileges.requests import Resource
from policy.ranger.circumstances import Circumstances, Subject, Tag
from policy.ranger.conditions.condition import Condition
from policy.ranger.conditions.inputs import Inputs
from policy.ranger.conditions.names import NAMES
from policy.ranger.conditions.truth import Unknown
from policy.ranger.users import UserStore
from tests.policy.test_ranger_differential import EXAMPLES

USERS = UserStore(
    {"ann": {"dept": "hr", "x": "1"}, "bob": {"dept": "hr"}, "eve": {}}, {"g1": {"site": "a"}, "g2": {}}
)
TEXTS: Final = [
    "USER.dept == 'hr'",
    "USER['dept'] == 'hr' && USER.x == '1'",
    "USER[tagAttr.get('who')] == 'hr'",
    "USER._name == RES._ownerUser",
    "HAS_USER_ATTR('x')",
    "GET_USER_ATTR('dept', 'it') == 'it'",
    "ctx.getUser() == 'ann'",
    "IS_IN_GROUP('g1')",
    "ctx.isInGroup(USER.dept)",
    "IS_IN_ANY_GROUP",
    "HAS_UG_ATTR('site')",
    "UG.g1.site == 'a'",
    "UGA.sVal.site == 'a'",
    "UGNAMES.includes('g2')",
    "IS_IN_ROLE('r') || URNAMES.length == 0",
    "IS_NOT_IN_ANY_ROLE",
    "RES.table == 't'",
    "RES['database'] == 'd'",
    "REQ.accessType == 'select'",
    "REQ.user == 'ann' || REQ.userGroups.includes('g1')",
    "REQ.userRoles.includes('r')",
    "REQ.userAttributes.dept == 'hr'",
    "HAS_TAG('PII')",
    "HAS_ANY_TAG && !HAS_TAG_ATTR('level')",
    "TAGNAMES.includes('PII') && TAGS.PII.level == '1'",
    "TAG.level == '1'",
    "ctx.getAttributeValue('PII', 'level') == '1'",
    "ctx.isAccessedAfter('PII', 'until')",
    "if (IS_IN_GROUP('g1')) { ctx.result = USER.dept == 'hr' } else ctx.result = RES.table != 't'",
]
SUBJECTS = st.builds(
    Subject,
    st.sampled_from(["ann", "bob", "eve", "zoe"]),
    st.frozensets(st.sampled_from(["g1", "g2", "g3"])),
    st.frozensets(st.sampled_from(["r", "q"])),
    st.sampled_from([None, "ann", "bob"]),
)
TAGS = st.sampled_from(
    [None, (), (Tag("PII", {}),), (Tag("PII", {"level": "1"}),), (Tag("X", {"until": "2020/01/01"}),)]
)
CIRCUMSTANCES = st.builds(
    Circumstances,
    SUBJECTS,
    st.just(USERS),
    st.just(datetime(2030, 1, 1, tzinfo=UTC)),
    st.builds(Resource.table, st.sampled_from(["d", "e"]), st.sampled_from(["t", "u"])),
    st.sampled_from(["select", "update"]),
    TAGS,
    st.just(Tag("PII", {"level": "1", "who": "dept"})),
)


@pytest.mark.parametrize("text", TEXTS)
def test_each_condition_is_understood(text: str) -> None:
    assert Condition.of("expression", [text]).is_understood


def test_each_name_is_tried() -> None:
    assert {name for name in NAMES if not any(name in text for text in TEXTS)} == set()


@EXAMPLES
@given(st.sampled_from(TEXTS), CIRCUMSTANCES, CIRCUMSTANCES)
def test_a_condition_comes_out_the_same_where_what_it_looks_at_is_the_same(
    text: str, one: Circumstances, other: Circumstances
) -> None:
    condition = Condition.of("expression", [text])
    assert condition.script is not None
    inputs = Inputs.of([condition.script])
    if _seen(inputs, one) == _seen(inputs, other):
        assert _outcome(condition, one) == _outcome(condition, other)


def _seen(inputs: Inputs, c: Circumstances) -> object:
    assert c.resource is not None
    user = inputs.user(c.subject, c.users)
    return user, inputs.resource(c.resource, c.subject.owner, c.tags), c.access if inputs.access else None


def _outcome(condition: Condition, c: Circumstances) -> bool | None:
    found = condition.holds(c)
    return None if isinstance(found, Unknown) else found
