"""What a plan keeps is what pyiceberg's own scan of the same table keeps.

Two ways of writing: rows through pyiceberg, and files with made-up statistics through write sessions, which
reach transforms and corners (NaN, missing statistics, all nulls) that rows seldom do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    IsNull,
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
    DoubleType,
)

from catalog.planning.request import ScanRequest
from tests.support.lake import ALICE, Lake
from tests.support.made_up_files import COLUMNS, SCHEMA, a_file, a_filter, a_value, compares_by_inequality
from tests.support.tables import Engine, make, name_of


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


def filled(lake: Lake, table: Table, seed: int, commits: int = 2, files: int = 8) -> Table:
    rng = random.Random(seed)
    for _ in range(commits):
        engine = Engine.begin(lake, name_of(table))
        engine.append(*(engine.file(**a_file(rng, table)) for _ in range(files)))
    return lake.catalog().load_table(table.name())


def planned(lake: Lake, table: Table, row_filter: BooleanExpression, **request: Any) -> dict[str, list[str]]:
    """Data file to the delete files that apply to it, as our plan says."""
    asked = ScanRequest(filter=row_filter, **request)
    rows = lake.services.planner.plan(lake.caller(ALICE), name_of(table), asked).files.to_pylist()
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


def agree(lake: Lake, table: Table, seed: int, count: int = 10) -> None:
    rng = random.Random(seed)
    spared, everything = 0, len(theirs(table, AlwaysTrue()))
    assert planned(lake, table, AlwaysTrue()) == theirs(table, AlwaysTrue())
    for _ in range(count):
        row_filter = a_filter(rng, table.schema())
        found, expected = planned(lake, table, row_filter), theirs(table, row_filter)
        # By an inequality the catalog skips a file of one value, too.
        assert (
            found.items() <= expected.items() if compares_by_inequality(row_filter) else found == expected
        ), row_filter
        spared += everything - len(found)
    assert spared > everything  # the filters did spare files


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
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


@pytest.mark.nightly
@pytest.mark.parametrize("steps", [[evolve_spec], [evolve_schema], [evolve_schema, evolve_spec]], ids=len)
def test_evolved_tables_are_planned_as_by_pyiceberg(lake: Lake, steps: list[Callable[[Table], None]]) -> None:
    start = SPECS["identity"] if evolve_spec in steps else SPECS["day"]
    table = filled(lake, make(lake, schema=SCHEMA, partition_spec=start), seed=5)
    for number, evolve in enumerate(steps):
        evolve(table)
        table = filled(lake, lake.catalog().load_table(table.name()), seed=6 + number)
    agree(lake, table, seed=7)


@pytest.mark.nightly
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
    assert 0 < len(found) < 16
