"""CALL rewrite_data_files: files become what the table's properties say, while others read and write."""

from __future__ import annotations

import threading
from contextlib import suppress

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.manifest import DataFileContent
from pyspark.errors import PySparkException

from catalog.base import crash_points
from catalog.envelope.key_metadata import KeyMetadata
from policy.encryption.specification import Algorithm, Footer
from policy.errors import StateUnavailable
from tests.support.delete_files import add_deletes
from tests.support.lake import ALICE, BOB, policy, standard_policies, tables
from tests.support.reads import publish, with_ids
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import (
    create_table,
    data_files,
    local_path,
    master_keys,
    migrating,
    stock_table,
)

pytestmark = pytest.mark.core


def below(table: str) -> str:
    """The table's name without the catalog's."""
    return table.removeprefix(f"{CATALOG}.")


def call(spark_lake: SparkLake, table: str, **options: object) -> dict[str, object]:
    """CALL as Alice; its one row."""
    listed = ", ".join(f"{name} => {value}" for name, value in options.items())
    more = f", {listed}" if listed else ""
    frame = spark_lake.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{below(table)}'{more})")
    (row,) = frame.collect()
    return dict(row.asDict())


def statement(table: str, *options: str) -> str:
    listed = ", ".join([f"table => '{below(table)}'", *options])
    return f"CALL {CATALOG}.system.rewrite_data_files({listed})"


def encrypted(spark_lake: SparkLake, table: str) -> list[bool]:
    return [file["key_metadata"] is not None for file in data_files(spark_lake, table)]


def test_plaintext_becomes_encrypted(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    migrating(spark_lake, table)
    spark_lake.rows(f"INSERT INTO {table} VALUES (3, NULL)")
    before = sorted(spark_lake.rows(f"SELECT * FROM {table}"), key=str)
    done = call(spark_lake, table)
    assert (done["rewritten_files"], done["added_files"], done["left_files"]) == (3, 1, 0)
    assert encrypted(spark_lake, table) == [True, True]
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}"), key=str) == before
    assert stock_table(spark_lake, table).metadata.current_snapshot().summary.operation.value == "replace"
    again = call(spark_lake, table)
    assert (again["rewritten_files"], again["added_files"], again["failed_groups"]) == (0, 0, 0)


def test_appends_and_reads_go_on_meanwhile(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    migrating(spark_lake, table)
    seen: list[int] = []
    stop = threading.Event()

    def work() -> None:
        session = spark_lake.session(ALICE)
        while not stop.is_set():
            session.sql(f"INSERT INTO {table} VALUES ({100 + len(seen)}, 'new')")
            seen.append(session.table(table).count())

    worker = threading.Thread(target=work)
    worker.start()
    try:
        done = call(spark_lake, table, max_group_bytes=1)
    finally:
        stop.set()
        worker.join()
    assert (done["rewritten_files"], done["failed_groups"], done["left_files"]) == (3, 0, 0)
    assert seen and seen == [3 + number for number in range(1, len(seen) + 1)]
    ids = sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}"))
    assert ids == [*range(3), *range(100, 100 + len(seen))]
    assert all(encrypted(spark_lake, table))


def test_a_rewrite_that_is_cut_short_goes_on_with_what_is_left(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)
    first = call(spark_lake, table, max_groups=1, max_group_bytes=1)
    assert (first["rewritten_files"], first["left_files"]) == (1, 2)
    commits = []

    def hook(point: str) -> None:
        if point == "write:committing":
            commits.append(point)
            if len(commits) > 1:
                raise StateUnavailable("The database is away.")

    with crash_points.hooked(hook):
        cut = call(spark_lake, table, max_group_bytes=1)
    assert (cut["rewritten_files"], cut["failed_groups"], cut["left_files"]) == (1, 1, 1)
    assert "StateUnavailable" in str(cut["problem"])
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
    last = call(spark_lake, table)
    assert (last["rewritten_files"], last["left_files"], last["problem"]) == (1, 0, None)
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before


