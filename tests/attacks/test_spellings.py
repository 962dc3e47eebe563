"""The planted path in disguise: other spellings of a foreign path, and foreign ones that look like own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.exceptions import RESTError
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table.update import SetLocationUpdate, SetPropertiesUpdate, TableUpdate

from policy.errors import InvalidInput, LocationInvalid, LocationNotAllowed, NotAuthorized
from tests.attacks.traps import OpenWatch, s3_requests
from tests.support.attacker import (
    OWN_ROWS,
    SECRET_ROWS,
    Siege,
    data_file,
    entry,
    lay_siege,
    local,
    new_id,
    relisted,
    stock_rows,
    updates,
)
from tests.support.lake import ALICE, BOB, open_lake
from tests.support.moto_server import MotoS3
from tests.support.service import Service, open_service

Spell = Callable[[str, str], str]


def _beside(own: str, foreign: str) -> str:
    """What leads from the attacker's directory to the foreign file."""
    return os.path.relpath(local(foreign), local(own))


SPELLINGS: dict[str, Spell] = {
    "as it is": lambda own, foreign: foreign,
    "file with one slash": lambda own, foreign: f"file:{local(foreign)}",
    "file with four slashes": lambda own, foreign: f"file:///{local(foreign)}",
    "file with a host": lambda own, foreign: f"file://localhost{local(foreign)}",
    "scheme in capitals": lambda own, foreign: f"FILE://{local(foreign)}",
    "no scheme": lambda own, foreign: str(local(foreign)),
    "own scheme, foreign bucket": lambda own, foreign: f"s3://warehouse{local(foreign)}",
    "own path in a bucket": lambda own, foreign: f"s3:/{local(own)}/data/x.parquet",
    "dots": lambda own, foreign: f"{own}/{_beside(own, foreign)}",
    "dots of one's own file": lambda own, foreign: f"{own}/data/../data/x.parquet",
    "encoded dots": lambda own, foreign: f"{own}/{_beside(own, foreign)}".replace("..", "%2e%2e"),
    "encoded dots in capitals": lambda own, foreign: f"{own}/{_beside(own, foreign)}".replace("..", "%2E."),
    "twice encoded dots": lambda own, foreign: f"{own}/{_beside(own, foreign)}".replace("..", "%252e%252e"),
    "encoded slashes": lambda own, foreign: f"{own}/..%2f..%2f{_beside(own, foreign)}",
    "backslashes": lambda own, foreign: f"{own}\\..\\..\\db",
    "empty segments": lambda own, foreign: f"{own}//../{_beside(own, foreign)}",
    "sibling with the same prefix": lambda own, foreign: f"{own}0/data/x.parquet",
    "parent": lambda own, foreign: own.rpartition("/")[0],
    "query": lambda own, foreign: f"{foreign}?{own}/data",
    "fragment": lambda own, foreign: f"{own}/data/x.parquet#{foreign}",
    "line feed": lambda own, foreign: f"{own}/data/\n{foreign}",
    "space in front": lambda own, foreign: f" {own}/data/x.parquet",
}


@dataclass
class Field:
    """A siege that every disguise is tried in; none of them leaves a trace.

    Attributes:
        siege: the tables.
        watch: sees the victim's files opened.
        foreign: the victim's data file.
        manifest: the victim's manifest, as a standard client reads it.
    """

    siege: Siege
    watch: OpenWatch
    foreign: str
    manifest: ManifestFile

    @contextmanager
    def behind(self, planted: Sequence[TableUpdate]) -> Iterator[None]:
        """Commit to the pointer store, and put the pointer back in the end."""
        before = self.siege.attacker.pointer()
        self.siege.attacker.commit_behind(*planted)
        try:
            yield
        finally:
            self.siege.attacker.point(before)


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with open_lake(tmp_path_factory.mktemp("spellings")) as lake:
        siege = lay_siege(lake)
        [foreign], [manifest] = siege.victim.data_paths(), siege.victim.manifests()
        with OpenWatch(local(siege.victim.location)) as watch:
            yield Field(siege, watch, foreign, manifest)


@pytest.fixture(params=SPELLINGS)
def disguised(request: pytest.FixtureRequest, field: Field) -> Iterator[str]:
    """A foreign path, disguised; nothing of the victim's may be opened for it."""
    field.watch.opened()
    yield SPELLINGS[request.param](field.siege.attacker.location, field.foreign)
    assert field.watch.opened() == []


@pytest.mark.rows_by_day(3)
def test_disguised_data_file(field: Field, disguised: str) -> None:
    attacker = field.siege.attacker
    planted = attacker.appending(entry(data_file(disguised)))
    with pytest.raises(LocationNotAllowed):
        attacker.commit(*planted)
    with field.behind(planted):
        with pytest.raises(LocationNotAllowed):
            attacker.plan(ALICE)
        with pytest.raises(LocationNotAllowed):
            attacker.scan(ALICE)


@pytest.mark.rows_by_day(3)
def test_disguised_manifest(field: Field, disguised: str) -> None:
    attacker = field.siege.attacker
    moved = relisted(field.manifest, manifest_path=disguised)
    planted = updates(attacker.snapshot([*attacker.manifests(), moved], new_id()))
    with pytest.raises(LocationNotAllowed):
        attacker.commit(*planted)
    with field.behind(planted), pytest.raises(LocationNotAllowed):
        attacker.plan(ALICE)


