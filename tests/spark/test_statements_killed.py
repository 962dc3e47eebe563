"""A driver that is killed before the catalog has a statement's request, or after it carried it out.

The statement took effect whole, or not at all, and it can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from catalog.base.identifiers import table_name
from catalog.state import distinct_counts
from tests.support.crash import Seen, assert_sound, seen
from tests.support.leftovers import clean_up_expired, known_writes, strays
from tests.support.lossy_proxy import lossy_proxy
from tests.support.service import Service, open_service
from tests.support.spark_remote import RemoteSpark, remote_spark

pytestmark = pytest.mark.nightly

PATIENCE_S = 120
PROPERTIES = "TBLPROPERTIES ('encryption.mechanism' = 'envelope', 'encryption.plaintext-columns' = 'p')"
COUNT = "SELECT count(*) FROM {table}"


@dataclass(frozen=True)
class Statement:
    """A statement on a table with the rows `(0, 0)` and `(1, 1)`, partitioned by `p`, its second column.

    Attributes:
        sql: the statement, with `{table}`, `{name}` without the catalog, `{first}` snapshot, and `{source}`,
            a directory with a file.
        request: how the path of the request ends that makes the change.
        after: the first value that `query` answers once the statement took effect.
        query: a query.
        before: a statement that comes before.
        makes: whether it makes the table.
    """

    sql: str
    request: str
    after: object
    query: str = COUNT
    before: str = ""
    makes: bool = False


STATEMENTS = {
    "truncate": Statement("TRUNCATE TABLE {table}", "/commit", 0),
    "replace_using": Statement("INSERT INTO {table} REPLACE USING (p) VALUES (5, 1), (6, 1)", "/commit", 3),
    "add_column": Statement(
        "ALTER TABLE {table} ADD COLUMN x INT", "/alter", 0, "SELECT count(x) FROM {table}"
    ),
    "rename_column": Statement(
        "ALTER TABLE {table} RENAME COLUMN id TO other", "/alter", "other", "SHOW COLUMNS IN {table}"
    ),
    "property": Statement(
        "ALTER TABLE {table} SET TBLPROPERTIES ('n' = 'x')", "/alter", "n", "SHOW TBLPROPERTIES {table} ('n')"
    ),
    "partition_field": Statement("ALTER TABLE {table} ADD PARTITION FIELD truncate(2, p)", "/alter", 2),
    "branch": Statement("ALTER TABLE {table} CREATE BRANCH b", "/alter", 2, f"{COUNT}.branch_b"),
    "rollback": Statement(
        "CALL lake.system.rollback_to_snapshot('{name}', {first})", "/snapshots/rollback", 1
    ),
    "fast_forward": Statement(
        "CALL lake.system.fast_forward('{name}', 'b', 'main')",
        "/snapshots/fast-forward",
        2,
        f"{COUNT}.branch_b",
        before="ALTER TABLE {table} CREATE BRANCH b AS OF VERSION {first}",
    ),
    "rotate_key": Statement("CALL lake.system.rotate_key('{name}')", "/keys/rotate", 2),
    "statistics": Statement("CALL lake.system.compute_table_stats('{name}')", "/statistics", 2),
    "add_files": Statement("CALL lake.system.add_files('{name}', 'parquet.`{source}`')", "/commit", 3),
    "snapshot": Statement("CALL lake.system.snapshot('n.{short}', '{name}')", "/commit", 1, makes=True),
    "migrate": Statement("CALL lake.system.migrate('{name}')", "/commit", 1, makes=True),
    #: Counts the rows of the table `streamed` by `p`.
    "stream": Statement("", "/commit", 10, "SELECT sum(count) FROM {table}"),
}
ENDS = {"lost": False, "done": True}


@dataclass(frozen=True)
class State:
    """All that a table is, what the catalog has of its columns, and its files."""

    table: Seen | None
    counts: dict[int, int]
    files: frozenset[Path]


@dataclass
class Killed:
    """A service whose only Spark was killed while it waited for answers to each statement.

    Attributes:
        before: by end and statement, each table as it was.
        left: and as it was when the driver was dead and its writes had expired.
        strays: files that were under no write and no table then.
        after: what each query answered, after statements whose requests were lost were repeated.
        repeated: each table, after those statements were repeated.
    """

    service: Service
    root: Path
    before: dict[tuple[str, str], State] = field(default_factory=dict)
    left: dict[tuple[str, str], State] = field(default_factory=dict)
    strays: list[Path] = field(default_factory=list)
    after: dict[tuple[str, str], object] = field(default_factory=dict)
    repeated: dict[tuple[str, str], State] = field(default_factory=dict)
    _firsts: dict[tuple[str, str], int] = field(default_factory=dict)

    def make(self, spark: RemoteSpark, end: str, name: str) -> None:
        """Make the table of a statement."""
        statement = STATEMENTS[name]
        if not statement.makes:
            columns = "0L AS p, 0L AS count" if name == "stream" else "0 AS id, 0 AS p"
            spark.rows(
                self._told(
                    f"CREATE TABLE {{table}} PARTITIONED BY (p) {PROPERTIES} AS SELECT {columns}", end, name
                )
            )
            spark.rows(self._told("INSERT INTO {table} VALUES (1, 1)", end, name))
            snapshots = self.service.lake.catalog().load_table(f"n.{end}_{name}").metadata.snapshots
            self._firsts[end, name] = snapshots[0].snapshot_id
            if statement.before:
                spark.rows(self._told(statement.before, end, name))
        self.before[end, name] = self.state(end, name)

    def begin(self, spark: RemoteSpark, end: str, name: str) -> int:
        """Begin a statement."""
        if name == "stream":
            target, checkpoint = f"lake.n.{end}_stream", self.root / f"checkpoint_{end}"
            return spark.begin_stream("lake.n.streamed", target, checkpoint, counted="p")
        return spark.begin(self._told(STATEMENTS[name].sql, end, name))

    def answer(self, spark: RemoteSpark, end: str, name: str) -> object:
        """What the query of a statement answers."""
        return spark.rows(self._told(STATEMENTS[name].query, end, name))[0][0]

    def state(self, end: str, name: str) -> State:
        """A table as it is now."""
        services, table = self.service.lake.services, table_name(["n"], f"{end}_{name}")
        found = seen(self.service.lake, table)
        if found is None:
            return State(None, {}, frozenset())
        record = services.loader.load_sealed(table).record
        where = self.service.lake.catalog().load_table(f"n.{end}_{name}").location()
        files = Path(where.removeprefix("file://")).rglob("*")
        counts = distinct_counts.known(services.engine, record.id, range(1, 9))
        return State(found, counts, frozenset(each for each in files if each.is_file()))

    def _told(self, text: str, end: str, name: str) -> str:
        short = f"{end}_{name}"
        given = {"table": f"lake.n.{short}", "name": f"n.{short}", "short": short}
        return text.format(first=self._firsts.get((end, name)), source=self.root / "source", **given)


JOBS = list(product(ENDS, STATEMENTS))


def _make_sources(spark: RemoteSpark, killed: Killed) -> None:
    """The tables of Spark's own catalog, which a driver takes with it."""
    spark.rows("CREATE DATABASE spark_catalog.n")
    for end, name in JOBS:
        if STATEMENTS[name].makes:
            source = f"spark_catalog.n.{end}_{name}"
            spark.rows(f"CREATE TABLE {source} USING parquet LOCATION '{killed.root / 'source'}'")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    root = tmp_path_factory.mktemp("killed")
    for each in ("lake", "source"):
        (root / each).mkdir()
    pq.write_table(pa.table({"id": pa.array([2], pa.int32())}), root / "source" / "rows.parquet")
    with open_service(root / "lake") as service, lossy_proxy(service.url) as proxy:
        found = Killed(service, root)
        with remote_spark(service, settings={"spark.sql.catalog.lake.uri": proxy.url}) as spark:
            spark.rows("CREATE NAMESPACE lake.n")
            spark.rows("CREATE TABLE lake.n.streamed AS SELECT id, id % 2 AS p FROM range(10)")
            _make_sources(spark, found)
            for end, name in JOBS:
                found.make(spark, end, name)
            for end, name in JOBS:
                here = proxy.hold(STATEMENTS[name].request, carried_out=ENDS[end])
                found.begin(spark, end, name)
                assert here.wait(PATIENCE_S), (end, name)
            spark.process.kill()
            proxy.release()
        clean_up_expired(service)
        found.left = {each: found.state(*each) for each in JOBS}
        found.strays = _unowned(service)
        with remote_spark(service) as spark:
            _make_sources(spark, found)
            for end, name in JOBS:
                if end == "lost" or name == "stream":
                    spark.result(found.begin(spark, end, name))
                found.after[end, name] = found.answer(spark, end, name)
                found.repeated[end, name] = found.state(end, name)
        yield found


def _unowned(service: Service) -> list[Path]:
    """Files that belong to no committed write."""
    given_up = [each for each in known_writes(service.lake).values() if each.state != "committed"]
    return [*strays(service.lake), *(file for each in given_up for file in each.files())]


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_whose_request_did_not_come_changed_nothing(killed: Killed, name: str) -> None:
    assert killed.left["lost", name] == killed.before["lost", name]


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_whose_request_was_carried_out_took_effect_whole(killed: Killed, name: str) -> None:
    assert killed.left["done", name] != killed.before["done", name]
    assert killed.after["done", name] == STATEMENTS[name].after
    assert killed.repeated["done", name] == killed.left["done", name]


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_whose_request_did_not_come_can_be_repeated(killed: Killed, name: str) -> None:
    assert killed.after["lost", name] == STATEMENTS[name].after
    assert killed.repeated["lost", name] != killed.before["lost", name]


def test_files_of_a_killed_driver_belong_to_writes_and_go_with_them(killed: Killed) -> None:
    assert killed.strays == []
    assert _unowned(killed.service) == []
    assert_sound(killed.service.lake)
