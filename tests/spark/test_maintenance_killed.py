"""A driver that is killed in the middle of maintenance: rows stay, and a second call completes it.

Until then, its log shows how far each procedure is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from catalog.base import crash_points
from catalog.base.identifiers import table_name
from catalog.maintenance import expiry
from policy.errors import StateUnavailable
from tests.faults.garbage import aged
from tests.support.leftovers import clean_up_expired, known_writes, strays
from tests.support.service import Service, open_service
from tests.support.spark_remote import RemoteSpark, remote_spark

pytestmark = pytest.mark.nightly

PATIENCE_S = 120
PROPERTIES = (
    "TBLPROPERTIES ('encryption.mechanism' = 'envelope', 'write.delete.mode' = 'merge-on-read', "
    "'write.delete.granularity' = 'partition')"
)
FILES = 5


@dataclass(frozen=True)
class Kill:
    """Where the catalog is in a request when the driver is killed.

    Attributes:
        call: the procedure and its arguments behind the table.
        point: of the request.
        times: at which time that it is reached.
        lost: whether the request is refused then, as if it had not come.
        shown: what the driver's log shows of it, behind the seconds.
    """

    call: str
    point: str
    times: int = 1
    lost: bool = False
    shown: str = "(started)"


KILLS = {
    "manifests": Kill("rewrite_manifests({})", "prepared"),
    # A request deletes the files of one snapshot.
    "snapshots": Kill(
        "expire_snapshots({}, TIMESTAMP '2100-01-01')",
        "expiry:committed",
        times=2,
        shown="files by 1 requests)",
    ),
    "orphans": Kill("remove_orphan_files({})", "clean-up:listed"),
    "deletes": Kill(
        "rewrite_position_delete_files({}, options => map('min-input-files', '2'))",
        "write:committing",
        lost=True,
        shown="(group 1 of 1)",
    ),
    # Each file is a group, since its encryption is an earlier one.
    "data": Kill(
        "rewrite_data_files({}, options => map('max-file-group-size-bytes', '1'))",
        "write:committing",
        times=3,
        lost=True,
        shown="(group 3 of 6)",
    ),
}


@dataclass
class Held:
    """Holds requests until the driver is dead."""

    dead: threading.Event = field(default_factory=threading.Event)
    _next: Kill | None = None
    _seen: int = 0
    _here: threading.Event = field(default_factory=threading.Event)

    def expect(self, kill: Kill) -> None:
        """Hold the next request that reaches a point."""
        self._next, self._seen, self._here = kill, 0, threading.Event()

    def wait(self) -> None:
        """Wait until it is there."""
        assert self._here.wait(PATIENCE_S), self._next

    def at(self, point: str) -> None:
        """See `crash_points.hooked`."""
        kill = self._next
        if kill is None or point != kill.point:
            return
        self._seen += 1
        if self._seen != kill.times:
            return
        self._next = None
        self._here.set()
        assert self.dead.wait(PATIENCE_S)
        if kill.lost:
            raise StateUnavailable("The request did not come.")


def _call(name: str) -> str:
    return f"CALL lake.system.{KILLS[name].call}".format(f"'n.{name}'")


def _ids(spark: RemoteSpark, name: str) -> list[int]:
    return sorted(row[0] for row in spark.rows(f"SELECT id FROM lake.n.{name}"))


def _snapshots(service: Service, name: str) -> int:
    return len(service.lake.catalog().load_table(f"n.{name}").metadata.snapshots)


def _make(spark: RemoteSpark, service: Service, name: str) -> None:
    table = f"lake.n.{name}"
    properties = "" if name == "data" else PROPERTIES
    spark.rows(f"CREATE TABLE {table} (id BIGINT) {properties}")
    spark.rows(f"INSERT INTO {table} SELECT id FROM range(0, {FILES}, 1, {FILES})")
    spark.rows(f"INSERT INTO {table} SELECT id FROM range(100, 110, 1, 1)")
    if name == "data":
        spark.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
        return
    if name == "snapshots":
        spark.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    for gone in (101, 102, 103) if name == "snapshots" else (101, 102):
        spark.rows(f"DELETE FROM {table} WHERE id = {gone}")
    if name == "orphans":
        lost = _data(service, name) / "lost.parquet"
        lost.write_bytes(b"x")
        aged(lost)


def _data(service: Service, name: str) -> Path:
    where = service.lake.catalog().load_table(f"n.{name}").location()
    return Path(where.removeprefix("file://")) / "data"


def _files(service: Service, name: str) -> set[Path]:
    """The data files of a table; Hadoop puts a hidden file with checksums beside each."""
    return {each for each in _data(service, name).rglob("[!.]*") if each.is_file()}


def _shown(log: Path, name: str) -> bool:
    """Whether a driver's log shows how far a procedure is."""
    kill = KILLS[name]
    about = f"{kill.call.partition('(')[0]} lake.n.{name}: still running after "
    return any(about in line and kill.shown in line for line in log.read_text().splitlines())


