"""Iceberg's own Spark runtime over the running service: every operation that commits, on plaintext tables.

Walt may read and update tables and nothing else; Alice does what takes more than that. After each history,
Iceberg's `TableMetadataParser` opens the metadata that was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table.snapshots import Operation

from catalog.base.identifiers import table_name
from catalog.commits.snapshot_producer import SnapshotProducer
from tests.support.iceberg_spark import IcebergSpark, Refused, iceberg_spark
from tests.support.lake import ALICE, policy, standard_policies, tables
from tests.support.service import Service, open_service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

WALT = "walt"
MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("delete", "update", "merge")}
COPY_ON_WRITE = dict.fromkeys(MERGE_ON_READ, "copy-on-write")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with one more user, who updates tables and alters none."""
    updates = policy("walt-updates", tables("*"), {WALT: ["select", "update"]})
    with open_service(tmp_path_factory.mktemp("lake"), policies=[*standard_policies(), updates]) as running:
        yield running


@pytest.fixture(scope="module")
def spark(served: Service) -> Iterator[IcebergSpark]:
    """One Spark with a catalog for Alice and one for Walt."""
    with iceberg_spark(served, ALICE, WALT) as started:
        yield started


@dataclass
class History:
    """A table in a namespace of its own, and what is done to it."""

    service: Service
    spark: IcebergSpark
    namespace: str

    @property
    def table(self) -> str:
        """The table's name without a catalog."""
        return f"{self.namespace}.t"

    def create(self, by: str = "", **properties: str) -> None:
        """Create the table with the columns `id`, `part` and `name`."""
        said = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self.alice(
            f"CREATE TABLE {{t}} (id BIGINT, part STRING, name STRING) USING iceberg"
            f" {f'PARTITIONED BY ({by})' if by else ''} {f'TBLPROPERTIES ({said})' if said else ''}"
        )

    def walt(self, *statements: str) -> list[list[Any]]:
        """What the last of Walt's statements answers; `{t}` is the table, `{n}` its name in procedures."""
        return self._do(WALT, statements)

    def alice(self, *statements: str) -> list[list[Any]]:
        """The same for Alice."""
        return self._do(ALICE, statements)

    def _do(self, user: str, statements: tuple[str, ...]) -> list[list[Any]]:
        names = {"t": f"{user}.{self.table}", "n": self.table, "u": user}
        return self.spark.sql(*(statement.format(**names) for statement in statements))

    def append(self, *ids: int, branch: str = "", part: str = "a") -> None:
        """Append rows, one snapshot."""
        rows = ", ".join(f"({number}, '{part}', 'n{number}')" for number in ids)
        self.walt(f"INSERT INTO {{t}}{branch and '.branch_' + branch} VALUES {rows}")

    def ids(self, version: str | int = "") -> list[int]:
        """The ids that the table has, at a version if one is said."""
        at = f" VERSION AS OF {version!r}" if version else ""
        return [row[0] for row in self.walt(f"SELECT id FROM {{t}}{at} ORDER BY id")]

    def snapshots(self) -> list[int]:
        """The ids of its snapshots, oldest first."""
        found = self.walt("SELECT snapshot_id FROM {t}.snapshots ORDER BY committed_at")
        return [row[0] for row in found]

    def head(self) -> int:
        """The current snapshot."""
        (row,) = self.walt("SELECT snapshot_id FROM {t}.refs WHERE name = 'main'")
        return int(row[0])

    def count(self, what: str) -> int:
        """How many rows one of the metadata tables has."""
        return int(self.walt(f"SELECT count(*) FROM {{t}}.{what}")[0][0])


@pytest.fixture
def history(served: Service, spark: IcebergSpark, namespace: str) -> Iterator[History]:
    """What was committed in the end opens with Iceberg's own parser."""
    done = History(served, spark, namespace)
    yield done
    loaded = served.lake.services.loader.load_sealed(table_name([namespace], "t"))
    assert spark.opens(loaded.metadata_location) == len(loaded.metadata.snapshots)


def test_appends(history: History) -> None:
    history.create()
    history.append(1, 2)
    history.append(3)
    assert history.ids() == [1, 2, 3]


