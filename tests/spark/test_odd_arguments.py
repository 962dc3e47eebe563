"""Odd values of arguments and options: the statement is answered, or refused with a condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table

pytestmark = pytest.mark.nightly
_PATHS = ("", " ", "file:", "://", "s3://", "nix://x/y", "/nowhere", "a:b", "[", "{a,", "/x/../y", "*")
_TEXTS = (
    *(
        "''",
        "' '",
        "'`'",
        "'``'",
        "'a.``'",
        "'.'",
        "'a..b'",
        "'x''y'",
        r"'a\u0000b'",
        "'🦆'",
        "'-1'",
        "'NaN'",
    ),
    *(f"'{kind}.`{path}`'" for kind in ("parquet", "orc") for path in _PATHS),
    *("'spark_catalog.``.``'", "'delta.`/x`'", "'zorder()'", "'zorder(nix)'", "'sort'", "'id desc nulls'"),
    *("'1 = '", "'nix > 1'", "'true'", "'id = (SELECT 1)'", "'rand() > 1'", "repeat('x', 70000)"),
)
_VALUES = {
    "STRING": _TEXTS,
    "BIGINT": ("0", "-1", "9223372036854775807", "-9223372036854775808"),
    "INT": ("0", "-1", "2147483647", "-2147483648"),
    "BOOLEAN": ("true", "false"),
    "TIMESTAMP": (
        "timestamp_micros(-9223372036854775808)",
        "timestamp_micros(9223372036854775807)",
        "TIMESTAMP '0001-01-01 00:00:00'",
    ),
    "ARRAY<STRING>": ("array()", "array('')", "array(NULL)", "array('a.``')", "array('id', 'id')"),
    "ARRAY<BIGINT>": ("array()", "array(0L)", "array(-1L, NULL)"),
    "MAP<STRING, STRING>": (
        *("map()", "map('', '')", "map('a', NULL)", "map('id', 'x')", "map('location', '')"),
        *("map('rewrite-all', '')", "map('max-file-group-size-bytes', '-1')", "map('provider', 'x')"),
        *("map('start-timestamp', '9223372036854775807')", "map('end-timestamp', '9223372036854775807')"),
        "map('write.format.default', '')",
    ),
}
_TIMES = (
    *("timestamp_millis(1)", "current_timestamp()", "now()", "nix", "''", "'x'", "NULL", "1", "-1", "1.5"),
    *("(SELECT now())", "array()", "CAST('2026-01-01' AS TIMESTAMP)", "TIMESTAMP '+294247-01-10 04:00:54'"),
)
_NUMBERS = ("0", "-1", "", " ", "x", "1.5", "9223372036854775807", "99999999999999999999", "true", "🦆")
_READ = (
    *("snapshot-id", "as-of-timestamp", "start-snapshot-id", "end-snapshot-id", "start-timestamp"),
    *("branch", "tag", "split-size", "file-open-cost", "batch-size", "versionAsOf", "timestampAsOf"),
)
_WRITTEN = (
    "target-file-size-bytes",
    "compression-level",
    "isolation-level",
    "branch",
    "wap-id",
    "write-format",
)


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    name = f"{spark_lake.namespace('odd')}.t"
    create_table(spark_lake, name, "id INT, v STRING")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'a')")
    return name


def test_odd_arguments_of_procedures(spark_lake: SparkLake, table: str) -> None:
    assert _untyped(spark_lake, _calls(spark_lake, table)) == {}


def test_odd_times_and_options(spark_lake: SparkLake, table: str) -> None:
    statements = [
        *(f"SELECT * FROM {table} CHANGES FROM TIMESTAMP {each}" for each in _TIMES),
        *(
            f"SELECT * FROM {table} CHANGES FROM TIMESTAMP '2026-01-01' TO TIMESTAMP {each}"
            for each in _TIMES
        ),
        *(f"SELECT * FROM {table} CHANGES FROM VERSION {each}" for each in ("0", "''", "'x'", "-1", "1e9")),
        *(f"SELECT * FROM {table} TIMESTAMP AS OF {each}" for each in _TIMES),
        *(f"SELECT * FROM {table} VERSION AS OF {each}" for each in ("0", "''", "'x'", "-1", "'a.``'")),
        *(f"SELECT * FROM {table} WITH (`{name}` = '{each}')" for name in _READ for each in _NUMBERS),
        *(f"SELECT * FROM {table}.changes WITH (`{name}` = '{each}')" for name in _READ for each in _NUMBERS),
        *(
            f"INSERT INTO {table} WITH (`{name}` = '{each}') VALUES (2, 'b')"
            for name in _WRITTEN
            for each in _NUMBERS
        ),
    ]
    assert _untyped(spark_lake, statements) == {}


def _calls(spark_lake: SparkLake, table: str) -> Iterator[str]:
    """A call with each odd value of each parameter, and otherwise as simple as can be."""
    simple = {"table": f"'{table}'", "source_table": "'parquet.`/nowhere`'", "metadata_file": "'/nowhere'"}
    simple |= {"branch": "'main'", "to": "'main'", "snapshot_id": "1L", "wap_id": "'x'"}
    simple |= {"timestamp": "TIMESTAMP '2020-01-01 00:00:00'"}
    for row in spark_lake.rows("SHOW PROCEDURES IN lake.system"):
        name = row["procedure_name"]
        parameters = _parameters(spark_lake, name)
        for parameter, kind in parameters.items():
            for value in (*_VALUES[kind], "NULL"):
                given = {each: text for each, text in simple.items() if each in parameters}
                said = ", ".join(f"{each} => {text}" for each, text in {**given, parameter: value}.items())
                yield f"CALL lake.system.{name}({said})"


def _parameters(spark_lake: SparkLake, procedure: str) -> dict[str, str]:
    spark = spark_lake.spark
    identifier = spark._jvm.org.apache.spark.sql.connector.catalog.Identifier
    system = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, 1)
    system[0] = "system"
    plugin = spark._jsparkSession.sessionState().catalogManager().catalog("lake")
    found = plugin.loadProcedure(identifier.of(system, procedure)).bind(None).parameters()
    return {each.name(): each.dataType().sql() for each in found}


def _untyped(spark_lake: SparkLake, statements: Iterable[str]) -> dict[str, str]:
    """The statements that end with an error without a condition, and these errors."""
    found = {}
    for statement in statements:
        try:
            spark_lake.rows(statement)
        except PySparkException as error:
            if not error.getCondition():
                found[statement] = f"{type(error).__name__}: {error}"[:300]
        except Py4JError as error:
            found[statement] = str(error)[:300]
    return found
