"""Tables in an object store: Spark writes and reads them through Hadoop's S3 client."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.moto_server import MotoS3
from tests.support.service import open_service
from tests.support.spark_process import spark_process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.nightly]

JARS = Path(sys.prefix) / "hadoop-aws"
SCRIPT = """
def rows(statement):
    return [list(row) for row in spark.sql(statement).collect()]


def outcome(statement):
    try:
        return rows(statement)
    except Exception as refusal:
        return str(refusal)


rows("CREATE NAMESPACE lake.db")
for form in ("orc", "parquet"):
    for when in ("never", "always"):
        table = f"lake.db.{form}_{when}"
        properties = f"'encryption.mechanism' = 'envelope', 'encryption.verify-digest' = '{when}'"
        rows(f"CREATE TABLE {table} (id BIGINT, s STRING) USING {form} TBLPROPERTIES ({properties})")
        rows(f"INSERT INTO {table} SELECT id, sha2(string(id), 256) FROM range(0, 20000, 1, 1)")
        counted = rows(f"SELECT count(*), max(id) FROM {table}")
        answer(counted + rows(f"SELECT count(s), sum(id) FROM {table} WHERE id < 15000"))
        told()
        answer(outcome(f"SELECT bit_xor(xxhash64(*)) FROM {table}"))
rows("CREATE TABLE lake.db.keyed (id BIGINT, s STRING) TBLPROPERTIES ('encryption.columns' = 'pii:s')")
rows("INSERT INTO lake.db.keyed SELECT id, string(id) FROM range(0, 20000, 1, 1)")
answer(rows("SELECT max(s), count(s), count(*) FROM lake.db.keyed"))
told()
for wanted in ("max(s)", "count(s)", "max(id)"):
    answer(outcome(f"SELECT {wanted} FROM lake.db.keyed"))
"""


def test_tables_in_an_object_store_are_written_read_and_checked_against_their_digests(
    tmp_path: Path, moto: MotoS3
) -> None:
    if not any(JARS.glob("hadoop-aws-*.jar")):
        pytest.skip("Hadoop's S3 client is not there; `make interop` fetches it where Maven is")
    given = moto.pyiceberg_properties()
    settings = {
        "spark.driver.extraClassPath": f"{JARS}/*",
        "spark.hadoop.fs.s3a.endpoint": given["s3.endpoint"],
        "spark.hadoop.fs.s3a.endpoint.region": given["s3.region"],
        "spark.hadoop.fs.s3a.access.key": given["s3.access-key-id"],
        "spark.hadoop.fs.s3a.secret.key": given["s3.secret-access-key"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    with (
        open_service(tmp_path.resolve(), s3=moto) as service,
        spark_process(service, SCRIPT, settings=settings) as spark,
    ):
        service.lake.kms.create_master_key("pii")
        for form, when in (("orc", "never"), ("orc", "always"), ("parquet", "never"), ("parquet", "always")):
            assert spark.answer() == [[20000, 19999], [15000, 112492500]]
            flip_a_bit(moto, f"{form}_{when}")
            spark.tell("flipped")
            seen = spark.answer()
            if when == "always":
                assert "rule=file-digest" in seen
            elif form == "parquet":
                assert "DecryptionRefused" in seen
        assert spark.answer() == [["9999", 20000, 20000]]
        flip_a_bit(moto, "keyed", before_end=100)
        spark.tell("flipped")
        for _ in range(3):
            assert "rule=footer-digest" in spark.answer()
        spark.finish()


def flip_a_bit(moto: MotoS3, table: str, before_end: int | None = None) -> None:
    """In the one data file of a table: in its footer, so many bytes before the end, or else in the middle."""
    buckets = [each["Name"] for each in moto.client.list_buckets()["Buckets"]]
    ((bucket, key),) = [
        (bucket, key)
        for bucket in buckets
        for key in moto.keys(bucket)
        if f"/{table}-" in key and key.endswith((".orc", ".parquet"))
    ]
    data = bytearray(moto.client.get_object(Bucket=bucket, Key=key)["Body"].read())
    data[len(data) // 3 if before_end is None else -before_end] ^= 1
    moto.client.put_object(Bucket=bucket, Key=key, Body=bytes(data))
