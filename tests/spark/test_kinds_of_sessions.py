"""Every kind of session takes a user's token as docs/spark.md says, and serves that user alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spark_ext.configuration import engine_token_file, launch_settings
from spark_ext.jar import spark_jar
from spark_ext.runtime import find_spark
from tests.support.lake import ALICE, BOB
from tests.support.spark import CATALOG, FRUGAL, SparkLake
from tests.support.spark_process import spark_process

pytestmark = pytest.mark.nightly

ENCRYPTED = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"


def _shell(
    spark_lake: SparkLake, directory: Path, token_file: Path, sql: str
) -> subprocess.CompletedProcess[str]:
    """Run SQL in the spark-sql shell of a user."""
    settings = {
        **FRUGAL,
        **launch_settings(CATALOG, spark_lake.service.url, spark_jar()),
        "spark.sql.catalogImplementation": "in-memory",
    }
    given = [each for name, value in settings.items() for each in ("--conf", f"{name}={value}")]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARDEN_")}
    return subprocess.run(
        [find_spark(os.environ).root / "bin" / "spark-sql", "--master", "local[1]", *given, "-e", sql],
        env={**variables, "LAKEWARDEN_TOKEN_FILE": str(token_file)},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def test_spark_sql_shell_takes_the_token_from_a_file(spark_lake: SparkLake, tmp_path: Path) -> None:
    namespace = spark_lake.namespace()
    spark_lake.rows(f"CREATE TABLE {namespace}.t {ENCRYPTED} AS SELECT 41 AS id")
    alice, bob = (engine_token_file(spark_lake.service.token(user)) for user in (ALICE, BOB))
    ran = _shell(
        spark_lake,
        tmp_path,
        alice,
        f"INSERT INTO {namespace}.t VALUES (1); SELECT sum(id) FROM {namespace}.t",
    )
    assert ran.stdout.splitlines()[-1] == "42", ran.stderr[-3000:]
    refused = _shell(spark_lake, tmp_path, bob, f"SELECT * FROM {namespace}.t")
    assert refused.returncode != 0 and "NotAuthorized: bob" in refused.stderr + refused.stdout
    alice.chmod(0o644)
    open_file = _shell(spark_lake, tmp_path, alice, f"SELECT * FROM {namespace}.t")
    assert "CatalogNotTrusted" in open_file.stderr + open_file.stdout
    assert spark_lake.service.token(ALICE) not in ran.stderr


#: Hive's JDBC driver, which Spark brings along, is the client.
_THRIFT = """
java = spark._jvm
server = java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
services = server.startWithContext(spark._jsparkSession.sqlContext()).getServices()
at = next(each.getPortNumber() for each in list(services) if "Thrift" in each.getName())
table = told()


def rows(user, sql):
    url = f"jdbc:hive2://127.0.0.1:{at}/default;auth=noSasl"
    properties = java.java.util.Properties()
    properties.setProperty("user", "anybody")
    if user is not None:
        properties.setProperty("hiveconf:" + given["token_setting"], given["tokens"][user])
    try:
        connection = java.java.sql.DriverManager.getConnection(url, properties)
        try:
            statement, found = connection.createStatement(), []
            if statement.execute(sql):
                answered = statement.getResultSet()
                while answered.next():
                    found.append(answered.getString(1))
            return found
        finally:
            connection.close()
    except Exception as error:
        return str(error)


for user, sql in (
    ("alice", f"INSERT INTO {table} VALUES (1)"),
    ("alice", f"SELECT id FROM {table} ORDER BY id"),
    ("bob", f"SELECT id FROM {table}"),
    (None, f"SELECT id FROM {table}"),
    ("alice", f"DELETE FROM {table} WHERE id = 1"),
    ("alice", f"SELECT count(*) FROM {table}"),
):
    answer(rows(user, sql))
"""
_SETTINGS = {
    "spark.hadoop.hive.server2.authentication": "NOSASL",
    "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
    "spark.hadoop.hive.server2.thrift.port": "0",
}


def test_thrift_clients_give_their_tokens_when_they_connect(spark_lake: SparkLake) -> None:
    """Nobody has the token of the process that serves them."""
    namespace = spark_lake.namespace()
    spark_lake.rows(f"CREATE TABLE {namespace}.t {ENCRYPTED} AS SELECT 41 AS id")
    settings = {**_SETTINGS, "spark.driver.extraClassPath": str(spark_jar())}
    with spark_process(
        spark_lake.service,
        _THRIFT,
        settings=settings,
        users=(BOB,),
        engine=None,
        environ={"LAKEWARDEN_TOKEN_FILE": str(engine_token_file(spark_lake.service.token(ALICE)))},
    ) as process:
        process.tell(f"{namespace}.t")
        inserted, read, denied, without, deleted, counted = (process.answer() for _ in range(6))
    assert (inserted, read, deleted, counted) == ([], ["1", "41"], [], ["1"])
    assert "NotAuthorized: bob" in denied
    assert "NotAuthenticated" in without


_PANDAS = """
frame = spark.table(told()).pandas_api()
answer(frame.groupby("p")["id"].sum().sort_index().to_dict())
answer(int((frame["id"] * 2).max()))
"""


def test_pandas_api_reads_guarded_tables(spark_lake: SparkLake) -> None:
    table = f"{spark_lake.namespace()}.t"
    spark_lake.rows(
        f"CREATE TABLE {table} {ENCRYPTED} AS SELECT id, CAST(id % 2 AS STRING) AS p FROM range(5)"
    )
    with spark_process(spark_lake.service, _PANDAS, engine=None) as process:
        process.tell(table)
        assert process.answer() == {"0": 6, "1": 4}
        assert process.answer() == 8
