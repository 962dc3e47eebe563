"""Counts, least and greatest values out of the footers of files: the same as out of their rows."""

from __future__ import annotations

import ctypes
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.support.lake import CAROL, policy, standard_policies
from tests.support.reads import publish, refused, with_ids
from tests.support.row_deletes import RowDeletes
from tests.support.spark import SparkLake
from tests.support.spark_plans import explained, tasks_with_rows
from tests.support.spark_tables import create_table, data_files, local_path, stock_table
from tests.support.tables import ENCRYPTED
from tests.support.vectors import each_row

pytestmark = pytest.mark.core

COLUMNS = """id BIGINT, i INT, b BOOLEAN, day DATE, ts TIMESTAMP, wall TIMESTAMP_NTZ, m DECIMAL(9,2),
    w DECIMAL(18,3), h DECIMAL(30,4), f FLOAT, d DOUBLE, s STRING, raw BINARY,
    who STRUCT<age: INT>, l ARRAY<INT>"""
BOUNDED = ("id", "i", "b", "day", "ts", "wall", "m", "w", "h")
COUNTED = (*BOUNDED, "f", "d", "s", "raw")
NAMES = (*COUNTED, "who", "l")


def every(*bounded: str) -> str:
    """Every aggregate that is pushed down, with least and greatest values of some columns."""
    counts = ["count(*)", *(f"count({c})" for c in COUNTED)]
    return ", ".join([*counts, *(f"{f}({c})" for c in bounded for f in ("min", "max"))])


ALL = every(*BOUNDED)
#: Footers of ORC do not tell of times.
ALL_ORC = every(*(name for name in BOUNDED if name not in {"ts", "wall"}))
#: Files with column keys and an encrypted footer are among those of the mixed table.
MODES = {
    "clear": {},
    "uniform": ENCRYPTED,
    "column keys, CTR, footers in plaintext": {
        "encryption.columns": "aggregates-one:i,m,s;aggregates-two:ts,d",
        "encryption.algorithm": "AES_GCM_CTR_V1",
        "encryption.footer": "plaintext",
    },
}


@pytest.fixture(scope="module")
def keys(spark_lake: SparkLake) -> None:
    for key in ("aggregates-one", "aggregates-two"):
        spark_lake.lake.kms.create_master_key(key)


def values(rng: random.Random, nulls: float) -> str:
    """A row of literals."""
    number = rng.choice([0, -1, 1, 7, -120, 2**31 - 1, -(2**31), rng.randint(-(10**6), 10**6)])
    given = [
        f"bigint({number * 2**20})",
        f"int({number})",
        rng.choice(["true", "false"]),
        f"date_add(date'1970-01-01', {number % 90000 - 45000})",
        f"timestamp_micros({number * 1000003})",
        f"cast(timestamp_micros({number * 1999983}) as timestamp_ntz)",
        f"cast({number % 1000000} / 7 as decimal(9,2))",
        f"cast({number * -3} as decimal(18,3))",
        f"cast({number * 1000000007} as decimal(30,4))",
        rng.choice(["float('NaN')", f"float({number})", "float('-0.0')"]),
        rng.choice(["double('NaN')", f"double({number})", "double('0.0')"]),
        f"'{'x' * (number % 40)}é{number}'",
        f"cast('{number}' as binary)",
        f"named_struct('age', {number})",
        f"array({number}, null)",
    ]
    return "(" + ", ".join("null" if rng.random() < nulls else each for each in given) + ")"


def insert(spark_lake: SparkLake, table: str, seed: int, rows: int, nulls: float) -> None:
    rng = random.Random(seed)
    literals = ", ".join(values(rng, nulls) for _ in range(rows))
    listed = ", ".join(NAMES)
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {literals} AS t({listed})")


def pushed(spark_lake: SparkLake, query: str) -> bool:
    """Whether footers answer a query."""
    return pushed_in(spark_lake.session().sql(query))


def pushed_in(frame: Any) -> bool:
    return "PushedAggregation: [" in explained(frame)


@contextmanager
def openings(path: Path) -> Iterator[Callable[[], int]]:
    """How often a file is opened meanwhile, as the kernel tells (of like events in a row it tells one)."""
    libc, on_read, on_close, on_open = ctypes.CDLL(None, use_errno=True), 0x1, 0x10, 0x20
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        assert libc.inotify_add_watch(watch, os.fsencode(path), on_read | on_close | on_open) >= 0
        yield lambda: sum(
            mask == on_open for _, mask, _, _ in struct.iter_unpack("iIII", os.read(watch, 65536))
        )
    finally:
        os.close(watch)


