"""Hadoop's own KMS server, from the jars that `make interop` fetches, as the behaviour suite uses it.

It takes long to start, so one runs for the whole process; each test takes keys of its own, and a way to the
server of its own, which is what ends when the test stops its KMS.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from uuid import uuid4

import httpx
import pytest

from catalog.kms.hadoop import HadoopKms
from catalog.settings.kms_options import HadoopKmsOptions
from spark_ext.runtime import find_java
from tests.support.kms_backends import Backend
from tests.support.lossy_proxy import LossyProxy

JARS = Path(sys.prefix) / "hadoop-kms"
USER = "lakewarden"
_ADMIN = {"user.name": "admin"}
_START_S = 120.0
_RELOAD_S = 20.0
#: Longer than options may say, for a machine that is busy.
_PATIENCE_S = 30.0
#: Becomes the command that follows; kills it and removes its directory as soon as nobody holds its input.
_ENDING_WITH_STDIN = 'exec 3<&0; (cat <&3 >/dev/null; kill $$; rm -rf "$0") & exec "$@" </dev/null 3<&-'
_LOGGING = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.SimpleLayout
"""


@dataclass
class HadoopServer:
    """A running server.

    Attributes:
        url: its address.
        directory: where its configuration lies.
        process: the server; it ends with this process, however that ends.
        denied: keys that only the administrator may use.
    """

    url: str
    directory: Path
    process: subprocess.Popen[bytes] | None = None
    denied: set[str] = field(default_factory=set)

    def create(self, name: str) -> None:
        """Make a key."""
        body = {"name": name, "cipher": "AES/CTR/NoPadding", "length": 256}
        httpx.post(f"{self.url}/v1/keys", params=_ADMIN, json=body, timeout=30).raise_for_status()

    def roll(self, name: str) -> None:
        """Give a key a new version."""
        where = f"{self.url}/v1/key/{name}"
        httpx.post(where, params=_ADMIN, json={}, timeout=30).raise_for_status()
        httpx.post(f"{where}/_invalidatecache", params=_ADMIN, timeout=30).raise_for_status()

    def set_denied(self, name: str, denied: bool) -> None:
        """Change who may use a key, and wait until the server has noticed."""
        (self.denied.add if denied else self.denied.discard)(name)
        self.write_acls()
        end = time.monotonic() + _RELOAD_S
        while self._is_denied(name) != denied:
            assert time.monotonic() < end, "the server does not read its access lists again"
            time.sleep(0.2)
            # A change within 0.1 s of the last reading is not noticed until the next one.
            (self.directory / "kms-acls.xml").touch()

    def write_acls(self) -> None:
        """Write the access lists; the server looks at them every second."""
        uses = ("GENERATE_EEK", "DECRYPT_EEK")
        given = {f"default.key.acl.{use}": "*" for use in (*uses, "MANAGEMENT")}
        given |= {f"key.acl.{name}.{use}": "admin" for name in self.denied for use in uses}
        given |= {f"key.acl.{name}.MANAGEMENT": "admin" for name in self.denied}
        _configure(self.directory / "kms-acls.xml", given)

    def _is_denied(self, name: str) -> bool:
        parameters = {"user.name": USER, "eek_op": "generate", "num_keys": "1"}
        answer = httpx.get(f"{self.url}/v1/key/{name}/_eek", params=parameters, timeout=30)
        return answer.status_code != 200


@contextmanager
def hadoop_server(_: Path) -> Iterator[Backend]:
    """Hadoop's own server."""
    if not any(JARS.glob("hadoop-kms-*.jar")):
        pytest.skip("Hadoop's KMS server is not there; `make interop` fetches it where Maven is")
    server = _server()
    lake, pii = (f"{name}{uuid4().hex[:10]}" for name in ("lake", "pii"))
    for name in (lake, pii):
        server.create(name)
    way = LossyProxy(server.url.removesuffix("/kms"))
    try:
        yield Backend(
            _client(way.url),
            lake,
            pii,
            again=lambda: _client(way.url),
            disable=lambda name: server.set_denied(name, True),
            enable=lambda name: server.set_denied(name, False),
            rotate=server.roll,
            version_of=lambda wrapped: wrapped[2 : 2 + wrapped[1]],
            stop=way.close,
        )
    finally:
        way.close()


def _client(url: str) -> HadoopKms:
    options = HadoopKmsOptions(url=f"kms://{url.replace('://', '@')}/kms", user=USER)
    patience = {"connect_timeout_s": _PATIENCE_S, "request_timeout_s": _PATIENCE_S}
    return HadoopKms(options.model_copy(update=patience))


@cache
def _server() -> HadoopServer:
    directory = Path(mkdtemp(prefix="hadoop-kms-"))
    port = _free_port()
    server = HadoopServer(f"http://127.0.0.1:{port}/kms", directory)
    server.write_acls()
    (directory / "log4j.properties").write_text(_LOGGING)
    _configure(directory / "core-site.xml", {})
    _configure(
        directory / "kms-site.xml",
        {
            "hadoop.kms.key.provider.uri": f"jceks://file@{directory}/keys.jceks",
            "hadoop.kms.http.host": "127.0.0.1",
            "hadoop.kms.http.port": str(port),
            "hadoop.kms.authentication.type": "simple",
            "hadoop.kms.authentication.signer.secret.provider": "random",
        },
    )
    server.process = process = _start(directory)
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        assert process.poll() is None, (directory / "log").read_text()[-4000:]
        with suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/v1/keys/names", params=_ADMIN).status_code == 200:
                return server
        time.sleep(0.5)
    raise AssertionError((directory / "log").read_text()[-4000:])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _start(directory: Path) -> subprocess.Popen[bytes]:
    command = [
        str(find_java(os.environ)),
        "-Xmx256m",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        f"-Dkms.config.dir={directory}",
        f"-Dkms.log.dir={directory}",
        "-Dlog4j.configuration=log4j.properties",
        "-cp",
        f"{directory}{os.pathsep}{JARS}/*",
        "org.apache.hadoop.crypto.key.kms.server.KMSWebServer",
    ]
    environ = {**os.environ, "HADOOP_KEYSTORE_PASSWORD": uuid4().hex}
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            ["sh", "-c", _ENDING_WITH_STDIN, str(directory), *command],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )


def _configure(file: Path, values: dict[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items()
    )
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")
