"""Whatever a user with a row filter and masks writes in Spark, hidden rows and values answer nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from policy.restrictions.predicate import Compare, Comparison, Literal
from tests.planning.test_plan_restrictions import filtering, masking
from tests.support.lake import ALICE, CAROL, policy, standard_policies
from tests.support.reads import data_files, refused
from tests.support.restrictions import restricted
from tests.support.row_model import REPLACES
from tests.support.spark import SparkLake
from tests.support.spark_plans import explained, is_cached
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import master_keys, stock_table

pytestmark = pytest.mark.core

WRITES = policy("writes", {"database": ["db"], "table": ["*"]}, {CAROL: ["update", "alter", "create"]})
RULES = [
    WRITES,
    filtering("id < 10 AND region <> 'secret-region'"),
    masking("s", "show-first-4", "texts"),
    masking("n", "MASK_SHOW_LAST_4", "numbers"),
]
#: What Carol sees, and what is hidden from her: a row of each file, and a file.
SEEN = "(1, 'aaaa-one', 1, 'eu'), (2, 'bbbb-two', 2, 'eu'), (3, NULL, 3, 'us')"
HIDDEN = (
    "(10, 'hidden-ten', 0, 'eu'), (11, 'hidden-eleven', 0, 'secret-region'), (9, 'x', 0, 'secret-region')"
)
#: The same as she sees it.
SHOWN = "(1, 'aaaa-xxx', 1, 'eu'), (2, 'bbbb-xxx', 2, 'eu'), (3, NULL, 3, 'us')"

#: Statements whose expressions fail, or answer otherwise, for a hidden row or an unmasked value.
PROBES = (
    "SELECT sum(6 / n) FROM {t}",
    "SELECT id FROM {t} WHERE 6 / n > 1",
    "SELECT id FROM {t} WHERE CAST(replace(s, 'hidden-ten', 'no') AS STRING) < 'c' AND 1 / (10 - id) > 0",
    "SELECT CAST(region AS INT) FROM {t} WHERE id > 9",
    "SELECT IF(id > 8, raise_error(s), id) FROM {t}",
    "SELECT id FROM {t} WHERE IF(region = 'secret-region', raise_error(region), true)",
    "SELECT id FROM {t} WHERE IF(s = 'aaaa-one', raise_error('unmasked'), id < 3)",
    "SELECT assert_true(n > 0) FROM {t}",
    "SELECT CAST(s AS INT) FROM {t} WHERE id = 1",
    "SELECT a.id, b.s FROM {t} a JOIN {t} b ON IF(a.id + b.id > 16, raise_error('probe'), a.id = b.id)",
    "SELECT a.id FROM {t} a LEFT ANTI JOIN {t} b ON 1 / b.n > 2 AND a.id = b.id",
    "SELECT id FROM {t} WHERE id IN (SELECT id FROM {t} WHERE 6 / n > 1)",
    "SELECT id FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE b.id = a.id + 7 OR b.s = 'hidden-ten')",
    "SELECT (SELECT n FROM {t} WHERE region NOT IN ('eu', 'us') OR id = 2)",
    "SELECT count(*), count(s), count(DISTINCT region), min(n), max(id), max(s), sum(n) FROM {t}",
    "SELECT region, count(*), max(s) FROM {t} GROUP BY region",
    "SELECT id, lead(s) OVER (ORDER BY id), count(*) OVER () FROM {t}",
    "SELECT s, n FROM {t} ORDER BY id DESC LIMIT 1",
    "SELECT count(*) FROM (SELECT 1 FROM {t} LIMIT 5)",
    "SELECT count(*) FROM {t} TABLESAMPLE (100 PERCENT)",
    "SELECT count(*) FROM {t} TABLESAMPLE (5 ROWS)",
    "SELECT id FROM {t} WHERE s LIKE 'hidden%' OR s = 'aaaa-xxx' OR n = 0",
    "SELECT id FROM {t} WHERE region = 'secret-region' OR id >= 9",
    "SELECT id FROM {t} EXCEPT SELECT id FROM {t} WHERE id > 1",
    "SELECT x FROM {t} LATERAL VIEW explode(sequence(1, 20 DIV (10 - id))) AS x",
    "WITH c AS (SELECT * FROM {t}) SELECT max(s) FROM c WHERE 1 / n > 0",
    "SELECT id FROM {t} VERSION AS OF 'main' WHERE 6 / n > 1",
    "SELECT percentile(id, 1.0), collect_set(region), approx_count_distinct(s) FROM {t}",
    "SELECT count(*), max(id), max(s) FROM {t} GROUP BY GROUPING SETS ((region), ())",
    "SELECT id, input_file_name(), input_file_block_start() FROM {t}",
    "SELECT region, s FROM {t} PIVOT (count(id) FOR n IN (0, 1))",
)


#: In few jobs: everything that can fail for a row.
QUICK = (
    "SELECT sum(6 / n), max(CAST(region AS STRING)), count(assert_true(id < 9)), max(s) FROM {t} "
    "WHERE IF(s = 'aaaa-one' OR id > 8, raise_error(s), 6 / n > 1)",
    "SELECT a.id, b.s FROM {t} a JOIN {t} b ON IF(a.id + b.id > 16, raise_error('probe'), a.id = b.id)",
)


@pytest.fixture(scope="module")
def tables(spark_lake: SparkLake) -> Iterator[tuple[str, str]]:
    """A table that Carol sees a part of, and one of Alice's with what Carol sees."""
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.shown")
    table, shown = "lake.db.held", "lake.shown.held"
    for name in (table, shown):
        spark_lake.rows(f"CREATE TABLE {name} (id INT, s STRING, n INT, region STRING)")
    spark_lake.rows(f"INSERT INTO {shown} SELECT /*+ COALESCE(1) */ * FROM VALUES {SHOWN}")
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {SEEN}, {HIDDEN}")
    spark_lake.rows(f"INSERT INTO {table} VALUES (20, 'hidden-file', 0, NULL)")
    yield table, shown


