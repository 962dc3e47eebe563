"""From typed properties to what governs a table next."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StructType

from catalog.rules import governance, table_changes
from catalog.rules.governance import Requested
from catalog.state.table_state import Governed
from policy.encryption.epochs import Epoch, PekRef
from policy.encryption.specification import Mechanism
from policy.errors import EncryptionPolicyViolation, LocationInvalid, NotSupportedYet, PropertyInvalid
from policy.location.location import Location

HERE = Location.parse("s3://lake/db/t")
INNER = NestedField(3, "inner", LongType())
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StructType(INNER)))
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
PATHS = "read.allowed.data.paths"


def new(**properties: str) -> Requested:
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
    return governance.for_new_table(given, HERE, "lakewarden", "db.t")


def metadata(
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, order: SortOrder = UNSORTED_SORT_ORDER
) -> TableMetadata:
    return new_table_metadata(SCHEMA, spec, order, HERE.canonical)


def at_sequence(number: int) -> TableMetadata:
    return metadata().model_copy(update={"last_sequence_number": number})


def first(wanted: Requested) -> Governed:
    return governance.first_version(wanted, metadata(), refs(wanted))


def refs(wanted: Requested) -> list[PekRef]:
    return [PekRef(uuid4(), 1, key) for key in wanted.spec.key_ids()]


def changed(current: Governed, *updates: TableUpdate) -> Requested:
    parted = table_changes.part(updates, current.to_properties(), "db.t")
    return governance.for_change(current, parted, HERE, "lakewarden", "db.t")


def setting(**properties: str) -> SetPropertiesUpdate:
    return SetPropertiesUpdate(
        updates={name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
    )


def test_a_new_table_may_be_read_from_its_own_location_and_is_plaintext() -> None:
    wanted = new()
    assert wanted.allowed.entries == (HERE,)
    assert not wanted.spec.encrypts
    assert (wanted.new_keys, wanted.unprotects) == ((), False)


def test_a_given_list_is_taken_as_given_even_empty() -> None:
    elsewhere = governance.for_new_table({PATHS: "s3://b/x"}, HERE, None, "db.t")
    assert [entry.canonical for entry in elsewhere.allowed.entries] == ["s3://b/x"]
    assert governance.for_new_table({PATHS: ""}, HERE, None, "db.t").allowed.entries == ()
    with pytest.raises(LocationInvalid):
        governance.for_new_table({PATHS: "s3://b/../x"}, HERE, None, "db.t")


def test_an_encrypted_table_uses_the_catalogs_master_key_unless_it_names_one() -> None:
    assert new(encryption__mechanism="envelope").new_keys == ("lakewarden",)
    assert new(encryption__master_key_id="hr").new_keys == ("hr",)
    with pytest.raises(PropertyInvalid):
        governance.for_new_table({"encryption.mechanism": "envelope"}, HERE, None, "db.t")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("orc.key.provider", "hadoop"),
        ("hadoop.security.key.provider.path", "kms://http@h:1/kms"),
    ],
)
def test_what_has_no_effect_yet_is_refused_new_or_changed(name: str, value: str) -> None:
    with pytest.raises(NotSupportedYet) as refused:
        governance.for_new_table({name: value}, HERE, "lakewarden", "db.t")
    assert refused.value.rule == "not-in-effect"
    with pytest.raises(NotSupportedYet):
        changed(first(new()), SetPropertiesUpdate(updates={name: value}))


def test_what_is_in_effect_is_accepted() -> None:
    wanted = new(
        encryption__algorithm="AES_GCM_V1", encryption__data_key_length="16", encryption__footer="encrypted"
    )
    assert wanted.spec.data_key_length == 16


def test_only_what_the_list_did_not_cover_counts_as_added() -> None:
    current = first(new())
    wanted = changed(
        current, SetPropertiesUpdate(updates={PATHS: "s3://lake/db/t/data,s3://lake/db/t,s3://lake/db/t1"})
    )
    assert [entry.canonical for entry in wanted.added] == ["s3://lake/db/t1"]


def test_an_unset_list_goes_back_to_the_location() -> None:
    current = first(governance.for_new_table({PATHS: "s3://b/x"}, HERE, None, "db.t"))
    wanted = changed(current, RemovePropertiesUpdate(removals=[PATHS]))
    assert (wanted.allowed.entries, wanted.added) == ((HERE,), (HERE,))


def test_changing_the_list_leaves_the_encryption_alone_and_the_other_way_round() -> None:
    current = first(new(encryption__mechanism="envelope"))
    wider = changed(current, SetPropertiesUpdate(updates={PATHS: "s3://lake/db"}))
    assert wider.spec == current.spec
    longer = changed(current, setting(encryption__data_key_length="16"))
    assert longer.allowed == current.allowed
    assert longer.spec.master_key_id == "lakewarden"


def test_properties_that_are_not_named_stay() -> None:
    current = first(new(encryption__master_key_id="hr", encryption__data_key_length="16"))
    wanted = changed(current, setting(encryption__master_key_id="finance"))
    assert (wanted.spec.data_key_length, wanted.new_keys) == (16, ("finance",))
    back = changed(current, RemovePropertiesUpdate(removals=["encryption.data-key-length"]))
    assert (back.spec.data_key_length, back.new_keys) == (32, ())


def test_what_weakens_the_encryption_unprotects() -> None:
    current = first(new(encryption__mechanism="envelope"))
    assert changed(current, setting(encryption__mechanism="plaintext")).unprotects
    assert changed(current, setting(encryption__master_key_id="hr")).unprotects
    assert changed(current, setting(encryption__algorithm="AES_GCM_CTR_V1")).unprotects
    assert not changed(current, setting(encryption__verify_digest="always")).unprotects
    assert not changed(first(new()), setting(encryption__mechanism="plaintext")).unprotects


def test_plaintext_beside_another_encryption_property_is_a_contradiction() -> None:
    both = setting(encryption__mechanism="plaintext", encryption__data_key_length="16")
    with pytest.raises(PropertyInvalid):
        governance.for_new_table(both.updates, HERE, "lakewarden", "db.t")
    with pytest.raises(PropertyInvalid):
        changed(first(new(encryption__mechanism="envelope")), both)


def test_another_specification_begins_an_epoch_at_the_next_sequence_number() -> None:
    plain = first(new())
    wanted = changed(plain, setting(encryption__mechanism="envelope"))
    after = governance.next_version(plain, wanted, at_sequence(7), refs(wanted), 2)
    assert [epoch.from_sequence_number for epoch in after.epochs.entries] == [0, 8]
    assert after.epochs.entries[0].spec.mechanism is Mechanism.PLAINTEXT
    assert after.version == 2


def test_a_change_of_the_list_begins_no_epoch() -> None:
    current = first(new(encryption__mechanism="envelope"))
    wanted = changed(current, SetPropertiesUpdate(updates={PATHS: "s3://lake/db"}))
    after = governance.next_version(current, wanted, at_sequence(7), None, 2)
    assert after.epochs == current.epochs
    assert after.allowed == wanted.allowed


def test_an_epoch_knows_its_keys() -> None:
    wanted = new(encryption__mechanism="envelope")
    keys = refs(wanted)
    made = governance.first_version(wanted, metadata(), keys)
    assert made.epochs.entries == (Epoch(0, wanted.spec, (), tuple(keys)),)


def test_an_encrypted_column_partitions_no_table() -> None:
    governance.check_schema(new().spec, metadata(BY_ID), "db.t")
    with pytest.raises(EncryptionPolicyViolation) as refused:
        governance.check_schema(new(encryption__mechanism="envelope").spec, metadata(BY_ID), "db.t")
    assert refused.value.rule == "encrypted-source"


def test_a_void_partition_shows_nothing() -> None:
    void = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "id"))
    governance.check_schema(new(encryption__mechanism="envelope").spec, metadata(void), "db.t")


def test_nested_columns_are_known_by_their_full_names() -> None:
    assert governance.column_ids(SCHEMA) == {"id": 1, "s": 2, "s.inner": 3}
