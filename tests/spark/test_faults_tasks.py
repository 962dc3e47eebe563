"""Tasks that fail, are killed or run again, and a service that comes and goes: all of a write or nothing.

One Spark with two cores, where a task is tried three times, behind a proxy that loses answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.leftovers import KnownWrite, await_files, clean_up_expired, known_writes, strays
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.service import Service, open_service
from tests.support.spark_remote import Place, Refused, RemoteSpark, Step, disturbed, remote_spark

pytestmark = pytest.mark.nightly

ENCRYPTED = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"


@dataclass
class Setting:
    """A Spark on a service that can be disturbed."""

    service: Service
    proxy: LossyProxy
    spark: RemoteSpark
    directory: Path
    seen: set[str] = field(default_factory=set)

    def table(self) -> str:
        """An encrypted table with the rows 1000 and 1001."""
        name = self.new_name()
        self.spark.rows(f"CREATE TABLE {name} {ENCRYPTED} AS SELECT id FROM range(1000, 1002)")
        self.writes()
        return name

    @staticmethod
    def new_name() -> str:
        """A name that no table has."""
        return f"lake.n.t{uuid4().hex[:10]}"

    def ids(self, table: str) -> list[int]:
        """The rows of a table, every one as often as it is there."""
        return sorted(row[0] for row in self.spark.rows(f"SELECT id FROM {table}"))

    def snapshots(self, table: str) -> int:
        """How many commits a table has seen."""
        return len(self.service.lake.catalog().load_table(table.removeprefix("lake.")).metadata.snapshots)

    def writes(self) -> list[KnownWrite]:
        """The writes that were begun since this was asked last."""
        found = known_writes(self.service.lake)
        new = [found[each] for each in found.keys() - self.seen]
        self.seen |= found.keys()
        return new

    def place(self) -> Place:
        """Where a task can wait."""
        return Place.make(self.directory, uuid4().hex)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    directory = tmp_path_factory.mktemp("faults")
    (directory / "lake").mkdir()
    with open_service(directory / "lake") as service, lossy_proxy(service.url) as proxy:
        settings = {"spark.master": "local[2, 3]", "spark.sql.catalog.lake.uri": proxy.url}
        with remote_spark(service, settings=settings) as spark:
            spark.rows("CREATE NAMESPACE lake.n")
            yield Setting(service, proxy, spark, directory)


def _there(setting: Setting, table: str) -> bool:
    found = setting.spark.rows(f"SHOW TABLES IN lake.n LIKE '{table.removeprefix('lake.n.')}'")
    return found != []


def _assert_nothing_left(setting: Setting, state: str) -> None:
    """One write was begun; it came to this end, and its files are gone."""
    [write] = setting.writes()
    assert (write.state, write.files()) == (state, [])
    assert strays(setting.service.lake) == []


def test_an_insert_with_a_failing_task_adds_nothing(setting: Setting) -> None:
    table = setting.table()
    with pytest.raises(Refused, match="DIVIDE_BY_ZERO"):
        setting.spark.rows(f"INSERT INTO {table} SELECT 1 div (id - 390) FROM range(0, 400, 1, 2)")
    assert setting.ids(table) == [1000, 1001]
    assert setting.snapshots(table) == 1
    _assert_nothing_left(setting, "aborted")


def test_a_table_is_not_made_by_a_select_with_a_failing_task(setting: Setting) -> None:
    name = setting.new_name()
    with pytest.raises(Refused, match="DIVIDE_BY_ZERO"):
        setting.spark.rows(
            f"CREATE TABLE {name} {ENCRYPTED} AS SELECT 1 div (id - 9) AS a FROM range(0, 10, 1, 2)"
        )
    assert not _there(setting, name)
    _assert_nothing_left(setting, "aborted")
    setting.spark.rows(f"CREATE TABLE {name} AS SELECT id FROM range(2)")
    assert setting.ids(name) == [0, 1]
    setting.writes()


@pytest.mark.parametrize("statement", ["INSERT INTO {table}", f"CREATE TABLE {{new}} {ENCRYPTED} AS"])
def test_a_killed_write_is_given_up(setting: Setting, statement: str) -> None:
    """Two files are being written when it is killed."""
    table, new, place = setting.table(), setting.new_name(), setting.place()
    writing = setting.spark.begin(
        f"{statement.format(table=table, new=new)} "
        f"SELECT {disturbed(Step('wait', 390, place=place))} FROM range(0, 400, 1, 2)"
    )
    place.wait()
    write = await_files(setting.service.lake, setting.seen, 2)
    setting.spark.cancel(writing)
    with pytest.raises(Refused, match="cancelled"):
        setting.spark.result(writing)
    assert setting.ids(table) == [1000, 1001]
    assert not _there(setting, new)
    assert [each.state for each in setting.writes()] == ["aborted"]
    assert strays(setting.service.lake) == []
    assert write.id in setting.seen


def test_the_rows_of_a_failed_attempt_do_not_count(setting: Setting) -> None:
    """The first attempt has written rows when it fails; its file is deleted, and the second one's counts."""
    table, place = setting.table(), setting.place()
    insert = setting.spark.begin(
        f"INSERT INTO {table} SELECT {disturbed(Step('wait', 390, place=place), Step('fail', 390))} "
        "FROM range(0, 400, 1, 2)"
    )
    place.wait()
    write = await_files(setting.service.lake, setting.seen, 2)
    place.let_go()
    setting.spark.result(insert)
    assert setting.ids(table) == [*range(400), 1000, 1001]
    assert [each.state for each in setting.writes()] == ["committed"]
    assert len(write.files()) == 2


