"""Commits leave metadata that every Iceberg engine can open, and conflicts are told from mistakes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    YearTransform,
)
from pyiceberg.types import (
    DateType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
)

from catalog.base.errors import CommitConflict
from policy.errors import PropertyInvalid, RequestInvalid
from tests.catalog.checked_commits import commit, refused
from tests.support.lake import Lake
from tests.support.tables import fresh, make, rows

COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestampType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "real", DoubleType()),
    NestedField(6, "many", ListType(7, LongType())),
)


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table without rows."""
    return make(lake, schema=COLUMNS)


def schema(*more: NestedField, number: int = 1) -> Schema:
    return Schema(*COLUMNS.fields, *more, schema_id=number)


def spec(transform: Transform[Any, Any], source: int, name: str = "p", number: int = 1) -> PartitionSpec:
    return PartitionSpec(PartitionField(source, 1000, transform, name), spec_id=number)


OTHERS = [
    AddSchemaUpdate(schema_=Schema(NestedField(1, "other", LongType()), schema_id=0)),
    AddPartitionSpecUpdate(spec=spec(IdentityTransform(), 1, number=0)),
    AddSortOrderUpdate(sort_order=SortOrder(SortField(1, IdentityTransform()), order_id=0)),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda each: each.action)
def test_an_id_in_use_is_not_given_to_another(lake: Lake, table: Table, other: TableUpdate) -> None:
    assert refused(lake, table, other) in ("schema-id", "partition-spec-id", "sort-order-id")


def test_an_id_used_twice_in_one_commit_is_a_mistake(lake: Lake, table: Table) -> None:
    twice = [AddSchemaUpdate(schema_=schema(NestedField(8, name, LongType()))) for name in ("x", "y")]
    knows = (AssertLastAssignedFieldId(last_assigned_field_id=7),)
    assert refused(lake, table, *twice, on=knows) == "schema-id"


def test_an_id_that_was_assigned_meanwhile_is_a_conflict(lake: Lake, table: Table) -> None:
    """The client says what it builds on, and does not know of the schema."""
    renamed = Schema(NestedField(1, "renamed", LongType()), *COLUMNS.fields[1:], schema_id=1)
    commit(lake, table, AddSchemaUpdate(schema_=renamed))
    mine = AddSchemaUpdate(
        schema_=Schema(NestedField(1, "mine", LongType()), *COLUMNS.fields[1:], schema_id=1)
    )
    knows = (AssertLastAssignedFieldId(last_assigned_field_id=7),)
    assert refused(lake, table, mine, kind=CommitConflict, on=knows) == "schema-id"
    known = AddSchemaUpdate(schema_=Schema(NestedField(1, "mine", LongType()), schema_id=0))
    assert refused(lake, table, known, on=(AssertCurrentSchemaId(current_schema_id=0),)) == "schema-id"


def test_a_requirement_about_ids_that_no_longer_holds_is_a_conflict(lake: Lake, table: Table) -> None:
    stale = (AssertLastAssignedFieldId(last_assigned_field_id=3),)
    added = AddSchemaUpdate(schema_=schema(NestedField(8, "x", LongType())))
    assert refused(lake, table, added, kind=CommitConflict, on=stale) == "assert-last-assigned-field-id"


def test_what_the_table_has_already_is_not_listed_twice(lake: Lake, table: Table) -> None:
    metadata = table.metadata
    after = commit(
        lake,
        table,
        AddSchemaUpdate(schema_=metadata.schema()),
        AddPartitionSpecUpdate(spec=metadata.spec()),
        AddSortOrderUpdate(sort_order=metadata.sort_order()),
        AddSchemaUpdate(schema_=schema(NestedField(8, "x", LongType()), number=9)),
        AddSchemaUpdate(schema_=schema(NestedField(8, "x", LongType()), number=9)),
        AddSchemaUpdate(schema_=schema(NestedField(8, "y", LongType()), number=5)),
        SetCurrentSchemaUpdate(schema_id=-1),
    ).metadata
    assert [each.schema_id for each in after.schemas] == [0, 9, 5]
    assert after.current_schema_id == 5
    assert (len(after.partition_specs), len(after.sort_orders)) == (1, 1)


