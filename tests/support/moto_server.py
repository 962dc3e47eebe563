"""An S3 server of moto on a free port of this machine, for tests that need a real endpoint."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto.server import ThreadedMotoServer
from pydantic import SecretStr

from catalog.storage.s3 import S3Options

ACCESS_KEY_ID = "testing"
SECRET_ACCESS_KEY = "testing-secret"
REGION = "us-east-1"


@dataclass(frozen=True)
class MotoS3:
    """A running server.

    Attributes:
        endpoint: its URL.
        bucket: a bucket that exists.
        options: how `S3Storage` reaches it.
        client: a boto3 client, for looking at and planting objects behind the catalog's back.
    """

    endpoint: str
    bucket: str
    options: S3Options
    client: Any

    def new_bucket(self) -> str:
        """Makes a fresh, empty bucket and returns its name."""
        name = f"lakewarden-{uuid.uuid4().hex}"
        self.client.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str) -> list[str]:
        """All keys of a bucket, markers of directories included."""
        return [found["Key"] for found in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])]

    def pyiceberg_properties(self) -> dict[str, str]:
        """The FileIO properties with which a standard pyiceberg reaches the server."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": ACCESS_KEY_ID,
            "s3.secret-access-key": SECRET_ACCESS_KEY,
        }


@contextmanager
def moto_s3() -> Iterator[MotoS3]:
    """Starts a server with one bucket, and stops it at the end; meant for a fixture of session scope."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )
        client.create_bucket(Bucket="warehouse")
        yield MotoS3(endpoint, "warehouse", _options(endpoint), client)
    finally:
        server.stop()


def _options(endpoint: str) -> S3Options:
    return S3Options(
        endpoint=endpoint,
        region=REGION,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=SecretStr(SECRET_ACCESS_KEY),
        connect_timeout=5,
        request_timeout=10,
    )