@pytest.mark.parametrize("times", [1, 3])
def test_an_insert_whose_answer_was_lost_is_one_commit(setting: Setting, times: int) -> None:
    table = setting.table()
    setting.proxy.lose_answers("/commit", times)
    setting.spark.rows(f"INSERT INTO {table} SELECT id FROM range(5)")
    assert setting.proxy.lost_all("/commit")
    assert setting.ids(table) == [0, 1, 2, 3, 4, 1000, 1001]
    assert setting.snapshots(table) == 2
    setting.writes()


def test_a_table_whose_creation_was_not_answered_is_made_once(setting: Setting) -> None:
    name = setting.new_name()
    setting.proxy.lose_answers("/commit", 2)
    setting.spark.rows(f"CREATE TABLE {name} {ENCRYPTED} AS SELECT id FROM range(5)")
    assert setting.ids(name) == [0, 1, 2, 3, 4]
    assert setting.snapshots(name) == 1
    setting.writes()


def test_every_statement_takes_effect_once_although_every_answer_is_lost_once(setting: Setting) -> None:
    run, name = setting.spark.rows, setting.new_name()
    space, other = f"lake.s{name[-6:]}", f"{name}_renamed"
    with setting.proxy.losing_every_first_answer():
        run(f"CREATE NAMESPACE {space}")
        run(f"ALTER NAMESPACE {space} SET PROPERTIES ('a' = '1')")
        run(f"CREATE TABLE {name} (id BIGINT)")
        run(f"ALTER TABLE {name} ADD COLUMN more BIGINT")
        run(f"INSERT INTO {name} SELECT id, id FROM range(3)")
        run(f"ALTER TABLE {name} RENAME TO {other.removeprefix('lake.')}")
        assert setting.ids(other) == [0, 1, 2] and setting.snapshots(other) == 1
        run(f"DROP TABLE {other} PURGE")
        run(f"DROP NAMESPACE {space}")
    assert not _there(setting, name) and not _there(setting, other)
    assert len(setting.writes()) == 2
    # The write whose beginning was not answered.
    assert clean_up_expired(setting.service) == 1


def test_whoever_never_gets_an_answer_is_told_that_the_rows_may_be_there(setting: Setting) -> None:
    """Running the statement again, as other failures suggest, would add them twice."""
    table = setting.table()
    setting.proxy.lose_answers("/commit", 1000)
    try:
        with pytest.raises(Refused, match="CommitStateUnknown"):
            setting.spark.rows(f"INSERT INTO {table} SELECT id FROM range(5)")
    finally:
        setting.proxy.lose_answers("/commit", 0)
    assert setting.ids(table) == [0, 1, 2, 3, 4, 1000, 1001]
    [write] = setting.writes()
    assert write.state == "committed"


def test_a_session_goes_on_when_the_service_is_back(setting: Setting) -> None:
    table = setting.table()
    with setting.proxy.cut(), pytest.raises(Refused, match="CatalogUnavailable"):
        setting.ids(table)
    assert setting.ids(table) == [1000, 1001]


def test_an_insert_that_cannot_be_committed_is_cleaned_up(setting: Setting) -> None:
    table, place = setting.table(), setting.place()
    insert = setting.spark.begin(
        f"INSERT INTO {table} SELECT {disturbed(Step('wait', 1, place=place))} FROM range(2)"
    )
    place.wait()
    with setting.proxy.cut():
        place.let_go()
        with pytest.raises(Refused, match="CatalogUnavailable"):
            setting.spark.result(insert)
    assert setting.ids(table) == [1000, 1001]
    [write] = setting.writes()
    assert (write.state, write.files() != []) == ("open", True)
    assert clean_up_expired(setting.service) == 1
    assert write.files() == []
    assert strays(setting.service.lake) == []
