"""Made-up data files with statistics, and filters: what planning is compared on.

They reach transforms and corners (NaN, missing statistics, all nulls) that rows seldom do.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.conversions import to_bytes, to_json
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
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    DoubleType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
)

COLUMNS: dict[str, PrimitiveType] = {
    "id": LongType(),
    "name": StringType(),
    "score": DoubleType(),
    "at": TimestampType(),
    "day": DateType(),
}
SCHEMA = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(COLUMNS.items(), 1)))
EPOCH = dt.date(1970, 1, 1)


def stored(kind: PrimitiveType, value: Any) -> Any:
    """A value as Iceberg holds it."""
    if isinstance(kind, TimestampType) and isinstance(value, dt.datetime):
        return int((value - dt.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
    if isinstance(kind, DateType) and isinstance(value, dt.date):
        return (value - EPOCH).days
    return value


def a_value(rng: random.Random, kind: PrimitiveType) -> Any:
    if isinstance(kind, LongType):
        return rng.randint(-30, 30)
    if isinstance(kind, StringType):
        return rng.choice(["", "a", "ab", "abc", "b", "ba", "é", "z\U0001f600"])
    if isinstance(kind, DoubleType):
        return rng.choice([-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf])
    day = EPOCH + dt.timedelta(days=rng.randint(-40, 400))
    if isinstance(kind, DateType):
        return (day - EPOCH).days
    return stored(kind, dt.datetime.combine(day, dt.time(rng.randint(0, 23), 30)))


@dataclass
class Statistics:
    """Counts and bounds of a made-up file."""

    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)

    def add(self, rng: random.Random, number: int, kind: PrimitiveType, values: list[Any]) -> None:
        """Say of a column what a writer might say, or leave it out."""
        known = [value for value in values if value is not None]
        numbers = [value for value in known if value == value]
        if rng.random() < 0.9:
            self.value_counts[number] = len(values)
            self.null_value_counts[number] = len(values) - len(known)
        if isinstance(kind, DoubleType) and rng.random() < 0.8:
            self.nan_value_counts[number] = len(known) - len(numbers)
        if numbers and rng.random() < 0.85:
            self.lower_bounds[number] = to_bytes(kind, min(numbers))
            self.upper_bounds[number] = to_bytes(kind, max(numbers))
        elif known and not numbers and rng.random() < 0.5:
            self.lower_bounds[number] = self.upper_bounds[number] = to_bytes(kind, math.nan)


def a_file(rng: random.Random, table: Table) -> dict[str, Any]:
    """What an engine says of a file of a few rows that agree on their partition."""
    schema, partitioned = table.schema(), table.spec()
    one = {each.field_id: a_value(rng, each.field_type) for each in schema.fields}  # type: ignore[arg-type]
    for field_id in one:
        if rng.random() < 0.1:
            one[field_id] = None
    sources = {each.source_id for each in partitioned.fields}
    statistics = Statistics()
    rows = rng.randint(1, 4)
    for each in schema.fields:
        kind: Any = each.field_type
        if each.field_id in sources:
            values = [one[each.field_id]] * rows
        else:
            values = [rng.choice([one[each.field_id], a_value(rng, kind), None]) for _ in range(rows)]
            if isinstance(kind, DoubleType):
                values = [rng.choice([value, math.nan]) for value in values]
        statistics.add(rng, each.field_id, kind, values)
    partition = {}
    for each_field in partitioned.fields:
        source: Any = schema.find_type(each_field.source_id)
        value = each_field.transform.transform(source)(one[each_field.source_id])
        result: Any = each_field.transform.result_type(source)
        partition[each_field.name] = None if value is None else to_json(result, value)
    return {
        "partition": partition,
        "spec_id": partitioned.spec_id,
        "record_count": rng.choice([rows, rows, rows, 0]) or rows,
        **vars(statistics),
    }


def a_filter(rng: random.Random, schema: Schema, depth: int = 0) -> BooleanExpression:
    shape = rng.choice(["leaf"] * 5 + ["and", "or", "not"]) if depth < 3 else "leaf"
    if shape in ("and", "or"):
        join: Any = And if shape == "and" else Or
        return join(a_filter(rng, schema, depth + 1), a_filter(rng, schema, depth + 1))
    if shape == "not":
        return Not(a_filter(rng, schema, depth + 1))
    return a_leaf(rng, rng.choice(schema.fields))


def a_leaf(rng: random.Random, column: NestedField) -> BooleanExpression:
    name, kind = column.name, column.field_type
    special: list[BooleanExpression] = [IsNull(name), NotNull(name)]
    if isinstance(kind, DoubleType):
        special += [IsNaN(name), NotNaN(name)]
    if isinstance(kind, StringType):
        prefix = rng.choice(["", "a", "ab", "é", "q"])
        special += [StartsWith(name, prefix), NotStartsWith(name, prefix)]
    if rng.random() < 0.25:
        return rng.choice(special)
    if rng.random() < 0.25:
        some = {shown(kind, a_value(rng, kind)) for _ in range(rng.randint(1, 5))}  # type: ignore[arg-type]
        return rng.choice([In, NotIn])(name, some)
    compare: Any = rng.choice(
        [EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]
    )
    return compare(name, shown(kind, a_value(rng, kind)))  # type: ignore[arg-type]


def shown(kind: PrimitiveType, value: Any) -> Any:
    """A value as a client writes it in a filter."""
    if isinstance(kind, DateType):
        return (EPOCH + dt.timedelta(days=value)).isoformat()
    if isinstance(kind, TimestampType):
        return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)).isoformat()
    return value


def compares_by_inequality(row_filter: BooleanExpression) -> bool:
    """Whether the catalog skips more files by a filter than pyiceberg: a file of one value, by `!=`."""
    return any(isinstance(each, NotEqualTo | NotIn) for each in _predicates(rewrite_not(row_filter)))


def _predicates(expression: Any) -> Iterator[Any]:
    """The comparisons of a filter without negations."""
    if isinstance(expression, And | Or):
        yield from _predicates(expression.left)
        yield from _predicates(expression.right)
    else:
        yield expression