def agree(spark_lake: SparkLake, table: str, wanted: str = ALL) -> list[object]:
    """The aggregates as they are pushed down, after comparing them with those of a query that reads rows."""
    answered = spark_lake.session().sql(f"SELECT {wanted} FROM {table}")
    assert pushed_in(answered)
    (found,) = answered.collect()
    # One aggregate that no footer tells keeps all of them with the rows.
    read = spark_lake.session().sql(f"SELECT {wanted}, any_value(1) FROM {table}")
    assert not pushed_in(read)
    (by_rows,) = read.collect()
    assert [*map(repr, found)] == [*map(repr, by_rows[:-1])]
    return list(found)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
def test_aggregates_are_those_of_the_rows(
    spark_lake: SparkLake, namespace: str, keys: None, mode: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, COLUMNS, MODES[mode])
    for seed, (rows, nulls) in enumerate(((20, 0.2), (5, 1.0), (1, 0.0))):
        insert(spark_lake, table, seed, rows, nulls)
    assert agree(spark_lake, table)[0] == 26
    agree(spark_lake, table, "max(ts), count(ts)")
    agree(spark_lake, table, "min(id), count(*) + max(i)")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"encryption.mechanism": "envelope"},
        {
            "encryption.columns": "aggregates-one:i,m,s;aggregates-two:h,day",
            "encryption.verify-digest": "always",
        },
    ],
)
def test_aggregates_out_of_orc_are_those_of_the_rows(
    spark_lake: SparkLake, namespace: str, keys: None, properties: dict[str, str]
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, COLUMNS, {"write.format.default": "orc", **properties})
    assert agree(spark_lake, table, ALL_ORC)[0] == 0
    for seed, (rows, nulls) in enumerate(((20, 0.2), (5, 1.0), (1, 0.0))):
        insert(spark_lake, table, seed, rows, nulls)
    assert agree(spark_lake, table, ALL_ORC)[0] == 26
    for times in ("max(ts)", "min(wall), count(*)"):
        assert not pushed(spark_lake, f"SELECT {times} FROM {table}")
    spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN id TO old")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN id BIGINT")
    assert agree(spark_lake, table, "count(id), max(id), max(old)")[:2] == [0, None]


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, {"encryption.mechanism": "envelope"}])
def test_stripes_are_counted_once_by_whichever_task_they_belong_to(
    spark_lake: SparkLake, namespace: str, properties: dict[str, str]
) -> None:
    table = f"{namespace}.t"
    small = {"write.format.default": "orc", "write.orc.stripe-size-bytes": "1000", **properties}
    create_table(spark_lake, table, "id BIGINT, m DECIMAL(9,2), s STRING", small)
    spark_lake.rows(
        f"INSERT INTO {table} SELECT id, if(id % 7 = 0, null, cast(id / 100 as decimal(9,2))), "
        "sha2(string(id), 256) FROM range(-5000, 15000, 1, 1)"
    )
    (file,) = data_files(spark_lake, table)
    assert len(file["split_offsets"]) > 2
    session = spark_lake.session()
    session.conf.set("spark.sql.files.maxPartitionBytes", "100000")
    session.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        assert tasks_with_rows(session.table(table)) > 3
        wanted = "count(*), count(m), min(id), max(id), min(m), max(m)"
        assert agree(spark_lake, table, wanted)[:4] == [20000, 20000 - 2857, -5000, 14999]
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")
        session.conf.unset("spark.sql.files.openCostInBytes")