@pytest.fixture(autouse=True)
def rules(spark_lake: SparkLake) -> Iterator[None]:
    spark_lake.lake.set_policies([*standard_policies(), *RULES])
    yield
    spark_lake.lake.set_policies(standard_policies())


def answered(spark_lake: SparkLake, statement: str, user: str) -> Any:
    """The rows, or the error."""
    try:
        return sorted(map(str, spark_lake.rows(statement, user)))
    except PySparkException as error:
        return error.getCondition(), error.getMessageParameters()


def test_no_expression_sees_a_hidden_row_or_value(spark_lake: SparkLake, tables: tuple[str, str]) -> None:
    for probe in QUICK:
        seen, told = (
            answered(spark_lake, probe.format(t=name), user)
            for name, user in zip(tables, (CAROL, ALICE), strict=True)
        )
        assert seen == told, probe


@pytest.mark.nightly
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("probe", PROBES)
def test_each_statement_answers_as_for_a_table_of_what_is_shown(
    spark_lake: SparkLake, tables: tuple[str, str], probe: str, compiled: bool
) -> None:
    for user in (CAROL, ALICE):
        spark_lake.session(user).conf.set("spark.sql.codegen.wholeStage", compiled)
    try:
        seen = answered(spark_lake, probe.format(t=tables[0]), CAROL)
        assert seen == answered(spark_lake, probe.format(t=tables[1]), ALICE)
        assert "hidden" not in str(seen) and "secret" not in str(seen)
    finally:
        for user in (CAROL, ALICE):
            spark_lake.session(user).conf.unset("spark.sql.codegen.wholeStage")


