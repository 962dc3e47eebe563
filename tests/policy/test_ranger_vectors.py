"""Every case of tests/vectors/ranger: policies, requests, and what must come out."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from tests.support.vectors import each_row

VECTORS = Path(__file__).parents[1] / "vectors" / "ranger"
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(VECTORS.glob("*.json"))}


def set_of(stem: str) -> PolicySet:
    documents = FILES[stem]["documents"]
    return PolicySet.parse({name: json.dumps(document) for name, document in documents.items()})


def cases(section: str) -> list[Any]:
    return [
        pytest.param(stem, case, id=f"{stem}: {case['name']}")
        for stem, data in FILES.items()
        for case in data.get(section, ())
    ]


def principal(case: dict[str, Any]) -> Principal:
    return Principal(case["user"], frozenset(case.get("groups", ())), frozenset(case.get("roles", ())))


def moment(stem: str, case: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(case.get("now", FILES[stem]["now"]))


def resource(named: dict[str, str]) -> Resource:
    kind = {"database": Resource.database, "table": Resource.table, "column": Resource.column}
    one = {"url": Resource.url, "storage": Resource.storage, "key": Resource.key, "engine": Resource.engine}
    last = list(named)[-1]
    return {**kind, **one, "service": Resource.service}[last](*named.values())


@each_row(("stem", "case"), cases("cases"), count=272)
def test_access_is_decided_as_the_vector_says(stem: str, case: dict[str, Any]) -> None:
    request = AccessRequest(principal(case), resource(case["resource"]), case["access"], case.get("owner"))
    decision = set_of(stem).decide(request, moment(stem, case))
    reason = decision.reasons[0]
    assert ("allow" if decision.allowed else "deny") == case["expected"], reason.detail
    assert (reason.rule, reason.policy, reason.item) == (case["rule"], case["policy"], case["item"])
    if "also" in case:
        assert [(more.rule, more.policy) for more in decision.reasons[1:]] == [
            (case.get("also_rule", "policy-unevaluable"), policy) for policy in case["also"]
        ]


@each_row(("stem", "case"), cases("masks"), count=28)
def test_mask_is_chosen_as_the_vector_says(stem: str, case: dict[str, Any]) -> None:
    rule = set_of(stem).mask_for(
        principal(case), case["database"], case["table"], case["column"], moment(stem, case)
    )
    found = None if rule is None else {"type": rule.type, "policy": rule.policy}
    assert found == case["expected"]


@each_row(("stem", "case"), cases("row_filters"), count=11)
def test_row_filter_is_found_as_the_vector_says(stem: str, case: dict[str, Any]) -> None:
    found = set_of(stem).row_filters_for(principal(case), case["database"], case["table"], moment(stem, case))
    assert bool(found) is case["expected"]
