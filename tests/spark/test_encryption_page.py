"""The statements of docs/encryption.md and docs/first-steps.md work, in the order in which they are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.lake import standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import master_keys

pytestmark = [pytest.mark.core, pytest.mark.nightly]

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = (DOCS / "encryption.md").read_text("utf-8")
FIRST: Final = (DOCS / "first-steps.md").read_text("utf-8")


def statements(page: str) -> list[str]:
    """Those of the page's blocks of SQL, without comments."""
    blocks = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    found = [re.sub(r"(?m)^--.*", "", each).strip() for block in blocks for each in block.split(";\n")]
    return [each for each in found if each]


def test_the_statements_of_the_page_work(spark_lake: SparkLake, namespace: str) -> None:
    master_keys(spark_lake, "pii", "hr")
    found = statements(PAGE)
    assert len(found) == 27
    name = namespace.removeprefix("lake.")
    answers = {}
    for each in found:
        ours = re.sub(r"\bsales\.", f"{name}.", each.rstrip(";"))
        answers[each.rstrip(";")] = [tuple(row) for row in spark_lake.rows(ours)]
    assert answers["SELECT item FROM lake.sales.orders WHERE price > 2"] == [("paper",)]
    assert answers["SELECT count(*) FROM lake.sales.orders"] == [(3,)]
    assert answers["SELECT * FROM lake.sales.old"] == [(1, "pen")]
    assert ("encryption.algorithm", "AES_GCM_V1") in answers["SHOW TBLPROPERTIES lake.sales.orders"]


@pytest.fixture
def no_locations(spark_lake: SparkLake) -> Iterator[None]:
    """Alice may do everything but choose locations."""
    spark_lake.lake.set_policies([each for each in standard_policies() if each["name"] != "alice-storage"])
    yield
    spark_lake.lake.set_policies(standard_policies())


@pytest.mark.usefixtures("no_locations")
def test_the_statements_of_first_steps_work_but_for_the_one_that_it_says_is_refused(
    spark_lake: SparkLake, namespace: str
) -> None:
    name = namespace.removeprefix("lake.")
    statement, *others = (re.sub(r"\bsales\.", f"{name}.", each.rstrip(";")) for each in statements(FIRST))
    assert statement == "CREATE NAMESPACE lake.sales"
    for statement in others:
        if "read.allowed.data.paths" in statement:
            refused_as("NOT_AUTHORIZED", spark_lake.session(), statement)
        else:
            last = spark_lake.rows(statement)
    assert [row["item"] for row in last] == ["jam"]


@pytest.mark.parametrize("page", ["operations", "keys", "column-keys", "stock-readers", "parquet-encryption"])
def test_other_pages_lead_here(page: str) -> None:
    assert "(encryption.md" in (DOCS / f"{page}.md").read_text("utf-8")
