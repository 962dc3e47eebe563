"""What Spark is launched with: the catalog, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakewarden
from policy.errors import RequestInvalid
from spark_ext.configuration import launch_settings
from spark_ext.errors import SparkUnavailable
from tests.support.spark import SparkLake
from tests.support.vectors import each_row

URI = "http://127.0.0.1:8181"
JAR = Path("/jars/lakewarden.jar")


def test_a_builder_gets_class_address_extension_and_jar() -> None:
    builder = lakewarden.configure(SparkSession.builder.appName("mine"), uri=f"{URI}/", jar=JAR)
    assert builder._options == {
        "spark.app.name": "mine",
        "spark.jars": str(JAR),
        "spark.sql.catalog.lake": "lakewarden.spark.LakewardenCatalog",
        "spark.sql.catalog.lake.uri": URI,
        "spark.sql.extensions": "lakewarden.spark.LakewardenExtensions",
    }


def test_jars_and_extensions_that_were_there_are_kept_and_named_once() -> None:
    given = SparkSession.builder.config("spark.jars", "a.jar").config("spark.sql.extensions", "a.B,a.C")
    once = lakewarden.configure(given, uri=URI, jar=JAR)
    twice = lakewarden.configure(once, catalog="other", uri=URI, jar=JAR)
    assert twice._options["spark.jars"] == f"a.jar,{JAR}"
    assert twice._options["spark.sql.extensions"] == "a.B,a.C,lakewarden.spark.LakewardenExtensions"
    assert {"spark.sql.catalog.lake.uri", "spark.sql.catalog.other.uri"} <= set(twice._options)


def test_the_token_is_in_no_launch_setting() -> None:
    builder = lakewarden.configure(SparkSession.builder, uri=URI, token="lw_secret", jar=JAR)
    assert "lw_secret" not in str(builder._options)


@each_row("name", ["", "spark_catalog", "a.b", "a b", "1a", "a-b", "ä", "lake\n"])
def test_a_name_that_spark_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(RequestInvalid, match="cannot be the name"):
        launch_settings(name, URI, JAR)


@each_row(
    "uri",
    [
        "",
        "127.0.0.1:8181",
        "file:///x",
        "http://",
        "http://a b",
        "http://user:word@host",
        "http://h?a=b",
        "http://h#a",
    ],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(uri: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        launch_settings("lake", uri, JAR)
    assert "word" not in str(refused.value)


def test_no_java_is_said_before_spark_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="17 or newer"):
        lakewarden.configure(SparkSession.builder, uri=URI, jar=JAR)


def test_the_token_is_in_no_command_line_of_a_running_spark(spark_lake: SparkLake) -> None:
    token = spark_lake.service.token("alice")
    lines = [_command_line(each) for each in Path("/proc").iterdir() if each.name.isdigit()]
    launched = [line for line in lines if "spark.sql.catalog.lake.uri" in line]
    assert launched
    assert not [line for line in launched if "lw_" in line]
    assert not [line for line in lines if token in line]


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
