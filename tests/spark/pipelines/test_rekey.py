"""The pipeline `rekey`: keys are rotated and moved, an interrupted run goes on, and the end is proved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import update

import lakewarden
from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.client.errors import CatalogUnavailable
from catalog.client.http import CatalogClient
from catalog.db.engine import write
from catalog.db.schema import lw_pek
from catalog.kms.clients import KmsKey
from catalog.kms_server.store import Denial, KeySpec
from lakewarden import pipelines
from policy.errors import NotAuthorized, RequestInvalid
from spark_ext.pipelines.items import Outcome, Status
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.rekey.keys import Keys
from spark_ext.pipelines.rekey.pipeline import Rekey
from spark_ext.pipelines.report import RunState
from tests.support.kms_moves import KmsLake, aws_options, needs, open_kms_lake, opened_with
from tests.support.lake import ALICE, BOB, MASTER_KEY
from tests.support.pipeline_steps import DyingLake, DyingSteps, Killed, MemorySteps
from tests.support.service import Service, running
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import master_keys
from tests.support.table_keys import encrypted, peks, released, rewrap, rotate, versions
from tests.support.tables import append_files, make

ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})


@pytest.fixture
def kmss(tmp_path: Path) -> Iterator[KmsLake]:
    """A catalog of its own with three KMSs."""
    with open_kms_lake(tmp_path) as opened:
        opened.lake.catalog().create_namespace("db")
        yield opened


@contextmanager
def served(spark_lake: SparkLake, kmss: KmsLake, user: str = ALICE) -> Iterator[Lake]:
    """The catalog with three KMSs as pipelines see it; Spark lends its threads alone."""
    with running(kmss.lake) as service:
        yield lake_of(spark_lake, service, user)


def lake_of(spark_lake: SparkLake, service: Service, user: str = ALICE) -> Lake:
    lake = Lake(spark_lake.spark, CATALOG)
    vars(lake)["_client"] = CatalogClient(service.url, service.token(user))
    return lake


def never(_: float) -> None:
    raise AssertionError("nothing is waited for")


def run(
    pipeline: Rekey, lake: Lake, steps: MemorySteps | None = None, at_a_time: int | None = None
) -> dict[str, Outcome]:
    """Run a pipeline in groups; what became of each table, and of each master key."""
    items, noted = list(pipeline.plan(lake)), steps or MemorySteps()
    size = at_a_time or len(items) or 1
    groups = [items[first : first + size] for first in range(0, len(items), size)]
    done = [each for group in groups for each in pipeline.run(lake, group, noted)]
    return {each.table or each.item: each for each in done}


def statuses(done: dict[str, Outcome]) -> set[Status]:
    return {each.status for each in done.values()}


@pytest.mark.nightly
def test_keys_are_rotated_and_rewrapped_until_no_file_needs_the_old_versions(
    spark_lake: SparkLake, namespace: str
) -> None:
    master_keys(spark_lake, "rekeyed", "rekeyed-2")
    for name in ("a", "b"):
        spark_lake.rows(
            f"CREATE TABLE {namespace}.{name} (id INT) TBLPROPERTIES ('encryption.master-key-id' = 'rekeyed')"
        )
        spark_lake.rows(f"INSERT INTO {namespace}.{name} VALUES (1)")
    spark_lake.rows(f"ALTER TABLE {namespace}.a CREATE BRANCH side")
    spark_lake.rows(f"CREATE TABLE {namespace}.plain (id INT)")

    rotated = pipelines.rekey(spark_lake.spark, master_key="rekeyed", catalog=CATALOG, show=False)
    assert (rotated.state, len(rotated.outcomes)) == (RunState.COMPLETE, 2), rotated.to_dict()
    assert sum(each.counts["rotated-keys"] for each in rotated.outcomes) == 2
    assert sum(each.counts["rewrapped-files"] for each in rotated.outcomes) == 3
    assert {each.rule for each in rotated.findings} == {"snapshots-need-old-key"}
    lake, table = spark_lake.lake, TableName((namespace.split(".")[1],), "a")
    assert set(versions(lake, table).values()) == set(versions(lake, table, "side").values()) == {2}

    moved = pipelines.rekey(
        spark_lake.spark, master_key="rekeyed", to_master_key="rekeyed-2", catalog=CATALOG, show=False
    )
    assert (moved.state, moved.findings) == (RunState.COMPLETE, ()), moved.to_dict()
    lake.kms.disable_master_key("rekeyed")
    for pek in peks(lake, table):
        lake.services.peks.forget(pek.id)
    for name in ("a", "b"):
        spark_lake.rows(f"INSERT INTO {namespace}.{name} VALUES (2)")
        rows = spark_lake.rows(f"SELECT id FROM {namespace}.{name} ORDER BY id")
        assert [row["id"] for row in rows] == [1, 2]


@pytest.mark.nightly
def test_a_lake_moves_from_local_to_aws_to_vault_and_is_read_and_written(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    lake = kmss.lake
    for name in ("a", "b"):
        make(lake, name=TableName(("db",), name), properties={"encryption.mechanism": "envelope"})
    dropped = encrypted(lake, files=1)
    lake.services.lifecycle.drop(lake.caller(ALICE), dropped)
    lake.services.endpoint_keys.create(KeySpec("door", 128, None, {}, Denial.ERROR), ALICE)
    with served(spark_lake, kmss) as client:
        append_rows(client, "a")
        to_aws = Rekey(master_key=MASTER_KEY, to_kms="aws", to_master_key=kmss.moto.lake, sleep=never)
        done = run(to_aws, client, at_a_time=1)
        assert statuses(done) == {Status.DONE}, done
        assert {name: each.counts.get("moved-keys") for name, each in done.items()} == {
            "db.a": 1,
            "db.b": 1,
            f"master-key:{MASTER_KEY}": 2,
        }
    lake.kms.disable_master_key(MASTER_KEY)
    with opened_with(lake, **aws_options(kmss.moto, "KMS")) as only_aws, running(only_aws) as service:
        append_rows(lake_of(spark_lake, service), "a")
        assert read_rows(lake_of(spark_lake, service), "a") == 4
    with served(spark_lake, kmss) as client:
        to_vault = Rekey(
            master_key=MASTER_KEY, to_kms="vault", to_master_key="lake-2", rotate=True, sleep=never
        )
        assert statuses(run(to_vault, client)) == {Status.DONE}
        kmss.moto.stop()
        lake.reopen()
    with served(spark_lake, kmss) as client:
        append_rows(client, "a")
        assert read_rows(client, "a") == 6
        assert statuses(run(to_vault, client)) == {Status.DONE}
    assert needs(lake, "aws") == set()


def append_rows(lake: Lake, table: str) -> None:
    connection(lake).table(f"db.{table}").append(ROWS)


def read_rows(lake: Lake, table: str) -> int:
    return int(connection(lake).table(f"db.{table}").scan().to_arrow().num_rows)


def connection(lake: Lake) -> Any:
    client = lake._client
    return lakewarden.connect(client._base, client._headers["Authorization"].removeprefix("Bearer "))


@pytest.mark.nightly
def test_only_tables_with_older_keys_are_rotated(spark_lake: SparkLake, kmss: KmsLake) -> None:
    old, new = encrypted(kmss.lake, files=1), encrypted(kmss.lake, files=1)
    (pek,) = peks(kmss.lake, old)
    with write(kmss.lake.services.engine) as connection:
        connection.execute(update(lw_pek).where(lw_pek.c.id == str(pek.id)).values(created_ms=1))
    with served(spark_lake, kmss) as client:
        done = run(Rekey(older_than=timedelta(days=90), sleep=never), client)
        assert list(done) == [str(old)]
        assert run(Rekey(older_than=timedelta(days=90), sleep=never), client) == {}
        later = Rekey(older_than=timedelta(days=90), now=lambda: datetime.now(UTC) + timedelta(days=91))
        assert set(run(later, client)) == {str(old), str(new)}


def test_what_cannot_be_read_keeps_its_place_and_its_keys_move_nevertheless(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    lake, pipeline = kmss.lake, to_aws(kmss, rotate=True)
    good, bad = encrypted(lake, files=1), encrypted(lake, files=1)
    file = Path(lake.services.loader.load(bad).metadata_location.removeprefix("file://"))
    whole = file.read_bytes()
    file.write_bytes(b"{}")
    steps = MemorySteps()
    with served(spark_lake, kmss) as client:
        done = run(pipeline, client, steps)
        assert done[str(good)].status is Status.DONE
        assert done[str(bad)].status is Status.FAILED and "metadata" in (done[str(bad)].reason or "")
        assert done[f"master-key:{MASTER_KEY}"].status is Status.DONE
        assert needs(lake, "local", MASTER_KEY) == set()
        file.write_bytes(whole)
        assert statuses(run(to_aws(kmss, rotate=True), client, steps)) == {Status.DONE}
    assert max(pek.version for pek in peks(lake, good)) == 2, "no key is rotated twice in a run"
    assert max(pek.version for pek in peks(lake, bad)) == 2


def to_aws(kmss: KmsLake, **options: Any) -> Rekey:
    given = {"to_kms": "aws", "to_master_key": kmss.moto.lake, "sleep": never, **options}
    return Rekey(master_key=MASTER_KEY, **given)


@pytest.mark.nightly
def test_a_key_that_cannot_be_moved_is_found_and_a_second_run_finishes(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    lake, steps = kmss.lake, MemorySteps()
    good, bad = encrypted(lake), encrypted(lake)
    (pek,) = peks(lake, bad)

    def store(wrapped: bytes) -> None:
        with write(lake.services.engine) as connection:
            connection.execute(update(lw_pek).where(lw_pek.c.id == str(pek.id)).values(wrapped=wrapped))

    store(b"garbage")
    with served(spark_lake, kmss) as client:
        done = run(to_aws(kmss), client, steps)
        assert (done[str(good)].status, done[str(bad)].status) == (Status.DONE, Status.FAILED)
        proof = done[f"master-key:{MASTER_KEY}"]
        assert proof.status is Status.LEFT and f"table {bad}" in (proof.reason or "")
        assert {each.rule for each in proof.findings} == {"key-not-moved", "old-key-needed"}
        store(pek.wrapped)
        assert statuses(run(to_aws(kmss), client, steps)) == {Status.DONE}


@pytest.mark.nightly
def test_a_kms_that_refuses_for_a_while_is_waited_for_and_then_left_with_the_reason(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    lake, steps, waited = kmss.lake, MemorySteps(), list[float]()
    names = [encrypted(lake, files=1) for _ in range(3)]

    def to_vault(sleep: Callable[[float], None]) -> Rekey:
        return Rekey(master_key=MASTER_KEY, to_kms="vault", to_master_key="lake-2", sleep=sleep)

    kmss.transit.sealed = True
    with served(spark_lake, kmss) as client:
        done = run(to_vault(waited.append), client, steps)
        assert statuses(done) == {Status.LEFT} and len(waited) == 5
        assert all("The call to Vault failed" in (each.reason or "") for each in done.values()), done

        def open_again(_: float) -> None:
            kmss.transit.sealed = False

        assert statuses(run(to_vault(open_again), client, steps)) == {Status.DONE}
    assert needs(lake, "local", MASTER_KEY) == set()
    assert all(pek.kms == "vault" for name in names for pek in peks(lake, name))


@pytest.mark.nightly
def test_tables_that_are_renamed_dropped_written_and_made_meanwhile_are_re_keyed(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    lake = kmss.lake
    renamed, dropped, written = (encrypted(lake, files=1) for _ in range(3))
    target = TableName(("db",), "renamed")
    with served(spark_lake, kmss) as client:
        pipeline, steps = to_aws(kmss, rotate=True), MemorySteps()
        items = list(pipeline.plan(client))
        lake.services.lifecycle.rename(lake.caller(ALICE), renamed, target)
        lake.services.lifecycle.drop(lake.caller(ALICE), dropped)
        made = list[TableName]()

        def meanwhile(point: str) -> None:
            if point == "rewrap:listed" and not made:
                made.append(encrypted(lake, files=1))
                append_files(lake, written)

        with crash_points.hooked(meanwhile):
            done = list(pipeline.run(client, items, steps))
    assert {each.status for each in done} == {Status.DONE}, done
    assert [set(versions(lake, name).values()) for name in (target, written)] == [{2}, {2}]
    assert needs(lake, "local", MASTER_KEY) == set()
    assert {pek.kms for pek in peks(lake, made[0])} == {"aws"}


@pytest.mark.nightly
def test_a_catalog_that_is_away_ends_the_run_and_a_second_one_finishes(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    name, steps = encrypted(kmss.lake, files=1), MemorySteps()
    with served(spark_lake, kmss) as client:
        items = list(to_aws(kmss).plan(client))
        assert [each.status for each in to_aws(kmss).run(client, items[:1], steps)] == [Status.DONE]
    with pytest.raises(CatalogUnavailable):
        list(to_aws(kmss).run(client, items, steps))
    kmss.lake.reopen()
    with served(spark_lake, kmss) as client:
        assert statuses(run(to_aws(kmss), client, steps)) == {Status.DONE}
    assert {pek.kms for pek in peks(kmss.lake, name)} == {"aws"}


@pytest.mark.nightly
def test_of_two_moves_at_the_same_time_the_earlier_one_is_left(
    spark_lake: SparkLake, kmss: KmsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, move = kmss.lake, Keys.move
    lake.services.endpoint_keys.create(KeySpec("door", 128, None, {}, Denial.ERROR), ALICE)

    def other_first(self: Keys, master_key_id: str, table_uuid: str | None) -> tuple[int, list[str]]:
        self.assign(master_key_id, KmsKey("vault", "lake-2"))
        return move(self, master_key_id, table_uuid)

    with served(spark_lake, kmss) as client:
        with monkeypatch.context() as patched:
            patched.setattr(Keys, "move", other_first)
            (proof,) = run(to_aws(kmss), client).values()
        assert proof.status is Status.LEFT and "lake-2 in the KMS vault" in (proof.reason or "")
        assert statuses(run(to_aws(kmss), client)) == {Status.DONE}
    assert needs(lake, "vault") == set()


@pytest.mark.nightly
def test_users_without_administration_are_told_so(spark_lake: SparkLake, kmss: KmsLake) -> None:
    encrypted(kmss.lake)
    with served(spark_lake, kmss, BOB) as client, pytest.raises(NotAuthorized):
        list(Rekey().plan(client))


@pytest.mark.nightly
def test_a_run_over_some_tables_tells_what_else_needs_the_old_key(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    lake = kmss.lake
    lake.catalog().create_namespace("other")
    mine, other = encrypted(lake), TableName(("other",), "t")
    make(lake, name=other, properties={"encryption.mechanism": "envelope"})
    with served(spark_lake, kmss) as client:
        done = run(to_aws(kmss, tables="db.*"), client)
    proof = done[f"master-key:{MASTER_KEY}"]
    assert set(done) == {str(mine), proof.item} and proof.status is Status.DONE
    assert [(each.rule, each.table) for each in proof.findings] == [("old-key-needed", str(other))]


@pytest.mark.nightly
def test_a_plan_changes_nothing_and_arguments_that_contradict_each_other_are_refused(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    name = encrypted(kmss.lake, files=1)
    before = peks(kmss.lake, name)
    with served(spark_lake, kmss) as client:
        assert [each.table for each in to_aws(kmss).plan(client)] == [str(name), ""]
        with pytest.raises(RequestInvalid, match="No key is under"):
            list(Rekey(master_key="none", to_master_key="x").plan(client))
        assert kmss.lake.services.kms_keys.of(MASTER_KEY) == KmsKey("local", MASTER_KEY)
    assert peks(kmss.lake, name) == before
    wrong: Sequence[dict[str, Any]] = (
        {"to_master_key": "x"},
        {"rotate": False},
        {"to_kms": "aws", "older_than": timedelta(days=1)},
        {"tables": "a b"},
    )
    for options in wrong:
        with pytest.raises(RequestInvalid):
            Rekey(**options)


@pytest.mark.nightly
def test_a_target_that_cannot_be_used_fails_tables_with_the_reason_and_changes_nothing(
    spark_lake: SparkLake, kmss: KmsLake
) -> None:
    name = encrypted(kmss.lake)
    with served(spark_lake, kmss) as client:
        done = run(to_aws(kmss, to_master_key="alias/none"), client)
        assert statuses(done) == {Status.FAILED}
        assert all("NotFoundException" in (each.reason or "") for each in done.values())
        done = run(to_aws(kmss, to_kms="gcp"), client)
        assert all("'gcp' is not configured" in (each.reason or "") for each in done.values())
    assert {pek.kms for pek in peks(kmss.lake, name)} == {"local"}


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_dies_anywhere_leaves_what_the_next_one_finishes(
    spark_lake: SparkLake, kmss: KmsLake, after: bool
) -> None:
    lake, targets = kmss.lake, [("aws", kmss.moto.lake), ("vault", "lake-2")]
    name = encrypted(lake, files=2)
    keys = released(lake, name)
    with served(spark_lake, kmss) as client:
        for calls in range(1, 100):
            kms, key = targets[calls % 2]

            def pipeline(kms: str = kms, key: str = key) -> Rekey:
                options: dict[str, Any] = {"rotate": True, "sleep": never, "threads": 1}
                return Rekey(master_key=MASTER_KEY, to_kms=kms, to_master_key=key, **options)

            version = max(pek.version for pek in peks(lake, name))
            steps = DyingSteps()
            dying = steps.lake = DyingLake(client, calls, after=after)
            vars(dying)["_client"] = client._client
            try:
                assert statuses(run(pipeline(), dying, steps)) == {Status.DONE}
                assert calls > 10
                return
            except Killed:
                pass
            done = run(pipeline(), client, MemorySteps(steps.notes))
            assert statuses(done) == {Status.DONE}, (calls, done)
            assert max(pek.version for pek in peks(lake, name)) == version + 1
            assert {pek.kms for pek in peks(lake, name)} == {kms}
            assert set(versions(lake, name).values()) == {version + 1}
            lake.services.peks.forget(peks(lake, name)[0].id)
            assert released(lake, name) == keys
            assert rewrap(lake, name) == {"main": 0}
    raise AssertionError("the driver never came to its end")


@pytest.mark.nightly
def test_rotating_twice_needs_two_runs(spark_lake: SparkLake, kmss: KmsLake) -> None:
    name, steps = encrypted(kmss.lake, files=1), MemorySteps()
    with served(spark_lake, kmss) as client:
        for expected in (2, 2):
            assert statuses(run(Rekey(sleep=never), client, steps)) == {Status.DONE}
            assert max(pek.version for pek in peks(kmss.lake, name)) == expected
        assert statuses(run(Rekey(sleep=never), client)) == {Status.DONE}
    assert rotate(kmss.lake, name).version == 4
