"""What conditions say: true, false, or unknown where an answer is not certain."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.privileges.requests import Resource
from policy.ranger.circumstances import Circumstances, Subject, Tag
from policy.ranger.conditions import Condition, Unknown
from policy.ranger.conditions.names import CALLS, FUNCTIONS, MACROS, NAMES
from policy.ranger.users import UserStore
from tests.support.vectors import each_row

ANN = Subject("ann", frozenset({"g1", "g2", "g3"}), frozenset({"r1"}), "bob")
USERS = UserStore(
    {"ann": {"dept": "ENGG", "level": "10", "partners": "p1,p3", "empty": "", "bio": "x🐈"}},
    {"g1": {"dept": "X", "site": "10"}, "g2": {"site": "20"}, "g3": {}, "apart": {"dept": "Y"}},
)
PII = Tag(
    "PII", {"score": "1.5", "value": "p1,p2", "expiry_date": "2030/06/15", "seen": "2030-06-15T00:00:00.000Z"}
)
NOW = datetime(2030, 6, 15, tzinfo=UTC)
HERE = Circumstances(ANN, USERS, NOW, Resource.column("db1", "t", "c"), "select", (PII, Tag("PCI", {})), PII)


def said(text: str, c: Circumstances = HERE, kind: str = "expression") -> bool | str:
    """What a condition says; if it is unknown, why."""
    truth = Condition.of(kind, [text]).holds(c)
    return truth.reason if isinstance(truth, Unknown) else truth


TRUE = [
    "true",
    "USER.dept == 'ENGG'",
    "USER['dept'] === \"ENGG\"",
    "USER.dept != 'HR' && IS_IN_ROLE('r1')",
    "USER._name == 'ann' && REQ.user == 'ann' && ctx.getUser() == 'ann'",
    "USER.level >= 10 && USER.level < 10.5 && USER.level > -1",
    "USER.level == 10",
    "USER.dept < 'F'",
    "USER.nothing == null && USER.nothing == undefined && null == USER.nothing",
    "!USER.nothing && !USER.empty && !0",
    "USER.nothing != 'a' && USER.nothing !== 'a'",
    "(USER.dept == 'HR' || USER.dept == 'ENGG') && !(USER.level < 5)",
    "HAS_USER_ATTR('dept') && !HAS_USER_ATTR('nothing')",
    "GET_USER_ATTR('dept') == 'ENGG' && GET_USER_ATTR('nothing', 'd') == 'd'",
    "GET_USER_ATTR('nothing') == ''",
    "USER.bio.length == 3 && USER.bio.indexOf('🐈') == 1",
    "USER.dept.toLowerCase() == 'engg' && 'a'.toUpperCase() == 'A'",
    "IS_IN_GROUP('g1') && !IS_IN_GROUP('g9') && IS_IN_ANY_GROUP && !IS_NOT_IN_ANY_GROUP",
    "IS_IN_ANY_ROLE && !IS_NOT_IN_ANY_ROLE",
    "UG['g1'].dept == 'X' && UG.g2.dept == null && UG['apart'] == null",
    "UGA.sVal['site'] == 10 && UGA.mVal['site'].includes('20') && UGA.mVal.site.length == 2",
    "UGNAMES.indexOf('g2') == 1 && UGNAMES.indexOf('g9') == -1 && URNAMES.includes('r1')",
    "HAS_UG_ATTR('site') && !HAS_UG_ATTR('nothing')",
    "['HR', 'ENGG'].includes(USER.dept) && ![].includes('a') && !['a'].includes(null)",
    "['a', 1].intersects([1, 2])",
    "['a', 'b'].intersects(['b', 'c']) && !['a'].intersects(null) && ![].intersects([])",
    "TAG.value.split(',').intersects(USER.partners.split(','))",
    "[[TAG.value]].intersects([[USER.partners]]) && !([[TAG.value,'|']].includes('p1'))",
    "HAS_TAG('PII') && !HAS_TAG('x') && HAS_ANY_TAG && !HAS_NO_TAG && TAGNAMES.length == 2",
    "HAS_TAG_ATTR('score') && TAG._type == 'PII' && TAGS['PII'].score > 0.6 && TAGS.PCI.score == null",
    "TAGS.nothing == null && tagAttr.get('nothing') == null && tagAttr.score < 2",
    "REQ.accessType == 'select' && REQ.userGroups.length == 3 && REQ.resource.database == 'db1'",
    "RES.database == 'db1' && RES.table == 't' && RES.column != 'd' && RES._ownerUser == 'bob'",
    "ctx.isAccessedAfter('expiry_date') && ctx.isAccessedBefore('expiry_date')",
    "ctx.isAccessedAfter('PII', 'seen') && ctx.isAccessedBefore('PII', 'seen')",
    "ctx.isAccessedAfter('nothing') && !ctx.isAccessedBefore('nothing')",
    "ctx.isAccessedAfter('PCI', 'seen') && !ctx.isAccessedBefore('PCI', 'seen')",
    "ctx.getAttributeValue('score') == 1.5 && ctx.getAttributeValue('PII', 'score') == '1.5'",
    "IS_ACCESS_TIME_BETWEEN('2030/06/15', '2030/06/16')",
    "!IS_ACCESS_TIME_BETWEEN('2030/06/14', '2030/06/15')",
    "!IS_ACCESS_TIME_AFTER('2030/06/15') && IS_ACCESS_TIME_AFTER('2030/06/14 23:59:59', 'GMT')",
    "IS_ACCESS_TIME_AFTER('2030/06/15 01:59', 'Europe/Oslo') && IS_ACCESS_TIME_BEFORE('2030/06/15 00:00:01')",
    "if ( tagAttr.get('score') < 2 ) ctx.result = true;",
    "if (USER.dept == 'HR') { ctx.result = false; } else { if (HAS_ANY_TAG) ctx.result = true }",
    "ctx.result = false; if (IS_IN_GROUP('g1')) ctx.setResult(true);",
    "ctx.result = USER.dept\n  == 'ENGG';",
    "'it\\'s' != \"it\"",
]
FALSE = [
    "false",
    "null",
    "USER.nothing",
    "USER.empty",
    "USER.nothing && IS_IN_GROUP('g1')",
    "USER.dept == 'engg'",
    "if (USER.dept == 'HR') ctx.result = true;",
    "USER.nothing == 'a' || false",
    "IS_IN_GROUP('G1')",
    "'10' > '9'",
]
UNKNOWN = {
    "USER.dept": "a value",
    "IS_IN_GROUP('g9') || USER.dept": "a value",
    "true && 'x'": "a value",
    "USER.dept || true": "a value",
    "USER.nothing.length == 1": "nothing",
    "UG['apart'].dept == 'Y'": "nothing",
    "!(USER.nothing.includes('a') && false)": "nothing",
    "USER.nothing.split(',').includes('a') || true": "nothing",
    "USER.dept == 10": "different types",
    "USER.level === 10": "different types",
    "USER.dept == true": "different types",
    "USER.dept < 5": "different types",
    "USER.nothing < 5": "different types",
    "['10'].includes(10)": "different types",
    "USER.nothing === null": "apart",
    "USER.constructor != null": "attribute by its name",
    "USER['__proto__'] == null": "attribute by its name",
    "USER[TAG.value.length] == null": "attribute by its name",
    "USER.dept.includes('E')": "includes() of a text",
    "USER.dept.startsWith('E')": "startsWith() of a text",
    "['a'].intersects('abc')": "intersects() of a list",
    "IS_IN_GROUP(1)": "not a text",
    "ctx.isAccessedAfter('value')": "not a date",
    "TAG._matchType == 'SELF'": "how a tag matches",
}
OUTSIDE = [
    "",
    " ",
    "test",
    "var a = 1; a == 1",
    "REQ.clientIPAddress == '10.0.0.1'",
    "REQ[USER.dept] == 'x'",
    "RES['storage-url'] == 's3://lake'",
    "tag.score > 0.6",
    "ctx.getRequestContextAttribute('COUNTRY') == 'US'",
    "ctx.result == true",
    "USER.dept = 'HR'",
    "USER.dept == 'HR' & true",
    "a == b == c",
    "1 < 2 < 3",
    "(USER.a && USER.b) == 'x'",
    "['a' || 'b'].includes('a')",
    "true // always",
    "/* */ true",
    "'a\\x41' == 'aA'",
    "'\u2028' == ''",
    "IS_IN_GROUP('HAS_TAG')",
    "USER.dept == '[[x]]'",
    "[[USER.dept ]].includes('x')",
    "[['a']].includes('a')",
    "[[TAG.value]]",
    "UGNAMES[0] == 'g1'",
    "IS_IN_GROUP()",
    "IS_IN_GROUP",
    "IS_IN_GROUP('a', 'b')",
    "HAS_ANY_TAG()",
    "HAS_ANY_TAG == HAS_NO_TAG == true",
    "function() { return true; }()",
    "USER.dept ? true : false",
    "0x10 == 16",
    "1e3 == 1000",
    "010 == 8",
    "9999999999999999 == 1",
    "IS_ACCESS_TIME_AFTER('tomorrow')",
    "IS_ACCESS_TIME_AFTER('2030/13/01')",
    "IS_ACCESS_TIME_AFTER('2030/01/01', 'Mars')",
    "IS_ACCESS_TIME_AFTER(USER.since)",
    "IS_ACCESS_TIME_AFTER('2030/01/01 10')",
    "if (true) ctx.result = true; else",
    "if (true) {}",
    "if (true) ctx.result = true;; else ctx.result = false;",
    "if (true) { ctx.result = true; }; else ctx.result = false;",
    "if (true) ctx.result = true else ctx.result = false",
    "ctx.result = false ctx.result = true",
    "ctx.setResult(true) ctx.result = true;",
    "ctx.result = true; true",
    "true; true",
    "true)",
    "(" * 60 + "true" + ")" * 60,
    "!" * 60 + "true",
    "USER" + ".a" * 60,
    "true" + " && true" * 300,
    "'" + "a" * 5000 + "' == 'a'",
]


@each_row("text", TRUE)
def test_a_condition_that_holds(text: str) -> None:
    assert said(text) is True


@each_row("text", FALSE)
def test_a_condition_that_does_not_hold(text: str) -> None:
    assert said(text) is False


@each_row(("text", "why"), list(UNKNOWN.items()))
def test_where_javascript_fails_or_converts_a_condition_is_unknown(text: str, why: str) -> None:
    assert Condition.of("expression", [text]).is_understood
    assert why in str(said(text))


@each_row("text", OUTSIDE)
def test_what_is_outside_of_the_language_is_never_known(text: str) -> None:
    found = Condition.of("_expression", [text])
    assert not found.is_understood and found.problem
    assert isinstance(found.holds(HERE), Unknown)


NO_TAGS = "the tags of the resource are not known"
NOT_KNOWN = replace(HERE, subject=replace(ANN, name="eve", owner=None, groups=frozenset({"g9"})), tags=None)


@each_row(
    ("text", "why"),
    [
        ("USER.dept != 'HR'", "attributes of the user 'eve'"),
        ("!['HR'].includes(USER.dept)", "attributes of the user 'eve'"),
        ("USER.dept.includes('HR') || true", "attributes of the user 'eve'"),
        ("['HR'].intersects(USER.dept) || true", "attributes of the user 'eve'"),
        ("USER.dept[TAG._type] || true", "attributes of the user 'eve'"),
        ("TAGS.PII.score == null || true", "tags of the resource"),
        ("HAS_USER_ATTR('dept')", "attributes of the user 'eve'"),
        ("GET_USER_ATTR('dept') == ''", "attributes of the user 'eve'"),
        ("UG.g9.dept != 'HR'", "attributes of the group 'g9'"),
        ("UGA.sVal.dept != 'HR'", "attributes of the group 'g9'"),
        ("HAS_UG_ATTR('dept')", "attributes of the group 'g9'"),
        ("HAS_NO_TAG", "tags of the resource"),
        ("TAGS.PII == null", "tags of the resource"),
        ("TAGNAMES.length == 0", "tags of the resource"),
        ("!ctx.isAccessedBefore('PII', 'seen')", "tags of the resource"),
        ("RES._ownerUser != 'bob'", "owner"),
    ],
)
def test_what_is_not_known_is_not_taken_as_nothing(text: str, why: str) -> None:
    assert why in str(said(text, NOT_KNOWN))


@each_row(
    ("text", "c"),
    [
        ("RES.table != 'Orders'", replace(HERE, resource=Resource.table("db", "Orders"))),
        ("RES.table != 'orders'", replace(HERE, resource=Resource.table("db", "ORDERS"))),
        ("RES.column != 'c'", replace(HERE, resource=Resource.table("db", "t"))),
        ("RES.table != 't'", replace(HERE, resource=None)),
        ("REQ.accessType != 'select'", replace(HERE, access=None)),
        ("TAGS.PII.score != '1.5'", replace(HERE, tags=(PII, Tag("PII", {"score": "2"})))),
        (
            "!ctx.isAccessedBefore('PII', 'seen')",
            replace(HERE, tags=(PII, Tag("PII", {"seen": "2030/01/01"}))),
        ),
    ],
)
def test_what_has_several_meanings_is_unknown(text: str, c: Circumstances) -> None:
    assert isinstance(said(text, c), str)


def test_a_policy_on_resources_has_no_current_tag() -> None:
    c = replace(HERE, tag=None)
    assert said("TAG._type == null && TAG.score == null && tagAttr.get('score') == null", c) is True


@each_row(
    ("kind", "values", "truth"),
    [
        ("accessed-after-expiry", ["yes"], True),
        ("enforce-expiry", ["No"], False),
        ("enforce-expiry", ["perhaps"], None),
        ("expression", [], None),
        ("expression", ["true", "false"], None),
        ("ip-range", ["10.*"], None),
    ],
)
def test_types_of_conditions(kind: str, values: list[str], truth: bool | None) -> None:
    found = Condition.of(kind, values).holds(HERE)
    assert (None if isinstance(found, Unknown) else found) is truth


def test_what_a_condition_looks_at() -> None:
    def looked_at(text: str) -> tuple[bool, bool]:
        found = Condition.of("expression", [text])
        return found.is_timed, found.looks_at_names

    assert looked_at("USER.dept == 'a'") == (False, False)
    assert looked_at("IS_ACCESS_TIME_AFTER('2030/01/01')") == (True, False)
    assert looked_at("!ctx.isAccessedBefore('expiry_date')") == (True, False)
    assert looked_at("TAG.level == 'a' || ctx.getAttributeValue('level') == 'a'") == (False, False)
    for by_tag in ("HAS_TAG('a')", "HAS_NO_TAG", "TAGS.a.b == 'c'", "TAGNAMES.includes('a')"):
        assert looked_at(by_tag) == (False, True)
    assert looked_at("ctx.isAccessedAfter('PII', 'seen')") == (True, True)
    assert looked_at("REQ['resource'].table == 'a'") == looked_at("RES.table == 'a'") == (False, True)


def test_unknown_is_no_truth_value() -> None:
    with pytest.raises(TypeError):
        bool(Unknown("why"))


@each_row(
    ("text", "truth"),
    [
        ("{}", None),
        ("!{}", None),
        ("{} && true", None),
        ("true && {}", None),
        ("{} && false", False),
        ("{} || false", None),
        ("{} || true", True),
        ("!({} || true)", False),
        ("if ({}) ctx.result = true;", None),
        ("if (!{}) ctx.result = true;", None),
        ("if ({}) ctx.result = true; else ctx.result = true;", True),
        ("{} && USER.dept.length", "its result is a value and not true or false"),
    ],
)
def test_an_unknown_part_is_neither_true_nor_false(text: str, truth: bool | str | None) -> None:
    found = said(text.format("HAS_TAG('t0')"), replace(HERE, tags=None))
    assert found == (NO_TAGS if truth is None else truth)


#: Atoms that are known, and atoms about tags, which are not.
ATOMS = {"IS_IN_GROUP('g1')": 1.0, "IS_IN_GROUP('g9')": 0.0, "HAS_TAG('t0')": 0.5, "HAS_TAG('t1')": 0.5}
SETS = [frozenset(each) for size in range(3) for each in combinations(("t0", "t1"), size)]
Tree = Any
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(sorted(ATOMS)),
    lambda below: st.one_of(
        st.tuples(st.just("!"), below), st.tuples(st.sampled_from(["&&", "||"]), below, below)
    ),
    max_leaves=8,
)


def written(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    *left, right = map(written, tree[1:])
    return f"({''.join(left)} {tree[0]}({right}))"


def kleene(tree: Tree) -> float:
    """A half is unknown: negation is the difference from one, and conjunction the lowest."""
    if isinstance(tree, str):
        return ATOMS[tree]
    if tree[0] == "!":
        return 1 - kleene(tree[1])
    return (min if tree[0] == "&&" else max)(kleene(tree[1]), kleene(tree[2]))


def boolean(tree: Tree, tags: frozenset[str]) -> bool:
    if isinstance(tree, str):
        return "g1" in tree or any(tag in tree for tag in tags)
    if tree[0] == "!":
        return not boolean(tree[1], tags)
    return (all if tree[0] == "&&" else any)(boolean(each, tags) for each in tree[1:])


@settings(deadline=None)
@given(TREES)
def test_connectives_are_kleenes_and_certain_whatever_is_not_known(tree: Tree) -> None:
    found = said(written(tree), replace(HERE, tags=None))
    assert found == {0.0: False, 1.0: True}.get(kleene(tree), NO_TAGS)
    for tags in SETS:
        known = said(written(tree), replace(HERE, tags=tuple(Tag(tag, {}) for tag in tags)))
        assert known is boolean(tree, tags)
        assert found in (known, NO_TAGS)


@settings(deadline=None)
@given(TREES, TREES, TREES)
def test_branches_say_what_the_same_expression_says(test: Tree, then: Tree, otherwise: Tree) -> None:
    script = f"if ({written(test)}) ctx.result = {written(then)}; else ctx.result = {written(otherwise)};"
    for tags in SETS:
        c = replace(HERE, tags=tuple(Tag(tag, {}) for tag in tags))
        assert said(script, c) is boolean(then if boolean(test, tags) else otherwise, tags)
    found = said(script, replace(HERE, tags=None))
    assert isinstance(found, str) or all(
        found is boolean(then if boolean(test, tags) else otherwise, tags) for tags in SETS
    )


#: What conditions are made of.
PIECES = (
    *NAMES,
    *FUNCTIONS,
    *MACROS,
    *CALLS,
    *[".", "[", "]", "(", ")", "!", "&&", "||", "==", "===", "<", ",", ";", "=", "{", "}", "-", "[["],
)
PIECES += ("ctx", "dept", "includes", "split", "get", "result", "if", "else", "'a'", "1", "null", "true")


@settings(deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join)))
def test_every_text_says_something_or_is_unknown(text: str) -> None:
    truth = Condition.of("expression", [text]).holds(HERE)
    assert truth is True or truth is False or isinstance(truth, Unknown)
