"""Streaming queries from guarded tables to guarded tables: each row once, whatever is stopped in between."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from policy.principal import Principal
from spark_ext.configuration import token_setting
from tests.support.lake import ALICE, BOB
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import active, refusal
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED

COLUMNS = "id INT, p STRING"
TOKEN = token_setting(CATALOG)


def read(spark_lake: SparkLake, table: str, **options: Any) -> DataFrame:
    """A table as a stream."""
    return spark_lake.spark.readStream.options(**_named(options)).table(table)


def run(frame: DataFrame, checkpoint: Path, table: str, mode: str = "append", **options: Any) -> None:
    """Write what there is now to a table, and wait."""
    writer = frame.writeStream.options(checkpointLocation=str(checkpoint), **_named(options))
    writer.outputMode(mode).trigger(availableNow=True).toTable(table).awaitTermination()


def forget_commit(checkpoint: Path) -> int:
    """Make a checkpoint what a crash leaves between the commit of the last epoch and Spark's record of it."""
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()
    return last


def offsets(checkpoint: Path) -> list[tuple[int, bool]]:
    """The positions of all micro-batches, and whether whole snapshots were read."""
    batches = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    found = [json.loads(each.read_text().splitlines()[-1]) for each in batches]
    return [(each["position"], each["scan_all_files"]) for each in found]


def rows(spark_lake: SparkLake, table: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark_lake.rows(f"SELECT * FROM {table}")))


def snapshots(spark_lake: SparkLake, table: str) -> list[Any]:
    return stock_table(spark_lake, table).metadata.snapshots


def _named(options: dict[str, Any]) -> dict[str, str]:
    return {name.replace("_", "-"): str(value).lower() for name, value in options.items()}


@pytest.fixture(scope="module")
def source(spark_lake: SparkLake) -> str:
    """An encrypted table of three files in two snapshots."""
    name = f"{spark_lake.namespace()}.source"
    create_table(spark_lake, name, COLUMNS, ENCRYPTED)
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'a')")
    append(spark_lake, name, 2, 6)
    return name


def append(spark_lake: SparkLake, table: str, first: int, end: int) -> None:
    """Append two files."""
    frame = spark_lake.spark.range(first, end, 1, 2)
    frame.selectExpr("INT(id)", "CHAR(97 + id % 3) AS p").writeTo(table).append()


def test_each_row_comes_once_when_a_query_is_stopped_after_its_commit(
    spark_lake: SparkLake, source: str, tmp_path: Path
) -> None:
    target = f"{source}_copy"
    half = ENCRYPTED | {"encryption.columns": "lakewarden:id"}
    create_table(spark_lake, target, COLUMNS, half, "bucket(2, p)")
    limited = read(spark_lake, source, streaming_max_files_per_micro_batch=1).where("id <> 3")
    run(limited, tmp_path, target, **{"snapshot-property.by": "stream"})
    assert offsets(tmp_path) == [(1, True), (1, False), (2, False)]
    assert forget_commit(tmp_path) == 2
    append(spark_lake, source, 6, 9)
    # The repeated micro-batch commits nothing; the others read all that came, in one.
    run(read(spark_lake, source).where("id <> 3"), tmp_path, target, **{"snapshot-property.by": "stream"})
    assert [each[0] for each in rows(spark_lake, target)] == [1, 2, 4, 5, 6, 7, 8]
    made = [each.summary for each in snapshots(spark_lake, target)]
    assert [each["spark.sql.streaming.epochId"] for each in made] == ["0", "1", "2", "3"]
    assert {each["by"] for each in made} == {"stream"}


@pytest.mark.nightly
def test_complete_mode_replaces_all_rows_by_each_epoch(
    spark_lake: SparkLake, source: str, tmp_path: Path
) -> None:
    target = f"{source}_counts"
    create_table(spark_lake, target, "p STRING, n BIGINT")
    spark_lake.rows(f"INSERT INTO {target} VALUES ('before', 0)")
    counted = read(spark_lake, source).groupBy("p").count().withColumnRenamed("count", "n")
    run(counted, tmp_path, target, "complete")
    counts = sorted(Counter(p for _, p in rows(spark_lake, source)).items())
    assert rows(spark_lake, target) == counts
    forget_commit(tmp_path)
    spark_lake.rows(f"INSERT INTO {target} VALUES ('later', 0)")
    run(counted, tmp_path, target, "complete")
    assert rows(spark_lake, target) == sorted([*counts, ("later", 0)])


@pytest.mark.nightly
def test_snapshots_that_are_no_appends_are_refused_or_skipped(
    spark_lake: SparkLake, source: str, tmp_path: Path
) -> None:
    changed, target = f"{source}_changed", f"{source}_kept"
    create_table(spark_lake, changed, COLUMNS, {}, "p")
    create_table(spark_lake, target, COLUMNS)
    for statement in (
        "INSERT INTO {} VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO {} VALUES (3, 'c')",
        "DELETE FROM {} WHERE p = 'b'",
        "INSERT OVERWRITE {} VALUES (9, 'z')",
        "INSERT INTO {} VALUES (4, 'd')",
    ):
        spark_lake.rows(statement.format(changed))
    start = {"start_snapshot_id": snapshots(spark_lake, changed)[0].snapshot_id}
    for skipped, message in (({}, "'delete'"), ({"streaming_skip_delete_snapshots": True}, "'overwrite'")):
        stream = read(spark_lake, changed, **start, **skipped)
        refused = refusal(lambda each=stream: run(each, tmp_path, target))
        assert "NotSupportedYet: The snapshot" in str(refused)
        assert message in str(refused)
    both = {"streaming_skip_delete_snapshots": True, "streaming_skip_overwrite_snapshots": True}
    run(read(spark_lake, changed, **start, **both), tmp_path, target)
    assert rows(spark_lake, target) == [(3, "c"), (4, "d")]


