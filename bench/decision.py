"""Measures how long it takes to decide row filter and masks of a user, who is another one each time."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from bench.report import Figure, at_most, figure
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.restrictions.columns import SchemaField, TableColumns
from policy.view import View

_POLICIES = 1_000
_COLUMNS = TableColumns(SchemaField(i, (f"c{i}",), "string" if i == 2 else "int") for i in range(1, 21))
_SELECT = [{"type": "select"}]


def measure(runs: int) -> list[Figure]:
    """Decide for a table of 20 columns that one policy in ten, or each, is about."""
    about = {"one in ten about the table": 10, "all about the table": 1}
    return [
        _measured(f"a restriction, {_POLICIES:,} policies, {name}", runs, each)
        for name, each in about.items()
    ]


def _measured(name: str, runs: int, wildcards: int) -> Figure:
    policies = PolicySet.parse({"policies": json.dumps({"policies": _policies(wildcards)})})
    now = datetime.now(UTC)

    def decide(user: int) -> None:
        principal = Principal(f"u{user}", frozenset(f"g{i}" for i in range(10)))
        assert View.of(policies, now, principal, ("db", "t7"), None).restriction(_COLUMNS)

    decide(-1)
    taken = []
    for run in range(runs):
        start = time.process_time()
        for user in range(100):
            decide(100 * run + user)
        taken.append((time.process_time() - start) * 10)
    return at_most(1, figure(name, taken, "ms"))


def _policies(wildcards: int) -> list[dict[str, Any]]:
    """Return row filters and masks; every `wildcards`-th pair is about every table."""
    numbers = range(_POLICIES // 2)
    return [each for number in numbers for each in (_filter(number, wildcards), _mask(number, wildcards))]


def _filter(number: int, wildcards: int) -> dict[str, Any]:
    text = f"c1 > {number} and c2 = current_user() or c3 in (1, 2, {number})"
    item = {"groups": [f"g{number}"], "accesses": _SELECT, "rowFilterInfo": {"filterExpr": text}}
    return {
        "name": f"f{number}",
        "policyType": 2,
        "rowFilterPolicyItems": [item],
        **_about(number, wildcards),
    }


def _mask(number: int, wildcards: int) -> dict[str, Any]:
    item = {"groups": [f"g{number}"], "accesses": _SELECT, "dataMaskInfo": {"dataMaskType": "MASK_HASH"}}
    about = _about(number, wildcards, column={"values": [f"c{number % 20}", "x*"]})
    return {"name": f"m{number}", "policyType": 1, "dataMaskPolicyItems": [item], **about}


def _about(number: int, wildcards: int, **more: Any) -> dict[str, Any]:
    table = f"t{number}" if number % wildcards else "t*"
    return {"resources": {"database": {"values": ["db"]}, "table": {"values": [table]}, **more}}
