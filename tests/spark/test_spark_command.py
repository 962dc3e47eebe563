"""`lakewarden spark jar`: the jar for a cluster."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from spark_ext.cli.main import app
from spark_ext.jar import spark_jar
from tests.support.command_line import CliRunner, Result


def _run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["spark", "jar", *arguments])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def test_without_an_output_it_says_where_the_jar_is() -> None:
    assert _run().stdout.strip() == str(spark_jar())


def test_the_jar_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    wanted = tmp_path / "lakewarden.jar"
    assert _run("--output", str(wanted)).stdout.strip() == str(wanted)
    with zipfile.ZipFile(wanted) as archive:
        assert "lakewarden/spark/LakewardenCatalog.class" in archive.namelist()


def test_a_directory_gets_a_jar_that_is_named_after_its_spark(tmp_path: Path) -> None:
    written = Path(_run("--output", str(tmp_path)).stdout.strip())
    assert written.parent == tmp_path and written.name.startswith("lakewarden-spark-4.")
    assert written.read_bytes() == spark_jar().read_bytes()


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    result = _run("--output", str(tmp_path / "missing" / "lakewarden.jar"), code=1)
    assert "cannot be written" in result.stderr and result.stdout == ""


def test_no_java_is_one_sentence_and_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = _run(code=1)
    assert "17 or newer" in result.stderr and "Traceback" not in result.stderr
