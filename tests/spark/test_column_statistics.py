"""Statistics of columns that a plan tells to Spark's optimizer: of nothing that a user cannot see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.spark.test_read_optimizer import settings
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import create_table, master_keys, stock_table

CBO = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.joinReorder.enabled": "true"}
MODES = {
    "plaintext": {},
    "uniform": {"encryption.mechanism": "envelope"},
    "column keys": {"encryption.columns": "statistics-one:id,d"},
    "orc": {"write.format.default": "orc", "encryption.mechanism": "envelope"},
}
COLUMNS = """id BIGINT, b BOOLEAN, i INT, f FLOAT, d DATE, ts TIMESTAMP, wall TIMESTAMP_NTZ, m DECIMAL(9,2),
    s STRING, l ARRAY<INT>"""
ROWS = """(1, true, null, 0.5F, date'2024-01-01', timestamp'2024-01-01 00:00:00Z', null, 1.5, 'a', array(1)),
    (9, false, null, -2F, null, timestamp'1900-01-01 00:00:00Z', null, null, 'b', null)"""


def told(spark_lake: SparkLake, table: str, user: str | None = None) -> dict[str, Any]:
    """By column what Spark's optimizer is told: nulls, distinct values, minimum, maximum."""
    session = spark_lake.session(user) if user else spark_lake.session()
    frame = session.sql(f"SELECT * FROM {table}")
    (relation,) = _all(frame._jdf.queryExecution().optimizedPlan().collectLeaves())
    found = _all(relation.stats().attributeStats().toSeq())
    return {each._1().name(): tuple(map(_value, _stat(each._2()))) for each in found}


def _stat(stat: Any) -> list[Any]:
    return [stat.nullCount(), stat.distinctCount(), stat.min(), stat.max()]


def _value(option: Any) -> str | None:
    return str(option.get()) if option.isDefined() else None


def _all(found: Any) -> list[Any]:
    return [found.apply(at) for at in range(found.length())]


@pytest.mark.parametrize(
    "mode",
    [each if each == "column keys" else pytest.param(each, marks=pytest.mark.nightly) for each in MODES],
)
def test_optimizers_know_nulls_minimum_and_maximum_of_the_files_that_are_read(
    spark_lake: SparkLake, namespace: str, mode: str
) -> None:
    table = f"{namespace}.t"
    master_keys(spark_lake, "statistics-one")
    create_table(spark_lake, table, COLUMNS, MODES[mode])
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {ROWS}")
    spark_lake.rows(f"INSERT INTO {table} (id, f) VALUES (200, 3F)")
    with settings(spark_lake, CBO):
        found = told(spark_lake, table)
        assert found["id"] == ("0", None, "1", "200")
        assert found["i"] == ("3", None, None, None)
        assert found["f"] == ("0", None, "-2.0", None)
        assert found["d"] == ("2", None, "19723", "19723")
        assert found["b"] == ("1", None, "False", "True")
        # ORC rounds times.
        ends = (None, None) if mode == "orc" else ("-2208988800000000", "1704067200000000")
        assert found["ts"] == ("1", None, *ends)
        assert [found[name] for name in ("wall", "m", "s")] == [
            ("3", None, None, None),
            ("2", None, None, None),
            ("1", None, None, None),
        ]
        assert "l" not in found
        assert told(spark_lake, f"{table} WHERE id > 100")["id"][2:] == ("200", "200")
        (row,) = spark_lake.rows(
            f"SELECT count(*) FROM {table} a JOIN {table} b ON a.id = b.id AND a.f < 100 AND a.ts IS NULL"
        )
        assert row == (1,)


