"""Encryption rules at every door through which a table is made, taken over, altered or renamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.maintenance.encryption_report import Standing, TableStanding
from catalog.rules.encryption_policy import facts_of
from catalog.tables.alter import SetProperty
from catalog.tables.schema_changes import (
    AddColumn,
    DropColumn,
    MakeOptional,
    MoveColumn,
    RenameColumn,
    UpdateDoc,
)
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import EncryptionRules
from policy.errors import EncryptionPolicyViolation, NotAuthorized
from tests.support.lake import ALICE, BOB, MASTER_KEY, Lake, policy, standard_policies, tables
from tests.support.rules import put_rules, rule, rules_of
from tests.support.tables import ENCRYPTED, Engine, append_files, fresh, make, name_of, records, rows

PERSONAL = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
HARMLESS = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))


@pytest.fixture(autouse=True)
def no_rules_left(lake: Lake) -> Iterator[None]:
    """Each test puts its own rules in force."""
    yield
    put_rules(lake)


def alter(lake: Lake, table: Table, *changes: object, user: str = ALICE) -> None:
    """Change a table as an engine does."""
    lake.services.alterer.alter(lake.caller(user), name_of(table), changes)  # type: ignore[arg-type]


def commit(lake: Lake, table: Table, *updates: TableUpdate, user: str = ALICE) -> None:
    """Change a table as any client does."""
    catalog = lake.catalog(user)
    catalog.commit_table(catalog.load_table(table.name()), (), updates)


def columns(lake: Lake, table: Table) -> list[str]:
    return [str(field.name) for field in lake.catalog().load_table(table.name()).schema().fields]


def exists(lake: Lake, name: TableName) -> bool:
    return lake.catalog().table_exists(str(name))


# -- tables that are made


def _create(lake: Lake, name: TableName, properties: dict[str, str]) -> None:
    make(lake, name, PERSONAL, properties=properties)


def _stage_and_commit(lake: Lake, name: TableName, properties: dict[str, str]) -> None:
    staged = lake.catalog().create_table_transaction(str(name), PERSONAL, properties=properties)
    staged.commit_transaction()


def _write_staged(lake: Lake, name: TableName, properties: dict[str, str]) -> None:
    engine = Engine.stage(lake, name, schema=PERSONAL, properties=properties)
    engine.append(engine.file())


DOORS = {"create": _create, "staged create": _stage_and_commit, "create as select": _write_staged}


@pytest.mark.nightly
@pytest.mark.parametrize("door", DOORS)
def test_a_table_is_made_as_the_rules_ask_or_not_at_all(lake: Lake, door: str) -> None:
    put_rules(lake, rule("personal", databases=["db"], columns=["ssn"]))
    name = fresh()
    with pytest.raises(EncryptionPolicyViolation) as raised:
        DOORS[door](lake, name, {})
    assert (raised.value.rule, raised.value.table) == ("must-encrypt", str(name))
    assert "Encryption rule 'personal': Column 'ssn' must be encrypted." in str(raised.value)
    assert not exists(lake, name)
    DOORS[door](lake, name, ENCRYPTED)
    assert exists(lake, name)
    DOORS[door](lake, fresh("bobs"), {})


@pytest.mark.parametrize("door", ["staged create", "create as select"])
def test_the_first_of_two_steps_is_refused_already(lake: Lake, door: str) -> None:
    """Nobody writes files for a table that cannot be made."""
    put_rules(lake, rule("personal", columns=["ssn"]))
    with pytest.raises(EncryptionPolicyViolation):
        if door == "staged create":
            lake.catalog().create_table_transaction(str(fresh()), PERSONAL)
        else:
            Engine.stage(lake, fresh(), schema=PERSONAL)


@pytest.mark.parametrize("door", ["staged create", "create as select"])
def test_a_rule_that_comes_between_two_steps_counts(lake: Lake, door: str) -> None:
    name = fresh()
    if door == "staged create":
        staged = lake.catalog().create_table_transaction(str(name), PERSONAL)
        last: Callable[[], object] = staged.commit_transaction
    else:
        engine = Engine.stage(lake, name, schema=PERSONAL)
        file = engine.file()
        last = lambda: engine.append(file)  # noqa: E731
    put_rules(lake, rule("personal", columns=["ssn"]))
    with pytest.raises(EncryptionPolicyViolation):
        last()
    assert not exists(lake, name)
    put_rules(lake)
    last()


def test_a_published_commit_is_answered_whatever_rules_came_since(lake: Lake) -> None:
    engine = Engine.stage(lake, fresh(), schema=PERSONAL)
    published = engine.append(engine.file())
    put_rules(lake, rule("personal", columns=["ssn"]))
    assert engine.append().record.id == published.record.id


def test_who_may_not_create_is_told_nothing_of_the_rules(lake: Lake) -> None:
    put_rules(lake, rule("personal", columns=["ssn"]))
    with pytest.raises(NotAuthorized):
        lake.catalog(BOB).create_table(str(fresh()), PERSONAL)


def test_a_refusal_is_in_the_audit_trail(lake: Lake) -> None:
    put_rules(lake, rule("personal", columns=["ssn"]))
    table = make(lake, schema=HARMLESS)
    caller = lake.caller(ALICE)
    with pytest.raises(EncryptionPolicyViolation):
        lake.services.alterer.alter(caller, name_of(table), [AddColumn(("ssn",), StringType())])
    refused = records(lake, caller)[-1]
    assert not refused.allowed and refused.reasons[0].rule == "must-encrypt"
    assert "'personal'" in refused.reasons[0].detail


def test_a_column_key_satisfies_a_rule_that_asks_for_one(lake: Lake) -> None:
    put_rules(lake, rule("keys", columns=["ssn"], columnKey=True))
    for properties in (ENCRYPTED, {"encryption.columns": f"{MASTER_KEY}:ssn"}):
        with pytest.raises(EncryptionPolicyViolation, match="must have a column key"):
            make(lake, schema=PERSONAL, properties=properties)
    lake.kms.create_master_key("other")
    make(lake, schema=PERSONAL, properties={"encryption.columns": "other:ssn"})


def test_nested_columns_are_columns(lake: Lake) -> None:
    put_rules(lake, rule("r", columns=["people.ssn"]))
    person = StructType(NestedField(4, "ssn", StringType()))
    schema = Schema(NestedField(1, "people", ListType(3, person)))
    with pytest.raises(EncryptionPolicyViolation, match=r"'people\.element\.ssn'"):
        make(lake, schema=schema)


def test_column_keys_are_those_of_the_current_schema(lake: Lake) -> None:
    """By today's names, structs with all that is in them."""
    person = StructType(NestedField(4, "ssn", StringType()), NestedField(5, "name", StringType()))
    table = make(lake, schema=Schema(NestedField(1, "id", LongType()), NestedField(3, "who", person)))
    alter(lake, table, RenameColumn(("id",), "key"))
    spec = EncryptionSpec.parse({"encryption.columns": "a:who;b:id"}, catalog_master_key_id=MASTER_KEY)
    metadata = lake.services.loader.load(name_of(table)).metadata
    found = facts_of(name_of(table), metadata, spec, metadata.schemas[::-1])
    assert {each.name: (each.key_id, len(each.names)) for each in found.columns} == {
        "key": (None, 2),
        "who.ssn": ("a", 1),
        "who.name": ("a", 1),
    }


