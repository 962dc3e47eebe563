"""Definer views in SQL: what their readers see, and what they cannot find out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyspark
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

from catalog.authorization.definers import CATALOG_NAME
from catalog.base.identifiers import TableName
from catalog.tables.views import ViewDefinition
from tests.support.lake import BOB, CAROL, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tasks import counted

pytestmark = pytest.mark.skipif(
    pyspark.__version__ < "4.3", reason="Spark has views of such catalogs since 4.3"
)

#: In a row that the view leaves out; no plan, error or record of a reader shows it.
SECRET = "s3cret-of-row-five"
DEFINER = "TBLPROPERTIES ('security' = 'definer')"


@dataclass
class Door:
    """Alice has a table and a view of it. Bob reads the view, and has a table."""

    lake: SparkLake
    namespace: str

    @property
    def view(self) -> str:
        return f"{self.namespace}.v"

    @property
    def table(self) -> str:
        return f"{self.namespace}.t"

    @property
    def bob(self) -> SparkSession:
        return self.lake.session(BOB)

    def let(self, *more: dict[str, Any], views: tuple[str, ...] = ("v", "w", "x")) -> None:
        database = self.namespace.removeprefix(f"{CATALOG}.")
        reads = policy("views", tables(database) | {"table": [*views]}, {BOB: ["select"]})
        self.lake.lake.set_policies([*standard_policies(), reads, *more])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.bob.sql(query).collect())


@pytest.fixture
def door(spark_lake: SparkLake, namespace: str) -> Iterator[Door]:
    made = Door(spark_lake, namespace)
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    spark_lake.rows(
        f"CREATE TABLE {made.table} AS SELECT id, if(id = 5, '{SECRET}', CAST(id AS STRING)) AS text, "
        "id % 2 = 0 AS even FROM range(6)"
    )
    spark_lake.rows(
        f"CREATE VIEW {made.view} (n, word) {DEFINER} AS SELECT id, text FROM {made.table} WHERE even"
    )
    made.let()
    yield made
    spark_lake.lake.set_policies(standard_policies())


def test_a_reader_needs_no_permission_on_the_tables(door: Door) -> None:
    view, table = door.view, door.table
    rows = [(0, "0"), (2, "2"), (4, "4")]
    assert door.rows(f"SELECT * FROM {view}") == rows
    assert door.rows(
        f"WITH c AS (SELECT * FROM {view} WHERE n > 0) SELECT a.n, count(*), max(b.word) FROM {view} a "
        f"JOIN c b ON a.n <= b.n LEFT SEMI JOIN {view} d ON d.n = a.n GROUP BY a.n HAVING count(*) > 1"
    ) == [(0, 2, "4"), (2, 2, "4")]
    assert door.rows(f"SELECT count(*) FROM (SELECT n FROM {view} ORDER BY word LIMIT 2)") == [(2,)]
    assert "table.load" in refused_as("NOT_AUTHORIZED", door.bob, f"SELECT id FROM {table}")
    # Nothing that is loaded for the view serves another name of the statement, nor the other way around.
    for statement in (
        f"SELECT * FROM {view}, {table}",
        f"SELECT * FROM {table} t JOIN {view} v ON t.id = v.n",
        f"SELECT * FROM {view} WHERE n IN (SELECT id FROM {table})",
        f"WITH v AS (SELECT * FROM {view}) SELECT (SELECT max(text) FROM {table}) FROM v",
        f"SELECT * FROM {table}.files",
        f"SELECT * FROM {view} VERSION AS OF 1",
        f"SELECT * FROM {view} WITH ('split-size' = '1')",
        f"INSERT INTO {view} VALUES (1, 'x')",
        f"DELETE FROM {view}",
    ):
        refusal(lambda statement=statement: door.bob.sql(statement).collect())
    described = {row[0]: row[1] for row in door.bob.sql(f"DESCRIBE EXTENDED {view}").collect()}
    assert described["Owner"] == "alice"
    assert "'security' = 'definer'" in door.bob.sql(f"SHOW CREATE TABLE {view}").collect()[0][0]
    # Alice runs code in this engine, and would see the table whole.
    assert "view-engine" in refused_as("NOT_AUTHORIZED", door.lake.spark, f"SELECT * FROM {view}")


def test_no_expression_of_the_reader_is_evaluated_on_rows_that_the_view_leaves_out(door: Door) -> None:
    """Spark moves these below the text of another view, where they fail for the row with the secret."""
    door.lake.rows(f"CREATE TABLE {door.namespace}.k AS SELECT id AS k FROM range(0, 6, 2)")
    text = f"SELECT id AS n, text AS word FROM {door.table} WHERE id IN (SELECT k FROM {door.namespace}.k)"
    door.lake.rows(f"CREATE VIEW {door.namespace}.w {DEFINER} AS {text}")
    door.lake.rows(f"CREATE VIEW {door.namespace}.open AS {text}")
    for query in (
        "SELECT n FROM {} WHERE CAST(word AS INT) >= 0",
        "SELECT n FROM {} WHERE if(word LIKE 's3%', raise_error(word), true)",
        "SELECT v.n FROM {} v JOIN (SELECT 1 AS one) ON 1 / (v.n - 5) < one",
    ):
        error = refusal(lambda query=query: door.lake.rows(query.format(f"{door.namespace}.open")))
        assert SECRET in str(error) or "DIVIDE_BY_ZERO" in str(error)
        assert [row[0] for row in door.rows(query.format(f"{door.namespace}.w"))] == [0, 2, 4], query


@pytest.mark.nightly
def test_whatever_spark_moves_stays_above_the_view(door: Door) -> None:
    door.lake.rows(f"CREATE TABLE {door.namespace}.k AS SELECT id AS k FROM range(0, 6, 2)")
    for name, text in (
        ("v", f"SELECT id AS n, text AS word FROM {door.table} JOIN {door.namespace}.k ON id = k"),
        ("w", f"SELECT id AS n, text AS word FROM {door.table} GROUP BY 1, 2 HAVING bool_and(even)"),
        (
            "x",
            "SELECT n, word FROM (SELECT id AS n, text AS word, even, row_number() OVER (PARTITION BY id "
            f"ORDER BY text) AS r FROM {door.table}) WHERE even AND r = 1",
        ),
    ):
        view = f"{door.namespace}.{name}"
        door.lake.rows(f"CREATE OR REPLACE VIEW {view} {DEFINER} AS {text}")
        for query in (
            f"SELECT n FROM {view} WHERE CAST(word AS INT) >= 0",
            f"SELECT n FROM {view} WHERE 1 / (n - 5) < 1",
            f"SELECT CAST(word AS INT) AS n FROM {view}",
            f"SELECT n FROM {view} WHERE if(word LIKE 's3%', raise_error(word), true)",
            f"SELECT v.n FROM {view} v JOIN (SELECT 1 AS one) ON 1 / (v.n - 5) < one",
            f"SELECT max(n) FROM {view} GROUP BY CAST(word AS INT)",
            f"SELECT v.n FROM {view} v ORDER BY 1 / (v.n - 5) LIMIT 3",
            f"SELECT v.n FROM {view} v, LATERAL (SELECT CAST(v.word AS INT) AS i)",
            f"SELECT n FROM {view} WHERE n IN (SELECT CAST(word AS INT) FROM {view})",
            f"SELECT n FROM {view} WHERE input_file_name() = ''",
        ):
            assert [row[0] for row in door.rows(query)] == [0, 2, 4], query


@pytest.mark.nightly
def test_a_plan_shows_the_view_and_nothing_below_it(door: Door) -> None:
    door.lake.rows(
        f"CREATE VIEW {door.namespace}.w {DEFINER} AS SELECT a.id AS n, count(*) AS c FROM {door.table} a "
        f"JOIN {door.table} b ON a.id = b.id WHERE b.text <> 'hidden' GROUP BY a.id"
    )
    query = f"SELECT n FROM {door.namespace}.w WHERE c > 0 AND n < 9"
    shown = [
        str(door.bob.sql(f"EXPLAIN {how} {query}").collect()[0][0])
        for how in ("", "EXTENDED", "FORMATTED", "COST", "CODEGEN")
    ]
    assert len(door.rows(query)) == 6
    store = door.bob._jsparkSession.sharedState().statusStore()
    last = store.executionsList(store.executionsCount() - 1, 1).head()
    shown.append(last.physicalPlanDescription())
    for text in shown:
        assert "DefinerView" in text or "RelationV2" in text
        for hidden in (f"{door.namespace}.t", "hidden", "GuardedScan", "PushedFilters", "text#"):
            assert hidden not in text.replace("`", ""), hidden


@pytest.mark.nightly
def test_tasks_count_no_bytes_of_what_the_text_reads(door: Door) -> None:
    """Clients of Spark Connect see how many bytes the tasks of their queries read."""
    door.lake.rows(
        f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS SELECT max(id) AS n, text AS word "
        f"FROM {door.table} WHERE even GROUP BY 2"
    )
    assert counted(door.lake, f"SELECT * FROM {door.table}")[1] > 0
    records, read = counted(door.lake, f"SELECT * FROM {door.view}", BOB)
    assert records >= 3 and read == 0


@pytest.mark.nightly
def test_a_permission_that_is_taken_away_ends_the_view(door: Door) -> None:
    frame = door.bob.table(door.view)
    assert frame.count() == 3
    denied = policy("alice-not", tables(door.namespace.removeprefix(f"{CATALOG}.")) | {"table": ["t"]}, {})
    denied["denyPolicyItems"] = [{"users": ["alice"], "accesses": [{"type": "select", "isAllowed": True}]}]
    door.let(denied)
    message = refused_as("NOT_AUTHORIZED", door.bob, f"SELECT * FROM {door.view}")
    assert "alice is not authorized" in message
    door.let()
    assert door.bob.table(door.view).count() == 3
    door.let(views=("x",))
    assert "bob is not authorized" in refused_as("NOT_AUTHORIZED", door.bob, f"SELECT * FROM {door.view}")


@pytest.mark.nightly
def test_nobody_gets_the_rights_of_another_by_editing_a_view(door: Door) -> None:
    """Bob can change Alice's view, and reads what Bob can read."""
    database = door.namespace.removeprefix(f"{CATALOG}.")
    alters = policy("bob-alters", tables(database) | {"table": ["v"]}, {BOB: ["select", "alter"]})
    hidden = door.namespace + ".hidden"
    door.lake.rows(f"CREATE TABLE {hidden} AS SELECT 1 AS id, '{SECRET}' AS text")
    door.let(alters)
    services, bob = door.lake.lake.services, door.lake.lake.caller(BOB)
    name = TableName((database,), "v")
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "word", StringType()))
    text = f"SELECT CAST(id AS BIGINT) AS n, text AS word FROM {hidden}"
    summary, rights = {CATALOG_NAME: CATALOG}, {"security": "definer"}
    services.views.replace(bob, ViewDefinition(name, schema, text, None, (), summary, rights))
    assert "bob is not authorized" in refused_as("NOT_AUTHORIZED", door.bob, f"SELECT * FROM {door.view}")
    door.let()
    # A view of Bob's that names Alice's has no more rights than Bob.
    door.lake.rows(
        f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS SELECT id AS n, text AS word FROM {door.table}"
    )
    nested = ViewDefinition(
        TableName(("bobs",), f"n{database}"), schema, f"SELECT * FROM {door.view}", None, (), summary, rights
    )
    services.views.create(bob, nested)
    refused_as("NOT_SUPPORTED_YET", door.bob, f"SELECT * FROM {CATALOG}.bobs.n{database}")
    services.views.replace(bob, ViewDefinition(nested.name, schema, nested.sql, None, (), {}, {}))
    assert len(door.rows(f"SELECT * FROM {CATALOG}.bobs.n{database}")) == 6
    services.views.drop(bob, nested.name)


