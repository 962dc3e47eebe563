"""The engine's own token is taken at launch, and is within reach of no user of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_ext.configuration import ENGINE_CREDENTIAL, engine_token_file
from tests.support.spark import SparkLake
from tests.support.spark_process import spark_process


def _take(spark_lake: SparkLake, file: Path) -> str:
    context: Any = spark_lake.spark.sparkContext
    path = context._jvm.java.nio.file.Path.of(str(file), context._gateway.new_array(context._jvm.String, 0))
    taken: str = context._jvm.org.apache.spark.sql.lakewarden.rest.EngineCredential.take(path)
    return taken


def test_variables_of_sql_do_not_hold_the_token(spark_lake: SparkLake) -> None:
    ((named,),) = spark_lake.rows(f"SELECT '${{env:{ENGINE_CREDENTIAL}}}'")
    assert named.startswith("/")
    assert not Path(named).exists()
    ((older,),) = spark_lake.rows("SELECT '${env:LAKEWARDEN_ENGINE_TOKEN}'")
    assert not older.startswith("lw_")


def test_the_file_is_gone_once_it_was_read(spark_lake: SparkLake) -> None:
    file = engine_token_file("lw_once")
    assert file.stat().st_mode & 0o777 == 0o600
    assert _take(spark_lake, file) == "lw_once"
    assert not file.exists()


def test_a_file_that_others_may_read_is_not_taken(spark_lake: SparkLake) -> None:
    file = engine_token_file("lw_seen_by_others")
    file.chmod(0o640)
    with pytest.raises(Exception, match=r"CatalogNotTrusted.*others than its owner may use it") as caught:
        _take(spark_lake, file)
    assert "lw_seen_by_others" not in str(caught.value)
    assert file.exists()
    file.unlink()


def test_a_file_that_is_not_there_is_an_error(spark_lake: SparkLake, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"CatalogNotTrusted.*cannot be read and deleted"):
        _take(spark_lake, tmp_path / "gone")


def test_extension_that_is_not_in_force(spark_lake: SparkLake) -> None:
    script = """
try:
    spark.sql("SHOW NAMESPACES IN lake").collect()
    answer("answered")
except Exception as error:
    answer(str(error))
"""
    with spark_process(spark_lake.service, script, settings={"spark.sql.extensions": ""}) as process:
        assert "CatalogNotTrusted: Spark runs without" in process.answer()
        process.finish()
