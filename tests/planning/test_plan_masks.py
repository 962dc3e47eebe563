"""Masked columns in plans: named as masked, without keys, and without a part in which files are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import And, EqualTo, GreaterThan, IsNull, LessThan, Not, Or, StartsWith
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

from catalog.audit.records import MAX_REASONS
from catalog.planning.request import ScanRequest
from catalog.tables.alter import SetProperty
from policy.errors import NotAuthorized
from tests.support import plans
from tests.support.lake import ALICE, CAROL, MASTER_KEY, Lake, policy
from tests.support.tables import Engine, make, name_of, records

Policies = Callable[..., None]

PERSON = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "salary", LongType()),
    NestedField(4, "home", StructType(NestedField(5, "town", StringType()))),
)
PROPERTIES = {
    "encryption.columns": "pii:ssn;hr:salary;place:home",
    "encryption.masks": "nullify:ssn,salary,home",
}
SALARY = 3

#: A plan of Carol.
plan = partial(plans.plan, user=CAROL)


def denied(*columns: str) -> dict[str, Any]:
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    resources = {"database": ["db"], "table": ["*"], "column": list(columns)}
    return policy("denied", resources, {}, denyPolicyItems=items)


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    """Two files, with salaries up to 10 and from 11 on."""
    made = make(lake, schema=PERSON, properties=PROPERTIES)
    engine = Engine.begin(lake, name_of(made))
    bounds = [(1, 10), (11, 20)]
    engine.append(
        *(
            engine.file(
                value_counts={SALARY: 10},
                null_value_counts={SALARY: 0},
                lower_bounds={SALARY: to_bytes(LongType(), least)},
                upper_bounds={SALARY: to_bytes(LongType(), most)},
            )
            for least, most in bounds
        )
    )
    return made


def names_of_keys(made: plans.Plan) -> set[str]:
    return {key["key_name"] for keys in made.files["keys"].to_pylist() for key in keys}


def test_who_may_select_everything_gets_keys_and_no_masks(lake: Lake, table: Table) -> None:
    made = plan(lake, table)
    assert made.header.masked == () and names_of_keys(made) == {MASTER_KEY, "pii", "hr", "place"}


def test_a_denied_column_is_named_as_masked_and_its_key_stays(
    lake: Lake, table: Table, policies: Policies
) -> None:
    policies(denied("salary", "home.town"))
    made = plan(lake, table)
    assert made.header.masked == (SALARY, 4) and made.header.columns == ("id", "ssn")
    assert names_of_keys(made) == {MASTER_KEY, "pii"}
    assert plan(lake, table, user=ALICE).header.masked == ()


def on_record(lake: Lake, table: Table, *columns: str, **request: Any) -> list[Any]:
    """Which columns a plan of Carol's shows through masks, as the audit trail says: reason by reason."""
    caller = lake.caller(CAROL, "spark")
    lake.services.planner.plan(caller, name_of(table), ScanRequest(columns=columns or None, **request))
    told = records(lake, caller)
    assert all(each.allowed for each in told)
    return [reason for each in told for reason in each.reasons if reason.rule == "column-mask"]


def test_the_audit_trail_names_the_columns_of_a_scan_that_are_masked_and_why(
    lake: Lake, table: Table, policies: Policies
) -> None:
    assert on_record(lake, table) == []
    policies(denied("salary", "home.town"))
    salary, home = on_record(lake, table)
    assert "'salary'" in salary.detail and "nullify" in salary.detail and "'home'" in home.detail
    assert (salary.policy, salary.item) == ("denied", "denyPolicyItems[0]")
    assert on_record(lake, table, "id", "ssn") == []
    (filtered,) = on_record(lake, table, "id", filter=GreaterThan("salary", 10))
    assert "'salary'" in filtered.detail


def test_every_masked_column_is_on_record_however_many_there_are(lake: Lake, policies: Policies) -> None:
    """A record holds no more than so many reasons."""
    names = [f"c{number}" for number in range(2 * MAX_REASONS + 1)]
    fields = [NestedField(number, name, StringType()) for number, name in enumerate(["open", *names], 1)]
    masks = {"encryption.mechanism": "envelope", "encryption.masks": f"nullify:{','.join(names)}"}
    wide = make(lake, schema=Schema(*fields), properties=masks)
    policies(denied("c*"))
    told = on_record(lake, wide)
    assert [reason.detail.split("'")[1] for reason in told] == names


def test_bounds_of_a_masked_column_decide_nothing(lake: Lake, table: Table, policies: Policies) -> None:
    """Whatever is asked of it, in whatever words: the answer is as long as without."""
    assert plan(lake, table, filter=GreaterThan("salary", 10)).files.num_rows == 1
    policies(denied("salary"))
    for about in (
        GreaterThan("salary", 10),
        EqualTo("salary", 99),
        IsNull("salary"),
        Not(LessThan("salary", 11)),
        And(GreaterThan("salary", 10), IsNull("salary")),
        Not(Or(GreaterThan("salary", 15), LessThan("salary", 5))),
        Or(EqualTo("salary", 99), StartsWith("ssn", "x")),
    ):
        made = plan(lake, table, "id", filter=about)
        assert made.files.num_rows == 2, about
        assert "hr" not in names_of_keys(made)


def test_without_a_mask_a_denied_column_is_an_error_and_a_mask_is_no_right_to_the_rest(
    lake: Lake, table: Table, policies: Policies
) -> None:
    policies(denied("id"))
    with pytest.raises(NotAuthorized):
        plan(lake, table)
    policies(denied("ssn", "id"))
    with pytest.raises(NotAuthorized):
        plan(lake, table, "ssn")  # of nothing but masked columns: that needs every other one
    policies(denied("ssn"))
    assert plan(lake, table, "ssn").header.masked == (2,)


def test_a_rewrite_and_a_process_without_an_engine_are_never_shown_masks_in_place_of_values(
    lake: Lake, table: Table, policies: Policies
) -> None:
    uniform = make(
        lake,
        schema=PERSON,
        properties={"encryption.mechanism": "envelope", "encryption.masks": "nullify:ssn"},
    )
    engine = Engine.begin(lake, name_of(uniform))
    engine.append(engine.file())
    release = policy("release", {"key": ["*"]}, {CAROL: ["release"]})
    policies(denied("ssn"), release)
    paths = frozenset(plan(lake, table).files["file_path"].to_pylist())
    with pytest.raises(NotAuthorized):
        plan(lake, table, files=paths)
    with pytest.raises(NotAuthorized):
        plan(lake, uniform, "id", engine=None)  # the one key opens the masked column too
    assert plan(lake, uniform, "id", "ssn").header.masked == (2,)


def test_a_mask_that_is_taken_away_is_an_error_again(lake: Lake, policies: Policies) -> None:
    made = make(lake, schema=PERSON, properties=PROPERTIES)
    policies(denied("ssn"))
    assert plan(lake, made).header.masked == (2,)
    change = SetProperty("encryption.masks", "nullify:salary")
    lake.services.alterer.alter(lake.caller(ALICE), name_of(made), [change])
    with pytest.raises(NotAuthorized):
        plan(lake, made)
