"""CREATE TABLE, and what SQL shows of a table."""

from __future__ import annotations

import pytest

from tests.support.lake import BOB, MASTER_KEY
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import stock_table

pytestmark = pytest.mark.core

EVERY_TYPE = (
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i INT NOT NULL COMMENT 'the int', l BIGINT, f FLOAT, d DOUBLE, "
    "dec DECIMAL(12,3), s STRING, c CHAR(3), v VARCHAR(9), bin BINARY, day DATE, ts TIMESTAMP, "
    "ntz TIMESTAMP_NTZ, st STRUCT<x: INT NOT NULL COMMENT 'an x', y: ARRAY<STRING>>, "
    "li ARRAY<STRUCT<z: DATE>>, m MAP<STRING, ARRAY<MAP<INT, DOUBLE>>>"
)


def _properties(spark_lake: SparkLake, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in spark_lake.rows(f"SHOW TBLPROPERTIES {table}")}


def _shown(spark_lake: SparkLake, table: str) -> str:
    return str(spark_lake.rows(f"SHOW CREATE TABLE {table}")[0][0])


def test_show_create_table_prints_a_statement_that_runs(spark_lake: SparkLake, namespace: str) -> None:
    """Of an encrypted table, and without what only the catalog sets."""
    properties = f"'encryption.columns' = '{MASTER_KEY}:odd name', 'a.b' = 'c'"
    spark_lake.rows(
        f"CREATE TABLE {namespace}.t (id BIGINT NOT NULL COMMENT 'it''s', `odd name` STRING, p STRING, "
        f"`an``other` INT) USING iceberg PARTITIONED BY (p, bucket(4, id), truncate(2, p)) "
        f"TBLPROPERTIES ({properties})"
    )
    spark_lake.rows(f"ALTER TABLE {namespace}.t SET IDENTIFIER FIELDS id")
    order = "`an``other` DESC, bucket(8, id), p DESC NULLS FIRST"
    spark_lake.rows(f"ALTER TABLE {namespace}.t WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY {order}")
    spark_lake.rows(f"ALTER TABLE {namespace}.t ADD COLUMN gone INT FIRST")
    spark_lake.rows(f"ALTER TABLE {namespace}.t DROP COLUMN gone")
    shown = _shown(spark_lake, f"{namespace}.t")
    spark_lake.rows(shown.replace(f"{namespace}.t", f"{namespace}.again", 1))
    assert _shown(spark_lake, f"{namespace}.again") == shown.replace(
        f"{namespace}.t", f"{namespace}.again", 1
    )
    first, second = (_properties(spark_lake, f"{namespace}.{name}") for name in ("t", "again"))
    own = {name for name in first if first[name] != second[name]}
    assert own == {"encryption.pek-id", "read.allowed.data.paths"}
    assert first.keys() == second.keys()
    one, two = (stock_table(spark_lake, f"{namespace}.{name}") for name in ("t", "again"))
    assert one.schema().as_struct() == two.schema().as_struct()
    assert one.schema().identifier_field_ids == two.schema().identifier_field_ids == [1]
    assert one.spec().fields == two.spec().fields
    assert one.sort_order().fields == two.sort_order().fields and len(one.sort_order().fields) == 3
    spark_lake.rows(shown.replace("CREATE TABLE", "CREATE OR REPLACE TABLE", 1))
    assert _shown(spark_lake, f"{namespace}.t") == shown
    for name, value in (
        ("sort-order", "absent"),
        ("identifier-fields", "[id DESC]"),
        ("sort-order", "zorder(id)"),
    ):
        statement = f"CREATE TABLE {namespace}.no (id INT) TBLPROPERTIES ('{name}' = '{value}')"
        refused_as("REQUEST_INVALID", spark_lake.spark, statement)
        altered = f"ALTER TABLE {namespace}.t SET TBLPROPERTIES ('{name}' = '{value}')"
        refused_as("PROPERTY_INVALID", spark_lake.spark, altered)


