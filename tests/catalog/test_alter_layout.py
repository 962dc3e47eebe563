"""ALTER for engines: partitioning, order, identifier fields, branches and tags, as Iceberg has them."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType, TimestampType

from catalog.reading.loading import LoadedTable
from catalog.tables.alter import Change, SetLocation, SetProperty
from catalog.tables.partition_changes import AddPartitionField, RemovePartitionField, SetSortOrder, SortBy
from catalog.tables.ref_changes import DropRef, Retention, SetRef
from catalog.tables.schema_changes import (
    AddColumn,
    DropColumn,
    DropIdentifierFields,
    MakeOptional,
    MakeRequired,
    SetIdentifierFields,
)
from policy.errors import EncryptionPolicyViolation, NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, append_files, make, name_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "at", TimestampType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "f", DoubleType(), required=True),
    NestedField(5, "s", StructType(NestedField(6, "x", LongType(), required=True)), required=True),
)
FOUR, EIGHT, SAME = BucketTransform(4), BucketTransform(8), IdentityTransform()


def alter(lake: Lake, table: Table, *changes: Change, user: str = ALICE) -> LoadedTable:
    return lake.services.alterer.alter(lake.caller(user), name_of(table), changes)


def _add(column: str, transform: Transform[object, object], name: str | None = None) -> AddPartitionField:
    return AddPartitionField(tuple(column.split(".")), transform, name)


def _remove(column: str, transform: Transform[object, object] = SAME) -> RemovePartitionField:
    return RemovePartitionField(tuple(column.split(".")), transform)


def _spec(table: LoadedTable) -> list[str]:
    return [f"{each.field_id} {each.name} {each.transform}" for each in table.metadata.spec().fields]


def test_partition_fields_as_iceberg_evolves_them(lake: Lake) -> None:
    """A field that comes again has the id that it had."""
    table = make(lake, schema=SCHEMA)
    for changes, expected in (
        ([_add("id", FOUR)], ["1000 id_bucket_4 bucket[4]"]),
        ([_remove("id", FOUR), _add("id", EIGHT)], ["1001 id_bucket_8 bucket[8]"]),
        ([_add("id", FOUR)], ["1001 id_bucket_8 bucket[8]", "1000 id_bucket_4 bucket[4]"]),
        (
            [_remove("id_bucket_4"), _add("id", FOUR, "b")],
            ["1001 id_bucket_8 bucket[8]", "1000 b bucket[4]"],
        ),
        ([_remove("id_bucket_8"), _remove("b"), _add("id", EIGHT, "new")], ["1001 new bucket[8]"]),
        ([_remove("id", EIGHT), _add("s.x", SAME, "new")], ["1002 new identity"]),
    ):
        assert _spec(alter(lake, table, *changes)) == expected


def test_void_field_makes_room_for_its_name(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "old"))
    table = make(lake, schema=SCHEMA, partition_spec=spec)
    assert _spec(alter(lake, table, _add("id", FOUR, "old"))) == ["1000 old_1000 void", "1001 old bucket[4]"]


def test_spec_that_the_table_had_before_is_taken_up_again(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA)
    alter(lake, table, _add("s.x", SAME), _add("name", TruncateTransform(3), "start"))
    after = alter(lake, table, _remove("start"), _remove("s.x"))
    assert (after.metadata.default_spec_id, len(after.metadata.partition_specs)) == (0, 2)
    before = after.metadata_location
    alter(lake, table, _add("id", FOUR), _add("at", DayTransform()))
    same = alter(lake, table, _remove("id", FOUR), _add("id", FOUR))
    assert same.metadata_location != before
    assert _spec(same) == ["1002 id_bucket_4 bucket[4]", "1003 at_day day"]


def test_new_column_partitions_and_sorts_in_one_commit(lake: Lake) -> None:
    table = make(lake, schema=SCHEMA)
    by = SortBy(("day",), SAME, SortDirection.DESC, NullOrder.NULLS_LAST)
    after = alter(
        lake, table, SetSortOrder((by,)), _add("day", SAME), AddColumn(("day",), LongType())
    ).metadata
    source = after.schema().find_field("day").field_id
    assert (after.spec().fields[0].source_id, after.sort_order().fields[0].source_id) == (source, source)
    assert len(after.metadata_log) == 1
    unsorted = alter(lake, table, SetSortOrder(())).metadata
    assert unsorted.default_sort_order_id == 0
    again = alter(lake, table, SetSortOrder((by,))).metadata
    assert (again.default_sort_order_id, len(again.sort_orders)) == (after.default_sort_order_id, 2)


def _two_snapshots(lake: Lake, table: Table) -> int:
    """Append twice; the id of the first snapshot."""
    append_files(lake, name_of(table))
    append_files(lake, name_of(table))
    return lake.catalog().load_table(table.name()).metadata.snapshots[0].snapshot_id


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("alter", _add("absent", SAME)),
        ("alter", _add("id", FOUR)),
        ("alter", _add("id", EIGHT, "b")),
        ("alter", _remove("id", EIGHT)),
        ("alter", _remove("id")),
        ("alter", _remove("absent")),
        ("partition-name", _add("id", EIGHT, "at")),
        ("partition-transform", _add("name", DayTransform())),
        ("partition-source", _add("s", SAME)),
        ("alter", SetSortOrder((SortBy(("no",), SAME, SortDirection.ASC, NullOrder.NULLS_FIRST),))),
        ("alter", SetIdentifierFields((("at",),))),
        ("alter", SetIdentifierFields((("f",),))),
        ("alter", SetIdentifierFields((("s",),))),
        ("alter", SetIdentifierFields((("no",),))),
        ("alter", DropIdentifierFields((("f",),))),
        ("alter", MakeOptional(("id",))),
        ("required-column", MakeRequired(("at",))),
        ("snapshot-reference", SetRef("branch", "b", "create")),
        ("snapshot-reference", SetRef("tag", "b", "replace")),
        ("snapshot-reference", DropRef("branch", "b")),
        ("snapshot-reference", DropRef("branch", "main")),
    ],
    ids=repr,
)
def test_what_cannot_be_changed(lake: Lake, rule: str, change: Change) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, FOUR, "b"))
    table = make(lake, schema=SCHEMA, partition_spec=spec)
    alter(lake, table, SetIdentifierFields((("id",), ("s", "x"))))
    before = lake.catalog().load_table(table.name())
    with pytest.raises(RequestInvalid) as raised:
        alter(lake, table, SetProperty("kept", "no"), change)
    assert (raised.value.rule, bool(raised.value.hint)) == (rule, True)
    after = lake.catalog().load_table(table.name())
    assert after.metadata_location == before.metadata_location
    assert after.schema().identifier_field_names() == {"id", "s.x"}


def test_redundant_time_fields(lake: Lake) -> None:
    with pytest.raises(RequestInvalid, match="contain"):
        alter(lake, make(lake, schema=SCHEMA), _add("at", DayTransform()), _add("at", HourTransform()))


def test_all_columns_are_replaced(lake: Lake) -> None:
    table = make(lake)
    changes = [*(DropColumn((each,)) for each in ("id", "name")), AddColumn(("name",), LongType())]
    assert [each.field_id for each in alter(lake, table, *changes).metadata.schema().fields] == [3]


def test_branches_and_tags_keep_the_retention_that_is_not_changed(lake: Lake) -> None:
    table = make(lake)
    first = _two_snapshots(lake, table)
    alter(
        lake, table, SetRef("branch", "b", "create", None, Retention(1, 2, 3)), SetRef("tag", "t", "create")
    )
    moved = alter(lake, table, SetRef("branch", "b", "create-or-replace", first, Retention(None, 5)))
    ref = moved.metadata.refs["b"]
    kept = (ref.snapshot_id, ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep)
    assert kept == (first, 1, 5, 3)
    for wrong in (
        SetRef("tag", "b", "replace"),
        SetRef("branch", "t", "create-or-replace"),
        SetRef("branch", "t", "create"),
        SetRef("tag", "new", "create", 77),
        DropRef("tag", "b"),
        DropRef("tag", "main"),
    ):
        with pytest.raises(RequestInvalid):
            alter(lake, table, wrong)
    same = alter(
        lake, table, SetRef("tag", "t", "create-if-absent", first), DropRef("tag", "x", if_exists=True)
    )
    assert same.metadata_location == moved.metadata_location
    assert set(alter(lake, table, DropRef("tag", "t"), DropRef("branch", "b")).metadata.refs) == {"main"}


def test_update_makes_branches_and_alter_takes_them_back(lake: Lake) -> None:
    table = make(lake)
    writes = policy("writes", tables("db"), {BOB: ["update"]})
    lake.set_policies([*standard_policies(), writes])
    first = _two_snapshots(lake, table)
    alter(lake, table, SetRef("branch", "b", "create"), SetRef("tag", "t", "create"), user=BOB)
    alter(lake, table, SetRef("tag", "t", "replace", first), user=BOB)
    refused: list[Change] = [
        SetRef("branch", "b", "replace", first),
        SetRef("branch", "b", "create-or-replace", None, Retention(1)),
        DropRef("branch", "b"),
        _add("id", FOUR),
        _add("absent", FOUR),
        SetSortOrder(()),
        SetLocation(f"{table.location()}/x"),
    ]
    for change in refused:
        with pytest.raises(NotAuthorized):
            alter(lake, table, change, user=BOB)
    with pytest.raises(NotAuthorized):
        alter(lake, table, DropRef("tag", "t"), SetProperty("a", "b"), user=BOB)
    alter(lake, table, DropRef("tag", "t"), user=BOB)
    assert set(lake.catalog().load_table(table.name()).metadata.refs) == {"main", "b"}


def test_an_encrypted_column_sorts_a_table_and_does_not_partition_it(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    by = SortBy(("id",), SAME, SortDirection.ASC, NullOrder.NULLS_FIRST)
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, _add("id", SAME))
    assert alter(lake, table, SetSortOrder((by,))).metadata.sort_orders[-1].fields


def test_location_needs_the_storage_right(lake: Lake) -> None:
    table = lake.catalog(BOB).create_table(f"bobs.{name_of(make(lake)).name}", SCHEMA)
    elsewhere = f"file://{lake.root}/elsewhere/t"
    with pytest.raises(NotAuthorized):
        alter(lake, table, SetLocation(elsewhere), user=BOB)
    assert alter(lake, table, SetLocation(elsewhere)).metadata.location == elsewhere