@pytest.mark.nightly
def test_the_task_of_a_row_does_not_depend_on_hidden_rows(spark_lake: SparkLake, namespace: str) -> None:
    """However small tasks are asked to be: where the middle of a row group lies would tell of its size."""
    name = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {name} (id INT, s STRING)")
    for rows in ("SELECT 1, 'seen'", "SELECT 1, 'seen' UNION ALL SELECT id + 10, uuid() FROM range(500)"):
        spark_lake.rows(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM ({rows})")
    asked = "SELECT spark_partition_id() AS task, _file FROM {} WITH ('split-size' = '{}')"
    with restricted(Compare(Comparison.LT, 1, Literal("int", 10))):
        tasks = [sorted(spark_lake.rows(asked.format(name, size))) for size in (64, 1024, 1 << 20)]
        assert len(tasks[0]) == 2 and tasks[0] == tasks[1] == tasks[2]
        spark_lake.rows(f"INSERT INTO {name} SELECT id + 10, uuid() FROM range(500)")
        assert sorted(spark_lake.rows(asked.format(name, 64))) == tasks[0]
        with configured(spark_lake, "spark.sql.files.minPartitionNum", "1"):
            assert [each.task for each in spark_lake.rows(asked.format(name, 64))] == [0, 0]
    sizes = {tuple(sorted(spark_lake.rows(asked.format(name, size)))) for size in (64, 1 << 20)}
    assert len(sizes) == 2


@pytest.mark.nightly
def test_the_later_a_task_begins_the_fewer_files_it_gets(spark_lake: SparkLake) -> None:
    """By names alone. Otherwise the last tasks keep the query waiting as long as the first."""
    jvm: Any = spark_lake.spark.sparkContext._jvm
    shares = jvm.org.apache.spark.sql.lakewarden.read.TaskShares
    names = [f"s3://bucket/table/{number}.parquet" for number in range(800)]
    for tasks, cores, wanted in (
        (8, 2, (7, 7, 5, 5, 3, 3, 1, 1)),
        (5, 4, (3, 3, 3, 3, 1)),
        (3, 4, (1, 1, 1)),
    ):
        of = shares(tasks, cores)
        found = Counter(map(of.of, names))
        assert found.keys() == set(range(tasks))
        for task, share in enumerate(wanted):
            assert abs(found[task] / len(names) - share / sum(wanted)) < 0.04, (tasks, cores, task)


def test_a_null_field_of_a_struct_is_read_without_its_key(spark_lake: SparkLake) -> None:
    """Also in a list; elements without their key are refused by what is to be done."""
    master_keys(spark_lake, "pii")
    name = "lake.db.nulled"
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark_lake.rows(
        f"CREATE TABLE {name} (id INT, st STRUCT<a: INT, b: STRING, c: STRUCT<x: INT>>, "
        "l ARRAY<STRUCT<y: INT, z: STRING>>, e ARRAY<INT>) "
        "TBLPROPERTIES ('encryption.columns' = 'pii:st.a,st.c,l.element.y,e.element')"
    )
    struct = "named_struct('a', 7, 'b', 'b', 'c', named_struct('x', 8))"
    listed = "array(named_struct('y', 9, 'z', 'z'))"
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, {struct}, {listed}, array(1)), (2, NULL, NULL, NULL)")
    rules = [masking(each, "MASK_NULL", each) for each in ("st.a", "st.c", "l.element.y", "e.element")]
    spark_lake.lake.set_policies([*standard_policies(), *rules])
    found = spark_lake.rows(f"SELECT st, l FROM {name} ORDER BY id", CAROL)
    assert found == [((None, "b", None), [(None, "z")]), (None, None)]
    asked = f"SELECT st.a, st.b, st.c.x, l.y FROM {name} WHERE st.b = 'b' AND st.a IS NULL"
    assert spark_lake.rows(asked, CAROL) == [(None, "b", None, [None])]
    message = refused(spark_lake, f"SELECT e FROM {name}", "NOT_SUPPORTED_YET", "mask-type", CAROL)
    assert "Ask for a mask of the whole column" in message


