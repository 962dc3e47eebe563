"""The pipeline `migrate`: rows are compared, writers go on, and an interrupted migration goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakewarden
from catalog.base.identifiers import TableName
from catalog.client.http import CatalogClient
from lakewarden import pipelines
from policy.errors import PropertyInvalid, RequestInvalid
from spark_ext.pipelines.items import Item, Outcome, Status
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.migrate.comparing import _Comparison
from spark_ext.pipelines.migrate.pipeline import Migrate
from spark_ext.pipelines.migrate.table import TableMigration, Wanted
from spark_ext.pipelines.report import RunState
from spark_ext.pipelines.rewriting import Rewriting
from tests.support.lake import ALICE, policy, standard_policies
from tests.support.pipeline_steps import DyingLake, DyingSteps, Killed, MemorySteps
from tests.support.rules import put_rules, rule
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import data_files, local_path, stock_table

ENVELOPE = {"encryption.mechanism": "envelope"}
COLUMNS = "id INT, d DOUBLE, s STRUCT<x: INT, l: ARRAY<INT>>, m MAP<STRING, DECIMAL(9,2)>, t TIMESTAMP"
ROW = "{0}, IF({0} % 2 = 0, -0.0D, DOUBLE('NaN')), struct({0}, array(1, NULL)), map('k', {0} / 7), NULL"


@pytest.fixture(scope="module")
def lake(spark_lake: SparkLake) -> Lake:
    return Lake(spark_lake.spark, CATALOG)


def plaintext(spark_lake: SparkLake, table: str, files: int = 2) -> None:
    """Create a table with a number of plaintext files, the first in a snapshot of its own."""
    spark_lake.rows(f"CREATE TABLE {table} ({COLUMNS})")
    append(spark_lake, table, 0)
    if files > 1:
        rows = f"SELECT {ROW.format('CAST(id AS INT)')} FROM range(1, {files}, 1, {files - 1})"
        spark_lake.rows(f"INSERT INTO {table} {rows}")


def append(spark_lake: SparkLake, table: str, number: int) -> None:
    spark_lake.rows(f"INSERT INTO {table} SELECT {ROW.format(f'CAST({number} AS INT)')}")


def ids(spark_lake: SparkLake, table: str) -> list[int]:
    return sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}"))


def items(pipeline: Migrate, lake: Lake) -> list[Item]:
    return list(pipeline.plan(lake))


def patterns(namespace: str) -> str:
    return f"{namespace.removeprefix(f'{CATALOG}.')}.*"


def migrate(
    lake: Lake,
    namespace: str,
    steps: MemorySteps | None = None,
    properties: Mapping[str, str] = ENVELOPE,
    wanted: Wanted | None = None,
    **options: Any,
) -> dict[str, Outcome]:
    """Migrate all tables of a namespace; what became of each."""
    pipeline = Migrate(
        patterns(namespace), properties, wanted=wanted or Wanted("expire"), at_a_time=1, **options
    )
    found = items(pipeline, lake)
    return {each.table.split(".")[-1]: each for each in pipeline.run(lake, found, steps or MemorySteps())}


def epochs(lake: Lake, table: str) -> dict[str, Any]:
    _, namespace, name = table.split(".")
    return lake.admin("GET", ("tables", namespace, name, "regimes"))


def only(outcomes: Mapping[str, Outcome]) -> Outcome:
    (found,) = outcomes.values()
    return found


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act once, after the first group of files was rewritten."""
    step, acts = Rewriting._step, [act]

    def acting(self: Rewriting, **options: int) -> bool:
        done = step(self, **options)
        if done and acts:
            acts.pop()()
        return done

    monkeypatch.setattr(Rewriting, "_step", acting)


