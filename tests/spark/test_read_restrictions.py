"""Row filters and masks in Spark: rows and values as the plan says, whatever a user writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField
from pyspark.errors import StreamingQueryException

from catalog.client.columns import arrow_type
from policy.restrictions.predicate import FALSE, Compare, Comparison, In, Literal, Predicate, all_of, any_of
from policy.restrictions.wire import predicate_json
from policy.restrictions.wire_reading import restriction_of
from tests.client.test_client_restrictions import (
    KINDS,
    ROWS,
    arrow,
    conditions,
    masks_of_table,
    naive_view,
    table,
    types_in_arrow,
)
from tests.client.test_client_restrictions import SCHEMA as FILTERED
from tests.spark.test_streams import offsets, read, rows, run
from tests.support import naive_restrictions as naive
from tests.support.restrictions import field_ids, restricted
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table

pytestmark = pytest.mark.core

#: Types of the vectors that Spark does not read.
NOT_READ = ("time", "uuid", "timestamp_ns", "timestamptz_ns")
#: Types whose values are written and asked for as numbers, since Python has few years.
WRITTEN = {
    "date": "date_from_unix_date({})",
    "timestamp": "CAST(timestamp_micros({}) AS TIMESTAMP_NTZ)",
    "timestamptz": "timestamp_micros({})",
}
ASKED = {
    "date": "unix_date({})",
    "timestamp": "unix_micros(CAST({} AS TIMESTAMP))",
    "timestamptz": "unix_micros({})",
}
#: Types that texts show as numbers.
NUMBERS = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}
#: ORC cannot store times within this many microseconds before 1970, which one row of the vectors has.
NOT_IN_ORC = 1_000_000, 1


COLUMNS = (
    "id INT, s STRING, st STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<x: STRING>>, m MAP<STRING, INT>, d DATE"
)
VALUES = (
    "SELECT id, concat('Ab', id, '-é'), named_struct('a', id, 'b', concat('b', id)), "
    "array(named_struct('x', 'y1'), null), map('k', 7), date'2020-05-06' "
    "FROM (SELECT CAST(id AS INT) id FROM range(10))"
)


def test_masks_show_four_code_points_of_texts_that_are_not_utf_8(
    spark_lake: SparkLake, namespace: str
) -> None:
    name = f"{namespace}.t"
    values = "CAST(X'80818283848586' AS STRING) a, CAST(X'E1616263E164656667' AS STRING) b"
    spark_lake.rows(f"CREATE TABLE {name} AS SELECT {values}")
    ids = field_ids(spark_lake, name)
    with restricted(masks={ids["a"]: "show-first-4", ids["b"]: "show-last-4"}):
        ((first, last),) = spark_lake.rows(f"SELECT hex(a), hex(b) FROM {name}")
    assert (first, last) == ("EFBFBD" * 4 + "78" * 3, "78" * 5 + "64656667")


@pytest.mark.parametrize("using", [pytest.param("parquet", marks=pytest.mark.nightly), "orc"])
def test_a_row_filter_is_applied_before_masks_and_both_before_the_query(
    spark_lake: SparkLake, namespace: str, using: str
) -> None:
    name = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {name} ({COLUMNS}) USING {using}")
    spark_lake.rows(f"INSERT INTO {name} {VALUES}")
    ids = field_ids(spark_lake, name)
    masks = {
        ids["s"]: "show-first-4",
        ids["st.a"]: "hive-mask",
        ids["l.element.x"]: "mask-alphanum",
        ids["m.value"]: "sha-256-query-local",
        ids["d"]: "truncate-to-year",
    }
    with restricted(Compare(Comparison.LT, ids["st.b"], Literal("string", "b2")), masks):
        rows = spark_lake.rows(f"SELECT id, s, st, l, d FROM {name} ORDER BY id")
        day = date(2020, 1, 1)
        assert [(r.id, r.s, tuple(r.st), r.l[0].x, r.l[1], r.d) for r in rows] == [
            (0, "Ab0-x", (1, "b0"), "xn", None, day),
            (1, "Ab1-x", (1, "b1"), "xn", None, day),
        ]
        asked = f"SELECT count(*), max(s), max(d), sum(st.a), min(id) FROM {name} WHERE s = 'Ab1-x'"
        assert spark_lake.rows(asked) == [(1, "Ab1-x", day, 1, 1)]
        assert spark_lake.rows(f"SELECT count(*), count(s), max(d), max(id) FROM {name}") == [(2, 2, day, 1)]
        assert spark_lake.rows(f"SELECT id FROM {name} WHERE st.b >= 'b2' OR s = 'Ab1-é'") == []
        assert len(spark_lake.rows(f"SELECT d FROM {name} LIMIT 5")) == 2
        joined = f"SELECT a.m['k'] FROM {name} a JOIN {name} b ON a.m['k'] = b.m['k']"
        (first,) = {row[0] for row in spark_lake.rows(joined)}
        (second,) = {row[0] for row in spark_lake.rows(joined)}
        assert first != second and 7 not in (first, second)


@pytest.mark.nightly
def test_a_stream_shows_what_the_user_sees_and_its_offsets_tell_of_no_file(
    spark_lake: SparkLake, namespace: str, tmp_path: Path
) -> None:
    source, target = f"{namespace}.t", f"{namespace}.out"
    for name in (source, target):
        create_table(spark_lake, name, "id INT, s STRING")
    hidden = Compare(Comparison.LT, 1, Literal("int", 10))
    spark_lake.rows(f"INSERT INTO {source} VALUES (1, 'one'), (11, 'eleven')")
    spark_lake.rows(f"INSERT INTO {source} VALUES (12, 'twelve')")
    with restricted(hidden, {2: "mask-alphanum"}):
        run(read(spark_lake, source), tmp_path, target)
        spark_lake.rows(f"INSERT INTO {source} VALUES (2, 'two'), (13, 'thirteen')")
        run(read(spark_lake, source), tmp_path, target)
        assert rows(spark_lake, target) == [(1, "xxx"), (2, "xxx")]
        assert {position for position, _ in offsets(tmp_path)} <= {0, 2**31 - 1}
        limited = read(spark_lake, source, streaming_max_files_per_micro_batch=1)
        with pytest.raises(StreamingQueryException, match="Remove the limit"):
            run(limited, tmp_path / "limited", target)
    spark_lake.rows(f"INSERT INTO {source} VALUES (3, 'three')")
    run(read(spark_lake, source), tmp_path, target)
    assert rows(spark_lake, target) == [(1, "xxx"), (2, "xxx"), (3, "three")]


@pytest.fixture
def utc(spark_lake: SparkLake) -> Iterator[None]:
    """Times without a zone have one number."""
    conf = spark_lake.spark.conf
    zone = conf.get("spark.sql.session.timeZone")
    conf.set("spark.sql.session.timeZone", "UTC")
    yield
    conf.set("spark.sql.session.timeZone", zone or "UTC")


def in_format(kind: str, value: Any, using: str) -> bool:
    """Whether a format can store a value."""
    return using != "orc" or "timestamp" not in kind or value is None or not -NOT_IN_ORC[0] < value < 0


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["parquet", pytest.param("orc", marks=pytest.mark.nightly)])
@pytest.mark.usefixtures("utc")
def test_masks_make_what_the_vectors_say(spark_lake: SparkLake, namespace: str, using: str) -> None:
    groups = [
        (group, kind)
        for group, kind in types_in_arrow()
        if group["type"] not in NOT_READ and "salt" not in group
    ]
    assert len({group["action"] for group, _ in groups}) == 12
    columns, shown = {}, []
    for at, (group, kind) in enumerate(groups):
        pairs = [
            [naive.value_of(group["type"], case[side]) for side in ("value", "masked")]
            for case in group["cases"]
        ]
        pairs = [pair for pair in pairs if in_format(str(group["type"]), pair[0], using)]
        pairs += [[None, None]] * (20 - len(pairs))
        shown.append([masked for _, masked in pairs])
        values = [value for value, _ in pairs]
        if str(group["type"]) in WRITTEN:
            columns[f"c{at}"] = pa.array(values, pa.int32() if group["type"] == "date" else pa.int64())
        else:
            columns[f"c{at}"] = arrow(arrow_type(kind, ids=kind.is_struct), values).cast(arrow_type(kind))
    columns["id"] = pa.array(range(20), pa.int32())
    names = {f"c{at}": str(group["type"]) for at, (group, _) in enumerate(groups)}
    kinds = [LongType() if str(group["type"]) in WRITTEN else kind for group, kind in groups]
    kinds = [
        IntegerType() if group["type"] == "date" else kind
        for (group, _), kind in zip(groups, kinds, strict=True)
    ]
    fields = [NestedField(at + 1, f"c{at}", kind) for at, kind in enumerate(kinds)]
    written, name = f"{namespace}.written", f"{namespace}.masked"
    schema = Schema(*fields, NestedField(len(fields) + 1, "id", IntegerType()))
    spark_lake.service.iceberg().create_table(written.removeprefix("lake."), schema).append(pa.table(columns))
    # In a copy, `fixed` is of no length.
    listed = [f"{WRITTEN.get(kind, '{}').format(column)} {column}" for column, kind in names.items()]
    spark_lake.rows(f"CREATE TABLE {name} USING {using} AS SELECT {', '.join(listed)}, id FROM {written}")
    for source in (written, name):
        some = [
            at for at, kind in enumerate(names.values()) if kind.startswith("fixed") is (source == written)
        ]
        ids = field_ids(spark_lake, source)
        asked = ", ".join(ASKED.get(names[f"c{at}"], "{}").format(f"c{at}") for at in some)
        with restricted(masks={ids[f"c{at}"]: groups[at][0]["action"] for at in some}):
            rows = spark_lake.rows(f"SELECT {asked} FROM {source} ORDER BY id")
        found = [[_plain(row[place]) for row in rows] for place in range(len(some))]
        wrong = [(groups[at][0], one) for at, one in zip(some, found, strict=True) if one != shown[at]]
        assert not wrong


def _plain(value: Any) -> Any:
    """A map as pairs."""
    return list(value.items()) if isinstance(value, dict) else value


def loaded(spark_lake: SparkLake, name: str, using: str, parted: str = "") -> frozenset[int]:
    """The rows of the vectors, as a standard client wrote them and Spark copied them; their numbers."""
    stored = f"{name.removeprefix('lake.')}_from"
    spark_lake.service.iceberg().create_table(stored, FILTERED).append(table([*ROWS]))
    left_out = {NOT_IN_ORC[1]} if using == "orc" else set()
    where = f"WHERE id <> {NOT_IN_ORC[1]}" if left_out else ""
    spark_lake.rows(f"CREATE TABLE {name} USING {using} {parted} AS SELECT * FROM lake.{stored} {where}")
    return frozenset(range(len(ROWS))) - left_out


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["parquet", pytest.param("orc", marks=pytest.mark.nightly)])
@pytest.mark.usefixtures("utc")
def test_row_filters_keep_the_rows_of_the_vectors(spark_lake: SparkLake, namespace: str, using: str) -> None:
    """All filters at once: no row that one keeps is missing, and none is there that one does not keep."""
    name = f"{namespace}.filtered"
    everyone = loaded(spark_lake, name, using)
    pairs = [(each["filter"], everyone - set(each["kept"])) for each in naive.vectors("filters")["filters"]]
    filters = [
        (restriction_of({"required-row-filter": said}, KINDS).row_filter, left) for said, left in pairs
    ]

    def rows(row_filter: Predicate) -> list[int]:
        with restricted(row_filter):
            return [row.id for row in spark_lake.rows(f"SELECT id FROM {name} ORDER BY id")]

    assert rows(all_of(*(any_of(each, among(left)) for each, left in filters))) == sorted(everyone)
    assert rows(any_of(*(all_of(each, among(left)) for each, left in filters))) == []


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["parquet", "orc"])
@pytest.mark.parametrize("files", ["one", "many"])
@pytest.mark.usefixtures("utc")
def test_each_row_filter_keeps_the_rows_of_the_vectors(
    spark_lake: SparkLake, namespace: str, using: str, files: str
) -> None:
    """Also where parts of files are left out, and row by row."""
    name = f"{namespace}.filtered"
    everyone = loaded(spark_lake, name, using, "" if files == "one" else "PARTITIONED BY (id)")
    shown = []
    spark_lake.spark.conf.set("spark.sql.codegen.wholeStage", files == "one")
    try:
        for each in naive.vectors("filters")["filters"]:
            with restricted(restriction_of({"required-row-filter": each["filter"]}, KINDS).row_filter):
                shown.append(
                    (each["sql"], sorted(row.id for row in spark_lake.rows(f"SELECT id FROM {name}")))
                )
    finally:
        spark_lake.spark.conf.unset("spark.sql.codegen.wholeStage")
    assert shown == [
        (each["sql"], sorted(everyone & set(each["kept"]))) for each in naive.vectors("filters")["filters"]
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["parquet", "orc"])
@pytest.mark.usefixtures("utc")
def test_a_restricted_table_shows_what_a_naive_evaluation_shows(
    spark_lake: SparkLake, namespace: str, using: str
) -> None:
    """But for hashes of one query, whose salt nobody knows."""
    name = f"{namespace}.filtered"
    everyone = loaded(spark_lake, name, using)
    rows = [row for row in ROWS if row[1] in everyone]

    @settings(max_examples=60, deadline=None)
    @given(conditions(), masks_of_table())
    def check(condition: Predicate, masks: dict[int, str]) -> None:
        known = {key: mask for key, mask in masks.items() if mask != "sha-256-query-local"}
        with restricted(condition, known):
            shown = spark_lake.session().sql(f"SELECT * FROM {name}").toArrow()
        assert texts(shown) == texts(table(naive_view(rows, predicate_json(condition), known, b"")))

    check()


@pytest.mark.nightly
@pytest.mark.parametrize("using", ["parquet", "orc"])
def test_masks_inside_of_lists_and_maps_hold_beside_deletes_in_batches_of_any_size(
    spark_lake: SparkLake, namespace: str, using: str
) -> None:
    name = f"{namespace}.t"
    spark_lake.rows(
        f"CREATE TABLE {name} (id INT, st STRUCT<a: INT, b: STRING>, "
        f"l ARRAY<STRUCT<x: STRING, y: ARRAY<INT>>>, m MAP<STRING, STRUCT<v: STRING>>) USING {using} "
        "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    )
    spark_lake.rows(
        f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, "
        "IF(id % 5 = 0, NULL, named_struct('a', IF(id % 3 = 0, NULL, id), 'b', concat('b', id % 11))), "
        "IF(id % 6 = 0, NULL, transform(sequence(0, id % 4), i -> "
        "IF(i = 2, NULL, named_struct('x', concat('y', id, i), 'y', array(i, NULL, id))))), "
        "IF(id % 8 = 0, NULL, map('k', named_struct('v', concat('v', id)), 'n', NULL)) "
        "FROM (SELECT CAST(id AS INT) id FROM range(2000))"
    )
    spark_lake.rows(f"DELETE FROM {name} WHERE id % 13 = 5")
    ids, asked = field_ids(spark_lake, name), f"SELECT * FROM {name} WITH ('batch-size' = '{{}}')"
    masks = {
        ids["st.a"]: "hive-mask",
        ids["l.element.x"]: "mask-alphanum",
        ids["l.element.y.element"]: "hive-show-first-4",
        ids["m.value.v"]: "sha-256-global",
    }
    hidden = Compare(Comparison.LT, ids["st.b"], Literal("string", "b3"))
    every = [row.asDict(recursive=True) for row in spark_lake.rows(asked.format(4096))]
    kept = sorted(str(_seen(row)) for row in every if row["st"] and row["st"]["b"] < "b3")
    assert len(every) == 1846 and 100 < len(kept) < 1000
    conf = spark_lake.session().conf
    for size, compiled in ((7, True), (7, False), (4096, True)):
        conf.set("spark.sql.codegen.wholeStage", compiled)
        try:
            with restricted(hidden, masks):
                shown = spark_lake.rows(asked.format(size))
        finally:
            conf.unset("spark.sql.codegen.wholeStage")
        assert sorted(str(row.asDict(recursive=True)) for row in shown) == kept


def _seen(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the masks show it."""

    def shown(action: str, kind: str, value: Any) -> Any:
        return naive.masked(action, kind, value)

    listed, items = row["l"], row["m"]
    elements = listed and [
        each
        and {
            "x": shown("mask-alphanum", "string", each["x"]),
            "y": [shown("hive-show-first-4", "int", one) for one in each["y"]],
        }
        for each in listed
    ]
    values = items and {
        key: each and {"v": shown("sha-256-global", "string", each["v"])} for key, each in items.items()
    }
    struct = row["st"] | {"a": shown("hive-mask", "int", row["st"]["a"])}
    return {"id": row["id"], "st": struct, "l": elements, "m": values}


def texts(shown: pa.Table) -> list[str]:
    """The rows as sorted texts."""
    columns = [each.cast(NUMBERS.get(each.type, each.type)).to_pylist() for each in shown.columns]
    return sorted(map(str, zip(*columns, strict=True)))


def among(ids: Collection[int]) -> Predicate:
    """The rows with these numbers."""
    return In(1, tuple(Literal("int", each) for each in sorted(ids))) if ids else FALSE