@pytest.mark.nightly
def test_hashes_of_a_query_have_one_salt_that_no_setting_chooses(
    spark_lake: SparkLake, tables: tuple[str, str]
) -> None:
    name = tables[0]
    spark_lake.lake.set_policies([*standard_policies(), *RULES[:2], masking("s", "sha-256-query-local")])
    joined = (
        f"SELECT a.s FROM {name} a JOIN {name} b ON a.s = b.s "
        f"WHERE a.s IN (SELECT s FROM {name} WHERE id = 1) AND a.s = (SELECT min(s) FROM {name} WHERE id = 1)"
    )
    frame = spark_lake.session(CAROL).sql(joined)
    hashes = [frame.collect(), spark_lake.rows(joined, CAROL), spark_lake.rows(joined, CAROL)]
    assert [len(each) for each in hashes] == [1, 1, 1] and len(set(map(str, hashes))) == 3
    key = "spark.sql.execution.root.id"
    refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"SET {key}=7")
    with restricted(masks={2: "sha-256-query-local"}):
        spark_lake.rows(f"SET {key}=7")
        refused(spark_lake, f"SELECT s FROM {name}", "REQUEST_INVALID", "query-salt")
        spark_lake.rows(f"RESET {key}")


@pytest.mark.nightly
def test_cached_rows_serve_neither_another_user_nor_other_policies(
    spark_lake: SparkLake, tables: tuple[str, str]
) -> None:
    name, asked = tables[0], f"SELECT id, s FROM {tables[0]} ORDER BY id"
    alice, carol = spark_lake.session(ALICE), spark_lake.session(CAROL)
    every = spark_lake.rows(asked)
    shown = spark_lake.rows(asked, CAROL)
    kept = alice.table(name).persist()
    assert kept.count() == len(every) == 7
    tighter = [*standard_policies(), filtering("id < 2"), masking("s", "MASK_NULL")]
    try:
        alice.sql(f"CACHE TABLE {name}")
        assert is_cached(alice.sql(asked)) and not is_cached(carol.sql(asked))
        assert spark_lake.rows(asked, CAROL) == shown == [(1, "aaaa-xxx"), (2, "bbbb-xxx"), (3, None)]
        carol.sql(f"CACHE TABLE {name}")
        carol.sql(f"CREATE OR REPLACE TEMP VIEW mine AS SELECT id, s FROM {name}")
        carol.sql("CACHE TABLE mine")
        assert is_cached(carol.sql(asked)) and spark_lake.rows(asked, CAROL) == shown
        assert spark_lake.rows("SELECT * FROM mine ORDER BY id", CAROL) == shown
        assert spark_lake.rows(asked) == every
        spark_lake.lake.set_policies(tighter)
        for again in (asked, "SELECT * FROM mine ORDER BY id"):
            assert not is_cached(carol.sql(again))
            assert spark_lake.rows(again, CAROL) == [(1, None)]
        assert spark_lake.rows(asked) == every
    finally:
        kept.unpersist()
        alice.catalog.clearCache()


@pytest.mark.nightly
def test_neither_plans_nor_the_ui_nor_the_event_log_show_what_is_hidden(
    spark_lake: SparkLake, tables: tuple[str, str], tmp_path: Path
) -> None:
    """What is shown to administrators of the engine alone, such as logs, is not looked at."""
    name = tables[0]
    statements = (
        f"SELECT region, count(*), max(s), sum(n) FROM {name} GROUP BY region",
        f"SELECT a.s FROM {name} a JOIN {name} b ON a.region = b.region WHERE b.n > 1 ORDER BY a.id",
        f"SELECT * FROM {name} WHERE n = 1 AND s > 'a' LIMIT 1",
        f"SELECT max(id), count(*) FROM {name}",
        f"INSERT INTO lake.db.copied SELECT id, s FROM {name} WHERE n > 0",
    )
    spark_lake.rows("CREATE OR REPLACE TABLE lake.db.copied (id INT, s STRING)")
    hidden = ("hidden-", "secret-region", "aaaa-one", "bbbb-two", "required-row-filter", "show-first-4")
    told = ""
    with event_log(spark_lake, tmp_path) as log:
        for statement in statements:
            for mode in ("EXTENDED", "COST", "FORMATTED", "CODEGEN"):
                told += str(spark_lake.rows(f"EXPLAIN {mode} {statement}", CAROL))
            spark_lake.rows(statement, CAROL)
    told += log.read_text()
    assert name in told and "SparkListenerTaskEnd" in told and "SparkListenerSQLExecutionStart" in told
    assert [each for each in hidden if each in told] == []
    store = spark_lake.spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    shown = [str(executions.apply(at).physicalPlanDescription()) for at in range(executions.size())]
    assert [each for each in hidden for plan in shown[-len(statements) :] if each in plan] == []


