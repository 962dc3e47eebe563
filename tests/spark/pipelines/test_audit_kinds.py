"""The audit of footers, on files that Spark, the Python client and pyiceberg wrote."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row

from policy.identifiers import TableName
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.verified import verify
from spark_ext.pipelines.lake import Lake
from tests.support.audited import audited, changed, found, path_of
from tests.support.lake import ALICE, BOB
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
PAGES = {
    "plain": ("iceberg", {}),
    "uniform": ("iceberg", {"encryption.mechanism": "envelope"}),
    "orc": ("orc", {"encryption.columns": "pii:s"}),
    "orc-plain": ("orc", {}),
}


@pytest.fixture(scope="module")
def planted(spark_lake: SparkLake) -> str:
    """A namespace with tables of three files; the snapshot of the first one is on no branch."""
    master_keys(spark_lake, "pii")
    namespace = spark_lake.namespace()
    for kind, (made_as, properties) in PAGES.items():
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        clause = f"TBLPROPERTIES ({listed})" if listed else ""
        table = f"{namespace}.`{kind}`"
        spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, s STRING) USING {made_as} {clause}")
        spark_lake.rows(f"INSERT INTO {table} {PLANTED.format(first=0)}")
        if kind in ("plain", "uniform"):
            spark_lake.rows(f"INSERT OVERWRITE {table} {PLANTED.format(first=100)}")
            spark_lake.rows(f"INSERT INTO {table} {PLANTED.format(first=200)}")
    return namespace


def pages(spark_lake: SparkLake, namespace: str, kind: str, share: float = 1.0, user: str = ALICE) -> Partial:
    """What reading the pages of a table finds."""
    result = Partial(kind)
    lake = Lake(spark_lake.session(user), CATALOG)
    verify(lake, TableName((namespace.removeprefix(f"{CATALOG}."),), kind), share, result)
    return result


def paths(spark_lake: SparkLake, table: str) -> list[str]:
    """The data files of all snapshots, oldest first."""
    rows = spark_lake.rows(
        f"SELECT DISTINCT sequence_number, data_file.file_path AS path FROM {table}.all_entries "
        "WHERE status < 2 ORDER BY sequence_number"
    )
    return list(dict.fromkeys(row["path"] for row in rows))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["plain", "uniform"])
def test_a_changed_page_is_a_finding_of_its_file_alone(
    spark_lake: SparkLake, planted: str, kind: str
) -> None:
    """Of a file that only an earlier snapshot lists, and of one of two at the head."""
    files = paths(spark_lake, f"{planted}.`{kind}`")
    assert len(files) == 3
    done = pages(spark_lake, planted, kind)
    assert (done.findings, done.counts["read-files"], done.counts["unread-files"]) == ([], 3, 0)
    with ExitStack() as damages:
        for path in (files[0], files[2]):
            local = Path(path.removeprefix("file://"))
            damages.enter_context(changed(local, lambda data: data[:4] + bytes(60) + data[64:]))
        done = pages(spark_lake, planted, kind)
    assert sorted((each.rule, each.path) for each in done.findings) == sorted(
        ("unreadable", path) for path in (files[0], files[2])
    )
    assert done.counts["read-files"] == 1
    assert pages(spark_lake, planted, kind, share=0.0).counts["read-files"] == 0


class Losing(Lake):
    """A lake whose executors are lost at some reads."""

    lost: int = 1

    def sql(self, statement: str, args: Any = None) -> list[Row]:
        if "max(length" in statement and self.lost > 0:
            self.lost -= 1
            raise PySparkException("The executor with id 7 was lost.")
        return super().sql(statement, args)


def test_an_executor_that_is_lost_makes_no_finding_of_a_file(spark_lake: SparkLake, planted: str) -> None:
    """The table has a single file in each group, so that no half of it is read again."""
    name = TableName((planted.removeprefix(f"{CATALOG}."),), "orc-plain")
    for lost, rules in ((1, []), (2, ["unreadable"])):
        result, lake = Partial("orc-plain"), Losing(spark_lake.session(ALICE), CATALOG)
        lake.lost = lost
        verify(lake, name, 1.0, result)
        assert [each.rule for each in result.findings] == rules
        assert result.counts["read-files"] == (not rules)


@pytest.mark.nightly
def test_pages_are_not_read_without_select(spark_lake: SparkLake, planted: str) -> None:
    done = pages(spark_lake, planted, "plain", user=BOB)
    assert (done.findings, done.failed, done.counts["not-read"]) == ([], [], 1)


@pytest.mark.nightly
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
    lower, upper = (9).to_bytes(8, "little"), b"n1"
    for lies in (
        {"record_count": 49},
        {"value_counts": [(1, 51), (2, 51)]},
        # Readers skip a file for IS NULL by the number of nulls alone.
        {"value_counts": [(1, 51), (2, 50)], "null_value_counts": [(1, 1), (2, 0)]},
        {"value_counts": None, "null_value_counts": [(1, 1)]},
        {"lower_bounds": [(1, lower)]},
        {"upper_bounds": [(2, upper)]},
    ):
        other = entries
        for name, wrong in lies.items():
            place = entries.schema.get_field_index(name)
            column = pa.array([wrong], entries.schema.field(place).type)
            other = other.set_column(place, name, column)
        assert {each.rule for each in found((part, other))} == {"wrong-statistics"}, lies
