"""Columns that would be plaintext, or under another key, where they were encrypted: by name, id and place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.types import NestedField, StringType, StructType

from catalog.tables.alter import RemoveProperty, SetProperty
from catalog.tables.schema_changes import AddColumn, RenameColumn
from policy.errors import NotAuthorized, RequestInvalid
from tests.support.column_keys import (
    COLUMNS,
    PERSON,
    alter,
    columns,
    commit,
    groups,
    loaded,
    make_persons,
    named,
    open_lake_with_keys,
    refused,
)
from tests.support.lake import BOB, Lake
from tests.support.tables import ENCRYPTED, append_files, make, name_of


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake_with_keys(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    return make_persons(lake)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pii:ssn,email", "pii:ssn"),
        ("pii:home", "pii:home.street"),
        (None, "pii:ssn,email,home,id"),
        ("pii:ssn", "hr:ssn"),
        ("pii:ssn;hr:email", "pii:email,ssn"),
    ],
)
def test_a_column_in_plaintext_or_under_another_key_needs_the_right_to_unprotect(
    lake: Lake, bob_alters: None, before: str | None, after: str
) -> None:
    made = make(lake, schema=PERSON, properties={COLUMNS: before} if before else ENCRYPTED)
    with pytest.raises(NotAuthorized, match="unprotect"):
        alter(lake, made, SetProperty(COLUMNS, after), user=BOB)
    alter(lake, made, SetProperty(COLUMNS, after))


def next_schema(lake: Lake, table: Table, *fields: NestedField) -> list[TableUpdate]:
    """A schema of these fields, to be the current one."""
    schema = Schema(*fields, schema_id=loaded(lake, table).metadata.current_schema_id + 1)
    return [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)]


def with_name_taken_over() -> list[NestedField]:
    """The column that is encrypted has another name, and another one has its name."""
    return [*(named(each, 2, "old_ssn") for each in PERSON.fields), NestedField(6, "ssn", StringType())]


def test_a_name_that_passes_to_another_column_unprotects_the_one_that_had_it(
    lake: Lake, bob_alters: None
) -> None:
    """By name `ssn` stays in the list; by id the column that was encrypted would be in plaintext."""
    table = make(lake, schema=PERSON, properties={COLUMNS: "pii:ssn"})
    append_files(lake, name_of(table))
    named = SetPropertiesUpdate(updates={COLUMNS: "pii:ssn,email"})
    updates = [*next_schema(lake, table, *with_name_taken_over()), named]
    with pytest.raises(NotAuthorized, match="unprotect"):
        commit(lake, table, *updates, user=BOB)
    assert groups(lake, table) == {"pii": (2,)}
    commit(lake, table, *updates)
    assert groups(lake, table) == {"pii": (3, 6)}


@pytest.mark.parametrize("text", ["hr:email;pii:ssn", "pii:ssn;hr:email"])
def test_a_list_that_is_repeated_where_a_name_passes_to_another_column_is_no_echo(
    lake: Lake, text: str
) -> None:
    """By id the old column keeps its key, by name the new one would have it: neither is done unasked."""
    table = make(lake, schema=PERSON, properties={COLUMNS: "pii:ssn;hr:email"})
    said = SetPropertiesUpdate(updates={COLUMNS: text})
    taken_over = next_schema(lake, table, *with_name_taken_over())
    refused(lambda: commit(lake, table, *taken_over, said), RequestInvalid, "columns-repeated")
    swap = (RenameColumn(("ssn",), "x"), RenameColumn(("email",), "ssn"), RenameColumn(("x",), "email"))
    refused(lambda: alter(lake, table, *swap, SetProperty(COLUMNS, text)), RequestInvalid, "columns-repeated")
    assert groups(lake, table) == {"pii": (2,), "hr": (3,)}
    commit(lake, table, *taken_over)
    assert (columns(lake, table), groups(lake, table)) == ("hr:email;pii:old_ssn", {"pii": (2,), "hr": (3,)})


def test_masks_that_are_repeated_where_a_name_passes_to_another_column_are_no_echo(lake: Lake) -> None:
    masks = {"encryption.masks": "nullify:ssn"}
    table = make(lake, schema=PERSON, properties={COLUMNS: "pii:ssn"} | masks)
    taken_over = next_schema(lake, table, *with_name_taken_over())
    said = SetPropertiesUpdate(updates=masks)
    refused(lambda: commit(lake, table, *taken_over, said), RequestInvalid, "columns-repeated")
    commit(lake, table, *taken_over)
    assert loaded(lake, table).governed.to_properties()["encryption.masks"] == "nullify:old_ssn"


def test_a_list_that_is_repeated_beside_a_rename_is_an_echo(lake: Lake, table: Table) -> None:
    said = SetProperty(COLUMNS, columns(lake, table))
    alter(lake, table, RenameColumn(("ssn",), "social"), AddColumn(("note",), StringType()), said)
    assert (columns(lake, table), groups(lake, table)) == (
        "hr:email;pii:home,social",
        {"pii": (2, 4, 5), "hr": (3,)},
    )


def test_a_name_that_passes_to_another_column_takes_no_right_where_both_have_keys(
    lake: Lake, bob_alters: None
) -> None:
    table = make(lake, schema=PERSON, properties={COLUMNS: "pii:ssn"})
    named = SetPropertiesUpdate(updates={COLUMNS: "pii:old_ssn,ssn"})
    commit(lake, table, *next_schema(lake, table, *with_name_taken_over()), named, user=BOB)
    assert groups(lake, table) == {"pii": (2, 6)}


def test_a_field_that_is_moved_out_of_an_encrypted_struct_is_unprotected(
    lake: Lake, bob_alters: None
) -> None:
    table = make(lake, schema=PERSON, properties={COLUMNS: "pii:home"})
    moved = [
        *PERSON.fields[:3],
        NestedField(4, "home", StructType(NestedField(6, "town", StringType()))),
        NestedField(5, "street", StringType()),
    ]
    with pytest.raises(NotAuthorized, match="unprotect"):
        commit(lake, table, *next_schema(lake, table, *moved), user=BOB)
    assert groups(lake, table) == {"pii": (4, 5)}


def test_more_protection_needs_no_such_right(lake: Lake, bob_alters: None, table: Table) -> None:
    alter(lake, table, SetProperty(COLUMNS, "pii:home,id,ssn;hr:email"), user=BOB)
    assert groups(lake, table) == {"pii": (1, 2, 4, 5), "hr": (3,)}


def test_keys_of_columns_given_up_for_one_for_all(lake: Lake, bob_alters: None, table: Table) -> None:
    """More is encrypted; but from one column the engine alone keeps who may have another."""
    with pytest.raises(NotAuthorized, match="unprotect"):
        alter(lake, table, RemoveProperty(COLUMNS), user=BOB)
    alter(lake, table, RemoveProperty(COLUMNS))
    assert groups(lake, table) == {}


def test_keys_that_change_hands_beside_a_change_of_the_schema(lake: Lake, bob_alters: None) -> None:
    """By name each column has the key that its name had; by id the two are exchanged."""
    table = make(lake, schema=PERSON, properties={COLUMNS: "pii:ssn;hr:email"})
    swap = (RenameColumn(("ssn",), "x"), RenameColumn(("email",), "ssn"), RenameColumn(("x",), "email"))
    named = SetProperty(COLUMNS, "pii:ssn;hr:email,id")
    with pytest.raises(NotAuthorized, match="unprotect"):
        alter(lake, table, *swap, named, user=BOB)
    alter(lake, table, *swap, SetProperty(COLUMNS, "pii:email,id;hr:ssn"), user=BOB)
    assert groups(lake, table) == {"pii": (1, 2), "hr": (3,)}


def test_a_mask_that_passes_to_another_column_by_its_name(lake: Lake, bob_alters: None) -> None:
    """By name less is shown than before; by id a column is shown hashed that was not."""
    properties = {COLUMNS: "pii:ssn,email", "encryption.masks": "sha256:ssn", "write.format.default": "orc"}
    table = make(lake, schema=Schema(*PERSON.fields[:3]), properties=properties)
    swap = (RenameColumn(("ssn",), "x"), RenameColumn(("email",), "ssn"), RenameColumn(("x",), "email"))
    with pytest.raises(NotAuthorized, match="unprotect"):
        alter(lake, table, *swap, SetProperty("encryption.masks", "sha256:ssn;nullify:email"), user=BOB)
    alter(lake, table, *swap, user=BOB)
    assert loaded(lake, table).governed.to_properties()["encryption.masks"] == "sha256:email"
