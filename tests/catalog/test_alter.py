"""ALTER for engines: columns keep their ids, what no reader could follow is refused, all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
)

from catalog.base import crash_points
from catalog.reading.loading import LoadedTable
from catalog.tables.alter import Change, RemoveProperty, SetProperty
from catalog.tables.schema_changes import (
    AddColumn,
    After,
    DropColumn,
    MakeOptional,
    MoveColumn,
    RenameColumn,
    UpdateDoc,
    UpdateType,
)
from policy.errors import (
    EncryptionPolicyViolation,
    LocationNotAllowed,
    NotAuthorized,
    PropertyInvalid,
    RequestInvalid,
)
from tests.support.lake import ALICE, BOB, CAROL, Lake
from tests.support.tables import ENCRYPTED, append_files, make, name_of, records, rows

POINT = StructType(NestedField(4, "x", IntegerType()), NestedField(5, "y", FloatType()))
NESTED = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "tags", ListType(3, POINT, element_required=False)),
    NestedField(6, "by", MapType(7, StringType(), 8, StructType(NestedField(9, "v", IntegerType())))),
    NestedField(10, "price", DecimalType(10, 2)),
)


def alter(lake: Lake, table: Table, *changes: Change, user: str = ALICE) -> LoadedTable:
    return lake.services.alterer.alter(lake.caller(user), name_of(table), changes)


def refused(lake: Lake, table: Table, *changes: Change, rule: str = "alter") -> RequestInvalid:
    """The error of changes that change nothing."""
    before = table.metadata_location
    with pytest.raises(RequestInvalid) as raised:
        alter(lake, table, *changes)
    assert (raised.value.rule, raised.value.table) == (rule, ".".join(table.name()))
    assert raised.value.hint
    assert lake.catalog().load_table(table.name()).metadata_location == before
    return raised.value


def ids(schema: Schema) -> dict[str, int]:
    """Each column's id by its full name, in order."""
    return {schema.find_column_name(field_id) or "": field_id for field_id in sorted(schema.field_ids)}


def top(table: LoadedTable) -> list[str]:
    return [field.name for field in table.metadata.schema().fields]


def test_added_columns_get_ids_that_no_column_had(lake: Lake) -> None:
    table = make(lake)
    alter(lake, table, AddColumn(("gone",), LongType()))
    alter(lake, table, DropColumn(("gone",)))
    struct = StructType(NestedField(1, "a", LongType()), NestedField(1, "b", ListType(1, LongType(), True)))
    after = alter(lake, table, AddColumn(("more",), struct, doc="new")).metadata.schema()
    assert ids(after) == {"id": 1, "name": 2, "more": 4, "more.a": 5, "more.b": 6, "more.b.element": 7}
    assert after.find_field("more").doc == "new"


def test_nested_columns_are_added_to_structs_in_lists_and_maps(lake: Lake) -> None:
    table = make(lake, schema=NESTED)
    was = ids(table.metadata.schema())
    now = ids(
        alter(
            lake,
            table,
            AddColumn(("tags", "element", "z"), LongType(), position=After("x")),
            AddColumn(("by", "value", "w"), StringType(), position="first"),
        ).metadata.schema()
    )
    assert {name: now[name] for name in was} == was
    assert set(now) - set(was) == {"tags.element.z", "by.value.w"}
    schema = lake.catalog().load_table(table.name()).schema()
    tags, by = schema.find_type("tags.element"), schema.find_type("by.value")
    assert isinstance(tags, StructType) and isinstance(by, StructType)
    assert [field.name for field in tags.fields] == ["x", "z", "y"]
    assert [field.name for field in by.fields] == ["w", "v"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("position", "order"),
    [
        ("first", ["new", "id", "name"]),
        (After("id"), ["id", "new", "name"]),
        (After("name"), ["id", "name", "new"]),
        (None, ["id", "name", "new"]),
    ],
)
def test_a_column_goes_where_it_is_wanted(lake: Lake, position: Any, order: list[str]) -> None:
    assert top(alter(lake, make(lake), AddColumn(("new",), LongType(), position=position))) == order
    moved = make(lake)
    alter(lake, moved, AddColumn(("new",), LongType(), position="first"))
    assert top(alter(lake, moved, MoveColumn(("new",), position))) == order


