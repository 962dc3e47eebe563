"""The core where driver and executors are processes of their own, on two hosts: what is sent between them is
all that they share.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest

from catalog.base import crash_points
from tests.support.attacker import Attacker, data_file, entry
from tests.support.cluster import Cluster, open_cluster
from tests.support.hooks import once_at
from tests.support.lake import BOB
from tests.support.leftovers import await_files, known_writes, strays
from tests.support.spark_remote import (
    Place,
    Refused,
    Step,
    disturbed,
    disturbed_condition,
)

pytestmark = pytest.mark.nightly

ENCRYPTED = "'encryption.mechanism' = 'envelope'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_an_encrypted_table_is_written_and_read_by_executors(cluster: Cluster) -> None:
    table = cluster.new_name()
    cluster.spark.rows(
        f"CREATE TABLE {table} TBLPROPERTIES ({ENCRYPTED}) AS "
        "SELECT id, concat('name-', id) AS name FROM range(0, 10, 1, 2)"
    )
    cluster.spark.rows(f"INSERT INTO {table} VALUES (10, 'name-10')")
    assert cluster.spark.rows(f"SELECT id FROM {table} WHERE name = 'name-10' OR id = 3 ORDER BY id") == [
        [3],
        [10],
    ]
    assert cluster.spark.rows(f"SELECT count(*), sum(id) FROM {table}") == [[11, 55]]
    written = [each.read_bytes() for each in cluster.files(table)]
    assert len(written) == 3
    assert all(content[-4:] == b"PARE" and b"name-" not in content for content in written)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_an_encrypted_table_is_merged_by_executors(cluster: Cluster, mode: str) -> None:
    table = cluster.new_name()
    properties = f"{ENCRYPTED}, 'write.merge.mode' = '{mode}'"
    cluster.spark.rows(
        f"CREATE TABLE {table} TBLPROPERTIES ({properties}) AS SELECT id, id AS v FROM range(0, 10, 1, 2)"
    )
    cluster.spark.rows(
        f"MERGE INTO {table} t USING (SELECT id FROM range(8, 12)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = -1 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 0)"
    )
    assert cluster.spark.rows(f"SELECT v, count(*) FROM {table} WHERE id >= 8 GROUP BY v ORDER BY v") == [
        [-1, 2],
        [0, 2],
    ]
    assert cluster.ids(table) == list(range(12))
    assert all(each.read_bytes()[-4:] == b"PARE" for each in cluster.files(table))


def test_statements_of_other_kinds_run_on_executors(cluster: Cluster) -> None:
    table, copy = cluster.new_name(), cluster.new_name()
    cluster.spark.rows(
        f"CREATE TABLE {table} PARTITIONED BY (p) TBLPROPERTIES ({ENCRYPTED}, "
        "'encryption.plaintext-columns' = 'p') AS SELECT id, id % 2 AS p FROM range(0, 10, 1, 2)"
    )
    cluster.spark.rows(f"UPDATE {table} SET id = id + 100 WHERE id < 2")
    cluster.spark.rows(f"DELETE FROM {table} WHERE id IN (SELECT id + 2 FROM range(2))")
    assert cluster.ids(table) == [*range(4, 10), 100, 101]
    short = table.removeprefix("lake.")
    ((rewritten, added),) = (
        row[:2]
        for row in cluster.spark.rows(
            f"CALL lake.system.rewrite_data_files(table => '{short}', options => map('rewrite-all', 'true'))"
        )
    )
    assert rewritten >= added == 2
    appended = cluster.new_name()
    cluster.spark.rows(f"CREATE TABLE {appended} TBLPROPERTIES ({ENCRYPTED}) AS TABLE {table}")
    cluster.spark.rows(f"CREATE TABLE {copy} (id BIGINT, p BIGINT) TBLPROPERTIES ({ENCRYPTED})")
    cluster.spark.stream(appended, copy, cluster.directory / f"checkpoint-{copy}")
    assert cluster.ids(copy) == cluster.ids(table)
    cluster.spark.rows(f"INSERT OVERWRITE {copy} SELECT id, p FROM {table} WHERE p = 0")
    assert cluster.ids(copy) == [4, 6, 8, 100]


def test_failures_of_executors_are_typed(cluster: Cluster) -> None:
    table = cluster.new_name()
    cluster.spark.rows(
        f"CREATE TABLE {table} TBLPROPERTIES ({ENCRYPTED}) AS SELECT id FROM range(0, 3, 1, 1)"
    )
    (file,) = cluster.files(table)
    content = file.read_bytes()
    file.write_bytes(content[:30] + bytes([content[30] ^ 1]) + content[31:])
    for statement in (
        f"SELECT * FROM {table}",
        f"SELECT (SELECT max(id + 1) FROM {table})",
        f"INSERT INTO {table} TABLE {table}",
        f"UPDATE {table} SET id = 7 WHERE id > 1",
    ):
        with pytest.raises(Refused) as refused:
            cluster.spark.rows(statement)
        assert refused.value.condition == "LAKEWARDEN.DECRYPTION_REFUSED", (statement, refused.value)
    with pytest.raises(Refused) as refused:
        cluster.spark.rows("SELECT raise_error('n' || id) FROM range(3)")
    assert refused.value.condition == "USER_RAISED_EXCEPTION"


def test_columns_that_swapped_their_names_are_read_by_id(cluster: Cluster) -> None:
    table = cluster.new_name()
    cluster.spark.rows(f"CREATE TABLE {table} AS SELECT id, id + 100 AS other FROM range(0, 4, 1, 2)")
    for old, new in (("id", "kept"), ("other", "id"), ("kept", "other")):
        cluster.spark.rows(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    assert cluster.spark.rows(f"SELECT other FROM {table} WHERE id = 102") == [[2]]


def test_a_path_of_another_table_is_refused(cluster: Cluster) -> None:
    victim, name = cluster.new_name(), f"t{uuid4().hex[:10]}"
    cluster.spark.rows(f"CREATE TABLE {victim} AS SELECT id FROM range(3)")
    cluster.spark.rows(f"CREATE TABLE lake.bobs.{name} AS SELECT id FROM range(1)", BOB)
    attacker = Attacker(cluster.service.lake, f"bobs.{name}")
    foreign = f"file://{cluster.files(victim)[0]}"
    attacker.commit_behind(*attacker.appending(entry(data_file(foreign))))
    with pytest.raises(Refused, match="LocationNotAllowed"):
        cluster.spark.rows(f"SELECT id FROM lake.bobs.{name}", BOB)


def test_files_that_changed_places_are_refused_by_the_executor(cluster: Cluster) -> None:
    table = cluster.new_name()
    properties = f"{ENCRYPTED}, 'write.parquet.compression-codec' = 'uncompressed'"
    cluster.spark.rows(
        f"CREATE TABLE {table} TBLPROPERTIES ({properties}) AS SELECT id FROM range(0, 10, 1, 2)"
    )
    one, other = cluster.files(table)
    content = one.read_bytes(), other.read_bytes()
    assert len(content[0]) == len(content[1])
    one.write_bytes(content[1])
    other.write_bytes(content[0])
    with pytest.raises(Refused, match="DecryptionRefused"):
        cluster.ids(table)


def test_attempts_of_one_task_that_commit_at_once_count_once(cluster: Cluster) -> None:
    """A speculative attempt runs beside the first one; both have written their rows when they are let go."""
    table = cluster.new_name()
    first, second = (Place.make(cluster.directory, uuid4().hex) for _ in range(2))
    cluster.spark.rows(
        f"CREATE TABLE {table} TBLPROPERTIES ({ENCRYPTED}) AS SELECT id FROM range(1000, 1002)"
    )
    both = disturbed(Step("wait", 399, 0, first), Step("wait", 399, 1, second))
    insert = cluster.spark.begin(f"INSERT INTO {table} SELECT {both} FROM range(0, 400, 1, 2)")
    first.wait()
    second.wait()
    first.let_go()
    second.let_go()
    cluster.spark.result(insert)
    assert cluster.ids(table) == [*range(400), 1000, 1001]
    assert strays(cluster.service.lake) == []


def test_an_executor_that_dies_while_it_writes(cluster: Cluster) -> None:
    """What it wrote does not count, and lies under the write's id; its task is run once more."""
    table, before = cluster.new_name(), set(known_writes(cluster.service.lake))
    first, second = (Place.make(cluster.directory, uuid4().hex) for _ in range(2))
    dying = (Step("wait", 390, 0, first), Step("die", 390, 0), Step("wait", 200, 1, second))
    creation = cluster.spark.begin(
        f"CREATE TABLE {table} TBLPROPERTIES ({ENCRYPTED}) AS "
        f"SELECT {disturbed(*dying)} FROM range(0, 400, 1, 2)"
    )
    first.wait()
    write = await_files(cluster.service.lake, before, 2)
    first.let_go()
    second.wait()
    second.let_go()
    cluster.spark.result(creation)
    assert cluster.ids(table) == list(range(400))
    assert (len(cluster.files(table)), len(write.files())) == (2, 3)
    assert strays(cluster.service.lake) == []