# -- tables that are taken over


def made_elsewhere(root: Path, schema: Schema = PERSONAL) -> str:
    """The metadata of a table of standard pyiceberg."""
    theirs = SqlCatalog("theirs", uri=f"sqlite:///{root}/t.db", warehouse=f"file://{root}/theirs")
    theirs.create_namespace("db")
    location: str = theirs.create_table("db.x", schema).metadata_location
    theirs.engine.dispose()
    return location


def test_a_table_is_registered_only_if_it_breaks_no_rule(lake: Lake, tmp_path: Path) -> None:
    location, name = made_elsewhere(tmp_path), fresh()
    put_rules(lake, rule("personal", columns=["ssn"]))
    with pytest.raises(EncryptionPolicyViolation):
        lake.services.registration.register(lake.caller(ALICE), name, location)
    assert not exists(lake, name)
    put_rules(lake, rule("personal", columns=["iban"]))
    lake.services.registration.register(lake.caller(ALICE), name, location)


def test_a_rule_that_comes_while_a_registration_is_cut_short_counts(lake: Lake, tmp_path: Path) -> None:
    def dies_at(name: str) -> None:
        if name == "register:prepared":
            raise InterruptedError

    location, name = made_elsewhere(tmp_path), fresh()
    with crash_points.hooked(dies_at), pytest.raises(InterruptedError):
        lake.services.registration.register(lake.caller(ALICE), name, location)
    put_rules(lake, rule("personal", columns=["ssn"]))
    with pytest.raises(EncryptionPolicyViolation):
        lake.services.registration.register(lake.caller(ALICE), name, location)
    assert not exists(lake, name)


