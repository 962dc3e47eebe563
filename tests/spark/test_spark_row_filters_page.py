"""The page about row filters and masks: Spark shows what it says."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.lake import policy, standard_policies
from tests.support.spark import SparkLake

pytestmark = pytest.mark.nightly

PAGE = (Path(__file__).parents[2] / "docs" / "row-filters-and-masks.md").read_text("utf-8")
#: Who is in the groups of the page, for tokens without groups.
USERS = {"support": "sue", "marketing": "max", "auditors": "ada"}


def _tables() -> list[list[tuple[str | None, ...]]]:
    """The rows of the tables of the example; an empty cell is NULL."""
    found = []
    for block in re.findall(r"\| id \|.*\n\|(?:---\|)+\n((?:\|.*\n)+)", PAGE):
        lines = [line.strip().strip("|").split("|") for line in block.splitlines()]
        found.append([tuple(cell.strip() or None for cell in line) for line in lines])
    return found


def _policies() -> list[dict[str, Any]]:
    block = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    made = json.loads(block[1])["policies"]
    for each in made:
        for items in (value for name, value in each.items() if name.endswith("Items")):
            for item in items:
                groups = item.pop("groups")
                item["users"] = [USERS[group] for group in groups if group in USERS]
                item["groups"] = [group for group in groups if group not in USERS]
    return [*standard_policies(), policy("sales", {"database": ["sales"]}, {"sue": ["create"]}), *made]


def test_spark_shows_what_the_page_says(spark_lake: SparkLake) -> None:
    stored, shown = _tables()
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.sales")
    spark_lake.rows(
        "CREATE TABLE lake.sales.orders "
        "(id BIGINT, region STRING, customer STRING, card STRING, born DATE, amount BIGINT)"
    )
    written = (f"({', '.join('NULL' if each is None else repr(each) for each in row)})" for row in stored)
    spark_lake.rows(
        "INSERT INTO lake.sales.orders SELECT CAST(id AS BIGINT), region, customer, card, "
        "CAST(born AS DATE), CAST(amount AS BIGINT) "
        f"FROM VALUES {', '.join(written)} AS t(id, region, customer, card, born, amount)"
    )
    query = "SELECT * FROM lake.sales.orders ORDER BY id"

    def seen(user: str) -> list[tuple[str | None, ...]]:
        rows = spark_lake.rows(query, user)
        return [tuple(None if each is None else str(each) for each in row) for row in rows]

    try:
        spark_lake.lake.set_policies(_policies())
        assert seen("sue") == shown
        assert seen("ada") == stored
        hashed = [hashlib.sha256(str(row[3]).encode()).hexdigest() for row in stored]
        born = [f"{str(row[4])[:4]}-01-01" for row in stored]
        assert [(row[3], row[4]) for row in seen("max")] == list(zip(hashed, born, strict=True))
    finally:
        spark_lake.lake.set_policies(standard_policies())