@contextmanager
def event_log(spark_lake: SparkLake, directory: Path) -> Iterator[Path]:
    """What Spark writes into its event log meanwhile."""
    context = spark_lake.spark.sparkContext
    jvm: Any = context._jvm
    scala = context._jsc.sc()
    conf = (
        scala.conf()
        .clone()
        .set("spark.eventLog.compress", "false")
        .set("spark.eventLog.rolling.enabled", "false")
    )
    uri = jvm.java.io.File(str(directory)).toURI()
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "held", jvm.scala.Option.apply(None), uri, conf, scala.hadoopConfiguration()
    )
    bus = scala.listenerBus()
    listener.start()
    bus.addToEventLogQueue(listener)
    try:
        yield directory / "held"
        bus.waitUntilEmpty()
    finally:
        bus.removeListener(listener)
        listener.stop()


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("rule", ["filter", "mask"])
def test_rows_are_added_and_not_changed(spark_lake: SparkLake, mode: str, rule: str) -> None:
    name = f"lake.db.changed_{rule}_{mode.replace('-', '_')}"
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    modes = ", ".join(f"'write.{each}.mode' = '{mode}'" for each in ("delete", "update", "merge"))
    spark_lake.rows(
        f"CREATE TABLE {name} (id INT, s STRING, region STRING) PARTITIONED BY (region) "
        f"TBLPROPERTIES ({modes})"
    )
    spark_lake.rows(
        f"INSERT INTO {name} VALUES (1, 'one', 'eu'), (2, 'two', 'us'), (3, 'three', 'secret-region')"
    )
    restricting = filtering("region <> 'secret-region'") if rule == "filter" else masking("s", "show-first-4")
    spark_lake.lake.set_policies([*standard_policies(), WRITES, restricting])
    before = state(spark_lake, name)
    removing = (
        "DELETE FROM {}",
        "DELETE FROM {} WHERE id = 3",
        "DELETE FROM {} WHERE region = 'us'",
        "TRUNCATE TABLE {}",
        "CALL lake.system.compute_table_stats(table => '{}', columns => array('id'))",
        "SELECT _pos FROM {}",
    )
    for statement in (
        *(removing if rule == "filter" else ()),
        "DELETE FROM {} WHERE s = 'three'",
        "UPDATE {} SET s = 'x'",
        "UPDATE {} SET region = 'eu' WHERE id = 2",
        "MERGE INTO {} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = 'x'",
        "MERGE INTO {} USING (SELECT 'two' AS i) s ON s = i WHEN NOT MATCHED THEN INSERT (id) VALUES (9)",
        "INSERT OVERWRITE {} SELECT * FROM {}",
        "INSERT OVERWRITE {} PARTITION (region = 'us') VALUES (4, 'four')",
        "INSERT INTO {} REPLACE WHERE id = 1 VALUES (1, 'x', 'eu')",
        "INSERT INTO {} REPLACE WHERE region = 'us' VALUES (1, 'x', 'us')",
        *(["INSERT INTO {} REPLACE USING (id) VALUES (1, 'x', 'eu')"] if REPLACES else []),
        "CALL lake.system.rewrite_data_files(table => '{}')",
        "CALL lake.system.compute_table_stats(table => '{}')",
        "SELECT * FROM {}.changes",
    ):
        error = refusal(lambda each=statement: spark_lake.rows(each.format(name, name), CAROL))  # type: ignore[misc]
        assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED", (statement, error)
        told = [each for each in ("secret-region", "three") if each in str(error) and each not in statement]
        assert not told, error
        assert state(spark_lake, name) == before, statement
    with dynamic_overwrite(spark_lake):
        refused_as(
            "NOT_AUTHORIZED", spark_lake.session(CAROL), f"INSERT OVERWRITE {name} VALUES (4, 'x', 'us')"
        )
    assert state(spark_lake, name) == before
    spark_lake.rows(f"INSERT INTO {name} VALUES (5, 'five', 'eu')", CAROL)
    spark_lake.rows(f"INSERT INTO {name} SELECT id + 5, s, region FROM {name} WHERE id <= 2", CAROL)
    assert sorted(row.id for row in spark_lake.rows(f"SELECT id FROM {name}")) == [1, 2, 3, 5, 6, 7]


