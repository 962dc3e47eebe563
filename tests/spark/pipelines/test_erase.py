"""Erasure of rows: branches, snapshots, tags, files, writers meanwhile, interruptions, certificates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyspark.errors import PySparkException
from pyspark.sql import Row

from policy.errors import RequestInvalid
from spark_ext.pipelines import erase as erasing
from spark_ext.pipelines.erase import erase, was_erased
from spark_ext.pipelines.erase import table as erase_table
from spark_ext.pipelines.erase.identifiers import Identifiers, Scrypt
from spark_ext.pipelines.erase.pipeline import Erase, Where
from spark_ext.pipelines.erase.search import Search, Views
from spark_ext.pipelines.erase.table import Erasure
from spark_ext.pipelines.items import Status
from spark_ext.pipelines.journal import FINDINGS, RUNS
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.report import Report, RunState
from tests.support.lake import BOB
from tests.support.pipeline_steps import DyingLake, DyingSteps, Killed, MemorySteps
from tests.support.rules import put_rules, rule, tag
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import data_files, local_path, stock_table

#: As long as what a bound keeps, so that it would be seen there as a whole.
ANN, SUE, EVE = "ann-4711-secret", "sue-4712-secret", "eve-4713-secret"


def run(spark_lake: SparkLake, columns: Mapping[str, list[str]], **options: Any) -> Report:
    named = {table.removeprefix(f"{CATALOG}."): each for table, each in columns.items()}
    identifiers = options.pop("identifiers", [ANN, "99"])
    return erase(spark_lake.spark, identifiers, named, catalog=CATALOG, show=False, **options)


def table_of(spark_lake: SparkLake, name: str, *properties: str, columns: str = "") -> str:
    """A table with two files of two rows in two snapshots: ids 1 to 4, people ann, sue, ann, eve."""
    listed = ", ".join(properties or ("'write.delete.mode' = 'copy-on-write'",))
    spark_lake.rows(
        f"CREATE TABLE {name} (id INT, person STRUCT<name: STRING>{columns}) TBLPROPERTIES ({listed})"
    )
    for first, people in ((1, (ANN, SUE)), (3, (ANN, EVE))):
        rows = ", ".join(f"({first + n}, named_struct('name', '{who}'))" for n, who in enumerate(people))
        one_file = f"SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}"
        spark_lake.rows(f"INSERT INTO {name} (id, person) {one_file}")
    return name


def ids(spark_lake: SparkLake, source: str) -> list[int]:
    return sorted(row.id for row in spark_lake.rows(f"SELECT id FROM {source}"))


def files_of(spark_lake: SparkLake, table: str) -> set[Path]:
    location = Path(stock_table(spark_lake, table).location().removeprefix("file://"))
    return {each for each in location.rglob("*") if each.suffix in (".parquet", ".avro")}


def bounds(spark_lake: SparkLake, table: str) -> str:
    """All bounds of all entries of all manifests that a retained snapshot lists."""
    rows = spark_lake.rows(f"SELECT data_file.lower_bounds, data_file.upper_bounds FROM {table}.all_entries")
    return str([each.values() for row in rows for each in row])


def certificates(spark_lake: SparkLake, table: str, action: str = "table.certify") -> list[dict[str, Any]]:
    with spark_lake.service.client() as client:
        about = {"table": table.removeprefix(f"{CATALOG}."), "limit": 1000}
        records = client.get("/admin/v1/audit", params=about).json()["records"]
    return [each for each in records if each["action"] == action]


def everything_recorded(spark_lake: SparkLake) -> str:
    lake = Lake(spark_lake.spark, CATALOG)
    rows = [row for table in (RUNS, FINDINGS) for row in lake.sql(f"SELECT * FROM {lake.name(table)}")]
    with spark_lake.service.client() as client:
        audit = client.get("/admin/v1/audit", params={"limit": 10_000}).text
    return f"{rows} {audit}"


@pytest.mark.nightly
def test_rows_are_erased_from_branches_snapshots_and_files_and_it_is_certified(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = table_of(spark_lake, f"{namespace}.t", "'write.delete.mode' = 'merge-on-read'")
    spark_lake.rows(f"ALTER TABLE {table} CREATE BRANCH audit")
    spark_lake.rows(f"INSERT INTO {table}.branch_audit VALUES (99, named_struct('name', 'else'))")
    spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN person.name TO called")
    before = files_of(spark_lake, table)
    columns = {table: ["person.called", "id"]}
    planned = run(spark_lake, columns, dry_run=True)
    assert planned.state is RunState.PLANNED
    assert planned.counts["rows"] == 5
    assert files_of(spark_lake, table) == before

    report = run(spark_lake, columns)
    assert report.state is RunState.COMPLETE, report.to_dict()
    assert report.counts["rows"] == 5
    assert ids(spark_lake, table) == ids(spark_lake, f"{table}.branch_audit") == [2, 4]
    assert not before & files_of(spark_lake, table)
    assert ANN not in bounds(spark_lake, table)
    retained = {each.snapshot_id for each in stock_table(spark_lake, table).snapshots()}
    records = certificates(spark_lake, table)
    reasons = [each for record in records for each in record["reasons"]]
    said = {each["rule"]: each["detail"] for each in reasons}
    assert said["erased-rows"] == "5"
    assert set(map(int, said["snapshots-searched"].split())) == retained
    assert not retained & set(map(int, said["snapshots-gone"].split()))
    assert was_erased(ANN, reasons)
    assert was_erased(99, reasons)
    assert not was_erased(SUE, reasons)
    told = f"{report.to_dict()} {planned.to_dict()} {everything_recorded(spark_lake)}"
    assert ANN not in told


@pytest.mark.nightly
def test_a_tag_keeps_rows_until_it_is_dropped(spark_lake: SparkLake, namespace: str) -> None:
    table = table_of(spark_lake, f"{namespace}.t", "'encryption.mechanism' = 'envelope'")
    spark_lake.rows(f"ALTER TABLE {table} CREATE TAG v1")
    report = run(spark_lake, {table: ["person.name"]})
    assert report.state is RunState.INCOMPLETE
    (left,) = report.not_done
    assert left.status is Status.FAILED
    assert "v1" in (left.reason or "")
    assert [(each.rule, each.ref) for each in report.findings] == [("tag-holds-rows", "v1")]
    assert ids(spark_lake, table) == [2, 4]
    assert not certificates(spark_lake, table)
    assert certificates(spark_lake, table, "table.certify-left")
    done = run(spark_lake, {table: ["person.name"]}, drop_tags=True)
    assert done.state is RunState.COMPLETE, done.to_dict()
    assert done.counts["dropped-tags"] == 1
    assert [row.name for row in spark_lake.rows(f"SELECT name FROM {table}.refs")] == ["main"]
    assert certificates(spark_lake, table)


@pytest.mark.nightly
def test_rows_that_delete_files_hide_are_rewritten_and_removed(spark_lake: SparkLake, namespace: str) -> None:
    table = table_of(spark_lake, f"{namespace}.t", "'write.delete.mode' = 'merge-on-read'")
    spark_lake.rows(f"DELETE FROM {table} WHERE id IN (1, 3)")
    assert spark_lake.rows(f"SELECT content FROM {table}.delete_files")
    before = files_of(spark_lake, table)
    report = run(spark_lake, {table: ["person.name"]})
    assert report.state is RunState.COMPLETE, report.to_dict()
    assert ids(spark_lake, table) == [2, 4]
    assert spark_lake.rows(f"SELECT * FROM {table}.all_delete_files") == []
    assert not before & files_of(spark_lake, table)
    assert ANN not in bounds(spark_lake, table)


@pytest.mark.nightly
def test_a_tag_keeps_bounds_of_deleted_rows_until_it_is_dropped(
    spark_lake: SparkLake, namespace: str
) -> None:
    """The rows were deleted before, and the tagged snapshot lists entries of the removed files."""
    table = table_of(spark_lake, f"{namespace}.t")
    spark_lake.rows(f"DELETE FROM {table} WHERE person.name = '{ANN}'")
    spark_lake.rows(f"ALTER TABLE {table} CREATE TAG v1")
    report = run(spark_lake, {table: ["person.name"]})
    assert [(each.rule, each.ref) for each in report.findings] == [("tag-holds-rows", "v1")]
    assert ANN in bounds(spark_lake, table)
    assert not certificates(spark_lake, table)
    done = run(spark_lake, {table: ["person.name"]}, drop_tags=True)
    assert done.continued and done.state is RunState.COMPLETE, done.to_dict()
    assert ANN not in bounds(spark_lake, table)


@pytest.mark.nightly
def test_files_elsewhere_keep_a_table_from_its_certificate_until_they_are_removed(
    spark_lake: SparkLake, namespace: str
) -> None:
    database, table = namespace.removeprefix(f"{CATALOG}."), f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id INT, name STRING)")
    elsewhere = spark_lake.lake.root / f"elsewhere-{database}"
    elsewhere.mkdir()
    allowed = json.dumps([stock_table(spark_lake, table).location(), f"file://{elsewhere}"])
    changed = {"read.allowed.data.paths": allowed, "write.data.path": f"file://{elsewhere}"}
    Lake(spark_lake.spark, CATALOG).admin("PATCH", ("tables", database, "t"), {"set": changed, "unset": []})
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, '{ANN}'), (2, '{SUE}')")
    foreign = [local_path(each) for each in data_files(spark_lake, table)]
    for _ in range(2):
        report = run(spark_lake, {table: ["name"]}, identifiers=[ANN])
        assert [each.rule for each in report.findings] == ["files-left"]
        assert "outside of" in (report.not_done[0].reason or "")
        assert not certificates(spark_lake, table)
    listed = {local_path(each) for each in data_files(spark_lake, table)}
    for each in set(foreign) - listed:
        each.unlink()
    done = run(spark_lake, {table: ["name"]}, identifiers=[ANN])
    assert done.continued and done.state is RunState.COMPLETE, done.to_dict()
    assert certificates(spark_lake, table)


@pytest.mark.nightly
def test_columns_are_chosen_by_tags(spark_lake: SparkLake, namespace: str) -> None:
    table, database = table_of(spark_lake, f"{namespace}.t"), namespace.removeprefix(f"{CATALOG}.")
    spark_lake.rows(f"CREATE TABLE {namespace}.other (name STRING)")
    put_rules(
        spark_lake.lake,
        rule("r", databases=["nowhere"], tags=["person"]),
        tags=(tag("person", "person.name", databases=[database]),),
    )
    choice: dict[str, Any] = {"tables": f"{database}.*", "catalog": CATALOG, "show": False}
    try:
        report = erase(spark_lake.spark, [ANN], tags=["person"], **choice)
        assert report.items == {"done": 1, "failed": 0, "left": 0}, report.to_dict()
        assert ids(spark_lake, table) == [2, 4]
        said = [each for record in certificates(spark_lake, table) for each in record["reasons"]]
        assert [each["detail"] for each in said if each["rule"] == "columns"] == ["person.name"]
        with pytest.raises(RequestInvalid, match="has one of the tags"):
            erase(spark_lake.spark, [ANN], tags=["persn"], **choice)
    finally:
        put_rules(spark_lake.lake)


@pytest.mark.nightly
def test_a_column_that_was_dropped_and_restored_hides_no_rows(spark_lake: SparkLake, namespace: str) -> None:
    for number, begin in enumerate(("id INT, name STRING", "id INT")):
        table = f"{namespace}.t{number}"
        spark_lake.rows(f"CREATE TABLE {table} ({begin})")
        if number:
            spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN name STRING")
        spark_lake.rows(f"INSERT INTO {table} VALUES (1, '{ANN}')")
        with_name = stock_table(spark_lake, table)
        spark_lake.rows(f"ALTER TABLE {table} DROP COLUMN name")
        spark_lake.rows(f"INSERT INTO {table} VALUES (3)")
        restored = stock_table(spark_lake, table)
        first = SetCurrentSchemaUpdate(schema_id=with_name.metadata.current_schema_id)
        restored.catalog.commit_table(restored, (), (first,))
        snapshot = with_name.snapshots()[0].snapshot_id
        spark_lake.rows(
            f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', "
            f"older_than => TIMESTAMP '1970-01-02', snapshot_ids => array({snapshot}))"
        )
        report = run(spark_lake, {table: ["name"]}, identifiers=[ANN])
        assert "restored-column" in (report.not_done[0].reason or ""), report.to_dict()
        assert not certificates(spark_lake, table)
    added = f"{namespace}.added"
    spark_lake.rows(f"CREATE TABLE {added} (id INT)")
    spark_lake.rows(f"INSERT INTO {added} VALUES (1)")
    spark_lake.rows(f"ALTER TABLE {added} ADD COLUMN name STRING")
    report = run(spark_lake, {added: ["name"]}, identifiers=[ANN])
    assert report.state is RunState.COMPLETE, report.to_dict()


@pytest.mark.nightly
def test_tables_without_such_rows_are_not_changed(spark_lake: SparkLake, namespace: str) -> None:
    table = table_of(spark_lake, f"{namespace}.t")
    spark_lake.rows(f"CREATE TABLE {namespace}.empty (name STRING)")
    before = stock_table(spark_lake, table).metadata_location
    report = run(spark_lake, {table: ["person.name"], f"{namespace}.empty": ["name"]}, identifiers=["nobody"])
    assert report.state is RunState.COMPLETE, report.to_dict()
    assert stock_table(spark_lake, table).metadata_location == before
    assert all(certificates(spark_lake, each) for each in (table, f"{namespace}.empty"))


class Writer(Lake):
    """A lake in which somebody adds a matching row right after rows were deleted."""

    def __init__(self, lake: Lake, table: str) -> None:
        super().__init__(lake.spark, lake.catalog)
        self._statement = f"INSERT INTO {table} (id, person) VALUES (7, named_struct('name', '{ANN}'))"

    def sql(self, statement: str, args: Mapping[str, Any] | None = None) -> list[Row]:
        """See `Lake.sql`."""
        rows = super().sql(statement, args)
        if statement.startswith("DELETE"):
            super().sql(self._statement)
        return rows


def _pipeline(table: str, erasure: Erasure | None = None) -> Erase:
    found = Identifiers.of([ANN])
    scrypt = Scrypt("ab" * 16)
    made = erasure or Erasure(
        "6b0e6a5c-6f0e-4b0e-9a53-0d3c1f0a8a11", found, scrypt, found.digests(scrypt), drop_tags=False
    )
    return Erase(Where({table.removeprefix(f"{CATALOG}."): ["person.name"]}), made)


@pytest.mark.nightly
def test_rows_that_a_writer_adds_meanwhile_leave_the_table_to_the_next_run(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = table_of(spark_lake, f"{namespace}.t")
    lake, steps, pipeline = Lake(spark_lake.spark, CATALOG), MemorySteps(), _pipeline(table)
    (item,) = pipeline.plan(lake)
    (left,) = pipeline.run(Writer(lake, table), [item], steps)
    assert left.status is Status.LEFT
    assert [each.rule for each in left.findings] == ["rows-left"]
    assert not certificates(spark_lake, table)
    (done,) = pipeline.run(lake, [item], steps)
    assert done.status is Status.DONE, done.reason
    assert done.counts["rows"] == 3
    assert ids(spark_lake, table) == [2, 4]


@pytest.mark.nightly
def test_a_run_of_the_same_identifiers_is_continued_and_another_one_is_not(
    spark_lake: SparkLake, namespace: str, tmp_path: Path
) -> None:
    table = table_of(spark_lake, f"{namespace}.t", "'gc.enabled' = 'false'")
    columns = {table: ["person.name"]}
    file = tmp_path / "identifiers.txt"
    file.write_text(f"{ANN}\n\n")
    first = run(spark_lake, columns, identifiers=file)
    assert "gc.enabled" in (first.not_done[0].reason or "")
    other = run(spark_lake, columns, identifiers=[SUE])
    lake, named = Lake(spark_lake.spark, CATALOG), table.removeprefix(f"{CATALOG}.")
    forged = {"columns": {named: ["person.name"]}, "erasure": 1, "salt": "zz", "identifiers": "x"}
    for number, text in enumerate(("{", "[1]", json.dumps(forged))):
        lake.sql(
            f"INSERT INTO {lake.name(RUNS)} (run_id, pipeline, event, at, parameters) "
            "VALUES (:run, 'erase', 'begun', now(), :text)",
            {"run": f"forged-{number}-{namespace}", "text": text},
        )
    again = run(spark_lake, columns, identifiers=[ANN])
    assert again.run_id == first.run_id
    assert again.continued
    assert other.run_id != first.run_id


@pytest.mark.nightly
def test_what_cannot_be_erased_fails_with_the_reason(spark_lake: SparkLake, namespace: str) -> None:
    table = table_of(spark_lake, f"{namespace}.t", columns=", names ARRAY<STRING>, born DATE")
    absent = f"{namespace}.absent"
    reasons = {}
    for column in ("nothing", "names.element", "born", "id"):
        report = run(spark_lake, {table: [column]}, identifiers=["ann"])
        reasons[column] = report.not_done[0].reason or ""
    for column, part in {
        "nothing": "does not exist",
        "names.element": "inside of a list or map",
        "born": "type date",
        "id": "None of the identifiers",
    }.items():
        assert part in reasons[column], reasons
    report = run(spark_lake, {absent: ["id"], table: ["person.name"]}, identifiers=["ann"])
    assert {each.table: each.status for each in report.outcomes} == {
        absent.removeprefix(f"{CATALOG}."): Status.FAILED,
        table.removeprefix(f"{CATALOG}."): Status.DONE,
    }
    named = table.removeprefix(f"{CATALOG}.")
    bob = spark_lake.session(BOB)
    steps, lake = MemorySteps(), Lake(bob, CATALOG)
    pipeline = _pipeline(named)
    (refused,) = pipeline.run(lake, list(pipeline.plan(lake)), steps)
    assert refused.status is Status.FAILED
    assert "NotAuthorized" in (refused.reason or "") or "not authorized" in (refused.reason or "")
    for given in ([], [str(each) for each in range(1_001)]):
        with pytest.raises(RequestInvalid):
            run(spark_lake, {table: ["id"]}, identifiers=given)
    with pytest.raises(RequestInvalid):
        erase(spark_lake.spark, [ANN], catalog=CATALOG, show=False)


def test_identifiers_stand_in_no_plan(spark_lake: SparkLake, namespace: str) -> None:
    table = table_of(spark_lake, f"{namespace}.t")
    lake = Lake(spark_lake.spark, CATALOG)
    views = Views(lake, Identifiers.of([ANN, SUE]))
    (item,) = _pipeline(table).plan(lake)
    name = erasing.pipeline.TableName(tuple(item.payload["namespace"]), item.payload["name"])
    search = Search(lake, name, views, lake.metadata(name), ["person.name"])
    for statement in (f"DELETE FROM {table}", f"SELECT count(*) FROM {table}"):
        (plan,) = spark_lake.rows(f"EXPLAIN EXTENDED {statement} WHERE {search.condition}")
        assert "LocalRelation" in plan[0] or "LocalTableScan" in plan[0]
        assert ANN not in plan[0]
    assert (
        ANN not in f"{views!r} {search!r} {search.condition} {Identifiers.of([ANN])!r} {_pipeline(table)!r}"
    )
    views.drop()


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
def test_an_erasure_that_is_killed_anywhere_is_finished_by_the_next_run(
    spark_lake: SparkLake, namespace: str, after: bool
) -> None:
    calls = 1
    while True:
        table = table_of(spark_lake, f"{namespace}.t{calls}", "'write.delete.mode' = 'merge-on-read'")
        spark_lake.rows(f"ALTER TABLE {table} CREATE BRANCH audit")
        pipeline = _pipeline(table)
        real = Lake(spark_lake.spark, CATALOG)
        (item,) = pipeline.plan(real)
        lake = DyingLake(real, calls, after=after)
        steps = DyingSteps(lake=lake)
        try:
            (killed,) = pipeline.run(lake, [item], steps)
        except Killed:
            killed = None
        (done,) = pipeline.run(real, [item], MemorySteps(steps.notes))
        assert done.status is Status.DONE, (calls, done.reason)
        assert done.counts["rows"] == 4
        assert ids(spark_lake, table) == ids(spark_lake, f"{table}.branch_audit") == [2, 4]
        assert ANN not in bounds(spark_lake, table)
        if killed is not None:
            break
        calls += 1
    assert calls > 8
    assert json.dumps(steps.notes)


@pytest.mark.nightly
def test_rows_that_a_conflict_did_not_delete_are_counted_once(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer adds a matching row, and the first deletion conflicts with its commit."""
    table, delete, conflicts = table_of(spark_lake, f"{namespace}.t"), Search.delete, iter([True])

    def conflicting(self: Search, branch: str) -> None:
        if next(conflicts, False):
            spark_lake.rows(f"INSERT INTO {table} (id, person) VALUES (5, named_struct('name', '{ANN}'))")
            raise PySparkException("The commit conflicts.")
        delete(self, branch)

    monkeypatch.setattr(Search, "delete", conflicting)
    monkeypatch.setattr(erase_table, "name_of", lambda error: "COMMIT_CONFLICT")
    report = run(spark_lake, {table: ["person.name"]})
    assert (report.state, report.counts["rows"]) == (RunState.COMPLETE, 3)
    assert ids(spark_lake, table) == [2, 4]