def _staged(service: Service) -> int:
    """How many writes are not committed, and have written files."""
    return sum(
        each.state != "committed" and bool(each.files()) for each in known_writes(service.lake).values()
    )


def _await(condition: Callable[[], bool]) -> None:
    """Wait until the catalog has carried out what it was doing."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@dataclass
class Outcome:
    """What a killed driver left, and what the second calls did."""

    service: Service
    before: dict[str, list[int]]
    between: dict[str, list[int]]
    after: dict[str, list[int]]
    snapshots: dict[str, int]
    begun: dict[str, int]
    results: dict[str, list[list[Any]]]
    again: dict[str, list[list[Any]]]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """A service whose only Spark was killed in the middle of each procedure, and another one that goes on."""
    root, held = tmp_path_factory.mktemp("killed"), Held()
    (root / "lake").mkdir()
    with open_service(root / "lake") as service, pytest.MonkeyPatch.context() as patched:
        patched.setattr(expiry, "_PAGE", 1)
        with remote_spark(service, before="spark.sparkContext.setLogLevel('WARN')\n") as spark:
            spark.rows("CREATE NAMESPACE lake.n")
            for name in KILLS:
                _make(spark, service, name)
            before = {name: _ids(spark, name) for name in KILLS}
            begun = {name: _snapshots(service, name) for name in KILLS}
            with crash_points.hooked(held.at):
                for name, kill in KILLS.items():
                    held.expect(kill)
                    spark.begin(_call(name))
                    held.wait()
                _await(lambda: all(_shown(spark.process.log, name) for name in KILLS))
                spark.process.kill()
                held.dead.set()
        _await(lambda: _staged(service) == 2 and _snapshots(service, "snapshots") == 1)
        _await(lambda: _snapshots(service, "manifests") > begun["manifests"])
        _await(lambda: len(_files(service, "snapshots")) == FILES + 2)
        snapshots = {name: _snapshots(service, name) for name in KILLS}
        with remote_spark(service) as spark:
            between = {name: _ids(spark, name) for name in KILLS}
            results = {name: spark.rows(_call(name)) for name in KILLS}
            again = {name: spark.rows(_call(name)) for name in KILLS}
            after = {name: _ids(spark, name) for name in KILLS}
        clean_up_expired(service)
        yield Outcome(service, before, between, after, snapshots, begun, results, again)


def test_rows_stay_after_the_kill_and_after_the_second_call(outcome: Outcome) -> None:
    assert outcome.between == outcome.before
    assert outcome.after == outcome.before
    assert outcome.before["data"] == [*range(FILES), *range(100, 110)]


def test_what_was_committed_is_not_done_again(outcome: Outcome) -> None:
    """Two of six groups were; the third was written, and its commit did not come."""
    assert outcome.snapshots["data"] == outcome.begun["data"] + 2
    assert outcome.results["data"][0][:2] == [4, 4]
    assert outcome.again["data"][0][:2] == [0, 0]


def test_what_was_not_committed_is_done_by_the_second_call(outcome: Outcome) -> None:
    assert outcome.snapshots["deletes"] == outcome.begun["deletes"]
    assert outcome.results["deletes"][0][:2] == [2, 1]
    assert outcome.again["deletes"][0] == [0, 0, 0, 0]
    assert outcome.results["snapshots"][0][0] == 1


def test_what_the_catalog_was_carrying_out_is_done_whole(outcome: Outcome) -> None:
    """It goes on without the driver."""
    assert outcome.snapshots["manifests"] == outcome.begun["manifests"] + 1
    assert outcome.results["manifests"] == [[0, 0]]
    assert outcome.snapshots["snapshots"] == 1
    assert outcome.again["snapshots"] == [[0, 0, 0, 0, 0, 0, None]]
    assert outcome.again["orphans"] == []


def test_nothing_is_left_in_storage(outcome: Outcome) -> None:
    """All files are listed by a snapshot, once the writes of the killed driver have expired."""
    lake = outcome.service.lake
    assert strays(lake) == []
    for name in KILLS:
        loaded = lake.services.loader.load_sealed(table_name(["n"], name))
        paths = lake.services.inspector.all_paths(loaded, removed=True)
        listed = {Path(each.removeprefix("file://")) for each in paths}
        assert _files(outcome.service, name) <= listed, name
    assert len(_files(outcome.service, "snapshots")) == FILES + 1