@pytest.mark.nightly
def test_every_type_as_iceberg_has_it(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t ({EVERY_TYPE}) USING iceberg")
    schema = stock_table(spark_lake, f"{namespace}.t").schema()
    types = {field.name: str(field.field_type) for field in schema.fields[:15]}
    assert types == {
        **dict.fromkeys(("i8", "i16", "i"), "int"),
        **dict.fromkeys(("s", "c", "v"), "string"),
        "b": "boolean", "l": "long", "f": "float", "d": "double", "dec": "decimal(12, 3)", "bin": "binary",
        "day": "date", "ts": "timestamptz", "ntz": "timestamp",
    }  # fmt: skip
    assert schema.find_field("i").required
    assert schema.find_field("i").doc == "the int"
    assert schema.find_field("st.x").required
    assert schema.find_field("st.x").doc == "an x"
    assert str(schema.find_type("li.element.z")) == "date"
    assert str(schema.find_type("m.value.element.value")) == "double"
    ids = schema._lazy_id_to_name
    assert sorted(ids) == list(range(1, len(ids) + 1))


@pytest.mark.nightly
def test_every_type_comes_back_as_it_was_made(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t ({EVERY_TYPE})")
    columns = {row[0]: row[1] for row in spark_lake.rows(f"DESCRIBE {namespace}.t")}
    assert columns["i8"] == "int"
    assert columns["c"] == "string"
    assert columns["m"] == "map<string,array<map<int,double>>>"
    schema = spark_lake.spark.table(f"{namespace}.t").schema
    assert not schema["i"].nullable
    assert not schema["st"].dataType["x"].nullable
    assert "id" not in str(schema.jsonValue()["fields"][0]["metadata"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("column", "spark_type"),
    [("v VARIANT", "VARIANT"), ("v INTERVAL DAY", "INTERVAL DAY"), ("v STRING COLLATE UNICODE", "COLLATE")],
)
def test_type_without_a_like_is_refused_by_name(
    spark_lake: SparkLake, namespace: str, column: str, spark_type: str
) -> None:
    statement = (
        f"CREATE TABLE {namespace}.t (id INT, s STRUCT<a: ARRAY<STRUCT<{column.replace('v ', 'v: ')}>>>)"
    )
    message = refused_as("NOT_SUPPORTED_YET", spark_lake.spark, statement)
    assert "s.a.element.v" in message
    assert spark_type in message
    assert spark_lake.rows(f"SHOW TABLES IN {namespace}") == []


@pytest.mark.nightly
def test_partition_transforms_as_iceberg_names_them(spark_lake: SparkLake, namespace: str) -> None:
    transforms = "i, bucket(4, l), truncate(2, s), truncate(v, 3), years(day), months(ts), days(ntz), st.x"
    assert _partition_fields(spark_lake, f"{namespace}.t", transforms) == [
        ("i", "identity", "i"), ("l_bucket", "bucket[4]", "l"), ("s_trunc", "truncate[2]", "s"),
        ("v_trunc", "truncate[3]", "v"), ("day_year", "year", "day"), ("ts_month", "month", "ts"),
        ("ntz_day", "day", "ntz"), ("st.x", "identity", "st.x"),
    ]  # fmt: skip
    assert "PARTITIONED BY (i, bucket(4, l), truncate(2, s), truncate(3, v), years(day)" in _shown(
        spark_lake, f"{namespace}.t"
    )
    assert _partition_fields(spark_lake, f"{namespace}.hourly", "hours(ts)") == [("ts_hour", "hour", "ts")]


def _partition_fields(
    spark_lake: SparkLake, table: str, transforms: str
) -> list[tuple[str, str, str | None]]:
    """Create a table; name, transform and source column of each partition field that it has."""
    spark_lake.rows(f"CREATE TABLE {table} ({EVERY_TYPE}) PARTITIONED BY ({transforms})")
    made = stock_table(spark_lake, table)
    source = made.schema().find_column_name
    return [(each.name, str(each.transform), source(each.source_id)) for each in made.spec().fields]


@pytest.mark.nightly
def test_partition_field_that_contains_another(spark_lake: SparkLake, namespace: str) -> None:
    statement = f"CREATE TABLE {namespace}.t ({EVERY_TYPE}) PARTITIONED BY (months(ts), hours(ts))"
    refused_as("REQUEST_INVALID", spark_lake.spark, statement)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "transform", ["bucket(4, l, i)", "truncate(0, s)", "zorder(l)", "sorted_bucket(4, l)"]
)
def test_partition_transform_that_is_not_known(spark_lake: SparkLake, namespace: str, transform: str) -> None:
    statement = f"CREATE TABLE {namespace}.t ({EVERY_TYPE}) PARTITIONED BY ({transform})"
    refused_as("NOT_SUPPORTED_YET", spark_lake.spark, statement)


@pytest.mark.nightly
def test_what_is_shown_makes_the_same_table_again(spark_lake: SparkLake, namespace: str) -> None:
    """Without the governed properties: what is in force for the old one is not the new one's to inherit."""
    spark_lake.rows(
        f"CREATE TABLE {namespace}.t (id BIGINT NOT NULL COMMENT 'it''s', day DATE) "
        "PARTITIONED BY (days(day)) COMMENT 'a table' "
        "TBLPROPERTIES ('write.parquet.compression-codec' = 'gzip')"
    )
    shown = _shown(spark_lake, f"{namespace}.t")
    assert "LOCATION" not in shown
    head, _, _ = shown.partition("TBLPROPERTIES")
    spark_lake.rows(head.replace(f"{namespace}.t", f"{namespace}.again"))
    again = _shown(spark_lake, f"{namespace}.again")
    assert again.partition("TBLPROPERTIES")[0].replace(".again", ".t") == head


@pytest.mark.nightly
def test_governed_properties_in_force_are_shown(spark_lake: SparkLake, namespace: str) -> None:
    statement = (
        f"CREATE TABLE {namespace}.t (id INT) TBLPROPERTIES ('encryption.mechanism' = 'envelope', 'a' = 'b')"
    )
    spark_lake.rows(statement)
    shown = _properties(spark_lake, f"{namespace}.t")
    location = stock_table(spark_lake, f"{namespace}.t").location()
    assert shown["encryption.mechanism"] == "envelope"
    assert shown["encryption.algorithm"] == "AES_GCM_V1"
    assert shown["read.allowed.data.paths"] == location
    assert shown["a"] == "b"
    described = {row[0]: row[1] for row in spark_lake.rows(f"DESCRIBE EXTENDED {namespace}.t")}
    assert described["Provider"] == "iceberg"
    assert described["Location"] == location
    assert "encryption.mechanism=envelope" in described["Table Properties"]


@pytest.mark.nightly
def test_governed_property_needs_authorization(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    statement = "CREATE TABLE {}.bobs.wide (id INT) TBLPROPERTIES ('read.allowed.data.paths' = '{}')"
    foreign = f"file://{spark_lake.lake.warehouse}/others"
    refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), statement.format(CATALOG, foreign))
    assert "wide" not in [row[1] for row in spark_lake.rows(f"SHOW TABLES IN {CATALOG}.bobs", BOB)]


@pytest.mark.nightly
def test_near_miss_of_a_governed_name_is_refused(spark_lake: SparkLake, namespace: str) -> None:
    statement = f"CREATE TABLE {namespace}.t (id INT) TBLPROPERTIES ('encryption.mechanisms' = 'envelope')"
    refused_as("PROPERTY_INVALID", spark_lake.spark, statement)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "directory",
    ["a%20b", "ü", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("a b", "a%2Fb", "day=1"))],
)
def test_location_is_taken_letter_by_letter(spark_lake: SparkLake, namespace: str, directory: str) -> None:
    name = namespace.removeprefix(f"{CATALOG}.")
    location = f"file://{spark_lake.lake.warehouse}/custom-{name}/{directory}"
    spark_lake.rows(f"CREATE TABLE {namespace}.t (id INT) LOCATION '{location}'")
    assert stock_table(spark_lake, f"{namespace}.t").location() == location
    spark_lake.rows(f"INSERT INTO {namespace}.t VALUES (7)")
    assert spark_lake.rows(f"SELECT * FROM {namespace}.t") == [(7,)]
    assert (spark_lake.lake.warehouse / f"custom-{name}" / directory / "data").is_dir()
    assert f"LOCATION '{location}'" in _shown(spark_lake, f"{namespace}.t")