@pytest.mark.nightly
def test_nobody_becomes_the_definer_of_a_text_that_they_did_not_write(door: Door) -> None:
    """Else a user could have what Alice reads, once Alice sets a property of the user's view."""
    services, name = door.lake.lake.services, TableName((door.namespace.removeprefix(f"{CATALOG}."),), "v")
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "word", StringType()))
    text, summary = f"SELECT id AS n, text AS word FROM {door.table}", {CATALOG_NAME: CATALOG}
    door.let(policy("bob-alters", tables(name.database) | {"table": ["v"]}, {BOB: ["select", "alter"]}))
    definition = ViewDefinition(name, schema, text, None, (), summary, {"security": "definer"})
    services.views.replace(door.lake.lake.caller(BOB), definition)
    stored = services.views._find(name)
    alice = door.lake.new_session()
    alice.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    alice.sql(f"ALTER VIEW {door.view} SET TBLPROPERTIES ('team' = 'b')")
    assert services.views._find(name).metadata.properties["team"] == "b"
    alice.sql(f"ALTER VIEW {door.view} UNSET TBLPROPERTIES ('team')")
    assert "definer-view" in refused_as(
        "NOT_AUTHORIZED", alice, f"ALTER VIEW {door.view} WITH SCHEMA BINDING"
    )
    changed = services.views._find(name)
    assert (changed.definer, changed.metadata) == (BOB, stored.metadata)
    refused_as("NOT_AUTHORIZED", door.bob, f"SELECT * FROM {door.view}")
    # Who writes the same text becomes its definer.
    alice.sql(f"ALTER VIEW {door.view} AS {text}")
    assert services.views._find(name).definer == "alice"
    alice.sql(f"ALTER VIEW {door.view} WITH SCHEMA BINDING")
    assert len(door.rows(f"SELECT * FROM {door.view}")) == 6


