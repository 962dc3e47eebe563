"""Code in requests of Spark Connect takes the permission `engine:code`, on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.lake import ALICE, BOB
from tests.support.service import Service
from tests.support.spark import SparkLake
from tests.support.spark_process import spark_process

pytestmark = pytest.mark.nightly

_INTERCEPTOR = "spark.connect.grpc.interceptor.classes"

_ISOLATION = "spark.sql.artifact.isolation.enabled"

#: Starts a server without the interceptor; one with it, whose sessions share artifacts, as PySpark has it;
#: and one without either fault, which listens until it is told to stop.
_SERVER = f"""
service = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService
module = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")


def stop():
    service.stop(spark._jvm.scala.Option.empty(), spark._jvm.scala.Option.empty())
    spark.stop()


def asked():
    service.start(spark._jsc.sc())
    try:
        spark.sql("SELECT 1").collect()
        answer("answered")
    except Exception as error:
        answer(str(error))
    stop()
    relaunch_engine()


asked()
spark = builder.config({_INTERCEPTOR!r}, "lakewarden.spark.LakewardenConnectInterceptor").getOrCreate()
asked()
spark = builder.config({_ISOLATION!r}, "true").getOrCreate()
service.start(spark._jsc.sc())
answer(getattr(module, "MODULE$").server().getPort())
told()
stop()
"""

#: A client in a process of its own, since a process has one kind of sessions. It runs each action of the list
#: that it is given, and answers "done" or the error of each.
_CLIENT = r"""
import json, sys, zipfile
from pathlib import Path

import pandas as pd
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, Window, functions as f
from pyspark.sql.datasource import DataSource

given = json.loads(sys.stdin.read())
folder = Path(given["folder"])
table = given["table"]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{given['port']}").create()
spark.conf.set("lakewarden.catalog.lake.token", given["token"])
lines = folder / "lines.txt"
lines.write_text("one\n")
orders = lambda: spark.table(table)
small = lambda: spark.createDataFrame([(1, "a"), (2, "b")], "id int, item string")
groups = lambda: small().groupBy("id")


class Rows:
    def eval(self, n: int):
        yield (n,)


class Source(DataSource):
    def schema(self):
        return "a int"


def artifact(name, **kind):
    file = folder / name
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.txt", "x")
    spark.addArtifacts(str(file), **kind)


def kept():
    frame = orders().cache()
    frame.count()
    frame.unpersist()


def scalar():
    return f.udf(lambda x: x + 1, "int")