@pytest.mark.nightly
def test_options_that_contradict_properties(spark_lake: SparkLake, namespace: str) -> None:
    template = "CREATE TABLE {}.{} (id INT) USING iceberg OPTIONS ('a' = '{}') TBLPROPERTIES ('a' = '1')"
    refused_as("PROPERTY_INVALID", spark_lake.spark, template.format(namespace, "t", "2"))
    spark_lake.rows(template.format(namespace, "same", "1"))
    shown = _properties(spark_lake, f"{namespace}.same")
    assert shown["a"] == "1"
    assert not [name for name in shown if name.startswith("option.")]


@pytest.mark.nightly
def test_names_are_literal(spark_lake: SparkLake, namespace: str) -> None:
    names = ['it\'s "quoted"', "a*b?[c]", "a%20b", "ü 表", "a=b,c;d", "$1", "CON"]
    for number, name in enumerate(names):
        spark_lake.rows(f"CREATE TABLE {namespace}.`{name}` (`x{name}` INT)")
        spark_lake.rows(f"INSERT INTO {namespace}.`{name}` VALUES ({number})")
    assert {row[1] for row in spark_lake.rows(f"SHOW TABLES IN {namespace}")} == set(names)
    each = (f"SELECT {number}, `x{name}` FROM {namespace}.`{name}`" for number, name in enumerate(names))
    assert sorted(spark_lake.rows(" UNION ALL ".join(each))) == [(n, n) for n in range(len(names))]
    for name in names:
        spark_lake.rows(f"DROP TABLE {namespace}.`{name}`")
    assert spark_lake.rows(f"SHOW TABLES IN {namespace}") == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["a.b", "a/b", "a\\\\b", "..", " a"])