@pytest.mark.nightly
def test_tables_are_encrypted_and_their_history_ends(
    spark_lake: SparkLake, lake: Lake, namespace: str
) -> None:
    table = f"{namespace}.t"
    plaintext(spark_lake, table)
    spark_lake.rows(f"ALTER TABLE {table} CREATE BRANCH b")
    append(spark_lake, f"{table}.branch_b", 7)
    spark_lake.rows(f"CREATE TABLE {namespace}.empty (id INT)")
    spark_lake.rows(f"CREATE VIEW {namespace}.v AS SELECT id FROM {table}")
    done = migrate(lake, namespace)
    assert {name: each.status for name, each in done.items()} == {"t": Status.DONE, "empty": Status.DONE}
    # Two files of the main branch, and three of the other one.
    assert done["t"].counts["compared-rows"] == 5
    assert done["t"].counts["left-files"] == 0
    assert epochs(lake, table)["old-forbidden"] and epochs(lake, f"{namespace}.empty")["old-forbidden"]
    assert ids(spark_lake, table) == [0, 1]
    assert ids(spark_lake, f"{table}.branch_b") == [0, 1, 7]
    again = pipelines.migrate(lake.spark, patterns(namespace), ENVELOPE, catalog=CATALOG, show=False)
    assert (again.state, again.counts.get("rewritten-files"), again.findings) == (RunState.COMPLETE, None, ())
    planned = pipelines.migrate(lake.spark, patterns(namespace), catalog=CATALOG, show=False, dry_run=True)
    assert {each.table.split(".")[-1]: each.files for each in planned.planned} == {"t": 1, "empty": 0}


def test_no_bound_of_a_file_that_was_in_plaintext_stays_in_storage(
    spark_lake: SparkLake, lake: Lake, namespace: str
) -> None:
    table = f"{namespace}.t"
    plaintext(spark_lake, table)
    assert any(_bounds(spark_lake, table))
    assert only(migrate(lake, namespace)).status is Status.DONE
    assert not any(_bounds(spark_lake, table))


def _bounds(spark_lake: SparkLake, table: str) -> list[Any]:
    """The bounds and sizes in all entries of the retained snapshots, removed files included."""
    loaded = stock_table(spark_lake, table)
    return [
        each
        for snapshot in loaded.metadata.snapshots
        for manifest in snapshot.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=False)
        for file in [entry.data_file]
        for each in (file.lower_bounds, file.upper_bounds, file.column_sizes, file.value_counts)
    ]


