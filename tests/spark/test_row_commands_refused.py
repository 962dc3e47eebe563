"""Statements that change rows and are refused leave the table and its storage as before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyiceberg.expressions import AlwaysFalse

from tests.support.lake import ALICE, CAROL, policy, standard_policies
from tests.support.leftovers import known_writes
from tests.support.row_model import REPLACES
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import create_table, master_keys, stock_table
from tests.support.tables import ENCRYPTED

UPDATES = "UPDATE {} SET v = 'x' WHERE id = 1"
MERGES = "MERGE INTO {} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'x'"
INSERTS = (
    "MERGE INTO {} t USING (SELECT 3 AS id, 's' AS secret) s ON t.secret = s.secret "
    "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
)
DELETES = "DELETE FROM {} WHERE id = 1"
REPLACING = ("INSERT INTO {} REPLACE USING (id) SELECT 1, 'x', 'y'",) if REPLACES else ()
OVERWRITES = "INSERT INTO {} REPLACE WHERE id = 1 SELECT 1, 'x', 'y'"
#: Before Spark 4.3, DELETE has no options.
DELETE_OPTIONS = "NOT_SUPPORTED_YET" if pyspark.__version__ >= "4.3" else "PARSE_SYNTAX_ERROR"


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table with column keys and masks, two rows in a file, in the database that Carol reads."""
    master_keys(spark_lake, "pii")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    name = "lake.db.row_commands_refused"
    properties = {"encryption.columns": "pii:secret", "encryption.masks": "nullify:secret"}
    create_table(spark_lake, name, "id INT, v STRING, secret STRING", properties)
    spark_lake.rows(
        f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a', 's'), (2, 'b', 't')"
    )
    return name


def _state(spark_lake: SparkLake, table: str) -> tuple[str, set[Path]]:
    """The table's metadata, and the files in its data directory."""
    stored = stock_table(spark_lake, table)
    data = Path(stored.location().removeprefix("file://")) / "data"
    return stored.metadata_location, {path for path in data.rglob("*") if path.is_file()}


def _grants(spark_lake: SparkLake, *, denied: str | None, **more: Any) -> None:
    """Let Carol write, and deny her a column."""
    grants = [
        policy("carol-writes", {"database": ["db"], "table": ["*"], "column": ["*"]}, {CAROL: ["update"]})
    ]
    if denied is not None:
        items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
        column = {"database": ["db"], "table": ["*"], "column": [denied]}
        grants.append(policy("denied", column, {}, denyPolicyItems=items))
    spark_lake.lake.set_policies([*standard_policies(), *grants])


@pytest.mark.parametrize("denied", ["secret", "v", "id"])
def test_user_without_a_column_changes_no_row(
    spark_lake: SparkLake, table: str, request: pytest.FixtureRequest, denied: str
) -> None:
    """`secret` is shown to Carol through its mask, which must not be written back; the others are refused."""
    request.addfinalizer(lambda: spark_lake.lake.set_policies(standard_policies()))
    _grants(spark_lake, denied=denied)
    before = _state(spark_lake, table)
    if denied == "secret":
        assert spark_lake.rows(f"SELECT id, secret FROM {table} ORDER BY id", CAROL) == [(1, None), (2, None)]
    others = {"id": (OVERWRITES,), "secret": (INSERTS,)}.get(denied, ())
    for statement in (DELETES, UPDATES, MERGES, *REPLACING, *others):
        error = refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), statement.format(table))
        assert denied in error
    assert _state(spark_lake, table) == before


@pytest.mark.nightly
def test_deleting_whole_files_by_a_masked_column_is_refused(
    spark_lake: SparkLake, table: str, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: spark_lake.lake.set_policies(standard_policies()))
    _grants(spark_lake, denied="secret")
    before = _state(spark_lake, table)
    for condition in ("secret IS NULL", "secret = 's'", "secret > ''"):
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"DELETE FROM {table} WHERE {condition}")
    assert _state(spark_lake, table) == before


