"""Columns with keys: they stay protected by whatever name, and what is not protected shows nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType

from catalog.authorization.authorizer import Caller
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.transport import KeyLabel, open_transported
from catalog.planning.request import ScanRequest
from catalog.tables.alter import RemoveProperty, SetProperty
from catalog.tables.drafts import NewTable
from catalog.tables.schema_changes import AddColumn, DropColumn, RenameColumn
from catalog.writes.new_files import FileCommit
from policy.encryption import encrypted_columns
from policy.errors import (
    DecryptionRefused,
    EncryptionPolicyViolation,
    KeyNotUsable,
    PropertyInvalid,
    RequestInvalid,
)
from tests.support.attacker import Attacker, data_file, entry, updates
from tests.support.column_keys import (
    COLUMNS,
    PERSON,
    alter,
    columns,
    commit,
    groups,
    keys_of,
    loaded,
    make_persons,
    named,
    open_lake_with_keys,
    refused,
)
from tests.support.lake import ALICE, BOB, CAROL, MASTER_KEY, Lake, policy, standard_policies
from tests.support.tables import ENCRYPTED, Engine, append_files, fresh, make, name_of, records


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake_with_keys(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    return make_persons(lake)


def test_a_table_has_a_key_for_each_distinct_master_key(lake: Lake, table: Table) -> None:
    assert groups(lake, table) == {"hr": (3,), "pii": (2, 4, 5)}
    peks = loaded(lake, table).governed.epochs.current.peks
    assert [ref.master_key_id for ref in peks] == [MASTER_KEY, "hr", "pii"]
    shared = make(lake, schema=PERSON, properties={COLUMNS: f"{MASTER_KEY}:ssn"})
    assert len(loaded(lake, shared).governed.epochs.current.peks) == 1


def test_a_files_key_metadata_has_its_groups(lake: Lake, table: Table) -> None:
    append_files(lake, name_of(table))
    ((footer, first, second),) = keys_of(lake, table)
    assert (footer.pek.master_key_id, footer.field_ids) == (MASTER_KEY, ())
    assert [(key.pek.master_key_id, key.field_ids) for key in (first, second)] == [
        ("pii", (2, 4, 5)),
        ("hr", (3,)),
    ]


def without(labels: list[KeyLabel]) -> list[KeyLabel]:
    return labels[:-1]


def less(labels: list[KeyLabel]) -> list[KeyLabel]:
    return [KeyLabel(each.key_name, each.field_ids[:1]) for each in labels]


def swapped(labels: list[KeyLabel]) -> list[KeyLabel]:
    footer, one, other = labels
    return [footer, KeyLabel(one.key_name, other.field_ids), KeyLabel(other.key_name, one.field_ids)]


def whole(labels: list[KeyLabel]) -> list[KeyLabel]:
    return labels[:1]


def more(labels: list[KeyLabel]) -> list[KeyLabel]:
    return [*labels, KeyLabel("pii", (1,))]


def other_footer(labels: list[KeyLabel]) -> list[KeyLabel]:
    return [KeyLabel("pii"), *labels[1:]]


@pytest.mark.nightly
@pytest.mark.parametrize("wrong", [without, less, swapped, whole, more, other_footer])
def test_a_file_with_other_groups_than_the_table_says_is_not_committed(
    lake: Lake, table: Table, wrong: Callable[[list[KeyLabel]], list[KeyLabel]]
) -> None:
    engine = Engine.begin(lake, name_of(table))
    path = engine.path()
    keys = tuple(engine.key(path, label=label) for label in wrong(engine.labels()))
    with pytest.raises((EncryptionPolicyViolation, DecryptionRefused)):
        engine.append(engine.file(path, keys=keys))
    assert loaded(lake, table).metadata.current_snapshot() is None


# -- names and fields change


def test_a_renamed_column_stays_under_its_key(lake: Lake, table: Table) -> None:
    append_files(lake, name_of(table))
    alter(lake, table, RenameColumn(("ssn",), "social"), RenameColumn(("home", "street"), "road"))
    assert columns(lake, table) == "hr:email;pii:home,social"
    assert groups(lake, table) == {"hr": (3,), "pii": (2, 4, 5)}
    append_files(lake, name_of(table))
    assert len({tuple(keys) for keys in keys_of(lake, table)}) == 1


def test_names_that_are_swapped_take_their_keys_along(lake: Lake, table: Table) -> None:
    alter(
        lake,
        table,
        RenameColumn(("ssn",), "x"),
        RenameColumn(("email",), "ssn"),
        RenameColumn(("x",), "email"),
    )
    assert columns(lake, table) == "hr:ssn;pii:email,home"
    assert groups(lake, table) == {"hr": (3,), "pii": (2, 4, 5)}


def test_a_field_that_comes_into_an_encrypted_struct_is_encrypted(lake: Lake, table: Table) -> None:
    append_files(lake, name_of(table))
    open_write = Engine.begin(lake, name_of(table))
    before = open_write.file()
    alter(lake, table, AddColumn(("home", "town"), StringType()))
    assert groups(lake, table)["pii"] == (2, 4, 5, 6)
    assert columns(lake, table) == "hr:email;pii:home,ssn"
    append_files(lake, name_of(table))
    assert sorted(keys[1].field_ids for keys in keys_of(lake, table)) == [(2, 4, 5), (2, 4, 5, 6)]
    with pytest.raises(KeyNotUsable):
        open_write.append(before)


def test_other_changes_of_columns_begin_no_epoch(lake: Lake, table: Table) -> None:
    before = loaded(lake, table).governed
    alter(lake, table, AddColumn(("note",), StringType()), RenameColumn(("id",), "key"))
    assert loaded(lake, table).governed == before


@pytest.mark.nightly
def test_a_dropped_column_leaves_the_list_and_old_files_keep_its_key(lake: Lake, table: Table) -> None:
    append_files(lake, name_of(table))
    alter(lake, table, DropColumn(("email",)))
    assert columns(lake, table) == "pii:home,ssn"
    append_files(lake, name_of(table))
    assert sorted(len(keys) for keys in keys_of(lake, table)) == [2, 3]
    made = lake.services.planner.plan(lake.caller(ALICE, "spark"), name_of(table), ScanRequest())
    assert made.files.num_rows == 2


def test_the_last_column_with_a_key_is_not_dropped_unawares(lake: Lake) -> None:
    table = make(lake, schema=PERSON, properties={COLUMNS: f"{MASTER_KEY}:ssn"})
    refused(lambda: alter(lake, table, DropColumn(("ssn",))), EncryptionPolicyViolation, "last-column")
    alter(lake, table, RemoveProperty(COLUMNS))
    alter(lake, table, DropColumn(("ssn",)))
    assert loaded(lake, table).governed.spec.encrypts


def test_a_column_that_comes_back_does_not_come_back_in_plaintext(lake: Lake, table: Table) -> None:
    old = loaded(lake, table).metadata.current_schema_id
    alter(lake, table, DropColumn(("email",)))
    back: list[TableUpdate] = [SetCurrentSchemaUpdate(schema_id=old)]
    refused(lambda: commit(lake, table, *back), EncryptionPolicyViolation, "column-without-key")


def test_a_column_of_a_table_encrypted_as_a_whole_does_not_come_back_in_plaintext(
    lake: Lake, bob_alters: None
) -> None:
    """Who named columns saw those of then; the one that had been dropped is encrypted in the old files."""
    table = make(lake, schema=PERSON, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    old = loaded(lake, table).metadata.current_schema_id
    alter(lake, table, DropColumn(("ssn",)), user=BOB)
    alter(lake, table, SetProperty(COLUMNS, "pii:email"))
    back: list[TableUpdate] = [SetCurrentSchemaUpdate(schema_id=old)]
    for user in (ALICE, BOB):
        returning = partial(commit, lake, table, *back, user=user)
        refused(returning, EncryptionPolicyViolation, "column-without-key")
    commit(lake, table, *back, SetPropertiesUpdate(updates={COLUMNS: "pii:email,ssn"}), user=BOB)
    assert groups(lake, table) == {"pii": (2, 3)}
    alter(lake, table, AddColumn(("note",), StringType()), user=BOB)
    assert groups(lake, table) == {"pii": (2, 3)}


def test_a_column_comes_back_to_a_table_that_is_encrypted_as_a_whole(lake: Lake, bob_alters: None) -> None:
    table = make(lake, schema=PERSON, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    old = loaded(lake, table).metadata.current_schema_id
    alter(lake, table, DropColumn(("ssn",)), user=BOB)
    commit(lake, table, SetCurrentSchemaUpdate(schema_id=old), user=BOB)
    assert "ssn" in loaded(lake, table).metadata.schema().column_names


def test_a_snapshot_does_not_come_together_with_another_name_of_an_encrypted_column(
    lake: Lake, table: Table
) -> None:
    attacker = Attacker(lake, ".".join(table.name()), ALICE)
    metadata = attacker.metadata
    changed = metadata.schema().model_copy(
        update={"fields": tuple(named(each, 2, "social") for each in metadata.schema().fields)}
    )
    schema = Schema(*changed.fields, schema_id=metadata.current_schema_id + 1)
    updates = attacker.appending(entry(data_file(f"{attacker.location}/data/a.parquet")))
    refused(
        lambda: commit(
            lake, table, AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1), *updates
        ),
        RequestInvalid,
        "mixed-commit",
    )


# -- the life of their keys


def data_keys(lake: Lake, table: Table) -> dict[tuple[str, KeyLabel], SecretBytes]:
    """The data keys of a plan of all columns, by path and label."""
    plan = lake.services.planner.plan(lake.caller(ALICE, "spark"), name_of(table), ScanRequest())
    assert plan.header.transport is not None
    found = {}
    for row in plan.files.to_pylist():
        identity = FileIdentity.of(plan.header.table.record.table_uuid, row["file_path"])
        for key in row["keys"]:
            label = KeyLabel(key["key_name"], tuple(key["field_ids"]))
            dek = open_transported(plan.header.transport, key["wrapped"], identity, label)
            found[row["file_path"], label] = dek
    return found


@pytest.mark.nightly
def test_keys_of_columns_are_rotated_and_rewrapped_with_the_footers(lake: Lake, table: Table) -> None:
    append_files(lake, name_of(table))
    before = data_keys(lake, table)
    assert len(before) == 3
    lake.services.key_rotation.rotate(lake.caller(ALICE), name_of(table))
    assert data_keys(lake, table) == before
    lake.services.key_rewrap.rewrap(lake.caller(ALICE), name_of(table))
    assert {key.pek.version for keys in keys_of(lake, table) for key in keys} == {2}
    assert data_keys(lake, table) == before
    append_files(lake, name_of(table))
    assert {key.pek.version for keys in keys_of(lake, table) for key in keys} == {2}
    assert len(data_keys(lake, table)) == 6


# -- groups that policies split


@pytest.fixture
def split(lake: Lake) -> Iterator[None]:
    """Carol may not select one of the columns."""
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    resources = {"database": ["db"], "table": ["*"], "column": ["email"]}
    lake.set_policies([*standard_policies(), policy("no email", resources, {}, denyPolicyItems=items)])
    yield
    lake.set_policies(standard_policies())


def told(lake: Lake, caller: Caller) -> list[str]:
    """What the audit trail says of split groups under a request."""
    reasons = [each for record in records(lake, caller) for each in record.reasons]
    return [each.detail for each in reasons if each.rule == "key-group-split"]


def test_a_group_that_policies_split_is_told_where_it_is_made(lake: Lake, split: None) -> None:
    properties = {COLUMNS: "pii:ssn,email;hr:home"}
    sentence = "The key 'pii' is split for user 'carol': SELECT is granted on 'ssn' but not on 'email'"
    caller = lake.caller(ALICE)
    new = NewTable(fresh(), schema=PERSON, properties=properties)
    made = lake.services.creator.create(caller, new)
    assert [each.startswith(sentence) for each in told(lake, caller)] == [True]

    caller = lake.caller(ALICE)
    apart = [SetProperty(COLUMNS, "pii:ssn;hr:home,email")]
    lake.services.alterer.alter(caller, made.record.name, apart)
    assert [each.partition(" is split")[0] for each in told(lake, caller)] == ["The key 'hr'"]

    caller = lake.caller(ALICE)
    paths = f"{made.record.location.canonical},{made.record.location.canonical}/data"
    wider = lake.services.alterer.alter(
        caller, made.record.name, [SetProperty("read.allowed.data.paths", paths)]
    )
    assert wider.governed.version == 3 and told(lake, caller) == []

    caller = lake.caller(ALICE)
    lake.services.alterer.alter(caller, made.record.name, [SetProperty(COLUMNS, "pii:ssn,home;hr:email")])
    assert told(lake, caller) == []

    caller = lake.caller(ALICE)
    session = lake.services.writes.begin_staged(
        caller, NewTable(fresh(), schema=PERSON, properties=properties)
    )
    lake.services.writes.commit(caller, session.id, FileCommit("append", ()))
    assert [each.startswith(sentence) for each in told(lake, caller)] == [True]


# -- what columns in plaintext may do


def test_columns_in_plaintext_partition_the_table_and_encrypted_ones_do_not(lake: Lake, table: Table) -> None:
    def make_by(source: int) -> Table:
        spec = PartitionSpec(PartitionField(source, 1000, IdentityTransform(), "p"))
        return make(lake, schema=PERSON, properties={COLUMNS: "pii:ssn,home"}, partition_spec=spec)

    made = make_by(1)
    append_files(lake, name_of(made), partition={"p": 7})
    for source in (2, 5):
        refused(lambda source=source: make_by(source), EncryptionPolicyViolation, "encrypted-source")
    refused(
        lambda: alter(lake, made, SetProperty(COLUMNS, "pii:ssn,home,id")),
        EncryptionPolicyViolation,
        "encrypted-source",
    )


STATISTICS = {
    **dict.fromkeys(("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"), 7),
    **dict.fromkeys(("lower_bounds", "upper_bounds"), bytes(8)),
}


def test_statistics_are_kept_of_columns_in_plaintext_alone(lake: Lake, table: Table) -> None:
    given = {name: dict.fromkeys((1, 2, 3, 5), value) for name, value in STATISTICS.items()}
    append_files(lake, name_of(table), **given)
    (shown,) = lake.catalog().load_table(table.name()).inspect.files().to_pylist()
    assert {name: dict(shown[name]) for name in STATISTICS} == {n: {1: v} for n, v in STATISTICS.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("name", STATISTICS)
def test_a_client_may_show_statistics_of_columns_in_plaintext_alone(
    lake: Lake, table: Table, name: str
) -> None:
    """A client adds files by a cherry-pick alone."""
    append_files(lake, name_of(table))
    attacker = Attacker(lake, ".".join(table.name()), ALICE)
    before = attacker.metadata.current_snapshot()
    assert before is not None
    commit(lake, table, *updates(before, branch="audit")[1:])
    engine = Engine.begin(lake, name_of(table))
    engine.commit(FileCommit("append", (engine.file(**{name: {1: STATISTICS[name]}}),), branch="audit"))
    append_files(lake, name_of(table))
    source = attacker.metadata.snapshot_by_name("audit")
    assert source is not None
    (known,) = [each.data_file for each in attacker.entries(source) if each.snapshot_id == source.snapshot_id]
    picked = Summary(Operation.APPEND, **{"source-snapshot-id": str(source.snapshot_id)})

    def showing(field_id: int) -> list[TableUpdate]:
        shown = {name: {field_id: STATISTICS[name]}}
        same = {"key_metadata": known.key_metadata, "record_count": known.record_count}
        return attacker.appending(entry(data_file(known.file_path, **same, **shown)), summary=picked)

    for field_id in (2, 3, 5):
        forbidden = partial(commit, lake, table, *showing(field_id))
        refused(forbidden, EncryptionPolicyViolation, "plaintext-bounds")
    commit(lake, table, *showing(1))
    assert known.file_path in attacker.data_paths()


def test_a_table_with_more_columns_than_an_encrypted_file_can_number(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At CREATE and ALTER, with or without rows, rather than by Parquet's writer at the first row."""
    plain, full = make(lake, schema=PERSON), make(lake, schema=PERSON, properties=ENCRYPTED)
    monkeypatch.setattr(encrypted_columns, "_MAX_LEAVES", 4)
    rule = "too-many-columns"
    refused(lambda: alter(lake, full, AddColumn(("more",), StringType())), PropertyInvalid, rule)
    alter(lake, plain, AddColumn(("more",), StringType()))
    refused(
        lambda: alter(lake, plain, SetProperty("encryption.mechanism", "envelope")), PropertyInvalid, rule
    )
    wide = Schema(*PERSON.fields, NestedField(9, "more", StringType()))
    refused(lambda: make(lake, schema=wide, properties=ENCRYPTED), PropertyInvalid, rule)
    refused(lambda: Engine.stage(lake, fresh(), schema=wide, properties=ENCRYPTED), PropertyInvalid, rule)


@pytest.mark.parametrize(
    ("bound", "value"), [("_MAX_LEAVES", 3), ("_MAX_GROUPS", 1), ("_MAX_GROUPS_BYTES", 2 * 85)]
)
def test_no_write_begins_that_no_file_could_be_committed_of(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """A table may be older than the bounds; its rows are read as before."""
    append_files(lake, name_of(table))
    monkeypatch.setattr(encrypted_columns, bound, value)
    refused(lambda: Engine.begin(lake, name_of(table)), PropertyInvalid, "too-many-columns")
    assert len(keys_of(lake, table)) == 1