def test_columns_of_old_snapshots_are_registered_with_the_table(lake: Lake, tmp_path: Path) -> None:
    """Dropping a column does not take it out of the snapshots that are there to be read."""
    theirs = SqlCatalog("theirs", uri=f"sqlite:///{tmp_path}/t.db", warehouse=f"file://{tmp_path}/theirs")
    theirs.create_namespace("db")
    table = theirs.create_table("db.x", Schema(*PERSONAL.fields, NestedField(3, "name", StringType())))
    table.append(rows(1).append_column("ssn", [["1", "2"]]).select(["id", "ssn", "name"]))
    with table.update_schema() as update:
        update.delete_column("ssn")
    location = table.metadata_location
    theirs.engine.dispose()
    put_rules(lake, rule("personal", columns=["ssn"]))
    with pytest.raises(EncryptionPolicyViolation, match="of a snapshot's schema"):
        lake.services.registration.register(lake.caller(ALICE), fresh(), location)


def test_a_dropped_table_comes_back_as_it_was_but_not_to_where_it_breaks_a_rule(lake: Lake) -> None:
    table = make(lake, schema=PERSONAL)
    location = table.metadata_location
    lake.catalog().drop_table(table.name())
    put_rules(lake, rule("here", databases=["db"]), rule("there", databases=["bobs"]))
    with pytest.raises(EncryptionPolicyViolation, match="'there'"):
        lake.services.registration.register(lake.caller(ALICE), fresh("bobs"), location)
    lake.services.registration.register(lake.caller(ALICE), name_of(table), location)


# -- tables that are altered


def test_a_column_that_breaks_a_rule_is_not_added(lake: Lake) -> None:
    put_rules(lake, rule("personal", columns=["ssn"]))
    table = make(lake, schema=HARMLESS)
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, AddColumn(("ssn",), StringType()))
    with pytest.raises(EncryptionPolicyViolation), table.update_schema() as update:
        update.add_column("SSN", StringType())
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, RenameColumn(("note",), "ssn"))
    assert columns(lake, table) == ["id", "note"]
    alter(lake, table, AddColumn(("remark",), StringType()))
    encrypted = make(lake, schema=HARMLESS, properties=ENCRYPTED)
    alter(lake, encrypted, AddColumn(("ssn",), StringType()))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "update",
    [
        SetPropertiesUpdate(updates={"encryption.data-key-length": "16"}),
        SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"}),
        RemovePropertiesUpdate(
            removals=[
                "encryption.mechanism",
                "encryption.master-key-id",
                "encryption.algorithm",
                "encryption.data-key-length",
                "encryption.footer",
                "encryption.stock-readers",
                "encryption.verify-digest",
            ]
        ),
    ],
    ids=["shorter keys", "plaintext", "all removed"],
)
def test_encryption_is_not_weakened_below_a_rule_whoever_asks(lake: Lake, update: TableUpdate) -> None:
    """Alice has `unprotect`; that is a right, and no way around a rule."""
    put_rules(lake, rule("strong", minDataKeyLength=24))
    table = make(lake, properties=ENCRYPTED)
    with pytest.raises(EncryptionPolicyViolation):
        commit(lake, table, update)
    assert lake.services.loader.load(name_of(table)).governed.spec.data_key_length == 32
    put_rules(lake)
    commit(lake, table, update)


def test_writes_go_on_to_a_table_that_breaks_a_newer_rule(lake: Lake) -> None:
    table = make(lake, schema=PERSONAL)
    append_files(lake, name_of(table))
    put_rules(lake, rule("personal", columns=["ssn"]))
    append_files(lake, name_of(table))
    commit(lake, table, SetPropertiesUpdate(updates={"owner.team": "hr"}))
    commit(lake, table, SetPropertiesUpdate(updates={"read.allowed.data.paths": table.location()}))
    alter(lake, table, UpdateDoc(("ssn",), "of the employee"), MoveColumn(("ssn",), "first"))
    assert len(lake.services.loader.load(name_of(table)).metadata.snapshots) == 2


def test_a_table_that_breaks_a_newer_rule_is_altered_towards_it_only(lake: Lake) -> None:
    table = make(lake, schema=Schema(*PERSONAL.fields, NestedField(3, "iban", StringType())))
    put_rules(lake, rule("personal", columns=["ssn", "iban"], columnKey=True))
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, AddColumn(("note",), StringType()))
    alter(lake, table, DropColumn(("iban",)))
    commit(lake, table, SetPropertiesUpdate(updates=ENCRYPTED))
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, AddColumn(("note",), StringType()))
    alter(lake, table, DropColumn(("ssn",)))
    alter(lake, table, AddColumn(("note",), StringType()))


def test_a_change_that_fits_the_rules_may_be_of_any_kind(lake: Lake) -> None:
    put_rules(lake, rule("all"))
    table = make(lake, schema=HARMLESS, properties=ENCRYPTED)
    alter(lake, table, AddColumn(("x",), LongType()), SetProperty("encryption.data-key-length", "16"))
    alter(lake, table, DropColumn(("note",)), MakeOptional(("id",)))
    assert columns(lake, table) == ["id", "x"]