def test_files_that_cannot_be_read_are_named_and_hold_back_no_others(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Of one group: one file is gone, one is cut short, rows of one are deleted."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT")
    spark_lake.rows(f"INSERT INTO {table} SELECT CAST(id AS INT) FROM range(0, 5, 1, 5)")
    gone, cut, held, *others = (local_path(file) for file in data_files(spark_lake, table))
    stock = stock_table(spark_lake, table)
    add_deletes(spark_lake.lake, stock, DataFileContent.POSITION_DELETES, applies_to=[f"file://{held}"])
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:100])
    done = call(spark_lake, table)
    assert (done["rewritten_files"], done["failed_groups"], done["failed_files"]) == (2, 0, 2)
    assert (done["left_files"], done["held_files"]) == (4, 2)
    *unread, deleted = str(done["problem"]).splitlines()
    assert {line.partition(":")[0] for line in unread} == {"DataFileMissing", "DataFileDamaged"}
    assert gone.name in "".join(unread) and cut.name in "".join(unread)
    assert held.name in deleted and "rule=deletes" in deleted
    assert not any(file.name in str(done["problem"]) for file in others)
    # What nothing more can be done about is refused, by name.
    refused = str(refusal(lambda: call(spark_lake, table)))
    assert gone.name in refused and cut.name in refused


def test_a_file_that_a_group_fails_for_is_found_where_nothing_names_it(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Files with other rows than their manifest counts: a commit tells how many are wrong in all."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT")
    spark_lake.rows(f"INSERT INTO {table} SELECT CAST(id AS INT) FROM range(0, 3, 1, 3)")
    rows = with_ids(pa.table({"id": pa.array([7, 8], pa.int32())}))
    wrong = [publish(spark_lake, table, rows, record_count=count) for count in (1, 1)]
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    sizes = {path.name: path.stat().st_size for path in map(local_path, data_files(spark_lake, table))}
    done = call(spark_lake, table)
    assert (done["rewritten_files"], done["failed_groups"], done["failed_files"]) == (3, 0, 2)
    assert done["rewritten_bytes"] == sum(sizes.values()) - sum(sizes[each.name] for each in wrong)
    told = str(done["problem"]).splitlines()
    assert len(told) == done["left_files"] == 2 and all("rule=record-count" in line for line in told)
    assert {each.name for each in wrong} == {name for name in sizes if name in str(done["problem"])}
    assert sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}")) == [0, 1, 2, 7, 7, 8, 8]


def test_no_file_is_looked_for_where_none_is_the_reason(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)
    begun: list[str] = []

    def hook(point: str) -> None:
        if point == "write:begun":
            begun.append(point)
        if point == "write:committing":
            raise StateUnavailable("The database is away.")

    with crash_points.hooked(hook):
        refused_as("STATE_UNAVAILABLE", spark_lake.spark, statement(table))
    assert len(begun) == 1
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before


def test_whoever_cancels_a_job_cancels_the_rewrite(spark_lake: SparkLake, namespace: str) -> None:
    """It does not pass over the group, as over one that fails, and begin with the next one."""
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)
    context = spark_lake.spark.sparkContext
    context.setJobGroup(namespace, "cancelled")
    begun: list[str] = []

    def hook(point: str) -> None:
        if point == "write:begun":
            begun.append(point)
            if len(begun) == 2:
                context._jsc.sc().cancelJobGroupAndFutureJobs(namespace)

    try:
        with crash_points.hooked(hook), pytest.raises(Py4JJavaError, match="SPARK_JOB_CANCELLED"):
            call(spark_lake, table, max_group_bytes=1)
    finally:
        context._jsc.sc().clearJobGroup()
    assert len(begun) == 2
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
    assert call(spark_lake, table)["rewritten_files"] == 2


def test_rewrites_side_by_side_double_no_row(spark_lake: SparkLake, namespace: str) -> None:
    """Of two for one group one commits; the other says that it failed, or finds nothing left."""
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)

    def work() -> None:
        with suppress(Exception):
            spark_lake.session(ALICE).sql(statement(table, "max_group_bytes => 1")).collect()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert call(spark_lake, table)["left_files"] == 0
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before