def test_reader_changes_no_row(spark_lake: SparkLake, table: str) -> None:
    before = _state(spark_lake, table)
    removing = ("TRUNCATE TABLE {}", "DELETE FROM {}")
    for statement in (DELETES, UPDATES, MERGES, OVERWRITES, *REPLACING, *removing):
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), statement.format(table))
    assert _state(spark_lake, table) == before


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("UPDATE {} SET v = raise_error('broken') WHERE id = 2", "USER_RAISED_EXCEPTION"),
        (
            "MERGE INTO {} t USING (SELECT 1 AS id UNION ALL SELECT 1) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = 'x'",
            "MERGE_CARDINALITY_VIOLATION",
        ),
        (
            "MERGE INTO {} t USING (SELECT 1 AS id UNION ALL SELECT 1) s ON t.id = s.id "
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "MERGE_CARDINALITY_VIOLATION",
        ),
        ("INSERT INTO {} REPLACE WHERE id = 1 SELECT 3, 'x', 'y'", "REQUEST_INVALID"),
        ("INSERT INTO {} REPLACE WHERE length(v) = 1 SELECT 3, 'x', 'y'", "NOT_SUPPORTED_YET"),
        ("INSERT INTO {} REPLACE WHERE id = length(v) OR v IS NULL SELECT 3, 'x', 'y'", "NOT_SUPPORTED_YET"),
        ("DELETE FROM {} WITH ('snapshot-property.a' = 'b') WHERE id > 0", DELETE_OPTIONS),
        ("DELETE FROM {} WITH ('isolation-level' = 'snapshot')", DELETE_OPTIONS),
        ("DELETE FROM {} VERSION AS OF 1 WHERE id = 1", None),
    ],
)
def test_statement_that_fails_changes_nothing(
    spark_lake: SparkLake, table: str, statement: str, condition: str | None
) -> None:
    """The third would write the first row twice, the next ones would remove other rows than those meant."""
    before = _state(spark_lake, table)
    error = refusal(lambda: spark_lake.rows(statement.format(table)))
    if condition is not None:
        assert str(error.getCondition()).removeprefix("LAKEWARDEN.") == condition, error
    assert _state(spark_lake, table) == before