def state(spark_lake: SparkLake, table: str) -> tuple[str, set[Path]]:
    """The table's metadata, and the files in its data directory."""
    stored = stock_table(spark_lake, table)
    data = Path(stored.location().removeprefix("file://")) / "data"
    return stored.metadata_location, {path for path in data.rglob("*") if path.is_file()}


@contextmanager
def configured(spark_lake: SparkLake, name: str, value: str) -> Iterator[None]:
    """Alice's session has a setting meanwhile."""
    conf = spark_lake.spark.conf
    conf.set(name, value)
    yield
    conf.unset(name)


@contextmanager
def dynamic_overwrite(spark_lake: SparkLake) -> Iterator[None]:
    """Carol's statements overwrite the partitions that they have rows of."""
    conf = spark_lake.session(CAROL).conf
    conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    yield
    conf.unset("spark.sql.sources.partitionOverwriteMode")


@pytest.mark.nightly
def test_what_is_told_of_files_and_snapshots_counts_no_hidden_row(
    spark_lake: SparkLake, tables: tuple[str, str]
) -> None:
    name = tables[0]
    for told in ("files", "entries", "manifests", "partitions", "all_files", "position_deletes", "changes"):
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"SELECT * FROM {name}.{told}")
    made = f"CALL lake.system.create_changelog_view(table => '{name}', changelog_view => 'told')"
    spark_lake.rows(made, CAROL)
    refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), "SELECT count(*) FROM told")
    refused_as(
        "NOT_AUTHORIZED", spark_lake.session(CAROL), f"CALL lake.system.rewrite_manifests(table => '{name}')"
    )
    (*_, last) = spark_lake.rows(f"SELECT * FROM {name}.snapshots ORDER BY committed_at", CAROL)
    assert last.operation == "append" and not any("records" in each for each in last.summary)
    for statement in ("DESCRIBE TABLE EXTENDED {}", "SHOW TBLPROPERTIES {}", "SHOW CREATE TABLE {}"):
        said = str(spark_lake.rows(statement.format(name), CAROL))
        assert "total-records" not in said and "hidden" not in said
    refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"SELECT _pos FROM {name}")
    asked = f"SELECT DISTINCT _spec_id, _file IS NULL FROM {name} VERSION AS OF {last.snapshot_id}"
    assert spark_lake.rows(asked, CAROL) == [(0, False)]


