"""The installed command in processes of its own: init, serve, a token, a request, a clean end."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from catalog.cli.main import app
from tests.support.command_line import CliRunner
from tests.support.host import Host

LAKEWARDEN = Path(sys.executable).with_name("lakewarden")
_PATIENCE = 60.0  # seconds for a start; a loaded machine may need many


def _environment() -> dict[str, str]:
    """Without the settings of a user; any free port will do."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARDEN_")}
    return kept | {"LAKEWARDEN_HTTP__PORT": "0"}


def _run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAKEWARDEN, *arguments],
        cwd=directory,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


def _first_line(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], _PATIENCE)
    return server.stdout.readline() if ready else ""


@contextmanager
def _serving(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running service and its address."""
    with (directory / "stderr").open("w") as errors:
        server = subprocess.Popen(
            [LAKEWARDEN, "serve", *options],
            cwd=directory,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        found = re.search(r"http://\S+", _first_line(server))
        assert found, (directory / "stderr").read_text()
        yield server, found[0]
    finally:
        server.kill()
        server.wait()


@pytest.mark.nightly
def test_a_fresh_catalog_is_served_to_its_administrator_alone(tmp_path: Path) -> None:
    made = _run(tmp_path, "init", "--admin", "ann")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    with _serving(tmp_path) as (server, url):
        config = httpx.get(f"{url}/v1/config", headers={"Authorization": f"Bearer {token}"})
        assert config.status_code == 200 and "endpoints" in config.json()
        assert httpx.get(f"{url}/v1/config").status_code == 401
        server.send_signal(signal.SIGTERM)
        assert server.wait(_PATIENCE) == 0
    said = (tmp_path / "stderr").read_text()
    assert "not for production" in said and token not in said and "Traceback" not in said
    logged = [" ".join(line.split(" ")[1:5]) for line in said.splitlines() if " lakewarden." in line]
    assert logged == [
        "WARNING lakewarden.service The local",
        "INFO lakewarden.service service started",
        "INFO lakewarden.http request request_id=" + logged[2].partition("=")[2],
        "INFO lakewarden.http request request_id=" + logged[3].partition("=")[2],
        "INFO lakewarden.service service stopped",
    ]
    Host(tmp_path).run("audit", "verify")


@pytest.mark.nightly
def test_standard_error_holds_lines_of_json_alone(tmp_path: Path) -> None:
    """The option comes before the settings."""
    Host(tmp_path).init()
    with (tmp_path / "lakewarden.toml").open("a") as settings:
        settings.write('\n[log]\nformat = "text"\n')
    with _serving(tmp_path, "--log-format", "json") as (server, url):
        assert httpx.get(f"{url}/healthz").status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(_PATIENCE) == 0
    records = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    assert [each["message"].partition(":")[0] for each in records] == [
        "The local KMS is the embedded default and not for production",
        "service started",
        "request",
        "service stopped",
    ]


def test_serving_without_a_catalog_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 1 and "lakewarden db upgrade" in result.stderr
