"""The wheel installs and works outside of a checkout, with each extra alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.environments import (
    PACKAGES,
    ROOT,
    Environment,
    build_wheel,
    environment,
    requirements,
)
from tests.support.lake import ALICE
from tests.support.service import open_service

pytestmark = pytest.mark.slow

SERVICE = {"alembic", "fastapi", "h11", "pydantic-settings", "sqlalchemy", "sqlglot", "starlette", "uvicorn"}
SPARK = {"pyspark", "py4j"}

CLIENT_SCRIPT = """
import sys, lakewarden
import pyarrow as pa

table = lakewarden.connect(sys.argv[1], sys.stdin.readline().strip()).table("db.t")
table.append(pa.table({"id": [1, 2], "item": ["tea", "jam"]}))
print(table.scan("id > 1", columns=["item"]).to_arrow().to_pylist())
try:
    lakewarden.connect(sys.argv[1], "no token").table("db.t").scan().to_arrow()
except lakewarden.NotAuthenticated as error:
    print(type(error).__name__)
"""

#: Imports every module of the packages but those that the other extras are for.
IMPORT_SCRIPT = """
import importlib, pkgutil, sys

others = ("catalog.kms.aws", "catalog.kms.vault", "catalog.db.postgres", "catalog.policy_cases.pytest_plugin",
          "catalog.db.migrations", "catalog.identity.access_tokens", "catalog.identity.key_sets",
          "catalog.identity.provider_keys")
for package in map(importlib.import_module, sys.argv[1:]):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.startswith(others):
            importlib.import_module(module.name)
"""

#: Imports what `lakewarden serve` runs, as if the modules in the arguments were not installed.
SERVE_SCRIPT = """
import sys