@pytest.mark.nightly
def test_refused_start_leaves_nothing_that_breaks_a_later_one(
    spark_lake: SparkLake, source: str, tmp_path: Path
) -> None:
    target = f"{source}_refused"
    stream = read(spark_lake, source)
    empty = read(spark_lake, source, streaming_max_rows_per_micro_batch=0)
    refused = [refusal(lambda: run(stream, tmp_path, target))]
    assert not spark_lake.spark.catalog.tableExists(target)
    create_table(spark_lake, target, COLUMNS)
    refused += [
        refusal(lambda: run(stream, tmp_path, target, "update")),
        refusal(lambda: run(stream.select("p", "id"), tmp_path, target)),
        refusal(lambda: run(stream.selectExpr("id AS p", "p AS id"), tmp_path, target)),
        refusal(lambda: run(stream, tmp_path, target, write_format="orc")),
        refusal(lambda: run(read(spark_lake, source, end_snapshot_id=1), tmp_path, target)),
        refusal(lambda: run(read(spark_lake, source, start_snapshot_id=1), tmp_path, target)),
        refusal(lambda: run(empty, tmp_path, target)),
    ]
    kinds = ["NotSupportedYet"] * 2 + ["RequestInvalid"] * 2 + ["NotSupportedYet"] * 2
    for each, kind in zip(refused, [*kinds, "NoSuchSnapshot", "RequestInvalid"], strict=True):
        assert f"{kind}: " in str(each)
    assert snapshots(spark_lake, target) == []
    run(stream, tmp_path, target)
    assert rows(spark_lake, target) == rows(spark_lake, source)


@pytest.mark.nightly
def test_query_has_the_token_that_its_session_has_now(
    spark_lake: SparkLake, source: str, tmp_path: Path
) -> None:
    target = f"{source}_tokens"
    create_table(spark_lake, target, COLUMNS)
    spark_lake.rows(f"INSERT INTO {target} VALUES (0, 'z')")
    session = spark_lake.new_session(None)
    tokens = spark_lake.service.lake.services.tokens
    first, second = (tokens.issue(Principal(ALICE), "user", None) for _ in range(2))
    session.conf.set(TOKEN, first.text)
    stream = session.readStream.option("stream-from-timestamp", 1).table(source)
    query = stream.writeStream.option("checkpointLocation", str(tmp_path)).toTable(target)
    try:
        query.processAllAvailable()
        session.conf.set(TOKEN, second.text)
        tokens.revoke(first.id)
        append(spark_lake, source, 20, 22)
        query.processAllAvailable()
        assert {20, 21} <= {each for each, _ in rows(spark_lake, target)}
        session.conf.set(TOKEN, spark_lake.service.token(BOB))
        append(spark_lake, source, 22, 24)
        refused = refusal(query.processAllAvailable)
        assert "NotAuthorized: " in str(refused)
    finally:
        query.stop()
    assert not {22, 23} & {each for each, _ in rows(spark_lake, target)}


@pytest.mark.nightly
def test_plans_of_a_stream_hold_no_table_of_another_user(
    spark_lake: SparkLake, source: str, namespace: str, tmp_path: Path
) -> None:
    """Each part of them by itself: the source and the sink, of the query and of a micro-batch."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, COLUMNS)
    frame = read(spark_lake, source)
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = writer.toTable(table)
    query.awaitTermination()
    jvm: Any = spark_lake.spark._jvm
    execution = query._jsq.streamingQuery()
    batch = execution.lastExecution().logical()
    nothing = jvm.scala.jdk.javaapi.CollectionConverters.asScala(
        jvm.java.util.List.of(jvm.org.apache.spark.sql.catalyst.plans.logical.OneRowRelation())
    ).toIndexedSeq()
    no: Any = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    begun = jvm.org.apache.spark.sql.catalyst.streaming.WriteToStream(
        "q",
        *(() if spark_lake.spark.version.startswith("4.1") else (no,)),
        str(tmp_path),
        execution.sink(),
        execution.outputMode(),
        False,
        frame._jdf.logicalPlan(),
        no,
        no,
    )
    parts = {
        "StreamingRelationV2": frame._jdf.queryExecution().analyzed().collectLeaves().head(),
        "WriteToStream": begun.withNewChildren(nothing),
        "StreamingDataSourceV2ScanRelation": batch.collectLeaves().head(),
        "WriteToMicroBatchDataSource": batch.withNewChildren(nothing),
    }
    assert {name: part.nodeName() for name, part in parts.items()} == {name: name for name in parts}
    kept = {
        name: tuple(_is_refused(spark_lake, user, part) for user in (ALICE, BOB))
        for name, part in parts.items()
    }
    assert kept == dict.fromkeys(parts, (False, True))


def _is_refused(spark_lake: SparkLake, user: str, plan: Any) -> bool:
    """Whether a session of a user refuses a plan of Alice's."""
    session: Any = spark_lake.session(user)
    rules = session._jvm.org.apache.spark.sql.lakewarden.catalog.SessionUserRule
    with active(session):
        try:
            rules.of(session._jsparkSession).get().apply(plan)
        except PySparkException as refused:
            assert refused.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED", refused
            return True
    return False
