"""Executors that die in every attempt of a statement's tasks: the statement changes nothing.

Driver and executors are processes of their own, on two hosts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.base.identifiers import table_name
from tests.support.cluster import Cluster, open_cluster
from tests.support.crash import Seen, seen
from tests.support.leftovers import clean_up_expired, known_writes, strays
from tests.support.spark_remote import Refused, Step, disturbed, disturbed_condition

pytestmark = pytest.mark.nightly

ENCRYPTED = "'encryption.mechanism' = 'envelope'"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with open_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


ROWS = "SELECT {value}, 1 AS p FROM range(0, 400, 1, 2)"
#: Statements with a task that ends its executor.
DYING = {
    "INSERT": f"INSERT INTO {{table}} {ROWS}",
    "INSERT OVERWRITE": f"INSERT OVERWRITE {{table}} {ROWS}",
    "INSERT OVERWRITE PARTITION": (
        "INSERT OVERWRITE {table} PARTITION (p = 1) SELECT {value} FROM range(0, 400, 1, 2)"
    ),
    "REPLACE WHERE": f"INSERT INTO {{table}} REPLACE WHERE p = 1 {ROWS}",
    "UPDATE": "UPDATE {table} SET id = -id WHERE {condition} < 395",
    "MERGE": (
        "MERGE INTO {table} t "
        "USING (SELECT {condition} AS id, 1 AS p FROM range(0, 800, 2, 2)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = -s.id WHEN NOT MATCHED THEN INSERT *"
    ),
}
MODES = [(kind, "copy-on-write") for kind in DYING] + [
    (kind, "merge-on-read") for kind in ("UPDATE", "MERGE")
]


@pytest.mark.parametrize(("kind", "mode"), MODES)
def test_a_statement_whose_executors_die_in_every_attempt_changes_nothing(
    cluster: Cluster, kind: str, mode: str
) -> None:
    table = _parted(cluster, mode)
    before = _seen(cluster, table)
    # Speculative attempts that are given up count as attempts, and not as failures.
    steps = [Step("die", 390, attempt) for attempt in range(20)]
    told = {"value": disturbed(*steps), "condition": disturbed_condition(*steps)}
    with pytest.raises(Refused) as refused:
        cluster.spark.rows(DYING[kind].format(table=table, **told))
    assert refused.value.condition is not None, refused.value.trace
    assert _seen(cluster, table) == before
    _assert_cleaned_up(cluster)
    assert cluster.ids(table) == list(range(400))


def _parted(cluster: Cluster, mode: str = "copy-on-write") -> str:
    """A table with 400 rows in two files."""
    table = cluster.new_name()
    modes = "".join(f", 'write.{each}.mode' = '{mode}'" for each in ("delete", "update", "merge"))
    cluster.spark.rows(
        f"CREATE TABLE {table} PARTITIONED BY (p) TBLPROPERTIES ({ENCRYPTED}, "
        f"'encryption.plaintext-columns' = 'p', 'write.distribution-mode' = 'none'{modes}) "
        "AS SELECT id, 1 AS p FROM range(0, 400, 1, 2)"
    )
    return table


def _seen(cluster: Cluster, table: str) -> Seen | None:
    return seen(cluster.service.lake, table_name(["n"], table.removeprefix("lake.n.")))


def _assert_cleaned_up(cluster: Cluster) -> None:
    """Nothing lies under writes that were given up, once those have expired that nobody gave up."""
    clean_up_expired(cluster.service)
    left = [each for each in known_writes(cluster.service.lake).values() if each.state != "committed"]
    assert [each.files() for each in left] == [[]] * len(left)
    assert strays(cluster.service.lake) == []
