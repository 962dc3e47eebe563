"""The statements of docs/encryption.md work, in the order in which they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.spark import SparkLake
from tests.support.spark_tables import master_keys

pytestmark = pytest.mark.core

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = (DOCS / "encryption.md").read_text("utf-8")


def statements() -> list[str]:
    """Those of the page's blocks of SQL."""
    blocks = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    return [each.strip() for block in blocks for each in block.split(";\n") if each.strip()]


def test_the_statements_of_the_page_work(spark_lake: SparkLake, namespace: str) -> None:
    master_keys(spark_lake, "pii", "hr")
    found = statements()
    assert len(found) == 16
    name = namespace.removeprefix("lake.")
    answers = {}
    for each in found:
        ours = re.sub(r"\bsales\.", f"{name}.", each.rstrip(";"))
        answers[each.rstrip(";")] = [tuple(row) for row in spark_lake.rows(ours)]
    assert answers["SELECT item FROM lake.sales.orders WHERE price > 2"] == [("paper",)]
    assert answers["SELECT count(*) FROM lake.sales.orders"] == [(3,)]
    assert answers["SELECT * FROM lake.sales.old"] == [(1, "pen")]
    assert ("encryption.algorithm", "AES_GCM_V1") in answers["SHOW TBLPROPERTIES lake.sales.orders"]


def test_every_page_that_it_leads_to_is_there_with_its_headings() -> None:
    for page, heading in re.findall(r"\]\(([a-z-]+\.md)?#?([a-z0-9'-]*)\)", PAGE):
        text = (DOCS / page).read_text("utf-8") if page else PAGE
        headings = {
            re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in text.splitlines()
            if line.startswith("#")
        }
        assert not heading or heading in headings, (page, heading)


@pytest.mark.parametrize("page", ["operations", "keys", "column-keys", "stock-readers", "parquet-encryption"])
def test_other_pages_lead_here(page: str) -> None:
    assert "(encryption.md" in (DOCS / f"{page}.md").read_text("utf-8")