@pytest.mark.nightly
def test_what_a_session_defines_does_not_reach_the_text(door: Door) -> None:
    alice = door.lake.new_session()
    alice.sql(f"USE {door.namespace}")
    alice.sql(
        f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS "
        "SELECT id AS n, concat(upper(text), current_schema()) AS word FROM t WHERE even"
    )
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "word", StringType()))
    database = door.namespace.removeprefix(f"{CATALOG}.")
    text, summary = f"SELECT id AS n, mine AS word FROM {door.table}", {CATALOG_NAME: CATALOG}
    door.lake.lake.services.views.create(
        door.lake.lake.caller("alice"),
        ViewDefinition(TableName((database,), "w"), schema, text, None, (), summary, {"security": "definer"}),
    )
    session = door.lake.new_session(BOB)
    session.sql(f"CREATE VIEW {CATALOG}.bobs.t AS SELECT 1 AS id")
    session.sql("CREATE TEMPORARY VIEW t AS SELECT 7 AS id, 'mine' AS text, true AS even")
    session.sql("CREATE TEMPORARY FUNCTION upper(x STRING) RETURNS STRING RETURN concat('mine', x)")
    session.sql("DECLARE VARIABLE mine = 'mine'")
    session.sql(f"USE {CATALOG}.bobs")
    rows = [(0, "0default"), (2, "2default"), (4, "4default")]
    assert sorted(tuple(row) for row in session.sql(f"SELECT * FROM {door.view}").collect()) == rows
    assert "view-text" in refused_as("METADATA_INVALID", session, f"SELECT * FROM {door.namespace}.w")
    session.sql(f"DROP VIEW {CATALOG}.bobs.t")


