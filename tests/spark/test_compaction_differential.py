"""Random changes of rows, compacted in every way and protection: the rows stay."""

from __future__ import annotations

import random

import pytest

from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import create_table, data_files, master_keys

pytestmark = pytest.mark.nightly

_PROTECTIONS = {
    "plaintext": {},
    "uniform": {"encryption.mechanism": "envelope", "encryption.partition-values": "plaintext"},
    "column keys": {"encryption.columns": "compacted:name"},
    "ORC": {"write.format.default": "orc"},
    "encrypted ORC": {"write.format.default": "orc", "encryption.columns": "compacted:name"},
}
_ARRANGEMENTS = (
    "",
    ", strategy => 'sort', sort_order => 'id DESC'",
    ", sort_order => 'zorder(id, day)'",
    ", where => 'id < 40'",
)


@pytest.mark.parametrize("protection", _PROTECTIONS)
@pytest.mark.parametrize("partitioned_by", [None, "day", "bucket(3, id)"])
def test_rows_stay(
    spark_lake: SparkLake, namespace: str, protection: str, partitioned_by: str | None
) -> None:
    master_keys(spark_lake, "compacted")
    table, draw = f"{namespace}.t", random.Random(f"{protection} {partitioned_by}")
    properties = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}
    columns = "id INT, day DATE, name STRING, x DOUBLE"
    create_table(spark_lake, table, columns, properties | _PROTECTIONS[protection], partitioned_by)
    for number in range(6):
        first = number * 15
        spark_lake.rows(
            f"INSERT INTO {table} SELECT CAST(id AS INT), DATE'1969-12-30' + CAST(id % 3 AS INT), "
            f"IF(id % 5 = 0, NULL, concat('n', id)), CASE id % 4 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D "
            f"ELSE id / 7 END FROM range({first}, {first + 15}, 1, 2)"
        )
        some = ", ".join(str(draw.randrange(first + 15)) for _ in range(4))
        spark_lake.rows(f"DELETE FROM {table} WHERE id IN ({some})")
        spark_lake.rows(f"UPDATE {table} SET name = 'u' WHERE id % 11 = {draw.randrange(11)}")
        if number % 2:
            before = sorted(map(str, spark_lake.rows(f"SELECT * FROM {table}")))
            arrangement = draw.choice(_ARRANGEMENTS)
            option = draw.choice(("'rewrite-all', 'true'", "'delete-file-threshold', '1'"))
            spark_lake.rows(
                f"CALL {CATALOG}.system.rewrite_data_files('{table}', options => map({option}){arrangement})"
            )
            assert sorted(map(str, spark_lake.rows(f"SELECT * FROM {table}"))) == before, arrangement
    sql = f"CALL {CATALOG}.system.rewrite_data_files('{table}', options => map('rewrite-all', 'true'))"
    before = sorted(map(str, spark_lake.rows(f"SELECT * FROM {table}")))
    (done,) = spark_lake.rows(sql)
    assert done["failed_data_files_count"] == 0 and done["left_files"] == 0
    spark_lake.rows(f"CALL {CATALOG}.system.rewrite_manifests('{table}')")
    spark_lake.rows(f"CALL {CATALOG}.system.expire_snapshots('{table}', TIMESTAMP '2100-01-01')")
    assert sorted(map(str, spark_lake.rows(f"SELECT * FROM {table}"))) == before
    assert all(file["content"] == 0 for file in data_files(spark_lake, table))