def test_required_columns_are_for_tables_without_rows(lake: Lake, table: Table) -> None:
    required = NestedField(8, "must", LongType(), required=True)
    commit(lake, table, AddSchemaUpdate(schema_=schema(required)), SetCurrentSchemaUpdate(schema_id=-1))
    filled = make(lake)
    filled.append(rows(1))
    wider = Schema(*filled.schema().fields, NestedField(3, "must", LongType(), required=True), schema_id=1)
    changed = [AddSchemaUpdate(schema_=wider), SetCurrentSchemaUpdate(schema_id=1)]
    assert refused(lake, filled, *changed) == "required-column"
    stricter = Schema(NestedField(1, "id", LongType(), required=True), filled.schema().fields[1], schema_id=1)
    changed = [AddSchemaUpdate(schema_=stricter), SetCurrentSchemaUpdate(schema_id=1)]
    assert refused(lake, filled, *changed) == "required-column"


def test_rows_of_other_branches_and_inside_of_structs_count_for_required_columns(lake: Lake) -> None:
    inner = NestedField(2, "s", StructType(NestedField(3, "x", LongType())))
    filled = make(lake, schema=Schema(NestedField(1, "id", LongType()), inner))
    filled.append(pa.table({"id": [1], "s": [{"x": 1}]}))
    more = StructType(*inner.field_type.fields, NestedField(4, "must", LongType(), required=True))
    within = Schema(filled.schema().fields[0], NestedField(2, "s", more), schema_id=1)
    changed = [AddSchemaUpdate(schema_=within), SetCurrentSchemaUpdate(schema_id=1)]
    assert refused(lake, filled, *changed) == "required-column"
    side = SetSnapshotRefUpdate(
        ref_name="side", type="branch", snapshot_id=filled.metadata.current_snapshot_id
    )
    commit(lake, filled, side, RemoveSnapshotRefUpdate(ref_name="main"))
    filled = lake.catalog().load_table(filled.name())
    assert refused(lake, filled, *changed) == "required-column"


def test_a_table_that_is_replaced_can_have_required_columns(lake: Lake) -> None:
    filled = make(lake)
    filled.append(rows(1))
    other = Schema(NestedField(3, "must", LongType(), required=True), schema_id=1)
    changed = [AddSchemaUpdate(schema_=other), SetCurrentSchemaUpdate(schema_id=1)]
    after = commit(lake, filled, *changed, RemoveSnapshotRefUpdate(ref_name="main"))
    assert after.scan().to_arrow().num_rows == 0


def test_a_new_optional_struct_can_have_required_fields(lake: Lake) -> None:
    filled = make(lake)
    filled.append(rows(1))
    inner = StructType(NestedField(4, "must", LongType(), required=True))
    wider = Schema(*filled.schema().fields, NestedField(3, "more", inner), schema_id=1)
    after = commit(lake, filled, AddSchemaUpdate(schema_=wider), SetCurrentSchemaUpdate(schema_id=1))
    assert after.scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("default", [{"initial_default": 1}, {"write_default": 1}])
def test_columns_have_no_defaults_in_version_2(lake: Lake, table: Table, default: dict[str, int]) -> None:
    column = NestedField(8, "x", LongType(), **default)
    assert refused(lake, table, AddSchemaUpdate(schema_=schema(column))) == "column-default"
    with pytest.raises(RequestInvalid, match="column-default"):
        make(lake, schema=Schema(column))


@pytest.mark.parametrize("name", ["", "x" * 4097], ids=["empty", "too long"])
def test_a_name_that_no_privilege_can_have_is_refused(lake: Lake, table: Table, name: str) -> None:
    column = NestedField(8, name, LongType())
    assert refused(lake, table, AddSchemaUpdate(schema_=schema(column))) == "column-name"
    for each in (column, NestedField(9, "s", StructType(column))):
        with pytest.raises(RequestInvalid, match="column-name"):
            make(lake, schema=Schema(each))


def test_a_field_id_is_used_once(lake: Lake, table: Table) -> None:
    assert (
        refused(lake, table, AddSchemaUpdate(schema_=schema(NestedField(6, "x", LongType())))) == "field-id"
    )


def test_field_ids_and_lengths_are_those_that_java_reads(lake: Lake, table: Table) -> None:
    too_great = NestedField(2**31, "x", LongType())
    assert refused(lake, table, AddSchemaUpdate(schema_=schema(too_great))) == "id-range"
    for too_small in (0, -1, -(2**40)):
        column = NestedField(too_small, "x", LongType())
        assert refused(lake, table, AddSchemaUpdate(schema_=schema(column))) == "field-id"
    too_long = NestedField(8, "x", FixedType(2**31))
    assert refused(lake, table, AddSchemaUpdate(schema_=schema(too_long))) == "column-type"


