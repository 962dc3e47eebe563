"""What is left of a filter in a partition keeps the same rows of that partition as the whole filter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import expression_evaluator, rewrite_not
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestampType

from catalog.iceberg.transform_terms import term_of
from catalog.iceberg.transforms import exact
from catalog.planning.residuals import MAX_CONDITIONS, Residuals

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "t", TimestampType()),
    NestedField(4, "d", DoubleType()),
    NestedField(5, "j", LongType()),
)
KNOWN = frozenset(SCHEMA.field_ids)
DAY = 24 * 3600 * 1_000_000
SPECS = {
    0: PartitionSpec(spec_id=0),
    1: PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "i"),
        PartitionField(3, 1001, DayTransform(), "t_day"),
        spec_id=1,
    ),
    2: PartitionSpec(
        PartitionField(1, 1000, BucketTransform(3), "i_bucket"),
        PartitionField(2, 1001, TruncateTransform(1), "s_trunc"),
        spec_id=2,
    ),
    3: PartitionSpec(
        PartitionField(1, 1000, VoidTransform(), "i_void"),
        PartitionField(1, 1001, TruncateTransform(10), "i_trunc"),
        PartitionField(4, 1002, IdentityTransform(), "d"),
        spec_id=3,
    ),
}
INTS = st.sampled_from([-(2**31), -11, -10, -1, 0, 1, 5, 10, 2**31 - 1])
TEXTS = st.sampled_from(["", "a", "ab", "b", "é"])
TIMES = st.sampled_from([-DAY - 1, -1, 0, 1, DAY, 5 * DAY + 7])
BUCKET = term_of("i", "bucket[3]")
FLOATS = st.sampled_from([float("nan"), -0.0, 0.0, 1.5])
ROWS = st.tuples(*(st.none() | each for each in (INTS, TEXTS, TIMES, FLOATS, INTS)))


#: Transforms of columns, some of which a spec has.
SMALL = st.integers(-1, 3)
TERMS = {
    ("i", "bucket[3]"): SMALL,
    ("i", "bucket[2]"): SMALL,
    ("i", "truncate[10]"): INTS,
    ("s", "truncate[1]"): TEXTS,
    ("t", "day"): SMALL,
    ("t", "hour"): INTS,
    ("j", "void"): INTS,
}


def _on(kind: Any, name: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[BooleanExpression]:
    return values.map(lambda value: kind(name, value))


def _conditions() -> st.SearchStrategy[BooleanExpression]:
    of: list[tuple[Any, st.SearchStrategy[Any]]] = [("i", INTS), ("s", TEXTS), ("t", TIMES), ("j", INTS)]
    of += [(term_of(*term), values) for term, values in TERMS.items()]
    found: list[st.SearchStrategy[Any]] = []
    for name, values in of:
        compared = (EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
        found += [_on(kind, name, values) for kind in compared]
        lists = st.lists(values, min_size=2, max_size=3)
        found += [_on(kind, name, lists) for kind in (In, NotIn)]
        found += [st.just(IsNull(name)), st.just(NotNull(name))]
    found += [
        _on(kind, name, TEXTS)
        for name in ("s", term_of("s", "truncate[1]"))
        for kind in (StartsWith, NotStartsWith)
    ]
    found += [st.just(GreaterThan("d", 0.0)), st.just(EqualTo("d", 0.0))]
    joined = st.recursive(
        st.one_of(found),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: And(*pair)),
            st.tuples(inner, inner).map(lambda pair: Or(*pair)),
            inner.map(Not),
        ),
        max_leaves=4,
    )
    return joined


def _partition(spec: PartitionSpec, row: tuple[Any, ...]) -> tuple[Any, ...]:
    kinds = {each.field_id: each.field_type for each in SCHEMA.fields}
    return tuple(
        exact(each.transform).transform(kinds[each.source_id])(row[each.source_id - 1])
        for each in spec.fields
    )


def _keeps(expression: BooleanExpression, row: tuple[Any, ...]) -> bool:
    return expression_evaluator(SCHEMA, expression, True)(Record(*row))


@given(row_filter=_conditions(), row=ROWS, spec_id=st.sampled_from(sorted(SPECS)))
def test_the_rest_keeps_what_the_filter_keeps(
    row_filter: BooleanExpression, row: tuple[Any, ...], spec_id: int
) -> None:
    residuals = Residuals(SCHEMA, SPECS, row_filter, KNOWN, case_sensitive=True)
    left = residuals.of(spec_id, _partition(SPECS[spec_id], row))
    # NOT of a comparison with NULL is not true: it is the opposite comparison.
    assert _keeps(left, row) == _keeps(rewrite_not(row_filter), row)


@pytest.mark.parametrize(
    ("row_filter", "spec_id", "partition", "left"),
    [
        (EqualTo("i", 5), 1, (5, None), AlwaysTrue()),
        (EqualTo("i", 5), 1, (6, None), AlwaysFalse()),
        (NotEqualTo("i", 5), 1, (None, None), NotEqualTo("i", 5)),
        (And(EqualTo("i", 5), EqualTo("s", "a")), 1, (5, 3), EqualTo("s", "a")),
        (GreaterThanOrEqual("t", DAY), 1, (5, 1), AlwaysTrue()),
        (GreaterThan("t", DAY), 1, (5, 1), GreaterThan("t", DAY)),
        (Or(IsNull("i"), EqualTo("j", 1)), 1, (None, 0), AlwaysTrue()),
        (EqualTo("i", 5), 0, (), EqualTo("i", 5)),
        (GreaterThan("d", 0.0), 3, (None, 10, 1.5), GreaterThan("d", 0.0)),
        (LessThan("i", 10), 3, (None, 0, None), AlwaysTrue()),
        (EqualTo(BUCKET, 1), 2, (1, "a"), AlwaysTrue()),
        (EqualTo(BUCKET, 1), 2, (2, "a"), AlwaysFalse()),
        (NotIn(BUCKET, [0, 1]), 2, (2, "a"), AlwaysTrue()),
        (EqualTo(BUCKET, 1), 1, (1, 0), EqualTo(BUCKET, 1)),
        (EqualTo(term_of("i", "bucket[6]"), 1), 2, (1, "a"), EqualTo(term_of("i", "bucket[6]"), 1)),
        (EqualTo(term_of("t", "day"), "1970-01-02"), 1, (0, 1), AlwaysTrue()),
    ],
)
def test_what_is_left(
    row_filter: BooleanExpression, spec_id: int, partition: tuple[Any, ...], left: BooleanExpression
) -> None:
    residuals = Residuals(SCHEMA, SPECS, row_filter, KNOWN, case_sensitive=True)
    assert residuals.of(spec_id, partition) == left


def test_a_filter_of_many_conditions_stays_whole() -> None:
    row_filter: BooleanExpression = EqualTo("i", 0)
    for number in range(MAX_CONDITIONS):
        row_filter = Or(row_filter, EqualTo("i", number + 1))
    residuals = Residuals(SCHEMA, SPECS, row_filter, KNOWN, case_sensitive=True)
    assert residuals.of(1, (5, None)) == row_filter


def test_partition_values_that_are_not_given_answer_nothing() -> None:
    residuals = Residuals(SCHEMA, SPECS, EqualTo("i", 5), frozenset({3}), case_sensitive=True)
    assert residuals.of(1, (None, 0)) == EqualTo("i", 5)