def test_appends_merge_manifests(history: History) -> None:
    history.create(**{"commit.manifest.min-count-to-merge": "3"})
    for number in range(1, 10):
        history.append(number)
    assert history.ids() == list(range(1, 10))
    assert history.count("manifests") < 5


@pytest.mark.parametrize("by", ["part", "bucket(4, id)", "truncate(1, name)"])
def test_partitioned_tables_take_appends_merges_and_deletes(history: History, by: str) -> None:
    history.create(by, **{"commit.manifest.min-count-to-merge": "2"}, **MERGE_ON_READ)
    for number in range(1, 5):
        history.append(number, number + 10, part="ab"[number % 2])
    history.walt("DELETE FROM {t} WHERE id = 2", "DELETE FROM {t} WHERE part = 'b' AND id < 10")
    assert history.ids() == [4, 11, 12, 13, 14]


def test_overwrites(history: History) -> None:
    history.create("part")
    history.append(1, 2)
    history.append(3, part="b")
    history.walt("INSERT OVERWRITE {t} VALUES (9, 'a', 'x')")
    assert history.ids() == [9]
    history.walt("INSERT OVERWRITE {t} SELECT id + 1, part, name FROM {t}")
    assert history.ids() == [10]


def test_dynamic_overwrites(history: History) -> None:
    history.create("part")
    history.append(1, 2)
    history.append(3, part="b")
    dynamic = "spark.sql.sources.partitionOverwriteMode"
    history.walt(f"SET {dynamic} = dynamic", "INSERT OVERWRITE {t} VALUES (9, 'a', 'x')", f"RESET {dynamic}")
    assert history.ids() == [3, 9]


@pytest.mark.parametrize("modes", [COPY_ON_WRITE, MERGE_ON_READ], ids=["copy-on-write", "merge-on-read"])
def test_delete_update_and_merge(history: History, modes: dict[str, str]) -> None:
    history.create("part", **modes)
    history.append(1, 2, 3)
    history.append(4, 5, part="b")
    history.walt("DELETE FROM {t} WHERE id = 2", "UPDATE {t} SET id = 30 WHERE id = 3")
    history.walt(
        "MERGE INTO {t} AS t USING (SELECT * FROM VALUES (1L, 'a'), (4L, 'b'), (6L, 'b') AS s(id, part)) s"
        " ON t.id = s.id WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET id = 40"
        " WHEN NOT MATCHED THEN INSERT (id, part, name) VALUES (s.id, s.part, 'new')"
    )
    assert history.ids() == [5, 6, 30, 40]
    assert (history.count("delete_files") > 0) == (modes == MERGE_ON_READ)
    history.walt("DELETE FROM {t} WHERE part = 'a'", "DELETE FROM {t}")
    assert history.ids() == []


def test_rewrite_manifests(history: History) -> None:
    history.create("part", **{"commit.manifest-merge.enabled": "false"})
    for number in range(1, 6):
        history.append(number, part="ab"[number % 2])
    history.walt("CALL {u}.system.rewrite_manifests(table => '{n}')")
    assert history.ids() == [1, 2, 3, 4, 5]
    assert history.count("manifests") == 1
    history.walt("DELETE FROM {t} WHERE part = 'a'")
    history.walt("CALL {u}.system.rewrite_manifests(table => '{n}', use_caching => false)")
    assert history.ids() == [1, 3, 5]


@pytest.mark.parametrize(
    "options", ["'rewrite-all', 'true'", "'use-starting-sequence-number', 'false', 'rewrite-all', 'true'"]
)
def test_rewrite_data_files(history: History, options: str) -> None:
    history.create("part", **MERGE_ON_READ)
    for number in range(1, 6):
        history.append(number, number + 10)
    history.walt("DELETE FROM {t} WHERE id = 3")
    history.walt(f"CALL {{u}}.system.rewrite_data_files(table => '{{n}}', options => map({options}))")
    assert history.ids() == [1, 2, 4, 5, 11, 12, 13, 14, 15]
    assert history.count("data_files") == 1


