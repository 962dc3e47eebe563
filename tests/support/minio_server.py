"""A MinIO server on a free port of this machine: a real S3 server, whose STS enforces session policies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import httpx
from pydantic import SecretStr

from catalog.storage.s3 import S3Options
from tests.support.moto_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, MotoS3
from tests.support.service import TLS
from tests.support.vault_server import free_port

_TRIES = 200


def minio_program() -> str | None:
    """The program: of `make interop`, or on the PATH."""
    built = Path(sys.prefix) / "minio" / "minio"
    return str(built) if built.is_file() else shutil.which("minio")


@contextmanager
def minio(program: str, directory: Path) -> Iterator[MotoS3]:
    """Start a server that keeps its objects in a directory; it is described as moto's is."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    users = {"MINIO_ROOT_USER": ACCESS_KEY_ID, "MINIO_ROOT_PASSWORD": SECRET_ACCESS_KEY}
    environment = {**users, "HOME": str(directory)}
    address = endpoint.removeprefix("http://")
    command = [program, "server", "--quiet", "--address", address, str(directory / "data")]
    with (directory / "minio.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(server, endpoint)
            options = S3Options(
                endpoint=endpoint,
                region=REGION,
                access_key_id=ACCESS_KEY_ID,
                secret_access_key=SecretStr(SECRET_ACCESS_KEY),
            )
            client = boto3.client(
                "s3",
                endpoint_url=endpoint,
                region_name=REGION,
                aws_access_key_id=ACCESS_KEY_ID,
                aws_secret_access_key=SECRET_ACCESS_KEY,
            )
            client.create_bucket(Bucket="warehouse")
            yield MotoS3(endpoint, "warehouse", options, client)
        finally:
            server.terminate()
            server.wait(20)


def _wait(server: subprocess.Popen[bytes], endpoint: str) -> None:
    transport = httpx.HTTPTransport(retries=0, verify=TLS)
    with httpx.Client(transport=transport, timeout=5) as client:
        for _ in range(_TRIES):
            assert server.poll() is None, "MinIO ended"
            try:
                if client.get(f"{endpoint}/minio/health/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise AssertionError("MinIO does not answer")
