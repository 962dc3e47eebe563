"""Row filters and masks in Spark: rows and values as the plan says, whatever a user writes."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from policy.restrictions.predicate import Compare, Comparison, Literal
from tests.spark.test_streams import offsets, read, rows, run
from tests.support.restrictions import field_ids, restricted
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table

pytestmark = pytest.mark.core

VECTORS = Path(__file__).parents[1] / "vectors" / "read-restrictions"
#: The types of the vectors whose values Python and Spark write alike.
SPARK_TYPES = {
    "string": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "binary": "BINARY",
    "date": "DATE",
    "boolean": "BOOLEAN",
}


def _internal(kind: str, value: Any) -> Any:
    """A value as Python has it; a date as its number, since Python has few years."""
    if value is None:
        return None
    if kind == "date":
        year, month, day = map(int, re.findall(r"^[+-]?\d+|(?<=-)\d\d", value))
        eras, of_era = divmod(year - 1, 400)
        return date(of_era + 1, month, day).toordinal() + eras * 146097 - date(1970, 1, 1).toordinal()
    return bytearray.fromhex(value) if kind == "binary" else value


COLUMNS = (
    "id INT, s STRING, st STRUCT<a: INT, b: STRING>, l ARRAY<STRUCT<x: STRING>>, m MAP<STRING, INT>, d DATE"
)
VALUES = (
    "SELECT id, concat('Ab', id, '-é'), named_struct('a', id, 'b', concat('b', id)), "
    "array(named_struct('x', 'y1'), null), map('k', 7), date'2020-05-06' "
    "FROM (SELECT CAST(id AS INT) id FROM range(10))"
)


@pytest.mark.parametrize("using", ["parquet", "orc"])
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


def test_masks_make_what_the_vectors_say(spark_lake: SparkLake, namespace: str) -> None:
    vectors = json.loads((VECTORS / "masks.json").read_text())["masks"]
    known = [
        each
        for each in vectors
        if isinstance(each["type"], str) and each["type"] in SPARK_TYPES and "salt" not in each
    ]
    assert len({each["action"] for each in known}) == 12
    name = f"{namespace}.masked"
    columns = ", ".join(f"c{at} {SPARK_TYPES[each['type']]}" for at, each in enumerate(known))
    spark_lake.rows(f"CREATE TABLE {name} (id INT, {columns})")
    rows = []
    for number in range(max(len(each["cases"]) for each in known)):
        cases = [each["cases"][number] if number < len(each["cases"]) else {"value": None} for each in known]
        rows.append(
            [
                number,
                *(_internal(each["type"], case["value"]) for each, case in zip(known, cases, strict=True)),
            ]
        )
    kinds = ", ".join(
        f"c{at} {'INT' if each['type'] == 'date' else SPARK_TYPES[each['type']]}"
        for at, each in enumerate(known)
    )
    given = spark_lake.spark.createDataFrame([tuple(row) for row in rows], f"id INT, {kinds}")
    given.createOrReplaceTempView("given_masks")
    listed = ", ".join(
        f"date_from_unix_date(c{at})" if each["type"] == "date" else f"c{at}" for at, each in enumerate(known)
    )
    spark_lake.rows(f"INSERT INTO {name} SELECT id, {listed} FROM given_masks")
    ids = field_ids(spark_lake, name)
    shown = ", ".join(
        f"unix_date(c{at})" if each["type"] == "date" else f"c{at}" for at, each in enumerate(known)
    )
    with restricted(masks={ids[f"c{at}"]: each["action"] for at, each in enumerate(known)}):
        masked = spark_lake.rows(f"SELECT {shown} FROM {name} ORDER BY id")
    wrong = [
        (each["action"], each["type"], case, masked[number][at])
        for at, each in enumerate(known)
        for number, case in enumerate(each["cases"])
        if masked[number][at] != _internal(each["type"], case["masked"])
    ]
    assert not wrong