@pytest.mark.nightly
def test_what_others_have_cached_is_not_read_by_the_text(door: Door) -> None:
    """For all sessions of an engine, Spark keeps rows by the query that they are of."""
    door.lake.rows(
        f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS SELECT id AS n, "
        f"CAST((SELECT current_timestamp()) AS STRING) AS word FROM {door.table} WHERE id = 0"
    )
    frame = door.bob.sql("SELECT current_timestamp()").cache()
    try:
        kept = frame.collect()[0][0]
        assert door.bob.sql("SELECT (SELECT current_timestamp()) AS now").collect()[0][0] == kept
        assert door.rows(f"SELECT word = '{kept}' FROM {door.view}") == [(False,)]
    finally:
        frame.unpersist()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text",
    [
        "SELECT id AS n, text AS word FROM {t} JOIN {k} ON id = k WHERE CAST(text AS INT) >= 0",
        "SELECT k AS n, text AS word FROM {t} FULL JOIN {k} ON CAST(text AS INT) = k",
        "SELECT count(*) AS n, max(text) AS word FROM {t} GROUP BY CAST(text AS INT)",
        "SELECT id AS n, text AS word FROM {t} WHERE id = (SELECT max(CAST(text AS INT)) FROM {t})",
        "SELECT id AS n, text AS word FROM {t} ORDER BY CAST(text AS INT)",
        "SELECT id AS n, if(even, text, raise_error(text)) AS word FROM {t}",
    ],
    ids=["filter", "join", "group", "subquery", "order", "raise_error"],
)
def test_an_error_in_the_text_shows_no_value(door: Door, text: str) -> None:
    """Spark evaluates some expressions on rows that the text leaves out in another place."""
    door.lake.rows(f"CREATE TABLE {door.namespace}.k AS SELECT id AS k FROM range(0, 6, 2)")
    named = text.format(t=door.table, k=f"{door.namespace}.k")
    door.lake.rows(f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS {named}")
    error = refusal(lambda: door.bob.sql(f"SELECT * FROM {door.view}").collect())
    assert error.getCondition() == "LAKEWARDEN.METADATA_INVALID"
    assert "(CAST_INVALID_INPUT)" in str(error) or "(USER_RAISED_EXCEPTION)" in str(error)
    assert SECRET not in str(error)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", ["SELECT id AS n, text AS word FROM {}", "SELECT max(id) AS n, text AS word FROM {} GROUP BY 2"]
)
def test_an_error_of_a_file_does_not_show_its_path(door: Door, text: str) -> None:
    door.lake.rows(f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS {text.format(door.table)}")
    for row in door.lake.rows(f"SELECT file_path FROM {door.table}.files"):
        path = Path(url2pathname(urlsplit(row[0]).path))
        path.write_bytes(path.read_bytes()[:-1])
    error = refusal(lambda: door.bob.sql(f"SELECT * FROM {door.view}").collect())
    assert error.getCondition() == "LAKEWARDEN.DATA_FILE_DAMAGED"
    assert not any(told in str(error) for told in (path.name, "/data/", door.table))


@pytest.mark.nightly
def test_cached_rows_of_a_view_serve_their_reader_alone(door: Door) -> None:
    """A plan with the view does not run for another user, and nothing that is cached is found for one."""
    frame = door.bob.table(door.view).cache()
    try:
        assert frame.count() == 3
        frame.createGlobalTempView("of_bob")
        carol = door.lake.session(CAROL)
        assert f"{door.view.removeprefix(f'{CATALOG}.')} to 'carol'" in refused_as(
            "NOT_AUTHORIZED", carol, f"SELECT * FROM {door.view}"
        )
        refused_as("NOT_AUTHORIZED", carol, "SELECT * FROM global_temp.of_bob")
        door.let(views=("x",))
        refused_as("NOT_AUTHORIZED", door.bob, f"SELECT * FROM {door.view}")
    finally:
        door.let()
        frame.unpersist()
        door.bob.catalog.dropGlobalTempView("of_bob")


@pytest.mark.nightly
def test_a_text_that_does_not_fit_its_tables_tells_nothing_of_them(door: Door) -> None:
    door.lake.rows(f"ALTER TABLE {door.table} RENAME COLUMN even TO secret_column")
    message = str(refusal(lambda: door.bob.sql(f"SELECT * FROM {door.view}").collect()))
    assert "view-text" in message
    assert "secret_column" not in message


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("SELECT id FROM range(0, 8, 1, 2)", True),
        ("SELECT id % 2, count(*) FROM range(0, 8, 1, 2) GROUP BY 1", False),
        ("SELECT id FROM range(8) WHERE id < (SELECT max(id) FROM range(0, 4, 1, 2))", False),
    ],
    ids=["stage", "stages", "subquery"],
)
def test_stages_of_a_text_that_would_wait_for_the_readers_statement_are_refused(
    spark_lake: SparkLake, text: str, runs: bool
) -> None:
    """Without adaptive execution, they begin by the settings that the reader's session has then."""
    session = spark_lake.new_session(BOB)
    session.conf.set("spark.sql.adaptive.enabled", "false")
    own, jvm = session._jsparkSession, session._jvm
    assert jvm is not None
    execution = session.sql(text)._jdf.queryExecution()
    rows = jvm.org.apache.spark.sql.lakewarden.catalog.DefinerRows("s.v", own, execution)

    def begin() -> Any:
        return rows.rdd(own.sessionState().conf())

    if runs:
        assert begin().count() == 8
    else:
        assert "view-text" in str(refusal(begin))