def test_a_rename_keeps_the_id_and_the_rows(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    after = alter(lake, table, RenameColumn(("name",), "label"), UpdateDoc(("label",), "what it is"))
    assert ids(after.metadata.schema()) == {"id": 1, "label": 2}
    assert after.metadata.schema().find_field("label").doc == "what it is"
    assert lake.catalog().load_table(table.name()).scan().to_arrow()["label"].to_pylist() == ["n1", "n2"]


def test_a_name_that_is_taken_is_said_to_be(lake: Lake) -> None:
    table = make(lake)
    for change in (RenameColumn(("id",), "name"), AddColumn(("id",), LongType())):
        assert "already" in refused(lake, table, change).message


def test_changes_are_made_in_order_in_one_commit(lake: Lake) -> None:
    table = make(lake)
    after = alter(
        lake,
        table,
        RenameColumn(("id",), "was"),
        RenameColumn(("name",), "id"),
        DropColumn(("was",)),
        AddColumn(("was",), LongType(), position="first"),
        SetProperty("a", "1"),
        SetProperty("a", "2"),
        SetProperty("b", "1"),
        RemoveProperty("b"),
    )
    assert ids(after.metadata.schema()) == {"id": 2, "was": 3}
    assert top(after) == ["was", "id"]
    assert after.metadata.properties == {"a": "2"}
    assert [each.schema_id for each in after.metadata.schemas] == [0, 1]
    assert len(after.metadata.metadata_log) == 1


def test_a_schema_that_the_table_had_before_is_taken_up_again(lake: Lake) -> None:
    table = make(lake)
    alter(lake, table, RenameColumn(("name",), "label"))
    after = alter(lake, table, RenameColumn(("label",), "name"))
    assert (after.metadata.current_schema_id, len(after.metadata.schemas)) == (0, 2)


@pytest.mark.parametrize(
    ("path", "wider"),
    [
        (("id",), LongType()),
        (("tags", "element", "y"), DoubleType()),
        (("price",), DecimalType(20, 2)),
    ],
)
def test_types_become_wider(lake: Lake, path: tuple[str, ...], wider: Any) -> None:
    after = alter(lake, make(lake, schema=NESTED), UpdateType(path, wider))
    assert after.metadata.schema().find_type(".".join(path)) == wider


@pytest.mark.parametrize(
    ("path", "other"),
    [
        (("id",), StringType()),
        (("id",), DoubleType()),
        (("price",), DecimalType(9, 2)),
        (("price",), DecimalType(20, 3)),
        (("tags",), LongType()),
        (("tags", "element"), LongType()),
        (("missing",), LongType()),
    ],
)
def test_types_that_old_files_could_not_be_read_by(lake: Lake, path: tuple[str, ...], other: Any) -> None:
    refused(lake, make(lake, schema=NESTED), UpdateType(path, other))


def test_elements_of_lists_become_wider(lake: Lake) -> None:
    table = make(lake, schema=Schema(NestedField(1, "l", ListType(2, IntegerType(), True))))
    after = alter(lake, table, UpdateType(("l", "element"), LongType()), MakeOptional(("l", "element")))
    assert after.metadata.schema().find_field("l.element") == NestedField(2, "element", LongType())


def test_a_required_column_becomes_optional_and_never_the_other_way(lake: Lake) -> None:
    table = make(lake, schema=NESTED)
    assert alter(lake, table, MakeOptional(("id",))).metadata.schema().find_field("id").optional
    table.refresh()
    error = refused(lake, table, AddColumn(("n",), LongType(), required=True), rule="required-column")
    assert "optional" in (error.hint or "")


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "change",
    [
        AddColumn(("id",), LongType()),
        AddColumn(("id", "x"), LongType()),
        AddColumn(("missing", "x"), LongType()),
        AddColumn(("tags", "x"), LongType()),
        AddColumn(("new",), TimestampNanoType()),
        AddColumn(("new",), LongType(), position=After("missing")),
        AddColumn(("new",), LongType(), position=After("new")),
        RenameColumn(("missing",), "x"),
        RenameColumn(("id",), "price"),
        RenameColumn(("tags", "element"), "x"),
        DropColumn(("missing",)),
        DropColumn(("tags", "element")),
        DropColumn(("by", "key")),
        DropColumn(("by", "value", "v")),
        UpdateDoc(("missing",), "x"),
        MakeOptional(("missing",)),
        MoveColumn(("missing",), "first"),
        MoveColumn(("id",), After("id")),
        MoveColumn(("tags", "element"), "first"),
        MoveColumn(("tags", "element", "x"), After("id")),
    ],
    ids=repr,
)
def test_what_cannot_be_changed_is_one_error(lake: Lake, change: Change) -> None:
    refused(lake, make(lake, schema=NESTED), SetProperty("kept", "no"), change)


@pytest.mark.parametrize(
    "change",
    [
        AddColumn(("tags.element.z",), LongType()),
        AddColumn(("z",), StructType(NestedField(1, "a.b", LongType()))),
        RenameColumn(("id",), "a.b"),
        RenameColumn(("tags.element", "x"), "b"),
        DropColumn(("",)),
        MoveColumn(("id",), After("tags.element")),
    ],
    ids=repr,
)
def test_names_that_could_be_read_in_two_ways(lake: Lake, change: Change) -> None:
    refused(lake, make(lake, schema=NESTED), change, rule="column-name")


