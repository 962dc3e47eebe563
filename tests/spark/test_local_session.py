"""`local_session`: a catalog and Spark from nothing, found again, and gone when they are stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import lakewarden
from policy.errors import RequestInvalid
from spark_ext.configuration import engine_token_file
from spark_ext.embedded import EmbeddedCatalog
from tests.support.spark import FRUGAL, SparkLake

ROOT = Path(__file__).parents[2]

_SCRIPT = """\
import json, sys, urllib.request
import lakewarden

directory, config = sys.argv[1], json.loads(sys.argv[2])


def session(**options):
    return lakewarden.local_session(directory, config=config, **options)


def rows(spark, statement):
    return [list(row) for row in spark.sql(statement).collect()]


def answers(uri):
    try:
        return urllib.request.urlopen(uri + "/healthz", timeout=10).status
    except OSError:
        return None


"""


def _run(directory: Path, body: str, **environ: str) -> Any:
    """What a script prints as JSON, in a process of its own."""
    config = {**FRUGAL, "spark.master": "local[2]"}
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT + body, str(directory), json.dumps(config)],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr[-6000:]
    return json.loads(ran.stdout.strip().splitlines()[-1])


@pytest.mark.nightly
@pytest.mark.core
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_second_session_finds_the_tables_again_and_stopping_stops_the_catalog(tmp_path: Path) -> None:
    """What the environment says of another catalog is none of this one's business."""
    answered = _run(
        tmp_path / "new" / "lake",
        """
spark = session(user="ann")
spark.sql("CREATE NAMESPACE db")
spark.sql("CREATE TABLE db.plain (id BIGINT, name STRING) USING iceberg")
encrypted = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
spark.sql(f"CREATE TABLE lake.db.secret (id BIGINT) USING iceberg {encrypted}")
spark.sql("INSERT INTO db.plain VALUES (1, 'a'), (2, 'b')")
spark.sql("INSERT INTO lake.db.secret VALUES (7)")
uri = spark.conf.get("spark.sql.catalog.lake.uri")
running = answers(uri)
spark.stop()
stopped = answers(uri)
with session(user="ann", catalog="other") as spark:
    found = rows(spark, "SELECT * FROM db.plain ORDER BY id"), rows(spark, "SELECT id FROM other.db.secret")
print(json.dumps([running, stopped, found]))
""",
        LAKEWARDEN_DATABASE__URL="sqlite:////nowhere/at/all.db",
        LAKEWARDEN_ENGINE_TOKEN_FILE=str(engine_token_file("lw_of_another_catalog")),
    )
    assert answered == [200, None, [[[1, "a"], [2, "b"]], [[7]]]]


def test_a_session_without_the_token_is_nobody(spark_lake: SparkLake) -> None:
    with pytest.raises(Exception, match="NotAuthenticated: This session has no token"):
        spark_lake.new_session(None).sql("SHOW NAMESPACES IN lake").collect()


@pytest.mark.nightly
def test_spark_that_runs_already_is_not_taken_over(spark_lake: SparkLake, tmp_path: Path) -> None:
    with pytest.raises(RequestInvalid, match="Spark already runs in this process"):
        lakewarden.local_session(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_token_of_an_embedded_catalog_ends_with_it(tmp_path: Path) -> None:
    with EmbeddedCatalog(tmp_path, "ann") as first:
        headers = {"Authorization": f"Bearer {first.token}"}
        assert httpx.get(f"{first.uri}/v1/lakewarden/namespaces", headers=headers).status_code == 200
        assert httpx.get(f"{first.uri}/v1/lakewarden/namespaces").status_code == 401
    with EmbeddedCatalog(tmp_path, "ann") as second:
        assert httpx.get(f"{second.uri}/v1/lakewarden/namespaces", headers=headers).status_code == 401


def test_an_embedded_catalog_is_its_users_alone(tmp_path: Path) -> None:
    with EmbeddedCatalog(tmp_path / "lake", "ann") as catalog:
        assert catalog.uri.startswith("http://127.0.0.1:")
    assert (tmp_path / "lake").stat().st_mode & 0o077 == 0
