"""Changes of rows in Spark: the table `changes`, `create_changelog_view` and `CHANGES`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from pyspark.sql import Row

from tests.support.lake import CAROL, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED


def ids(spark_lake: SparkLake, table: str) -> list[int]:
    """The snapshots of a table, the oldest first."""
    return [each.snapshot_id for each in stock_table(spark_lake, table).snapshots()]


def call(table: str, view: str, **arguments: str) -> str:
    """A call that creates a view of changes."""
    named = {"table": f"'{table}'", "changelog_view": f"'{view}'", **arguments}
    return f"CALL lake.system.create_changelog_view({', '.join(f'{k} => {v}' for k, v in named.items())})"


def shown(rows: Iterable[Row], *snapshots: int) -> list[str]:
    """Changes as short texts: the rows, the kind and the number of the snapshot."""
    found = []
    for row in rows:
        values = row.asDict()
        kind, ordinal = values.pop("_change_type"), values.pop("_change_ordinal")
        number = values.pop("_commit_snapshot_id", None) or values.pop("_commit_version")
        values.pop("_commit_timestamp", None)
        assert number == snapshots[ordinal]
        found.append(f"{ordinal} {kind} {' '.join(str(each) for each in values.values())}")
    return sorted(found)


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """An encrypted table: an append, an update and a delete by new files, and a delete by a delete file."""
    name = f"{spark_lake.namespace('changed')}.t"
    create_table(spark_lake, name, "id INT NOT NULL, v STRING", ENCRYPTED)
    rows = "(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (4, 'd'), (5, 'b')"
    spark_lake.rows(f"INSERT INTO {name} SELECT /*+ REPARTITION(1) */ * FROM VALUES {rows}")
    spark_lake.rows(f"UPDATE {name} SET v = if(id = 2, 'x', v), id = if(id = 2, 2, 6) WHERE v = 'b'")
    spark_lake.rows(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark_lake.rows(f"DELETE FROM {name} WHERE id = 3")
    spark_lake.rows(f"CALL lake.system.rewrite_data_files('{name}', options => map('rewrite-all', 'true'))")
    spark_lake.rows(f"ALTER TABLE {name} SET IDENTIFIER FIELDS id")
    return name


def test_changes_by_each_way(spark_lake: SparkLake, table: str) -> None:
    first, second, third, *_ = known = ids(spark_lake, table)
    carried = ["1 a", "3 c", "4 d", "4 d"]
    raw = spark_lake.rows(f"SELECT * FROM {table}.changes WITH (`start-snapshot-id` = {first})")
    copies = [f"0 {kind} {each}" for kind in ("DELETE", "INSERT") for each in carried]
    real = ["0 DELETE 2 b", "0 DELETE 5 b", "0 INSERT 2 x", "0 INSERT 6 b", "1 DELETE 3 c"]
    assert shown(raw, second, third) == sorted(copies + real)
    options = f"map('start-snapshot-id', '{first}')"
    (made,) = spark_lake.rows(call(table, "updated", options=options, identifier_columns="array('id')"))
    assert made.asDict() == {"changelog_view": "updated"}
    other = ["0 DELETE 5 b", "0 INSERT 6 b"]
    updates = [*other, "0 UPDATE_AFTER 2 x", "0 UPDATE_BEFORE 2 b", "1 DELETE 3 c"]
    assert shown(spark_lake.rows("SELECT * FROM updated"), second, third) == updates
    spark_lake.rows(call(table, "net", net_changes="true"))
    net = ["0 INSERT 1 a", "0 INSERT 4 d", "0 INSERT 4 d", "1 INSERT 2 x", "1 INSERT 6 b"]
    assert shown(spark_lake.rows("SELECT * FROM net"), *known) == net
    if not spark_lake.spark.version.startswith("4.1"):
        read = spark_lake.spark.read.option("startingVersion", second).option("endingVersion", second)
        assert read.option("deduplicationMode", "none").changes(table).count() == len(copies) + 4
        changes = (
            f"SELECT * FROM {table} CHANGES FROM VERSION {first} EXCLUSIVE WITH (computeUpdates = 'true')"
        )
        told = [
            "0 delete 5 b",
            "0 insert 6 b",
            "0 update_postimage 2 x",
            "0 update_preimage 2 b",
            "1 delete 3 c",
        ]
        assert shown(spark_lake.rows(changes), second, third) == told


@pytest.mark.nightly
def test_unclear_changes_are_refused(spark_lake: SparkLake, table: str) -> None:
    first, *_ = ids(spark_lake, table)
    session = spark_lake.session()
    for condition, statement, message in (
        ("REQUEST_INVALID", f"SELECT * FROM {table}.changes VERSION AS OF {first}", "time-travel"),
        (
            "REQUEST_INVALID",
            f"SELECT * FROM {table}.changes WITH (`start-snapshot-id` = 7)",
            "not an ancestor",
        ),
        ("NOT_SUPPORTED_YET", f"SELECT * FROM {table}.changes WITH (`as-of` = '1')", "read-option"),
        ("NOT_SUPPORTED_YET", f"SELECT * FROM {table} WITH (`start-timestamp` = 7)", "read-option"),
        ("NOT_SUPPORTED_YET", f"DELETE FROM {table}.changes", "can only be read"),
        ("REQUEST_INVALID", call(table, "v", identifier_columns="array('nix')"), "has no column nix"),
        ("REQUEST_INVALID", call(table, "v", identifier_columns="array()"), "names no column"),
        ("REQUEST_INVALID", call(table, "v", identifier_columns="array('_Change_type')"), "has no column"),
        (
            "REQUEST_INVALID",
            call(table, "v", options="map('start-snapshot-id', '1', 'START-snapshot-id', '2')"),
            "occurs twice",
        ),
        (
            "REQUEST_INVALID",
            call(table, "v", options="map('start-snapshot-id', '1', 'start-timestamp', '1')"),
            "both",
        ),
        ("NOT_SUPPORTED_YET", call(table, "v", options="map('as-of', '1')"), "read-option"),
    ):
        assert message in refused_as(condition, session, statement), statement


@pytest.mark.nightly
def test_range_of_the_statement_has_no_second_one_in_options(spark_lake: SparkLake, table: str) -> None:
    if spark_lake.spark.version.startswith("4.1"):
        return
    first, second, *_ = ids(spark_lake, table)
    for option in (f"`start-snapshot-id` = {second}", "`end-timestamp` = 5"):
        statement = f"SELECT id FROM {table} CHANGES FROM VERSION {first} WITH ({option})"
        assert "range of changes" in refused_as("REQUEST_INVALID", spark_lake.session(), statement)


@pytest.mark.nightly
def test_rows_with_the_same_identifiers_have_no_updates(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(call(table, "twice", identifier_columns="array('v')"))
    assert "same identifiers (v)" in str(refusal(lambda: spark_lake.rows("SELECT * FROM twice")))


@pytest.mark.nightly
def test_net_changes_of_a_table_with_columns_of_any_name(spark_lake: SparkLake) -> None:
    name = f"{spark_lake.namespace('named')}.t"
    create_table(spark_lake, name, "added STRUCT<a: INT, b: BIGINT>, removed INT, surplus INT", ENCRYPTED)
    for number in (1, 2):
        spark_lake.rows(f"INSERT INTO {name} SELECT named_struct('a', 7, 'b', 8L), {number}, {number}")
    spark_lake.rows(f"DELETE FROM {name} WHERE removed = 1")
    _, second, _ = known = ids(spark_lake, name)
    spark_lake.rows(call(name, "named_net", net_changes="true"))
    (found,) = spark_lake.rows("SELECT * EXCEPT (added) FROM named_net")
    assert shown([found], *known) == ["1 INSERT 2 2"]
    assert found._commit_snapshot_id == second


def test_hidden_column_hides_which_rows_changed(spark_lake: SparkLake, table: str) -> None:
    first, *_ = ids(spark_lake, table)
    resources = {"database": ["changed"], "table": ["t"], "column": ["id"]}
    options = f"map('start-snapshot-id', '{first}')"
    try:
        spark_lake.lake.set_policies([*standard_policies(), policy("id", resources, {CAROL: ["select"]})])
        kinds = spark_lake.rows(f"SELECT _change_type, id FROM {table}.changes WHERE id = 2", CAROL)
        assert Counter(kinds) == Counter({("INSERT", 2): 2, ("DELETE", 2): 1})
        spark_lake.rows(call(table, "seen", options=options, identifier_columns="array('id')"), CAROL)
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), "SELECT id FROM seen")
        resources["column"] = ["*"]
        spark_lake.lake.set_policies([*standard_policies(), policy("all", resources, {CAROL: ["select"]})])
        updated = spark_lake.rows("SELECT id FROM seen WHERE _change_type LIKE 'UPDATE%'", CAROL)
        assert updated == [(2,), (2,)]
    finally:
        spark_lake.lake.set_policies(standard_policies())
