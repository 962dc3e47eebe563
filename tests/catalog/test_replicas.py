"""Replicas with different settings or policies notice it; a host whose clock is off judges no token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from alembic import command
from sqlalchemy import insert, select

from catalog.authorization.tokens import TokenStore
from catalog.base.identifiers import TableName, table_name
from catalog.db import clock as db_clock
from catalog.db import migrate
from catalog.db.clock import CHECK_S, DatabaseClock
from catalog.db.engine import open_database, read, write
from catalog.db.schema import lw_replica, lw_table
from catalog.db.sqlite import create_file
from catalog.service import replicas
from catalog.service.replicas import LOOK_S, Replicas, digests_of, unsealed_default
from policy.errors import StateUnavailable
from policy.principal import Principal
from tests.support.http_calls import refused
from tests.support.lake import ALICE, Lake, lake_settings, open_lake
from tests.support.postgres import PostgresServer
from tests.support.service import running

STS = {
    "S3__STS__ROLE_ARN": "arn:aws:iam::123456789012:role/lake",
    "S3__STS__ENDPOINT": "https://sts",
    "S3__ENDPOINT": "https://s3",
    "S3__REGION": "us-east-1",
}


class World:
    """Replicas on one database, and the time that all of them have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"sqlite:///{root}/lake.db"
        self.engine = open_database(self.url)
        migrate.upgrade(self.engine)
        self.seconds = 0.0

    def replica(self, unsealed: str = "forbid", **settings: object) -> Replicas:
        own = lake_settings(self.root, **{"DATABASE__URL": self.url, **settings})
        return Replicas(
            self.engine,
            "lake",
            lambda: digests_of(own, unsealed),
            lambda: int(self.seconds * 1000),
            lambda: self.seconds,
        )

    def pass_a_round(self, *members: Replicas) -> None:
        self.seconds += LOOK_S
        for each in members:
            each.look()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.engine.dispose()


def _named(database: str) -> TableName:
    return table_name((database,), "t")


TLS_OF_A_HOST = {"HTTP__TLS__CERTIFICATE_FILE": "/c.pem", "HTTP__TLS__KEY_FILE": "/k.pem"}
RANGER = {"RANGER__PROD__URL": "https://ranger.example", "RANGER__PROD__SERVICE": "lake"}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ({}, {}, ()),
        ({}, {"WAREHOUSE": "s3://elsewhere/w"}, ("warehouse",)),
        ({}, {"LIMITS__MANIFEST_BYTES": 5, "PLAN_VALID_S": 3}, ("limits.manifest_bytes", "plan_valid_s")),
        ({}, {"unsealed": "allow"}, ("unsealed_metadata",)),
        ({"S3__REGION": "r"}, {"S3__REGION": "r", "S3__SIGNING": True}, ("s3.signing",)),
        (STS, STS | {"S3__STS__ENDPOINT": "https://other", "S3__ENDPOINT": "https://other"}, ()),
        (STS, STS | {"S3__STS__DURATION_S": 1800}, ("s3.sts.duration_s",)),
        ({}, TLS_OF_A_HOST, ()),
        (RANGER, RANGER | {"RANGER__PROD__CA_FILE": "/etc/ca.pem"}, ()),
        ({}, {"HTTP__PORT": 1, "DATA_DIR": "/elsewhere", "WAREHOUSE": None, "CACHE__DIRECTORY": "/c"}, ()),
    ],
)
def test_a_difference_is_named(world: World, one: dict, other: dict, names: tuple[str, ...]) -> None:  # type: ignore[type-arg]
    if other.get("WAREHOUSE", "") is None:
        other = {**other, "WAREHOUSE": f"file://{world.root}/warehouse"}
    first, second = world.replica(**one), world.replica(**other)
    world.pass_a_round(first, second)
    world.pass_a_round(first, second)
    assert first.differences == second.differences == names


def test_a_replica_that_ends_or_is_gone_is_not_compared(world: World) -> None:
    first, second = world.replica(), world.replica(PLAN_VALID_S=3)
    world.pass_a_round(second, first)
    assert first.differences == ("plan_valid_s",)
    second.leave()
    world.pass_a_round(first)
    assert first.differences == ()
    third = world.replica(PLAN_VALID_S=3)
    world.pass_a_round(third, first)
    assert first.differences == ("plan_valid_s",)
    for _ in range(5):  # the third one was killed
        world.pass_a_round(first)
    assert first.differences == ()


def test_neither_values_nor_credentials_are_written(world: World) -> None:
    settings = {
        "S3__ACCESS_KEY_ID": "AKIA",
        "S3__SECRET_ACCESS_KEY": "s3cret",
        "KMS__OPTIONS__PASSPHRASE": "pass",
    }
    world.pass_a_round(world.replica(WAREHOUSE="s3://lake/warehouse", **settings))
    with read(world.engine) as connection:
        said = json.loads(connection.scalars(select(lw_replica.c.digests)).one())
    known = {name for name in said if name.startswith(("s3", "kms.options", "database"))}
    assert known == {"s3.signing"}
    assert all(len(digest) == 64 for digest in said.values())


