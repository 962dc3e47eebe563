"""Pruning by statistics answers, for every file, as pyiceberg's inclusive metrics evaluator does.

By inequalities it skips more.
"""

from __future__ import annotations

import math
import struct
import uuid
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.iceberg.manifests import DecodedManifest, ManifestContent, ManifestHeader, RangeStatistics
from catalog.iceberg.manifests.manifest import STATISTICS_TYPES
from catalog.planning import Pruner
from tests.support.made_up_files import compares_by_inequality

INTS = st.integers(-5, 5) | st.sampled_from([-(2**31), 2**31 - 1])
LONGS = INTS | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 2**53])
FLOATS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.5, 2.5, math.inf])
SINGLES = FLOATS.map(lambda value: struct.unpack("<f", struct.pack("<f", value))[0])
TEXTS = st.text(alphabet="abé\U0001f600\uffff", max_size=4)
BYTES = st.binary(max_size=3)
DECIMALS = st.integers(-400, 400).map(lambda n: Decimal(n).scaleb(-2)) | st.sampled_from(
    [Decimal("99999999999999999999.99"), Decimal("-99999999999999999999.99")]
)
TYPES: list[tuple[PrimitiveType, st.SearchStrategy[Any]]] = [
    (IntegerType(), INTS),
    (LongType(), LONGS),
    (FloatType(), SINGLES),
    (DoubleType(), FLOATS),
    (DateType(), INTS),
    (TimeType(), INTS),
    (TimestampType(), LONGS),
    (TimestamptzType(), LONGS),
    (StringType(), TEXTS),
    (DecimalType(24, 2), DECIMALS),
    (BinaryType(), BYTES),
    (FixedType(2), st.binary(min_size=2, max_size=2)),
    (BooleanType(), st.booleans()),
    (UUIDType(), st.integers(0, 3).map(lambda n: uuid.UUID(int=n << 120))),
]
FLOATING = (FloatType, DoubleType)
TEXTUAL = (StringType,)
COMPARISONS = [
    EqualTo,
    NotEqualTo,
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
]
COUNTS = st.none() | st.integers(0, 2)


def schema_of(kind: PrimitiveType) -> Schema:
    return Schema(NestedField(1, "c", kind), NestedField(2, "d", LongType()))


def bound_bytes(kind: PrimitiveType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes | None]:
    written = values.map(lambda value: to_bytes(kind, value))
    if isinstance(kind, FLOATING):
        written |= st.just(to_bytes(kind, math.nan))
    if isinstance(kind, DoubleType):
        written |= SINGLES.map(lambda value: struct.pack("<f", value))
    if isinstance(kind, LongType):
        written |= INTS.map(lambda value: struct.pack("<i", value))
    return st.none() | written


def one(field_id: int, value: Any) -> dict[int, Any]:
    return {} if value is None else {field_id: value}


@st.composite
def files_of(draw: st.DrawFn, kind: PrimitiveType, values: st.SearchStrategy[Any]) -> DataFile:
    bounds = bound_bytes(kind, values)
    maps = {
        "value_counts": one(1, draw(COUNTS)) | one(2, draw(COUNTS)),
        "null_value_counts": one(1, draw(COUNTS)) | one(2, draw(COUNTS)),
        "nan_value_counts": one(1, draw(COUNTS)),
        "lower_bounds": one(1, draw(bounds)),
        "upper_bounds": one(1, draw(bounds)),
    }
    for name in draw(st.sets(st.sampled_from(sorted(maps)), max_size=2)):
        maps[name] = None  # type: ignore[assignment]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="p",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=draw(st.sampled_from([0, 1, 1, 1])),
        file_size_in_bytes=1,
        **maps,
    )


@st.composite
def filters(draw: st.DrawFn, kind: PrimitiveType, values: st.SearchStrategy[Any]) -> BooleanExpression:
    shape = draw(st.sampled_from(["compare"] * 6 + ["in", "in", "null", "nan", "prefix", "not", "and", "or"]))
    if shape == "not":
        return Not(draw(filters(kind, values)))
    if shape in ("and", "or"):
        join = And if shape == "and" else Or
        other = draw(st.sampled_from([EqualTo("d", 1), IsNull("d"), NotNull("d")]) | filters(kind, values))
        return join(draw(filters(kind, values)), other)
    if shape == "null":
        return draw(st.sampled_from([IsNull("c"), NotNull("c")]))
    if shape == "nan" and isinstance(kind, FLOATING):
        return draw(st.sampled_from([IsNaN("c"), NotNaN("c")]))
    if shape == "prefix" and isinstance(kind, TEXTUAL):
        return draw(st.sampled_from([StartsWith, NotStartsWith]))("c", draw(values))
    if shape == "in":
        some = draw(st.lists(values, min_size=1, max_size=4))
        return draw(st.sampled_from([In, NotIn]))("c", {literal(value) for value in some})
    return draw(st.sampled_from(COMPARISONS))("c", literal(draw(values)))


