"""DELETE, UPDATE and MERGE give the rows of a model, and leave files without matching rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support import row_model
from tests.support.row_model import Condition, Row, Statement
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, master_keys
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

MERGE_ON_READ = {f"write.{each}.mode": "merge-on-read" for each in ("delete", "update", "merge")}
COLUMN_KEYS = {"encryption.columns": "pii:id,v"}
ORC = {"write.format.default": "orc"}
PROTECTIONS: Mapping[str, tuple[Mapping[str, str], str | None]] = {
    "plain, partitioned": ({}, "p"),
    "uniform key, merge-on-read": (ENCRYPTED | MERGE_ON_READ, None),
}
MORE: Mapping[str, tuple[Mapping[str, str], str | None]] = {
    "plain": ({}, None),
    "ORC column keys": ({**ORC, **COLUMN_KEYS}, None),
    "column keys, partitioned, merge-on-read": (COLUMN_KEYS | MERGE_ON_READ, "p"),
    "ORC, bucketed": (ORC, "bucket(2, id)"),
    "plain, bucketed": ({}, "bucket(2, id)"),
    "plain, merge-on-read": ({**MERGE_ON_READ, "write.delete.granularity": "partition"}, "p"),
    "ORC encrypted, merge-on-read": ({**ORC, **ENCRYPTED, **MERGE_ON_READ}, None),
}
FIRST: list[Row] = [(1, "a", 0), (2, None, 0), (None, "b", 0), (11, "ab", 1), (12, None, 1), (1, "c", None)]


class Compared:
    """A guarded table and its model.

    Args:
        spark_lake: where the table is.
        name: the table, empty.
        merge_on_read: whether rows that are left stay where they are.
    """

    def __init__(self, spark_lake: SparkLake, name: str, merge_on_read: bool) -> None:
        self.merge_on_read = merge_on_read
        self.spark_lake = spark_lake
        self.name = name
        self.rows: list[Row] = []
        self.files: dict[str, list[Row]] = {}

    def run(self, statement: Statement) -> None:
        """Run a statement on both, and compare rows and files."""
        self.spark_lake.rows(statement.sql.format(self.name))
        self.rows = statement.apply(self.rows)
        before, self.files = self.files, self._read()
        found = Counter(row for rows in self.files.values() for row in rows)
        assert found == Counter(self.rows), statement.sql
        if statement.touches is not None:
            read = all if self.merge_on_read else any
            kept = {path for path, rows in before.items() if not read(map(statement.touches, rows))}
            assert kept == before.keys() & self.files.keys(), statement.sql

    def _read(self) -> dict[str, list[Row]]:
        files: dict[str, list[Row]] = {}
        for path, *values in self.spark_lake.rows(f"SELECT _file, id, v, p FROM {self.name}"):
            files.setdefault(path, []).append((values[0], values[1], values[2]))
        return files


def compared(spark_lake: SparkLake, namespace: str, kind: str) -> Compared:
    """An empty table of a kind, and its model."""
    properties, partitions = {**PROTECTIONS, **MORE}[kind]
    master_keys(spark_lake, "pii")
    create_table(spark_lake, f"{namespace}.t", "id INT, v STRING, p INT", properties, partitions)
    return Compared(spark_lake, f"{namespace}.t", MERGE_ON_READ.keys() <= properties.keys())


def in_files(rows: list[Row]) -> list[Statement]:
    """Statements that insert the rows of each partition in a file."""
    parts = sorted({row[2] for row in rows}, key=str)
    return [_insert([row for row in rows if row[2] == part]) for part in parts]


def _insert(rows: list[Row]) -> Statement:
    values = ", ".join(f"({', '.join('NULL' if v is None else repr(v) for v in row)})" for row in rows)
    select = f"SELECT /*+ COALESCE(1) */ * FROM VALUES {values}"
    return Statement(f"INSERT INTO {{}} {select}", lambda before: before + rows)


@pytest.mark.parametrize("kind", PROTECTIONS)
def test_commands_give_the_rows_of_the_model(spark_lake: SparkLake, namespace: str, kind: str) -> None:
    table = compared(spark_lake, namespace, kind)
    two = Condition("id = 2 OR v = 'ab'", lambda r: r[0] == 2 or r[1] == "ab")
    for statement in (
        *in_files(FIRST),
        row_model.update(two),
        row_model.merge(Random(5)),
        row_model.delete(Condition("id IN (SELECT 12)", lambda r: r[0] == 12)),
        row_model.delete(Condition("v = 'absent'", lambda r: False)),
        row_model.update(Condition("NOT (id IN (2, NULL))", lambda r: False)),  # Spark reads nothing.
        *(each(Random(3)) for each in (row_model.replace_using, row_model.replace_on) if row_model.REPLACES),
    ):
        table.run(statement)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "properties", [{"write.parquet.page-row-limit": "1000"}, ORC], ids=["parquet", "orc"]
)
def test_rows_in_pages_without_a_match_are_written_again(
    spark_lake: SparkLake, namespace: str, properties: Mapping[str, str]
) -> None:
    """A filter that leaves out pages or strides would leave out rows that stay."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT", properties)
    spark_lake.rows(f"INSERT INTO {table} SELECT id FROM range(0, 30000, 1, 1)")
    spark_lake.rows(f"DELETE FROM {table} WHERE id = 5")
    assert spark_lake.rows(f"SELECT count(*), sum(id) FROM {table}") == [(29999, 29999 * 15000 - 5)]


