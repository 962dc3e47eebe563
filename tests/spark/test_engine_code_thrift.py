"""An engine serves nobody beside Spark's Thrift server, on a real one."""

from __future__ import annotations

import pytest

from spark_ext.jar import spark_jar
from tests.support.lake import BOB
from tests.support.spark import SparkLake
from tests.support.spark_process import spark_process

pytestmark = pytest.mark.nightly

#: On a free port, without authentication. In Spark 4.3 connections need a setting to set system properties.
_SETTINGS = {
    "spark.hadoop.hive.server2.authentication": "NOSASL",
    "spark.hadoop.hive.server2.thrift.bind.host": "127.0.0.1",
    "spark.hadoop.hive.server2.thrift.port": "0",
    "spark.sql.legacy.hive.thriftServer.allowSettingSystemProperties": "true",
}

#: Clients are Hive's JDBC driver, which Spark brings along, and the protocol itself.
_SERVER = """
java = spark._jvm
thrift, transport = java.org.apache.hive.service.rpc.thrift, java.org.apache.thrift


def outcome(action):
    try:
        return str(action())
    except Exception as error:
        return str(error)


def port(server):
    services = server.getServices()
    return next(each.getPortNumber() for each in list(services) if "Thrift" in each.getName())


def connected():
    url = f"jdbc:hive2://127.0.0.1:{at}/default;auth=noSasl"
    return java.java.sql.DriverManager.getConnection(url, "bob", "").createStatement().execute("SELECT 1")


def statement():
    socket = transport.transport.TSocket("127.0.0.1", at)
    socket.open()
    client = getattr(thrift, "TCLIService$Client")(transport.protocol.TBinaryProtocol(socket))
    session = thrift.TOpenSessionReq()
    session.setConfiguration({
        "set:system:lakewarden.test": "changed", given["token_setting"]: given["tokens"][given["user"]]
    })
    opened = client.OpenSession(session)
    return client.ExecuteStatement(thrift.TExecuteStatementReq(opened.getSessionHandle(), "SELECT 1"))


answer(outcome(lambda: spark.sql("SELECT 1").collect()))
server = java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
at = port(server.startWithContext(spark._jsparkSession.sqlContext()))
answer(outcome(connected))
answer(outcome(statement))
answer(outcome(lambda: java.java.lang.System.getProperty("lakewarden.test")))
answer(outcome(lambda: spark.sql("SELECT 1").collect()))
answer(outcome(lambda: session(given["user"]).range(1).collect()))
"""


def test_engine_refuses_every_statement_beside_a_thrift_server(spark_lake: SparkLake) -> None:
    # Threads of the Thrift server find classes on the driver's class path alone.
    settings = {**_SETTINGS, "spark.driver.extraClassPath": str(spark_jar())}
    with spark_process(spark_lake.service, _SERVER, settings=settings, user=BOB) as process:
        before, connected, statement, changed, *others = process.finish()
    assert before == "[Row(1=1)]"
    assert changed == "changed"  # before any statement
    for outcome in (connected, statement, *others):
        assert "CatalogNotTrusted: Spark's Thrift server runs in this engine" in outcome