@pytest.mark.nightly
def test_writers_go_on_and_their_rows_are_counted(
    spark_lake: SparkLake, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{namespace}.t"
    plaintext(spark_lake, table, files=3)

    def write() -> None:
        append(spark_lake, table, 9)
        spark_lake.rows(f"DELETE FROM {table} WHERE id = 1")
        spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN more STRING")
        spark_lake.rows(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
        spark_lake.rows(f"UPDATE {table} SET id = 20 WHERE id = 2")
        assert ids(spark_lake, table) == [0, 9, 20]

    during(monkeypatch, write)
    found = only(migrate(lake, namespace, wanted=Wanted("expire", max_group_bytes=1)))
    assert found.status is Status.DONE, found.reason
    assert found.counts["compared-rows"] == 3
    assert [each.rule for each in found.findings] == ["columns-not-compared"]
    assert "'more'" in found.findings[0].message
    assert ids(spark_lake, table) == [0, 9, 20]


@pytest.mark.nightly
def test_properties_that_a_user_changes_back_leave_the_table(
    spark_lake: SparkLake, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{namespace}.t"
    plaintext(spark_lake, table)
    back = f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'plaintext')"
    during(monkeypatch, lambda: spark_lake.rows(back))
    steps = MemorySteps()
    found = only(migrate(lake, namespace, steps, wanted=Wanted("expire", max_group_bytes=1)))
    assert found.status is Status.LEFT
    assert "encryption.mechanism" in (found.reason or "")
    assert only(migrate(lake, namespace, steps)).status is Status.DONE
    assert epochs(lake, table)["old-forbidden"]


@pytest.mark.nightly
def test_columns_that_are_reordered_while_rows_are_compared_are_no_difference(
    spark_lake: SparkLake, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT 1 AS a, 2 AS b")
    changes, steps = _Comparison._changes, MemorySteps()

    def late(self: _Comparison, start: int, end: int) -> Any:
        spark_lake.rows(f"ALTER TABLE {table} ALTER COLUMN b FIRST")
        return changes(self, start, end)

    during(monkeypatch, lambda: spark_lake.rows(f"INSERT INTO {table} VALUES (5, 6)"))
    with monkeypatch.context() as patched:
        patched.setattr(_Comparison, "_changes", late)
        found = only(migrate(lake, namespace, steps))
    assert (found.status, found.findings) == (Status.LEFT, ()), found.reason
    assert only(migrate(lake, namespace, steps)).status is Status.DONE


def falsify(spark_lake: SparkLake, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the one file of a table by one with another row, as an engine that writes wrong rows would."""
    file = data_files(spark_lake, table)[0]["file_path"]
    head = stock_table(spark_lake, table).metadata.current_snapshot_id
    post = CatalogClient.post

    def replacing(self: CatalogClient, path: Sequence[str], body: Any = None) -> dict[str, Any]:
        if path[-1] == "commit":
            body = {**body, "operation": "replace", "deleted-paths": [file], "base-snapshot-id": head}
        return post(self, path, body)

    with monkeypatch.context() as patched:
        patched.setattr(CatalogClient, "post", replacing)
        mine = lakewarden.connect(spark_lake.service.url, spark_lake.service.token(ALICE))
        mine.table(table.removeprefix(f"{CATALOG}.")).append(pa.table({"id": pa.array([666], pa.int32())}))


def test_rows_that_a_rewrite_changed_end_the_run(
    spark_lake: SparkLake, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        spark_lake.rows(f"CREATE TABLE {namespace}.{name} AS SELECT 1 AS id")
    before = stock_table(spark_lake, f"{namespace}.a").metadata.current_snapshot_id
    during(monkeypatch, lambda: falsify(spark_lake, f"{namespace}.a", monkeypatch))
    steps = MemorySteps()
    done = migrate(lake, namespace, steps, stop_after_failures=2)
    assert [each.status for each in done.values()] == [Status.FAILED, Status.LEFT]
    assert "wave 1 failed" in (done["b"].reason or "")
    (found,) = done["a"].findings
    assert (found.rule, found.ref, found.severity) == ("rows-differ", "main", "error")
    assert found.snapshot == stock_table(spark_lake, f"{namespace}.a").metadata.current_snapshot_id
    assert f"snapshot {before}" in found.message
    # It stays so: nothing expires, nothing is forbidden, and the next run says the same.
    assert migrate(lake, namespace, steps)["a"].reason == done["a"].reason
    assert ids(spark_lake, f"{namespace}.a VERSION AS OF {before}") == [1]
    assert not epochs(lake, f"{namespace}.a")["old-forbidden"]


@pytest.mark.nightly
def test_what_cannot_be_migrated_is_told_and_the_rest_is(
    spark_lake: SparkLake, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("damaged", "denied", "dropped", "fine", "renamed"):
        plaintext(spark_lake, f"{namespace}.{name}", files=1)
    damaged = local_path(data_files(spark_lake, f"{namespace}.damaged")[0])
    whole = damaged.read_bytes()
    damaged.write_bytes(b"PAR1 no more")
    pipeline = Migrate(
        patterns(namespace), ENVELOPE, wanted=Wanted("expire"), waves=(5,), stop_after_failures=5, at_a_time=1
    )
    planned, steps = items(pipeline, lake), MemorySteps()
    spark_lake.rows(f"DROP TABLE {namespace}.dropped")
    spark_lake.rows(
        f"ALTER TABLE {namespace}.renamed RENAME TO {namespace.removeprefix(f'{CATALOG}.')}.other"
    )
    spark_lake.lake.set_policies([*standard_policies(), denied(namespace, "denied")])
    try:
        done = {each.table.split(".")[-1]: each for each in pipeline.run(lake, planned, steps)}
    finally:
        spark_lake.lake.set_policies(standard_policies())
    assert {name: each.status for name, each in done.items()} == {
        "damaged": Status.FAILED,
        "denied": Status.FAILED,
        "dropped": Status.LEFT,
        "fine": Status.DONE,
        "renamed": Status.LEFT,
    }
    assert damaged.name in (done["damaged"].reason or "")
    assert "NotAuthorized" in (done["denied"].reason or "") or "update" in (done["denied"].reason or "")
    assert all("dropped or renamed" in (done[name].reason or "") for name in ("dropped", "renamed"))
    # Nothing of a table that cannot be read was changed. The second run does what was left.
    name = TableName((namespace.removeprefix(f"{CATALOG}."),), "damaged")
    assert lake.metadata(name).properties["encryption.mechanism"] == "plaintext"
    damaged.write_bytes(whole)
    again = migrate(lake, namespace, steps)
    assert {name: each.status for name, each in again.items()} == dict.fromkeys(
        ("damaged", "denied", "fine", "other"), Status.DONE
    )
    assert all(ids(spark_lake, f"{namespace}.{name}") == [0] for name in again)


def denied(namespace: str, table: str) -> dict[str, Any]:
    """A policy that takes the right to write a table from Alice."""
    one = {"database": [namespace.removeprefix(f"{CATALOG}.")], "table": [table], "column": ["*"]}
    items = [{"users": [ALICE], "accesses": [{"type": "update", "isAllowed": True}]}]
    return {**policy("denied", one, {}), "denyPolicyItems": items}


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_a_driver_that_dies_anywhere_leaves_what_the_next_one_finishes(
    spark_lake: SparkLake, lake: Lake, namespace: str, after: bool, first: int
) -> None:
    wanted = Wanted("expire", max_group_bytes=1)
    for calls in range(first, 100, 4):
        other = f"{namespace}.t{calls}"
        plaintext(spark_lake, other, files=3)
        steps = DyingSteps()
        steps.lake = DyingLake(lake, calls, after=after)
        pipeline = Migrate(other.removeprefix(f"{CATALOG}."), ENVELOPE)
        (item,) = items(pipeline, lake)
        try:
            outcome = TableMigration(steps.lake, item, steps, wanted).run()
            assert outcome.status is Status.DONE
            assert calls > 10
            return
        except Killed:
            assert ids(spark_lake, other) == [0, 1, 2]
        noted = steps.notes.get(item.key, {})
        compares = "begun" in noted and "compared" not in noted
        append(spark_lake, other, 9)
        if calls // 4 % 2:
            renamed = f"{other}_renamed"
            spark_lake.rows(f"ALTER TABLE {other} RENAME TO {renamed.removeprefix(f'{CATALOG}.')}")
            pipeline, other = Migrate(renamed.removeprefix(f"{CATALOG}."), ENVELOPE), renamed
            (again,) = items(pipeline, lake)
            assert again.key == item.key
            item = again
        outcome = TableMigration(lake, item, MemorySteps(steps.notes), wanted).run()
        assert (outcome.status, outcome.findings) == (Status.DONE, ()), (calls, outcome.reason)
        if compares:
            assert outcome.counts["compared-rows"] == 4, calls
        assert epochs(lake, other)["old-forbidden"]
        assert ids(spark_lake, other) == [0, 1, 2, 9]


@pytest.mark.nightly
def test_history_is_kept_unless_it_is_to_expire(spark_lake: SparkLake, lake: Lake, namespace: str) -> None:
    table = f"{namespace}.t"
    plaintext(spark_lake, table)
    spark_lake.rows(f"ALTER TABLE {table} CREATE TAG first")
    (first,) = spark_lake.rows(f"SELECT snapshot_id FROM {table}.refs WHERE name = 'first'")
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    stager = spark_lake.new_session()
    stager.conf.set("spark.wap.id", "audit")
    stager.sql(f"INSERT INTO {table} SELECT {ROW.format('7')}").collect()
    kept = only(migrate(lake, namespace, wanted=Wanted("keep")))
    assert kept.status is Status.LEFT
    assert f"{first[0]} (tag first) with 2 files" in (kept.reason or "")
    assert "3 retained snapshots" in (kept.reason or "")
    assert only(migrate(lake, namespace, wanted=Wanted("keep", forbid_old=False))).status is Status.DONE
    tagged = only(migrate(lake, namespace))
    assert (tagged.status, tagged.counts["expired-snapshots"]) == (Status.LEFT, 1)
    assert ids(spark_lake, f"{table} VERSION AS OF 'first'") == [0, 1]
    spark_lake.rows(f"ALTER TABLE {table} DROP TAG first")
    staged = only(migrate(lake, namespace))
    assert (staged.status, staged.counts["expired-snapshots"]) == (Status.LEFT, 1)
    (left,) = epochs(lake, table)["snapshots"]
    assert f"{left['snapshot-id']} with 3 files" in (staged.reason or "")
    assert ids(spark_lake, f"{table} VERSION AS OF {left['snapshot-id']}") == [0, 1, 7]
    name = table.removeprefix(f"{CATALOG}.")
    spark_lake.rows(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '1970-01-02', "
        f"snapshot_ids => array({left['snapshot-id']}))"
    )
    assert only(migrate(lake, namespace)).status is Status.DONE
    assert epochs(lake, table)["old-forbidden"]


@pytest.mark.nightly
def test_snapshots_that_expire_meanwhile_leave_the_comparison_to_be_told(
    spark_lake: SparkLake, lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{namespace}.t"
    plaintext(spark_lake, table, files=3)

    def expire() -> None:
        append(spark_lake, table, 9)
        name = table.removeprefix(f"{CATALOG}.")
        spark_lake.rows(f"CALL {CATALOG}.system.expire_snapshots('{name}', TIMESTAMP '2100-01-01')")

    during(monkeypatch, expire)
    steps = MemorySteps()
    found = only(migrate(lake, namespace, steps, wanted=Wanted("expire", max_group_bytes=1)))
    assert (found.status, [each.rule for each in found.findings]) == (Status.LEFT, ["rows-not-compared"])
    again = only(migrate(lake, namespace, steps))
    assert (again.status, again.findings) == (Status.DONE, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"properties": {"read.allowed.data.paths": "file:///"}},
        {"properties": {"owner": "mallory"}},
        {"properties": {"encryption.algorithm": "ROT13"}},
        {"wanted": Wanted("forget")},  # type: ignore[arg-type]
        {"wanted": Wanted(max_group_bytes=0)},
        {"properties": ENVELOPE, "by_policy": True},
        {"waves": (0,)},
        {"stop_after_failures": 0},
    ],
)
def test_arguments_that_are_not_valid_are_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises((RequestInvalid, PropertyInvalid)):
        Migrate("sales.*", **wrong)


@pytest.mark.nightly
def test_tables_and_properties_follow_from_the_encryption_rules(
    spark_lake: SparkLake, lake: Lake, namespace: str
) -> None:
    database = namespace.removeprefix(f"{CATALOG}.")
    for name in ("a", "b", "fine"):
        spark_lake.rows(f"CREATE TABLE {namespace}.{name} AS SELECT 1 AS id")
    spark_lake.rows(f"CREATE TABLE {namespace}.column AS SELECT 'x' AS ssn, 1 AS id")
    here = {"databases": [database]}
    put_rules(
        spark_lake.lake,
        rule("tables", tables=["a", "b"], **here),
        rule("keys", tables=["a"], minDataKeyLength=32, algorithms=["AES_GCM_CTR_V1"], **here),
        rule("column keys", tables=["column"], columns=["ssn"], columnKey=True, **here),
    )
    try:
        pipeline = Migrate(f"{database}.*", by_policy=True, wanted=Wanted("expire"))
        planned = items(pipeline, lake)
        done = {each.table.split(".")[1]: each for each in pipeline.run(lake, planned, MemorySteps())}
        assert {name: each.status for name, each in done.items()} == {
            "a": Status.DONE,
            "b": Status.DONE,
            "column": Status.LEFT,
        }
        assert "Column 'ssn' must have a column key." in (done["column"].reason or "")
        table = lake.metadata(TableName((database,), "a"))
        assert table.properties["encryption.algorithm"] == "AES_GCM_CTR_V1"
        assert "AES_GCM_CTR_V1" in planned[0].why
        left = [each.table for each in items(pipeline, lake)]
        assert f"{database}.column" in left and f"{database}.fine" not in left
    finally:
        put_rules(spark_lake.lake)
