"""Masks: what those see who may not select a column, decided by the catalog; and nobody else."""

from __future__ import annotations

import hashlib

import pytest

from tests.support.lake import ALICE, CAROL
from tests.support.reads import denied, refused
from tests.support.spark import SparkLake
from tests.support.spark_tables import ENCRYPTED_ORC, master_keys, stock_table
from tests.support.vectors import each_row

pytestmark = pytest.mark.core

VALUES = "VALUES ('123-45', 'ann@example', 'Ann'), ('678-90', 'bob@example', 'Bob'), (NULL, NULL, 'Nil')"


@pytest.fixture(scope="module")
def database(spark_lake: SparkLake) -> str:
    master_keys(spark_lake, "pii", "hr")
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    return "lake.db"


@pytest.fixture(scope="module")
def people(spark_lake: SparkLake, database: str) -> str:
    name = f"{database}.orc_people"
    spark_lake.rows(ENCRYPTED_ORC.format(name))
    spark_lake.rows(f"INSERT INTO {name} {VALUES}")
    return name


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest().upper()


def test_who_may_select_the_columns_sees_them(spark_lake: SparkLake, people: str) -> None:
    rows = spark_lake.rows(f"SELECT * FROM {people} ORDER BY name")
    assert rows == [("123-45", "ann@example", "Ann"), ("678-90", "bob@example", "Bob"), (None, None, "Nil")]
    assert spark_lake.rows(f"SELECT * FROM {people} ORDER BY name", CAROL) == rows


def test_who_may_not_sees_the_masks_and_filters_what_they_show(spark_lake: SparkLake, people: str) -> None:
    with denied(spark_lake, "ssn", "email"):
        shown = spark_lake.rows(f"SELECT * FROM {people} ORDER BY name", CAROL)
        assert shown == [
            (None, hashed("ann@example"), "Ann"),
            (None, hashed("bob@example"), "Bob"),
            (None, None, "Nil"),
        ]
        conditions = {
            "ssn = '123-45'": [],
            "ssn IS NULL": ["Ann", "Bob", "Nil"],
            "NOT (email = 'ann@example')": ["Ann", "Bob"],
            "email = 'ann@example'": [],
            f"email = '{hashed('ann@example')}'": ["Ann"],
            f"email = '{hashed('ann@example')}' AND name = 'Bob'": [],
            "email < 'a' OR name = 'Nil'": ["Ann", "Bob", "Nil"],
        }
        asked = " UNION ALL ".join(
            f"SELECT {place} AS place, name FROM {people} WHERE {condition}"
            for place, condition in enumerate(conditions)
        )
        found: list[list[str]] = [[] for _ in conditions]
        for place, name in sorted(map(tuple, spark_lake.rows(asked, CAROL))):
            found[place].append(name)
        assert dict(zip(conditions, found, strict=True)) == conditions
        assert spark_lake.rows(f"SELECT count(*) FROM {people}", CAROL) == [(3,)]
        assert spark_lake.rows(f"SELECT max(ssn), count(ssn) FROM {people}", CAROL) == [(None, 0)]
        # Another session of the same process, meanwhile.
        assert spark_lake.rows(f"SELECT max(ssn) FROM {people}", ALICE) == [("678-90",)]
        assert spark_lake.rows(f"SELECT max(ssn) FROM {people}", CAROL) == [(None,)]


def test_a_key_that_opens_a_granted_column_too_stays_closed(spark_lake: SparkLake, people: str) -> None:
    """Both columns are under one key: who may select one of them alone gets an error."""
    with denied(spark_lake, "ssn"):
        refused(spark_lake, f"SELECT email FROM {people}", "NOT_AUTHORIZED", "policy-deny", CAROL)
        assert spark_lake.rows(f"SELECT ssn, name FROM {people} WHERE name = 'Ann'", CAROL) == [(None, "Ann")]


@pytest.mark.nightly
def test_nothing_but_masked_columns_needs_the_rest(spark_lake: SparkLake, people: str) -> None:
    with denied(spark_lake, "ssn", "name"):
        refused(spark_lake, f"SELECT ssn FROM {people}", "NOT_AUTHORIZED", "policy-deny", CAROL)
        refused(spark_lake, f"SELECT name FROM {people}", "NOT_AUTHORIZED", "policy-deny", CAROL)


