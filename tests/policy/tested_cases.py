"""Policies, cases about them, and how a case runs."""

from __future__ import annotations

import json
from typing import Any

from policy.testing import Outcome, Suite, UnderTest, parse_cases

Json = dict[str, Any]
SELECT = [{"type": "select"}]
SALES = {"database": {"values": ["sales"]}, "table": {"values": ["*"]}, "column": {"values": ["*"]}}
OWNERS = {"users": ["{OWNER}"], "accesses": [{"type": "all"}]}
READERS = {"groups": ["readers"], "accesses": SELECT}
MASKED = {
    "name": "masks",
    "policyType": 1,
    "resources": {**SALES, "column": {"values": ["email"]}},
    "dataMaskPolicyItems": [{**READERS, "dataMaskInfo": {"dataMaskType": "MASK"}}],
}
FILTERED = {
    "name": "filters",
    "policyType": 2,
    "resources": {"database": {"values": ["sales"]}, "table": {"values": ["orders"]}},
    "rowFilterPolicyItems": [{**READERS, "rowFilterInfo": {"filterExpr": "id = 1"}}],
}
READ = "user: bob, groups: [readers], access: select"


def sales(**more: Any) -> Json:
    return {"name": "sales", "resources": SALES, "policyItems": [READERS, OWNERS], **more}


def suite(cases: str, *policies: Json, rules: list[Json] | None = None, top: str = "") -> Suite:
    file = parse_cases("f.yaml", f"{top}\ncases:\n{cases}".encode())
    tested = {"p.json": json.dumps({"policies": policies}).encode()} if policies else {}
    return Suite(file, UnderTest(tested, {"r.json": json.dumps({"rules": rules}).encode()} if rules else {}))


def run(case: str, *policies: Json, **more: Any) -> Outcome:
    tested = suite(f"  - {{name: it, {case}}}", *policies, **more)
    return tested.run(tested.file.cases[0])


def reached(outcome: Outcome) -> list[str]:
    assert outcome.passed, outcome.problems
    return [f"{part.policy} {part.item}".strip() for part in sorted(outcome.reached)]


RULES = [
    {"name": "encrypted", "databases": ["sales"], "tables": ["orders"], "mustEncrypt": True},
    {"name": "long", "databases": ["sales"], "tables": ["*"], "mustEncrypt": False, "minDataKeyLength": 32},
]
TABLES = """
catalog: {master_key: k}
tables:
  sales.orders: {owner: olga, columns: [id], properties: {encryption.mechanism: envelope}}
  sales.clear: {columns: [id]}
  sales.short: {columns: [id], properties: {encryption.data-key-length: "16"}}
"""
