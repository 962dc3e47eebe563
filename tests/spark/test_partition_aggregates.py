"""Filters that partitions decide, and aggregates by partition: the same as those of the rows."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

from tests.spark.test_aggregates import pushed
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.random_conditions import LITERALS
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path, master_keys

COLUMNS = {"id": "BIGINT", "p": "INT", "s": "STRING", "day": "DATE", "ts": "TIMESTAMP", "n": "BIGINT"}
PARTITIONS = "p, s, day, days(ts), truncate(10, n)"
MODES = {
    "plaintext": {},
    "uniform": {"encryption.mechanism": "envelope", "encryption.partition-values": "plaintext"},
    "column keys": {"encryption.columns": "partition-one:id,s", "encryption.partition-values": "plaintext"},
    "orc": {"write.format.default": "orc"},
}
#: Of each column literals that partitions begin with, and others.
VALUES = {
    "p": LITERALS["INT"],
    "s": LITERALS["STRING"],
    "day": LITERALS["DATE"][:8],
    "ts": [
        *LITERALS["TIMESTAMP"],
        "timestamp'2024-02-29 00:00:00Z'",
        "timestamp'2024-03-01 00:00:00Z'",
        "timestamp'1969-12-31 00:00:00Z'",
    ],
    "n": ["0L", "1L", "9L", "10L", "-1L", "-10L", "120L", "9223372036854775807L"],
}
COUNTED = "count(*), count(id), min(id), max(id), min(p), max(p), min(s), max(s), min(day), max(day)"


def compared(rng: Random) -> str:
    """A comparison that partitions can decide, or nearly so."""
    column = rng.choice([*VALUES])
    value = rng.choice(VALUES[column])
    return rng.choice(
        [
            *(f"{column} {sign} {value}" for sign in ("=", "<=>", "<", "<=", ">", ">=")),
            f"{column} IN ({value}, {rng.choice(VALUES[column])}, null)",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
        ]
    )


def condition(rng: Random) -> str:
    parts = [compared(rng) for _ in range(rng.choice([1, 1, 2, 3]))]
    return "(" + rng.choice([" AND ", " OR "]).join(parts) + ")"


def query(rng: Random, number: int) -> str:
    """An aggregation of `{t}`."""
    groups = rng.sample(["p", "s", "day"], rng.randrange(3))
    shown = [*groups, *(["null"] * (2 - len(groups)))]
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    cast = ", ".join(f"cast({each} AS string)" for each in [*shown, *COUNTED.split(", ")])
    return f"SELECT {number}, {cast} FROM {{t}} WHERE {condition(rng)}{by}"


def answers(spark_lake: SparkLake, queries: list[str], table: str) -> Counter[Row]:
    return Counter(map(tuple, spark_lake.rows(" UNION ALL ".join(queries).format(t=table))))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mode", MODES)
def test_answers_of_partitions_are_those_of_the_rows(
    spark_lake: SparkLake, namespace: str, mode: str, seed: int
) -> None:
    table, model, rng = f"{namespace}.t", "partition_rows", Random(seed)
    master_keys(spark_lake, "partition-one")
    listed = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    create_table(spark_lake, table, listed, MODES[mode], partitioned_by=PARTITIONS)
    rows = [
        [str(number), *(rng.choice([*rng.sample(VALUES[name], 2), "null"]) for name in VALUES)]
        for number in range(16)
    ]
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    made = (
        f"SELECT {', '.join(f'cast({n} AS {k}) {n}' for n, k in COLUMNS.items())} FROM VALUES {values} AS v"
    )
    spark_lake.rows(f"CREATE OR REPLACE TEMPORARY VIEW {model} AS {made}({', '.join(COLUMNS)})")
    spark_lake.rows(f"INSERT INTO {table} SELECT * FROM {model}")
    queries = [query(rng, number) for number in range(12)]
    found = answers(spark_lake, queries, table)
    assert found == answers(spark_lake, queries, model)
    filters = [f"SELECT {number}, id FROM {{t}} WHERE {condition(rng)}" for number in range(len(queries))]
    assert answers(spark_lake, filters, table) == answers(spark_lake, filters, model)


@pytest.fixture(scope="module")
def parted(spark_lake: SparkLake) -> str:
    table = f"{spark_lake.namespace()}.t"
    create_table(
        spark_lake, table, "id BIGINT, p INT, s STRING, f FLOAT", partitioned_by="p, truncate(10, id), f"
    )
    spark_lake.rows(f"INSERT INTO {table} VALUES (5, 1, 'a', 0.0F), (15, 1, 'b', 0.0F), (25, 2, 'c', 1.0F)")
    return table


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "wanted, rest, told",
    [
        ("count(*)", "WHERE p = 1", True),
        ("max(id), count(s)", "WHERE p IN (1, 3) AND id >= 10", True),
        ("p, max(id)", "GROUP BY p", True),
        ("max(p)", "WHERE id <= 19 OR p IS NULL", True),
        ("count(*)", "WHERE id >= 11", False),
        ("count(*)", "WHERE id = 15", False),
        ("count(*)", "WHERE p = 1 AND s = 'a'", False),
        ("count(*)", "WHERE f = 0", False),
        ("f, count(*)", "GROUP BY f", False),
        ("id, count(*)", "GROUP BY id", False),
        ("p, max(s)", "GROUP BY p", False),
    ],
)
def test_only_what_partitions_decide_is_answered_by_files(
    spark_lake: SparkLake, parted: str, wanted: str, rest: str, told: bool
) -> None:
    assert pushed(spark_lake, f"SELECT {wanted} FROM {parted} {rest}") is told


@pytest.mark.nightly
def test_no_page_is_read_for_aggregates_by_partition(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    master_keys(spark_lake, "partition-two")
    create_table(spark_lake, table, "id BIGINT, p INT", {"encryption.columns": "partition-two:id"}, "p")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, CAST(id % 2 AS INT) FROM range(10)")
    for file in data_files(spark_lake, table):
        path = local_path(file)
        path.write_bytes(path.read_bytes()[:30] + bytes(20) + path.read_bytes()[50:])
    assert spark_lake.rows(f"SELECT p, count(*), max(id) FROM {table} GROUP BY p ORDER BY p") == [
        (0, 5, 8),
        (1, 5, 9),
    ]
    assert spark_lake.rows(f"SELECT count(id) FROM {table} WHERE p = 1") == [(5,)]
    with pytest.raises(PySparkException, match="DecryptionRefused"):
        spark_lake.rows(f"SELECT sum(id) FROM {table} WHERE p = 1")


def test_deleted_rows_are_in_no_aggregate_by_partition(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, p INT", {"write.delete.mode": "merge-on-read"}, "p")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, CAST(id % 2 AS INT) FROM range(10)")
    spark_lake.rows(f"DELETE FROM {table} WHERE id IN (9, 0, 2, 4, 6, 8)")
    grouped = f"SELECT p, count(*), max(id), max(p) FROM {table} GROUP BY p"
    assert pushed(spark_lake, grouped)
    assert spark_lake.rows(grouped) == [(1, 4, 7, 1)]
    assert spark_lake.rows(f"SELECT count(*), max(p) FROM {table} WHERE p = 0") == [(0, None)]


def test_a_partition_of_another_spec_decides_nothing(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, p INT", partitioned_by="p")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    query = f"SELECT count(*) FROM {table} WHERE p = 1"
    assert pushed(spark_lake, query)
    spark_lake.rows(f"ALTER TABLE {table} REPLACE PARTITION FIELD p WITH bucket(2, id)")
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 1), (1, 3)")
    assert not pushed(spark_lake, query) and spark_lake.rows(query) == [(2,)]
    assert not pushed(spark_lake, f"SELECT p, count(*) FROM {table} GROUP BY p")


@pytest.fixture(scope="module")
def masked(spark_lake: SparkLake) -> str:
    """A table partitioned by a column that Carol sees as NULL."""
    master_keys(spark_lake, "partition-mask")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.partition_masks")
    table = "lake.partition_masks.t"
    create_table(spark_lake, table, "id BIGINT, p INT", partitioned_by="p")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, null)")
    return table


@pytest.mark.nightly
def test_a_masked_column_decides_nothing(spark_lake: SparkLake, masked: str) -> None:
    """Its rows would show which partition they are in, also those of a query from before there was a mask."""
    query = f"SELECT id FROM {masked} WHERE p = 2"
    grant = {"database": ["partition_masks"], "table": ["*"], "column": ["id"]}
    try:
        spark_lake.lake.set_policies(
            [*standard_policies(), policy("carol-partitions", grant, {CAROL: ["select"]})]
        )
        before = spark_lake.session(CAROL).sql(query)
        before._jdf.queryExecution().analyzed()
        _mask(spark_lake, masked)
        with pytest.raises(PySparkException, match=r"TableChanged|TABLE_ID_MISMATCH"):
            before._jdf.queryExecution().optimizedPlan()
            before.collect()
        assert spark_lake.rows(query, CAROL) == []
        assert spark_lake.rows(f"SELECT p, count(*) FROM {masked} GROUP BY p", CAROL) == [(None, 3)]
        assert len(spark_lake.rows(f"SELECT id FROM {masked} WHERE p IS NULL", CAROL)) == 3
    finally:
        spark_lake.lake.set_policies(standard_policies())
    assert not pushed(spark_lake, f"SELECT count(*) FROM {masked} WHERE p = 2")
    assert spark_lake.rows(query) == [(2,)]


def _mask(spark_lake: SparkLake, table: str) -> None:
    properties = {
        "encryption.columns": "partition-mask:p",
        "encryption.masks": "nullify:p",
        "encryption.partition-values": "plaintext",
    }
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ({listed})")