@pytest.mark.nightly
def test_no_rows_are_counted_as_none(spark_lake: SparkLake, namespace: str) -> None:
    """Neither of a table without a snapshot, nor of one without files."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, s STRING", ENCRYPTED)
    wanted = "count(*), count(s), min(id), max(id)"
    assert agree(spark_lake, table, wanted) == [0, 0, None, None]
    spark_lake.rows(f"INSERT INTO {table} SELECT id, 'x' FROM range(5) WHERE id > 100")
    assert agree(spark_lake, table, wanted) == [0, 0, None, None]
    spark_lake.rows(f"INSERT INTO {table} SELECT id, null FROM range(5)")
    assert agree(spark_lake, table, wanted) == [5, 0, 0, 4]


@each_row(
    "wanted, rest",
    [
        ("min(f)", ""),
        ("max(d), count(*)", ""),
        ("min(s)", ""),
        ("max(raw)", ""),
        ("count(who)", ""),
        ("count(l)", ""),
        ("max(who.age)", ""),
        ("count(DISTINCT i)", ""),
        ("sum(i)", ""),
        ("count(*), avg(i)", ""),
        ("count(*) FILTER (WHERE i > 0)", ""),
        ("max(i + 1)", ""),
        ("count(*)", "WHERE i > 0"),
        ("count(*)", "WHERE s IS NOT NULL"),
        ("count(*)", "GROUP BY b"),
        ("min(i)", "GROUP BY day"),
    ],
)
def test_what_footers_do_not_tell_is_not_pushed_down(
    spark_lake: SparkLake, mixed: str, wanted: str, rest: str
) -> None:
    assert not pushed(spark_lake, f"SELECT {wanted} FROM {mixed} {rest}")


@pytest.fixture(scope="module")
def mixed(spark_lake: SparkLake, keys: None) -> str:
    """A table whose files are of several schemas, types, epochs and formats."""
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.aggregates")
    table = "lake.aggregates.mixed"
    create_table(spark_lake, table, COLUMNS)
    insert(spark_lake, table, 1, 10, 0.2)
    for number, changes in enumerate(
        (
            ("RENAME COLUMN id TO k",),
            ("RENAME COLUMN i TO id", "RENAME COLUMN k TO i"),
            ("ALTER COLUMN id TYPE BIGINT", "ALTER COLUMN m TYPE DECIMAL(12,2)"),
            ("SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')", "DROP COLUMN w"),
            ("ADD COLUMN w DECIMAL(18,3)",),
            ("SET TBLPROPERTIES ('encryption.columns' = 'aggregates-one:i,m,s;aggregates-two:ts,d')",),
        )
    ):
        for change in changes:
            spark_lake.rows(f"ALTER TABLE {table} {change}")
        columns = spark_lake.session().table(table).schema
        rng = random.Random(number)
        literals = ", ".join(values(rng, 0.1) for _ in range(4))
        # Numbers by the type of the column, whatever it is called by then.
        of_type = {"int": "i", "bigint": "id"}
        taken = ", ".join(of_type.get(each.dataType.simpleString(), each.name) for each in columns)
        rows = f"VALUES {literals} AS t({', '.join(NAMES)})"
        spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ {taken} FROM {rows}")
    return table


@pytest.mark.nightly
def test_files_of_several_schemas_types_and_epochs_give_one_answer(spark_lake: SparkLake, mixed: str) -> None:
    assert agree(spark_lake, mixed)[0] == 34
    for name in ("id", "i", "m", "w"):
        agree(spark_lake, mixed, f"min({name}), max({name}), count({name})")


def damage(file: dict[str, Any], at: int) -> None:
    path = local_path(file)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_footers_that_are_judged_answer_and_no_page_is_read(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT", ENCRYPTED)
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(10)")
    query = f"SELECT count(*), max(id) FROM {table}"
    (file,) = data_files(spark_lake, table)
    damage(file, 60)
    assert [*spark_lake.rows(query)[0]] == [10, 9]
    with pytest.raises(PySparkException, match="DecryptionRefused"):
        spark_lake.rows(f"SELECT sum(id) FROM {table}")
    damage(file, -20)
    with pytest.raises(PySparkException, match="DecryptionRefused"):
        spark_lake.rows(query)


@pytest.mark.parametrize("verify", ["never", "always"])
def test_a_footer_of_orc_answers_without_a_stripe_but_not_for_a_file_that_is_another(
    spark_lake: SparkLake, namespace: str, verify: str
) -> None:
    table = f"{namespace}.t"
    properties = {"encryption.mechanism": "envelope", "encryption.verify-digest": verify}
    create_table(spark_lake, table, "id BIGINT", {"write.format.default": "orc", **properties})
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(10)")
    query = f"SELECT count(*), max(id) FROM {table}"
    (file,) = data_files(spark_lake, table)
    size = local_path(file).stat().st_size
    assert [*spark_lake.rows(query)[0]] == [10, 9]
    damage(file, 10)
    if verify == "always":
        with pytest.raises(PySparkException, match="file-digest"):
            spark_lake.rows(query)
    else:
        assert [*spark_lake.rows(query)[0]] == [10, 9]
    assert local_path(file).stat().st_size == size


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_file_is_opened_once_and_what_was_verified_is_read_where_its_footer_does_not_answer(
    spark_lake: SparkLake, namespace: str, form: str
) -> None:
    """With `first-read`, a second opening would read the file as it then is."""
    table = f"{namespace}.t"
    properties = {"encryption.mechanism": "envelope", "encryption.verify-digest": "first-read"}
    create_table(spark_lake, table, "id BIGINT", {"write.format.default": form, **properties})
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(10)")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN later INT")
    (file,) = data_files(spark_lake, table)
    query = f"SELECT count(later), max(id) FROM {table}"
    assert pushed(spark_lake, query)
    with openings(local_path(file)) as counted:
        assert [*spark_lake.rows(query)[0]] == [0, 9]
        assert counted() == 1


def about(column: str) -> dict[str, list[str]]:
    return {"database": ["*"], "table": ["*"], "column": [column]}


@pytest.mark.nightly
def test_a_denied_column_is_not_aggregated(spark_lake: SparkLake, mixed: str) -> None:
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    grant = policy(
        "carol-aggregates", {"database": ["aggregates"], "table": ["*"], "column": ["*"]}, {CAROL: ["select"]}
    )
    deny = policy("no id", about("id"), {}, denyPolicyItems=items)
    try:
        spark_lake.lake.set_policies([*standard_policies(), grant])
        assert spark_lake.rows(f"SELECT max(id) FROM {mixed}", CAROL) == spark_lake.rows(
            f"SELECT max(id) FROM {mixed}"
        )
        spark_lake.lake.set_policies([*standard_policies(), grant, deny])
        for wanted in ("max(id)", "count(id)", "count(*)", "min(day), max(id)"):
            with pytest.raises(PySparkException, match="NotAuthorized"):
                spark_lake.rows(f"SELECT {wanted} FROM {mixed}", CAROL)
        assert spark_lake.rows(f"SELECT max(day) FROM {mixed}", CAROL) == spark_lake.rows(
            f"SELECT max(day) FROM {mixed}"
        )
    finally:
        spark_lake.lake.set_policies(standard_policies())


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_masked_column_is_aggregated_as_its_mask_shows_it(
    spark_lake: SparkLake, keys: None, form: str
) -> None:
    """A footer tells of what the mask hides, and most of all that of a file from before there was one."""
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.aggregates")
    table = f"lake.aggregates.masked_{form}"
    create_table(spark_lake, table, "id BIGINT, i INT", {"write.format.default": form})
    spark_lake.rows(f"INSERT INTO {table} SELECT id, cast(id as int) FROM range(7)")
    masks = "'encryption.columns' = 'aggregates-one:i', 'encryption.masks' = 'nullify:i'"
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ({masks})")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, cast(id as int) FROM range(7, 9)")
    grant = policy("masked", about("id") | {"database": ["aggregates"]}, {CAROL: ["select"]})
    query = f"SELECT count(*), count(i), max(i), max(id) FROM {table}"
    assert pushed(spark_lake, query)
    try:
        spark_lake.lake.set_policies([*standard_policies(), grant])
        assert [*spark_lake.rows(query, CAROL)[0]] == [9, 0, None, 8]
        assert [*spark_lake.rows(query)[0]] == [9, 9, 8, 8]
    finally:
        spark_lake.lake.set_policies(standard_policies())


@pytest.mark.nightly
def test_files_in_orc_and_states_of_the_past_are_counted_too(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, s STRING) USING orc")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, 'x' FROM range(3)")
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.format.default' = 'parquet')")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, null FROM range(3, 7)")
    wanted = "count(*), count(s), min(id), max(id)"
    assert agree(spark_lake, table, wanted) == [7, 3, 0, 6]
    assert agree(spark_lake, table, "count(*)") == [7]
    first = stock_table(spark_lake, table).history()[0].snapshot_id
    spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN id TO key")
    assert agree(spark_lake, f"{table} VERSION AS OF {first}", wanted) == [3, 3, 0, 2]
    assert agree(spark_lake, table, "max(key)") == [6]


@pytest.mark.nightly
def test_neither_deleted_rows_nor_values_that_the_file_lacks_are_counted_by_footers(
    spark_lake: SparkLake, namespace: str
) -> None:
    """A footer counts deleted rows, and values that cannot be read as the table says."""
    deleted, lacking = f"{namespace}.deleted", f"{namespace}.lacking"
    create_table(spark_lake, deleted, "id BIGINT")
    spark_lake.rows(f"INSERT INTO {deleted} SELECT * FROM range(1, 3, 1, 1)")
    (file, *_) = data_files(spark_lake, deleted)
    RowDeletes(spark_lake, deleted).positions([(file["file_path"], 1)]).commit()
    query = f"SELECT count(*), count(id), max(id) FROM {deleted}"
    assert pushed(spark_lake, query) and tuple(*spark_lake.rows(query)) == (1, 1, 1)
    RowDeletes(spark_lake, deleted).equal([1], [(1,)]).commit()
    assert tuple(*spark_lake.rows(query)) == (0, 0, None)
    create_table(spark_lake, lacking, "id BIGINT, name STRING", partitioned_by="name")
    publish(spark_lake, lacking, with_ids(pa.table({"id": [1]})), partition={"name": "a"})
    query = f"SELECT count(name), max(id) FROM {lacking}"
    assert pushed(spark_lake, query)
    refused(spark_lake, query, "NOT_SUPPORTED_YET", "absent-column")
    assert agree(spark_lake, lacking, "count(*), max(id)") == [1, 1]