def test_the_current_user_of_the_text_is_the_reader(door: Door) -> None:
    """Spark's own would be the account that the engine runs as, for every reader."""
    door.lake.rows(
        f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS SELECT id AS n, session_user() AS word "
        f"FROM {door.table} WHERE id < 2 AND current_user = 'bob' AND id IN "
        f"(SELECT id FROM {door.table} WHERE user() = 'bob')"
    )
    assert door.rows(f"SELECT * FROM {door.view}") == [(0, "bob"), (1, "bob")]


@pytest.mark.nightly
def test_settings_by_which_functions_run_are_not_the_readers(door: Door) -> None:
    """Tasks go by the settings of the statement. By this one, the condition of the text would be true."""
    door.lake.rows(
        f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS SELECT id AS n, text AS word FROM (SELECT *, "
        f"if(id < 0, 'yyyy', 'yyyy-MM-dd') AS form FROM {door.table}) "
        "WHERE try_to_timestamp('2020-1-1', form) IS NOT NULL"
    )
    session = door.lake.new_session(BOB)
    assert session.sql(f"SELECT * FROM {door.view}").collect() == []
    session.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    # The session that reads the text is no copy of the reader's, either.
    other = door.lake.new_session(BOB)
    other.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    for each in (session, other):
        refused = refused_as("NOT_SUPPORTED_YET", each, f"SELECT * FROM {door.view}")
        assert "spark.sql.legacy.timeParserPolicy" in refused
    session.conf.unset("spark.sql.legacy.timeParserPolicy")
    assert session.sql(f"SELECT * FROM {door.view}").collect() == []


@pytest.mark.nightly
def test_rows_that_are_computed_later_go_by_no_settings_of_then(door: Door) -> None:
    """Spark computes the rest of cached rows in the job that needs them."""
    door.lake.rows(
        f"CREATE OR REPLACE VIEW {door.view} {DEFINER} AS SELECT id AS n, text AS word FROM {door.table} "
        "WHERE id = 0 UNION ALL SELECT id AS n, text AS word FROM (SELECT *, if(id < 0, 'yyyy', "
        f"'yyyy-MM-dd') AS form FROM {door.table}) WHERE try_to_timestamp('2020-1-1', form) IS NOT NULL"
    )
    session = door.lake.new_session(BOB)
    frame = session.table(door.view).cache()
    try:
        assert frame.take(1) == [(0, "0")]
        session.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
        assert frame.collect() == [(0, "0")]
    finally:
        frame.unpersist()


@pytest.mark.nightly
def test_a_table_that_changes_under_a_frame_tells_nothing_of_it(door: Door) -> None:
    frame = door.bob.table(door.view)
    door.lake.rows(f"ALTER TABLE {door.table} DROP COLUMN text")
    error = refusal(lambda: frame.collect())
    assert error.getCondition() == "LAKEWARDEN.TABLE_CHANGED"
    assert "view-changed" in str(error)
    assert not any(told in str(error) for told in ("`text`", "even", f"{door.table}`", "COLUMNS_MISMATCH"))


@pytest.mark.nightly
def test_a_text_past_spark_is_read_by_the_same_rules(door: Door) -> None:
    """Texts that Spark understands otherwise than the catalog, or that name no table, are refused."""
    services, alice = door.lake.lake.services, door.lake.lake.caller("alice")
    database = door.namespace.removeprefix(f"{CATALOG}.")
    schema = Schema(NestedField(1, "n", LongType()))
    for number, (text, summary) in enumerate(
        (
            (f"SELECT id AS n FROM {door.table}.files", {CATALOG_NAME: CATALOG}),
            (f"SELECT id AS n FROM {door.table}", {CATALOG_NAME: "other"}),
            (f"SELECT id AS n FROM {door.table}", {CATALOG_NAME: CATALOG, "spark.sql-configs": "["}),
        )
    ):
        name = TableName((database,), f"x{number}")
        definition = ViewDefinition(name, schema, text, None, (database,), summary, {"security": "definer"})
        services.views.create(alice, definition)
        door.let(views=("x0", "x1", "x2"))
        refusal(lambda number=number: door.bob.sql(f"SELECT * FROM {door.namespace}.x{number}").collect())
