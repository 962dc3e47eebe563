"""Partition transforms in whole numbers: equal to pyiceberg's where those are right, and sound beyond."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_json, to_json
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
)
from pyiceberg.expressions.visitors import InclusiveProjection, expression_evaluator
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

from catalog.iceberg.partition_values import stored_value
from catalog.iceberg.single_values import value_from_json, value_to_json
from catalog.iceberg.transforms import exact, exact_spec
from tests.support.vectors import each_row

INTS = {IntegerType: 31, LongType: 63, DateType: 31, TimestampType: 63, TimestamptzType: 63}
TIMES: list[tuple[Transform[Any, Any], list[PrimitiveType]]] = [
    (YearTransform(), [DateType(), TimestampType(), TimestamptzType()]),
    (MonthTransform(), [DateType(), TimestampType(), TimestamptzType()]),
    (DayTransform(), [DateType(), TimestampType(), TimestamptzType()]),
    (HourTransform(), [TimestampType(), TimestamptzType()]),
]
#: Each type and transform has examples of its own.
_FEW = settings(max_examples=settings.default.max_examples * 2 // 5)
_TYPED = [(transform, kind) for transform, kinds in TIMES for kind in kinds]


def numbers(kind: PrimitiveType) -> st.SearchStrategy[int]:
    """Values of a type, the ends of its range and of Python's calendar among them."""
    bits = INTS[type(kind)]
    edges = [-(1 << bits), (1 << bits) - 1, -1, 0]
    if isinstance(kind, DateType):
        edges += [date_to_days(dt.date.min), date_to_days(dt.date.max)]
    elif isinstance(kind, TimestampType | TimestamptzType):
        edges += [datetime_to_micros(dt.datetime.min), datetime_to_micros(dt.datetime.max)]
    near = st.builds(lambda edge, off: edge + off, st.sampled_from(edges), st.integers(-30, 30))
    return (near | st.integers(-(1 << bits), (1 << bits) - 1)).filter(
        lambda each: -(1 << bits) <= each < 1 << bits
    )


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("transform", "kind"), _TYPED, ids=str)
@_FEW
@given(data=st.data())
def test_times_are_pyicebergs_in_pythons_calendar(
    transform: Transform[Any, Any], kind: PrimitiveType, data: st.DataObject
) -> None:
    if isinstance(kind, DateType):
        value = date_to_days(data.draw(st.dates()))
    else:
        value = datetime_to_micros(data.draw(st.datetimes()))
    mine = exact(transform)
    result = transform.transform(kind)(value)
    assert (mine.transform(kind)(value), mine.transform(kind)(None)) == (result, None)
    assert mine.to_human_string(kind, result) == transform.to_human_string(kind, result)
    assert (mine, str(mine)) == (transform, str(transform))


@pytest.mark.parametrize("kind", [DateType(), TimestampType(), TimestamptzType()], ids=str)
@_FEW
@given(data=st.data())
def test_single_values_are_pyicebergs_in_pythons_calendar(kind: PrimitiveType, data: st.DataObject) -> None:
    moment = data.draw(st.datetimes())
    value = date_to_days(moment.date()) if isinstance(kind, DateType) else datetime_to_micros(moment)
    assert value_to_json(kind, value) == to_json(kind, value)
    assert value_from_json(kind, to_json(kind, value)) == from_json(kind, to_json(kind, value))


@pytest.mark.parametrize("kind", [DateType(), TimestampType(), TimestamptzType()], ids=str)
@_FEW
@given(data=st.data())
def test_every_single_value_goes_there_and_back(kind: PrimitiveType, data: st.DataObject) -> None:
    value = data.draw(numbers(kind))
    assert stored_value(kind, value_to_json(kind, value)) == value


@each_row(
    ("kind", "text"),
    [
        (DateType(), "+10000-02-30"),
        (DateType(), "+9999-12-31"),
        (DateType(), "-0000-12-31"),
        (DateType(), "+5881580-07-12"),
        (DateType(), "+10000-1-1"),
        (DateType(), "+10000-13-01"),
        (TimestampType(), "+10000-01-01T24:00:00"),
        (TimestampType(), "+10000-01-01"),
        (TimestampType(), "+10000-01-01T00:00:00+00:00"),
        (TimestamptzType(), "+10000-01-01T00:00:00"),
        (TimestamptzType(), "+294248-01-01T00:00:00+00:00"),
    ],
)
def test_what_is_no_date_or_time_is_refused(kind: PrimitiveType, text: str) -> None:
    with pytest.raises(ValueError, match=r"date|time|month|range"):
        stored_value(kind, text)


