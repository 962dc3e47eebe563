"""The page on Python without Spark: its examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, ListType, LongType, NestedField, StringType, StructType

from tests.support.lake import ALICE
from tests.support.service import Service

pytestmark = pytest.mark.nightly

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text("utf-8")
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "amount", DoubleType()),
    NestedField(4, "customer", StructType(NestedField(5, "name", StringType()))),
    NestedField(6, "items", ListType(7, StructType(NestedField(8, "price", DecimalType(9, 2))))),
)


def test_the_examples_run(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    served.iceberg().create_namespace("sales")
    served.iceberg().create_table("sales.orders", SCHEMA)
    monkeypatch.setenv("LAKEWARDEN_TOKEN", served.token(ALICE))
    known: dict[str, Any] = {
        "url": served.url,
        "token": served.token(ALICE),
        "user_token": served.token(ALICE),
        "token_of_the_service": served.engine_token(),
    }
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 10
    for example in examples:
        exec(example.replace("http://127.0.0.1:8181", served.url), known)
    read = (
        known["orders"].scan("amount > 100 and region in ('eu', 'us')", columns=["id", "amount"]).to_arrow()
    )
    assert read.to_pylist() == [{"id": 1, "amount": 120.5}]