@pytest.mark.rows_by_day(3)
def test_disguised_manifest_list(field: Field, disguised: str) -> None:
    attacker = field.siege.attacker
    planted = updates(attacker.snapshot([], new_id(), at=disguised))
    with pytest.raises(LocationNotAllowed):
        attacker.commit(*planted)
    with field.behind(planted), pytest.raises(LocationNotAllowed):
        attacker.plan(ALICE)


def test_disguised_pointer(field: Field, disguised: str) -> None:
    """The pointer itself leads out of the table's locations, or nowhere."""
    attacker = field.siege.attacker
    before = attacker.pointer()
    attacker.point(disguised)
    try:
        with pytest.raises(LocationNotAllowed):
            attacker.plan(ALICE)
    finally:
        attacker.point(before)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
def test_disguised_write_path(field: Field, disguised: str, name: str) -> None:
    """Nobody's writers are sent there: what is a location is not granted, what is none is refused."""
    with pytest.raises((NotAuthorized, LocationInvalid)):
        field.siege.attacker.commit(SetPropertiesUpdate(updates={name: disguised}))


def test_disguised_table_location(field: Field, disguised: str) -> None:
    with pytest.raises((NotAuthorized, LocationInvalid)):
        field.siege.attacker.commit(SetLocationUpdate(location=disguised))


@pytest.mark.rows_by_day(3)
def test_disguised_allowed_list(field: Field, disguised: str) -> None:
    listed = json.dumps([field.siege.attacker.location, disguised])
    with pytest.raises((NotAuthorized, InvalidInput)):
        field.siege.attacker.commit(SetPropertiesUpdate(updates={"read.allowed.data.paths": listed}))


@pytest.mark.rows_by_day(3)
def test_disguised_registration(field: Field, disguised: str) -> None:
    with pytest.raises((NotAuthorized, LocationInvalid)):
        field.siege.attacker.catalog.register_table("bobs.taken", disguised)


def test_link_in_place_of_a_data_file(siege: Siege, watch: OpenWatch) -> None:
    """An own path that leads elsewhere once it is opened: a standard client follows it, we do not."""
    own = local(siege.attacker.data_paths()[0])
    own.unlink()
    own.symlink_to(local(siege.victim.data_paths()[0]))
    assert stock_rows(siege.lake, "bobs.mine") == [7001, 7002]
    watch.opened()
    with pytest.raises(LocationNotAllowed):
        siege.attacker.scan()
    assert watch.opened() == []


def test_link_in_place_of_the_data_directory(siege: Siege, watch: OpenWatch) -> None:
    directory = local(siege.attacker.location) / "data"
    shutil.rmtree(directory)
    directory.symlink_to(local(siege.victim.location) / "data")
    name = Path(siege.victim.data_paths()[0]).name
    planted = siege.attacker.replacing(entry(data_file(f"file://{directory}/{name}")))
    siege.attacker.commit_behind(*planted)
    assert stock_rows(siege.lake, "bobs.mine") == [7001, 7002]
    watch.opened()
    with pytest.raises(LocationNotAllowed):
        siege.attacker.scan()
    assert watch.opened() == []


@dataclass
class S3Siege:
    """A victim and an attacker in one bucket.

    Attributes:
        service: the running service.
            bucket: the bucket.
        own: the attacker's table location.
        foreign: the victim's data file.
    """

    service: Service
    bucket: str
    own: str
    foreign: str


@pytest.fixture(scope="module")
def s3(moto: MotoS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Siege]:
    with open_service(tmp_path_factory.mktemp("s3"), s3=moto) as service:
        alice, bob = service.lake.catalog(ALICE), service.lake.catalog(BOB)
        alice.create_namespace("db")
        alice.create_namespace("bobs")
        victim = alice.create_table("db.victim", SECRET_ROWS.schema)
        victim.append(SECRET_ROWS)
        mine = bob.create_table("bobs.mine", OWN_ROWS.schema)
        mine.append(OWN_ROWS)
        [task] = alice.load_table("db.victim").scan().plan_files()
        own = mine.location()
        yield S3Siege(service, own.split("/")[2], own, task.file.file_path)


def _append(siege: S3Siege, file: DataFile) -> None:
    """What a standard client does: its own manifests, through the service."""
    table = siege.service.iceberg(BOB).load_table("bobs.mine")
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_foreign_object_under_each_s3_scheme(s3: S3Siege, scheme: str) -> None:
    foreign = s3.foreign.replace("s3://", f"{scheme}://")
    with s3_requests() as requests, pytest.raises(RESTError, match="LocationNotAllowed"):
        _append(s3, data_file(foreign))
    key = s3.foreign.removeprefix(f"s3://{s3.bucket}/")
    assert requests and not any(key in line for line in requests)


@pytest.mark.parametrize("own", ["0/data/x.parquet", "/../victim/x.parquet", "/%2e%2e/victim/x.parquet"])
def test_foreign_object_beside_the_own_prefix(s3: S3Siege, own: str) -> None:
    with pytest.raises(RESTError, match="LocationNotAllowed"):
        _append(s3, data_file(s3.own + own))


@pytest.mark.nightly
def test_own_object_added_again_under_another_scheme(s3: S3Siege) -> None:
    """`s3a` and `s3` are one location: the file is in the table already."""
    [task] = s3.service.lake.catalog(BOB).load_table("bobs.mine").scan().plan_files()
    with pytest.raises(RESTError, match="duplicate-file"):
        _append(s3, data_file(task.file.file_path.replace("s3://", "s3a://")))