def test_rewrite_data_files_in_groups_beside_dangling_deletes(history: History) -> None:
    history.create("part", **MERGE_ON_READ)
    for number in range(1, 6):
        history.append(number, number + 10, part="ab"[number % 2])
    history.walt("DELETE FROM {t} WHERE id = 3")
    history.walt(
        "CALL {u}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true',"
        " 'partial-progress.enabled', 'true', 'remove-dangling-deletes', 'true'))"
    )
    assert history.ids() == [1, 2, 4, 5, 11, 12, 13, 14, 15]
    assert history.count("data_files") == 2


def test_rewrite_position_delete_files(history: History) -> None:
    history.create("part", **MERGE_ON_READ)
    history.append(*range(1, 11))
    for number in range(1, 5):
        history.walt(f"DELETE FROM {{t}} WHERE id = {number}")
    history.walt(
        "CALL {u}.system.rewrite_position_delete_files(table => '{n}', options => map('rewrite-all', 'true'))"
    )
    assert history.ids() == list(range(5, 11))
    assert history.count("delete_files") == 1


def test_cherry_pick(history: History) -> None:
    history.create(**{"write.wap.enabled": "true"})
    history.append(1)
    history.walt("SET spark.wap.id = w1")
    try:
        history.append(2)
    finally:
        history.walt("RESET spark.wap.id")
    assert history.ids() == [1]
    picked = history.snapshots()[-1]
    history.append(3)
    history.walt(f"CALL {{u}}.system.cherrypick_snapshot('{{n}}', {picked})")
    assert history.ids() == [1, 2, 3]


def test_cherry_pick_onto_its_own_parent_moves_the_branch(history: History) -> None:
    history.create(**{"write.wap.enabled": "true"})
    history.append(1)
    history.walt("SET spark.wap.id = w1")
    try:
        history.append(2)
    finally:
        history.walt("RESET spark.wap.id")
    history.walt(f"CALL {{u}}.system.cherrypick_snapshot('{{n}}', {history.snapshots()[-1]})")
    assert history.ids() == [1, 2]


def test_cherry_pick_of_a_dynamic_overwrite(history: History) -> None:
    history.create("part", **{"write.wap.enabled": "true"})
    history.append(1)
    history.append(2, part="b")
    dynamic = "spark.sql.sources.partitionOverwriteMode"
    history.walt("SET spark.wap.id = w1", f"SET {dynamic} = dynamic")
    try:
        history.append(9)
        history.walt("INSERT OVERWRITE {t} VALUES (10, 'a', 'x')")
    finally:
        history.walt("RESET spark.wap.id", f"RESET {dynamic}")
    picked = history.snapshots()[-1]
    history.append(3, part="b")
    history.walt(f"CALL {{u}}.system.cherrypick_snapshot('{{n}}', {picked})")
    assert history.ids() == [2, 3, 10]


def test_publish_changes_by_write_id(history: History) -> None:
    history.create(**{"write.wap.enabled": "true"})
    history.append(1)
    history.walt("SET spark.wap.id = w1")
    try:
        history.append(2)
    finally:
        history.walt("RESET spark.wap.id")
    history.append(3)
    history.walt("CALL {u}.system.publish_changes('{n}', 'w1')")
    assert history.ids() == [1, 2, 3]


def test_writes_audited_on_a_branch_are_published_by_fast_forward(history: History) -> None:
    history.create(**{"write.wap.enabled": "true"})
    history.append(1)
    history.walt("ALTER TABLE {t} CREATE BRANCH audit", "SET spark.wap.branch = audit")
    try:
        history.append(2)
        history.walt("DELETE FROM {t} WHERE id = 1")
    finally:
        history.walt("RESET spark.wap.branch")
    assert history.ids() == [1]
    history.walt("CALL {u}.system.fast_forward('{n}', 'main', 'audit')")
    assert history.ids() == [2]


def test_expire_snapshots(history: History) -> None:
    history.create(**{"commit.manifest.min-count-to-merge": "2"})
    for number in range(1, 5):
        history.append(number)
    history.walt("DELETE FROM {t} WHERE id = 2")
    expire = "CALL {u}.system.expire_snapshots(table => '{n}', older_than => TIMESTAMP '2999-01-01', "
    history.walt(expire + "retain_last => 2)")
    assert history.count("snapshots") == 2
    assert history.ids() == [1, 3, 4]
    history.append(5)
    history.walt(expire + "retain_last => 1, clean_expired_metadata => true)")
    assert history.count("snapshots") == 1
    assert history.ids() == [1, 3, 4, 5]


