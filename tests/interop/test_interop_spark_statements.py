"""Statements in Iceberg's Spark runtime show the same rows on the service as on a catalog of Iceberg.

`spark_statements.sql` holds them. They run once as the client plans its scans, and once as the catalog does.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.attacker import SECRET_ROWS, lay_siege
from tests.support.iceberg_spark import IcebergSpark, Refused, iceberg_catalog, iceberg_spark
from tests.support.lake import ALICE, BOB
from tests.support.service import Service, open_service
from tests.support.spark import FRUGAL
from tests.support.spark_statements import Place, Statement, differences, statements

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

GROUPS = {name: list(members) for name, members in groupby(statements(), key=lambda each: each.group)}
#: Catalogs of Spark: one of Iceberg, and two on the service.
THEIRS, CLIENT, SERVER, BOBS = "theirs", ALICE, "planned", "bobs_planned"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose plans of more than two files have plan tasks."""
    with open_service(tmp_path_factory.mktemp("lake"), PLANNING__ANSWER_FILES="2") as running:
        yield running


@pytest.fixture(scope="module")
def spark(served: Service) -> Iterator[IcebergSpark]:
    """One Spark with the three catalogs."""
    root = served.lake.root
    theirs = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:file:{root}/theirs.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"file:{root}/theirs",
    }
    settings = {
        **FRUGAL,
        "spark.master": "local[1]",
        **iceberg_catalog(THEIRS, theirs),
        **iceberg_catalog(SERVER, _planned(served, ALICE)),
        **iceberg_catalog(BOBS, _planned(served, BOB)),
    }
    with iceberg_spark(served, ALICE, BOB, settings=settings) as started:
        yield started


def _planned(served: Service, user: str) -> dict[str, str]:
    return {"type": "rest", "uri": served.url, "token": served.token(user), "scan-planning-mode": "server"}


@pytest.mark.parametrize("mode", [CLIENT, SERVER], ids=["client-plans", "server-plans"])
@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_statements_show_the_rows_of_a_catalog_of_iceberg(
    spark: IcebergSpark, tmp_path: Path, group: list[Statement], mode: str
) -> None:
    namespace = f"n{uuid4().hex[:12]}"
    theirs = Place(spark, THEIRS, namespace, tmp_path / THEIRS)
    ours = Place(spark, mode, namespace, tmp_path / mode, planned=mode == SERVER)
    for place in (theirs, ours):
        place.run("CREATE NAMESPACE {ns}")
    assert not (told := differences(group, theirs, ours)), "\n".join(["", *told])


def test_a_path_that_was_planted_in_a_manifest_is_refused_where_the_catalog_plans_for_spark(
    served: Service, spark: IcebergSpark
) -> None:
    lay_siege(served.lake).plant()
    secret = SECRET_ROWS.to_pylist()
    assert spark.sql(f"SELECT id FROM {BOB}.bobs.mine ORDER BY id") == [[row["id"]] for row in secret]
    with pytest.raises(
        Refused, match=r"Forbidden: The manifest does not match its seal.*rule=seal"
    ) as refused:
        spark.sql(f"SELECT id FROM {BOBS}.bobs.mine")
    assert not any(row["name"] in str(refused.value) for row in secret)