sys.modules.update(dict.fromkeys(sys.argv[1:]))
import catalog.cli.serve, catalog.http.app, lakewarden
"""
#: The modules that other extras than `service` install.
OF_OTHER_EXTRAS = ("boto3", "gssapi", "hvac", "joserfc", "opentelemetry.sdk", "psycopg", "pyspark")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def _installed(request: pytest.FixtureRequest, *extras: str) -> Environment:
    root = request.getfixturevalue("tmp_path_factory").mktemp("environment")
    return environment(root, request.getfixturevalue("wheel"), extras)


@pytest.fixture(scope="module")
def core(request: pytest.FixtureRequest) -> Environment:
    return _installed(request)


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Environment:
    return _installed(request, "client")


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest) -> Environment:
    return _installed(request, "service")


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest) -> Environment:
    return _installed(request, "spark")


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    packaged = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packaged == {str(file.relative_to(ROOT)) for file in _sources()}


def _sources() -> Iterator[Path]:
    for name in PACKAGES:
        for file in (ROOT / name).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file


def test_the_client_installs_neither_spark_nor_the_service(wheel: Path) -> None:
    found = set(requirements(wheel, ["client"]))
    assert {"pyarrow", "pyiceberg", "cryptography"} <= found
    assert not found & (SERVICE | SPARK)


@pytest.mark.nightly
def test_spark_installs_nothing_of_the_service(wheel: Path) -> None:
    found = set(requirements(wheel, ["spark"]))
    assert found >= SPARK
    assert not found & SERVICE


@pytest.mark.nightly
def test_the_service_installs_no_spark(wheel: Path) -> None:
    found = set(requirements(wheel, ["service"]))
    assert found >= SERVICE
    assert not found & SPARK


@pytest.mark.nightly
def test_the_core_completes_commands(core: Environment, tmp_path: Path) -> None:
    words = {"_LAKEWARDEN_COMPLETE": "complete_bash", "COMP_WORDS": "lakewarden table un", "COMP_CWORD": "2"}
    assert _output(core.command(cwd=tmp_path, environ=words)) == "unset"


@pytest.mark.nightly
def test_the_core_answers_help_and_version(core: Environment, tmp_path: Path) -> None:
    assert _output(core.command("--version", cwd=tmp_path)) == f"lakewarden {version('lakewarden')}"
    assert "NAMESPACE.TABLE" in _output(core.command("table", "show", "--help", cwd=tmp_path))
    shown = core.run("-c", "import lakewarden; print(lakewarden.__version__)", cwd=tmp_path)
    assert _output(shown) == version("lakewarden")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "extra"), [("connect", "client"), ("configure", "spark"), ("local_session", "service,spark")]
)
def test_a_name_whose_extra_is_missing_says_so(
    core: Environment, tmp_path: Path, name: str, extra: str
) -> None:
    done = core.run("-c", f"from lakewarden import {name}", cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: lakewarden.{name} needs the module ")
    assert last.endswith(f"Run: pip install 'lakewarden[{extra}]'")


@pytest.mark.nightly
def test_a_command_whose_extra_is_missing_says_so(core: Environment, tmp_path: Path) -> None:
    done = core.command("db", "check", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("This command needs the module ")
    assert done.stderr.endswith("Run: pip install 'lakewarden[service]'\n")


@pytest.mark.nightly
def test_the_client_appends_and_reads(client: Environment, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "item", StringType()))
    properties = {"encryption.mechanism": "envelope"}
    lake = tmp_path / "lake"
    lake.mkdir()
    with open_service(lake.resolve()) as running:
        running.lake.catalog().create_namespace("db")
        running.lake.catalog().create_table("db.t", schema, properties=properties)
        script = ("-c", CLIENT_SCRIPT, running.url)
        done = client.run(*script, cwd=tmp_path, stdin=f"{running.token(ALICE)}\n")
    assert _output(done).splitlines() == ["[{'item': 'jam'}]", "NotAuthenticated"]


@pytest.mark.nightly
def test_the_service_has_all_that_its_modules_import(service: Environment, tmp_path: Path) -> None:
    _output(service.run("-c", IMPORT_SCRIPT, "policy", "catalog", cwd=tmp_path))


def test_the_service_is_imported_without_the_other_extras() -> None:
    command = [sys.executable, "-c", SERVE_SCRIPT, *OF_OTHER_EXTRAS]
    _output(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False))


@pytest.mark.nightly
def test_the_service_makes_a_catalog(service: Environment, tmp_path: Path) -> None:
    assert _output(service.command("init", "--admin", "ann", cwd=tmp_path)).startswith("lw_")
    service.command("db", "check", cwd=tmp_path).check_returncode()


@pytest.mark.nightly
@pytest.mark.parametrize("command", [("spark", "jar"), ("demo", "--rows", "1000")])
def test_a_command_of_spark_names_its_extra(
    service: Environment, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = service.command(*command, cwd=tmp_path)
    assert done.returncode == 1
    assert "pip install 'lakewarden[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_spark_is_configured_without_the_service(spark: Environment, tmp_path: Path) -> None:
    script = """
import lakewarden
from pathlib import Path
from pyspark.sql import SparkSession
from spark_ext.jar import SOURCES

assert list(SOURCES.rglob("*.scala"))
print(lakewarden.configure.__name__)
"""
    assert _output(spark.run("-c", script, cwd=tmp_path)) == "configure"


@pytest.mark.nightly
@pytest.mark.parametrize("name", PACKAGES[:3])
def test_a_file_of_the_user_that_hides_a_package_is_named(
    core: Environment, tmp_path: Path, name: str
) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text("raise SystemExit('the file was run')")
    done = core.run("-c", "import lakewarden", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: Lakewarden needs its package {name!r}, but Python finds {file} under this name. "
        "Rename that file, or start Python in another directory."
    )


@pytest.mark.nightly
def test_a_script_with_the_name_of_a_package_is_told_so(core: Environment, tmp_path: Path) -> None:
    file = tmp_path / "catalog.py"
    file.write_text("import lakewarden")
    done = core.run(str(file), cwd=Path("/"))
    assert f"Python finds {file} under this name" in done.stderr


def _output(done: subprocess.CompletedProcess[Any]) -> str:
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()