ROWS_ALONE = f"{ENCRYPTED}, 'write.update.mode' = 'merge-on-read'"


def _changed(cluster: Cluster, *steps: Step) -> tuple[str, int]:
    """A table with 400 rows in two files, and an update of its rows by tasks to which something happens."""
    table = cluster.new_name()
    cluster.spark.rows(
        f"CREATE TABLE {table} TBLPROPERTIES ({ROWS_ALONE}) AS SELECT id FROM range(0, 400, 1, 2)"
    )
    condition = f"{disturbed_condition(*steps)} >= 0"
    return table, cluster.spark.begin(f"UPDATE {table} SET id = id + 1000 WHERE {condition}")


def test_attempts_that_delete_and_add_rows_at_once_count_once(cluster: Cluster) -> None:
    first, second = (Place.make(cluster.directory, uuid4().hex) for _ in range(2))
    table, update = _changed(cluster, Step("wait", 399, 0, first), Step("wait", 399, 1, second))
    for place in (first, second):
        place.wait()
    for place in (first, second):
        place.let_go()
    cluster.spark.result(update)
    assert cluster.ids(table) == list(range(1000, 1400))
    assert strays(cluster.service.lake) == []


def test_rows_of_an_executor_that_dies_are_changed_once(cluster: Cluster) -> None:
    """What it wrote lies under the write's id; its task is run once more."""
    table, update = _changed(cluster, Step("die", 390, 0))
    cluster.spark.result(update)
    assert cluster.ids(table) == list(range(1000, 1400))
    assert strays(cluster.service.lake) == []


def test_executors_that_die_while_files_are_rewritten(cluster: Cluster) -> None:
    """All at once; the rewrite is run by others, and leaves no row out."""
    table = cluster.new_name()
    cluster.spark.rows(f"CREATE TABLE {table} AS SELECT id FROM range(0, 400, 1, 2)")
    cluster.spark.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ({ENCRYPTED})")
    before, killed = set(known_writes(cluster.service.lake)), []

    def kill() -> None:
        killed.extend(cluster.executors())
        for each in killed:
            os.kill(each, signal.SIGKILL)

    with crash_points.hooked(once_at("write:begun", kill)):
        call = f"CALL lake.system.rewrite_data_files('{table.removeprefix('lake.')}')"
        (row,) = cluster.spark.rows(call)
    assert killed and row[0] == 2
    (write,) = (each for each in known_writes(cluster.service.lake).values() if each.id not in before)
    assert write.state == "committed"
    assert cluster.ids(table) == list(range(400))
    assert strays(cluster.service.lake) == []
