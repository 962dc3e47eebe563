"""The examples, as users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.crypto.private_files import create_private
from spark_ext.configuration import launch_settings
from spark_ext.embedded import EmbeddedCatalog
from spark_ext.jar import spark_jar
from tests.support.spark import FRUGAL

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"

pytestmark = pytest.mark.nightly


def test_the_lake_of_flights_is_audited_encrypted_and_re_keyed(tmp_path: Path) -> None:
    """The script asserts itself what each cell finds."""
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "flights.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "passenger1@" not in ran.stdout + (tmp_path / "audit.html").read_text()
    assert (tmp_path / "proposed" / "discovered-masks.json").exists()


def test_a_pipeline_is_submitted_to_a_cluster(tmp_path: Path) -> None:
    jar = spark_jar()
    with EmbeddedCatalog(tmp_path / "lake") as catalog:
        token = tmp_path / "token"
        create_private(token, catalog.token.encode())
        settings = {**launch_settings("lake", catalog.uri, jar), **FRUGAL, "spark.master": "local[2]"}
        options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
        submit = Path(sys.executable).with_name("spark-submit")
        ran = subprocess.run(
            [submit, *options, EXAMPLES / "submit.py", token, "audit", "*"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert ran.returncode == 0, ran.stderr
        assert "audit: complete." in ran.stdout
        assert catalog.token not in ran.stdout + ran.stderr