def test_expire_snapshots_with_statistics(history: History) -> None:
    history.create("part")
    for number in (1, 2):
        history.append(number)
        history.walt("CALL {u}.system.compute_table_stats(table => '{n}')")
        history.walt("CALL {u}.system.compute_partition_stats(table => '{n}')")
    history.walt("CALL {u}.system.expire_snapshots(table => '{n}', older_than => TIMESTAMP '2999-01-01')")
    assert history.ids() == [1, 2]
    assert history.count("snapshots") == 1


def test_rollback_takes_alter(history: History) -> None:
    history.create()
    history.append(1)
    first = history.head()
    history.append(2)
    for procedure in ("rollback_to_snapshot", "set_current_snapshot"):
        with pytest.raises(Refused, match=r"alter|ALTER"):
            history.walt(f"CALL {{u}}.system.{procedure}('{{n}}', {first})")
    assert history.ids() == [1, 2]
    history.alice(f"CALL {{u}}.system.rollback_to_snapshot('{{n}}', {first})")
    assert history.ids() == [1]
    history.append(3)
    assert history.ids() == [1, 3]


def test_rollback_to_a_time_and_set_current(history: History) -> None:
    history.create()
    for number in (1, 2, 3):
        history.append(number)
    second, third = history.snapshots()[1:]
    ((moment,),) = history.walt(
        f"SELECT string(committed_at) FROM {{t}}.snapshots WHERE snapshot_id = {second}"
    )
    history.alice(
        f"CALL {{u}}.system.rollback_to_timestamp('{{n}}', TIMESTAMP '{moment}' + INTERVAL 1 MILLISECOND)"
    )
    assert history.ids() == [1, 2]
    history.alice(f"CALL {{u}}.system.set_current_snapshot('{{n}}', {third})")
    assert history.ids() == [1, 2, 3]


def test_branches_and_tags(history: History) -> None:
    history.create()
    history.append(1)
    history.walt(
        "ALTER TABLE {t} CREATE BRANCH b RETAIN 7 DAYS", "ALTER TABLE {t} CREATE TAG first RETAIN 7 DAYS"
    )
    history.append(2, branch="b")
    history.append(3)
    assert (history.ids(), history.ids("b"), history.ids("first")) == ([1, 3], [1, 2], [1])
    history.walt("ALTER TABLE {t} CREATE TAG second", "ALTER TABLE {t} DROP TAG first")
    history.alice("ALTER TABLE {t} DROP BRANCH b")
    assert history.ids("second") == [1, 3]


def test_a_branch_is_made_in_an_empty_table(history: History) -> None:
    history.create()
    history.walt("ALTER TABLE {t} CREATE BRANCH b")
    history.append(1, branch="b")
    assert history.ids("b") == [1]


def test_row_deltas_of_the_catalog_are_read_and_built_upon(history: History) -> None:
    services, name = history.service.lake.services, table_name([history.namespace], "t")

    def make(operation: Operation, added: Sequence[DataFile], removed: Sequence[str]) -> list[ManifestEntry]:
        loaded = services.loader.load_sealed(name)
        producer = SnapshotProducer(services, loaded, "main", loaded.metadata.current_snapshot())
        gone, made = producer.remove(removed), producer.make(operation, added, {})
        alice = history.service.lake.caller(ALICE)
        services.committer.commit(alice, name, made.requirements, made.updates, written=made.written)
        return gone

    history.create("part", **MERGE_ON_READ)
    history.append(1, 2)
    history.append(3, 4, part="b/c")
    history.walt("DELETE FROM {t} WHERE id = 1")
    (row,) = history.walt("SELECT file_path FROM {t}.delete_files")
    (deleting,) = make(Operation.OVERWRITE, [], row)
    assert history.ids() == [1, 2, 3, 4]
    make(Operation.DELETE, [deleting.data_file], [])
    assert history.ids() == [2, 3, 4]
    assert history.walt("SELECT status, count(*) FROM {t}.entries GROUP BY status ORDER BY status") == [
        [1, 3]
    ]
    history.walt("CALL {u}.system.rewrite_manifests(table => '{n}')", "DELETE FROM {t} WHERE id = 3")
    (row,) = history.walt("SELECT file_path FROM {t}.data_files WHERE partition.part = 'a'")
    make(Operation.OVERWRITE, [], row)
    assert history.ids() == [4]


