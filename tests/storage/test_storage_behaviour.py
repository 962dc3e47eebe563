"""What every storage does alike, run over the local file system, over S3, and through the router."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from catalog.storage.base import Storage, StorageRouter
from catalog.storage.errors import ObjectExists, ObjectMissing, ObjectTooLarge
from catalog.storage.local import LocalStorage
from catalog.storage.s3 import S3Storage
from policy.errors import LocationInvalid, LocationNotAllowed, MetadataInvalid
from policy.location.location import Location
from tests.support.moto_server import MotoS3, moto_s3

ODD_NAMES = [
    "a%20b",
    "a%2Fb",
    "a%252Fb",
    "ts=2020%2F01%2F02",
    "100%25",
    "sp ace",
    "pl+us",
    "k=v",
    "com,ma",
    "semi;colon",
    "am&per<sand>",
    "it's",
    'quo"te',
    "st*r",
    "[br]{ace}",
    "~tilde",
    "naïve",
    "e\u0301",
    "日本",
    "😀",
]


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoS3]:
    with moto_s3() as server:
        yield server


class Place:
    """A storage, a directory of its own in it, and a way to plant an object by other means."""

    def __init__(self, storage: Storage, root: Location, plant: Callable[[str, bytes], None]) -> None:
        self.storage = storage
        self.root = root
        self.plant = plant

    def at(self, path: str) -> Location:
        return Location.parse(f"{self.root.canonical}/{path}")

    def listed(self, path: str = "") -> set[str]:
        top = self.at(path) if path else self.root
        return {found.location.canonical for found in self.storage.list_prefix(top)}


@pytest.fixture(params=["local", "s3", "router-local", "router-s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    directory = uuid.uuid4().hex
    if request.param.endswith("local"):
        storage: Storage = LocalStorage()
        root = Location.parse(f"file://{tmp_path}/{directory}")

        def plant(path: str, data: bytes) -> None:
            target = tmp_path / directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    else:
        moto: MotoS3 = request.getfixturevalue("moto")
        storage = S3Storage(moto.options)
        root = Location.parse(f"s3://{moto.bucket}/{directory}")

        def plant(path: str, data: bytes) -> None:
            moto.client.put_object(Bucket=moto.bucket, Key=f"{directory}/{path}", Body=data)

    if request.param.startswith("router"):
        storage = StorageRouter({root.scheme: storage})
    return Place(storage, root, plant)


def test_create_then_read(place: Place) -> None:
    place.storage.create(place.at("metadata/new/0.json"), b"content")
    assert place.storage.read(place.at("metadata/new/0.json"), limit=7) == b"content"
    assert place.storage.size(place.at("metadata/new/0.json")) == 7
    assert place.storage.exists(place.at("metadata/new/0.json"))


def test_empty_object(place: Place) -> None:
    place.storage.create(place.at("empty"), b"")
    assert place.storage.read(place.at("empty"), limit=0) == b""
    assert place.storage.size(place.at("empty")) == 0


def test_object_over_several_chunks(place: Place) -> None:
    data = bytes(range(256)) * (3 << 12) + b"tail"
    place.storage.create(place.at("big"), data)
    assert place.storage.read(place.at("big"), limit=len(data)) == data


def test_read_refuses_more_than_the_limit(place: Place) -> None:
    place.plant("big.avro", b"x" * 1001)
    with pytest.raises(ObjectTooLarge) as refusal:
        place.storage.read(place.at("big.avro"), limit=1000)
    assert isinstance(refusal.value, MetadataInvalid)
    assert refusal.value.rule == "object-size"
    assert refusal.value.path == place.at("big.avro").canonical


def test_missing_object_is_typed(place: Place) -> None:
    place.plant("there/x", b"x")
    for path in ("none", "there/none", "none/none/none"):
        for use in (
            lambda where: place.storage.read(where, limit=10),
            place.storage.open_input,
            place.storage.size,
        ):
            with pytest.raises(ObjectMissing) as fault:
                use(place.at(path))
            assert fault.value.rule == "object-missing"
            assert fault.value.hint
            assert fault.value.path == place.at(path).canonical
        assert not place.storage.exists(place.at(path))


def test_a_directory_is_no_object(place: Place) -> None:
    place.plant("directory/x", b"x")
    assert not place.storage.exists(place.at("directory"))
    with pytest.raises((LocationNotAllowed, ObjectMissing)):
        place.storage.read(place.at("directory"), limit=100)


def test_existing_object_is_never_overwritten(place: Place) -> None:
    place.plant("metadata/1.json", b"first")
    with pytest.raises(ObjectExists) as refusal:
        place.storage.create(place.at("metadata/1.json"), b"second")
    assert refusal.value.rule == "exclusive-create"
    with pytest.raises(ObjectExists):
        place.storage.open_output(place.at("metadata/1.json"))
    assert place.storage.read(place.at("metadata/1.json"), limit=99) == b"first"


def test_streams_write_and_read_in_pieces(place: Place) -> None:
    with place.storage.open_output(place.at("data/f.parquet")) as out:
        assert out.write(b"PAR1") == 4
        assert out.write(b"0123456789") == 10
        assert out.tell() == 14
    with place.storage.open_input(place.at("data/f.parquet")) as stream:
        assert stream.read(4) == b"PAR1"
        assert stream.seek(-4, 2) == 10
        assert stream.read(99) == b"6789"
        assert stream.tell() == 14


def test_a_failed_write_block_leaves_no_object(place: Place) -> None:
    def half() -> None:
        with place.storage.open_output(place.at("data/half.parquet")) as out:
            out.write(b"half")
            raise KeyError("the writer failed")

    with pytest.raises(KeyError):
        half()
    assert not place.storage.exists(place.at("data/half.parquet"))


def test_a_stream_dropped_unclosed_leaves_no_object(place: Place) -> None:
    out = place.storage.open_output(place.at("data/dropped.parquet"))
    out.write(b"half")
    del out
    assert not place.storage.exists(place.at("data/dropped.parquet"))


def test_delete_is_idempotent(place: Place) -> None:
    place.plant("d/x", b"x")
    for _ in range(2):
        place.storage.delete(place.at("d/x"))
        assert not place.storage.exists(place.at("d/x"))
    place.storage.delete(place.at("never/was"))


@pytest.mark.nightly
@pytest.mark.rows_by_day(16)
@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_bytes(place: Place, name: str) -> None:
    """What standard tools call `name` is what we call so, and the other way round; nothing is decoded."""
    place.plant(f"{name}/in", b"planted " + name.encode())
    assert place.storage.read(place.at(f"{name}/in"), limit=999) == b"planted " + name.encode()
    place.storage.create(place.at(f"d/{name}"), name.encode())
    assert place.storage.read(place.at(f"d/{name}"), limit=999) == name.encode()
    assert place.listed("d") == {place.at(f"d/{name}").canonical}
    place.storage.delete(place.at(f"d/{name}"))
    assert place.listed("d") == set()


@pytest.mark.nightly
def test_an_encoded_name_is_not_its_decoded_one(place: Place) -> None:
    for name in ("a%20b", "a b", "a+b", "x%2Fy", "x/y", "n\u0303", "ñ"):
        place.storage.create(place.at(name), name.encode())
    for name in ("a%20b", "a b", "a+b", "x%2Fy", "x/y", "n\u0303", "ñ"):
        assert place.storage.read(place.at(name), limit=99) == name.encode()


def test_list_prefix_is_by_whole_segments(place: Place) -> None:
    for path in ("t1/a", "t1/deep/er/b", "t10/c", "t1.bak"):
        place.plant(path, path.encode())
    assert place.listed("t1") == {place.at("t1/a").canonical, place.at("t1/deep/er/b").canonical}
    assert place.listed("none") == set()


def test_list_prefix_tells_size_and_time(place: Place) -> None:
    place.plant("t/a", b"12345")
    (found,) = place.storage.list_prefix(place.at("t"))
    assert found.size == 5
    assert abs(found.modified - datetime.now(UTC)) < timedelta(hours=1)


def test_list_prefix_refuses_a_name_no_reader_may_be_handed(place: Place) -> None:
    place.plant("t/a%2F..%2Fb", b"x")
    with pytest.raises(LocationInvalid):
        place.listed("t")


@pytest.mark.nightly
def test_delete_prefix_removes_all_and_only_what_is_below(place: Place) -> None:
    for path in (
        "t/a",
        "t/b/c/d",
        "t/x%2F..%2Fy",
        "t/ctl\x01",
        *(f"t/{n}" for n in ODD_NAMES),
        "t1/keep",
        "t.keep",
    ):
        place.plant(path, b"x")
    place.storage.delete_prefix(place.at("t"))
    assert place.listed() == {place.at("t1/keep").canonical, place.at("t.keep").canonical}
    place.storage.delete_prefix(place.at("t"))
    place.storage.delete_prefix(place.at("never/was"))


def test_delete_prefix_refuses_an_object(place: Place) -> None:
    place.plant("t/object", b"x")
    with pytest.raises(LocationNotAllowed):
        place.storage.delete_prefix(place.at("t/object"))
    assert place.storage.exists(place.at("t/object"))


@pytest.mark.nightly
def test_many_threads_read_and_write_at_once(place: Place) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                where = place.at(f"deep/{turn}/dir/{number}")
                place.storage.create(where, str(number).encode())
                assert place.storage.read(where, limit=9) == str(number).encode()
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(place.listed("deep")) == 40


def test_router_refuses_a_scheme_without_storage(tmp_path: Path) -> None:
    router = StorageRouter({"file": LocalStorage()})
    with pytest.raises(LocationNotAllowed) as refusal:
        router.read(Location.parse("s3://bucket/key"), limit=1)
    assert refusal.value.rule == "storage-scheme"
    assert refusal.value.hint is not None and "file" in refusal.value.hint