def test_types_of_later_format_versions_are_refused(lake: Lake, table: Table) -> None:
    column = NestedField(8, "x", TimestampNanoType())
    assert refused(lake, table, AddSchemaUpdate(schema_=schema(column))) == "column-type"


@pytest.mark.parametrize(
    ("first", "second"), [((1000, "a"), (1000, "b")), ((1000, "a"), (1001, "a")), ((1000, ""), (1001, "b"))]
)
def test_partition_fields_have_ids_and_names_of_their_own(
    lake: Lake, table: Table, first: tuple[int, str], second: tuple[int, str]
) -> None:
    both = PartitionSpec(
        PartitionField(1, first[0], IdentityTransform(), first[1]),
        PartitionField(2, second[0], IdentityTransform(), second[1]),
        spec_id=1,
    )
    assert refused(lake, table, AddPartitionSpecUpdate(spec=both)) == "partition-field"


def test_no_field_of_a_partition_has_the_id_of_another_columns(lake: Lake) -> None:
    table = make(lake, schema=COLUMNS, partition_spec=spec(IdentityTransform(), 1, number=0))
    other = AddPartitionSpecUpdate(spec=spec(IdentityTransform(), 2, "q"))
    assert refused(lake, table, other) == "partition-field"


def test_the_source_of_a_partition_or_sort_field_exists(lake: Lake, table: Table) -> None:
    added = AddPartitionSpecUpdate(spec=spec(IdentityTransform(), 99))
    assert refused(lake, table, added) == "partition-source"
    order = SortOrder(SortField(99, IdentityTransform()), order_id=1)
    assert refused(lake, table, AddSortOrderUpdate(sort_order=order)) == "sort-source"


NONSENSE = [
    (YearTransform(), 2, "transform"),
    (DayTransform(), 1, "transform"),
    (BucketTransform(0), 1, "transform"),
    (BucketTransform(2**31), 1, "transform"),
    (BucketTransform(4), 5, "transform"),
    (TruncateTransform(0), 2, "transform"),
    (TruncateTransform(2), 4, "transform"),
    (UnknownTransform("zorder"), 1, "transform"),
    (IdentityTransform(), 6, "source"),
    (IdentityTransform(), 7, "source"),
]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("transform", "source", "rule"), NONSENSE)
def test_transforms_that_their_source_does_not_have_are_refused(
    lake: Lake, table: Table, transform: Transform[Any, Any], source: int, rule: str
) -> None:
    added = AddPartitionSpecUpdate(spec=spec(transform, source))
    assert refused(lake, table, added) == f"partition-{rule}"
    order = SortOrder(SortField(source, transform), order_id=1)
    assert refused(lake, table, AddSortOrderUpdate(sort_order=order)) == f"sort-{rule}"
    with pytest.raises(RequestInvalid) as refusal:
        make(lake, schema=COLUMNS, partition_spec=spec(transform, source))
    assert refusal.value.rule == f"partition-{rule}"


def test_a_type_that_the_partitioning_does_not_take_is_refused(lake: Lake) -> None:
    table = make(lake, schema=COLUMNS, partition_spec=spec(DayTransform(), 4))
    fields = [each for each in COLUMNS.fields if each.field_id != 4]
    other = Schema(*fields, NestedField(4, "day", StringType()), schema_id=1)
    assert refused(lake, table, AddSchemaUpdate(schema_=other), SetCurrentSchemaUpdate(schema_id=1))


def test_a_column_does_not_get_the_name_of_a_partition_field(lake: Lake) -> None:
    """Iceberg Java does not open such a table."""
    table = make(lake, schema=COLUMNS, partition_spec=spec(DayTransform(), 3, "at_day"))
    taken = schema(NestedField(8, "at_day", DateType()))
    changed = [AddSchemaUpdate(schema_=taken), SetCurrentSchemaUpdate(schema_id=1)]
    assert refused(lake, table, *changed) == "partition-name"
    assert (
        refused(lake, table, AddPartitionSpecUpdate(spec=spec(YearTransform(), 3, "name", number=1)))
        == "partition-name"
    )