def test_a_database_that_does_not_answer_is_left_to_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise StateUnavailable("No.", rule="database")

    replica = world.replica()
    monkeypatch.setattr(replicas, "write", gone)
    replica.look()
    assert replica.differences == ()
    replica.leave()


def test_health_says_that_settings_differ_and_metrics_say_which(lake: Lake) -> None:
    """Names of settings show strangers what is configured; metrics need a token."""
    other = Replicas(
        lake.services.engine,
        lake.settings.catalog.name,
        lambda: {"warehouse": "x"},
        lambda: int(datetime.now(UTC).timestamp() * 1000),
        lambda: 0.0,
    )
    other.look()
    lake.services.replicas.look()
    with running(lake) as service, service.client() as client:
        answer = httpx.get(f"{service.url}/healthz")
        assert answer.json()["status"] == "degraded" and "different settings" in answer.text
        assert "warehouse" not in answer.text
        metrics = client.get("/metrics").text
        assert 'lakewarden_replicas_setting_differs{setting="warehouse"} 1\n' in metrics
    other.leave()


def test_a_new_catalog_forbids_unsealed_metadata(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        assert unsealed_default(lake.services.engine) == "forbid"
        lake.catalog().create_namespace("db")
        assert lake.services.loader.forbids_unsealed(_named("db"))
        lake.catalog().create_namespace("open", {"lakewarden.unsealed": "allow"})
        assert not lake.services.loader.forbids_unsealed(_named("open"))


@pytest.mark.parametrize(("governs", "kept"), [(True, "allow"), (False, "forbid")])
def test_a_database_that_governs_tables_keeps_what_it_allowed(
    tmp_path: Path, governs: bool, kept: str
) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/old.db")
    create_file(engine)
    with write(engine) as connection:
        command.upgrade(migrate.alembic_config(connection), "0009")
    if governs:
        names = {"catalog": "lake", "namespace": "db", "name": "t", "owner": "ann", "location": "file:///x"}
        states = {"default_location": True, "state": "active", "created_ms": 0}
        with write(engine) as connection:
            connection.execute(insert(lw_table).values(id="1", table_uuid="u", **names, **states))
    migrate.upgrade(engine)
    assert unsealed_default(engine) == kept
    engine.dispose()


def test_a_setting_wins_over_what_the_database_says(tmp_path: Path) -> None:
    with open_lake(tmp_path, UNSEALED_METADATA="allow") as lake:
        lake.catalog().create_namespace("db")
        assert not lake.services.loader.forbids_unsealed(_named("db"))


@pytest.mark.parametrize(("off_s", "is_refused"), [(0, False), (55, False), (-90, True), (90, True)])
def test_a_host_whose_clock_is_off_judges_no_token(
    postgres: PostgresServer, tmp_path: Path, off_s: int, is_refused: bool
) -> None:
    with open_lake(tmp_path, DATABASE__URL=postgres.create_database()) as lake:
        offset, seconds = timedelta(0), [0.0]
        clock = DatabaseClock(lake.services.engine, lambda: datetime.now(UTC) + offset, lambda: seconds[0])
        tokens = TokenStore(lake.services.engine, require_clock=clock.require)
        token = tokens.issue(Principal(ALICE), "user", None).text
        assert tokens.verify(token, "user").name == ALICE
        offset = timedelta(seconds=off_s)
        seconds[0] += CHECK_S - 1
        assert tokens.verify(token, "user").name == ALICE  # looked at just now
        seconds[0] += 1
        if not is_refused:
            assert tokens.verify(token, "user").name == ALICE
            return
        with pytest.raises(StateUnavailable, match="Synchronize the clocks") as refusal:
            tokens.verify(token, "user")
        assert refusal.value.rule == "clock" and clock.is_off
        offset = timedelta(0)
        assert tokens.verify(token, "user").name == ALICE  # a mended clock counts at once


@pytest.mark.nightly
def test_a_database_that_answers_late_is_not_taken_for_one_whose_clock_is_off(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with open_lake(tmp_path, DATABASE__URL=postgres.create_database()) as lake:
        offsets = iter((timedelta(seconds=-90), timedelta(seconds=90)))
        clock = DatabaseClock(lake.services.engine, lambda: datetime.now(UTC) + next(offsets), lambda: 0.0)
        clock.require()
        assert not clock.is_off


def test_the_service_of_a_host_whose_clock_is_off_answers_503(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite is on the same host: what a database elsewhere would say is put in its place."""
    with running(lake) as service, service.client() as client:
        monkeypatch.setattr(lake.services.clock, "_measured", lambda: 90.0)
        monkeypatch.setattr(db_clock, "_HAS_OWN_CLOCK", frozenset({"sqlite"}))
        refused(httpx.get(f"{service.url}/healthz"), 503, "StateUnavailable", "clock")
        refused(client.get("/v1/config"), 503, "StateUnavailable", "clock")
        assert lake.services.clock.is_off
