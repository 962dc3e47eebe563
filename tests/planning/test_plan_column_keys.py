"""Keys of columns in plans: those that the scan needs, to those who may select every column under them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

from catalog.envelope.key_metadata import Binding
from catalog.keyring.file_epochs import CheckedFiles
from catalog.keyring.keyring import Keyring
from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from catalog.tables.alter import SetProperty
from policy.errors import DecryptionRefused, NotAuthorized
from tests.support import plans
from tests.support.lake import CAROL, MASTER_KEY, Lake, policy
from tests.support.plans import about
from tests.support.tables import append_files, make, name_of, records

Policies = Callable[..., None]

PERSON = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "email", StringType()),
    NestedField(4, "salary", LongType()),
    NestedField(
        5,
        "home",
        StructType(NestedField(6, "street", StringType()), NestedField(7, "town", StringType())),
    ),
)
KEYS = {"encryption.columns": "pii:ssn,email;hr:salary;place:home"}
FOOTER, PII, HR, PLACE = (MASTER_KEY, ()), ("pii", (2, 3)), ("hr", (4,)), ("place", (5, 6, 7))
RELEASE = policy("carol-release", {"key": ["*"]}, {CAROL: ["release"]})

#: A plan of Carol.
plan = partial(plans.plan, user=CAROL)
refused = partial(plans.refused, user=CAROL)


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    made = make(lake, schema=PERSON, properties=KEYS)
    append_files(lake, name_of(made), 2)
    return made


def released(made: Plan) -> set[tuple[tuple[str, tuple[int, ...]], ...]]:
    """The labels of the keys of each file."""
    rows = made.files["keys"].to_pylist()
    return {tuple((key["key_name"], tuple(key["field_ids"])) for key in keys) for keys in rows}


def deny(column: str) -> dict[str, Any]:
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    return policy(f"no {column}", about(column), {}, denyPolicyItems=items)


def mask(column: str) -> dict[str, Any]:
    masked = [
        {
            "users": [CAROL],
            "accesses": [{"type": "select", "isAllowed": True}],
            "dataMaskInfo": {"dataMaskType": "MASK_HASH"},
        }
    ]
    return policy(f"mask {column}", about(column), {}, policyType=1, dataMaskPolicyItems=masked)


def table_now(lake: Lake, table: Table) -> Table:
    return lake.catalog().load_table(table.name())


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("engine", ["spark", None])
@pytest.mark.parametrize(
    ("columns", "filtered", "keys"),
    [
        (("id",), None, (FOOTER,)),
        (("ssn",), None, (FOOTER, PII)),
        (("email", "salary"), None, (FOOTER, PII, HR)),
        (("home.town",), None, (FOOTER, PLACE)),
        (("id",), "salary", (FOOTER, HR)),
        ((), None, (FOOTER, PII, HR, PLACE)),
    ],
)
def test_a_scan_gets_the_footers_key_and_those_of_the_columns_it_touches(
    lake: Lake,
    policies: Policies,
    table: Table,
    columns: tuple[str, ...],
    filtered: str | None,
    keys: tuple[object, ...],
    engine: str | None,
) -> None:
    policies(RELEASE)
    asked = {"filter": EqualTo(filtered, 1)} if filtered else {}
    made = plan(lake, table, *columns, engine=engine, **asked)
    assert made.files.num_rows == 2
    assert released(made) == {keys}
    assert made.files["column_keys"].to_pylist() == [True, True]


@pytest.mark.parametrize("engine", ["spark", None])
@pytest.mark.parametrize(("restrict", "word"), [(deny, "email"), (mask, "masks")], ids=["denied", "masked"])
def test_a_key_is_refused_for_another_column_under_it_that_the_user_may_not_have(
    lake: Lake, policies: Policies, table: Table, restrict: Any, word: str, engine: str | None
) -> None:
    policies(RELEASE, restrict("email"))
    refusal = refused(lake, table, "ssn", engine=engine)
    assert "email" in refusal.message and word in refusal.message
    assert refusal.rule == ("policy-deny" if restrict is deny else "mask")
    assert released(plan(lake, table, "id", "salary", engine=engine)) == {(FOOTER, HR)}


def test_the_refusal_names_key_and_column_and_is_on_record(lake: Lake, policies: Policies) -> None:
    table = make(lake, schema=PERSON, properties=KEYS)
    append_files(lake, name_of(table))
    policies(deny("email"))
    caller = lake.caller(CAROL, "spark")
    with pytest.raises(NotAuthorized, match="'pii' also opens the column 'email'"):
        lake.services.planner.plan(caller, name_of(table), ScanRequest(columns=("ssn",)))
    kept = [(each.allowed, each.reasons[0].rule) for each in records(lake, caller)]
    assert (False, "key-group") in kept and kept.count((True, "policy-allow")) == 1


def test_a_nested_field_that_is_withheld_withholds_the_key_of_its_column(
    lake: Lake, policies: Policies, table: Table
) -> None:
    policies(deny("home.street"))
    assert "home.street" in refused(lake, table, "home.town").message
    assert released(plan(lake, table, "id")) == {(FOOTER,)}


def test_a_users_own_process_needs_release_on_each_key_that_it_gets(
    lake: Lake, policies: Policies, table: Table
) -> None:
    only = policy("some", {"key": [MASTER_KEY, "hr"]}, {CAROL: ["release"]})
    policies(only)
    assert released(plan(lake, table, "salary", engine=None)) == {(FOOTER, HR)}
    assert "pii" in refused(lake, table, "ssn", engine=None).message
    assert released(plan(lake, table, "ssn")) == {(FOOTER, PII)}
    policies(policy("columns", {"key": ["pii", "hr", "place"]}, {CAROL: ["release"]}))
    assert MASTER_KEY in refused(lake, table, "id", engine=None).message


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
def test_a_former_name_of_a_column_under_the_key_counts(
    lake: Lake, policies: Policies, restrict: Any
) -> None:
    table = make(lake, schema=PERSON, properties=KEYS)
    append_files(lake, name_of(table))
    with table_now(lake, table).update_schema() as update:
        update.rename_column("email", "harmless")
    append_files(lake, name_of(table))
    for name in ("email", "harmless"):
        policies(restrict(name))
        refused(lake, table, "ssn")
    policies()
    assert released(plan(lake, table, "ssn")) == {(FOOTER, PII)}


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
def test_a_dropped_column_under_the_key_counts_as_long_as_a_file_has_it(
    lake: Lake, policies: Policies, restrict: Any
) -> None:
    table = make(lake, schema=PERSON, properties=KEYS)
    append_files(lake, name_of(table))
    with table_now(lake, table).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("email")
    policies(restrict("email"))
    refused(lake, table, "ssn")
    assert released(plan(lake, table, "id")) == {(FOOTER,)}


def test_each_file_is_judged_by_its_own_key_metadata(lake: Lake, policies: Policies) -> None:
    """A file that was written under one key alone opens as a whole, whatever the table says today."""
    table = make(lake, schema=PERSON, properties={"encryption.mechanism": "envelope"})
    append_files(lake, name_of(table))
    lake.services.alterer.alter(
        lake.caller("alice"), name_of(table), [SetProperty("encryption.columns", "pii:ssn")]
    )
    append_files(lake, name_of(table))
    policies(RELEASE, deny("email"))
    assert released(plan(lake, table, "ssn")) == {(FOOTER,), (FOOTER, ("pii", (2,)))}
    assert sorted(plan(lake, table, "id").files["column_keys"].to_pylist()) == [False, True]
    assert "email" in refused(lake, table, "ssn", engine=None).message


def test_a_key_for_a_field_that_no_schema_names_goes_to_nobody(
    lake: Lake, policies: Policies, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may be said of a field without a name, no policy can tell."""
    judged = Keyring.checked_files

    def forged(self: Keyring, *given: Any) -> CheckedFiles:
        files, forms = judged(self, *given), []
        for form in files.forms:
            *before, last = form.metadata.entries
            bound = last.bound
            binding = Binding(bound.pek, (*bound.field_ids, 99)).to_bytes()
            metadata = form.metadata._replace(entries=(*before, last._replace(binding=binding)))
            forms.append(replace(form, metadata=metadata))
        return replace(files, forms=tuple(forms))

    monkeypatch.setattr(Keyring, "checked_files", forged)
    with pytest.raises(DecryptionRefused) as refusal:
        plan(lake, table, "home")
    assert refusal.value.rule == "unknown-column"


def test_counting_needs_the_footer_alone(lake: Lake, table: Table) -> None:
    asked = ScanRequest(columns=())
    made = lake.services.planner.plan(lake.caller(CAROL, "spark"), name_of(table), asked)
    assert released(made) == {(FOOTER,)}


def test_a_field_that_a_file_is_older_than_takes_the_key_of_its_struct(
    lake: Lake, policies: Policies
) -> None:
    """Where the struct is null, the file tells by its other fields alone."""
    table = make(lake, schema=PERSON, properties=KEYS)
    append_files(lake, name_of(table))
    with table_now(lake, table).update_schema() as update:
        update.add_column(("home", "door"), LongType())
        update.add_column("age", LongType())
    assert released(plan(lake, table, "home.door")) == {(FOOTER, PLACE)}
    assert released(plan(lake, table, "age")) == {(FOOTER,)}
    policies(deny("home.street"))
    assert "home.street" in refused(lake, table, "home.door").message
    assert released(plan(lake, table, "age")) == {(FOOTER,)}
