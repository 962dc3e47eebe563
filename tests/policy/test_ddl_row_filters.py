"""Statements under row filters: what removes rows or counts files, and engines where the user runs code."""

from __future__ import annotations

from typing import Any

import pytest

from policy.sql_lint import TableFacts
from tests.support.ddl import ANN, context, rule, the_answer
from tests.support.lake import policy

FILTER: dict[str, Any] = policy(
    "rows",
    {"database": ["s"], "table": ["t"]},
    {},
    policyType=2,
    rowFilterPolicyItems=[
        {"users": [ANN], "accesses": [{"type": "select"}], "rowFilterInfo": {"filterExpr": "id = 1"}}
    ],
)
CODE = policy("code", {"engine": ["spark"]}, {ANN: ["code"]})


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM lake.s.t",
        "TRUNCATE TABLE lake.s.t",
        "INSERT OVERWRITE lake.s.t SELECT 1",
        "INSERT INTO lake.s.t REPLACE WHERE id = 1 SELECT 1",
        "CALL lake.system.rewrite_manifests(table => 's.t')",
        "CALL lake.system.expire_snapshots(table => 's.t')",
        "CALL lake.system.remove_orphan_files(table => 's.t')",
    ],
)
def test_a_row_filter_denies_what_removes_rows_or_counts_files(statement: str) -> None:
    assert the_answer(statement).decision.allowed
    assert rule(the_answer(statement, context(ANN, FILTER))) == "row-filter"
    assert the_answer("INSERT INTO lake.s.t VALUES (1)", context(ANN, FILTER)).decision.allowed


def test_a_mask_denies_what_overwrites_rows() -> None:
    item = {"users": [ANN], "accesses": [{"type": "select"}], "dataMaskInfo": {"dataMaskType": "MASK"}}
    column = {"database": ["s"], "table": ["t"], "column": ["name"]}
    mask = policy("mask", column, {}, policyType=1, dataMaskPolicyItems=[item])
    known = {"known": lambda _: TableFacts(ANN, ("id", "name"), ())}
    for statement in (
        "INSERT OVERWRITE lake.s.t SELECT 1, 'x'",
        "INSERT INTO lake.s.t REPLACE WHERE id = 1 SELECT 1, 'x'",
    ):
        assert the_answer(statement, context(ANN, **known)).decision.allowed
        assert rule(the_answer(statement, context(ANN, mask, **known))) == "mask"
    for statement in (
        "TRUNCATE TABLE lake.s.t",
        "DELETE FROM lake.s.t",
        "INSERT INTO lake.s.t VALUES (1, 'x')",
    ):
        assert the_answer(statement, context(ANN, mask, **known)).decision.allowed


def test_an_engine_in_which_the_user_runs_code_enforces_no_row_filter() -> None:
    known = {"known": lambda _: TableFacts(ANN, ("id",), ())}
    query = "SELECT id FROM lake.s.t"
    assert the_answer(query, context(ANN, FILTER, CODE, engine="other", **known)).decision.allowed
    assert rule(the_answer(query, context(ANN, FILTER, CODE, engine="spark", **known))) == "row-filter"


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        ("ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'x')", None),
        ("ON t.id = s.id WHEN NOT MATCHED BY TARGET AND s.id > 1 THEN INSERT *", None),
        ("ON t.name = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)", "mask"),
        ("ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.id", "mask"),
        ("ON t.id = s.id WHEN MATCHED THEN DELETE", "mask"),
        (
            "ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) "
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "mask",
        ),
    ],
)
def test_a_merge_under_a_mask_inserts_rows_if_it_compares_other_columns(
    merge: str, expected: str | None
) -> None:
    item = {"users": [ANN], "accesses": [{"type": "select"}], "dataMaskInfo": {"dataMaskType": "MASK"}}
    column = {"database": ["s"], "table": ["t"], "column": ["name"]}
    mask = policy("mask", column, {}, policyType=1, dataMaskPolicyItems=[item])
    known = {"known": lambda _: TableFacts(ANN, ("id", "name"), ())}
    statement = f"MERGE INTO lake.s.t t USING (SELECT 2 AS id) s {merge}"
    assert the_answer(statement, context(ANN, **known)).decision.allowed
    assert rule(the_answer(statement, context(ANN, FILTER, **known))) == "row-filter"
    answer = the_answer(statement, context(ANN, mask, **known))
    assert answer.decision.allowed if expected is None else rule(answer) == expected
