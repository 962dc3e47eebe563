"""A file whose rows can match no complement of a filter has rows that all match, by any order of NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import expressions as ex
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import DoubleType, LongType, NestedField, PrimitiveType, StringType

from catalog.iceberg.complement import complements
from catalog.iceberg.manifests import DecodedManifest, ManifestContent, ManifestHeader
from catalog.iceberg.manifests.manifest import STATISTICS_TYPES
from catalog.iceberg.transforms import exact_spec
from catalog.planning import Pruner

NAN = math.nan
TYPES: list[tuple[PrimitiveType, pa.DataType, list[Any], list[Transform[Any, Any]]]] = [
    (
        LongType(),
        pa.int64(),
        [-3, 0, 1, 2, 7],
        [IdentityTransform(), TruncateTransform(5), BucketTransform(2)],
    ),
    (DoubleType(), pa.float64(), [-1.5, 0.0, 2.5, NAN], [IdentityTransform()]),
    (StringType(), pa.string(), ["", "a", "ab", "b"], [IdentityTransform(), TruncateTransform(1)]),
]
ORDERS: dict[str, Callable[[Any], Any]] = {
    # As Spark, and as IEEE 754: NaN is above every number, or equals and precedes none.
    "above": lambda value: (1, 0.0) if value != value else (0, value),
    "apart": lambda value: value,
}
COMPARED: dict[Any, Callable[[Any, Any], bool]] = {
    ex.EqualTo: lambda a, b: bool(a == b),
    ex.NotEqualTo: lambda a, b: bool(a != b),
    ex.LessThan: lambda a, b: bool(a < b),
    ex.LessThanOrEqual: lambda a, b: bool(a <= b),
    ex.GreaterThan: lambda a, b: bool(a > b),
    ex.GreaterThanOrEqual: lambda a, b: bool(a >= b),
}

#: Of a row: true, false, or None for null.
Truth = Callable[[Any, Callable[[Any], Any]], bool | None]


@st.composite
def filters(draw: st.DrawFn, values: list[Any], depth: int = 2) -> tuple[ex.BooleanExpression, Truth]:
    """A filter on the column `c`, and what it says of a value."""
    numbers = [each for each in values if each == each]
    kinds = ["compare"] * 4 + ["null", "in", "nan"] + (["and", "or", "not"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "not":
        inner, truth = draw(filters(values, depth - 1))
        return ex.Not(inner), lambda row, key: None if (t := truth(row, key)) is None else not t
    if kind in ("and", "or"):
        (left, one), (right, other) = draw(filters(values, depth - 1)), draw(filters(values, depth - 1))
        if kind == "and":
            return ex.And(left, right), lambda row, key: _and(one(row, key), other(row, key))
        return ex.Or(left, right), lambda row, key: _not(_and(_not(one(row, key)), _not(other(row, key))))
    if kind == "null":
        is_null = draw(st.booleans())
        made: Any = ex.IsNull("c") if is_null else ex.NotNull("c")
        return made, lambda row, key: (row is None) is is_null
    if kind == "nan" and any(each != each for each in values):
        is_nan = draw(st.booleans())
        made = ex.IsNaN("c") if is_nan else ex.NotNaN("c")
        return made, lambda row, key: None if row is None else (row != row) is is_nan
    if kind == "in":
        some = draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=3, unique=True))
        negated = draw(st.booleans())
        made = ex.NotIn("c", set(some)) if negated else ex.In("c", set(some))
        return made, lambda row, key: None if row is None else (row in some) is not negated
    compare, value = draw(st.sampled_from(list(COMPARED))), draw(st.sampled_from(numbers))
    made = compare("c", value)
    return made, lambda row, key: None if row is None else COMPARED[compare](key(row), key(value))


def _and(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _not(one: bool | None) -> bool | None:
    return None if one is None else not one


def manifest(
    kind: PrimitiveType, rows: list[Any], partition: Any, stored: pa.DataType, told: bool
) -> DecodedManifest:
    """A manifest of one file with these rows, with its statistics where `told`."""
    numbers = [each for each in rows if each is not None and each == each]
    counts: dict[str, Any] = {
        "value_counts": len(rows),
        "null_value_counts": rows.count(None),
        "nan_value_counts": sum(1 for each in rows if each is not None and each != each),
    }
    if not isinstance(kind, DoubleType):
        del counts["nan_value_counts"]
    if numbers:
        counts |= {"lower_bounds": to_bytes(kind, min(numbers)), "upper_bounds": to_bytes(kind, max(numbers))}
    statistics = {
        name: pa.array([[(1, counts[name])] if told and name in counts else None], each)
        for name, each in STATISTICS_TYPES.items()
    }
    field = pa.field("p", stored, metadata={"field-id": "1000"})
    entries = pa.table(
        {
            "record_count": pa.array([len(rows)], pa.int64()),
            "partition": pa.StructArray.from_arrays([pa.array([partition], stored)], fields=[field]),
        }
    )
    return DecodedManifest(ManifestHeader(0, ManifestContent.DATA), entries, pa.table(statistics))


@pytest.mark.parametrize(("kind", "arrow", "values", "transforms"), TYPES, ids=lambda each: str(each)[:6])
@given(data=st.data())
def test_a_file_without_rows_of_the_complement_matches_as_a_whole(
    kind: PrimitiveType,
    arrow: pa.DataType,
    values: list[Any],
    transforms: list[Transform[Any, Any]],
    data: st.DataObject,
) -> None:
    schema = Schema(NestedField(1, "c", kind))
    transform = data.draw(st.sampled_from(transforms))
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"), spec_id=0)
    apply = exact_spec(spec).fields[0].transform.transform(kind)
    rows = data.draw(st.lists(st.sampled_from([None, *values]), min_size=1, max_size=4))
    partition = apply(rows[0])
    rows = [each for each in rows if repr(apply(each)) == repr(partition)]
    row_filter, truth = data.draw(filters(values))
    stored = pa.int32() if isinstance(transform, BucketTransform) else arrow
    file = manifest(kind, rows, partition, stored, told=data.draw(st.booleans()))
    left = [Pruner(schema, {0: spec}, each).keeps(file, 0)[0].as_py() for each in complements(row_filter)]
    if not any(left):
        for key in ORDERS.values():
            assert all(truth(row, key) is True for row in rows), (row_filter, rows)