def test_from_one_encryption_to_another(spark_lake: SparkLake, namespace: str) -> None:
    """Other columns under keys of their own, other keys, another algorithm, another footer, step by step."""
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)
    call(spark_lake, table)
    master_keys(spark_lake, "pii")
    for properties in (
        {"encryption.columns": "pii:name", "encryption.data-key-length": "16"},
        {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.footer": "plaintext"},
    ):
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ({listed})")
        done = call(spark_lake, table)
        assert (done["rewritten_files"], done["left_files"]) == (1, 0)
        assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
        assert spark_lake.rows(f"SELECT id FROM {table} WHERE name = 'n1'") == [(1,)]
    (metadata,) = [KeyMetadata.parse(file["key_metadata"]) for file in data_files(spark_lake, table)]
    keys = metadata.file_keys()
    assert (keys.algorithm, keys.footer) == (Algorithm.AES_GCM_CTR_V1, Footer.PLAINTEXT)
    assert [(key.pek.master_key_id, key.length) for key in keys.keys] == [("lakewarden", 16), ("pii", 16)]
    (file,) = data_files(spark_lake, table)
    assert local_path(file).read_bytes().endswith(b"PAR1")


def test_parquet_becomes_orc_and_back(spark_lake: SparkLake, namespace: str) -> None:
    """In plaintext, and encrypted, where the format is part of the encryption."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, name STRING")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a'), (2, NULL)")
    before = sorted(spark_lake.rows(f"SELECT * FROM {table}"))
    formats = []
    for properties in (
        "'write.format.default' = 'orc'",
        "'encryption.mechanism' = 'envelope'",
        "'write.format.default' = 'parquet'",
    ):
        spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")
        done = call(spark_lake, table)
        assert (done["added_files"], done["left_files"]) == (1, 0)
        assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
        (file,) = data_files(spark_lake, table)
        formats.append((file["file_format"], file["key_metadata"] is not None))
    assert formats == [("ORC", False), ("ORC", True), ("PARQUET", True)]


def test_partitions_are_kept(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, name STRING", partitioned_by="id")
    for _ in range(2):
        spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    master_keys(spark_lake, "pii")
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.columns' = 'pii:name')")
    done = call(spark_lake, table)
    assert (done["rewritten_files"], done["added_files"]) == (4, 2)
    assert sorted(file["partition"]["id"] for file in data_files(spark_lake, table)) == [1, 2]
    assert spark_lake.rows(f"SELECT count(*) FROM {table} WHERE id = 2") == [(2,)]


def test_old_epochs_are_forbidden_once_no_snapshot_has_their_files(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    before = migrating(spark_lake, table, files=1)
    stock = stock_table(spark_lake, table)
    old = stock.metadata.current_snapshot_id
    stock.manage_snapshots().create_tag(old, "audit").commit()
    message = refused_as("REQUEST_INVALID", spark_lake.spark, statement(table, "forbid_old => true"))
    assert "old-epoch-in-use" in message and "tag audit" in message and str(old) in message
    assert all(encrypted(spark_lake, table))
    stock_table(spark_lake, table).manage_snapshots().remove_tag("audit").commit()
    stock_table(spark_lake, table).maintenance.expire_snapshots().by_id(old).commit()
    assert call(spark_lake, table)["old_forbidden"] is False
    assert call(spark_lake, table, forbid_old="true")["old_forbidden"] is True
    assert spark_lake.rows(f"SELECT * FROM {table}") == before
    spark_lake.rows(f"INSERT INTO {table} VALUES (9, 'x')")
    assert len(spark_lake.rows(f"SELECT * FROM {table}")) == 2


def test_whoever_may_not_see_a_column_rewrites_nothing(spark_lake: SparkLake, namespace: str) -> None:
    """What is held back from the reader would be lost."""
    table = f"{namespace}.t"
    migrating(spark_lake, table, files=1)
    lake = spark_lake.lake
    one = {"database": ["*"], "table": ["*"], "column": ["id"]}
    cases = [
        [policy("bob", tables("*"), {BOB: ["select"]})],
        [policy("bob", tables("*"), {BOB: ["update"]}), policy("one", one, {BOB: ["select"]})],
    ]
    for more in cases:
        lake.set_policies([*standard_policies(), *more])
        try:
            refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), statement(table))
        finally:
            lake.set_policies(standard_policies())
    assert encrypted(spark_lake, table) == [False]


def test_options_without_a_meaning_are_refused(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    migrating(spark_lake, table, files=1)
    for option in ("max_group_bytes => 0", "max_groups => -1", "branch => ''", "branch => 'absent'"):
        refused_as("REQUEST_INVALID", spark_lake.spark, statement(table, option))
    for option in ("max_groups => 'x'", "unknown => 1"):
        with pytest.raises(PySparkException):
            spark_lake.spark.sql(statement(table, option))
    counted = call(spark_lake, table, max_groups=0)
    assert (counted["rewritten_files"], counted["left_files"]) == (0, 1)
    assert encrypted(spark_lake, table) == [False]