@pytest.mark.nightly
def test_a_renamed_column_keeps_its_mask(spark_lake: SparkLake, database: str) -> None:
    name = f"{database}.orc_renamed"
    spark_lake.rows(ENCRYPTED_ORC.format(name))
    spark_lake.rows(f"INSERT INTO {name} {VALUES}")
    spark_lake.rows(f"ALTER TABLE {name} RENAME COLUMN ssn TO number")
    spark_lake.rows(f"INSERT INTO {name} {VALUES}")
    with denied(spark_lake, "ssn", "number", "email"):
        assert spark_lake.rows(f"SELECT DISTINCT number FROM {name}", CAROL) == [(None,)]


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["orc", "parquet"])
def test_one_key_for_all_and_a_mask_hide_the_column_in_the_engine(
    spark_lake: SparkLake, database: str, using: str
) -> None:
    name = f"{database}.{using}_uniform"
    properties = "'encryption.mechanism' = 'envelope', 'encryption.masks' = 'nullify:ssn,st'"
    columns = "id INT, ssn STRING, st STRUCT<a: INT>"
    spark_lake.rows(f"CREATE TABLE {name} ({columns}) USING {using} TBLPROPERTIES ({properties})")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 's1', named_struct('a', 1)), (2, 's2', NULL)")
    with denied(spark_lake, "ssn", "st"):
        assert spark_lake.rows(f"SELECT * FROM {name} ORDER BY id", CAROL) == [
            (1, None, None),
            (2, None, None),
        ]
        assert spark_lake.rows(f"SELECT id FROM {name} WHERE ssn = 's1'", CAROL) == []
        assert spark_lake.rows(f"SELECT count(*) FROM {name} WHERE st.a IS NULL", CAROL) == [(2,)]
    assert spark_lake.rows(f"SELECT ssn, st.a FROM {name} ORDER BY id", CAROL) == [("s1", 1), ("s2", None)]


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["orc", "parquet"])
def test_files_from_before_the_mask_show_nothing_of_the_column(
    spark_lake: SparkLake, database: str, using: str
) -> None:
    name = f"{database}.{using}_migrated"
    spark_lake.rows(f"CREATE TABLE {name} (id INT, ssn STRING) USING {using}")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 's1')")
    spark_lake.rows(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('encryption.columns' = 'pii:ssn', "
        "'encryption.masks' = 'nullify:ssn')"
    )
    spark_lake.rows(f"INSERT INTO {name} VALUES (2, 's2')")
    with denied(spark_lake, "ssn"):
        assert spark_lake.rows(f"SELECT * FROM {name} ORDER BY id", CAROL) == [(1, None), (2, None)]


@pytest.mark.nightly
def test_numbers_and_days_are_redacted(spark_lake: SparkLake, database: str) -> None:
    name = f"{database}.orc_redacted"
    columns = "id INT, n INT, d DOUBLE, dt DATE, ts TIMESTAMP, st STRUCT<a: INT>, name STRING"
    properties = "'encryption.columns' = 'pii:n,d,dt,ts,st', 'encryption.masks' = 'redact:n,d,dt,ts,st'"
    spark_lake.rows(f"CREATE TABLE {name} ({columns}) USING orc TBLPROPERTIES ({properties})")
    spark_lake.rows(
        f"INSERT INTO {name} VALUES (1, 1234, 12.34, DATE'2020-05-06', "
        "TIMESTAMP'2020-05-06 07:08:09', named_struct('a', 77), 'x')"
    )
    real = spark_lake.rows(f"SELECT * FROM {name}")[0]
    with denied(spark_lake, "n", "d", "dt", "ts", "st"):
        shown = spark_lake.rows(f"SELECT * FROM {name}", CAROL)[0]
    assert shown.n == 9999 and shown.st.a == 99 and (shown.id, shown.name) == (1, "x")
    assert shown.dt != real.dt and shown.d != real.d and shown.ts != real.ts
    assert (real.n, real.dt.isoformat(), real.d) == (1234, "2020-05-06", 12.34)


@pytest.fixture(scope="module")
def maskable(spark_lake: SparkLake) -> dict[str, tuple[str, str]]:
    """By format the name and the columns of an encrypted table without masks."""
    namespace = spark_lake.namespace()
    columns = """n INT, s STRING, bin BINARY, st STRUCT<a: STRING>, dec DECIMAL(9,2), must INT NOT NULL,
        text STRING NOT NULL, money DECIMAL(9,2) NOT NULL"""
    for using in ("orc", "parquet"):
        spark_lake.rows(
            f"CREATE TABLE {namespace}.{using} ({columns}) USING {using} "
            "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
        )
    return {using: (f"{namespace}.{using}", columns) for using in ("orc", "parquet")}


@pytest.mark.nightly
@each_row(
    "using, mask, rule, hint",
    [
        ("orc", "redact:s", "mask-type", "Use nullify or sha256."),
        ("orc", "redact:bin", "mask-type", "Use nullify or sha256."),
        ("orc", "redact:st", "mask-type", "Use nullify."),
        ("orc", "redact:dec", "mask-type", "Use nullify."),
        ("orc", "redact:text", "mask-type", "Use sha256."),
        ("orc", "redact:money", "mask-type", "DROP NOT NULL and use nullify"),
        ("orc", "sha256:n", "mask-type", "Use nullify or redact."),
        ("orc", "nullify:must", "mask-type", "DROP NOT NULL and use nullify"),
        ("orc", "nullify:st.a", "nested-column", ""),
        ("orc", "nullify:absent", "unknown-column", ""),
        ("parquet", "sha256:s", "format-property", ""),
        ("parquet", "redact:n", "format-property", ""),
        ("parquet", "nullify:must", "mask-type", "DROP NOT NULL and use nullify"),
    ],
)
def test_a_mask_that_files_cannot_hold_is_refused_at_create_and_alter(
    spark_lake: SparkLake,
    maskable: dict[str, tuple[str, str]],
    using: str,
    mask: str,
    rule: str,
    hint: str,
) -> None:
    """With what to do instead, which is of no use if it is refused as well."""
    table, columns = maskable[using]
    properties = f"'encryption.mechanism' = 'envelope', 'encryption.masks' = '{mask}'"
    create = f"CREATE TABLE {table}_masked ({columns}) USING {using} TBLPROPERTIES ({properties})"
    assert hint in refused(spark_lake, create, "PROPERTY_INVALID", rule)
    alter = f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.masks' = '{mask}')"
    refused(spark_lake, alter, "PROPERTY_INVALID", rule)


@pytest.mark.nightly
def test_a_hash_of_bytes_is_of_the_value_alone(spark_lake: SparkLake, database: str) -> None:
    name = f"{database}.orc_bytes"
    properties = "'encryption.columns' = 'pii:bin', 'encryption.masks' = 'sha256:bin'"
    spark_lake.rows(f"CREATE TABLE {name} (id INT, bin BINARY) USING orc TBLPROPERTIES ({properties})")
    spark_lake.rows(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, X'01'), (2, X'0203')")
    with denied(spark_lake, "bin"):
        shown = spark_lake.rows(f"SELECT bin FROM {name} ORDER BY id", CAROL)
    assert [bytes(row.bin) for row in shown] == [hashlib.sha256(each).digest() for each in (b"\1", b"\2\3")]


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["orc", pytest.param("parquet", marks=pytest.mark.nightly)])
def test_a_mask_shows_null_in_a_snapshot_whose_column_was_required(
    spark_lake: SparkLake, database: str, using: str
) -> None:
    name = f"{database}.{using}_once_required"
    columns = "id INT, v INT NOT NULL, n STRING NOT NULL"
    properties = "'encryption.columns' = 'pii:v,n'"
    spark_lake.rows(f"CREATE TABLE {name} ({columns}) USING {using} TBLPROPERTIES ({properties})")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 10, 'a'), (2, 20, 'b')")
    first = stock_table(spark_lake, name).current_snapshot()
    assert first is not None
    then = f"{name} VERSION AS OF {first.snapshot_id}"
    for change in ("ALTER COLUMN v DROP NOT NULL", "ALTER COLUMN n DROP NOT NULL"):
        spark_lake.rows(f"ALTER TABLE {name} {change}")
    spark_lake.rows(f"ALTER TABLE {name} SET TBLPROPERTIES ('encryption.masks' = 'nullify:v,n')")
    with denied(spark_lake, "v", "n"):
        for query, found in (
            (f"SELECT * FROM {then} ORDER BY id", [(1, None, None), (2, None, None)]),
            (f"SELECT count(v), sum(v), min(v), max(n) FROM {then}", [(0, None, None, None)]),
            (f"SELECT id FROM {then} WHERE v < 5 OR n IS NOT NULL", []),
            (f"SELECT count(*) FROM {then} WHERE v IS NULL", [(2,)]),
        ):
            assert spark_lake.rows(query, CAROL) == found, query
    assert spark_lake.rows(f"SELECT sum(v), max(n) FROM {then}") == [(30, "b")]