@pytest.mark.nightly
def test_settings_of_delete_files_without_effect_are_refused(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table that has had them since before the catalog refused them."""
    table = f"{namespace}.t"
    settings = {"write.update.mode": "merge-on-read", "write.delete.parquet.compression-codec": "gzip"}
    with monkeypatch.context() as unchecked:
        unchecked.setattr("policy.privileges.tables.check_names", lambda *_: None)
        create_table(spark_lake, table, "id INT, v STRING", settings)
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a')")
    message = refused_as("NOT_SUPPORTED_YET", spark_lake.spark, UPDATES.format(table))
    assert "write.delete.parquet.compression-codec" in message


@pytest.mark.nightly
def test_a_write_whose_delete_files_spark_does_not_write_is_given_up(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    settings = {"write.update.mode": "merge-on-read", "write.delete.format.default": "avro"}
    create_table(spark_lake, table, "id INT, v STRING", settings)
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a')")
    known = known_writes(spark_lake.lake)
    assert "avro" in refused_as("NOT_SUPPORTED_YET", spark_lake.spark, UPDATES.format(table))
    new = [each for name, each in known_writes(spark_lake.lake).items() if name not in known]
    assert [each.state for each in new] == ["aborted"]


@pytest.mark.nightly
def test_column_that_hides_the_metadata_column_is_refused(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, v STRING, _file STRING")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a', 'f')")
    assert "_file" in refused_as("NOT_SUPPORTED_YET", spark_lake.spark, UPDATES.format(table))


@pytest.mark.nightly
@pytest.mark.parametrize("mode", [pytest.param("copy-on-write", marks=pytest.mark.nightly), "merge-on-read"])
def test_metadata_columns_that_a_command_cannot_use_are_named(
    spark_lake: SparkLake, namespace: str, mode: str
) -> None:
    table, merge = f"{namespace}.t", f"MERGE INTO {namespace}.t a USING (SELECT 1 AS id) b ON a.id = b.id"
    modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
    create_table(spark_lake, table, "id INT, v STRING", modes)
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    before = _state(spark_lake, table)
    for column, statement in (
        ("_pos", f"UPDATE {table} SET v = 'x' WHERE _pos = 0"),
        ("_spec_id", f"UPDATE {table} SET v = 'x' WHERE _spec_id = 0"),
        ("_file", f"INSERT INTO {table} REPLACE WHERE _file = 'x' VALUES (1, 'a')"),
        ("_pos", f"{merge} AND a._pos = 0 WHEN MATCHED THEN UPDATE SET v = 'x'"),
        ("_file", f"UPDATE {table} SET _file = 'x' WHERE id = 1"),
        ("_pos", f"{merge} WHEN MATCHED THEN UPDATE SET v = 'x', a._POS = 1"),
        ("_spec_id", f"{merge} WHEN NOT MATCHED THEN INSERT (id, _spec_id) VALUES (1, 2)"),
    ):
        message = refused_as("NOT_SUPPORTED_YET", spark_lake.spark, statement)
        assert "The metadata column" in message and column in message.lower(), message
    assert _state(spark_lake, table) == before
    spark_lake.rows(f"UPDATE {table} SET v = substring(_file, 1, 4) WHERE _file LIKE 'file:%' AND id = 1")
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == [(1, "file"), (2, "b")]


@pytest.mark.nightly
def test_a_column_of_the_table_with_the_name_of_a_metadata_column_is_assigned(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Also by DEFAULT, which Spark takes as a whole value only, and by what a subquery finds."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, _spec_id INT")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 10), (2, 20)")
    spark_lake.rows(f"UPDATE {table} SET _spec_id = DEFAULT WHERE id = 1")
    spark_lake.rows(
        f"MERGE INTO {table} a USING (SELECT 2 AS id, 5 AS n) b ON a.id = b.id "
        "WHEN MATCHED THEN UPDATE SET _spec_id = b.n + a._spec_id "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET _spec_id = DEFAULT, id = 7"
    )
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}"), key=str) == [(2, 25), (7, None)]
    spark_lake.rows(f"UPDATE {table} SET _spec_id = (SELECT max(id) FROM {table}) WHERE id = 7")
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == [(2, 25), (7, 7)]


def _meanwhile(spark_lake: SparkLake, monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    """Do something once, between the reading and the commit of the next write."""
    writes, done = spark_lake.lake.services.writes, []
    commit = writes.commit

    def late(*given: Any) -> Any:
        if not done:
            done.append(True)
            action()
        return commit(*given)

    monkeypatch.setattr(writes, "commit", late)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("isolation", "meanwhile", "conflicts"),
    [
        ("serializable", "INSERT INTO {} VALUES (1, 'new', NULL)", True),
        ("serializable", "INSERT INTO {} VALUES (7, 'new', NULL)", False),
        ("snapshot", "INSERT INTO {} VALUES (1, 'new', NULL)", False),
        ("snapshot", "UPDATE {} SET v = 'first' WHERE id = 2", True),
    ],
)
def test_commit_that_came_meanwhile_conflicts_by_isolation_level(
    spark_lake: SparkLake,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    isolation: str,
    meanwhile: str,
    conflicts: bool,
) -> None:
    """A file that is rewritten twice is one update lost; a new row may match the condition of the command."""
    table = f"{namespace}.t"
    create_table(
        spark_lake,
        table,
        "id INT, v STRING, secret STRING",
        {**ENCRYPTED, "write.update.isolation-level": isolation},
    )
    spark_lake.rows(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a', 's'), (2, 'b', 't')"
    )
    other = spark_lake.new_session(ALICE)
    _meanwhile(spark_lake, monkeypatch, lambda: other.sql(meanwhile.format(table)).collect())
    if conflicts:
        refused_as("CONCURRENT_MODIFICATION", spark_lake.spark, UPDATES.format(table))
    else:
        spark_lake.rows(UPDATES.format(table))
    values = sorted(row.v for row in spark_lake.rows(f"SELECT v FROM {table}"))
    assert ("x" in values) is not conflicts
    assert len(values) == (3 if "INSERT" in meanwhile else 2)


def test_a_merge_that_only_inserts_is_validated_as_any_other(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two at the same time one would insert a row a second time."""
    table, other = f"{namespace}.t", spark_lake.new_session(ALICE)
    create_table(spark_lake, table, "id INT, v STRING")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a')")

    def merge(key: int, condition: str = "t.id = s.id") -> str:
        source = f"(SELECT {key} AS id UNION ALL SELECT 1)"
        return (
            f"MERGE INTO {table} t USING {source} s ON {condition} "
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )

    def meanwhile(statement: str) -> None:
        _meanwhile(spark_lake, monkeypatch, lambda: other.sql(statement).collect())

    meanwhile(merge(2))
    refused_as("CONCURRENT_MODIFICATION", spark_lake.spark, merge(2))
    meanwhile(f"INSERT INTO {table} VALUES (20, 'b')")
    spark_lake.rows(merge(3, "t.id = s.id AND t.id < 10"))
    meanwhile(f"INSERT INTO {table} VALUES (21, 'b')")
    spark_lake.rows(merge(4, "false"))  # Nothing is read.
    assert sorted(row.id for row in spark_lake.rows(f"SELECT id FROM {table}")) == [1, 1, 2, 3, 4, 20, 21]


def test_file_that_the_plan_of_a_command_lacks_is_no_row_without_a_match(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks twice: for the files with matching rows, and for the rows of these files."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, v STRING")
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b')")
    planner = spark_lake.lake.services.planner
    plan = planner.plan

    def without_rows(caller: Any, name: Any, request: Any) -> Any:
        whole = {"id", "v"} <= set(request.columns)
        return plan(caller, name, replace(request, filter=AlwaysFalse()) if whole else request)

    monkeypatch.setattr(planner, "plan", without_rows)
    refused_as("CONCURRENT_MODIFICATION", spark_lake.spark, UPDATES.format(table))