# -- tables that are renamed


def test_a_table_is_not_renamed_to_where_it_would_break_a_rule(lake: Lake) -> None:
    put_rules(lake, rule("vault", databases=["bobs"]))
    table, target = make(lake), fresh("bobs")
    with pytest.raises(EncryptionPolicyViolation, match="'vault'"):
        lake.services.lifecycle.rename(lake.caller(ALICE), name_of(table), target)
    assert exists(lake, name_of(table)) and not exists(lake, target)
    encrypted = make(lake, properties=ENCRYPTED)
    lake.services.lifecycle.rename(lake.caller(ALICE), name_of(encrypted), target)
    assert exists(lake, target)


def test_a_table_that_breaks_a_rule_may_get_another_name_under_the_same_rule(lake: Lake) -> None:
    table, target = make(lake), fresh()
    put_rules(lake, rule("all"))
    lake.services.lifecycle.rename(lake.caller(ALICE), name_of(table), target)
    assert exists(lake, target)


def test_a_rename_out_of_the_reach_of_a_rule_needs_unprotect(lake: Lake) -> None:
    put_rules(lake, rule("vault", databases=["db"]))
    table, target = make(lake, properties=ENCRYPTED), fresh("bobs")
    rights = ["select", "update", "alter", "create", "drop"]
    dave = [policy("dave", tables("*"), {"dave": rights})]
    lake.set_policies([*standard_policies(), *dave])
    with pytest.raises(NotAuthorized, match="unprotect"):
        lake.services.lifecycle.rename(lake.caller("dave"), name_of(table), target)
    lake.services.lifecycle.rename(lake.caller("dave"), name_of(table), fresh())
    within = make(lake, properties=ENCRYPTED)
    lake.set_policies([*standard_policies(), policy("dave", tables("*"), {"dave": [*rights, "unprotect"]})])
    lake.services.lifecycle.rename(lake.caller("dave"), name_of(within), target)
    assert exists(lake, target)


# -- the report


@pytest.fixture
def standings(lake: Lake) -> Callable[[EncryptionRules], dict[str, TableStanding]]:
    """How tables stand with rules, by name."""
    reporter = lake.services.encryption_report

    def judged(by: EncryptionRules) -> dict[str, TableStanding]:
        names = reporter.tables(lake.caller(ALICE))
        return {each.table: each for each in reporter.report(by, names)}

    return judged


def test_the_report_names_what_breaks_rules_that_are_not_in_force_yet(
    lake: Lake, standings: Callable[[EncryptionRules], dict[str, TableStanding]]
) -> None:
    plain, encrypted = make(lake, schema=PERSONAL), make(lake, schema=PERSONAL, properties=ENCRYPTED)
    found = standings(rules_of(rule("personal", columns=["ssn"])))
    (violation,) = found[str(name_of(plain))].violations
    assert (violation.rule, violation.requirement, violation.column) == ("personal", "must-encrypt", "ssn")
    assert found[str(name_of(encrypted))] == TableStanding(str(name_of(encrypted)), Standing.FITS)


def test_a_table_that_cannot_be_loaded_is_in_the_report(
    lake: Lake, standings: Callable[[EncryptionRules], dict[str, TableStanding]]
) -> None:
    broken = make(lake, schema=PERSONAL)
    Path(broken.metadata_location.removeprefix("file://")).unlink()
    found = standings(EncryptionRules.empty())[str(name_of(broken))]
    assert found.standing is Standing.UNKNOWN and found.problem and "was deleted" in found.problem


def test_columns_of_old_snapshots_and_files_in_plaintext_are_in_the_report(
    lake: Lake, standings: Callable[[EncryptionRules], dict[str, TableStanding]]
) -> None:
    table = make(lake, schema=PERSONAL)
    append_files(lake, name_of(table))
    alter(lake, table, DropColumn(("ssn",)))
    rules = rules_of(rule("personal", columns=["ssn"]))
    (violation,) = standings(rules)[str(name_of(table))].violations
    assert "of a snapshot's schema" in violation.detail
    commit(lake, table, SetPropertiesUpdate(updates=ENCRYPTED))
    found = standings(rules_of(rule("all")))[str(name_of(table))]
    assert (found.standing, found.earlier_files_in_plaintext) == (Standing.FITS, True)


def test_the_report_is_for_administrators(lake: Lake) -> None:
    with pytest.raises(NotAuthorized):
        lake.services.encryption_report.tables(lake.caller(BOB))
