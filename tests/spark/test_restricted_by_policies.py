"""Row filters and masks of policies in Spark, from the policy to the rows."""

from __future__ import annotations

import hashlib

import pytest

from tests.planning.test_plan_restrictions import filtering, masking
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.reads import refused
from tests.support.spark import SparkLake
from tests.support.spark_tables import master_keys

pytestmark = pytest.mark.core

KEYED = "'encryption.columns' = 'pii:ssn;hr:email', 'encryption.plaintext-columns' = 'id,region'"


@pytest.mark.parametrize(
    ("using", "properties"),
    [
        ("parquet", KEYED),
        pytest.param("orc", "'encryption.mechanism' = 'plaintext'", marks=pytest.mark.nightly),
    ],
    ids=["column-keys", "orc"],
)
def test_a_user_sees_rows_and_values_as_policies_say_and_inserts(
    spark_lake: SparkLake, using: str, properties: str
) -> None:
    master_keys(spark_lake, "pii", "hr")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    name = f"lake.db.restricted_{using}"
    spark_lake.rows(
        f"CREATE TABLE {name} (id INT, region STRING, ssn STRING, email STRING) USING {using} "
        f"TBLPROPERTIES ({properties})"
    )
    spark_lake.rows(
        f"INSERT INTO {name} VALUES (1, 'eu', '1-2', 'a@b'), (2, 'us', '3-4', 'c@d'), (3, NULL, '5', NULL)"
    )
    grants = policy("writes", {"database": ["db"], "table": ["*"]}, {CAROL: ["update"]})
    rules = [
        filtering("region <> 'us' or id = 4 and current_user() = 'carol'"),
        masking("ssn", "MASK_NULL"),
        masking("email", "MASK_HASH", "hashes"),
    ]
    try:
        spark_lake.lake.set_policies([*standard_policies(), grants, *rules])
        hashed = hashlib.sha256(b"a@b").hexdigest()
        everything = f"SELECT * FROM {name} ORDER BY id"
        assert spark_lake.rows(everything, CAROL) == [(1, "eu", None, hashed)]
        asked = f"SELECT count(*), count(ssn), max(email) FROM {name} WHERE id < 3 AND email <> 'c@d'"
        assert spark_lake.rows(asked, CAROL) == [(1, 0, hashed)]
        spark_lake.rows(f"INSERT INTO {name} VALUES (4, 'us', '7', 'e@f')", CAROL)
        assert [row.id for row in spark_lake.rows(everything, CAROL)] == [1, 4]
        refused(spark_lake, f"UPDATE {name} SET email = 'x'", "NOT_AUTHORIZED", "mask", CAROL)
        inserts = (
            f"MERGE INTO {name} t USING (SELECT 2 AS id) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT (id) VALUES (2)"
        )
        refused(spark_lake, inserts, "NOT_AUTHORIZED", "row-filter", CAROL)
    finally:
        spark_lake.lake.set_policies(standard_policies())
    assert len(spark_lake.rows(everything)) == 4


@pytest.mark.nightly
def test_partitions_do_not_decide_conditions_on_masked_columns(spark_lake: SparkLake) -> None:
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    name = "lake.db.masked_partitions"
    spark_lake.rows(f"CREATE TABLE {name} (id INT, region STRING) PARTITIONED BY (region)")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'eu'), (2, 'us')")
    try:
        spark_lake.lake.set_policies([*standard_policies(), masking("region", "mask-alphanum")])
        assert spark_lake.rows(f"SELECT id FROM {name} WHERE region = 'eu'", CAROL) == []
        shown = f"SELECT region, count(*) FROM {name} WHERE region = 'xx' GROUP BY region"
        assert spark_lake.rows(shown, CAROL) == [("xx", 2)]
    finally:
        spark_lake.lake.set_policies(standard_policies())
