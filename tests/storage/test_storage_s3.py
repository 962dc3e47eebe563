"""Options and faults of the object store."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from pydantic import SecretStr, ValidationError

from catalog.storage.errors import ObjectMissing
from catalog.storage.s3 import S3Options, S3Storage
from policy.errors import LakewardenError, LocationNotAllowed, StorageUnavailable
from policy.location.location import Location
from tests.support.moto_server import MotoS3, moto_s3

SECRET = "do-not-show-me"
OBJECT = Location.parse("s3://warehouse/t/f.avro")


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoS3]:
    with moto_s3() as server:
        yield server


def options_for(port: int) -> S3Options:
    return S3Options(
        endpoint=f"http://127.0.0.1:{port}",
        region="us-east-1",
        access_key_id="id",
        secret_access_key=SecretStr(SECRET),
        session_token=SecretStr(SECRET),
        connect_timeout=0.5,
        request_timeout=0.5,
        max_attempts=1,
    )


@contextmanager
def answering(status: int, code: str) -> Iterator[S3Storage]:
    """A store that answers every request with one error of S3."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        def log_message(self, *_: object) -> None:
            """Keeps the test's output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield S3Storage(options_for(server.server_port))
    finally:
        server.shutdown()
        server.server_close()


def every_use(storage: S3Storage) -> list[LakewardenError]:
    """The fault of each operation; one that does not fail, or not in a typed way, fails the test."""
    faults = []
    for use in (
        lambda: storage.read(OBJECT, limit=10),
        lambda: storage.open_input(OBJECT),
        lambda: storage.create(OBJECT, b"x"),
        lambda: storage.exists(OBJECT),
        lambda: storage.size(OBJECT),
        lambda: storage.delete(OBJECT),
        lambda: list(storage.list_prefix(OBJECT)),
        lambda: storage.delete_prefix(OBJECT),
    ):
        with pytest.raises(LakewardenError) as fault:
            use()
        faults.append(fault.value)
    return faults


@pytest.mark.parametrize(
    ("status", "code", "rule"),
    [
        (403, "AccessDenied", "storage-access"),
        (403, "InvalidAccessKeyId", "storage-access"),
        (500, "InternalError", "storage-fault"),
        (503, "SlowDown", "storage-down"),
        (429, "TooManyRequests", "storage-down"),
        (504, "GatewayTimeout", "storage-down"),
    ],
)
def test_faults_of_the_store_are_typed(status: int, code: str, rule: str) -> None:
    with answering(status, code) as storage:
        for fault in every_use(storage):
            assert isinstance(fault, StorageUnavailable)
            assert fault.rule == rule
            assert fault.hint
            assert fault.path == OBJECT.canonical
            assert SECRET not in str(fault)


def test_a_store_that_is_down_is_typed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        for fault in every_use(S3Storage(options_for(taken.getsockname()[1]))):
            assert isinstance(fault, StorageUnavailable)
            assert fault.rule == "storage-down"


def test_a_store_that_never_answers_ends_in_a_typed_error() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(StorageUnavailable) as fault:
            S3Storage(options_for(silent.getsockname()[1])).read(OBJECT, limit=10)
    assert fault.value.rule == "storage-down"


def test_a_bucket_that_does_not_exist_is_typed(moto: MotoS3) -> None:
    storage = S3Storage(moto.options)
    where = Location.parse("s3://no-such-bucket/f")
    with pytest.raises(ObjectMissing):
        storage.read(where, limit=10)
    with pytest.raises(StorageUnavailable):
        storage.create(where, b"x")
    assert list(storage.list_prefix(where)) == []


def test_a_whole_bucket_is_no_object_and_is_never_emptied(moto: MotoS3) -> None:
    storage = S3Storage(moto.options)
    bucket = moto.new_bucket()
    moto.client.put_object(Bucket=bucket, Key="kept", Body=b"x")
    where = Location.parse(f"s3://{bucket}")
    for use in (
        lambda: storage.read(where, limit=10),
        lambda: storage.create(where, b"x"),
        lambda: storage.delete(where),
        lambda: storage.delete_prefix(where),
    ):
        with pytest.raises(LocationNotAllowed) as refusal:
            use()
        assert refusal.value.rule == "object-name"
    assert moto.keys(bucket) == ["kept"]
    assert [found.location for found in storage.list_prefix(where)] == [where.child("kept")]


def test_an_object_that_grows_while_it_is_read_stays_within_the_limit(moto: MotoS3) -> None:
    """The size is taken once, and only so many bytes are asked for."""
    storage = S3Storage(moto.options)
    where = Location.parse(f"s3://{moto.bucket}/grows")
    moto.client.put_object(Bucket=moto.bucket, Key="grows", Body=b"12345")
    stream = storage.open_input(where)
    moto.client.put_object(Bucket=moto.bucket, Key="grows", Body=b"1234567890")
    assert stream.read() == b"12345"


def test_keys_with_dot_segments_are_removed_without_touching_others(moto: MotoS3) -> None:
    storage = S3Storage(moto.options)
    bucket = moto.new_bucket()
    for key in ("t/../outside", "t/a//b", "t/./x", "t/\x01/../../outside", "outside", "u/x"):
        moto.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    with suppress(StorageUnavailable):  # a control character and a dot segment: no safe request names that
        storage.delete_prefix(Location.parse(f"s3://{bucket}/t"))
    assert {"outside", "u/x"} <= set(moto.keys(bucket))
    moto.client.delete_object(Bucket=bucket, Key="t/\x01/../../outside")
    storage.delete_prefix(Location.parse(f"s3://{bucket}/t"))
    assert moto.keys(bucket) == ["outside", "u/x"]


def test_nothing_is_contacted_before_the_first_use() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        S3Storage(options_for(listener.getsockname()[1]))
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_options_mask_their_secrets() -> None:
    options = options_for(1)
    for text in (
        repr(options),
        str(options),
        f"{options}",
        options.model_dump_json(),
        repr(S3Storage(options)),
    ):
        assert SECRET not in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"access_key_id": "id"},
        {"secret_access_key": SECRET},
        {"session_token": SECRET},
        {"connect_timeout": 0},
        {"request_timeout": -1},
        {"max_attempts": 0},
        {"acces_key_id": "id"},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        S3Options(**wrong)
    with pytest.raises(ValidationError):
        S3Options().region = "elsewhere"  # type: ignore[misc]
