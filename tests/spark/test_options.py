"""Options, settings and table properties of Iceberg: honoured, or refused by name. None is ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException

from policy.encryption.governed import is_governed
from policy.errors import PropertyInvalid
from policy.iceberg_properties import HONOURED, LEFT_TO_CLIENTS, REFUSED
from policy.privileges.tables import check_properties
from policy.sql_lint.options import READ, SETTINGS, WRITE, Names
from policy.write_properties import CHOICES
from spark_ext.jar import SOURCES
from tests.support.iceberg_names import iceberg_names
from tests.support.spark import SparkLake
from tests.support.spark_refusals import active, refusal
from tests.support.spark_tables import data_files, local_path, stock_table

_PAGE = Path(__file__).parents[2] / "docs" / "spark-options.md"
_KINDS = {"read": "Read options", "write": "Write options", "setting": "Session settings"}


def _declared(kind: str) -> dict[str, str]:
    """What the plugin says of each name of a kind, as the page says it."""
    lines = (SOURCES / "resources" / "lakewarden" / "iceberg-options.txt").read_text().splitlines()
    said = {}
    for line in lines:
        if line.startswith(f"{kind} "):
            _, name, meaning, *rest = line.split(" ", 3)
            words = {"only": lambda value: f"only `{value}`", "refused": lambda hint: f"refused. {hint}"}
            said[name] = words[meaning](rest[0]) if rest else meaning
    return said


def _documented(heading: str) -> dict[str, str]:
    """The rows of a table of the page; of a honoured name, that word alone."""
    section = _PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE))
    return {
        name: "honoured" if text.startswith("honoured") else text.split("; `true`")[0]
        for name, text in rows.items()
    }


@pytest.mark.parametrize(("kind", "lint"), [("read", READ), ("write", WRITE), ("setting", SETTINGS)])
def test_lint_knows_what_the_plugin_honours(kind: str, lint: Names) -> None:
    """But for `path`, which SQL has no use for, and the options of streams."""
    said = {
        name if kind == "setting" else name.lower(): None if meaning == "honoured" else meaning[6:-1]
        for name, meaning in _declared(kind).items()
        if not meaning.startswith("refused") and name != "path" and not name.startswith("stream")
    }
    assert dict(lint) == said


def _property(name: str) -> str:
    if name in REFUSED:
        return f"refused. {REFUSED[name]}"
    if name in LEFT_TO_CLIENTS:
        return "left to clients"
    values = CHOICES.get(name, ())
    return f"only `{values[0]}`" if len(values) == 1 else "honoured"


@pytest.mark.parametrize("kind", _KINDS)
def test_the_page_says_of_each_option_and_setting_what_the_plugin_does(kind: str) -> None:
    assert len(_declared(kind)) > 20
    assert _documented(_KINDS[kind]) == _declared(kind)


def test_the_page_says_of_each_property_what_the_catalog_does() -> None:
    names = {*HONOURED, *LEFT_TO_CLIENTS, *REFUSED}
    assert len(names) == len(HONOURED) + len(LEFT_TO_CLIENTS) + len(REFUSED) > 100
    assert _documented("Table properties") == {name: _property(name) for name in names}


@pytest.mark.parametrize("kind", [*_KINDS, "property"])
def test_the_page_has_every_name_of_iceberg(kind: str) -> None:
    """Of its release 1.11.0. `make interop` compares the list of names with Iceberg's jar."""
    names = iceberg_names(kind)
    assert len(names) > 20
    missing = names - _documented({**_KINDS, "property": "Table properties"}[kind]).keys()
    assert {name for name in missing if not is_governed(name)} == set()


