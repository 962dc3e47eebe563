"""Partition transforms in integer arithmetic, for all values of a column type.

pyiceberg's transforms use Python's `datetime`, which is limited to the years 1 to 9999. Their truncation of
the smallest numbers leaves the range of the column's type. `exact` replaces them by transforms that are equal
in every other respect.

Truncating the smallest integers wraps around, as in Iceberg Java: `truncate[10]` of the smallest int,
-2147483648, is 2147483646. Such a partition value is greater than its rows' values. Filters keep or leave
out this partition by the values that its rows have.

Source: Iceberg table specification, "Partition Transforms"; Apache Iceberg's `TruncateUtil`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundPredicate,
    BoundReference,
    EqualTo,
    NotEqualTo,
    Or,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from catalog.iceberg.calendar import MICROS_PER_DAY, date_text, time_text, year_and_month

_EPOCH_YEAR: Final = 1970
_NANOS: Final = 1_000
_HOURS_PER_DAY: Final = 24
_BITS: Final[dict[type[IcebergType], int]] = {IntegerType: 32, LongType: 64}
#: Units per day, by type of column.
_DAY: Final[dict[type[IcebergType], int]] = {
    DateType: 1,
    TimestampType: MICROS_PER_DAY,
    TimestamptzType: MICROS_PER_DAY,
    TimestampNanoType: MICROS_PER_DAY * _NANOS,
    TimestamptzNanoType: MICROS_PER_DAY * _NANOS,
}

Function = Callable[[Any], Any]


def exact(transform: Transform[Any, Any]) -> Transform[Any, Any]:
    """Return the same transform, in integer arithmetic."""
    if isinstance(transform, TruncateTransform):
        return _Truncate(transform.width)
    made = _EXACT.get(type(transform))
    return transform if made is None else made()


def exact_spec(spec: PartitionSpec) -> PartitionSpec:
    """Return the same partition spec, with transforms in integer arithmetic."""
    fields = [
        PartitionField(each.source_id, each.field_id, exact(each.transform), each.name)
        for each in spec.fields
    ]
    return PartitionSpec(*fields, spec_id=spec.spec_id)


def _of_days(source: IcebergType, result: Callable[[int], int]) -> Function:
    """Return a function that applies `result` to a value's day."""
    unit = _DAY[type(source)]
    return lambda value: None if value is None else result(value // unit)


def _years(days: int) -> int:
    return year_and_month(days)[0] - _EPOCH_YEAR


def _months(days: int) -> int:
    year, month = year_and_month(days)
    return (year - _EPOCH_YEAR) * 12 + month - 1


class _Year(YearTransform[Any]):
    def transform(self, source: IcebergType) -> Function:
        return _of_days(source, _years)

    def to_human_string(self, _: IcebergType, value: Any) -> str:
        return "null" if value is None else f"{_EPOCH_YEAR + value:04d}"


class _Month(MonthTransform[Any]):
    def transform(self, source: IcebergType) -> Function:
        return _of_days(source, _months)

    def to_human_string(self, _: IcebergType, value: Any) -> str:
        return "null" if value is None else f"{_EPOCH_YEAR + value // 12:04d}-{value % 12 + 1:02d}"


class _Day(DayTransform[Any]):
    def transform(self, source: IcebergType) -> Function:
        return _of_days(source, lambda days: days)

    def to_human_string(self, _: IcebergType, value: Any) -> str:
        return "null" if value is None else date_text(value)


class _Hour(HourTransform[Any]):
    def transform(self, source: IcebergType) -> Function:
        unit = _DAY[type(source)] // _HOURS_PER_DAY
        return lambda value: None if value is None else value // unit

    def project(self, name: str, pred: BoundPredicate) -> Any:
        """Project a predicate; return None if the hour of its value does not fit into a partition value.

        Hours have 32 bits, timestamps 64.
        """
        hour = self.transform(pred.term.ref().field.field_type)
        values = getattr(pred, "literals", None) or [getattr(pred, "literal", None)]
        near = [hour(each.value + off) for each in values if each is not None for off in (-1, 1)]
        return super().project(name, pred) if all(_is_int(each) for each in near) else None

    def to_human_string(self, _: IcebergType, value: Any) -> str:
        if value is None:
            return "null"
        return f"{date_text(value // _HOURS_PER_DAY)}-{value % _HOURS_PER_DAY:02d}"


def _is_int(number: int) -> bool:
    return -(1 << 31) <= number < 1 << 31


class _Identity(IdentityTransform[Any]):
    def to_human_string(self, source_type: IcebergType, value: Any) -> str:
        if isinstance(value, int):
            if isinstance(source_type, DateType):
                return date_text(value)
            if isinstance(source_type, TimestampType):
                return time_text(value)
            if isinstance(source_type, TimestamptzType):
                return time_text(value) + "+00:00"
        return super().to_human_string(source_type, value)


class _Truncate(TruncateTransform[Any]):
    def transform(self, source: IcebergType) -> Function:
        bits = _BITS.get(type(source))
        if bits is None:
            return cast(Function, super().transform(source))
        half, width = 1 << (bits - 1), self.width

        def truncated(value: Any) -> Any:
            return None if value is None else (value - value % width + half) % (2 * half) - half

        return truncated

    def project(self, name: str, pred: BoundPredicate) -> Any:
        projected: BooleanExpression | None = super().project(name, pred)
        bits = _BITS.get(type(pred.term.ref().field.field_type))
        if projected is None or bits is None or not isinstance(pred.term, BoundReference):
            return projected
        smallest = -(1 << (bits - 1))
        overflowed = self.transform(pred.term.ref().field.field_type)(smallest)
        if overflowed < 0:
            return projected
        # Only the smallest values have this partition value, which is no multiple of the width.
        if isinstance(pred, BoundLessThan | BoundLessThanOrEqual):
            return Or(projected, cast(Any, EqualTo)(name, overflowed))
        if isinstance(pred, BoundGreaterThan | BoundGreaterThanOrEqual):
            matches = pred.literal.value - smallest < self.width
            return None if matches else And(projected, cast(Any, NotEqualTo)(name, overflowed))
        return projected


_EXACT: Final[dict[type[Any], type[Transform[Any, Any]]]] = {
    YearTransform: _Year,
    MonthTransform: _Month,
    DayTransform: _Day,
    HourTransform: _Hour,
    IdentityTransform: _Identity,
}
