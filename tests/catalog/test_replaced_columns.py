"""The columns and partitions of a table that is replaced: ids, keys and names stay with what they were."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddSchemaUpdate, RemoveSchemasUpdate, SetCurrentSchemaUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from catalog.tables.replacements import numbered
from catalog.writes.new_files import FileCommit
from policy.errors import EncryptionPolicyViolation, NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, CAROL, Lake, policy, standard_policies, tables
from tests.support.replacing import KEYED, REST, files, loaded, made, only, staged
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, fresh


def test_columns_that_stay_by_name_stay_under_their_keys(lake: Lake) -> None:
    """One that has another type now, and so another field id, too."""
    name = made(lake, properties=KEYED)
    lake.set_policies(only("alter", "update", "select"))
    schema = Schema(NestedField(1, "extra", StringType()), NestedField(2, "name", LongType()))
    engine = staged(lake, name, user=CAROL, schema=schema)
    new = engine.commit(FileCommit("append", (engine.file(),)), user=CAROL)
    assert new.shown_metadata.properties["encryption.columns"] == "lakewarden:name"
    assert {field.name: field.field_id for field in new.metadata.schema().fields} == {"extra": 3, "name": 4}
    (group,) = new.governed.epochs.current.columns
    assert group.field_ids == (4,)
    first = min(
        each.snapshot_id for each in new.metadata.snapshots if each is not new.metadata.current_snapshot()
    )
    old = next(each.snapshot_id for each in new.metadata.snapshots if each.sequence_number == 1)
    assert first and [len(row["keys"]) for row in files(lake, name, snapshot_id=old)] == [2]


def test_the_last_column_with_a_key_does_not_vanish_unsaid(lake: Lake) -> None:
    name = made(lake, properties=KEYED)
    with pytest.raises(EncryptionPolicyViolation) as raised:
        staged(lake, name, schema=Schema(NestedField(1, "id", LongType())))
    assert raised.value.rule == "last-column"


def test_encrypted_columns_do_not_partition_a_replaced_table(lake: Lake) -> None:
    name = made(lake, properties=ENCRYPTED)
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    with pytest.raises(EncryptionPolicyViolation):
        staged(lake, name, partition_spec=spec)


def test_partition_fields_keep_their_ids(lake: Lake) -> None:
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    by_bucket = PartitionSpec(
        PartitionField(2, 1000, BucketTransform(4), "b"), PartitionField(1, 1001, IdentityTransform(), "id")
    )
    name = fresh()
    Engine.stage(lake, name, partition_spec=by_id).append()
    second = staged(lake, name, partition_spec=by_bucket).commit(REST).metadata
    assert [(each.name, each.field_id) for each in second.spec().fields] == [("b", 1001), ("id", 1000)]
    assert staged(lake, name).commit(REST).metadata.spec().is_unpartitioned()
    back = staged(lake, name, partition_spec=by_id).commit(REST).metadata
    assert (back.default_spec_id, len(back.partition_specs)) == (0, 3)


def test_an_old_partitioned_snapshot_stays_readable(lake: Lake) -> None:
    name = fresh()
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    first = Engine.stage(lake, name, partition_spec=by_id)
    old = first.append(first.file(partition={"id": 5})).metadata.current_snapshot_id
    engine = staged(lake, name, schema=Schema(NestedField(1, "other", StringType())))
    engine.append(engine.file(spec_id=engine.session.table.metadata.default_spec_id))
    assert len(files(lake, name)) == len(files(lake, name, snapshot_id=old)) == 1


def metadata_of(schema: Schema) -> TableMetadata:
    return new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {})


def struct(*fields: tuple[str, IcebergType]) -> StructType:
    return StructType(*(NestedField(100 + at, name, kind) for at, (name, kind) in enumerate(fields)))


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (IntegerType(), IntegerType(), True),
        (IntegerType(), LongType(), True),
        (LongType(), IntegerType(), False),
        (DecimalType(5, 2), DecimalType(9, 2), True),
        (DecimalType(9, 2), DecimalType(5, 2), False),
        (StringType(), LongType(), False),
        (struct(("element", StringType())), ListType(50, StringType(), False), False),
        (ListType(50, IntegerType(), False), ListType(60, LongType(), True), True),
    ],
)
def test_a_column_keeps_its_id_where_its_type_can(
    before: IcebergType, after: IcebergType, kept: bool
) -> None:
    base = metadata_of(Schema(NestedField(1, "c", before), NestedField(2, "d", StringType())))
    schema, _ = numbered(Schema(NestedField(9, "c", after), NestedField(3, "e", StringType())), base)
    assert (schema.find_field("c").field_id == base.schema().find_field("c").field_id) is kept
    assert schema.find_field("e").field_id > base.last_column_id
    new = [each for each in schema.field_ids if each <= base.last_column_id]
    assert kept or not new


def test_nested_columns_keep_their_ids_by_full_name() -> None:
    person = struct(("ssn", StringType()), ("age", IntegerType()))
    tags = MapType(70, StringType(), 71, struct(("x", LongType())), False)
    base = metadata_of(Schema(NestedField(1, "person", person), NestedField(2, "tags", tags)))
    wanted = Schema(
        NestedField(1, "tags", tags),
        NestedField(2, "person", struct(("age", LongType()), ("new", StringType()))),
        NestedField(5, "ssn", StringType()),
    )
    schema, _ = numbered(wanted, base)
    for name in ("person", "person.age", "tags", "tags.key", "tags.value", "tags.value.x"):
        assert schema.find_field(name).field_id == base.schema().find_field(name).field_id
    assert {schema.find_field(name).field_id for name in ("ssn", "person.new")} == {
        base.last_column_id + 1,
        base.last_column_id + 2,
    }


def test_a_name_with_a_dot_is_not_the_id_of_a_nested_column(lake: Lake) -> None:
    """Its rows would be in plaintext under the id of a column that was encrypted."""
    before = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "a", struct(("b", StringType()))),
        NestedField(3, "c.d", LongType()),
    )
    name = made(lake, schema=before, properties=ENCRYPTED | {"encryption.columns": "lakewarden:a,id"})
    nested = loaded(lake, name).metadata.schema().find_field("a.b").field_id
    lake.set_policies(only("alter", "update"))
    after = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "a.b", StringType()),
        NestedField(3, "c", struct(("d", LongType()))),
    )
    new = staged(lake, name, user=CAROL, schema=after).commit(REST, user=CAROL).metadata
    had = set(loaded(lake, name).metadata.schemas[0].field_ids)
    assert nested in had and set(new.schema().field_ids) & had == {1}


def test_another_column_with_the_name_of_a_plaintext_one_is_encrypted(lake: Lake) -> None:
    """Otherwise all that is put into it would be in plaintext, without `unprotect`."""
    plaintext = {"encryption.plaintext-columns": "id,name"}
    secret = NestedField(9, "secret", StringType())
    name = made(lake, schema=Schema(*SCHEMA.fields, secret), properties=ENCRYPTED | plaintext)
    lake.set_policies(only("alter", "update"))
    everything = NestedField(1, "id", struct(("secret", StringType())))
    schema = Schema(everything, NestedField(2, "name", StringType()), secret)
    with pytest.raises(NotAuthorized) as raised:
        staged(lake, name, user=CAROL, schema=schema, properties=plaintext)
    assert "unprotect" in str(raised.value)
    new = staged(lake, name, user=CAROL, schema=schema).commit(REST, user=CAROL)
    assert new.governed.spec.plaintext_columns == ("name",)
    (group,) = new.governed.epochs.current.columns
    by_name = {field.name: field.field_id for field in new.metadata.schema().fields}
    assert set(group.field_ids) == set(new.metadata.schema().field_ids) - {by_name["name"]}


def test_a_name_that_is_forgotten_is_no_way_around_its_denial(lake: Lake) -> None:
    """After the schema that has it is removed, nothing would say that another name is a new one."""
    name = made(lake)
    granted = {"database": ["db"], "table": [name.name], "column": ["id", "other"]}
    altering = policy("altering", tables("db"), {CAROL: ["alter", "update"]})
    lake.set_policies([altering, policy("columns", granted, {CAROL: ["select"]})])
    staged(lake, name, user=CAROL, schema=Schema(SCHEMA.fields[0])).commit(REST, user=CAROL)

    def forget(user: str) -> None:
        lake.services.committer.commit(lake.caller(user), name, (), [RemoveSchemasUpdate(schema_ids=[0])])

    with pytest.raises(NotAuthorized) as raised:
        forget(CAROL)
    assert "select on column" in str(raised.value)
    lake.set_policies(standard_policies())
    forget(ALICE)
    assert [each.schema_id for each in loaded(lake, name).metadata.schemas] == [1]
    again = Schema(*SCHEMA.fields, NestedField(3, "shown", StringType()), schema_id=7)
    taken = Schema(SCHEMA.fields[0], NestedField(2, "shown", StringType()), schema_id=7)
    lake.set_policies([*standard_policies(), altering])
    for user in (CAROL, ALICE):
        with pytest.raises(RequestInvalid) as refused:
            lake.services.committer.commit(
                lake.caller(user),
                name,
                (),
                [AddSchemaUpdate(schema_=taken), SetCurrentSchemaUpdate(schema_id=-1)],
            )
        assert refused.value.rule == "field-id"
    with pytest.raises(RequestInvalid, match="name"):
        lake.services.committer.commit(lake.caller(ALICE), name, (), [AddSchemaUpdate(schema_=again)])
    lake.set_policies(standard_policies())