@pytest.mark.parametrize("path", [("id",), ("at",)])
def test_what_partitions_or_sorts_a_table_is_not_dropped(lake: Lake, path: tuple[str, ...]) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "at", TimestampType()),
        NestedField(3, "x", LongType()),
    )
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))
    order = SortOrder(SortField(2, IdentityTransform()))
    table = make(lake, schema=schema, partition_spec=spec, sort_order=order)
    assert "is used by a partition field or sort order" in refused(lake, table, DropColumn(path)).message
    alter(lake, table, DropColumn(("x",)), RenameColumn(path, "other"))


def test_the_last_column_is_not_dropped(lake: Lake) -> None:
    table = make(lake)
    refused(lake, table, DropColumn(("id",)), DropColumn(("name",)))


def test_a_drop_if_it_exists_changes_nothing_where_it_does_not(lake: Lake) -> None:
    table = make(lake)
    after = alter(lake, table, DropColumn(("missing",), if_exists=True))
    assert after.metadata_location == table.metadata_location
    caller = lake.caller(CAROL)
    with pytest.raises(NotAuthorized):
        lake.services.alterer.alter(caller, name_of(table), [DropColumn(("missing",), if_exists=True)])
    assert records(lake, caller)[-1].allowed is False


def test_only_who_may_alter_is_told_of_the_columns(lake: Lake) -> None:
    table = make(lake)
    for user in (BOB, CAROL):
        caller = lake.caller(user)
        with pytest.raises(NotAuthorized):
            lake.services.alterer.alter(caller, name_of(table), [RenameColumn(("missing",), "x")])
        assert [each.allowed for each in records(lake, caller)] == [False]


def test_governed_properties_are_changed_by_the_rules_of_every_commit(lake: Lake) -> None:
    table = lake.catalog(BOB).create_table(f"bobs.{name_of(make(lake)).name}", NESTED)
    elsewhere = f"file://{lake.root}/elsewhere"
    with pytest.raises(NotAuthorized):
        alter(lake, table, SetProperty("read.allowed.data.paths", elsewhere), user=BOB)
    after = alter(lake, table, SetProperty("read.allowed.data.paths", f"{table.location()},{elsewhere}"))
    assert after.shown_metadata.properties["read.allowed.data.paths"] == f"{table.location()},{elsewhere}"
    assert "read.allowed.data.paths" not in after.metadata.properties
    back = alter(lake, table, RemoveProperty("read.allowed.data.paths"), user=BOB)
    assert back.shown_metadata.properties["read.allowed.data.paths"] == table.location()
    with pytest.raises(PropertyInvalid):
        alter(lake, table, SetProperty("encryption.algorithmn", "AES_GCM_V1"))
    with pytest.raises(PropertyInvalid):
        alter(lake, table, SetProperty("s3.endpoint", "http://evil"))


def test_encryption_is_turned_on_and_holds_for_new_columns(lake: Lake) -> None:
    table = make(lake)
    after = alter(
        lake, table, AddColumn(("n",), LongType()), *(SetProperty(*each) for each in ENCRYPTED.items())
    )
    assert after.governed.spec.encrypts
    partitioned = make(lake, partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id")))
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, partitioned, *(SetProperty(*each) for each in ENCRYPTED.items()))


def test_narrowing_the_allowed_list_names_what_it_breaks(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    with pytest.raises(LocationNotAllowed) as raised:
        alter(lake, table, SetProperty("read.allowed.data.paths", f"{table.location()}/metadata"))
    assert raised.value.rule == "narrowing"


def test_changes_that_another_commit_overtakes_are_made_on_top_of_it(lake: Lake) -> None:
    table = make(lake)
    left = [
        lambda: append_files(lake, name_of(table)),
        lambda: alter(lake, table, AddColumn(("b",), LongType())),
    ]

    def hook(point: str) -> None:
        if point == "metadata-written" and left:
            left.pop()()

    with crash_points.hooked(hook):
        after = alter(lake, table, AddColumn(("a",), LongType()))
    assert ids(after.metadata.schema()) == {"id": 1, "name": 2, "b": 3, "a": 4}
    assert len(after.metadata.snapshots) == 1


def test_a_name_that_another_commit_took_meanwhile_is_refused(lake: Lake) -> None:
    table = make(lake)
    left = [lambda: alter(lake, table, AddColumn(("a",), StringType()))]

    def hook(point: str) -> None:
        if point == "metadata-written" and left:
            left.pop()()

    with crash_points.hooked(hook), pytest.raises(RequestInvalid) as raised:
        alter(lake, table, AddColumn(("a",), LongType()))
    assert raised.value.rule == "alter"


def test_the_name_mapping_follows_the_columns(lake: Lake) -> None:
    mapping = '[{"field-id":1,"names":["id"]},{"field-id":2,"names":["name"]}]'
    table = make(lake, properties={"schema.name-mapping.default": mapping})
    after = alter(lake, table, RenameColumn(("name",), "label"), AddColumn(("n",), LongType()))
    kept = after.metadata.name_mapping()
    assert kept is not None
    assert [(each.field_id, each.names) for each in kept.root] == [
        (1, ["id"]),
        (2, ["name", "label"]),
        (3, ["n"]),
    ]