def manifest_of(files: list[DataFile]) -> DecodedManifest:
    statistics = {
        name: pa.array(
            [None if (kept := getattr(file, name)) is None else list(kept.items()) for file in files], kind
        )
        for name, kind in STATISTICS_TYPES.items()
    }
    entries = pa.table(
        {
            "record_count": pa.array([file.record_count for file in files], pa.int64()),
            "partition": pa.array([{}] * len(files), pa.struct([])),
        }
    )
    header = ManifestHeader(0, ManifestContent.DATA)
    return DecodedManifest(header, entries, pa.table(statistics))


SPECS = {0: PartitionSpec(spec_id=0)}


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda value: str(value).split("(")[0][:12])
@settings(max_examples=settings.default.max_examples * 2 // 5)
@given(data=st.data())
def test_the_same_files_are_kept(
    kind: PrimitiveType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    schema = schema_of(kind)
    files = data.draw(st.lists(files_of(kind, values), min_size=1, max_size=6))
    row_filter = data.draw(filters(kind, values))
    expected = [_InclusiveMetricsEvaluator(schema, row_filter).eval(file) for file in files]
    found = Pruner(schema, SPECS, row_filter).keeps(manifest_of(files), 0).to_pylist()
    if compares_by_inequality(row_filter):
        assert all(theirs or not mine for mine, theirs in zip(found, expected, strict=True)), row_filter
    else:
        assert found == expected, row_filter


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda value: str(value).split("(")[0][:12])
@settings(max_examples=settings.default.max_examples * 2 // 5)
@given(data=st.data())
def test_a_range_is_kept_where_a_file_of_it_is(
    kind: PrimitiveType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """Two manifests: one states the types of its columns, the other states none, and keeps every range."""
    schema, size = schema_of(kind), 2
    files = data.draw(st.lists(files_of(kind, values), min_size=1, max_size=6))
    pruner = Pruner(schema, SPECS, data.draw(filters(kind, values)))
    columns = manifest_of(files).stats(frozenset({1, 2}))
    single = pruner.may_match(columns, len(files))
    types = {1: kind, 2: LongType()}
    ranges, untyped = (RangeStatistics.of(len(files), columns, each, size) for each in (types, {}))
    kept_ranges, kept_untyped = pruner.keeps_ranges([ranges, untyped])
    for number, kept_range in enumerate(kept_ranges):
        assert kept_range or not single[number * size : (number + 1) * size].any()
    assert kept_untyped.all() or not single.any()


def test_ranges_without_a_matching_value_are_left_out() -> None:
    numbers = [struct.pack("<q", number) for number in range(6)]
    files = [
        a_file(lower_bounds={1: each}, upper_bounds={1: each}, null_value_counts={1: 0}, value_counts={1: 5})
        for each in numbers
    ]
    columns = manifest_of(files).stats(frozenset({1}))
    ranges = RangeStatistics.of(6, columns, {1: LongType()}, 2)
    for row_filter, expected in (
        (EqualTo("c", 2), [False, True, False]),
        (GreaterThan("c", 2), [False, True, True]),
        (IsNull("c"), [False, False, False]),
    ):
        (found,) = Pruner(schema_of(LongType()), SPECS, row_filter).keeps_ranges([ranges])
        assert found.tolist() == expected
    # Bounds of another type are in another order.
    (found,) = Pruner(schema_of(StringType()), SPECS, EqualTo("c", "x")).keeps_ranges([ranges])
    assert found.all()


@pytest.mark.parametrize(("nulls", "same", "expected"), [(0, True, False), (0, False, True), (1, True, True)])
def test_a_file_of_one_value_matches_no_inequality_with_it(nulls: int, same: bool, expected: bool) -> None:
    low, high = struct.pack("<q", 7), struct.pack("<q", 7 if same else 8)
    file = a_file(lower_bounds={1: low}, upper_bounds={1: high}, null_value_counts={1: nulls})
    schema = schema_of(LongType())
    assert kept(schema, NotEqualTo("c", 7), file) is expected
    assert kept(schema, NotIn("c", {7, 9}), file) is expected
    assert kept(schema, NotEqualTo("c", 8), file)


def test_an_unknown_number_of_nan_keeps_a_file_of_one_value() -> None:
    bound = {1: struct.pack("<d", 7.0)}
    schema = schema_of(DoubleType())
    for nans, expected in (({}, True), ({1: 0}, False), ({1: 1}, True)):
        file = a_file(lower_bounds=bound, upper_bounds=bound, null_value_counts={1: 0}, nan_value_counts=nans)
        assert kept(schema, NotEqualTo("c", 7.0), file) is expected


def a_file(**maps: Any) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="p",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=5,
        file_size_in_bytes=1,
        **maps,
    )


def kept(schema: Schema, row_filter: BooleanExpression, file: DataFile, **known: Any) -> bool:
    return bool(Pruner(schema, SPECS, row_filter, **known).keeps(manifest_of([file]), 0)[0].as_py())


def test_bounds_of_a_wrong_length_prove_nothing() -> None:
    for kind in (IntegerType(), LongType(), DoubleType(), DateType()):
        file = a_file(lower_bounds={1: b"\x01\x02\x03"}, upper_bounds={1: b""})
        assert kept(schema_of(kind), EqualTo("c", 7), file)
    file = a_file(lower_bounds={1: bytes([1] * 17)}, upper_bounds={1: b""})
    assert kept(schema_of(DecimalType(9, 2)), EqualTo("c", Decimal("1.00")), file)


def test_decimals_of_38_digits_are_compared_by_every_digit() -> None:
    value = Decimal("12345678901234567890123456789.012345678")
    bound = int(value.scaleb(9, Context(prec=38))).to_bytes(16, "big")
    file = a_file(lower_bounds={1: bound}, upper_bounds={1: bound})
    assert kept(schema_of(DecimalType(38, 9)), EqualTo("c", value), file)
    assert not kept(schema_of(DecimalType(38, 9)), LessThan("c", value), file)


def test_long_lists_of_values_are_not_looked_at() -> None:
    schema = schema_of(LongType())
    file = a_file(lower_bounds={1: struct.pack("<q", 1000)}, upper_bounds={1: struct.pack("<q", 1000)})
    assert not kept(schema, In("c", set(range(200))), file)
    assert kept(schema, In("c", set(range(201))), file)


def test_columns_that_may_not_be_used_prove_nothing() -> None:
    schema = schema_of(LongType())
    file = a_file(
        lower_bounds={1: struct.pack("<q", 5)},
        upper_bounds={1: struct.pack("<q", 6)},
        null_value_counts={2: 0},
    )
    unwanted = EqualTo("c", 1)
    assert not kept(schema, unwanted, file)
    assert kept(schema, unwanted, file, usable_field_ids=frozenset({2}))
    assert kept(schema, Not(NotEqualTo("c", 1)), file, usable_field_ids=frozenset({2}))
    assert not kept(schema, And(unwanted, IsNull("d")), file, usable_field_ids=frozenset({2}))
    assert kept(schema, Or(unwanted, IsNull("d")), file, usable_field_ids=frozenset({2}))


@pytest.mark.parametrize(("lower", "expected"), [(1.0, True), (5.0, False), (math.nan, True)])
def test_an_upper_bound_of_nan_proves_nothing_but_the_lower_one_may(lower: float, expected: bool) -> None:
    file = a_file(lower_bounds={1: struct.pack("<d", lower)}, upper_bounds={1: struct.pack("<d", math.nan)})
    schema = schema_of(DoubleType())
    row_filter = In("c", {2.0, 3.0})
    assert kept(schema, row_filter, file) is expected
    assert _InclusiveMetricsEvaluator(schema, row_filter).eval(file) is expected


@pytest.mark.parametrize(("nulls", "expected"), [({}, False), ({1: 0}, True), ({1: 2}, True)])
def test_a_null_count_keeps_a_file_whose_texts_all_start_alike(nulls: dict[int, int], expected: bool) -> None:
    file = a_file(lower_bounds={1: b"abc"}, upper_bounds={1: b"abd"}, null_value_counts=nulls)
    schema = schema_of(StringType())
    row_filter = NotStartsWith("c", "ab")
    assert kept(schema, row_filter, file) is expected
    assert _InclusiveMetricsEvaluator(schema, row_filter).eval(file) is expected
