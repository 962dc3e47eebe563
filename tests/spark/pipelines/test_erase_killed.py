"""An erasure whose driver is killed again and again; the last run ends it and certifies each table once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakewarden
from catalog.base import crash_points
from tests.spark.pipelines.test_migrate_killed import TABLES, Commits, killed
from tests.support.crash import assert_sound
from tests.support.lake import ALICE
from tests.support.leftovers import clean_up_expired, strays
from tests.support.lossy_proxy import lossy_proxy
from tests.support.service import Service, open_service
from tests.support.spark import CATALOG
from tests.support.spark_process import spark_process

pytestmark = pytest.mark.nightly

#: Of each process: at which of its commits it is killed, and whether this one is carried out.
KILLS = ((4, False), (5, True), (3, True))

MAKE = f"""
spark.sql("CREATE NAMESPACE lake.n")
for name in {TABLES}:
    table, mode = f"lake.n.{{name}}", "'write.delete.mode' = 'merge-on-read'"
    spark.sql(f"CREATE TABLE {{table}} (id BIGINT) TBLPROPERTIES ({{mode}})")
    for first in (0, 10):
        spark.sql(f"INSERT INTO {{table}} SELECT id FROM range({{first}}, {{first + 10}}, 1, 1)")
answer("made")
"""
ERASE = f"""
from lakewarden import pipelines
from spark_ext.spark_errors import install

install()
report = pipelines.erase(
    spark, [4, 11], {{f"n.{{name}}": ["id"] for name in {TABLES}}}, catalog="lake", show=False)
answer({{"state": report.state, "not done": [each.reason for each in report.not_done],
        "rows": report.counts.get("rows")}})
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path) as opened:
        yield opened


def assert_erased(service: Service, answer: Any) -> None:
    """Both tables are erased and certified, and lost no other row."""
    assert answer == {"state": "complete", "not done": [], "rows": 2 * len(TABLES)}
    mine = lakewarden.connect(service.url, service.token(ALICE))
    for name in TABLES:
        rows = mine.table(f"n.{name}").scan().to_arrow()["id"].to_pylist()
        assert sorted(rows) == [each for each in range(20) if each not in (4, 11)]
        with service.client() as client:
            about = {"table": f"n.{name}", "limit": 1000}
            records = client.get("/admin/v1/audit", params=about).json()["records"]
        certified = [each for each in records if each["action"] == "table.certify" and each["allowed"]]
        assert certified
        said = [{each["rule"]: each["detail"] for each in record["reasons"]} for record in certified]
        assert {each.get("erased-rows", "2") for each in said} == {"2"}


def test_a_catalog_that_is_away_meanwhile_is_waited_for(service: Service) -> None:
    """Three times nothing answers for a while, from a commit of the run on."""
    with spark_process(service, MAKE) as process:
        assert process.answer() == "made"
    commits, outages = iter(range(1, 1_000)), []

    def cut() -> None:
        with proxy.cut():
            time.sleep(8)

    def at(point: str) -> None:
        if point == "write:committing" and next(commits) in (3, 6, 9):
            outages.append(threading.Thread(target=cut))
            outages[-1].start()

    with lossy_proxy(service.url) as proxy:
        settings = {f"spark.sql.catalog.{CATALOG}.uri": proxy.url}
        with spark_process(service, ERASE, settings=settings) as process, crash_points.hooked(at):
            answer = process.answer()
        for each in outages:
            each.join()
    assert len(outages) == 3
    assert_erased(service, answer)
    runs = (
        lakewarden.connect(service.url, service.token(ALICE)).table("lakewarden_ops.runs").scan().to_arrow()
    )
    groups = [each["item"] for each in runs.to_pylist() if each["event"] == "group"]
    assert len(groups) == len(set(groups)) == len(TABLES)


def test_kills_anywhere_certify_nothing_wrong_and_lose_no_row(service: Service) -> None:
    with spark_process(service, MAKE) as process:
        assert process.answer() == "made"
    commits = Commits()
    with crash_points.hooked(commits.at):
        kills = [killed(service, commits, *each, ERASE) for each in KILLS]
    with spark_process(service, ERASE) as process:
        answer = process.answer()
    assert any(kills), "No process was killed."
    assert_erased(service, answer)
    clean_up_expired(service)
    assert strays(service.lake) == []
    assert_sound(service.lake)
