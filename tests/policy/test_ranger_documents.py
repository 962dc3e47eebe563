"""Policy documents: what is accepted, and that the rest is refused whole, by document, line and field."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from policy import fields
from policy.errors import PolicyInvalid
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet, parse
from policy.strict_json import line_of
from tests.support.vectors import each_row

NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
REFUSED = json.loads((Path(__file__).parents[1] / "vectors" / "ranger" / "refused.json").read_text("utf-8"))

POLICY: dict[str, Any] = {
    "name": "readers",
    "resources": {"database": {"values": ["a"]}, "table": {"values": ["*"]}},
    "policyItems": [{"accesses": [{"type": "select"}], "groups": ["public"]}],
}


def grants(policies: PolicySet, table: str = "t", user: str = "ann") -> bool:
    request = AccessRequest(Principal(user), Resource.table("a", table), "select")
    return policies.decide(request, NOW).allowed


@each_row("case", REFUSED["refused"], count=192, ids=lambda case: str(case["name"]))
def test_refused_with_document_line_and_field(case: dict[str, Any]) -> None:
    text = case["text"] if "text" in case else json.dumps(case["document"], indent=1)
    with pytest.raises(PolicyInvalid) as refusal:
        PolicySet.parse({"bad.json": text})
    assert (refusal.value.message, refusal.value.hint) == (case["message"], case["hint"])
    assert refusal.value.rule in ("policy-document", "json")


@each_row(
    "document",
    [
        POLICY,
        [POLICY],
        {"policies": [POLICY]},
        {"policies": [POLICY], "startIndex": 0, "pageSize": 0, "totalCount": 0, "resultSize": 0},
        {"policies": [POLICY], "totalCount": 1, "metaDataInfo": {"Host name": "h"}},
        {"serviceName": "lake", "policyVersion": 7, "policies": [POLICY], "serviceDef": {"name": "hive"}},
        {"policies": [POLICY], "tagPolicies": {"policies": []}, "securityZones": {}, "policyDeltas": None},
        {"policies": [POLICY], "tagPolicies": {}, "serviceConfig": {}, "roles": None},
        {
            "policies": [
                {**POLICY, "description": None, "denyPolicyItems": None, "isEnabled": None, "id": None}
            ]
        },
        {"policies": [{**POLICY, "options": {"x": 1}, "createTime": 1, "updateTime": "2030-01-01"}]},
    ],
)
def test_every_form_of_document_is_read(document: object) -> None:
    assert grants(PolicySet.parse({"policies.json": json.dumps(document)}))


def test_an_old_schedule_in_options_beside_a_written_one_is_accepted() -> None:
    both = {
        **POLICY,
        "options": {"POLICY_VALIDITY_SCHEDULES": "[]"},
        "validitySchedules": [{"endTime": "2031/01/01 00:00:00"}],
    }
    assert grants(PolicySet.parse({"policies.json": json.dumps(both)}))


def test_documents_add_up_and_roles_cross_documents() -> None:
    by_role = {**POLICY, "policyItems": [{"accesses": [{"type": "select"}], "roles": ["r"]}]}
    documents = {
        "policies": json.dumps(by_role),
        "roles": json.dumps({"roles": [{"name": "r", "users": [{"name": "ann"}]}]}),
    }
    policies = PolicySet.parse(documents)
    assert grants(policies, user="ann") and not grants(policies, user="bob")


def test_all_roles_on_one_page_are_read() -> None:
    roles = [{"name": "r", "users": [{"name": "ann", "isAdmin": None}]}, {"name": "s"}]
    by_role = {**POLICY, "policyItems": [{"accesses": [{"type": "select"}], "roles": ["r"]}]}
    documents = {"p": json.dumps(by_role), "r": json.dumps({"roles": roles, "totalCount": 2})}
    assert grants(PolicySet.parse(documents))


def test_a_role_defined_in_two_documents_is_refused() -> None:
    role = json.dumps({"roles": [{"name": "r"}]})
    with pytest.raises(PolicyInvalid, match=r"second.json, line 1, roles\[0\].name: .* defined twice"):
        PolicySet.parse({"first.json": role, "second.json": role})


def test_one_bad_document_refuses_the_good_ones_too() -> None:
    with pytest.raises(PolicyInvalid, match=r"bad.json"):
        PolicySet.parse({"good.json": json.dumps(POLICY), "bad.json": json.dumps({**POLICY, "name": ""})})


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(PolicyInvalid, match=r"latin.json is not UTF-8"):
        PolicySet.parse({"latin.json": '["ä"]'.encode("latin-1")})


def test_bytes_name_the_line_too() -> None:
    with pytest.raises(PolicyInvalid, match=r"b.json, line 3, \[0\].name"):
        PolicySet.parse({"b.json": b'[\n {"resources": {},\n  "name": 4}]'})


def test_an_oversized_document_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "MAX_DOCUMENT_SIZE", 10)
    with pytest.raises(PolicyInvalid, match="11 bytes, but at most 10"):
        PolicySet.parse({"big.json": b"not JSON at"})


def test_an_oversized_document_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "MAX_DOCUMENT_SIZE", 10)
    with pytest.raises(PolicyInvalid) as refusal:
        PolicySet.parse({"big.json": b"x" * 11})
    assert str(refusal.value) == (
        "big.json: the document has 11 bytes, but at most 10 are allowed. [rule=policy-document]"
        " Split it into several documents."
    )
    monkeypatch.setattr(parse, "MAX_DOCUMENT_SIZE", len(json.dumps(POLICY)))
    assert grants(PolicySet.parse({"p.json": json.dumps(POLICY)}))


@each_row(
    "items",
    [
        {},
        {"policyItems": None, "isDenyAllElse": True},
        {"policyItems": None, "isAuditEnabled": True},
        {"policyItems": None, "denyPolicyItems": POLICY["policyItems"]},
        {"policyItems": None, "denyExceptions": POLICY["policyItems"]},
    ],
)
def test_a_policy_that_says_something_may_be_without_an_audit(items: dict[str, Any]) -> None:
    assert PolicySet.parse({"p.json": json.dumps({**POLICY, "isAuditEnabled": False, **items})})


def test_a_policy_that_says_nothing_is_refused_unless_it_is_for_an_audit() -> None:
    nothing = {**POLICY, "policyItems": [], "isAuditEnabled": False}
    with pytest.raises(PolicyInvalid) as refusal:
        PolicySet.parse({"p.json": json.dumps(nothing)})
    assert refusal.value.message == "p.json, line 1: the policy has no items."


@each_row(
    "name", ["guid", "createdBy", "updatedBy", "service", "description", "resourceSignature", "policyLabels"]
)
def test_what_has_no_effect_has_its_type_all_the_same(name: str) -> None:
    written, place = ([7], f"{name}[0]") if name == "policyLabels" else (7, name)
    with pytest.raises(PolicyInvalid) as refusal:
        PolicySet.parse({"p.json": json.dumps({**POLICY, name: written})})
    assert refusal.value.message == f"p.json, line 1, {place}: expected a string, got an integer."


def test_a_second_policy_of_one_name_or_id_is_refused_in_its_place() -> None:
    other = {**POLICY, "name": "other", "id": 7}
    for pair, member in (([POLICY, POLICY], "name"), ([other, {**POLICY, "id": 7}], "id")):
        with pytest.raises(PolicyInvalid, match=f"another policy has the {member}"):
            PolicySet.parse({"p.json": json.dumps(pair)})
    assert grants(PolicySet.parse({"p.json": json.dumps([POLICY, {**POLICY, "service": "other"}])}))


def test_an_overlong_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "MAX_LIST_LENGTH", 2)
    with pytest.raises(PolicyInvalid, match="3 elements, but at most 2"):
        PolicySet.parse({"p.json": json.dumps([POLICY] * 3)})


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(PolicyInvalid) as refusal:
        PolicySet.parse({"p.json": json.dumps({**POLICY, "serviceType": "tag"})})
    assert refusal.value.rule == "policy-document"
    assert "hive, lakewarden" in str(refusal.value.hint)


def test_the_version_is_of_contents_and_names() -> None:
    text = json.dumps(POLICY)
    version = PolicySet.parse({"a": text, "b": "[]"}).version
    assert len(version) == 64
    assert version == PolicySet.parse({"b": b"[]", "a": text.encode()}).version
    others = [{"a": text}, {"b": text, "a": "[]"}, {"a": text, "b": "[ ]"}, {"a": text, "b": "[]", "c": "[]"}]
    assert version not in {PolicySet.parse(other).version for other in others}


def test_no_policies_deny_everything() -> None:
    policies = PolicySet.empty()
    assert not grants(policies)
    assert policies.version == PolicySet.parse({}).version
    assert policies.mask_for(Principal("ann"), "a", "t", "c", NOW) is None
    assert policies.row_filters_for(Principal("ann"), "a", "t", NOW) == ()


@each_row(
    ("path", "line"),
    [
        ((), 1),
        (("a",), 1),
        (("b",), 3),
        (("b", 1), 4),
        (("b", 1, "c"), 5),
        (("b", 2), 3),
        (("x",), 1),
        ((0,), 1),
    ],
)
def test_line_of_a_path(path: tuple[str | int, ...], line: int) -> None:
    text = '{"a" : "}]\\"",\n "e": {},\n "b": [ [1, 2],\n  {"k": [],\n   "c" :\tnull} ] }'
    assert line_of(text, path) == line


@each_row(
    ("path", "line"),
    [(("a",), 1), (("b", 0), 2), (("b", 1), 3), (("b", 2, "c"), 4), (("d",), 5), (("e",), 1)],
)
def test_line_of_a_path_in_a_text_without_spaces(path: tuple[str | int, ...], line: int) -> None:
    text = '{"a":1,"b":[\n2,\n3,{"x":"X",\n"c":"}"}],\n"d":"X]"}'
    assert line_of(text, path) == line
    assert line_of(f"\n{text}", path) == line + 1
