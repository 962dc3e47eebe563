"""`encryption.plaintext-columns`: all other columns are encrypted, those that come later included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import NestedField, StringType, StructType

from catalog.envelope.transport import KeyLabel
from catalog.planning.request import ScanRequest
from catalog.tables.alter import RemoveProperty, SetProperty
from catalog.tables.schema_changes import AddColumn, DropColumn, RenameColumn
from policy.errors import (
    DecryptionRefused,
    EncryptionPolicyViolation,
    KeyNotUsable,
    NotAuthorized,
    PropertyInvalid,
    RequestInvalid,
)
from tests.support.column_keys import (
    COLUMNS,
    PERSON,
    alter,
    commit,
    groups,
    keys_of,
    loaded,
    named,
    open_lake_with_keys,
    refused,
)
from tests.support.lake import ALICE, BOB, CAROL, MASTER_KEY, Lake, policy, standard_policies, tables
from tests.support.plans import about
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of, records

PLAINTEXT = "encryption.plaintext-columns"
PARTITIONS = "encryption.partition-values"
IDENTITY: Transform[Any, Any] = IdentityTransform()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake_with_keys(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


@pytest.fixture
def bob_alters(lake: Lake) -> Iterator[None]:
    """Bob has ALTER and the use of keys, and not `unprotect`."""
    altering = policy("bob-alters", tables("db"), {BOB: ["alter", "create", "select"]})
    lake.set_policies([*standard_policies(), altering, policy("keys", {"key": ["*"]}, {BOB: ["use"]})])
    yield
    lake.set_policies(standard_policies())


def persons(lake: Lake, plaintext: str = "id", **more: str) -> Table:
    """A table that names its plaintext columns."""
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in more.items()}
    return make(lake, schema=PERSON, properties={PLAINTEXT: plaintext, **named})


def property_of(lake: Lake, table: Table) -> str:
    return loaded(lake, table).governed.to_properties()[PLAINTEXT]


def partition(source: int, transform: Transform[Any, Any] = IDENTITY, spec_id: int = 1) -> list[TableUpdate]:
    spec = PartitionSpec(
        PartitionField(source, 1000 + 10 * spec_id + source, transform, "p"), spec_id=spec_id
    )
    return [AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)]


def order(source: int, order_id: int = 1) -> list[TableUpdate]:
    sort_order = SortOrder(SortField(source, IdentityTransform()), order_id=order_id)
    return [AddSortOrderUpdate(sort_order=sort_order), SetDefaultSortOrderUpdate(sort_order_id=-1)]


# -- what is encrypted


def test_columns_that_come_later_are_encrypted(lake: Lake) -> None:
    table = persons(lake)
    assert groups(lake, table) == {MASTER_KEY: (2, 3, 4, 5)}
    append_files(lake, name_of(table))
    begun = Engine.begin(lake, name_of(table))
    earlier = begun.file()
    alter(lake, table, AddColumn(("salary",), StringType()), AddColumn(("home", "town"), StringType()))
    assert groups(lake, table) == {MASTER_KEY: (2, 3, 4, 5, 6, 7)}
    # Its file would have the new columns in plaintext.
    with pytest.raises(KeyNotUsable):
        begun.append(earlier)
    append_files(lake, name_of(table))
    assert sorted(keys[1].field_ids for keys in keys_of(lake, table)) == [(2, 3, 4, 5), (2, 3, 4, 5, 6, 7)]


@pytest.mark.parametrize(
    "wrong", [lambda one, rest: [one], lambda one, rest: [one, KeyLabel(MASTER_KEY, (2,))]]
)
def test_a_file_with_another_column_in_plaintext_is_not_committed(
    lake: Lake, wrong: Callable[[KeyLabel, KeyLabel], list[KeyLabel]]
) -> None:
    table = persons(lake)
    engine = Engine.begin(lake, name_of(table))
    path = engine.path()
    keys = tuple(engine.key(path, label=label) for label in wrong(*engine.labels()))
    with pytest.raises((EncryptionPolicyViolation, DecryptionRefused)):
        engine.append(engine.file(path, keys=keys))
    assert loaded(lake, table).metadata.current_snapshot() is None


def test_manifests_show_statistics_of_the_named_columns_alone(lake: Lake) -> None:
    table = persons(lake, "id,home")
    append_files(lake, name_of(table), lower_bounds=dict.fromkeys((1, 2, 3, 5), bytes(8)))
    (shown,) = lake.catalog().load_table(table.name()).inspect.files().to_pylist()
    assert dict(shown["lower_bounds"]) == {1: bytes(8), 5: bytes(8)}


def test_column_keys_stand_beside_it(lake: Lake) -> None:
    table = persons(lake, **{"encryption__columns": "pii:ssn"})
    assert groups(lake, table) == {"pii": (2,), MASTER_KEY: (3, 4, 5)}
    append_files(lake, name_of(table))
    assert [[key.field_ids for key in keys] for keys in keys_of(lake, table)] == [[(), (2,), (3, 4, 5)]]
    both = SetProperty(COLUMNS, "pii:ssn,id")
    refused(lambda: alter(lake, table, both), PropertyInvalid, "property-contradiction")
    # Nothing is left under the table's key, until a column comes.
    alter(lake, table, SetProperty(COLUMNS, "pii:ssn,email,home"))
    assert groups(lake, table) == {"pii": (2, 3, 4, 5)}
    append_files(lake, name_of(table))
    alter(lake, table, AddColumn(("note",), StringType()))
    assert groups(lake, table) == {"pii": (2, 3, 4, 5), MASTER_KEY: (6,)}


def test_a_name_with_a_dot_is_no_way_into_a_plaintext_column(lake: Lake) -> None:
    table = persons(lake, "home")
    schema = Schema(*PERSON.fields, NestedField(6, "home.ssn", StringType()), schema_id=1)
    dotted = [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)]
    refused(lambda: commit(lake, table, *dotted), PropertyInvalid, "dotted-column")
    # Without the property, no column is encrypted or plaintext because of its place.
    commit(lake, make(lake, schema=PERSON, properties=ENCRYPTED), *dotted)


# -- columns change


def test_it_follows_columns_to_their_new_names(lake: Lake) -> None:
    table = persons(lake, "id,home.street")
    assert groups(lake, table) == {MASTER_KEY: (2, 3)}
    # Each is by its id what it was.
    swapped = [RenameColumn((old,), new) for old, new in (("id", "x"), ("ssn", "id"), ("x", "ssn"))]
    alter(lake, table, *swapped, RenameColumn(("home",), "place"))
    assert property_of(lake, table) == "place.street,ssn"
    assert groups(lake, table) == {MASTER_KEY: (2, 3)}
    old = loaded(lake, table).metadata.current_schema_id
    alter(lake, table, DropColumn(("ssn",)), DropColumn(("place",)))
    assert property_of(lake, table) == ""
    # A column that comes back is not named any more.
    commit(lake, table, SetCurrentSchemaUpdate(schema_id=old))
    assert groups(lake, table) == {MASTER_KEY: (1, 2, 3, 4, 5)}


def test_the_last_encrypted_column_does_not_go_unawares(lake: Lake) -> None:
    table = persons(lake, "id,email,home")
    refused(lambda: alter(lake, table, DropColumn(("ssn",))), PropertyInvalid, "no-encrypted-column")


# -- who can change it


def test_another_name_takes_unprotect_and_one_less_does_not(lake: Lake, bob_alters: None) -> None:
    table = persons(lake, "id,email")
    by_bob = partial(alter, lake, table, user=BOB)
    for change in (
        SetProperty(PLAINTEXT, "id,email,ssn"),
        SetProperty(PLAINTEXT, "id,ssn"),
        SetProperty(PARTITIONS, "plaintext"),
    ):
        refused(lambda change=change: by_bob(change), NotAuthorized, "policy-no-match")
    with pytest.raises(NotAuthorized):
        by_bob(RemoveProperty(PLAINTEXT), SetProperty(COLUMNS, f"{MASTER_KEY}:ssn,home"))
    with pytest.raises(NotAuthorized):
        by_bob(AddColumn(("day",), StringType()), SetProperty(PLAINTEXT, "id,email,day"))
    by_bob(SetProperty(PLAINTEXT, "id"))
    assert groups(lake, table) == {MASTER_KEY: (2, 3, 4, 5)}
    by_bob(RemoveProperty(PLAINTEXT))
    assert groups(lake, table) == {} and loaded(lake, table).governed.spec.encrypts
    with pytest.raises(NotAuthorized):
        by_bob(SetProperty(PLAINTEXT, "id"))
    by_bob(SetProperty(PLAINTEXT, ""))
    alter(lake, table, SetProperty(PLAINTEXT, "id"))
    assert groups(lake, table) == {MASTER_KEY: (2, 3, 4, 5)}


def test_no_change_of_the_schema_takes_a_column_into_the_list(lake: Lake, bob_alters: None) -> None:
    table = persons(lake, "home")
    identity, ssn, email, home = PERSON.fields
    street = home.field_type.fields[0]

    def commit_by_bob(*fields: NestedField, **said: str) -> None:
        schema = Schema(*fields, schema_id=loaded(lake, table).metadata.current_schema_id + 1)
        updates: list[TableUpdate] = [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)]
        updates += [SetPropertiesUpdate(updates={PLAINTEXT: said["names"]})] if said else []
        commit(lake, table, *updates, user=BOB)

    inside = home.model_copy(update={"field_type": StructType(street, ssn)})
    refused(lambda: commit_by_bob(identity, email, inside), NotAuthorized, "policy-no-match")
    taken = (identity, named(ssn, 2, "home"), email, named(home, 4, "place"))
    refused(lambda: commit_by_bob(*taken, names="home"), RequestInvalid, "columns-repeated")
    commit_by_bob(*taken)
    assert property_of(lake, table) == "place" and groups(lake, table) == {MASTER_KEY: (1, 2, 3)}


# -- who gets its key


@pytest.mark.nightly
def test_an_engine_gets_the_key_of_the_other_columns_for_users_who_lack_one(lake: Lake) -> None:
    denied = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    table = persons(lake, **{"encryption__columns": "pii:ssn"})
    append_files(lake, name_of(table))
    release = policy("carol-release", {"key": ["*"]}, {CAROL: ["release"]})
    no_email = policy("no email", about("email"), {}, denyPolicyItems=denied)

    def labels(engine: str | None, *columns: str, **asked: Any) -> list[tuple[int, ...]]:
        request = ScanRequest(columns=columns, **asked)
        made = lake.services.planner.plan(lake.caller(CAROL, engine), name_of(table), request)
        return [tuple(key["field_ids"]) for keys in made.files["keys"].to_pylist() for key in keys]

    lake.set_policies([*standard_policies(), release, no_email])
    assert labels("spark", "home") == [(), (3, 4, 5)]
    assert labels("spark", "id") == labels(None, "id") == [()]
    for engine, column in ((None, "home"), ("spark", "email")):
        with pytest.raises(NotAuthorized):
            labels(engine, column)
    with pytest.raises(NotAuthorized):
        labels("spark", "home", filter=EqualTo("email", "x"))
    lake.set_policies([*standard_policies(), release])
    assert labels(None, "home") == [(), (3, 4, 5)]
    lake.set_policies(standard_policies())


# -- partitions and order


def test_plaintext_columns_partition_the_table_and_encrypted_ones_do_not(lake: Lake) -> None:
    table = persons(lake)
    commit(lake, table, *partition(1))
    append_files(lake, name_of(table), partition={"p": 7}, spec_id=1)
    other = persons(lake)
    for source in (2, 5):
        taken = partial(commit, lake, other, *partition(source))
        refused(taken, EncryptionPolicyViolation, "encrypted-source")
    narrower = SetProperty(PLAINTEXT, "")
    refused(lambda: alter(lake, table, narrower), EncryptionPolicyViolation, "encrypted-source")


def test_partition_values_of_encrypted_columns_take_unprotect_each_time(lake: Lake, bob_alters: None) -> None:
    properties = {**ENCRYPTED, PARTITIONS: "plaintext"}
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    with pytest.raises(NotAuthorized):
        lake.catalog(BOB).create_table(f"db.bobs{id(spec)}", schema=PERSON, properties=properties)
    table = make(lake, schema=PERSON, properties=properties, partition_spec=spec)
    append_files(lake, name_of(table), partition={"p": "x"})
    assert loaded(lake, table).governed.to_properties()[PARTITIONS] == "plaintext"
    by_bob = partial(commit, lake, table, user=BOB)
    refused(lambda: by_bob(*partition(3)), NotAuthorized, "policy-no-match")
    caller = lake.caller(ALICE)
    lake.services.committer.commit(caller, name_of(table), (), partition(3))
    assert any("unprotect" in str(each) for each in records(lake, caller))
    taken_back = RemoveProperty(PARTITIONS)
    refused(lambda: alter(lake, table, taken_back, user=BOB), EncryptionPolicyViolation, "encrypted-source")
    by_bob(AddPartitionSpecUpdate(spec=PartitionSpec(spec_id=2)), SetDefaultSpecUpdate(spec_id=-1))
    alter(lake, table, taken_back, user=BOB)
    refused(lambda: by_bob(*partition(3)), EncryptionPolicyViolation, "encrypted-source")


def test_another_transform_of_an_encrypted_column_takes_unprotect(lake: Lake, bob_alters: None) -> None:
    table = make(lake, schema=PERSON, properties={**ENCRYPTED, PARTITIONS: "plaintext"})
    commit(lake, table, *partition(2, BucketTransform(4), 1))
    by_bob = partial(commit, lake, table, user=BOB)
    for finer in (IDENTITY, TruncateTransform(9), BucketTransform(64)):
        refused(lambda finer=finer: by_bob(*partition(2, finer, 2)), NotAuthorized, "policy-no-match")
    # Added alone, a spec shows nothing; it is judged when it comes in force.
    by_bob(partition(2, IDENTITY, 2)[0])
    in_force = SetDefaultSpecUpdate(spec_id=2)
    refused(lambda: by_bob(in_force), NotAuthorized, "policy-no-match")
    commit(lake, table, in_force)
    by_bob(SetDefaultSpecUpdate(spec_id=0))


def test_an_encrypted_column_sorts_a_table_whose_plaintext_columns_show_no_order(lake: Lake) -> None:
    sealed = make(lake, schema=PERSON, properties=ENCRYPTED)
    commit(lake, sealed, *order(2))
    append_files(lake, name_of(sealed), sort_order_id=1)
    table = persons(lake)
    sorting = partial(commit, lake, table, *order(2))
    refused(sorting, EncryptionPolicyViolation, "encrypted-order")
    commit(lake, table, *order(1))
    # In each file, a column that partitions the table has one value.
    commit(lake, table, *partition(1))
    commit(lake, table, *order(2, 2))
    unpartitioned = SetDefaultSpecUpdate(spec_id=0)
    refused(lambda: commit(lake, table, unpartitioned), EncryptionPolicyViolation, "encrypted-order")
    shown = SetProperty(PLAINTEXT, "id,email")
    refused(lambda: alter(lake, table, shown), EncryptionPolicyViolation, "encrypted-order")
    named = make(lake, schema=PERSON, properties={COLUMNS: "pii:id,ssn,email,home"})
    commit(lake, named, *order(2))
    # Without `plaintext-columns`, this column is plaintext.
    later = AddColumn(("note",), StringType())
    refused(lambda: alter(lake, named, later), EncryptionPolicyViolation, "encrypted-order")


def test_entries_of_a_manifest_are_in_the_order_of_random_names(lake: Lake) -> None:
    table = make(lake, schema=PERSON, properties=ENCRYPTED)
    engine = Engine.begin(lake, name_of(table))
    # An engine names files in the order of its tasks.
    prefix = engine.session.prefix
    paths = [
        prefix.child(f"{number:05d}-{15 - number:x}{'0' * 31}.parquet").canonical for number in range(16)
    ]
    engine.append(*(engine.file(path) for path in paths))
    known = loaded(lake, table)
    snapshot = known.metadata.current_snapshot()
    assert snapshot is not None
    (opened,) = lake.services.reader.open(known, lake.services.reader.manifests(known, snapshot))
    assert opened.entries["file_path"].to_pylist() == paths[::-1]