EVERYDAY = {
    "iceberg by name": lambda: spark.read.format("iceberg").load(table).collect(),
    "SQL": lambda: spark.sql("SELECT upper('a')").collect(),
    "SQL with arguments": lambda: spark.sql("SELECT :a", args={"a": 1}).collect(),
    "SQL over a frame": lambda: spark.sql("SELECT * FROM {frame}", frame=small()).collect(),
    "table": lambda: orders().filter("id > 0").select("item").orderBy("item").collect(),
    "version": lambda: spark.read.table(table).limit(1).toPandas(),
    "rows": lambda: small().groupBy("id").agg(f.count("*"), f.max("item")).collect(),
    "count of groups": lambda: small().groupBy("id").count().collect(),
    "rows of inferred types": lambda: spark.createDataFrame([{"a": 1, "b": [1.5]}]).collect(),
    "rows of pandas": lambda: spark.createDataFrame(pd.DataFrame({"a": [1, 2]})).toPandas(),
    "no rows": lambda: spark.createDataFrame([], "a int").collect(),
    "many rows": lambda: spark.createDataFrame([("a" * 1000,)] * 3000, "a string").count(),
    "join": lambda: orders().join(small(), "id", "left").collect(),
    "window": lambda: orders().withColumn("n", f.row_number().over(Window.orderBy("id"))).collect(),
    "pivot": lambda: orders().groupBy("id").pivot("item", ["tea"]).count().collect(),
    "union": lambda: small().union(small()).distinct().collect(),
    "lambda": lambda: spark.range(1).select(f.transform(f.array(f.lit(1)), lambda x: x + 1)).collect(),
    "explode": lambda: spark.range(1).select(f.explode(f.array(f.lit(1)))).collect(),
    "exists": lambda: orders().where(small().where(f.col("id") == f.col("id").outer()).exists()).collect(),
    "describe": lambda: spark.range(3).describe().collect(),
    "summary": lambda: spark.range(3).summary().collect(),
    "statistics": lambda: spark.range(3).approxQuantile("id", [0.5], 0.1),
    "missing values": lambda: small().na.fill("x").na.drop().dropDuplicates(["id"]).collect(),
    "show": lambda: orders().show(),
    "schema": lambda: (orders().schema, orders().printSchema(), orders().explain()),
    "sample": lambda: orders().sample(0.5).collect(),
    "repartition": lambda: orders().repartition(2, "id").collect(),
    "cache": kept,
    "view": lambda: (orders().createOrReplaceTempView("v"), spark.table("v").collect()),
    "JSON": lambda: spark.range(1).select(f.from_json(f.lit('{"a": 1}'), "a int")).collect(),
    "append": lambda: small().writeTo(table).append(),
    "insert": lambda: small().write.insertInto(table),
    "save as table": lambda: small().write.mode("append").saveAsTable(table),
    "create": lambda: small().writeTo(table + "_copy").using("iceberg").create(),
    "drop": lambda: spark.sql(f"DROP TABLE {table}_copy"),
    "catalog": lambda: (spark.catalog.listDatabases(), spark.catalog.tableExists(table)),
    "use": lambda: [spark.catalog.setCurrentCatalog(name) for name in ("lake", "spark_catalog")],
    "setting": lambda: spark.conf.set("spark.sql.shuffle.partitions", "3"),
    "setting that is read": lambda: spark.conf.get("spark.sql.shuffle.partitions"),
    "setting that is reset": lambda: spark.conf.unset("spark.sql.shuffle.partitions"),
    "interruption": lambda: spark.interruptAll(),
}
CODE = {
    "file": lambda: artifact("sent.txt", file=True),
    "Python file": lambda: artifact("code.zip", pyfile=True),
    "archive": lambda: artifact("sent.zip", archive=True),
    "UDF": lambda: small().select(scalar()("id")).collect(),
    "UDF in a filter": lambda: orders().where(scalar()("id") > 0).collect(),
    "pandas UDF": lambda: small().select(f.pandas_udf(lambda x: x, "int")("id")).collect(),
    "UDTF": lambda: f.udtf(Rows, returnType="n int")(f.lit(1)).collect(),
    "mapInPandas": lambda: small().mapInPandas(lambda frames: frames, "id int, item string").collect(),
    "mapInArrow": lambda: small().mapInArrow(lambda frames: frames, "id int, item string").collect(),
    "applyInPandas": lambda: groups().applyInPandas(lambda frame: frame, "id int, item string").collect(),
    "cogroup": lambda: (
        groups().cogroup(groups()).applyInPandas(lambda a, b: a, "id int, item string").collect()
    ),
    "registered UDF": lambda: spark.udf.register("registered", lambda x: x),
    "registered UDTF": lambda: spark.udtf.register("registered_rows", f.udtf(Rows, returnType="n int")),
    "registered source": lambda: spark.dataSource.register(Source),
    "path": lambda: spark.read.load(str(lines), format="text").collect(),
    "text": lambda: spark.read.text(str(lines)).collect(),
    "path in SQL": lambda: spark.sql(f"SELECT * FROM text.`{lines}`").collect(),
    "path as a table": lambda: spark.table(f"text.`{lines}`").collect(),
    "write": lambda: small().write.mode("overwrite").parquet(str(folder / "written")),
    "write of a source": lambda: small().write.format("noop").mode("append").save(),
    "stream": lambda: spark.readStream.format("text").load(str(folder)).isStreaming,
    "stream of rates": lambda: spark.readStream.format("rate").load().isStreaming,
    "streams": lambda: spark.streams.active,
    "local checkpoint": lambda: spark.range(1).localCheckpoint(),
    "reflect": lambda: spark.range(1).selectExpr("reflect('java.lang.String', 'valueOf', 1)").collect(),
    "function by its name": lambda: (
        small().select(f.call_function("reflect", f.lit("java.util.UUID"), f.lit("randomUUID"))).collect()
    ),
    "all settings": lambda: spark.conf.getAll,
    "setting of a launch": lambda: spark.conf.get("spark.sql.warehouse.dir"),
    "setting off the list": lambda: spark.conf.set("spark.sql.streaming.checkpointLocation", str(folder)),
    "catalog in a session": lambda: spark.conf.set("spark.sql.catalog.evil", "absent.Class"),
    "variables in SQL": lambda: spark.conf.set("spark.sql.variable.substitute", "true"),
    "setting that is taken away": lambda: spark.conf.unset("spark.sql.variable.substitute"),
}
#: These are refused, too; with the permission they fail for want of what they name.
ABSENT = {
    "file to the file system": lambda: spark.copyFromLocalToFs(str(lines), str(folder / "copied")),
    "Java function": lambda: spark.udf.registerJavaFunction("g", "absent.Class"),
    "iceberg by path": lambda: spark.read.format("iceberg").load(str(folder)).collect(),
    "iceberg of another catalog": lambda: spark.read.load("spark_catalog.d.x", format="iceberg").collect(),
    "jdbc": lambda: spark.read.jdbc("jdbc:derby:/absent", "t").collect(),
    "stream that is written": lambda: spark.readStream.table(table).writeStream.format("console").start(),
    "checkpoint": lambda: spark.range(1).checkpoint(),
    "table of files": lambda: spark.catalog.createTable("spark_catalog.default.files", str(folder), "text"),
    "refresh by path": lambda: spark.catalog.refreshByPath(str(folder)),
}


