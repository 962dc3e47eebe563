"""In a shared engine, code and paths of users take the permission `engine:code`.

Paths and classes in the statements do not exist. A refusal with Lakewarden's own error therefore shows that
Spark did not look for them first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import from_json, lit
from pyspark.sql.types import StringType, StructField, StructType

from tests.support.lake import ALICE, BOB, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_refusals import active, refusal, refused_as
from tests.support.vectors import each_row

pytestmark = pytest.mark.core

TABLE = "lake.bobs.orders"
ABSENT = "/absent/orders"
_JDBC = "org.apache.spark.sql.execution.datasources.v2.jdbc"

#: Reads and writes by path, other data sources, code: each is refused wherever it stands.
REFUSED = {
    "parquet": f"SELECT * FROM parquet.`{ABSENT}`",
    "text": f"SELECT * FROM text.`{ABSENT}`",
    "binary files": f"SELECT * FROM binaryFile.`{ABSENT}`",
    "csv": f"SELECT * FROM csv.`{ABSENT}`",
    "source by its class": (
        f"SELECT * FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`{ABSENT}`"
    ),
    "jdbc": "SELECT * FROM jdbc.`orders`",
    "common table": f"WITH x AS (SELECT * FROM text.`{ABSENT}`) SELECT * FROM x",
    "scalar subquery": f"SELECT (SELECT max(value) FROM text.`{ABSENT}`)",
    "IN subquery": f"SELECT * FROM {TABLE} WHERE item IN (SELECT value FROM text.`{ABSENT}`)",
    "EXISTS": f"SELECT * FROM {TABLE} WHERE EXISTS (SELECT value FROM text.`{ABSENT}`)",
    "lateral": f"SELECT * FROM {TABLE}, LATERAL (SELECT value FROM text.`{ABSENT}`)",
    "union": f"SELECT item FROM {TABLE} UNION ALL SELECT value FROM text.`{ABSENT}`",
    "insert from files": f"INSERT INTO {TABLE} SELECT 1, value FROM text.`{ABSENT}`",
    "insert into files": f"INSERT INTO text.`{ABSENT}` SELECT item FROM {TABLE}",
    "merge source": (
        f"MERGE INTO {TABLE} t USING (SELECT value FROM text.`{ABSENT}`) s ON t.item = s.value "
        "WHEN MATCHED THEN DELETE"
    ),
    "update with code": f"UPDATE {TABLE} SET item = reflect('absent.Class', 'method') WHERE id = 1",
    "delete by code": f"DELETE FROM {TABLE} WHERE reflect('absent.Class', 'method') = item",
    "table as select": f"CREATE TABLE lake.bobs.made AS SELECT * FROM text.`{ABSENT}`",
    "view": f"CREATE TEMPORARY VIEW v AS SELECT * FROM text.`{ABSENT}`",
    "cached": f"CACHE TABLE c AS SELECT * FROM text.`{ABSENT}`",
    "explained": f"EXPLAIN SELECT * FROM text.`{ABSENT}`",
    "described": f"DESCRIBE QUERY SELECT * FROM text.`{ABSENT}`",
    "computed name": f"SELECT * FROM IDENTIFIER('te' || 'xt.`{ABSENT}`')",
    "immediate": f"EXECUTE IMMEDIATE 'SELECT * FROM text.`{ABSENT}`'",
    "script": f"BEGIN SELECT * FROM text.`{ABSENT}`; END",
    "table function in SQL": (
        f"CREATE TEMPORARY FUNCTION f() RETURNS TABLE (v STRING) RETURN SELECT value FROM text.`{ABSENT}`"
    ),
    "function in SQL": (
        "CREATE TEMPORARY FUNCTION f() RETURNS STRING RETURN reflect('absent.Class', 'method')"
    ),
    "table of files": f"CREATE TABLE spark_catalog.default.files USING text LOCATION '{ABSENT}'",
    "table with a path": f"CREATE TABLE spark_catalog.default.files USING text OPTIONS (path '{ABSENT}')",
    "table of jdbc": (
        "CREATE TABLE spark_catalog.default.j USING jdbc OPTIONS (url 'jdbc:derby:/absent', dbtable 't')"
    ),
    "table of a class": "CREATE TABLE spark_catalog.default.k (a INT) USING absent.Class",
    "table of Hive": "CREATE TABLE spark_catalog.default.h (a INT) STORED AS PARQUET",
    "database": f"CREATE DATABASE spark_catalog.other LOCATION '{ABSENT}'",
    "view of files": f"CREATE TEMPORARY VIEW v USING text OPTIONS (path '{ABSENT}')",
    "view of jdbc": "CREATE TEMPORARY VIEW v USING jdbc OPTIONS (url 'jdbc:derby:/absent', dbtable 't')",
    "directory": f"INSERT OVERWRITE DIRECTORY '{ABSENT}' USING text SELECT item FROM {TABLE}",
    "directory of Hive": (
        f"INSERT OVERWRITE LOCAL DIRECTORY '{ABSENT}' STORED AS TEXTFILE SELECT item FROM {TABLE}"
    ),
    "load": f"LOAD DATA LOCAL INPATH '{ABSENT}' INTO TABLE {TABLE}",
    "reflect": "SELECT reflect('absent.Class', 'method')",
    "java_method": "SELECT java_method('absent.Class', 'method')",
    "try_reflect": "SELECT try_reflect('absent.Class', 'method')",
    "reflect by its whole name": "SELECT system.builtin.reflect('absent.Class', 'method')",
    "reflect in a filter": f"SELECT * FROM {TABLE} WHERE reflect('absent.Class', 'method') = item",
    "reflect in a lambda": "SELECT transform(array(1), x -> reflect('absent.Class', 'method'))",
    "reflect in a window": f"SELECT max(reflect('absent.Class', 'm')) OVER (ORDER BY id) FROM {TABLE}",
    "reflect as a default": "CREATE TABLE lake.bobs.d (a STRING DEFAULT reflect('absent.Class', 'method'))",
    "reflect in a variable": "DECLARE VARIABLE v STRING DEFAULT reflect('absent.Class', 'method')",
    "reflect as an argument": "CALL lake.system.rotate_key(table => reflect('absent.Class', 'method'))",
    "transform": f"SELECT TRANSFORM (item) USING 'cat' AS (item) FROM {TABLE}",
    "jar": "ADD JAR /absent.jar",
    "file": "ADD FILE /absent.py",
    "archive": "ADD ARCHIVE /absent.zip",
    "jars": "LIST JARS",
    "files": "LIST FILES",
    "temporary function": "CREATE TEMPORARY FUNCTION f AS 'absent.Class'",
    "function with a jar": (
        "CREATE FUNCTION spark_catalog.default.f AS 'absent.Class' USING JAR '/absent.jar'"
    ),
    "schema of XML": "SELECT from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '/absent.xsd'))",
    "inferred schema of XML": (
        "SELECT schema_of_xml('<a/>', map('row' || 'ValidationXSDPath', '/absent.xsd'))"
    ),
    "schema of XML in parts": (
        "SELECT from_xml('<a/>', 'b INT', map('rowValidationXSDPa' || 'th', '/absent.xsd'))"
    ),
    "schema of XML in bytes": (
        f"SELECT from_xml('<a/>', 'b INT', "
        f"map(CAST(X'{b'rowValidationXSDPath'.hex()}' AS STRING), '/absent.xsd'))"
    ),
    "function of XML by a computed name": (
        "SELECT * FROM VALUES (IDENTIFIER('from' || '_xml')"
        "('<a/>', 'b INT', map('rowValidationXSDPath', '/absent.xsd')))"
    ),
    "type of XML": ("""SELECT xpath_string('<!DOCTYPE a SYSTEM "file:///absent.dtd"><a>1</a>', 'a')"""),
    "former name of a source": f"SELECT * FROM `com.databricks.spark.csv`.`{ABSENT}`",
    "former class of a source": f"SELECT * FROM `org.apache.spark.sql.json`.`{ABSENT}`",
    "descriptor": "SELECT from_protobuf(X'00', 'message', '/absent.desc')",
    "refresh by path": f"REFRESH '{ABSENT}'",
    "catalog": "SET spark.sql.catalog.evil=absent.Class",
    "catalog's address": "SET spark.sql.catalog.lake.warehouse=/absent",
    "extensions": "SET spark.sql.extensions=absent.Class",
    "warehouse": "SET spark.sql.warehouse.dir=/absent",
    "file system": "SET fs.absent.impl=absent.Class",
    "Hadoop": "SET spark.hadoop.fs.absent.impl=absent.Class",
    "single-pass analyzer": "SET spark.sql.analyzer.singlePassResolver.enabled=true",
    "substitution": "SET spark.sql.variable.substitute=true",
    "rules": "SET spark.sql.optimizer.excludedRules=absent.Class",
    "path of names": "SET PATH = spark_catalog.default, system.builtin",
    "statistics of a database": "ANALYZE TABLES IN spark_catalog.default COMPUTE STATISTICS",
    "all settings": "SET",
    "all settings with their meaning": "SET -v",
    "a setting of the launch": "SET spark.sql.warehouse.dir",
}

#: Everyday SQL.
ALLOWED = (
    f"SELECT item, count(*), sum(id), avg(id) FROM {TABLE} WHERE id > 0 GROUP BY item HAVING count(*) > 0",
    f"SELECT a.id FROM {TABLE} a JOIN {TABLE} b USING (id) LEFT JOIN {TABLE} c ON c.id = a.id "
    "ORDER BY 1 LIMIT 3",
    f"WITH x AS (SELECT * FROM {TABLE}) SELECT * FROM x WHERE id IN (SELECT id FROM x) AND "
    "EXISTS (SELECT 1 FROM x)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n",
    "SELECT id, row_number() OVER (PARTITION BY item ORDER BY id) r, lag(id) OVER (ORDER BY "
    f"id) FROM {TABLE}",
    f"SELECT * FROM {TABLE} PIVOT (count(id) FOR item IN ('tea', 'jam'))",
    f"SELECT item, id FROM {TABLE} GROUP BY GROUPING SETS ((item), (id)), item, id",
    f"SELECT * FROM {TABLE} TABLESAMPLE (50 PERCENT)",
    f"FROM {TABLE} |> WHERE id > 1 |> SELECT item",
    "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(id, item)",
    "SELECT * FROM range(3), LATERAL explode(array(1, 2)) AS t(x)",
    "SELECT transform(array(1, 2), x -> x + 1), map_filter(map('a', 1), (k, v) -> v > 0)",
    "SELECT nvl(upper('a'), 'b'), parse_url('http://a/b', 'HOST'), url_encode('a b'), "
    "date_add(current_date(), 1)",
    "SELECT to_json(from_json('{\"a\": 1}', 'a INT')), from_csv('1', 'a INT')",
    "SELECT from_xml('<a><b>1</b></a>', schema_of_xml('<a><b>1</b></a>')), parse_json('{}'), "
    "hex(aes_encrypt('a', 'abcdefghijklmnop'))",
    "SELECT encode('a', 'utf-8'), base64('a'), char_length('a'), bitmap_count(X'01')",
    "SELECT CASE WHEN 1 = 1 THEN CAST('1' AS INT) ELSE try_divide(1, 0) END, interval 1 day, "
    "date '2020-01-01'",
    f"INSERT INTO {TABLE} SELECT id + 10, item FROM {TABLE}",
    f"UPDATE {TABLE} SET item = upper(item) WHERE id IN (SELECT max(id) FROM {TABLE})",
    f"MERGE INTO {TABLE} t USING (SELECT 99 AS id, 'x' AS item) s ON t.id = s.id WHEN MATCHED THEN DELETE "
    "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id > 50 THEN UPDATE SET item = 'y'",
    f"DELETE FROM {TABLE} WHERE id = 99",
    f"INSERT OVERWRITE {TABLE} SELECT * FROM {TABLE}",
    "SET spark.sql.shuffle.partitions=3",
    "SET TIME ZONE 'UTC'",
    "RESET spark.sql.shuffle.partitions",
    "SET spark.sql.sources.partitionOverwriteMode=dynamic",
    "SET spark.job.description=orders",
    f"CREATE TEMPORARY VIEW harmless AS SELECT * FROM {TABLE}",
    "SELECT * FROM harmless",
    "DROP VIEW harmless",
    "CREATE TEMPORARY FUNCTION plus_one(x INT) RETURNS INT RETURN x + 1",
    f"SELECT plus_one(id) FROM {TABLE}",
    "DROP TEMPORARY FUNCTION plus_one",
    "DECLARE OR REPLACE VARIABLE chosen INT DEFAULT 1",
    f"SELECT * FROM {TABLE} WHERE id = chosen",
    f"EXECUTE IMMEDIATE 'SELECT * FROM {TABLE} WHERE id = ?' USING 1",
    f"SELECT * FROM IDENTIFIER('{TABLE}')",
    "BEGIN DECLARE n INT DEFAULT 0; WHILE n < 2 DO SET n = n + 1; END WHILE; SELECT * FROM "
    f"{TABLE} WHERE id = n; END",
    "BEGIN DECLARE n INT DEFAULT 0; WHILE n < 1 DO SET n = n + 1; END WHILE; "
    "IF (SELECT count(*) > 0 FROM range(1)) THEN SELECT array(1), map('a', 1.5BD); END IF; END",
    f"CACHE TABLE {TABLE}",
    f"SELECT count(*) FROM {TABLE}",
    f"UNCACHE TABLE {TABLE}",
    f"CACHE TABLE kept AS SELECT * FROM {TABLE}",
    "UNCACHE TABLE kept",
    f"EXPLAIN EXTENDED SELECT * FROM {TABLE}",
    f"DESCRIBE EXTENDED {TABLE}",
    f"SHOW CREATE TABLE {TABLE}",
    "SHOW TABLES IN lake.bobs",
    "SHOW NAMESPACES IN lake",
    "SHOW CATALOGS",
    "SHOW FUNCTIONS",
    "SHOW VIEWS",
    "DESCRIBE FUNCTION upper",
    f"ALTER TABLE {TABLE} ADD COLUMN more INT",
    f"ALTER TABLE {TABLE} DROP COLUMN more",
    f"COMMENT ON TABLE {TABLE} IS 'orders'",
    f"CREATE TABLE lake.bobs.copy AS SELECT * FROM {TABLE}",
    "DROP TABLE lake.bobs.copy",
    "USE lake.bobs",
    "SELECT * FROM orders",
    "SELECT * FROM bobs.orders",
    "ALTER TABLE orders WRITE ORDERED BY id",
    "ALTER TABLE bobs.orders CREATE OR REPLACE TAG v1",
    "EXPLAIN EXTENDED ALTER TABLE orders DROP TAG v1",
    "USE spark_catalog.default",
    f"REFRESH TABLE {TABLE}",
)


@pytest.fixture(scope="module")
def bob(spark_lake: SparkLake) -> SparkSession:
    """The session of a user without the permission, with a table of his own."""
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.bobs")
    session = spark_lake.new_session(BOB)
    session.sql(f"CREATE TABLE {TABLE} (id INT, item STRING) USING iceberg")
    session.sql(f"INSERT INTO {TABLE} VALUES (1, 'tea'), (2, 'jam')")
    return session


@each_row("statement", REFUSED.values())
def test_code_and_paths_are_refused_before_anything_is_looked_for(bob: SparkSession, statement: str) -> None:
    if statement.startswith("SET spark.sql.catalog.lake"):
        refused_as("CATALOG_NOT_TRUSTED", bob, statement)
    else:
        assert "engine-code" in refused_as("NOT_AUTHORIZED", bob, statement)


@pytest.mark.nightly
def test_a_default_value_in_a_schema(bob: SparkSession) -> None:
    """Spark evaluates its text where rows are parsed, and no rule sees it."""
    default = "CAST(from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '/absent.xsd')) AS STRING)"
    schema = StructType([StructField("a", StringType(), True, {"EXISTS_DEFAULT": default})]).json()
    for text in (schema, schema.replace("EXISTS", "\\u0045XISTS")):
        error = refusal(partial(_parsed, bob, text))
        assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED", error


def _parsed(session: SparkSession, schema: str) -> list[Row]:
    return session.range(1).select(from_json(lit("{}"), lit(schema))).collect()


@pytest.mark.nightly
def test_everyday_sql_needs_no_permission(spark_lake: SparkLake, bob: SparkSession) -> None:
    session = spark_lake.new_session(BOB)
    for statement in ALLOWED:
        session.sql(statement).collect()


DATA_FRAMES: dict[str, Callable[[SparkSession], Any]] = {
    "load": lambda spark: spark.read.format("parquet").load(ABSENT),
    "load of a class": lambda spark: spark.read.format("absent.Class").load(),
    "jdbc": lambda spark: spark.read.jdbc("jdbc:derby:/absent", "t"),
    "stream": lambda spark: spark.readStream.format("text").load(ABSENT),
    "rate stream": lambda spark: spark.readStream.format("rate").load(),
    "write": lambda spark: spark.range(1).write.parquet(ABSENT),
    "no operation": lambda spark: spark.range(1).write.format("noop").mode("append").save(),
    "table of files": lambda spark: (
        spark.range(1).write.option("path", ABSENT).saveAsTable("spark_catalog.default.f")
    ),
    "reflect": lambda spark: spark.range(1).selectExpr("reflect('absent.Class', 'method')"),
    "catalog": lambda spark: spark.catalog.createTable("spark_catalog.default.f", ABSENT, "text"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("action", DATA_FRAMES.values(), ids=DATA_FRAMES)
def test_data_frames_are_refused_alike(bob: SparkSession, action: Callable[[SparkSession], Any]) -> None:
    error = refusal(lambda: action(bob))
    assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED", error


@pytest.mark.nightly
def test_user_with_the_permission_runs_code_and_reads_paths(spark_lake: SparkLake, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n")
    assert spark_lake.rows(f"SELECT * FROM text.`{file}`")[0][0] == "one"
    assert spark_lake.rows("SELECT reflect('java.lang.String', 'valueOf', 1)")[0][0] == "1"
    spark_lake.rows(f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'out'}' USING text SELECT 'two'")
    assert spark_lake.session(ALICE).read.text(str(tmp_path / "out")).collect()[0][0] == "two"


@pytest.mark.nightly
def test_view_over_files_of_another_user(spark_lake: SparkLake, bob: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("one\n")
    view = "spark_catalog.default.over_files"
    spark_lake.rows(f"CREATE VIEW {view} AS SELECT * FROM text.`{file}`")
    spark_lake.rows(f"CREATE GLOBAL TEMPORARY VIEW over_files AS SELECT * FROM text.`{file}`")
    spark_lake.rows(f"CREATE TABLE spark_catalog.default.files USING text LOCATION '{tmp_path}'")
    try:
        for name in (view, "global_temp.over_files", "spark_catalog.default.files"):
            assert spark_lake.rows(f"SELECT * FROM {name}")[0][0] == "one"
            found = refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM {name}")
        assert "The table `spark_catalog`.`default`.`files`" in found  # before its files are listed
    finally:
        spark_lake.rows(f"DROP VIEW {view}")
        spark_lake.rows("DROP VIEW global_temp.over_files")
        spark_lake.rows("DROP TABLE spark_catalog.default.files")


@pytest.mark.nightly
@pytest.mark.parametrize("of_code", [False, True], ids=["files", "code"])
def test_view_that_keeps_the_analyzed_plan_of_another_user(
    spark_lake: SparkLake, bob: SparkSession, tmp_path: Path, of_code: bool
) -> None:
    """No name in it is looked up anew."""
    (tmp_path / "lines.txt").write_text("one\n")
    alice = spark_lake.session(ALICE)
    call = "reflect('java.lang.String', 'valueOf', 1)"
    frame = alice.range(1).selectExpr(call) if of_code else alice.read.text(str(tmp_path))
    frame.createGlobalTempView("kept_frame")
    try:
        assert spark_lake.rows("SELECT * FROM global_temp.kept_frame")[0][0] == ("1" if of_code else "one")
        error = refusal(lambda: bob.table("global_temp.kept_frame").schema)
        assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED"
    finally:
        spark_lake.rows("DROP VIEW global_temp.kept_frame")


@pytest.mark.nightly
def test_setting_outside_of_sql_spoils_the_session(spark_lake: SparkLake) -> None:
    """Over Spark Connect, the request that sets it is refused."""
    session = spark_lake.new_session(BOB)

    def asked(change: Callable[..., None], *setting: str) -> PySparkException:
        return refusal(lambda: (change(*setting), session.sql("SELECT 1").collect()))

    for setting in ("spark.sql.catalog.evil", "fs.absent.impl", "spark.sql.extensions.more"):
        error = asked(session.conf.set, setting, "absent.Class")
        assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED" and setting in str(error)
        with suppress(PySparkException):
            session.conf.unset(setting)
    error = asked(session.conf.unset, "spark.sql.variable.substitute")
    assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED"
    session.sql("RESET spark.sql.variable.substitute")
    assert session.sql("SELECT '${env:HOME}'").collect()[0][0] == "${env:HOME}"


@pytest.mark.nightly
def test_setting_of_the_launch_that_a_session_has_taken_away(spark_lake: SparkLake) -> None:
    session: Any = spark_lake.new_session(BOB)._jsparkSession
    settings = session.sessionState().conf()
    assert _finding_in(spark_lake, settings) is None
    found = _finding_in(spark_lake, settings, {"spark.sql.orders": "closed"})
    assert found == "The setting spark.sql.orders of this session"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "setting", ["spark.sql.variable.substitute", "spark.sql.udt.allowCreatingUDTFromString"]
)
def test_engine_that_was_launched_without_a_required_setting(spark_lake: SparkLake, setting: str) -> None:
    session: Any = spark_lake.new_session(BOB)._jsparkSession
    settings = session.sessionState().conf().clone()
    settings.setConfString(setting, "true")
    found = _finding_in(spark_lake, settings, {setting: "true"})
    assert found == f"An engine that was launched without {setting}=false"


@pytest.mark.nightly
def test_functions_of_another_user(spark_lake: SparkLake, bob: SparkSession) -> None:
    """Spark makes an instance of a class as soon as its function is named."""
    spark_lake.rows("CREATE FUNCTION spark_catalog.default.of_a_class AS 'absent.Class'")
    try:
        found = refused_as("NOT_AUTHORIZED", bob, "SELECT spark_catalog.default.of_a_class(1)")
    finally:
        spark_lake.rows("DROP FUNCTION spark_catalog.default.of_a_class")
    assert "The function `spark_catalog`.`default`.`of_a_class`" in found


@pytest.mark.nightly
def test_functions_that_a_session_has_from_its_last_user(spark_lake: SparkLake) -> None:
    session = spark_lake.new_session(ALICE)
    session.udf.register("of_python", lambda value: value)
    session.conf.set("lakewarden.catalog.lake.token", spark_lake.service.token(BOB))
    assert "The function `of_python`" in refused_as("NOT_AUTHORIZED", session, "SELECT of_python(1)")


def test_catalog_that_a_session_has_loaded(spark_lake: SparkLake) -> None:
    """Its settings may be gone by now."""
    java: Any = spark_lake.spark.sparkContext._jvm
    session = spark_lake.new_session(BOB)
    for name, value in {"": f"{_JDBC}.JDBCTableCatalog", ".url": "jdbc:derby:memory:absent"}.items():
        session.conf.set(f"spark.sql.catalog.other{name}", value)
    rules = java.org.apache.spark.sql.lakewarden.code.NameRules(session._jsparkSession)
    name = java.org.apache.spark.api.python.PythonUtils.toSeq(["other", "t"])
    with active(session):
        found = rules.ofRelation(name).get()
    assert found == "The catalog other, which was not defined when Spark was launched,"


@pytest.mark.nightly
def test_analyzer_that_runs_no_rules(spark_lake: SparkLake) -> None:
    session = spark_lake.new_session(BOB)
    with pytest.raises(
        Exception, match=r"NotAuthorized: The setting spark\.sql\.analyzer\.singlePassResolver"
    ):
        session.conf.set("spark.sql.analyzer.singlePassResolver.enabled", "true")
        session.sql(f"SELECT * FROM text.`{ABSENT}`")


@pytest.mark.nightly
def test_parser_of_a_session_with_the_analyzer_that_runs_no_rules(spark_lake: SparkLake) -> None:
    session = spark_lake.new_session(BOB)
    parser: Any = session._jsparkSession.sessionState().sqlParser()
    session.conf.set("spark.sql.analyzer.singlePassResolver.enabled", "true")
    with pytest.raises(Exception, match=r"NotAuthorized: .*singlePassResolver"):
        parser.parsePlan("SELECT 1")


@pytest.mark.nightly
def test_error_in_a_script_is_one_of_the_parser(bob: SparkSession) -> None:
    with pytest.raises(ParseException, match="LABELS_MISMATCH"):
        bob.sql("BEGIN one: BEGIN SELECT 1; END other; END")


@pytest.mark.nightly
def test_permission_that_is_revoked(spark_lake: SparkLake) -> None:
    """A grant is known for a while, by the token that it was asked with."""
    more = policy("bob-code", {"engine": ["spark"]}, {BOB: ["code"]})
    session = spark_lake.new_session(BOB)
    try:
        spark_lake.lake.set_policies([*standard_policies(), more])
        token = spark_lake.lake.services.tokens.issue(spark_lake.lake.caller(BOB).principal, "user", None)
        session.conf.set("lakewarden.catalog.lake.token", token.text)
        assert session.sql("SELECT reflect('java.lang.String', 'valueOf', 1)").collect()
        analyzed = session.sql("SELECT reflect('java.lang.String', 'valueOf', 2)")
    finally:
        spark_lake.lake.set_policies(standard_policies())
    session.conf.set("lakewarden.catalog.lake.token", spark_lake.service.token(BOB))
    refused_as("NOT_AUTHORIZED", session, "SELECT reflect('java.lang.String', 'valueOf', 1)")
    assert refusal(analyzed.collect).getCondition() == "LAKEWARDEN.NOT_AUTHORIZED"


@pytest.mark.nightly
def test_session_without_a_token_runs_no_code(spark_lake: SparkLake) -> None:
    assert "engine-code" in refused_as(
        "NOT_AUTHORIZED", spark_lake.new_session(None), "SELECT reflect('a', 'b')"
    )


def test_rows_parsed_over_connect_name_no_schema_file(spark_lake: SparkLake) -> None:
    assert _finding(spark_lake, "Parse", options=("mode", "FAILFAST")) is None
    found = _finding(spark_lake, "Parse", options=("rowValidationXSDPath", "/absent.xsd"))
    assert found == "A schema or option that names a file or has a default"


def _finding_in(spark_lake: SparkLake, settings: Any, launch: Mapping[str, str] | None = None) -> str | None:
    """What the engine finds in a session's settings, with more settings of a launch."""
    java: Any = spark_lake.spark.sparkContext
    conf = java._jsc.sc().conf().clone()
    for setting, value in (launch or {}).items():
        conf.set(setting, value)
    found = java._jvm.org.apache.spark.sql.lakewarden.code.SettingRules(conf).finding(settings)
    return str(found.get()) if found.isDefined() else None


def _finding(spark_lake: SparkLake, message: str, *, options: tuple[str, str]) -> str | None:
    java: Any = spark_lake.spark.sparkContext._jvm
    return _found(
        spark_lake, getattr(java.org.apache.spark.connect.proto, message).newBuilder().putOptions(*options)
    )


def _found(spark_lake: SparkLake, builder: Any) -> str | None:
    """What the engine finds in a message of Spark Connect."""
    java: Any = spark_lake.spark.sparkContext._jvm
    found = java.org.apache.spark.sql.lakewarden.code.ConnectRules.finding(builder.build())
    return str(found.get()) if found.isDefined() else None