def test_properties_without_effect_are_refused() -> None:
    columns = [f"{each}c" for each in REFUSED if each.endswith(".")]
    unknown = ["write.parquet.compresion-codec", "read.split.size", "commit.x", "history.x", "gc.x"]
    for name in (*REFUSED, *columns, *unknown):
        with pytest.raises(PropertyInvalid) as refused:
            check_properties({name: "1"}, "db.t")
        assert name in refused.value.message or name == "write.location-provider.impl"
    for name, values in CHOICES.items():
        with pytest.raises(PropertyInvalid, match="write-property"):
            check_properties({name: "1"}, "db.t")
        check_properties({name: values[0]}, "db.t")
    check_properties(
        dict.fromkeys(LEFT_TO_CLIENTS - {"write.object-storage.path"}, "1") | {"owner.x": "1"}, "db.t"
    )


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table with a file of 1,000 rows."""
    name = f"{spark_lake.namespace()}.t"
    spark_lake.rows(f"CREATE TABLE {name} AS SELECT id FROM range(0, 1000, 1, 1)")
    return name


Judge = Callable[[str, dict[str, str]], str | None]


@pytest.fixture
def judge(spark_lake: SparkLake) -> Iterator[Judge]:
    """Says what options of a kind are refused with."""
    java: Any = spark_lake.spark.sparkContext._jvm
    options = java.org.apache.spark.sql.lakewarden.options
    none, unused = (
        getattr(getattr(java.scala.collection.immutable, f"{kind}$"), "MODULE$").empty()
        for kind in ("Map", "Set")
    )

    def judged(kind: str, given: dict[str, str]) -> str | None:
        names = getattr(options.IcebergNames, kind)()
        told = java.org.apache.spark.sql.util.CaseInsensitiveStringMap(given)
        try:
            given_options = options.GivenOptions(kind, names, told, none)
            given_options.check(unused, getattr(given_options, "check$default$2")())
        except AnalysisException as refused:
            return str(refused)
        return None

    with active(spark_lake.spark):
        yield judged


@pytest.mark.parametrize("kind", ["read", "write"])
def test_each_option_that_is_not_honoured_is_refused_by_name(judge: Judge, kind: str) -> None:
    for name, said in _declared(kind).items():
        message = judge(kind, {name: "banana"})
        if said == "honoured":
            assert message is None, name
        else:
            assert message and name.lower() in message and f"rule={kind}-option" in message, name
        if said.startswith("only"):
            assert judge(kind, {name: said.split("`")[1].upper()}) is None
    assert f"rule={kind}-option" in (judge(kind, {"no-such-option": "1"}) or "")


@pytest.mark.nightly
def test_each_setting_that_is_not_honoured_is_refused_by_name(spark_lake: SparkLake, judge: Judge) -> None:
    conf = spark_lake.spark.conf
    for name, said in (*_declared("setting").items(), ("spark.sql.iceberg.x", ""), ("spark.wap.x", "")):
        conf.set(name, "banana")
        try:
            message = judge("read", {})
        finally:
            conf.unset(name)
        assert (message is None) == (said == "honoured"), name
        assert message is None or (name in message and "rule=setting" in message)


@pytest.mark.nightly
def test_reads_and_writes_are_refused_where_they_are_planned(spark_lake: SparkLake, table: str) -> None:
    spark = spark_lake.spark
    before = stock_table(spark_lake, table).metadata_location
    rows = spark.range(3)
    actions: dict[str, Callable[[], object]] = {
        "snapshot-id": lambda: spark.read.option("snapshot-id", "x").table(table).collect(),
        "lookback": lambda: spark.sql(f"SELECT * FROM {table} WITH ('lookback' = '1')").collect(),
        "overwrite-mode": lambda: rows.writeTo(table).option("overwrite-mode", "dynamic").append(),
        "write-format": lambda: rows.writeTo(f"{table}_2").option("write-format", "orc").create(),
        "split-size": lambda: spark.read.option("split-size", "0").table(table).collect(),
        "compression-level": lambda: rows.writeTo(table).option("compression-level", "40").append(),
    }
    for name, action in actions.items():
        assert name in str(refusal(action)), name
    spark.conf.set("spark.sql.iceberg.locality.enabled", "true")
    try:
        for statement in (
            "SELECT * FROM {}",
            "INSERT INTO {} VALUES (1)",
            "TRUNCATE TABLE {}",
            "DELETE FROM {}",
        ):
            refused = refusal(lambda s=statement: spark.sql(s.format(table)).collect())
            assert refused.getCondition() == "LAKEWARDEN.NOT_SUPPORTED_YET", statement
            assert "spark.sql.iceberg.locality.enabled" in str(refused)
    finally:
        spark.conf.unset("spark.sql.iceberg.locality.enabled")
    assert stock_table(spark_lake, table).metadata_location == before


@pytest.mark.nightly
def test_options_and_settings_take_effect(spark_lake: SparkLake, table: str) -> None:
    spark = spark_lake.spark
    whole, split = (
        spark.read.options(**options).table(table).rdd.getNumPartitions()
        for options in ({}, {"split-size": "500"})
    )
    assert (whole, split > 1) == (1, True)
    plan = str(
        spark.read.option("aggregate-push-down-enabled", "false")
        .table(table)
        .selectExpr("count(*)")
        ._jdf.queryExecution()
        .optimizedPlan()
    )
    assert "count(1)" in plan
    spark.conf.set("spark.sql.iceberg.snapshot-property.run", "7")
    spark.conf.set("spark.sql.iceberg.compression-codec", "snappy")
    options = {
        "compression-codec": "gzip",
        "compression-level": "9",
        "target-file-size-bytes": "2000",
        "snapshot-property.By": "me",
    }
    try:
        spark.range(0, 20000, 1, 1).writeTo(f"{table}_3").options(**options).create()
        spark_lake.rows(f"INSERT INTO {table}_3 VALUES (-1)")
    finally:
        spark.conf.unset("spark.sql.iceberg.snapshot-property.run")
        spark.conf.unset("spark.sql.iceberg.compression-codec")
    first, second = stock_table(spark_lake, f"{table}_3").metadata.snapshots
    for snapshot, entries in ((first, {"run": "7", "By": "me"}), (second, {"run": "7"})):
        assert snapshot.summary is not None
        assert entries.items() <= snapshot.summary.additional_properties.items()
    files = data_files(spark_lake, f"{table}_3")
    codecs = [pq.ParquetFile(local_path(each)).metadata.row_group(0).column(0).compression for each in files]
    assert len(files) > 2
    assert sorted(set(codecs)) == ["GZIP", "SNAPPY"]
