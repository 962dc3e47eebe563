"""Row filters and masks have to fit the tables that they are about, and tables stay so that they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table.update import RemoveSchemasUpdate
from pyiceberg.types import LongType, StringType

from catalog.policy_store.changes import Prepared
from catalog.policy_store.documents import DocumentId, Edit
from catalog.policy_store.kinds import Kind
from catalog.tables.schema_changes import AddColumn, DropColumn, RenameColumn
from policy.errors import PolicyInvalid, RequestInvalid
from tests.planning.test_plan_restrictions import PEOPLE, filtering, masking
from tests.support.column_keys import alter, loaded
from tests.support.lake import ALICE, Lake
from tests.support.tables import make, name_of
from tests.support.vectors import each_row

Policies = Callable[..., None]


def prepared(lake: Lake, *policies: dict[str, Any]) -> Prepared:
    """A change that adds a document with these policies."""
    content = json.dumps({"policies": policies}).encode()
    edit = Edit(DocumentId(Kind.RANGER, "more"), content, None)
    return lake.services.policy_changes.prepare([edit], lake.caller(ALICE), by_policy=False)


@pytest.mark.nightly
@each_row(
    ("made", "problem"),
    [
        (filtering("gone = 1"), "the column gone does not exist"),
        (filtering("is_member('eu') and age = 'x'"), "not a value of the column age"),
        (masking("id", "MASK_NULL"), "required"),
        (masking("*", "show-first-4"), "type long"),
        (masking("props.*", "MASK_HASH"), "key of a map"),
    ],
)
def test_a_policy_that_fits_no_table_is_not_put_in_force(lake: Lake, made: Any, problem: str) -> None:
    table = make(lake, schema=PEOPLE)
    with pytest.raises(PolicyInvalid) as refused:
        prepared(lake, made)
    message = refused.value.message
    assert problem in message and f"{table.name()[-1]}" in message and repr(made["name"]) in message
    lake.catalog().drop_table(table.name())


def test_what_fits_is_put_in_force_and_what_is_about_no_table_too(lake: Lake) -> None:
    table = make(lake, schema=PEOPLE)
    fitting = (filtering("age > 1"), masking("home*", "MASK_HASH"), masking("ssn", "MASK_NONE", "none"))
    assert len(prepared(lake, *fitting).effect.added) == 3
    resources = {"database": {"values": ["elsewhere"]}, "table": {"values": ["*"]}}
    assert prepared(lake, filtering("gone = 1", resources=resources)).changed
    lake.catalog().drop_table(table.name())


def test_a_schema_changes_if_policies_fit_it_as_before(lake: Lake, policies: Policies) -> None:
    table = make(lake, schema=PEOPLE)
    policies(filtering("age > 1"), masking("ssn", "mask-alphanum"), masking("note*", "show-last-4", "notes"))
    for change in (DropColumn(("age",)), RenameColumn(("age",), "years")):
        with pytest.raises(RequestInvalid, match=r"policy 'rows'.*the column age does not exist"):
            alter(lake, table, change)
    with pytest.raises(RequestInvalid, match=r"policy 'notes'.*type long"):
        alter(lake, table, AddColumn(("notes",), LongType()))
    alter(lake, table, AddColumn(("notes",), StringType()), AddColumn(("more",), LongType()))
    another = AddColumn(("age",), LongType()), RenameColumn(("more",), "age")
    for take in another:
        for leave in (DropColumn(("age",)), RenameColumn(("age",), "years")):
            with pytest.raises(RequestInvalid, match=r"policy 'rows'.*another column would be called age"):
                alter(lake, table, leave, take)
    policies(filtering("gone > 1"))
    alter(lake, table, DropColumn(("more",)))
    lake.catalog().drop_table(table.name())


@each_row(
    ("changes", "problem"),
    [
        ((RenameColumn(("ssn",), "code"),), "not be on the column 'ssn' under the name 'code'"),
        ((RenameColumn(("home",), "house"),), "not be on the column 'home.town' under the name 'house.town'"),
        ((RenameColumn(("ssn",), "code"), AddColumn(("ssn",), StringType())), "under the name 'code'"),
    ],
)
def test_no_new_name_takes_a_column_from_a_mask(
    lake: Lake, policies: Policies, changes: Any, problem: str
) -> None:
    table = make(lake, schema=PEOPLE)
    policies(masking("ssn", "MASK_HASH", "texts"), masking("home.town", "MASK_HASH", "towns"))
    with pytest.raises(RequestInvalid, match=problem):
        alter(lake, table, *changes)
    policies(masking("ssn*", "MASK_HASH", "texts"), masking("age", "MASK_NONE", "none"))
    alter(lake, table, RenameColumn(("ssn",), "ssn_code"), DropColumn(("ssn_code",)))
    alter(lake, table, RenameColumn(("age",), "years"))
    lake.catalog().drop_table(table.name())


@each_row(
    ("lifting", "name"),
    [
        (masking("tags_of", "MASK_NONE", "other", policyPriority=1), "tags_of"),
        (masking("tags_of", "mask-to-fixed-value", "other", policyPriority=1), "tags_of"),
        (masking("tags_of", "mask-to-fixed-value", "another"), "TAGS_OF"),
    ],
)
def test_no_new_name_takes_a_masked_column_to_another_mask(
    lake: Lake, policies: Policies, lifting: dict[str, Any], name: str
) -> None:
    table = make(lake, schema=PEOPLE)
    policies(masking("*s*", "MASK_NULL", "most"), lifting)
    with pytest.raises(RequestInvalid, match=r"policy '(an)?other'.*beside policy 'most'"):
        alter(lake, table, RenameColumn(("ssn",), name))
    alter(lake, table, RenameColumn(("age",), "tags_of"))
    lake.catalog().drop_table(table.name())


def test_the_last_schema_with_the_name_of_a_mask_is_not_removed(lake: Lake, policies: Policies) -> None:
    table = make(lake, schema=PEOPLE)
    alter(lake, table, RenameColumn(("ssn",), "code"))

    def forget() -> None:
        updates = [RemoveSchemasUpdate(schema_ids=[0])]
        lake.services.committer.commit(lake.caller(ALICE), name_of(table), (), updates)

    policies(masking("ssn", "MASK_HASH", "former"))
    with pytest.raises(RequestInvalid, match=r"policy 'former'.*no schema would have the name"):
        forget()
    policies(
        masking("*s*", "MASK_HASH", "former"), masking("code", "MASK_HASH"), masking("ssn", "MASK_NONE", "n")
    )
    with pytest.raises(RequestInvalid, match=r"policy 'former'.*on the column 'code'"):
        forget()
    policies(masking("code", "MASK_HASH"), masking("ssn", "MASK_NONE", "none"))
    forget()
    assert len(loaded(lake, table).metadata.schemas) == 1
    lake.catalog().drop_table(table.name())
