"""Executors that die in every attempt of a statement's tasks: the statement changes nothing.

Driver and executors are processes of their own, on two hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from catalog.base.identifiers import table_name
from tests.support.cluster import Cluster, open_cluster
from tests.support.crash import Seen, seen
from tests.support.dying_executors import DyingExecutors, Moment
from tests.support.leftovers import clean_up_expired, known_writes, strays
from tests.support.spark_remote import Refused

pytestmark = pytest.mark.nightly

ENCRYPTED = "'encryption.mechanism' = 'envelope'"
ROWS = "SELECT id, 1 AS p FROM range(100, 110)"
#: Rows of the tables, and of the files to add.
KEPT, COMING = list(range(10)), list(range(50, 60))


@dataclass
class Dying:
    """A cluster whose executors die when a test wants it, and a directory of files."""

    cluster: Cluster
    executors: DyingExecutors
    source: Path


@pytest.fixture(scope="module")
def dying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dying]:
    directory, source = tmp_path_factory.mktemp("cluster"), tmp_path_factory.mktemp("source")
    pq.write_table(
        pa.table({"id": COMING, "p": pa.array([1] * len(COMING), pa.int32())}), source / "a.parquet"
    )
    executors = DyingExecutors(directory, directory / "lake" / "warehouse")
    with open_cluster(directory, executors) as cluster:
        cluster.spark.rows("CREATE DATABASE spark_catalog.n")
        yield Dying(cluster, executors, source)


#: Statements, and the rows of the table when they took effect.
STATEMENTS = {
    "INSERT": (f"INSERT INTO {{table}} {ROWS}", [*KEPT, *range(100, 110)]),
    "INSERT OVERWRITE": (f"INSERT OVERWRITE {{table}} {ROWS}", list(range(100, 110))),
    "INSERT OVERWRITE PARTITION": (
        "INSERT OVERWRITE {table} PARTITION (p = 1) SELECT id FROM range(100, 110)",
        list(range(100, 110)),
    ),
    "REPLACE WHERE": (f"INSERT INTO {{table}} REPLACE WHERE p = 1 {ROWS}", list(range(100, 110))),
    "DELETE": ("DELETE FROM {table} WHERE id > 6", list(range(7))),
    "UPDATE": ("UPDATE {table} SET id = id + 100 WHERE id > 6", [*range(7), 107, 108, 109]),
    "MERGE": (
        "MERGE INTO {table} t USING (SELECT id, 1 AS p FROM range(8, 12)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = s.id + 100 WHEN NOT MATCHED THEN INSERT *",
        [*range(8), 10, 11, 108, 109],
    ),
    "rewrite_data_files": (
        "CALL lake.system.rewrite_data_files('{name}', options => map('rewrite-all', 'true'))",
        KEPT,
    ),
    "rewrite_data_files sort": (
        "CALL lake.system.rewrite_data_files('{name}', strategy => 'sort', sort_order => 'id DESC', "
        "options => map('rewrite-all', 'true'))",
        KEPT,
    ),
    "rewrite_position_delete_files": (
        "CALL lake.system.rewrite_position_delete_files('{name}', options => map('rewrite-all', 'true'))",
        KEPT,
    ),
    "add_files": ("CALL lake.system.add_files('{name}', 'parquet.`{source}`')", [*KEPT, *COMING]),
    #: Tables that are made.
    "CREATE TABLE AS SELECT": (f"CREATE TABLE {{table}} AS {ROWS}", list(range(100, 110))),
    "snapshot": ("CALL lake.system.snapshot('{name}', '{name}')", COMING),
    "migrate": ("CALL lake.system.migrate('{name}')", COMING),
}
MAKING = ("CREATE TABLE AS SELECT", "snapshot", "migrate")
ROW_COMMANDS = ("DELETE", "UPDATE", "MERGE")
WRITTEN: Moment = "written"
CASES: list[tuple[str, str, Moment]] = [
    *((kind, "merge-on-read", WRITTEN) for kind in STATEMENTS),
    *((kind, "copy-on-write", WRITTEN) for kind in ROW_COMMANDS),
    ("MERGE", "merge-on-read", "begin"),
    ("rewrite_data_files sort", "merge-on-read", "begin"),
]


@pytest.mark.parametrize(("kind", "mode", "moment"), CASES)
def test_a_statement_whose_executors_die_in_every_attempt_changes_nothing(
    dying: Dying, kind: str, mode: str, moment: Moment
) -> None:
    """Once they live, it can be repeated."""
    cluster, name = dying.cluster, f"n.t{uuid4().hex[:10]}"
    if kind in MAKING:
        cluster.spark.rows(f"CREATE TABLE spark_catalog.{name} USING parquet LOCATION '{dying.source}'")
    else:
        _make(cluster, name, mode)
    before = _seen(cluster, name)
    statement, after = STATEMENTS[kind]
    statement = statement.format(table=f"lake.{name}", name=name, source=dying.source)
    with dying.executors.dying(moment), pytest.raises(Refused) as refused:
        cluster.spark.rows(statement)
    assert refused.value.condition is not None, refused.value.trace
    assert _seen(cluster, name) == before
    _assert_cleaned_up(cluster)
    if kind not in MAKING:
        assert cluster.ids(f"lake.{name}") == KEPT
    cluster.spark.rows(statement)
    assert cluster.ids(f"lake.{name}") == after
    assert _seen(cluster, name) != before


def test_a_query_whose_executors_die_in_every_attempt_can_be_repeated(dying: Dying) -> None:
    cluster, name, view = dying.cluster, f"n.t{uuid4().hex[:10]}", f"v{uuid4().hex[:10]}"
    _make(cluster, name, "copy-on-write")
    cluster.spark.rows(f"CALL lake.system.create_changelog_view('{name}', '{view}')")
    before = _seen(cluster, name)
    counting = f"CALL lake.system.compute_table_stats('{name}')"
    changes = f"SELECT count(*) FROM {view}"
    for statement in (counting, changes):
        with dying.executors.dying("begin"), pytest.raises(Refused) as refused:
            cluster.spark.rows(statement)
        assert refused.value.condition is not None, refused.value.trace
    assert _seen(cluster, name) == before
    assert cluster.spark.rows(counting) == [[None]]
    assert cluster.spark.rows(changes) == [[14]]
    _assert_cleaned_up(cluster)


def test_a_rewrite_ends_when_group_after_group_loses_its_executors(dying: Dying) -> None:
    """No group is searched for a file that could be the reason."""
    cluster, name = dying.cluster, f"n.t{uuid4().hex[:10]}"
    cluster.spark.rows(
        f"CREATE TABLE lake.{name} TBLPROPERTIES ({ENCRYPTED}) AS SELECT id FROM range(0, 5, 1, 5)"
    )
    before = _seen(cluster, name)
    options = "map('rewrite-all', 'true', 'max-file-group-size-bytes', '1')"
    with dying.executors.dying("begin"), pytest.raises(Refused) as refused:
        cluster.spark.rows(f"CALL lake.system.rewrite_data_files('{name}', options => {options})")
    problems = str(refused.value)
    assert (problems.count("ExecutorLostFailure"), problems.count("were not tried")) == (3, 2), problems
    assert "[file=" not in problems
    assert _seen(cluster, name) == before
    _assert_cleaned_up(cluster)


def test_a_stream_whose_executors_die_in_every_attempt_goes_on_later(dying: Dying) -> None:
    cluster, source, target = dying.cluster, f"n.s{uuid4().hex[:10]}", f"n.t{uuid4().hex[:10]}"
    for name in (source, target):
        cluster.spark.rows(f"CREATE TABLE lake.{name} (id BIGINT, p INT) TBLPROPERTIES ({ENCRYPTED})")
    for number in range(3):
        cluster.spark.rows(f"INSERT INTO lake.{source} SELECT id + {number * 10}, 1 FROM range(10)")
    checkpoint = cluster.directory / f"checkpoint-{source}"
    before = _seen(cluster, target)
    with dying.executors.dying("written"), pytest.raises(Refused) as refused:
        cluster.spark.stream(f"lake.{source}", f"lake.{target}", checkpoint)
    assert refused.value.condition == "STREAM_FAILED", refused.value.trace
    assert _seen(cluster, target) == before
    _assert_cleaned_up(cluster)
    cluster.spark.stream(f"lake.{source}", f"lake.{target}", checkpoint)
    assert cluster.ids(f"lake.{target}") == list(range(30))


def _make(cluster: Cluster, name: str, mode: str) -> None:
    """A table with ten rows in two files, and deleted ones."""
    modes = "".join(f", 'write.{each}.mode' = '{mode}'" for each in ("delete", "update", "merge"))
    cluster.spark.rows(
        f"CREATE TABLE lake.{name} PARTITIONED BY (p) TBLPROPERTIES ({ENCRYPTED}, "
        f"'encryption.plaintext-columns' = 'p', 'write.distribution-mode' = 'none'{modes}) "
        "AS SELECT id, 1 AS p FROM range(-2, 10, 1, 2)"
    )
    for gone in (-2, -1):
        cluster.spark.rows(f"DELETE FROM lake.{name} WHERE id = {gone}")


def _seen(cluster: Cluster, name: str) -> Seen | None:
    return seen(cluster.service.lake, table_name(["n"], name.removeprefix("n.")))


def _assert_cleaned_up(cluster: Cluster) -> None:
    """Nothing lies under writes that were given up, once those have expired that nobody gave up."""
    clean_up_expired(cluster.service)
    left = [each for each in known_writes(cluster.service.lake).values() if each.state != "committed"]
    assert [each.files() for each in left] == [[]] * len(left)
    assert strays(cluster.service.lake) == []