@pytest.mark.parametrize("kind", [IntegerType(), LongType()], ids=str)
@_FEW
@given(data=st.data())
def test_truncation_stays_within_its_type(kind: PrimitiveType, data: st.DataObject) -> None:
    """As Iceberg Java's arithmetic, which wraps around."""
    width, value = data.draw(st.integers(1, 1 << 29)), data.draw(numbers(kind))
    half = 1 << INTS[type(kind)]
    result = exact(TruncateTransform(width)).transform(kind)(value)
    plain = value - value % width
    assert -half <= result < half
    assert result == (plain if plain >= -half else plain + 2 * half)


COMPARED = [EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
PRUNED: list[tuple[Transform[Any, Any], PrimitiveType]] = [
    *_TYPED,
    *[(IdentityTransform(), kind) for kind in (DateType(), TimestampType())],
    *[(TruncateTransform(width), kind) for width in (1, 7, 1000) for kind in (IntegerType(), LongType())],
]


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("transform", "kind"), PRUNED, ids=str)
@_FEW
@given(data=st.data())
def test_no_partition_of_a_matching_row_is_pruned(
    transform: Transform[Any, Any], kind: PrimitiveType, data: st.DataObject
) -> None:
    schema = Schema(NestedField(1, "c", kind))
    spec = exact_spec(PartitionSpec(PartitionField(1, 1000, transform, "p")))
    value, other = data.draw(numbers(kind)), data.draw(numbers(kind))
    filters: list[BooleanExpression] = [each("c", other) for each in COMPARED]
    filters += [each("c", value) for each in COMPARED] + [In("c", {value, other})]
    partition = Record(spec.fields[0].transform.transform(kind)(value))
    if isinstance(transform, HourTransform):
        assume(-(1 << 31) <= partition[0] < 1 << 31)  # no partition has such an hour
    partitions = Schema(*spec.partition_type(schema).fields)
    for row_filter in filters:
        if expression_evaluator(schema, row_filter, True)(Record(value)):
            projected = InclusiveProjection(schema, spec, True).project(row_filter)
            assert expression_evaluator(partitions, projected, True)(partition), (row_filter, projected)


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("transform", "kind"), [each for each in PRUNED if each[0] != IdentityTransform()], ids=str
)
@_FEW
@given(data=st.data())
def test_partitions_that_begin_at_a_literal_tell_which_rows_match(
    transform: Transform[Any, Any], kind: PrimitiveType, data: st.DataObject
) -> None:
    """Engines leave such filters to the catalog, and do not compare the rows again."""
    schema = Schema(NestedField(1, "c", kind))
    spec = exact_spec(PartitionSpec(PartitionField(1, 1000, transform, "p")))
    if isinstance(transform, TruncateTransform):
        begins = data.draw(st.integers(1, (1 << 31) // transform.width - 1)) * transform.width
    else:
        year = dt.datetime(data.draw(st.integers(1971, 9999)), 1, 1)
        begins = date_to_days(year.date()) if isinstance(kind, DateType) else datetime_to_micros(year)
    near = st.integers(begins - 30, min(begins + 30, (1 << INTS[type(kind)]) - 1))
    value = data.draw(near | numbers(kind))
    partition = Record(spec.fields[0].transform.transform(kind)(value))
    if isinstance(transform, HourTransform):
        assume(-(1 << 31) <= partition[0] < 1 << 31)  # no partition has such an hour
    partitions = Schema(*spec.partition_type(schema).fields)
    before, after = begins - 1, begins
    for row_filter in (
        LessThan("c", after),
        LessThanOrEqual("c", before),
        GreaterThan("c", before),
        GreaterThanOrEqual("c", after),
    ):
        projected = InclusiveProjection(schema, spec, True).project(row_filter)
        matches = expression_evaluator(schema, row_filter, True)(Record(value))
        assert expression_evaluator(partitions, projected, True)(partition) == matches, (
            row_filter,
            projected,
        )
