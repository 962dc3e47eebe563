"""Partition transforms: the specification's own values, and pyiceberg's on many others."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros
from pyspark.errors import AnalysisException

from tests.support.spark import SparkLake
from tests.support.vectors import each_row

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/transforms.json").read_text())
FUNCTIONS = "lake.system"

_EARLIEST = datetime.datetime(1583, 1, 1)
_SPAN_S = 800 * 365 * 86_400


def _times(chance: random.Random) -> list[datetime.datetime]:
    edges = [datetime.datetime(1970, 1, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)]
    return edges + [
        _EARLIEST
        + datetime.timedelta(seconds=chance.randrange(_SPAN_S), microseconds=chance.randrange(10**6))
        for _ in range(50)
    ]


def _numbers(chance: random.Random, bits: int) -> list[int]:
    edges = [0, 1, -1, 2 ** (bits - 1) - 1, 50 - 2 ** (bits - 1)]
    return edges + [chance.getrandbits(bits - 1) >> chance.randrange(bits - 1) for _ in range(50)]


def _decimals(chance: random.Random) -> list[Decimal]:
    return [Decimal(number).scaleb(-2) for number in _numbers(chance, 40)]


def _texts(chance: random.Random) -> list[str]:
    letters = "aé€北𝄞 /"
    return ["", *("".join(chance.choices(letters, k=chance.randrange(1, 9))) for _ in range(50))]


def _bytes(chance: random.Random) -> list[bytes]:
    return [b"", *(chance.randbytes(chance.randrange(1, 20)) for _ in range(50))]


def _dates(chance: random.Random) -> list[datetime.date]:
    return [each.date() for each in _times(chance)]


_SAMPLES: dict[str, tuple[PrimitiveType, Callable[[random.Random], list[Any]]]] = {
    "int": (IntegerType(), lambda chance: _numbers(chance, 32)),
    "bigint": (LongType(), lambda chance: _numbers(chance, 64)),
    "decimal(20,2)": (DecimalType(20, 2), _decimals),
    "string": (StringType(), _texts),
    "binary": (BinaryType(), _bytes),
    "date": (DateType(), _dates),
    "timestamp_ntz": (TimestampType(), _times),
}
_EXACT = ["int", "bigint", "decimal(20,2)", "string", "binary"]
_CASES: list[tuple[str, str, Transform[Any, Any]]] = [
    *(("bucket(16, {})", kind, BucketTransform(16)) for kind in _SAMPLES),
    *(("truncate(7, {})", kind, TruncateTransform(7)) for kind in _EXACT),
    *(("years({})", kind, YearTransform()) for kind in ("date", "timestamp_ntz")),
    *(("months({})", kind, MonthTransform()) for kind in ("date", "timestamp_ntz")),
    *(("unix_date(lake.system.days({}))", kind, DayTransform()) for kind in ("date", "timestamp_ntz")),
    ("hours({})", "timestamp_ntz", HourTransform()),
]


def _internal(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, datetime.date) else value


def test_hashes_are_those_of_the_specification(spark_lake: SparkLake) -> None:
    """With as many buckets as there are hashes, the bucket is the hash without its sign bit."""
    cases = VECTORS["hash"]
    asked = [f"bucket({2**31 - 1}, cast({case['value']} as {case['type']}))" for case in cases]
    (found,) = spark_lake.rows(f"SELECT {', '.join(f'{FUNCTIONS}.{each}' for each in asked)}")
    expected = [(case["hash"] & (2**31 - 1)) % (2**31 - 1) for case in cases]
    assert [*zip(asked, found, strict=True)] == [*zip(asked, expected, strict=True)]


@pytest.mark.nightly
def test_values_are_cut_as_the_specification_says(spark_lake: SparkLake) -> None:
    cases = VECTORS["truncate"]
    asked = []
    for case in cases:
        cut = f"{FUNCTIONS}.truncate({case['width']}, cast({case['value']} as {case['type']}))"
        asked.append(f"hex({cut})" if case["type"] == "binary" else f"cast({cut} as string)")
    (found,) = spark_lake.rows(f"SELECT {', '.join(asked)}")
    expected = [case["result"] for case in cases]
    assert [*zip(asked, found, strict=True)] == [*zip(asked, expected, strict=True)]


@pytest.fixture(scope="module")
def transformed(spark_lake: SparkLake) -> list[tuple[list[Any], list[Any]]]:
    """For each of `_CASES` its values, and what Spark makes of them."""
    samples = [[*_SAMPLES[kind][1](random.Random(f"{call} {kind}")), None] for call, kind, _ in _CASES]
    columns = ", ".join(f"v{place} {kind}" for place, (_, kind, _) in enumerate(_CASES))
    frame = spark_lake.spark.createDataFrame([*zip_longest(*samples)], columns)
    written = [call.format(f"v{place}") for place, (call, _, _) in enumerate(_CASES)]
    rows = frame.selectExpr(
        *(each if "lake." in each else f"{FUNCTIONS}.{each}" for each in written)
    ).collect()
    return [(values, [row[place] for row in rows[: len(values)]]) for place, values in enumerate(samples)]


@pytest.mark.nightly
@each_row("place, kind, transform", [(place, *case[1:]) for place, case in enumerate(_CASES)])
def test_transforms_agree_with_pyiceberg(
    transformed: list[tuple[list[Any], list[Any]]], place: int, kind: str, transform: Transform[Any, Any]
) -> None:
    values, found = transformed[place]
    expected = [transform.transform(_SAMPLES[kind][0])(_internal(each)) for each in values]
    assert [bytes(each) if isinstance(each, bytearray) else each for each in found] == expected


@pytest.mark.nightly
@each_row(
    "call", ["bucket(4, 1.0D)", "bucket(4, true)", "truncate(3, date'2024-01-01')", "hours(date'2024-01-01')"]
)
def test_a_type_that_a_transform_does_not_take_is_refused(spark_lake: SparkLake, call: str) -> None:
    with pytest.raises(AnalysisException):
        spark_lake.rows(f"SELECT {FUNCTIONS}.{call}")