def test_a_column_does_not_get_the_name_of_a_field_of_an_earlier_spec(lake: Lake) -> None:
    table = make(lake, schema=COLUMNS, partition_spec=spec(DayTransform(), 3, "at_day"))
    later = AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=1))
    commit(lake, table, later, SetDefaultSpecUpdate(spec_id=-1))
    taken = schema(NestedField(8, "at_day", DateType()))
    changed = [AddSchemaUpdate(schema_=taken), SetCurrentSchemaUpdate(schema_id=1)]
    assert refused(lake, table, *changed) == "partition-name"


@pytest.mark.parametrize("sorts", [False, True])
def test_a_column_that_the_layout_is_made_from_stays_where_it_is(lake: Lake, sorts: bool) -> None:
    order = SortOrder(SortField(4, IdentityTransform()), order_id=1)
    layout: dict[str, Any] = {"sort_order": order} if sorts else {"partition_spec": spec(DayTransform(), 4)}
    table = make(lake, schema=COLUMNS, **layout)
    others = [each for each in COLUMNS.fields if each.field_id != 4]
    moved = Schema(*others, NestedField(8, "days", ListType(4, DateType())), schema_id=1)
    changed = [AddSchemaUpdate(schema_=moved), SetCurrentSchemaUpdate(schema_id=1)]
    assert refused(lake, table, *changed) == ("sort-source" if sorts else "updates")


def test_partition_fields_that_come_together_do_not_contain_each_other(lake: Lake, table: Table) -> None:
    both = PartitionSpec(
        PartitionField(3, 1000, YearTransform(), "y"),
        PartitionField(3, 1001, MonthTransform(), "m"),
        spec_id=1,
    )
    assert refused(lake, table, AddPartitionSpecUpdate(spec=both)) == "redundant-partition"
    with pytest.raises(RequestInvalid, match="redundant-partition"):
        make(lake, schema=COLUMNS, partition_spec=both)
    by_year = make(lake, schema=COLUMNS, partition_spec=spec(YearTransform(), 3, "y"))
    later = PartitionSpec(*by_year.spec().fields, PartitionField(3, 1001, MonthTransform(), "m"), spec_id=1)
    after = commit(lake, by_year, AddPartitionSpecUpdate(spec=later), SetDefaultSpecUpdate(spec_id=-1))
    assert after.spec() == later


def test_what_is_gone_is_removed_without_an_error(lake: Lake) -> None:
    """Iceberg Java expires a snapshot first, and its statistics after it."""
    table = make(lake)
    table.append(rows(1))
    first = table.metadata.current_snapshot_id
    table.append(rows(3))
    assert first is not None
    statistics = StatisticsFile(
        snapshot_id=first,
        statistics_path=f"{table.location()}/metadata/s.puffin",
        file_size_in_bytes=10,
        file_footer_size_in_bytes=5,
        blob_metadata=[],
    )
    of_partitions = PartitionStatisticsFile(
        snapshot_id=first,
        statistics_path=f"{table.location()}/metadata/p.parquet",
        file_size_in_bytes=10,
    )
    commit(
        lake,
        table,
        SetStatisticsUpdate(statistics=statistics),
        SetPartitionStatisticsUpdate(partition_statistics=of_partitions),
    )
    after = commit(
        lake,
        table,
        RemoveSnapshotsUpdate(snapshot_ids=[first, 4711]),
        RemoveStatisticsUpdate(snapshot_id=first),
        RemovePartitionStatisticsUpdate(snapshot_id=first),
        RemoveSchemasUpdate(schema_ids=[77]),
        RemovePartitionSpecsUpdate(spec_ids=[77]),
        SetDefaultSortOrderUpdate(sort_order_id=0),
    ).metadata
    assert (len(after.snapshots), after.statistics, after.partition_statistics) == (1, [], [])


def test_a_new_table_is_checked_like_a_commit(lake: Lake) -> None:
    years = spec(YearTransform(), 2)
    with pytest.raises(RequestInvalid, match="partition-transform"):
        lake.catalog().create_table_transaction(str(fresh()), COLUMNS, partition_spec=years)


@pytest.mark.parametrize(
    ("name", "rule"),
    [("write.distribution-mode", "write-property"), ("WRITE.DATA.PATH", "property-name")],
)
def test_properties_that_break_later_writes_are_refused_when_they_are_set(
    lake: Lake, table: Table, name: str, rule: str
) -> None:
    assert refused(lake, table, SetPropertiesUpdate(updates={name: "banana"}), kind=PropertyInvalid) == rule
    with pytest.raises(PropertyInvalid, match=rule):
        make(lake, properties={name: "banana"})