def test_names_that_could_be_read_in_two_ways(spark_lake: SparkLake, namespace: str, name: str) -> None:
    refused_as("REQUEST_INVALID", spark_lake.spark, f"CREATE TABLE {namespace}.`{name}` (id INT)")
    refused_as("REQUEST_INVALID", spark_lake.spark, f"SELECT * FROM {namespace}.`{name}`")


@pytest.mark.nightly
def test_table_that_is_there_or_is_not(spark_lake: SparkLake, namespace: str) -> None:
    alice = spark_lake.spark
    spark_lake.rows(f"CREATE TABLE {namespace}.t (id INT)")
    refused_as("TABLE_OR_VIEW_ALREADY_EXISTS", alice, f"CREATE TABLE {namespace}.t (other INT)")
    spark_lake.rows(f"CREATE TABLE IF NOT EXISTS {namespace}.t (other INT)")
    assert alice.table(f"{namespace}.t").columns == ["id"]
    refused_as("TABLE_OR_VIEW_NOT_FOUND", alice, f"SELECT * FROM {namespace}.u")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", alice, f"SELECT * FROM {namespace}.t.nothing")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", alice, f"DROP TABLE {namespace}.u")
    spark_lake.rows(f"DROP TABLE IF EXISTS {namespace}.u")
    spark_lake.rows(f"DROP TABLE {namespace}.t")
    assert spark_lake.rows(f"SHOW TABLES IN {namespace}") == []


@pytest.mark.nightly
def test_purge_deletes_the_files(spark_lake: SparkLake, namespace: str) -> None:
    directories = {}
    for name, clause in (("kept", ""), ("purged", "PURGE")):
        spark_lake.rows(f"CREATE TABLE {namespace}.{name} AS SELECT 1 AS id")
        location = stock_table(spark_lake, f"{namespace}.{name}").location()
        directories[name] = spark_lake.lake.warehouse / location.removeprefix(
            f"file://{spark_lake.lake.warehouse}/"
        )
        spark_lake.rows(f"DROP TABLE {namespace}.{name} {clause}")
    left = {name: list(where.rglob("*.parquet")) for name, where in directories.items()}
    assert len(left["kept"]) == 1
    assert left["purged"] == []


@pytest.mark.nightly
def test_data_frame_writers_make_and_fill_tables(spark_lake: SparkLake, namespace: str) -> None:
    frame = spark_lake.spark.range(3)
    frame.writeTo(f"{namespace}.t").using("iceberg").tableProperty("a", "b").create()
    frame.writeTo(f"{namespace}.t").append()
    frame.write.insertInto(f"{namespace}.t")
    frame.write.mode("append").saveAsTable(f"{namespace}.t")
    assert spark_lake.spark.table(f"{namespace}.t").count() == 12
    assert _properties(spark_lake, f"{namespace}.t")["a"] == "b"