def test_writers_to_two_branches_at_once(history: History) -> None:
    history.create(**{"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "10"})
    history.append(0)
    history.walt("ALTER TABLE {t} CREATE BRANCH b")
    both = [f"INSERT INTO {WALT}.{history.table}{branch} VALUES " for branch in ("", ".branch_b")]
    for number in range(1, 4):
        outcomes = history.spark.together([f"{each} ({number}, 'a', 'x')" for each in both])
        assert outcomes == [[], []]
    assert history.ids() == history.ids("b") == [0, 1, 2, 3]


def test_a_table_is_replaced(history: History) -> None:
    history.create()
    history.append(1, 2)
    history.alice("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT 7L AS id, 'x' AS other")
    assert history.ids() == [7]
    history.alice(
        "CREATE OR REPLACE TABLE {t} USING iceberg PARTITIONED BY (part) AS SELECT id, 'p' AS part FROM {t}"
    )
    assert history.walt("SELECT id, part FROM {t}") == [[7, "p"]]
    history.alice("REPLACE TABLE {t} (id BIGINT, part STRING, name STRING) USING iceberg")
    assert history.ids() == []
    history.append(8)
    assert history.ids() == [8]


REPLACED = """
catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "alice")
name = jvm.org.apache.iceberg.catalog.TableIdentifier.parse(table_name)
before = catalog.loadTable(name)
replacing = catalog.buildTable(name, before.schema()).replaceTransaction()
if rows_from:
    append = replacing.newFastAppend()
    tasks = before.newScan().planFiles().iterator()
    while tasks.hasNext():
        append.appendFile(tasks.next().file())
    append.commit()
rows(beside)
replacing.commitTransaction()
"""


@pytest.mark.parametrize("rows", [False, True], ids=["empty", "with-rows"])
def test_a_table_is_replaced_beside_an_append(history: History, rows: bool) -> None:
    """Iceberg's own catalogs let the replacement have the last word, too."""
    history.create()
    history.append(1)
    beside = f"INSERT INTO {WALT}.{history.table} VALUES (2, 'a', 'n2')"
    history.spark.run(REPLACED, table_name=history.table, beside=beside, rows_from=rows)
    assert history.ids() == ([1] if rows else [])
    history.append(3)
    assert history.ids() == ([1, 3] if rows else [3])


def test_deletes_and_appends_beside_each_other(history: History) -> None:
    history.create("part", **MERGE_ON_READ, **{"commit.retry.num-retries": "20"})
    history.append(1, 2, 3)
    table = f"{WALT}.{history.table}"
    outcomes = history.spark.together(
        [
            f"INSERT INTO {table} VALUES (4, 'b', 'x')",
            f"INSERT INTO {table} VALUES (5, 'c', 'x')",
            f"DELETE FROM {table} WHERE id = 2",
        ]
    )
    assert outcomes == [[], [], []]
    assert history.ids() == [1, 3, 4, 5]


def test_partition_specs_change_between_writes(history: History) -> None:
    history.create("part", **MERGE_ON_READ, **{"commit.manifest.min-count-to-merge": "2"})
    history.append(1, 2)
    history.alice("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    history.append(3, 4)
    history.walt("DELETE FROM {t} WHERE id IN (1, 3)")
    history.alice("ALTER TABLE {t} DROP PARTITION FIELD part", "ALTER TABLE {t} RENAME COLUMN name TO label")
    history.walt("INSERT INTO {t} VALUES (5, 'b', 'x')")
    history.walt("CALL {u}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))")
    history.walt("CALL {u}.system.rewrite_manifests('{n}')")
    assert history.ids() == [2, 4, 5]