def test_nothing_is_told_of_a_column_that_is_masked_or_unless_it_is_asked_for(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    master_keys(spark_lake, "statistics-two")
    masks = {"encryption.columns": "statistics-two:secret", "encryption.masks": "nullify:secret"}
    create_table(spark_lake, table, "id BIGINT, secret BIGINT", masks)
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 2), (3, 4)")
    grant = {"database": [namespace.removeprefix("lake.")], "table": ["*"], "column": ["id"]}
    carols = spark_lake.session(CAROL).conf
    carols.set("spark.sql.cbo.enabled", "true")
    try:
        spark_lake.lake.set_policies([*standard_policies(), policy("statistics", grant, {CAROL: ["select"]})])
        with settings(spark_lake, CBO):
            assert told(spark_lake, table, CAROL) == {"id": ("0", None, "1", "3")}
            carols.set("spark.sql.iceberg.report-column-stats", "false")
            assert told(spark_lake, table, CAROL) == {}
    finally:
        carols.unset("spark.sql.iceberg.report-column-stats")
        carols.unset("spark.sql.cbo.enabled")
        spark_lake.lake.set_policies(standard_policies())
    assert told(spark_lake, table) == {}
    with settings(spark_lake, CBO):
        assert told(spark_lake, table)["secret"] == ("0", None, "2", "4")


@pytest.mark.nightly
def test_distinct_values_are_counted_for_the_optimizer_and_in_no_file(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    call = f"CALL lake.system.compute_table_stats(table => '{table}'"
    master_keys(spark_lake, "statistics-three")
    masks = {"encryption.columns": "statistics-three:secret", "encryption.masks": "nullify:secret"}
    create_table(
        spark_lake, table, "id BIGINT, `o``dd` DATE, secret STRING, m DECIMAL(9,2), l ARRAY<INT>", masks
    )
    assert spark_lake.rows(f"{call})") == []
    spark_lake.rows(
        f"INSERT INTO {table} SELECT id, date_add(date'2024-01-01', CAST(id % 3 AS INT)), "
        "if(id = 1, NULL, string(id % 5)), id % 2, array(1) FROM range(10)"
    )
    assert spark_lake.rows(f"{call})") == [(None,)]
    with settings(spark_lake, CBO):
        found = told(spark_lake, table)
        # Spark does not find a name that it has to quote.
        assert {name: each[1] for name, each in found.items()} == {"id": "10", "secret": "5", "m": "2"}
        spark_lake.rows(f"INSERT INTO {table} VALUES (77, NULL, 'x', NULL, NULL)")
        assert spark_lake.rows(f"{call}, columns => array('id'))") == [(None,)]
        assert told(spark_lake, table)["id"][1] == "11"
        (row,) = spark_lake.rows(
            f"SELECT count(*) FROM {table} a JOIN {table} b USING (id) WHERE a.secret <=> NULL"
        )
        assert row == (1,)
    assert stock_table(spark_lake, table).metadata.statistics == []
    refused_as("REQUEST_INVALID", spark_lake.spark, f"{call}, columns => array('l'))")
    grant = {"database": [namespace.removeprefix("lake.")], "table": ["*"], "column": ["id"]}
    grants = [
        policy("statistics-three", grant, {CAROL: ["select"]}),
        policy("statistics-four", {**grant, "column": ["*"]}, {CAROL: ["update"]}),
    ]
    try:
        spark_lake.lake.set_policies([*standard_policies(), *grants])
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"{call}, columns => array('secret'))")
        spark_lake.rows(f"{call}, columns => array('id'))", CAROL)
        spark_lake.lake.set_policies([*standard_policies(), grants[0]])
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"{call}, columns => array('id'))")
    finally:
        spark_lake.lake.set_policies(standard_policies())


@pytest.mark.nightly
def test_distinct_values_are_counted_of_columns_that_changed_since_the_snapshot(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    call = f"CALL lake.system.compute_table_stats(table => '{table}'"
    create_table(spark_lake, table, "a BIGINT, b BIGINT")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, id % 3 FROM range(20)")
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN late INT")
    assert spark_lake.rows(f"{call})") == [(None,)]
    with settings(spark_lake, CBO):
        found = told(spark_lake, table)
        assert [found[name][1] for name in ("a", "b", "late")] == ["3", "20", None]
    refused_as("REQUEST_INVALID", spark_lake.spark, f"{call}, columns => array('late'))")
