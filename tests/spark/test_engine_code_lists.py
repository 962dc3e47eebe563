"""What Spark brings along is classified: harmless, or taking the permission `engine:code`.

A new version of Spark that brings a function, an expression, an operation or a message that stands in neither
list fails here. It is refused to users until a maintainer has read it and put it into one.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.connect.proto import base_pb2

from spark_ext.jar import SOURCES
from spark_ext.runtime import find_spark
from tests.support.class_files import ClassHead, heads_in
from tests.support.spark import SparkLake

_HARMLESS = SOURCES / "resources" / "lakewarden" / "harmless"
_REFUSED = Path(__file__).parent.parent / "vectors" / "engine-code"
_KINDS = {
    "expressions": "org.apache.spark.sql.catalyst.expressions.Expression",
    "plans": "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan",
}


def _lines(path: Path) -> set[str]:
    return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}


@cache
def _heads() -> list[ClassHead]:
    return [
        head
        for jar in find_spark(os.environ).jars.glob("spark-*.jar")
        if jar.name.startswith(("spark-catalyst_", "spark-sql_", "spark-hive_"))
        for head in heads_in(jar)
    ]


def _concrete(kind: str) -> set[str]:
    """Classes of this Spark that are expressions or plans, without those that are only extended."""
    below: dict[str, list[ClassHead]] = {}
    for head in _heads():
        for parent in head.parents:
            below.setdefault(parent, []).append(head)
    found: set[ClassHead] = set()
    ahead = below[_KINDS[kind]]
    while ahead:
        found.update(ahead)
        ahead = [each for head in ahead for each in below.get(head.name, ()) if each not in found]
    return {head.name for head in found if not head.is_abstract}


@pytest.mark.parametrize("kind", _KINDS)
def test_every_class_is_classified(kind: str) -> None:
    concrete = _concrete(kind)
    harmless, refused = _lines(_HARMLESS / f"{kind}.txt"), _lines(_REFUSED / f"{kind}.txt")
    assert len(concrete) > 300
    assert sorted(concrete - harmless - refused) == []
    assert sorted(harmless & refused) == []


def test_every_built_in_function_is_classified(spark_lake: SparkLake) -> None:
    java: Any = spark_lake.spark.sparkContext._jvm
    registries = java.org.apache.spark.sql.catalyst.analysis
    function, table = (
        getattr(getattr(registries, f"{name}$"), "MODULE$")
        for name in ("FunctionRegistry", "TableFunctionRegistry")
    )
    names: set[str] = set()
    for registry in (function.builtin(), function.internal(), table.builtin()):
        listed = registry.listFunction().iterator()
        while listed.hasNext():
            names.add(listed.next().funcName())
    harmless, refused = _lines(_HARMLESS / "functions.txt"), _lines(_REFUSED / "functions.txt")
    assert len(names) > 500
    assert sorted(names - harmless - refused) == []
    assert sorted(harmless & refused) == []


def test_no_setting_on_the_list_names_code_or_a_place() -> None:
    settings = _lines(_HARMLESS / "settings.txt")
    assert len(settings) > 300
    for word in ("catalog.", "class", "extensions", "warehouse", "hadoop", "fs.", "artifact", "singlePass"):
        assert {each for each in settings if word.lower() in each.lower()} == set(), word


def test_every_message_of_spark_connect_is_classified() -> None:
    seen: set[str] = set()

    def walk(message: Any) -> None:
        if message.full_name not in seen:
            seen.add(message.full_name)
            for field in message.fields:
                if field.message_type:
                    walk(field.message_type)

    for method in base_pb2.DESCRIPTOR.services_by_name["SparkConnectService"].methods:
        walk(method.input_type)
    harmless, refused = _lines(_HARMLESS / "connect-messages.txt"), _lines(_REFUSED / "connect-messages.txt")
    assert len(seen) > 200
    assert sorted(seen - harmless - refused) == []
    assert sorted(harmless & refused) == []
