"""Tables and requests made to make planning fail in an untyped way, or take long."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThan, IsNull, LessThan, Not
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import PATH_FIELD_ID
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimeType,
    UUIDType,
)

from policy.errors import MetadataInvalid, RequestInvalid
from tests.support.attacker import Attacker, data_file, entry
from tests.support.lake import ALICE, Lake
from tests.support.plans import calls_to_plan, plan
from tests.support.tables import append_files, make, name_of


def partitioned(lake: Lake, kind: PrimitiveType) -> Table:
    """A table partitioned by its column `p`."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", kind))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    return make(lake, schema=schema, partition_spec=spec)


def attacker_of(lake: Lake, table: Table) -> Attacker:
    return Attacker(lake, ".".join(table.name()), ALICE)


def plant(lake: Lake, table: Table, value: object, **changes: Any) -> str:
    """Commit a file with a partition value straight to the pointer store; its manifest."""
    attacker = attacker_of(lake, table)
    path = f"{attacker.location}/data/planted.parquet"
    file = data_file(path, partition=Record(value), **changes)
    deletes = file.content is not DataFileContent.DATA
    attacker.commit_behind(*attacker.appending(entry(file), deletes=deletes))
    return attacker.manifests()[-1].manifest_path


def test_dropping_the_source_column_of_a_former_partition_leaves_the_table_readable(lake: Lake) -> None:
    table = partitioned(lake, StringType())
    append_files(lake, name_of(table), partition={"p": "x"})
    table = lake.catalog().load_table(table.name())
    first = table.metadata.snapshots[0].snapshot_id
    with table.update_spec() as spec:
        spec.remove_field("p")
    with lake.catalog().load_table(table.name()).update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("p")
    append_files(lake, name_of(table), partition={}, spec_id=1)
    assert plan(lake, table).files["partition"].to_pylist() == ["{}", "{}"]
    assert plan(lake, table, filter=GreaterThan("id", 3)).files.num_rows == 2
    old = plan(lake, table, snapshot_id=first)
    assert old.files["partition"].to_pylist() == ['{"p": "x"}']
    assert plan(lake, table, snapshot_id=first, filter=EqualTo("p", "y")).files.num_rows == 0


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (DateType(), 2**31 - 1, "+5881580-07-11"),
        (DateType(), -(2**31), "-5877641-06-23"),
        (TimestampType(), 253_402_300_800_000_000, "+10000-01-01T00:00:00"),
    ],
    ids=str,
)
def test_partition_value_beyond_the_year_9999(lake: Lake, kind: PrimitiveType, value: int, text: str) -> None:
    table = partitioned(lake, kind)
    plant(lake, table, value)
    assert plan(lake, table).files["partition"].to_pylist() == [f'{{"p": "{text}"}}']


def test_partition_value_that_no_clock_has(lake: Lake) -> None:
    table = partitioned(lake, TimeType())
    manifest = plant(lake, table, 2**62)
    for columns in ((), ("p",), ("id", "p"), ("id",)):
        with pytest.raises(MetadataInvalid) as refused:
            plan(lake, table, *columns)
        assert (refused.value.path, refused.value.rule) == (manifest, "partition-spec")


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("written", "value", "stated"),
    [
        (StringType(), "x", LongType()),
        (StringType(), "x", DateType()),
        (StringType(), "x", UUIDType()),
        (BinaryType(), b"x", StringType()),
        (LongType(), 1, StringType()),
        (LongType(), 1, BooleanType()),
        (BooleanType(), True, LongType()),
        (DoubleType(), 0.5, LongType()),
        (FixedType(4), b"abcd", FixedType(5)),
        (FixedType(4), b"abcd", UUIDType()),
        (LongType(), 1, DecimalType(9, 2)),
    ],
    ids=str,
)
def test_partition_value_of_another_type_than_its_field(
    lake: Lake, written: PrimitiveType, value: object, stated: PrimitiveType
) -> None:
    table = partitioned(lake, written)
    manifest = plant(lake, table, value)
    forge_schema(lake, table, Schema(NestedField(1, "id", LongType()), NestedField(2, "p", stated)))
    with pytest.raises(MetadataInvalid) as refused:
        plan(lake, table)
    assert refused.value.path == manifest


def test_sixteen_fixed_bytes_are_no_uuid(lake: Lake) -> None:
    table = partitioned(lake, FixedType(16))
    plant(lake, table, b"0123456789abcdef")
    assert plan(lake, table).files["partition"].to_pylist() == ['{"p": "30313233343536373839616263646566"}']


def test_manifest_without_a_partition_field_of_its_spec(lake: Lake) -> None:
    table = partitioned(lake, StringType())
    manifest = plant(lake, table, "x")
    attacker = attacker_of(lake, table)
    spec = PartitionSpec(PartitionField(2, 1001, IdentityTransform(), "p"))
    attacker.point(attacker.write_metadata(attacker.metadata.model_copy(update={"partition_specs": [spec]})))
    with pytest.raises(MetadataInvalid) as refused:
        plan(lake, table)
    assert (refused.value.path, refused.value.rule) == (manifest, "partition-spec")


def test_delete_file_with_path_bounds_that_are_no_text(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    bounds = {"lower_bounds": {PATH_FIELD_ID: b"\xff\xfe"}, "upper_bounds": {PATH_FIELD_ID: b"\xff\xff"}}
    attacker = attacker_of(lake, table)
    file = data_file(
        f"{attacker.location}/data/d.parquet", content=DataFileContent.POSITION_DELETES, **bounds
    )
    attacker.commit_behind(*attacker.appending(entry(file), deletes=True))
    with pytest.raises(MetadataInvalid) as refused:
        plan(lake, table)
    assert (refused.value.path, refused.value.rule) == (attacker.manifests()[-1].manifest_path, "deletes")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1E+400"])
def test_filter_that_compares_a_decimal_with_what_is_no_decimal(lake: Lake, value: str) -> None:
    table = make(lake, schema=Schema(NestedField(1, "price", DecimalType(9, 2))))
    with pytest.raises(RequestInvalid) as refused:
        plan(lake, table, filter=LessThan("price", value))
    assert refused.value.rule == "filter"


@pytest.mark.parametrize(
    "request_",
    [
        {"columns": ("id", "salery")},
        {"filter": LessThan("salery", 5)},
        {"filter": And(LessThan("id", 5), Not(IsNull("salery")))},
    ],
)
def test_the_refusal_of_an_unknown_column_names_it(lake: Lake, request_: dict[str, Any]) -> None:
    table = make(lake, schema=Schema(NestedField(1, "id", LongType())))
    with pytest.raises(RequestInvalid, match=r"^Column 'salery' does not exist\.") as refused:
        plan(lake, table, **request_)
    assert refused.value.rule == "column"


@pytest.mark.nightly
def test_planning_a_wide_table_costs_a_fixed_amount_a_column(lake: Lake) -> None:
    calls = [calls_to_plan(lake, wide(lake, columns)) for columns in (200, 800)]
    assert calls[1] < 6 * calls[0]


def wide(lake: Lake, columns: int) -> Table:
    """A table with a file and so many columns."""
    table = make(lake, schema=Schema(*(NestedField(n, f"c{n}", LongType()) for n in range(1, columns + 1))))
    append_files(lake, name_of(table))
    return table


def forge_schema(lake: Lake, table: Table, schema: Schema) -> None:
    """Put another schema in the place of the table's only one, behind the catalog's back."""
    attacker = attacker_of(lake, table)
    attacker.point(attacker.write_metadata(attacker.metadata.model_copy(update={"schemas": [schema]})))
