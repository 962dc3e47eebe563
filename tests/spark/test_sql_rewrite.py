"""CALL rewrite_data_files: files become what the table's properties say, while others read and write."""

from __future__ import annotations

import threading
from contextlib import suppress

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from catalog.base import crash_points
from catalog.envelope.key_metadata import KeyMetadata
from policy.encryption.specification import Algorithm, Footer
from policy.errors import StateUnavailable
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

#: Each file is a group.
ONE_FILE = "map('max-file-group-size-bytes', '1')"


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
    assert (done["rewritten_data_files_count"], done["added_data_files_count"], done["left_files"]) == (
        3,
        1,
        0,
    )
    assert encrypted(spark_lake, table) == [True, True]
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}"), key=str) == before
    assert stock_table(spark_lake, table).metadata.current_snapshot().summary.operation.value == "replace"
    again = call(spark_lake, table)
    assert (again["rewritten_data_files_count"], again["added_data_files_count"], again["failed_groups"]) == (
        0,
        0,
        0,
    )


@pytest.mark.nightly
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
        done = call(spark_lake, table, options=ONE_FILE)
    finally:
        stop.set()
        worker.join()
    assert (done["rewritten_data_files_count"], done["failed_groups"], done["left_files"]) == (3, 0, 0)
    assert seen and seen == [3 + number for number in range(1, len(seen) + 1)]
    ids = sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}"))
    assert ids == [*range(3), *range(100, 100 + len(seen))]
    assert all(encrypted(spark_lake, table))


@pytest.mark.nightly
def test_a_rewrite_that_is_cut_short_goes_on_with_what_is_left(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)
    first = call(spark_lake, table, max_groups=1, options=ONE_FILE)
    assert (first["rewritten_data_files_count"], first["left_files"]) == (1, 2)
    commits = []

    def hook(point: str) -> None:
        if point == "write:committing":
            commits.append(point)
            if len(commits) > 1:
                raise StateUnavailable("The database is away.")

    with crash_points.hooked(hook):
        cut = call(spark_lake, table, options=ONE_FILE)
    assert (cut["rewritten_data_files_count"], cut["failed_groups"], cut["left_files"]) == (1, 1, 1)
    assert "StateUnavailable" in str(cut["problem"])
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
    last = call(spark_lake, table)
    assert (last["rewritten_data_files_count"], last["left_files"], last["problem"]) == (1, 0, None)
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before


@pytest.mark.nightly
def test_files_that_cannot_be_read_are_named_and_hold_back_no_others(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Of one group: one file is gone, one is cut short."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT")
    spark_lake.rows(f"INSERT INTO {table} SELECT CAST(id AS INT) FROM range(0, 5, 1, 5)")
    gone, cut, *others = (local_path(file) for file in data_files(spark_lake, table))
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:100])
    done = call(spark_lake, table)
    assert (done["rewritten_data_files_count"], done["failed_groups"], done["failed_data_files_count"]) == (
        3,
        0,
        2,
    )
    assert done["left_files"] == 2
    unread = str(done["problem"]).splitlines()
    assert {line.partition(":")[0] for line in unread} == {"DataFileMissing", "DataFileDamaged"}
    assert gone.name in "".join(unread) and cut.name in "".join(unread)
    assert not any(file.name in str(done["problem"]) for file in others)
    # What nothing more can be done about is refused, by name.
    refused = str(refusal(lambda: call(spark_lake, table)))
    assert gone.name in refused and cut.name in refused


@pytest.mark.nightly
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
    assert (done["rewritten_data_files_count"], done["failed_groups"], done["failed_data_files_count"]) == (
        3,
        0,
        2,
    )
    assert done["rewritten_bytes_count"] == sum(sizes.values()) - sum(sizes[each.name] for each in wrong)
    told = str(done["problem"]).splitlines()
    assert len(told) == done["left_files"] == 2 and all("rule=record-count" in line for line in told)
    assert {each.name for each in wrong} == {name for name in sizes if name in str(done["problem"])}
    assert sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}")) == [0, 1, 2, 7, 7, 8, 8]


@pytest.mark.nightly
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


@pytest.mark.nightly
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
        with crash_points.hooked(hook), pytest.raises(PySparkException) as cancelled:
            call(spark_lake, table, options=ONE_FILE)
    finally:
        context._jsc.sc().clearJobGroup()
    assert cancelled.value.getCondition() == "SPARK_JOB_CANCELLED"
    assert len(begun) == 2
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
    assert call(spark_lake, table)["rewritten_data_files_count"] == 2


@pytest.mark.nightly
def test_rewrites_side_by_side_double_no_row(spark_lake: SparkLake, namespace: str) -> None:
    """Of two for one group one commits; the other says that it failed, or finds nothing left."""
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)

    def work() -> None:
        with suppress(Exception):
            spark_lake.session(ALICE).sql(statement(table, f"options => {ONE_FILE}")).collect()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert call(spark_lake, table)["left_files"] == 0
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before


@pytest.mark.nightly
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
        assert (done["rewritten_data_files_count"], done["left_files"]) == (1, 0)
        assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
        assert spark_lake.rows(f"SELECT id FROM {table} WHERE name = 'n1'") == [(1,)]
    (metadata,) = [KeyMetadata.parse(file["key_metadata"]) for file in data_files(spark_lake, table)]
    keys = metadata.file_keys()
    assert (keys.algorithm, keys.footer) == (Algorithm.AES_GCM_CTR_V1, Footer.PLAINTEXT)
    assert [(key.pek.master_key_id, key.length) for key in keys.keys] == [("lakewarden", 16), ("pii", 16)]
    (file,) = data_files(spark_lake, table)
    assert local_path(file).read_bytes().endswith(b"PAR1")


