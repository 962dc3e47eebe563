"""A warehouse in S3: files that commits add are there, and a bucket that is gone is no deleted file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from catalog.storage.errors import ObjectMissing
from policy.errors import MetadataInvalid, StorageUnavailable
from policy.location.location import Location
from tests.support.lake import Lake
from tests.support.moto_server import MotoS3
from tests.support.service import open_service
from tests.support.tables import Engine, make, name_of


@pytest.fixture(scope="module")
def in_s3(tmp_path_factory: pytest.TempPathFactory, moto: MotoS3) -> Iterator[Lake]:
    with open_service(tmp_path_factory.mktemp("lake"), s3=moto) as service:
        service.lake.catalog().create_namespace("db")
        yield service.lake


def _gone(moto: MotoS3, bucket: str, key: str) -> None:
    moto.client.delete_object(Bucket=bucket, Key=key)


def _longer(moto: MotoS3, bucket: str, key: str) -> None:
    moto.client.put_object(Bucket=bucket, Key=key, Body=b"x" * 1001)


def _directory(moto: MotoS3, bucket: str, key: str) -> None:
    _gone(moto, bucket, key)
    moto.client.put_object(Bucket=bucket, Key=f"{key}/", Body=b"")
    moto.client.put_object(Bucket=bucket, Key=f"{key}/file", Body=b"x" * 1000)


@pytest.mark.parametrize(
    ("spoil", "rule"), [(_gone, "file-missing"), (_longer, "file-size"), (_directory, "file-missing")]
)
def test_a_commit_adds_objects_that_are_there(
    in_s3: Lake, moto: MotoS3, spoil: Callable[[MotoS3, str, str], None], rule: str
) -> None:
    table = make(in_s3)
    refused, committed = (Engine.begin(in_s3, name_of(table)) for _ in range(2))
    for engine in (refused, committed):
        files = [engine.file() for _ in range(10)]
        places = [Location.parse(file.path) for file in files]
        for place in places:
            key = "/".join(place.segments)
            moto.client.put_object(Bucket=place.authority, Key=key, Body=b"x" * 1000)
        if engine is committed:
            engine.append(*files)
            continue
        spoil(moto, places[5].authority, "/".join(places[5].segments))
        with pytest.raises(MetadataInvalid) as refusal:
            engine.append(*files)
        assert (refusal.value.rule, refusal.value.path) == (rule, files[5].path)
    assert len(in_s3.catalog().load_table(table.name()).metadata.snapshots) == 1


def test_a_bucket_that_is_gone_is_unavailable(in_s3: Lake, moto: MotoS3) -> None:
    table = make(in_s3)
    place = Location.parse(table.metadata_location)
    _gone(moto, place.authority, "/".join(place.segments))
    with pytest.raises(ObjectMissing):
        in_s3.catalog().load_table(table.name())
    for key in moto.keys(place.authority):
        _gone(moto, place.authority, key)
    moto.client.delete_bucket(Bucket=place.authority)
    with pytest.raises(StorageUnavailable, match="storage-gone"):
        in_s3.catalog().load_table(table.name())
