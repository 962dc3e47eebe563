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
    alice.write_text("\n")
    alice.chmod(0o600)
    empty = _shell(spark_lake, tmp_path, alice, f"SELECT * FROM {namespace}.t")
    assert "LAKEWARDEN_TOKEN_FILE names is not accepted: it is empty" in empty.stderr + empty.stdout


#: The client is Hive's JDBC driver, which Spark has. Answers the first column, or SQLSTATE and message.
_THRIFT = """
java = spark._jvm
server = java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
services = server.startWithContext(spark._jsparkSession.sqlContext()).getServices()
at = next(each.getPortNumber() for each in list(services) if "Thrift" in each.getName())
answer(at)


def connected(user):
    properties = java.java.util.Properties()
    properties.setProperty("user", "dave")
    if user is not None:
        properties.setProperty("hiveconf:" + given["token_setting"], given["tokens"][user])
    url = f"jdbc:hive2://127.0.0.1:{at}/default;auth=noSasl"
    return java.java.sql.DriverManager.getConnection(url, properties)


def rows(user, sql):
    try:
        statement, found = connections[user].createStatement(), []
        if statement.execute(sql):
            answered = statement.getResultSet()
            while answered.next():
                found.append(answered.getString(1))
        return found
    except Exception as error:
        return [error.java_exception.getSQLState(), str(error.java_exception)]


connections = {user: connected(user) for user in (None, *given["tokens"])}
while (order := told()) is not None:
    answer(rows(*order))
"""
_SETTINGS = {
    "spark.hadoop.hive.server2.authentication": "NOSASL",
    "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
    "spark.hadoop.hive.server2.thrift.port": "0",
}


def test_thrift_clients_give_their_tokens_when_they_connect(spark_lake: SparkLake) -> None:
    """Nobody has the token of the process that serves them. All are connected at the same time."""
    table, bobs = f"{spark_lake.namespace()}.t", f"{CATALOG}.bobs"
    spark_lake.rows(f"CREATE TABLE {table} {ENCRYPTED} AS SELECT 41 AS id")
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {bobs}")
    short = table.removeprefix(f"{CATALOG}.")
    orders: list[tuple[str | None, str, list[str] | str]] = [
        (ALICE, f"INSERT INTO {table} VALUES (1)", []),
        (ALICE, f"SELECT id FROM {table} ORDER BY id", ["1", "41"]),
        (BOB, f"SELECT id FROM {table}", "42501"),
        (None, f"SELECT id FROM {table}", "28000"),
        (ALICE, f"CREATE TEMPORARY VIEW mine AS SELECT id FROM {table}", []),
        (ALICE, "SELECT count(*) FROM mine", ["2"]),
        (BOB, "SELECT count(*) FROM mine", "42P01"),
        (BOB, f"INSERT INTO {table} VALUES (1)", "42501"),
        (BOB, f"SHOW TABLES IN {bobs}", []),
        (
            ALICE,
            f"MERGE INTO {table} t USING (SELECT 41 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
            [],
        ),
        (ALICE, f"DELETE FROM {table} WHERE id = 7", []),
        (ALICE, f"CALL lake.system.expire_snapshots(table => '{short}')", ["0"]),
        (ALICE, f"SELECT id FROM {table}", ["1"]),
        (ALICE, f"SELECT id FROM {table} VERSION AS OF 1", "42704"),
        (ALICE, f"SELECT id FROM {table}_absent", "42P01"),
        (ALICE, "CALL lake.system.rotate_key(table => '')", "22023"),
        (ALICE, f"SELECT raise_error('n' || id) FROM {table}", "P0001"),
        (ALICE, f"SELECT id FROM {table} WHERE id = (SELECT id FROM range(2))", "21000"),
    ]
    settings = {**_SETTINGS, "spark.driver.extraClassPath": str(spark_jar())}
    with spark_process(
        spark_lake.service,
        _THRIFT,
        settings=settings,
        users=(BOB,),
        engine=None,
        environ={"LAKEWARDEN_TOKEN_FILE": str(engine_token_file(spark_lake.service.token(ALICE)))},
    ) as process:
        port = process.answer()
        for user, sql, expected in orders:
            process.tell([user, sql])
            answer = process.answer()
            assert answer == expected or answer[0] == expected, (user, sql, answer)
            assert spark_lake.service.token(ALICE) not in str(answer)
        _assert_beeline_shows(spark_lake, port, f"SELECT id + 41 FROM {table}", "42")


def _assert_beeline_shows(spark_lake: SparkLake, port: int, sql: str, shown: str) -> None:
    given = [
        "-n",
        "dave",
        "-u",
        f"jdbc:hive2://127.0.0.1:{port}/default;auth=noSasl",
        "--outputformat=tsv2",
        "-e",
        sql,
    ]
    token = f"lakewarden.catalog.{CATALOG}.token={spark_lake.service.token(ALICE)}"
    ran = subprocess.run(
        [find_spark(os.environ).root / "bin" / "beeline", "--hiveconf", token, *given],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.splitlines()[-1:] == [shown], ran.stderr[-3000:]
    assert spark_lake.service.token(ALICE) not in ran.stdout + ran.stderr


_PANDAS = """
import pyspark.pandas as ps
from pyspark.errors import PySparkException

source, target = told()
frame = ps.read_table(source)
answer(frame.groupby("p")["id"].sum().sort_index().to_dict())
answer(int((frame["id"] * 2).max()))
frame.merge(ps.DataFrame({"id": [3, 4, 9], "word": ["c", "d", "x"]}), on="id").to_table(target)
more = ps.DataFrame({"id": [5], "p": ["1"], "word": ["e"]})
more.spark.to_spark_io(target, format="iceberg", mode="append")
answer(ps.read_spark_io(target, format="iceberg").sort_values("id")["word"].to_list())
answer(ps.sql(f"SELECT sum(id) AS total FROM {target}")["total"].to_list())
try:
    ps.read_table(target + "_absent")
except PySparkException as error:
    answer(error.getCondition())
"""


def test_pandas_api_reads_and_writes_guarded_tables(spark_lake: SparkLake) -> None:
    namespace = spark_lake.namespace()
    rows = "SELECT id, CAST(id % 2 AS STRING) AS p FROM range(5)"
    spark_lake.rows(f"CREATE TABLE {namespace}.t {ENCRYPTED} AS {rows}")
    with spark_process(spark_lake.service, _PANDAS, engine=None) as process:
        process.tell([f"{namespace}.t", f"{namespace}.written"])
        answers = process.finish()
    assert answers == [{"0": 6, "1": 4}, 8, ["c", "d", "e"], [12], "TABLE_OR_VIEW_NOT_FOUND"]