@pytest.mark.nightly
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
        assert (done["added_data_files_count"], done["left_files"]) == (1, 0)
        assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
        (file,) = data_files(spark_lake, table)
        formats.append((file["file_format"], file["key_metadata"] is not None))
    assert formats == [("ORC", False), ("ORC", True), ("PARQUET", True)]


@pytest.mark.nightly
def test_partitions_are_kept(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, name STRING", partitioned_by="id")
    for _ in range(2):
        spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    master_keys(spark_lake, "pii")
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.columns' = 'pii:name')")
    done = call(spark_lake, table)
    assert (done["rewritten_data_files_count"], done["added_data_files_count"]) == (4, 2)
    assert sorted(file["partition"]["id"] for file in data_files(spark_lake, table)) == [1, 2]
    assert spark_lake.rows(f"SELECT count(*) FROM {table} WHERE id = 2") == [(2,)]


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_options_without_a_meaning_are_refused(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    migrating(spark_lake, table, files=1)
    for option in (
        "options => map('max-file-group-size-bytes', '0')",
        "max_groups => -1",
        "branch => ''",
        "branch => 'absent'",
    ):
        refused_as("REQUEST_INVALID", spark_lake.spark, statement(table, option))
    for option in ("max_groups => 'x'", "unknown => 1"):
        with pytest.raises(PySparkException):
            spark_lake.spark.sql(statement(table, option))
    counted = call(spark_lake, table, max_groups=0)
    assert (counted["rewritten_data_files_count"], counted["left_files"]) == (0, 1)
    assert encrypted(spark_lake, table) == [False]


@pytest.mark.nightly
def test_small_files_are_compacted_and_deleted_rows_left_out(spark_lake: SparkLake, namespace: str) -> None:
    """In an encrypted table, with position delete files, which go as well."""
    table = f"{namespace}.t"
    properties = {
        "encryption.mechanism": "envelope",
        "write.delete.mode": "merge-on-read",
    }
    create_table(spark_lake, table, "id INT, name STRING", properties=properties)
    spark_lake.rows(f"INSERT INTO {table} SELECT CAST(id AS INT), concat('n', id) FROM range(0, 12, 1, 6)")
    spark_lake.rows(f"DELETE FROM {table} WHERE id IN (1, 2)")
    few = call(spark_lake, table, options="map('min-input-files', '7', 'delete-ratio-threshold', '1')")
    assert few["rewritten_data_files_count"] == 0
    some = call(spark_lake, table, options="map('delete-file-threshold', '1')", where="'id < 2'")
    assert (some["rewritten_data_files_count"], some["removed_delete_files_count"]) == (1, 1)
    done = call(spark_lake, table)
    assert done == {
        "rewritten_data_files_count": 6,
        "added_data_files_count": 1,
        "rewritten_bytes_count": done["rewritten_bytes_count"],
        "failed_data_files_count": 0,
        "removed_delete_files_count": 1,
        "failed_groups": 0,
        "left_files": 0,
        "left_bytes": 0,
        "old_forbidden": False,
        "problem": None,
    }
    assert sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}")) == [0, *range(3, 12)]
    (file,) = data_files(spark_lake, table)
    assert file["key_metadata"] is not None


@pytest.mark.nightly
def test_rows_are_sorted_by_what_the_call_says(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, b INT, name STRING")
    spark_lake.rows(
        f"INSERT INTO {table} SELECT CAST(id * 7 % 16 AS INT), CAST(id * 3 % 16 AS INT), CAST(id AS STRING) "
        "FROM range(0, 16, 1, 2)"
    )

    def ids(order: str, strategy: str = "'sort'") -> list[tuple[object, ...]]:
        done = call(
            spark_lake, table, strategy=strategy, sort_order=order, options="map('rewrite-all', 'true')"
        )
        assert done["added_data_files_count"] == 1
        return spark_lake.rows(f"SELECT id, b FROM {table} ORDER BY _pos")

    rows = ids("'ID DESC NULLS LAST, b'")
    assert rows == sorted(rows, reverse=True)

    def interleaved(row: tuple[int, ...]) -> int:
        return sum((row[at] >> bit & 1) << 2 * bit + 1 - at for at in range(2) for bit in range(4))

    rows = ids("'zorder(id, b)'", "null")
    assert rows == sorted(rows, key=interleaved)
    for arguments in (
        "strategy => 'sort'",
        "strategy => 'z'",
        "strategy => 'binpack', sort_order => 'id'",
        "sort_order => 'absent'",
        "options => map('min-input-files', 'x')",
    ):
        refused_as("REQUEST_INVALID", spark_lake.spark, statement(table, arguments))
    for arguments in ("options => map('use-starting-sequence-number', 'true')", "where => 'rand() < 0.5'"):
        refused_as("NOT_SUPPORTED_YET", spark_lake.spark, statement(table, arguments))
    master_keys(spark_lake, "pii")
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.columns' = 'pii:id')")
    refused_as("ENCRYPTION_POLICY_VIOLATION", spark_lake.spark, statement(table, "sort_order => 'id'"))
