"""Iceberg's own Spark runtime reads tables by plans of the catalog, and shows the same rows as by its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.iceberg_spark import IcebergSpark, Refused, iceberg_spark
from tests.support.lake import ALICE, BOB, policy, standard_policies, tables
from tests.support.service import Service, open_service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

MERGE_ON_READ = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("delete", "update", "merge"))
#: Each shows rows of `db.t`; `{t}` is the table.
READS = (
    "SELECT * FROM {t}",
    "SELECT id FROM {t} WHERE part = 'b'",
    "SELECT id, part FROM {t} WHERE id > 20 AND part <> 'a'",
    "SELECT count(*), max(id), sum(amount) FROM {t}",
    "SELECT part, count(*) FROM {t} GROUP BY part",
    "SELECT id FROM {t} WHERE part IS NULL OR id = 3",
    "SELECT id FROM {t} WHERE day = DATE '2020-01-02' AND at >= TIMESTAMP '2020-01-01 00:00:00'",
    "SELECT id FROM {t} WHERE amount = 1.50",
    "SELECT id FROM {t} WHERE (part = 'a' OR part = 'c') AND NOT id IN (1, 2)",
    "SELECT id FROM {t} WHERE part LIKE 'a%'",
    "SELECT point.x FROM {t} WHERE point.x > 1",
    "SELECT _pos, _spec_id, _deleted FROM {t} WHERE id = 13",
    "SELECT id FROM {t} VERSION AS OF {first}",
    "SELECT id FROM {t}.branch_b",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id AND a.part = b.part",
    "SELECT id FROM {t} WHERE false",
)
COLUMNS = (
    "id BIGINT, part STRING, day DATE, at TIMESTAMP, amount DECIMAL(9, 2), point STRUCT<x: INT>, "
    "tags MAP<STRING, INT>"
)
CREATE = "CREATE TABLE {t} ({columns}) USING iceberg PARTITIONED BY (part, days(day)) TBLPROPERTIES ({mode})"
INSERT = (
    "INSERT INTO {t} SELECT id + {first}, CASE WHEN id < 4 THEN 'a' WHEN id < 8 THEN 'b' END, "
    "date_add(DATE '2020-01-01', CAST(id % 3 AS INT)), TIMESTAMP '2020-01-02 03:04:05', 1.50, "
    "named_struct('x', CAST(id AS INT)), map('k', 1) FROM range(10)"
)
CHANGES = (
    "DELETE FROM {t} WHERE id = 11",
    "UPDATE {t} SET id = 100 WHERE id = 12",
    "MERGE INTO {t} t USING (SELECT 13 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that says that it plans scans, those of more than two files in parts."""
    mask = {
        "users": [BOB],
        "accesses": [{"type": "select", "isAllowed": True}],
        "rowFilterInfo": {"filterExpr": "id < 2"},
    }
    where = {"database": ["db"], "table": ["*"]}
    rows = policy("rows", where, {}, policyType=2, rowFilterPolicyItems=[mask])
    reads = policy("reads", tables("db"), {BOB: ["select"]})
    settings = {"PLANNING__MODE": "server", "PLANNING__ANSWER_FILES": "2"}
    with open_service(
        tmp_path_factory.mktemp("lake"), policies=[*standard_policies(), reads, rows], **settings
    ) as running:
        running.lake.catalog().create_namespace("db")
        yield running


@pytest.fixture(scope="module")
def spark(served: Service) -> Iterator[IcebergSpark]:
    """One Spark with a catalog for Alice and one for Bob, and a table with rows and deletes."""
    with iceberg_spark(served, ALICE, BOB) as started:
        statements = [
            CREATE.format(t="{t}", columns=COLUMNS, mode=MERGE_ON_READ),
            *(INSERT.format(t="{t}", first=first) for first in (0, 10, 20, 30)),
            "DELETE FROM {t} WHERE id = 12",
            "ALTER TABLE {t} CREATE BRANCH b",
            "INSERT INTO {t}.branch_b SELECT 99, 'c', NULL, NULL, NULL, NULL, NULL",
        ]
        started.sql(*(each.format(t=f"{ALICE}.db.t") for each in statements))
        yield started


def _requests(served: Service) -> int:
    with served.client() as client:
        lines = client.get("/metrics").text.splitlines()
    found = [each for each in lines if each.startswith("lakewarden_requests_total") and "/plan" in each]
    return sum(int(float(each.split()[-1])) for each in found)


@pytest.mark.parametrize("statement", READS)
def test_rows_are_those_of_a_scan_that_the_client_plans(
    served: Service, spark: IcebergSpark, statement: str
) -> None:
    first = served.lake.catalog().load_table("db.t").metadata.snapshots[0].snapshot_id
    query = statement.format(t=f"{ALICE}.db.t", first=first)
    _mode(served, "client")
    theirs, before = spark.sql(query), _requests(served)
    _mode(served, "server")
    ours = spark.sql(query)
    assert sorted(ours, key=str) == sorted(theirs, key=str)
    assert _requests(served) > before or "false" in statement


def _mode(served: Service, mode: str) -> None:
    update = {"action": "set-properties", "updates": {"read.scan-planning-mode": mode}}
    with served.client() as client:
        url = f"{served.prefix}/namespaces/db/tables/t"
        answer = client.post(url, json={"requirements": [], "updates": [update]})
        assert answer.status_code == 200, answer.text


def test_row_changes_find_their_files_by_plans(served: Service, spark: IcebergSpark) -> None:
    table = f"{ALICE}.db.changed"
    spark.sql(
        CREATE.format(t=table, columns=COLUMNS, mode="'comment'='none'"),
        *(INSERT.format(t=table, first=first) for first in (0, 10, 20)),
    )
    before = _requests(served)
    spark.sql(*(each.format(t=table) for each in CHANGES))
    found = {row[0] for row in spark.sql(READS[0].format(t=table))}
    assert found == {*range(30), 100} - {11, 12, 13}
    assert _requests(served) > before


def test_a_row_filter_is_a_refusal(spark: IcebergSpark) -> None:
    with pytest.raises(Refused, match="cannot read everything"):
        spark.sql(READS[0].format(t=f"{BOB}.db.t"))
