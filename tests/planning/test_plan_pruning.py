"""What a plan keeps is what pyiceberg's own scan of the same table keeps.

Two ways of writing: rows through pyiceberg, and files with made-up statistics through write sessions, which
reach transforms and corners (NaN, missing statistics, all nulls) that rows seldom do.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes, to_json
from pyiceberg.expressions import (
    AlwaysTrue,
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
from pyiceberg.expressions.visitors import ResidualEvaluator, UnpartitionedResidualEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DoubleType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
)

from catalog.new_files import NewFile
from catalog.planning.plan import ScanRequest
from tests.support.lake import ALICE, Lake
from tests.support.tables import Engine, make, name_of

COLUMNS: dict[str, PrimitiveType] = {
    "id": LongType(),
    "name": StringType(),
    "score": DoubleType(),
    "at": TimestampType(),
    "day": DateType(),
}
SCHEMA = Schema(*(NestedField(number, name, kind) for number, (name, kind) in enumerate(COLUMNS.items(), 1)))
EPOCH = dt.date(1970, 1, 1)


def spec(*fields: tuple[str, Transform[Any, Any]]) -> PartitionSpec:
    ids = {name: number for number, name in enumerate(COLUMNS, 1)}
    return PartitionSpec(
        *(
            PartitionField(ids[name], 1000 + place, transform, f"p{place}_{name}")
            for place, (name, transform) in enumerate(fields)
        )
    )


SPECS = {
    "none": spec(),
    "identity": spec(("name", IdentityTransform())),
    "identity-number": spec(("id", IdentityTransform())),
    "bucket": spec(("id", BucketTransform(4)), ("name", BucketTransform(3))),
    "truncate": spec(("name", TruncateTransform(1)), ("id", TruncateTransform(10))),
    "day": spec(("at", DayTransform())),
    "month-of-date": spec(("day", MonthTransform())),
    "year-and-hour": spec(("day", YearTransform()), ("at", HourTransform())),
    "void-and-identity": spec(("name", VoidTransform()), ("day", IdentityTransform())),
    "double": spec(("score", IdentityTransform())),
}


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


def a_file(rng: random.Random, engine: Engine, table: Table) -> NewFile:
    """A file of a few rows that agree on their partition."""
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
    return engine.file(
        partition=partition,
        spec_id=partitioned.spec_id,
        record_count=rng.choice([rows, rows, rows, 0]) or rows,
        **vars(statistics),
    )


def filled(lake: Lake, table: Table, seed: int, commits: int = 3, files: int = 8) -> Table:
    rng = random.Random(seed)
    for _ in range(commits):
        engine = Engine.begin(lake, name_of(table))
        engine.append(*(a_file(rng, engine, table) for _ in range(files)))
    return lake.catalog().load_table(table.name())


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


def planned(lake: Lake, table: Table, row_filter: BooleanExpression, **request: Any) -> dict[str, list[str]]:
    """Data file to the delete files that apply to it, as our plan says."""
    asked = ScanRequest(filter=row_filter, **request)
    rows = lake.warden.planner.plan(lake.caller(ALICE), name_of(table), asked).files.to_pylist()
    return {
        row["file_path"]: sorted(rows[number]["file_path"] for number in row["deletes"] or [])
        for row in rows
        if row["content"] == 0
    }


def theirs(table: Table, row_filter: BooleanExpression, **options: Any) -> dict[str, list[str]]:
    """The same as pyiceberg says; without residuals, whose evaluation fails on null partition values."""
    scan = table.scan(row_filter=row_filter, **options)
    with patch.object(ManifestGroupPlanner, "_build_residual_evaluator", lambda *_: _no_residual):
        return {
            task.file.file_path: sorted(each.file_path for each in task.delete_files)
            for task in scan.plan_files()
        }


def _no_residual(_: DataFile) -> ResidualEvaluator:
    return UnpartitionedResidualEvaluator(Schema(), AlwaysTrue())


def agree(lake: Lake, table: Table, seed: int, count: int = 16) -> None:
    rng = random.Random(seed)
    spared, everything = 0, len(theirs(table, AlwaysTrue()))
    assert planned(lake, table, AlwaysTrue()) == theirs(table, AlwaysTrue())
    for _ in range(count):
        row_filter = a_filter(rng, table.schema())
        found = planned(lake, table, row_filter)
        assert found == theirs(table, row_filter), row_filter
        spared += everything - len(found)
    assert spared > everything  # the filters did spare files


@pytest.mark.parametrize("partitioning", SPECS, ids=str)
def test_the_same_files_are_planned_as_by_pyiceberg(lake: Lake, partitioning: str) -> None:
    table = make(lake, schema=SCHEMA, partition_spec=SPECS[partitioning])
    agree(lake, filled(lake, table, seed=len(partitioning)), seed=1)


def evolve_spec(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "by_id")
        update.remove_field("p0_name")


def evolve_schema(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("name", "label")
        update.delete_column("score")
        update.add_column("extra", DoubleType())


@pytest.mark.parametrize("steps", [[evolve_spec], [evolve_schema], [evolve_schema, evolve_spec]], ids=len)
def test_evolved_tables_are_planned_as_by_pyiceberg(lake: Lake, steps: list[Callable[[Table], None]]) -> None:
    start = SPECS["identity"] if evolve_spec in steps else SPECS["day"]
    table = filled(lake, make(lake, schema=SCHEMA, partition_spec=start), seed=5, commits=2)
    for number, evolve in enumerate(steps):
        evolve(table)
        table = filled(lake, lake.catalog().load_table(table.name()), seed=6 + number, commits=2)
    agree(lake, table, seed=7)


def test_rows_that_pyiceberg_wrote_are_planned_as_by_pyiceberg(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA)
    rng = random.Random(3)
    for _ in range(5):
        rows = [
            {name: a_value(rng, kind) if rng.random() > 0.2 else None for name, kind in COLUMNS.items()}
            for _ in range(6)
        ]
        rows[0]["score"] = math.nan
        table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    agree(lake, lake.catalog().load_table(table.name()), seed=11)


def test_snapshots_and_refs_are_planned_as_by_pyiceberg(lake: Lake) -> None:
    table = filled(
        lake, make(lake, schema=SCHEMA, partition_spec=SPECS["identity"]), seed=2, commits=3, files=4
    )
    snapshots = [each.snapshot_id for each in table.snapshots()]
    table.manage_snapshots().create_tag(snapshots[0], "first").create_branch(snapshots[1], "side").commit()
    evolve_schema(table)
    for row_filter in (AlwaysTrue(), GreaterThan("id", 0), IsNull("day")):
        for snapshot_id in snapshots:
            found = planned(lake, table, row_filter, snapshot_id=snapshot_id)
            assert found == theirs(table, row_filter, snapshot_id=snapshot_id)
        assert planned(lake, table, row_filter, ref="first") == theirs(
            table, row_filter, snapshot_id=snapshots[0]
        )
        assert planned(lake, table, row_filter, ref="side") == theirs(
            table, row_filter, snapshot_id=snapshots[1]
        )


def test_letter_case_is_ignored_when_asked(lake: Lake) -> None:
    table = filled(lake, make(lake, schema=SCHEMA, partition_spec=SPECS["identity"]), seed=4)
    row_filter = And(EqualTo("NAME", "ab"), GreaterThan("Id", 0))
    found = planned(lake, table, row_filter, case_sensitive=False)
    assert found == theirs(table, row_filter, case_sensitive=False)
    assert 0 < len(found) < 24