@pytest.mark.nightly
@pytest.mark.parametrize("mask", ["mask-alphanum", None])
def test_runtime_filters_choose_among_the_rows_that_are_shown(
    spark_lake: SparkLake, mask: str | None
) -> None:
    name, names = "lake.db.pruned", "lake.db.names"
    for each in (name, names):
        spark_lake.rows(f"DROP TABLE IF EXISTS {each}")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark_lake.rows(f"CREATE TABLE {name} (id INT, region STRING) PARTITIONED BY (region)")
    spark_lake.rows(
        f"INSERT INTO {name} VALUES (1, 'eu'), (2, 'us'), (3, 'uk'), (11, 'eu'), (12, 'us'), (13, 'secret')"
    )
    spark_lake.rows(f"CREATE TABLE {names} (region STRING, name STRING)")
    spark_lake.rows(f"INSERT INTO {names} VALUES ('eu', 'a'), ('us', 'b'), ('xx', 'c'), ('secret', 'd')")
    about = {"database": {"values": ["db"]}, "table": {"values": ["pruned"]}}
    column = about | {"column": {"values": ["region"]}}
    rule = (
        filtering("id < 10", resources=about) if mask is None else masking("region", mask, resources=column)
    )
    spark_lake.lake.set_policies([*standard_policies(), rule])
    joined = (
        f"SELECT /*+ BROADCAST(d) */ t.id FROM {name} t JOIN {names} d USING (region) WHERE d.name = '{{}}'"
    )
    plan = explained(spark_lake.session(CAROL).sql(joined.format("a")))
    assert ("dynamicpruning" in plan.lower()) is (mask is None), plan
    found = {each: sorted(row.id for row in spark_lake.rows(joined.format(each), CAROL)) for each in "abcd"}
    if mask is None:
        assert found == {"a": [1], "b": [2], "c": [], "d": []}
    else:
        assert found["c"] == [1, 2, 3, 11, 12] and not found["a"]


@pytest.mark.nightly
def test_branches_snapshots_and_views_show_what_the_table_does(
    spark_lake: SparkLake, tables: tuple[str, str]
) -> None:
    name = tables[0]
    snapshots = [each.snapshot_id for each in stock_table(spark_lake, name).snapshots()]
    spark_lake.rows(f"ALTER TABLE {name} CREATE OR REPLACE BRANCH b AS OF VERSION {snapshots[0]}")
    spark_lake.rows(f"ALTER TABLE {name} CREATE OR REPLACE TAG v AS OF VERSION {snapshots[0]}")
    spark_lake.rows(f"CREATE OR REPLACE TEMP VIEW held AS SELECT * FROM {name} WHERE n >= 0", CAROL)
    shown = [(1, "aaaa-xxx"), (2, "bbbb-xxx"), (3, None)]
    for source in (
        f"{name} VERSION AS OF {snapshots[0]}",
        f"{name} VERSION AS OF 'v'",
        f"{name}.branch_b",
        f"{name}.tag_v",
        "held",
        f"(SELECT * FROM {name} UNION SELECT * FROM {name}.branch_b)",
        f"(SELECT a.* FROM {name} a JOIN {name}.branch_b b USING (id))",
    ):
        asked = f"SELECT DISTINCT id, s FROM {source} WHERE id <= 3 OR 1 / n < 0 ORDER BY id"
        assert spark_lake.rows(asked, CAROL) == shown, source
    increment = f"SELECT count(*) FROM {name} WITH ('start-snapshot-id' = '{snapshots[0]}')"
    assert (spark_lake.rows(increment, CAROL), spark_lake.rows(increment)) == ([(0,)], [(1,)])


@pytest.mark.nightly
def test_errors_show_no_partition_of_a_file(spark_lake: SparkLake) -> None:
    """Paths of files have partition values."""
    name = "lake.db.broken"
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark_lake.rows(f"CREATE TABLE {name} (id INT, region STRING) PARTITIONED BY (region)")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'secret-region')")
    (path,) = data_files(spark_lake, name)
    path.unlink()
    assert "secret-region" in refused(spark_lake, f"SELECT id FROM {name}", "DATA_FILE_MISSING", "data-file")
    for rule in (masking("region", "MASK_HASH"), filtering("id < 10")):
        spark_lake.lake.set_policies([*standard_policies(), rule])
        for asked in ("id", "id, region"):
            statement = f"SELECT {asked} FROM {name}"
            message = refused(spark_lake, statement, "DATA_FILE_MISSING", "data-file", CAROL)
            assert path.name in message and "secret-region" not in message