def outcome(action):
    try:
        action()
        return "done"
    except Exception as error:
        typed = (error.getCondition(), error.getSqlState()) if isinstance(error, PySparkException) else None
        return f"{type(error).__name__} {typed}: {error}"[:1000]


def outcomes(actions):
    return {name: outcome(action) for name, action in actions.items()}


KINDS = {"everyday": EVERYDAY, "code": CODE, "absent": ABSENT}
answers = {kind: outcomes(KINDS[kind]) for kind in given["kinds"]}
sys.stdout.write("answer:" + json.dumps(answers))
"""


class Server(NamedTuple):
    """A Connect server of an engine, its port, and how its predecessors answered."""

    service: Service
    port: int
    without: str
    shared: str


@pytest.fixture(scope="module")
def server(spark_lake: SparkLake) -> Iterator[Server]:
    for user in (ALICE, BOB):
        spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS lake.{user}s")
        spark_lake.rows(f"CREATE TABLE lake.{user}s.connected (id INT, item STRING)", user)
        spark_lake.rows(f"INSERT INTO lake.{user}s.connected VALUES (1, 'tea')", user)
    settings = {"spark.connect.grpc.binding.port": "0", _INTERCEPTOR: ""}
    environ = {"PYSPARK_PYTHON": sys.executable}
    with spark_process(spark_lake.service, _SERVER, settings=settings, environ=environ) as process:
        without, shared = process.answer(), process.answer()
        yield Server(spark_lake.service, process.answer(), without, shared)


def _outcomes(server: Server, user: str, folder: Path, *kinds: str) -> dict[str, dict[str, str]]:
    given = {
        "port": server.port,
        "token": server.service.token(user),
        "kinds": kinds,
        "folder": str(folder),
        "table": f"lake.{user}s.connected",
    }
    ran = subprocess.run(
        [sys.executable, "-c", _CLIENT], input=json.dumps(given), capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[:1000]
    answers: dict[str, dict[str, str]] = json.loads(ran.stdout.partition("answer:")[2])
    return answers


def test_user_without_the_permission_sends_no_code(server: Server, tmp_path: Path) -> None:
    outcomes = _outcomes(server, BOB, tmp_path, "everyday", "code", "absent")
    assert {name: each for name, each in outcomes["everyday"].items() if each != "done"} == {}
    refused = outcomes["code"] | outcomes["absent"]
    assert {name: each for name, each in refused.items() if "engine-code" not in each} == {}
    typed = "AnalysisException ('LAKEWARDEN.NOT_AUTHORIZED', '42501'): NotAuthorized: "
    odd = {name for name, each in refused.items() if not each.startswith(typed)}
    assert odd == {"file to the file system"}  # PySpark's client raises gRPC's own error there


@pytest.mark.slow
def test_user_with_the_permission_sends_code(server: Server, tmp_path: Path) -> None:
    outcomes = _outcomes(server, ALICE, tmp_path, "code", "absent")
    assert {name: each for name, each in outcomes["code"].items() if each != "done"} == {}
    assert "engine-code" not in str(outcomes["absent"])


def test_server_without_the_interceptor_refuses_every_statement(server: Server) -> None:
    assert f"CatalogNotTrusted: A Spark Connect server runs without {_INTERCEPTOR}" in server.without


def test_server_whose_sessions_share_artifacts_refuses_every_statement(server: Server) -> None:
    assert f"CatalogNotTrusted: A Spark Connect server runs with {_ISOLATION}=false" in server.shared
