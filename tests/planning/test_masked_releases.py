"""Data keys of masked columns: to nobody where the mask is NULL, else to an engine that enforces it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

from catalog.planning.plan import Plan
from catalog.planning.request import READ_RESTRICTIONS
from tests.support import plans
from tests.support.lake import CAROL, MASTER_KEY, Lake, policy
from tests.support.plans import about
from tests.support.tables import append_files, make, name_of

Policies = Callable[..., None]
PERSON = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "email", StringType()),
    NestedField(4, "salary", LongType()),
    NestedField(
        5, "home", StructType(NestedField(6, "street", StringType()), NestedField(7, "town", StringType()))
    ),
)
KEYS = {"encryption.columns": "pii:ssn,email;hr:salary;place:home"}
SELECT = [{"type": "select", "isAllowed": True}]
RELEASE = policy("carol-release", {"key": ["*"]}, {CAROL: ["release"]})
CODE = policy("carol-code", {"engine": ["spark"]}, {CAROL: ["code"]})
#: Masks that need the values, if only to know where they are NULL.
READING = ("MASK", "MASK_SHOW_LAST_4", "sha-256-query-local", "mask-to-fixed-value")

plan = partial(plans.plan, user=CAROL, enforces=frozenset({READ_RESTRICTIONS}))
refused = partial(plans.refused, user=CAROL, enforces=frozenset({READ_RESTRICTIONS}))


def mask(column: str, mask_type: str = "MASK_NULL") -> dict[str, Any]:
    item = {"users": [CAROL], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": mask_type}}
    return policy(f"mask {column}", about(column), {}, policyType=1, dataMaskPolicyItems=[item])


def rows(condition: str) -> dict[str, Any]:
    item = {"users": [CAROL], "accesses": SELECT, "rowFilterInfo": {"filterExpr": condition}}
    resources = {"database": ["db"], "table": ["*"]}
    return policy("rows", resources, {}, policyType=2, rowFilterPolicyItems=[item])


def denied(*columns: str) -> dict[str, Any]:
    item = {"users": [CAROL], "accesses": SELECT}
    return policy(f"denied {columns}", about(columns[0]) | {"column": columns}, {}, denyPolicyItems=[item])


def released(made: Plan) -> set[str]:
    return {key["key_name"] for keys in made.files["keys"].to_pylist() for key in keys or ()}


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    made = make(lake, schema=PERSON, properties=KEYS)
    append_files(lake, name_of(made), 2)
    return made


@pytest.mark.parametrize("engine", ["spark", None])
def test_the_key_of_a_column_that_is_null_goes_to_nobody(
    lake: Lake, policies: Policies, table: Table, engine: str | None
) -> None:
    policies(RELEASE, mask("salary"))
    made = plan(lake, table, engine=engine)
    assert released(made) == {MASTER_KEY, "pii", "place"}
    assert released(plan(lake, table, "salary", engine=engine)) == {MASTER_KEY}


def test_it_goes_to_an_engine_whose_row_filter_reads_the_column(
    lake: Lake, policies: Policies, table: Table
) -> None:
    policies(RELEASE, mask("salary"), rows("salary > 5"))
    assert released(plan(lake, table, "id")) == {MASTER_KEY, "hr"}
    assert released(plan(lake, table, "id", "salary")) == {MASTER_KEY, "hr"}
    assert refused(lake, table, "id", engine=None).rule == "row-filter"


def test_an_engine_filters_rows_by_a_column_that_the_user_cannot_select(
    lake: Lake, policies: Policies, table: Table
) -> None:
    policies(RELEASE, denied("salary"), rows("salary > 5"))
    assert released(plan(lake, table, "id")) == {MASTER_KEY, "hr"}
    for reader in ({"engine": None}, {"enforces": frozenset()}):
        assert refused(lake, table, "id", **reader).rule == "row-filter"
    assert refused(lake, table, "id", "salary").rule == "policy-deny"
    policies(RELEASE, CODE, denied("salary"), rows("salary > 5"))
    assert refused(lake, table, "id").rule == "row-filter"


def test_the_key_of_a_filtered_column_opens_nothing_else_that_the_user_cannot_select(
    lake: Lake, policies: Policies, table: Table
) -> None:
    policies(denied("ssn"), rows("ssn = 'x'"))
    assert released(plan(lake, table, "id")) == released(plan(lake, table, "email")) == {MASTER_KEY, "pii"}
    policies(denied("home.street"), rows("home.street = 'x'"))
    assert released(plan(lake, table, "id")) == {MASTER_KEY, "place"}
    for columns, condition in (
        (("ssn", "email"), "ssn = 'x'"),
        (("home",), "home.street = 'x'"),
        (("home.town",), "home.street = 'x'"),
        (("ssn",), "email = 'x'"),
    ):
        policies(denied(*columns), rows(condition))
        assert refused(lake, table, "id").rule == "policy-deny"


@pytest.mark.parametrize("mask_type", READING)
def test_the_key_of_another_masked_column_goes_to_an_enforcing_engine_alone(
    lake: Lake, policies: Policies, table: Table, mask_type: str
) -> None:
    policies(RELEASE, mask("salary", mask_type))
    assert released(plan(lake, table, "id", "salary")) == {MASTER_KEY, "hr"}
    for reader in ({"engine": None}, {"enforces": frozenset()}):
        assert refused(lake, table, "id", "salary", **reader).rule == "mask"
    policies(RELEASE, CODE, mask("salary", mask_type))
    assert refused(lake, table, "id", "salary").rule == "mask"


@pytest.mark.parametrize("engine", ["spark", None])
def test_a_key_that_also_opens_a_column_that_is_null_is_not_released(
    lake: Lake, policies: Policies, table: Table, engine: str | None
) -> None:
    policies(RELEASE, mask("email"))
    for columns in (("ssn",), ("ssn", "email"), ()):
        refusal = refused(lake, table, *columns, engine=engine)
        assert refusal.rule == "mask" and "email" in refusal.message
    assert released(plan(lake, table, "id", "email", engine=engine)) == {MASTER_KEY}


def test_a_key_that_also_opens_a_column_under_another_mask_goes_to_an_enforcing_engine_alone(
    lake: Lake, policies: Policies, table: Table
) -> None:
    policies(RELEASE, mask("email", "MASK_HASH"))
    assert released(plan(lake, table, "ssn")) == {MASTER_KEY, "pii"}
    for reader in ({"engine": None}, {"enforces": frozenset()}):
        assert refused(lake, table, "ssn", **reader).rule == "mask"


@pytest.mark.parametrize("columns", [("home",), ("home.town",), ()])
def test_a_nested_field_that_is_null_closes_the_key_of_its_column(
    lake: Lake, policies: Policies, table: Table, columns: tuple[str, ...]
) -> None:
    policies(mask("home.street"))
    assert "home.street" in refused(lake, table, *columns).message
    assert released(plan(lake, table, "ssn")) == {MASTER_KEY, "pii"}


def test_a_masked_column_that_was_dropped_closes_its_key(lake: Lake, policies: Policies) -> None:
    made = make(lake, schema=PERSON, properties=KEYS)
    append_files(lake, name_of(made))
    with lake.catalog().load_table(made.name()).update_schema() as update:
        update.delete_column("email")
    policies(RELEASE, mask("email", "MASK_HASH"), mask("salary", "MASK"))
    for columns in (("ssn",), ("ssn", "salary")):
        refusal = refused(lake, made, *columns)
        assert refusal.rule == "mask" and "email" in refusal.message
    assert released(plan(lake, made, "salary")) == {MASTER_KEY, "hr"}


@pytest.mark.parametrize(
    "properties",
    [{}, {"encryption.mechanism": "envelope"}, {"encryption.columns": "pii:ssn"}],
    ids=["plaintext", "one key", "no key of the column"],
)
def test_a_users_own_process_gets_no_file_that_shows_a_column_that_is_null(
    lake: Lake, policies: Policies, properties: dict[str, str]
) -> None:
    made = make(lake, schema=PERSON, properties=properties)
    append_files(lake, name_of(made))
    policies(RELEASE, mask("salary"))
    refusal = refused(lake, made, "id", "salary", engine=None)
    assert refusal.rule == "mask" and "salary" in refusal.message
    assert plan(lake, made, "id", "salary").header.restriction.masks
    # The schema of an earlier snapshot still has a column that was dropped.
    snapshot = lake.catalog().load_table(made.name()).metadata.current_snapshot_id
    policies(RELEASE)
    with lake.catalog().load_table(made.name()).update_schema() as update:
        update.delete_column("salary")
    policies(RELEASE, mask("salary"))
    refusal = refused(lake, made, "id", "salary", engine=None, snapshot_id=snapshot)
    assert refusal.rule == "mask" and "salary" in refusal.message
