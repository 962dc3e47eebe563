"""The proxies of the examples, before a real service: what they change, hide and let through."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import authority, certificate
from tests.support.environments import ROOT
from tests.support.http_calls import new_table
from tests.support.kms_endpoint import endpoint_policies
from tests.support.lake import ALICE, standard_policies
from tests.support.service import ENGINE, Service, open_service

PROXIES = ROOT / "examples" / "deployment" / "proxies"
PATIENCE_S = 30.0
#: Encoded, so that a proxy that decodes and encodes again is found out.
ODD = "n%20%C3%BC%3B%2B"

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service as the page on deployment sets one up for a proxy; names without credentials are believed."""
    with open_service(
        tmp_path_factory.mktemp("behind"),
        policies=[*standard_policies(), *endpoint_policies()],
        KMS_ENDPOINT__ENABLED="true",
        KMS_ENDPOINT__PSEUDO="true",
        HTTP__MAX_CONNECTIONS_PER_ADDRESS="1000",
    ) as service:
        yield service


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, behind: Service
) -> Iterator[Service]:
    """The service as clients reach it through a proxy."""
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"there is no {request.param} on the PATH")
    root = tmp_path_factory.mktemp(request.param)
    pem = certificate(root)
    authority(pem)
    start = {"nginx": nginx, "caddy": caddy}[request.param]
    with start(program, root, pem, behind.url.removeprefix("http://")) as port:
        yield Service(f"https://127.0.0.1:{port}", behind.lake, {"ca": str(authority(pem))})


@contextmanager
def nginx(program: str, root: Path, pem: Path, service: str) -> Iterator[int]:
    port, text = free_port(), (PROXIES / "nginx.conf").read_text()
    text = text.replace("127.0.0.1:8181", service).replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
    text = re.sub(r"/etc/ssl/lakewarden/\w+\.pem", str(pem), text)
    scratch = "".join(
        f"{name}_temp_path {root}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = root / "nginx.conf"
    config.write_text(
        f"daemon off; pid {root}/pid; error_log {root}/error.log; events {{}}\n"
        f"http {{ access_log off; {scratch}\n{text}\n}}\n"
    )
    with running([program, "-p", str(root), "-e", f"{root}/error.log", "-c", str(config)], port):
        yield port


@contextmanager
def caddy(program: str, root: Path, pem: Path, service: str) -> Iterator[int]:
    port, text = free_port(), (PROXIES / "Caddyfile").read_text()
    # The certificate is the test's, and no port for redirects is opened.
    site = f"https://127.0.0.1:{port}, https://localhost:{port} {{\n\ttls {pem} {pem}"
    text = text.replace("lake.example {", site).replace("127.0.0.1:8181", service)
    config = root / "Caddyfile"
    config.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n" + text)
    with running([program, "run", "--adapter", "caddyfile", "--config", str(config)], port, HOME=str(root)):
        yield port


@contextmanager
def running(command: list[str], port: int, **environ: str) -> Iterator[None]:
    """Run a proxy until it accepts connections, and end it afterwards."""
    process = subprocess.Popen(command, env={"PATH": "/usr/bin:/bin", **environ}, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "the proxy does not start"
                assert time.monotonic() < until, "the proxy does not listen"
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def client(proxied: Service, user: str | None = ALICE, engine: str | None = None) -> httpx.Client:
    headers = {} if user is None else {"Authorization": f"Bearer {proxied.token(user)}"}
    trusted = ssl.create_default_context(cafile=proxied.client_properties["ca"])
    auth = None if engine is None else proxied.engine_auth(engine)
    return httpx.Client(base_url=proxied.url, headers=headers, auth=auth, timeout=60, verify=trusted)


def test_signed_requests_and_odd_names_pass_unchanged(proxied: Service) -> None:
    name = proxied.url.rpartition(":")[2]
    with client(proxied) as user, client(proxied, ALICE, ENGINE) as engine:
        decoded = f"n ü;+{name}"
        assert user.post(f"{proxied.prefix}/namespaces", json={"namespace": [decoded]}).status_code == 200
        odd = f"{ODD}{name}"
        assert new_table(user, proxied.prefix, odd, "t").status_code == 200
        answer = engine.post(f"/engine/v1/tables/{odd}/t/plan", json={})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/metrics", "/%6detrics", "/x/../metrics", "//metrics", "/metrics/"])
def test_metrics_are_not_shown(proxied: Service, path: str) -> None:
    with client(proxied) as user:
        request = user.build_request("GET", "/")
        request.url = request.url.copy_with(raw_path=path.encode())
        answer = user.send(request)
    assert answer.status_code in (400, 404) and "lakewarden_" not in answer.text


def test_a_body_beyond_the_limit_is_refused(proxied: Service) -> None:
    with client(proxied) as user:
        answer = user.post(f"{proxied.prefix}/namespaces", content=b" " * (33 << 20))
    assert answer.status_code == 413


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_request_through_the_proxy_is_none_of_this_host(
    proxied: Service, behind: Service, host: str
) -> None:
    """Attack: a name without a credential, with the Host of a request on the catalog's own host."""
    names = "/kms/v1/keys/names?user.name=alice"
    assert httpx.get(f"{behind.url}{names}", headers={"Host": host}).status_code == 200
    with client(proxied, None) as stranger:
        port = proxied.url.rpartition(":")[2]
        for sent in (host, f"{host}:{port}"):
            answer = stranger.get(names, headers={"Host": sent})
            assert "[" not in answer.text[:1] and answer.status_code != 200, answer.text
