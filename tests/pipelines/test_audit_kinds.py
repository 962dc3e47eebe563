"""The audit of footers, on files that Spark, the Python client and pyiceberg wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.audited import audited, changed, found, path_of
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import master_keys

COLUMNS = """
    id BIGINT NOT NULL, i INT, b BOOLEAN, f FLOAT, d DOUBLE, s STRING, x BINARY, day DATE, at TIMESTAMP,
    at_ntz TIMESTAMP_NTZ, small DECIMAL(9, 2), wide DECIMAL(18, 3), widest DECIMAL(38, 4),
    tags ARRAY<STRING>, pairs MAP<STRING, INT>, person STRUCT<name: STRING, ages: ARRAY<INT>>"""
ROWS = """
    SELECT id, if(id % 3 = 0, NULL, -int(id)), id % 2 = 0, float(id) / 7, if(id = 5, double('NaN'), id / 3),
    concat(repeat('ü', 20), id), if(id = 9, X'ffffffffffffffffffffffffffffffffffffff', CAST(s AS BINARY)),
    date_add(DATE'1969-12-01', int(id)), timestamp_micros(id * 1000003 + 5),
    TIMESTAMP_NTZ'1960-01-01 00:00:01.5', id - 30.25, (id - 50) * 10000000000.125,
    (id - 50) * 12345678901234567890.5, array('a', NULL), map('k', int(id)),
    if(id = 3, NULL, named_struct('name', concat('n', id), 'ages', array(1, int(id))))
    FROM (SELECT id, uuid() AS s FROM range(0, 100, 1, 1))"""
GOOD = {
    "plain": ("iceberg", {}),
    "old": ("iceberg", {"write.parquet.row-group-size-bytes": "5000"}),
    "uniform": ("iceberg", {"encryption.mechanism": "envelope"}),
    "signed": ("iceberg", {"encryption.mechanism": "envelope", "encryption.footer": "plaintext"}),
    "keyed": ("iceberg", {"encryption.columns": "pii:s,person,tags", "encryption.data-key-length": "16"}),
    "keyed-signed": (
        "iceberg",
        {"encryption.columns": "pii:s,person,tags", "encryption.footer": "plaintext"},
    ),
    "others": ("iceberg", {"encryption.plaintext-columns": "i,person", "encryption.footer": "plaintext"}),
    "ctr": ("iceberg", {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.verify-digest": "always"}),
    "stock": ("iceberg", {"encryption.columns": "pii:s,i", "encryption.stock-readers": "true"}),
    "stock-signed": (
        "iceberg",
        {"encryption.columns": "pii:s", "encryption.stock-readers": "true", "encryption.footer": "plaintext"},
    ),
    "orc": ("orc", {}),
    "orc-lz4": ("orc", {"write.orc.compression-codec": "lz4"}),
    "orc-snappy": ("orc", {"write.orc.compression-codec": "snappy"}),
    "orc-zlib": ("orc", {"write.orc.compression-codec": "zlib"}),
    "orc-uniform": ("orc", {"encryption.mechanism": "envelope", "write.orc.compression-codec": "none"}),
    "orc-keyed": ("orc", {"encryption.columns": "pii:s,day,i", "encryption.masks": "sha256:s;redact:day"}),
}


@pytest.fixture(scope="module")
def good(spark_lake: SparkLake) -> str:
    """A namespace with a table of each kind."""
    master_keys(spark_lake, "pii")
    namespace = spark_lake.namespace()
    for kind, (made_as, properties) in GOOD.items():
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        clause = f"TBLPROPERTIES ({listed})" if listed else ""
        table = f"{namespace}.`{kind}`"
        spark_lake.rows(f"CREATE TABLE {table} ({COLUMNS}) USING {made_as} {clause}")
        spark_lake.rows(f"INSERT INTO {table} {ROWS}")
    return namespace.removeprefix(f"{CATALOG}.")


@pytest.mark.nightly
@pytest.mark.parametrize("kind", GOOD)
def test_good_files_of_spark_have_no_findings(spark_lake: SparkLake, good: str, kind: str) -> None:
    assert found(audited(spark_lake.lake, f"{good}.{kind}")) == []


PLANTED = """SELECT id, concat('n', id) AS s FROM range({first}, {first} + 50, 1, 1)"""
ORC = {
    "orc": ("orc", {"encryption.columns": "pii:s"}),
    "orc-plain": ("orc", {}),
}


@pytest.fixture(scope="module")
def planted(spark_lake: SparkLake) -> str:
    """A namespace with tables of one ORC file."""
    master_keys(spark_lake, "pii")
    namespace = spark_lake.namespace()
    for kind, (made_as, properties) in ORC.items():
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        clause = f"TBLPROPERTIES ({listed})" if listed else ""
        table = f"{namespace}.`{kind}`"
        spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, s STRING) USING {made_as} {clause}")
        spark_lake.rows(f"INSERT INTO {table} {PLANTED.format(first=0)}")
    return namespace


def test_footers_of_orc_files(spark_lake: SparkLake, planted: str) -> None:
    database = planted.removeprefix(f"{CATALOG}.")
    keyed, plain = (audited(spark_lake.lake, f"{database}.{kind}") for kind in ("orc", "orc-plain"))
    assert (found(keyed), found(plain)) == ([], [])
    data = {kind: path_of(each).read_bytes() for kind, each in (("orc", keyed), ("orc-plain", plain))}
    for listed, put, rule in (
        (keyed, data["orc-plain"], "plaintext-file"),
        (plain, data["orc"], "wrong-footer"),
        (plain, data["orc-plain"][:-9], "damaged-file"),
        (plain, data["orc-plain"] + b"more", "damaged-file"),
        (plain, b"ORC", "damaged-file"),
    ):
        part, entries = listed
        place = entries.schema.get_field_index("file_size_in_bytes")
        entries = entries.set_column(place, "file_size_in_bytes", pa.array([len(put)], pa.int64()))
        with changed(path_of(listed), lambda _, put=put: put):
            assert rule in {each.rule for each in found((part, entries), verify=0.0)}
    flipped = bytearray(data["orc"])
    flipped[20] ^= 1
    with changed(path_of(keyed), lambda _: bytes(flipped)):
        assert {each.rule for each in found(keyed)} == {"wrong-digest"}
    part, entries = plain
    for name, wrong in (
        ("record_count", 49),
        ("value_counts", [(1, 51), (2, 51)]),
        ("lower_bounds", [(1, (9).to_bytes(8, "little"))]),
        ("upper_bounds", [(2, b"n1")]),
    ):
        place = entries.schema.get_field_index(name)
        other = entries.set_column(place, name, pa.array([wrong], entries.schema.field(place).type))
        assert {each.rule for each in found((part, other))} == {"wrong-statistics"}, name