@pytest.mark.nightly
@pytest.mark.parametrize("mechanism", [pytest.param("plaintext", marks=pytest.mark.nightly), "envelope"])
def test_a_required_column_without_a_mask_in_the_file_is_refused(
    spark_lake: SparkLake, database: str, mechanism: str
) -> None:
    """The file is older than the mask, so that it would be NULL, in plaintext or with ORC's own mask."""
    name = f"{database}.orc_required_{mechanism}"
    columns, keys = "id INT, n STRING NOT NULL, v INT NOT NULL", "'encryption.columns' = 'pii:n,v'"
    before = keys if mechanism == "envelope" else "'encryption.mechanism' = 'plaintext'"
    spark_lake.rows(f"CREATE TABLE {name} ({columns}) USING orc TBLPROPERTIES ({before})")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'a', 5)")
    masks = f"{keys}, 'encryption.masks' = 'sha256:n;redact:v'"
    spark_lake.rows(f"ALTER TABLE {name} SET TBLPROPERTIES ({masks})")
    with denied(spark_lake, "n", "v"):
        for wanted in ("n", "v", "max(n)", "sum(v)"):
            sql = f"SELECT {wanted} FROM {name}"
            assert "rewrite the table" in refused(spark_lake, sql, "NOT_SUPPORTED_YET", "mask-type", CAROL)
        spark_lake.rows(f"CALL lake.system.rewrite_data_files(table => '{name.removeprefix('lake.')}')")
        assert spark_lake.rows(f"SELECT * FROM {name}", CAROL) == [(1, hashed("a"), 9)]