#: Queries, and whether a second run has the same rows.
QUERIES = {
    "SELECT id, v FROM {s}": True,
    "SELECT max(id) AS id, v FROM {s} GROUP BY v ORDER BY v": True,
    "SELECT id, v FROM {s} LIMIT 3": False,
    "SELECT id, v FROM (SELECT * FROM {s} ORDER BY v OFFSET 1)": False,
    "SELECT id, v FROM {s} TABLESAMPLE (50 PERCENT)": False,
    "SELECT id, v FROM {s} WHERE id IN (SELECT id FROM {s} LIMIT 3)": False,
    "SELECT id, v FROM {s} WHERE EXISTS (SELECT 1 FROM {s} WHERE id = (SELECT id FROM {s} LIMIT 1))": False,
    "WITH q AS (SELECT id, v FROM {s} LIMIT 3) SELECT id, v FROM q": False,
    "SELECT CAST(rand() * 9 AS INT) AS id, uuid() AS v FROM {s}": False,
}
#: What takes the rows of a query, and of one that is defined before.
TAKES = [
    "MERGE INTO {t} t USING ({q}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
    "WITH d AS ({q}) MERGE INTO {t} t USING d ON t.id = d.id WHEN MATCHED THEN DELETE",
    "WITH d AS ({q}), e AS (TABLE d) MERGE INTO {t} t USING e s ON t.id = s.id WHEN MATCHED THEN DELETE",
    *(
        [
            "INSERT INTO {t} BY NAME REPLACE USING (id) {q}",
            "WITH d AS ({q}) INSERT INTO {t} t REPLACE ON t.id = d.id (SELECT id, v, 1 FROM d) d",
        ]
        if row_model.REPLACES
        else []
    ),
]


@pytest.mark.nightly
def test_query_that_can_differ_each_time_runs_once(spark_lake: SparkLake, namespace: str) -> None:
    """Else Spark runs it first to find the files with matches, which it prunes by then."""
    names = {"t": f"{namespace}.t", "s": f"{namespace}.s"}
    for name in names.values():
        create_table(spark_lake, name, "id INT, v STRING, p INT")
    for query, is_settled in QUERIES.items():
        for statement in TAKES:
            sql = statement.format(q=query.format(**names), **names)
            ((plan,),) = spark_lake.rows(f"EXPLAIN EXTENDED {sql}")
            assert "Error" not in plan.splitlines()[0], plan
            assert ("dynamicpruning" in plan) == is_settled, sql


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, MERGE_ON_READ], ids=["copy-on-write", "merge-on-read"])
def test_merge_of_rows_that_differ_each_time_inserts_no_row_beside_another(
    spark_lake: SparkLake, namespace: str, properties: Mapping[str, str]
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, v STRING", properties, "bucket(8, id)")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, 'old' FROM range(200)")
    spark_lake.rows(
        f"MERGE INTO {table} t USING (SELECT DISTINCT CAST(rand() * 200 AS INT) AS id FROM range(40)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'new' WHEN NOT MATCHED THEN INSERT (id) VALUES (id)"
    )
    assert spark_lake.rows(f"SELECT count(*), count(DISTINCT id), count(v) FROM {table}") == [(200, 200, 200)]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*PROTECTIONS, *MORE])
@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_random_statements_give_the_rows_of_the_model(spark_lake: SparkLake, kind: str, seed: int) -> None:
    random = Random(seed)
    table = compared(spark_lake, spark_lake.namespace(), kind)
    for statement in in_files(FIRST):
        table.run(statement)
    for _ in range(12):
        table.run(row_model.statement(random, partitioned={**PROTECTIONS, **MORE}[kind][1] == "p"))
