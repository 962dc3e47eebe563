"""Row filters and masks of policies in plans: who gets them, what they say, and what planning shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import EqualTo, GreaterThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
)

from catalog.authorization.restrictions import columns_of
from catalog.planning.request import READ_RESTRICTIONS, ScanRequest
from catalog.planning.restricting import pruning
from catalog.tables.schema_changes import AddColumn, RenameColumn
from policy.errors import NotAuthorized
from policy.restrictions.binding import Asker, bind
from policy.restrictions.model import Restriction
from policy.restrictions.sql import row_filter
from tests.support import plans
from tests.support.column_keys import alter, loaded
from tests.support.lake import ALICE, CAROL, Lake, policy
from tests.support.tables import Engine, make, name_of, records
from tests.support.vectors import each_row

Policies = Callable[..., None]
ENFORCED = frozenset({READ_RESTRICTIONS})

PEOPLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "age", LongType()),
    NestedField(4, "home", StructType(NestedField(5, "town", StringType()))),
    NestedField(6, "tags", ListType(7, StringType())),
    NestedField(8, "props", MapType(9, StringType(), 10, StringType())),
)
AGE = 3
KEYED = {"encryption.columns": "pii:ssn;hr:age"}

#: A plan of Carol by an engine that enforces it.
plan = partial(plans.plan, user=CAROL, enforces=ENFORCED)
refused = partial(plans.refused, user=CAROL)

SELECT = [{"type": "select", "isAllowed": True}]


def masking(column: str, mask: str, name: str = "masks", **more: Any) -> dict[str, Any]:
    item = {"users": [CAROL], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": mask}}
    made = policy(name, plans.about(column), {}, policyType=1, dataMaskPolicyItems=[item])
    return made | {"policyItems": []} | more


def filtering(text: str, name: str = "rows", **more: Any) -> dict[str, Any]:
    item = {"users": [CAROL], "accesses": SELECT, "rowFilterInfo": {"filterExpr": text}}
    resources = {"database": ["db"], "table": ["*"]}
    made = policy(name, resources, {}, policyType=2, rowFilterPolicyItems=[item])
    return made | {"policyItems": []} | more


@pytest.fixture(scope="module")
def people(lake: Lake) -> Table:
    """Two files, with ages up to 10 and from 11 on."""
    return _filled(lake, make(lake, schema=PEOPLE))


@pytest.fixture(scope="module")
def keyed(lake: Lake) -> Table:
    """The same, with column keys."""
    return _filled(lake, make(lake, schema=PEOPLE, properties=KEYED))


def _filled(lake: Lake, table: Table) -> Table:
    engine = Engine.begin(lake, name_of(table))
    engine.append(
        *(
            engine.file(
                value_counts={AGE: 10},
                null_value_counts={AGE: 0},
                lower_bounds={AGE: to_bytes(LongType(), least)},
                upper_bounds={AGE: to_bytes(LongType(), most)},
            )
            for least, most in ((1, 10), (11, 20))
        )
    )
    return table


def said(made: plans.Plan) -> Any:
    return made.header.to_json()["read-restrictions"]


def keys_of(made: plans.Plan) -> set[str]:
    return {key["key_name"] for keys in made.files["keys"].to_pylist() for key in keys or ()}


def test_an_enforcing_engine_gets_filter_and_masks_by_field_id(
    lake: Lake, people: Table, policies: Policies
) -> None:
    policies(filtering("age > 3"), masking("ssn", "show-last-4"), masking("home", "MASK_NULL", "home"))
    made = plan(lake, people)
    reference = {"type": "reference", "id": AGE}
    assert said(made) == {
        "required-row-filter": {
            "type": "and",
            "left": {"type": "not-null", "child": reference},
            "right": {"type": "gt", "left": reference, "right": {"type": "literal", "value": 3}},
        },
        "required-column-projections": [
            {"field-id": 2, "action": "show-last-4"},
            {"field-id": 4, "action": "replace-with-null"},
        ],
    }
    assert made.header.masked == (4,) and "home" not in made.header.columns
    assert said(plan(lake, people, "id"))["required-column-projections"] == []
    assert said(plans.plan(lake, people, user=ALICE)) is None


def test_what_applies_is_on_record_with_the_policies_name(
    lake: Lake, people: Table, policies: Policies
) -> None:
    policies(filtering("age > 3"), masking("ssn", "MASK_HASH"))
    caller = lake.caller(CAROL, "spark")
    lake.services.planner.plan(caller, name_of(people), ScanRequest(enforces=ENFORCED))
    reasons = [each for record in records(lake, caller) for each in record.reasons if each.policy]
    shown = {(each.rule, each.policy, each.item) for each in reasons}
    assert ("row-filter", "rows", "rowFilterPolicyItems[0]") in shown
    assert ("mask", "masks", "dataMaskPolicyItems[0]") in shown
    details = " ".join(each.detail for each in reasons)
    assert "age > 3" in details and "'ssn': sha-256-global" in details
    own = lake.caller(CAROL)
    with pytest.raises(NotAuthorized):
        lake.services.planner.plan(own, name_of(people), ScanRequest())
    assert "masks" in {each.policy for record in records(lake, own) for each in record.reasons}


@pytest.mark.parametrize(
    "policy_of", [lambda: masking("ssn", "MASK_HASH"), lambda: filtering("age > 3")], ids=["mask", "rows"]
)
def test_only_an_engine_that_enforces_and_runs_no_code_of_the_user_gets_the_plan(
    lake: Lake, people: Table, policies: Policies, policy_of: Any
) -> None:
    policies(policy_of())
    assert said(plan(lake, people))
    assert "does not apply" in refused(lake, people).message
    assert "own process" in refused(lake, people, engine=None, enforces=ENFORCED).message
    policies(policy_of(), policy("code", {"engine": ["spark"]}, {CAROL: ["code"]}))
    refusal = refused(lake, people, enforces=ENFORCED)
    assert "run code in the engine spark" in refusal.message
    assert refusal.rule in ("mask", "row-filter") and refusal.hint


def test_rewriting_and_changes_take_rows_as_they_are(lake: Lake, people: Table, policies: Policies) -> None:
    paths = frozenset(plan(lake, people).files["file_path"].to_pylist())
    policies(filtering("age > 3"))
    more = {"ref": "main", "files": paths}
    assert refused(lake, people, enforces=ENFORCED, **more).rule == "row-filter"
    assert refused(lake, people, enforces=ENFORCED, changes=True).rule == "row-filter"


def test_the_filter_prunes_files_and_a_masked_column_prunes_none(
    lake: Lake, people: Table, policies: Policies
) -> None:
    policies(filtering("age > 10"))
    assert plan(lake, people).files.num_rows == 1
    assert plan(lake, people, every_file=True).files.num_rows == 2
    assert plan(lake, people, filter=EqualTo("age", 3)).files.num_rows == 0
    policies(masking("age", "mask-to-fixed-value"))
    assert plan(lake, people, filter=GreaterThan("age", 10)).files.num_rows == 2
    policies(filtering("age > 10"), masking("age", "mask-to-fixed-value"))
    assert plan(lake, people, filter=GreaterThan("age", 100)).files.num_rows == 1


def test_statistics_tell_nothing_of_masked_columns_or_hidden_rows(
    lake: Lake, people: Table, policies: Policies
) -> None:
    policies(masking("age", "mask-to-fixed-value"))
    made = plan(lake, people, "id", "age", column_statistics=True)
    assert set(made.header.statistics or {}) == {"1"}
    policies(filtering("age > 0"))
    assert not plan(lake, people, column_statistics=True).header.statistics


def test_numbers_of_rows_in_files_do_not_tell_of_hidden_rows(
    lake: Lake, people: Table, policies: Policies
) -> None:
    policies(filtering("age > 0"))
    refusal = refused(lake, people, "id", "_pos", enforces=ENFORCED)
    assert refusal.rule == "row-filter" and "_pos" in refusal.message
    assert plan(lake, people, "id", "_file").files.num_rows == 2
    policies(masking("age", "MASK"))
    assert plan(lake, people, "id", "_pos").files.num_rows == 2


def test_partition_values_of_a_masked_column_are_not_shown(lake: Lake, policies: Policies) -> None:
    spec = PartitionSpec(PartitionField(AGE, 1000, IdentityTransform(), "age"))
    table = make(lake, schema=PEOPLE, partition_spec=spec)
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file(partition={"age": 7}))
    assert plan(lake, table).files["partition"].to_pylist() == ['{"age": 7}']
    policies(masking("age", "mask-to-fixed-value"))
    assert plan(lake, table).files["partition"].to_pylist() == ["{}"]
    assert refused(lake, table, "id", "_file", enforces=ENFORCED).rule == "masked-column"


@each_row(
    ("made", "problem"),
    [
        (filtering("gone = 1"), "the column gone does not exist"),
        (filtering("age = 'x'"), "not a value of the column age, type long"),
        (masking("id", "MASK_NULL"), "required"),
        (masking("id", "MASK_DATE_SHOW_YEAR", conditions=[{"type": "ip"}]), "required"),
        (masking("age", "show-first-4"), "type long"),
        (masking("props.key", "MASK_HASH"), "the key of a map"),
    ],
)
def test_a_policy_that_does_not_fit_the_table_refuses_the_query_with_its_name(
    lake: Lake, people: Table, policies: Policies, made: Any, problem: str
) -> None:
    policies(made)
    refusal = refused(lake, people, enforces=ENFORCED)
    assert refusal.hint and "mend the policy" in refusal.hint
    assert problem in refusal.message and f"Policy {made['name']!r}" in refusal.message


def test_a_mask_covers_what_is_nested_and_a_field_can_have_its_own(
    lake: Lake, people: Table, policies: Policies
) -> None:
    policies(masking("home*", "MASK"))
    assert said(plan(lake, people, "home.town"))["required-column-projections"] == [
        {"field-id": 4, "action": "replace-with-null"}
    ]
    policies(masking("home.town", "mask-alphanum"), masking("tags.element", "MASK", "tags"))
    made = plan(lake, people)
    assert said(made)["required-column-projections"] == [
        {"field-id": people.schema().find_field(name).field_id, "action": action}
        for name, action in (("home.town", "mask-alphanum"), ("tags.element", "hive-mask"))
    ]
    assert made.header.masked == ()


def test_a_mask_that_does_not_fit_a_column_leaves_the_others_alone(
    lake: Lake, people: Table, keyed: Table, policies: Policies
) -> None:
    policies(masking("*", "show-last-4"))
    assert said(plan(lake, people, "ssn"))["required-column-projections"] == [
        {"field-id": 2, "action": "show-last-4"}
    ]
    assert "type long" in refused(lake, people, "age", enforces=ENFORCED).message
    assert "type long" in refused(lake, keyed, "ssn", enforces=ENFORCED).message


@pytest.mark.parametrize(
    "properties", [{}, {"encryption.columns": "hr:age"}], ids=["plaintext", "column keys"]
)
def test_a_filter_by_a_column_that_the_table_masks_for_the_user_is_refused(
    lake: Lake, policies: Policies, properties: dict[str, str]
) -> None:
    """The reader would take each value for NULL, and show the rows that the filter hides."""
    masked = make(lake, schema=PEOPLE, properties={**properties, "encryption.masks": "nullify:age"})
    items = [{"users": [CAROL], "accesses": SELECT}]
    denied = policy("denied", plans.about("age"), {}, denyPolicyItems=items)
    policies(denied, filtering("age is null or age = 1"))
    assert refused(lake, masked, "id", enforces=ENFORCED).rule == "masked-column"
    policies(denied, filtering("ssn = 'x'"))
    assert plan(lake, masked).header.masked == (AGE,)
    policies(filtering("age is null or age = 1"))
    assert plan(lake, masked).header.masked == ()


def test_a_filter_for_others_alone_restricts_nothing(lake: Lake, people: Table, policies: Policies) -> None:
    policies(filtering("age > 100 or current_user() = 'carol'"))
    assert said(plans.plan(lake, people, user=CAROL)) is None
    policies(filtering("is_member('nobody')"))
    made = plan(lake, people)
    assert said(made)["required-row-filter"] is False and made.files.num_rows == 0
    policies(filtering("age > 1", conditions=[{"type": "ip-range", "values": ["1.2.3.4"]}]))
    assert said(plan(lake, people))["required-row-filter"] is False


def test_rows_pass_the_filters_of_all_policies_of_equal_priority(
    lake: Lake, people: Table, policies: Policies
) -> None:
    policies(filtering("age > 3", "a"), filtering("age < 5", "b"))
    made = said(plan(lake, people))["required-row-filter"]
    kinds = {each["type"] for each in (made, made["left"], made["right"])}
    assert {"and", "lt"} <= kinds | {"lt"} and "or" not in str(made)
    policies(filtering("age > 3", "a"), filtering("age < 5", "b", policyPriority=1))
    assert "gt" not in str(said(plan(lake, people))).replace("lt-eq", "")


def test_a_users_own_process_reads_beside_columns_that_are_null(
    lake: Lake, keyed: Table, people: Table, policies: Policies
) -> None:
    release = policy("release", {"key": ["*"]}, {CAROL: ["release"]})
    policies(release, masking("ssn", "MASK_NULL"))
    made = plans.plan(lake, keyed, user=CAROL, engine=None)
    assert made.header.masked == (2,) and "pii" not in keys_of(made) and "hr" in keys_of(made)
    assert refused(lake, people, engine=None).rule == "mask"
    policies(release, masking("ssn", "MASK_HASH"))
    assert refused(lake, keyed, engine=None).rule == "mask"
    policies(release, masking("ssn", "MASK_NULL"), filtering("age > 0"))
    assert refused(lake, keyed, engine=None).rule == "mask"


def test_a_change_of_restrictions_while_manifests_are_read_refuses_the_plan(
    lake: Lake, people: Table, policies: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies(filtering("age > 3"))
    planner = lake.services.planner
    real = type(planner).files

    def files(*args: Any) -> Any:
        policies(filtering("age > 4"))
        return real(*args)

    monkeypatch.setattr(type(planner), "files", files)
    assert refused(lake, people, enforces=ENFORCED).rule == "policy-changed"


def test_filters_of_every_type_prune(lake: Lake, people: Table) -> None:
    schema = Schema(
        NestedField(1, "d", DateType()),
        NestedField(2, "p", DecimalType(38, 2)),
        NestedField(3, "x", DoubleType()),
        NestedField(4, "f", FloatType()),
        NestedField(5, "ts", TimestampType()),
        NestedField(6, "tz", TimestamptzType()),
        NestedField(7, "ns", TimestampNanoType()),
        NestedField(8, "s", StructType(NestedField(9, "t", StringType()))),
        NestedField(10, "Name", StringType()),
        NestedField(11, "name", StringType()),
    )
    columns = columns_of(loaded(lake, people), schema)
    texts = (
        "d > current_date",
        "p in (1.5, -123456789012345678901234567890123456.78)",
        "not (x < 0 or f = 0.5)",
        "ts <= '2026-01-31 01:02:03'",
        "tz <= '2026-01-31 01:02:03+01:00'",
        "ns > '2026-01-31 01:02:03'",
        "s.t like 'a%' or not startswith(s.t, 'b')",
    )
    for text in texts:
        bound = bind(row_filter(text), Asker("ann", frozenset(), date(2026, 1, 1)), columns)
        assert pruning(Restriction(bound), schema)


def test_a_mask_is_on_a_column_under_each_name_that_it_had(lake: Lake, policies: Policies) -> None:
    table = make(lake, schema=PEOPLE)
    alter(lake, table, RenameColumn(("ssn",), "code"))
    alter(lake, table, AddColumn(("ssn",), StringType()))
    policies(masking("ssn", "MASK_HASH"))
    masked, added = ({"field-id": each, "action": "sha-256-global"} for each in (2, 11))
    hashed = {"required-row-filter": None, "required-column-projections": [masked, added]}
    assert said(plan(lake, table)) == hashed
    assert said(plan(lake, table, "code")) == {**hashed, "required-column-projections": [masked]}
    assert refused(lake, table, "code", engine=None).rule == "mask"
    policies(masking("code", "MASK_HASH"))
    assert said(plan(lake, table)) == {**hashed, "required-column-projections": [masked]}
    assert said(plan(lake, table, "ssn")) is None
    policies(masking("code", "MASK_HASH"), masking("ssn", "mask-alphanum", "more"))
    nulled = {"field-id": 2, "action": "replace-with-null"}
    assert said(plan(lake, table, "code"))["required-column-projections"] == [nulled]
