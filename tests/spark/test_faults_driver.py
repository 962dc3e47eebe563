"""A driver that is killed with its writes: nothing of them is seen, unless the catalog had a commit whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from catalog.base import crash_points
from catalog.base.identifiers import table_name
from tests.support.crash import Seen, seen
from tests.support.leftovers import KnownWrite, clean_up_expired, known_writes, strays
from tests.support.service import Service, open_service
from tests.support.spark_remote import Place, Step, disturbed, disturbed_condition, remote_spark

pytestmark = pytest.mark.nightly

ENCRYPTED = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
PATIENCE_S = 120


class HeldCommit:
    """Holds one commit where it has not landed yet, until it is let go."""

    def __init__(self) -> None:
        self._here = threading.Event()
        self._go = threading.Event()
        self._done = threading.Event()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """The first commit to come is held."""
        with crash_points.hooked(self._at):
            yield

    def wait(self) -> None:
        """Wait until it is there."""
        assert self._here.wait(PATIENCE_S)

    def finish(self) -> None:
        """Let it go, and wait until it is done."""
        self._go.set()
        assert self._done.wait(PATIENCE_S)

    def _at(self, point: str) -> None:
        if point == "prepared":
            self._here.set()
            assert self._go.wait(PATIENCE_S)
        if point == "write:landed":
            self._done.set()


@pytest.fixture(scope="module")
def bereft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose only Spark was killed while it worked on three statements.

    - an INSERT whose rows are being written: one task is done, another one under way;
    - a CREATE TABLE AS SELECT in the same state;
    - an INSERT whose commit the catalog was carrying out.

    The Spark has two cores: a task of the second statement runs only after one of the first is done.
    """
    root = tmp_path_factory.mktemp("bereft")
    (root / "lake").mkdir()
    held, places = HeldCommit(), [Place.make(root, name) for name in ("insert", "creation")]
    with open_service(root / "lake") as service:
        with remote_spark(service) as spark:
            spark.rows("CREATE NAMESPACE lake.n")
            for name in ("inserted", "committed"):
                spark.rows(f"CREATE TABLE lake.n.{name} {ENCRYPTED} AS SELECT id FROM range(1000, 1002)")
            with held.holding():
                spark.begin("INSERT INTO lake.n.committed SELECT id FROM range(4)")
                held.wait()
                spark.begin(f"INSERT INTO lake.n.inserted {_rows(places[0])}")
                places[0].wait()
                spark.begin(f"CREATE TABLE lake.n.created {ENCRYPTED} AS {_rows(places[1])}")
                places[1].wait()
                spark.process.kill()
                held.finish()
        yield service


def _rows(place: Place) -> str:
    return f"SELECT {disturbed(Step('wait', 390, place=place))} FROM range(0, 400, 1, 2)"


def _open_writes(service: Service) -> list[KnownWrite]:
    return [each for each in known_writes(service.lake).values() if each.state == "open"]


def test_an_insert_that_was_being_written_has_added_nothing(bereft: Service) -> None:
    table = bereft.lake.catalog().load_table("n.inserted")
    assert len(table.metadata.snapshots) == 1
    assert sum(table.inspect.files()["record_count"].to_pylist()) == 2


def test_a_table_that_was_being_made_is_not_there(bereft: Service) -> None:
    names = {name for _, name in bereft.iceberg().list_tables("n")}
    assert names == {"inserted", "committed"}


def test_a_commit_that_the_catalog_had_is_carried_out_whole_and_once(bereft: Service) -> None:
    table = bereft.lake.catalog().load_table("n.committed")
    assert len(table.metadata.snapshots) == 2
    assert sum(table.inspect.files()["record_count"].to_pylist()) == 6


def test_what_is_left_lies_under_recorded_writes_and_is_cleaned_up(bereft: Service) -> None:
    assert strays(bereft.lake) == []
    left = _open_writes(bereft)
    assert [each.files() != [] for each in left] == [True, True]
    committed = {each: each.files() for each in known_writes(bereft.lake).values() if each not in left}
    assert clean_up_expired(bereft) == 2
    assert [each.files() for each in left] == [[], []]
    assert all(each.files() == files for each, files in committed.items())
    with bereft.client() as client:
        body = {"name": "created", "schema": {"type": "struct", "fields": []}}
        assert client.post(f"{bereft.prefix}/namespaces/n/tables", json=body).status_code == 200


MERGE = (
    "MERGE INTO {table} t USING (SELECT {condition} AS id, 1 AS p FROM range(0, 800, 2, 2)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET id = -s.id WHEN NOT MATCHED THEN INSERT *"
)
ROWS = "SELECT {value}, 1 AS p FROM range(0, 400, 1, 2)"
DYNAMIC = "spark.sql.sources.partitionOverwriteMode"


