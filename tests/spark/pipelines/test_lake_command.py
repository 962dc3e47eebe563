"""`lakewarden lake`, as users run it: in a process of its own, with a Spark of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakewarden
from catalog.crypto.private_files import create_private
from spark_ext.embedded import EmbeddedCatalog
from tests.support.spark import FRUGAL


def lake(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in an empty directory."""
    options = [f"--conf={name}={value}" for name, value in FRUGAL.items()]
    return subprocess.run(
        [sys.executable, "-c", "import lakewarden; lakewarden.main()", *arguments, *options],
        capture_output=True,
        text=True,
        cwd=directory,
        check=False,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A catalog with a plaintext table of three rows."""
    with EmbeddedCatalog(tmp_path / "lake") as catalog:
        standard = RestCatalog("lake", uri=catalog.uri, token=catalog.token)
        standard.create_namespace("sales")
        standard.create_table("sales.orders", Schema(NestedField(1, "id", LongType(), required=False)))
        table = lakewarden.connect(catalog.uri, catalog.token).table("sales.orders")
        table.append(pa.table({"id": [1, 2, 3]}))
    return tmp_path / "lake"


@pytest.mark.nightly
def test_a_command_works_on_the_catalog_of_this_host_and_writes_its_reports(directory: Path) -> None:
    config = ("--config", str(directory / "lakewarden.toml"))
    page, log = directory / "r.html", directory / "r.sarif"
    reports = ("--report", str(page), "--report", str(log))
    ran = lake(directory, *config, "lake", "migrate", "sales.*", *reports, "--json")
    assert ran.returncode == 0, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    assert report["state"] == "complete" and report["items"]["done"] == 1
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(log.read_text())["version"] == "2.1.0"


def test_a_report_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    for name in ("absent/r.html", "r.pdf"):
        ran = lake(tmp_path, "lake", "audit", "--report", name)
        assert ran.returncode != 0 and name in ran.stderr and "Traceback" not in ran.stderr
        assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_a_command_works_on_a_service_and_leaves_items_with_exit_code_3(directory: Path) -> None:
    with EmbeddedCatalog(directory) as catalog:
        token = directory / "token"
        create_private(token, catalog.token.encode())
        remote = ("--url", catalog.uri, "--token-file", str(token))
        planned = lake(directory, *remote, "lake", "migrate", "sales.*", "--dry-run", "--json")
        closed = lake(directory, *remote, "lake", "migrate", "--window", "00:00-00:00 Nowhere")
    assert planned.returncode == 0, planned.stderr
    assert [each["table"] for each in json.loads(planned.stdout)["planned"]] == ["sales.orders"]
    assert closed.returncode == 1 and "time window" in closed.stderr
    assert catalog.token not in planned.stdout + planned.stderr
