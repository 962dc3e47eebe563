"""`serve` as a process: it says where it listens, and stops when it is asked to, with its work done."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from catalog.http.server import listen, serve, url_of
from catalog.settings.sections import HttpSettings
from policy.errors import RequestInvalid
from tests.support.lake import open_lake

SCRIPT = """
import sys, pathlib
from catalog.http.server import serve
from policy.principal import Principal
from tests.support.lake import open_lake
with open_lake(pathlib.Path(sys.argv[1]), HTTP__PORT=0) as lake:
    print(lake.services.tokens.issue(Principal("alice"), "user", None).text, flush=True)
    for _ in range(2):
        serve(lake.settings, lake.services)
print("closed", flush=True)
"""


def test_signals_end_the_service_with_its_work_done(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "."},
    )
    try:
        assert process.stdout is not None
        token = process.stdout.readline().strip()
        for asked in (signal.SIGTERM, signal.SIGINT):
            url = process.stdout.readline().strip().removeprefix("Lakewarden serves 'lakewarden' at ")
            answer = httpx.get(f"{url}/v1/config", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200, asked
            process.send_signal(asked)
        rest, log = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, rest.strip()) == (0, "closed"), log
    assert token not in log and "Traceback" not in log


def test_address_in_use_is_one_error() -> None:
    with listen(HttpSettings(host="127.0.0.1", port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(RequestInvalid, match=f"port {port}"):
            listen(HttpSettings(host="127.0.0.1", port=port))


def test_unknown_host_is_one_error() -> None:
    with pytest.raises(RequestInvalid, match="cannot listen"):
        listen(HttpSettings(host="192.0.2.1", port=0))


def test_listener_names_its_protocol() -> None:
    """Without it, each answer would wait for the client's delayed acknowledgement."""
    with listen(HttpSettings(host="127.0.0.1", port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        assert url_of(listener).startswith("http://127.0.0.1:")


def test_a_process_that_can_open_too_few_files_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        listen(HttpSettings(host="127.0.0.1", port=0)) as taken,
        open_lake(tmp_path, HTTP__HOST="127.0.0.1", HTTP__PORT=taken.getsockname()[1]) as lake,
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
        with pytest.raises(RequestInvalid, match="open-files"):
            serve(lake.settings, lake.services)