@dataclass(frozen=True)
class Change:
    """A statement that waits while Spark writes what it changes.

    Attributes:
        statement: the statement.
        action: of the task that waits: a copy-on-write reads the rows twice.
        command: the command that is merge-on-read.
        overwrites: how it overwrites partitions.
    """

    statement: str
    action: str = "wait"
    command: str = ""
    overwrites: str = "static"

    def properties(self) -> str:
        mode = f", 'write.{self.command}.mode' = 'merge-on-read'" if self.command else ""
        return f"TBLPROPERTIES ({PARTITIONED}{mode})"


#: Rows are written as they come, neither moved nor sorted before.
PARTITIONED = (
    "'encryption.mechanism' = 'envelope', 'encryption.plaintext-columns' = 'p', "
    "'write.distribution-mode' = 'none', 'write.spark.fanout.enabled' = 'true'"
)
CHANGES = {
    "overwrite": Change(f"INSERT OVERWRITE {{table}} {ROWS}"),
    "overwrite_static": Change(
        "INSERT OVERWRITE {table} PARTITION (p = 1) SELECT {value} FROM range(0, 400, 1, 2)"
    ),
    "overwrite_dynamic": Change(f"INSERT OVERWRITE {{table}} {ROWS}", overwrites="dynamic"),
    "replace_where": Change(f"INSERT INTO {{table}} REPLACE WHERE p = 1 {ROWS}"),
    "replace_table": Change(f"REPLACE TABLE {{table}} TBLPROPERTIES ({PARTITIONED}) AS {ROWS}"),
    "create_or_replace": Change(f"CREATE OR REPLACE TABLE {{table}} PARTITIONED BY (p) AS {ROWS}"),
    "delete": Change("DELETE FROM {table} WHERE {condition} < 395", "wait again"),
    "delete_rows": Change("DELETE FROM {table} WHERE {condition} < 395", command="delete"),
    "update": Change("UPDATE {table} SET id = -id WHERE {condition} < 395", "wait again"),
    "update_rows": Change("UPDATE {table} SET id = -id WHERE {condition} < 395", command="update"),
    "merge": Change(MERGE, "wait again"),
    "merge_rows": Change(MERGE, command="merge"),
}
#: The copy-on-write MERGE is still looking for the files to write again.
BEGUN = len(CHANGES) - 1


@dataclass
class Changing:
    """A service, and each table as it was before its statement."""

    service: Service
    before: dict[str, Seen | None]


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changing]:
    """A service whose only Spark was killed while it changed rows of tables, each with 400 in two files."""
    root = tmp_path_factory.mktemp("changing")
    (root / "lake").mkdir()
    settings = {
        # Each statement keeps a core.
        "spark.master": f"local[{len(CHANGES) + 2}]",
        # The parts of a join are read after the write has begun.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    with open_service(root / "lake") as service:
        before = {}
        with remote_spark(service, settings=settings) as spark:
            spark.rows("CREATE NAMESPACE lake.n")
            for name, change in CHANGES.items():
                table, place = f"lake.n.{name}", Place.make(root, name)
                spark.rows(
                    f"CREATE TABLE {table} PARTITIONED BY (p) {change.properties()} "
                    "AS SELECT id, 1 AS p FROM range(0, 400, 1, 2)"
                )
                before[name] = _seen(service, name)
                step = Step(change.action, 390, place=place)
                told = {"value": disturbed(step), "condition": disturbed_condition(step)}
                spark.rows(f"SET {DYNAMIC} = {change.overwrites}")
                spark.begin(change.statement.format(table=table, **told))
                place.wait()
            spark.process.kill()
        yield Changing(service, before)


def _seen(service: Service, name: str) -> Seen | None:
    return seen(service.lake, table_name(["n"], name))


def test_changes_of_rows_that_were_being_written_changed_nothing(changing: Changing) -> None:
    for name in CHANGES:
        table = changing.service.lake.catalog().load_table(f"n.{name}")
        assert len(table.metadata.snapshots) == 1, name
        assert sum(table.inspect.files()["record_count"].to_pylist()) == 400, name
        assert _seen(changing.service, name) == changing.before[name], name


def test_files_of_changes_that_were_being_written_are_cleaned_up(changing: Changing) -> None:
    service = changing.service
    assert strays(service.lake) == []
    left = _open_writes(service)
    assert len(left) == BEGUN
    committed = {each: each.files() for each in known_writes(service.lake).values() if each not in left}
    assert clean_up_expired(service) == len(left)
    assert [each.files() for each in left] == [[]] * len(left)
    assert all(each.files() == files != [] for each, files in committed.items())
