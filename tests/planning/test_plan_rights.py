"""Ways around a denial: nested fields, other names, keys that open whole files, partition values."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, NotNull
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from catalog.base.errors import NoSuchTable
from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from policy.errors import NotAuthorized, RequestInvalid
from tests.support import plans
from tests.support.attacker import Attacker, data_file, entry
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies
from tests.support.plans import about
from tests.support.tables import ENCRYPTED, append_files, fresh, make, name_of, records
from tests.support.vectors import each_row

Policies = Callable[..., None]

NESTED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(
        2,
        "person",
        StructType(
            NestedField(3, "name", StringType()),
            NestedField(4, "home", StructType(NestedField(5, "street", StringType()))),
        ),
    ),
    NestedField(
        6, "cards", ListType(7, StructType(NestedField(8, "number", StringType())), element_required=False)
    ),
    NestedField(9, "props", MapType(10, StringType(), 11, StringType(), value_required=False)),
)
SECRET = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
RELEASE = policy("carol-release", {"key": ["*"]}, {CAROL: ["release"]})

#: A plan of Carol.
plan = partial(plans.plan, user=CAROL)
refused = partial(plans.refused, user=CAROL)


@pytest.fixture(scope="module")
def nested(lake: Lake) -> Table:
    table = make(lake, schema=NESTED)
    append_files(lake, name_of(table))
    return table


def own_process(lake: Lake, table: Table, *columns: str) -> Plan:
    return plan(lake, table, *columns, engine=None)


def item(**more: Any) -> dict[str, Any]:
    return {"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}], **more}


def deny(column: str) -> dict[str, Any]:
    return policy(f"no {column}", about(column), {}, denyPolicyItems=[item()])


def mask(column: str) -> dict[str, Any]:
    masked = item(dataMaskInfo={"dataMaskType": "MASK_HASH"})
    return policy(f"mask {column}", about(column), {}, policyType=1, dataMaskPolicyItems=[masked])


#: By restricted field: what is asked for.
WAYS = {
    "person.name": ["person.name", "person"],
    "person.home": ["person.home.street"],
    "person.home.street": ["person.home", "person"],
    "PERSON.Home.street": ["person"],
    "person.*": ["person.home.street"],
    "*.street": ["person"],
    "cards.element": ["cards", "cards.element.number"],
    "cards.element.number": ["cards", "cards.number"],
    "cards.number": ["cards.element.number"],
    "props.key": ["props", "props.value"],
    "props.value": ["props.value", "props.key"],
}


def test_table_without_columns_is_read_by_who_can_select_it(lake: Lake) -> None:
    table = make(lake, schema=Schema())
    assert plan(lake, table).files.num_rows == 0
    assert refused(lake, table, user=BOB).rule == "policy-no-match"


def test_unrestricted_nested_fields_are_read(lake: Lake, nested: Table) -> None:
    for asked in {each for ways in WAYS.values() for each in ways}:
        assert plan(lake, nested, asked).files.num_rows == 1, asked


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
@each_row("restricted", WAYS)
def test_restricted_nested_field_is_not_read_by_any_way_to_it(
    lake: Lake, policies: Policies, nested: Table, restrict: Any, restricted: str
) -> None:
    policies(restrict(restricted))
    for asked in WAYS[restricted]:
        refusal = refused(lake, nested, asked)
        assert refusal.rule == ("policy-deny" if restrict is deny else "mask"), asked
    refused(lake, nested)
    assert plan(lake, nested, "id").files.num_rows == 1


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
def test_restricted_nested_field_is_not_filtered_by(
    lake: Lake, policies: Policies, nested: Table, restrict: Any
) -> None:
    policies(restrict("person.home.street"))
    for condition in (EqualTo("person.home.street", "x"), NotNull("person.home.street")):
        refused(lake, nested, "id", filter=condition)
    refused(lake, nested, "id", filter=EqualTo("PERSON.HOME.STREET", "x"), case_sensitive=False)


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
def test_siblings_of_a_restricted_nested_field_are_read(
    lake: Lake, policies: Policies, nested: Table, restrict: Any
) -> None:
    policies(restrict("person.name"))
    made = plan(lake, nested, "person.home.street", "cards", filter=NotNull("person.home.street"))
    assert made.header.columns == ("person", "cards")


def test_nested_fields_are_read_under_the_grant_on_their_column(
    lake: Lake, nested: Table, policies: Policies
) -> None:
    others = [each for each in standard_policies() if each["name"] != "carol-reads"]
    lake.set_policies([*others, policy("person", about("person"), {CAROL: ["select"]})])
    assert plan(lake, nested, "person").files.num_rows == 1
    assert plan(lake, nested, "person.home.street").files.num_rows == 1
    assert refused(lake, nested, "cards").rule == "policy-no-match"


def test_a_grant_on_a_nested_field_alone_does_not_open_its_column(
    lake: Lake, nested: Table, policies: Policies
) -> None:
    others = [each for each in standard_policies() if each["name"] != "carol-reads"]
    lake.set_policies([*others, policy("name", about("person.name"), {CAROL: ["select"]})])
    assert refused(lake, nested, "person.name").rule == "policy-no-match"


def test_a_grant_that_cannot_be_evaluated_withholds_the_nested_field(
    lake: Lake, nested: Table, policies: Policies
) -> None:
    others = [each for each in standard_policies() if each["name"] != "carol-reads"]
    doubtful = item(conditions=[{"type": "ip-range", "values": ["10.0.0.0/8"]}])
    conditional = policy("if", about("person.name"), {}) | {"policyItems": [doubtful]}
    lake.set_policies([*others, policy("person", about("person"), {CAROL: ["select"]}), conditional])
    refused(lake, nested, "person.name")
    assert plan(lake, nested, "person.home").files.num_rows == 1


def test_a_renamed_struct_does_not_shed_the_denial_of_its_fields(lake: Lake, policies: Policies) -> None:
    table = make(lake, schema=NESTED)
    append_files(lake, name_of(table))
    old = lake.catalog().load_table(table.name())
    snapshot = old.current_snapshot()
    assert snapshot is not None
    with old.update_schema() as update:
        update.rename_column("person", "human")
    policies(deny("human.name"))
    refused(lake, table, "person.name", snapshot_id=snapshot.snapshot_id)
    policies(deny("person.name"))
    refused(lake, table, "person.name", snapshot_id=snapshot.snapshot_id)


def test_a_denied_nested_field_is_on_record(lake: Lake, policies: Policies) -> None:
    nested = make(lake, schema=NESTED)
    policies(deny("person.name"))
    caller = lake.caller(CAROL, "spark")
    with pytest.raises(NotAuthorized):
        lake.services.planner.plan(caller, name_of(nested), ScanRequest(columns=("person",)))
    last = records(lake, caller)[-1]
    assert not last.allowed
    assert [reason.policy for reason in last.reasons] == ["no person.name"]


def test_key_of_a_whole_file_is_not_released_past_a_mask_on_an_unread_column(
    lake: Lake, policies: Policies
) -> None:
    table = make(lake, schema=SECRET, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    policies(RELEASE)
    assert own_process(lake, table, "id").header.transport is not None
    policies(RELEASE, mask("ssn"))
    assert refused(lake, table, "id", engine=None).rule == "mask"
    assert plan(lake, table, "id").header.transport is not None


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
def test_key_of_a_whole_file_is_not_released_past_an_unread_nested_field(
    lake: Lake, policies: Policies, restrict: Any
) -> None:
    table = make(lake, schema=NESTED, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    policies(RELEASE, restrict("cards.element.number"))
    refused(lake, table, "id", engine=None)
    assert plan(lake, table, "id").header.transport is not None


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
def test_key_of_a_whole_file_is_not_released_past_a_dropped_column(
    lake: Lake, policies: Policies, restrict: Any
) -> None:
    table = make(lake, schema=SECRET, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    with table_now(lake, table).update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("ssn")
    policies(RELEASE, restrict("ssn"))
    refused(lake, table, "id", engine=None)
    policies(RELEASE)
    assert own_process(lake, table, "id").header.transport is not None


@pytest.mark.parametrize("restrict", [deny, mask], ids=["denied", "masked"])
def test_key_of_a_whole_file_is_not_released_past_a_former_name(
    lake: Lake, policies: Policies, restrict: Any
) -> None:
    table = make(lake, schema=SECRET, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    for old, new in (("ssn", "middle"), ("middle", "harmless")):
        with table_now(lake, table).update_schema() as update:
            update.rename_column(old, new)
    for name in ("ssn", "middle", "harmless"):
        policies(RELEASE, restrict(name))
        refused(lake, table, "id", engine=None)


def test_partition_values_of_a_denied_column_are_not_shown(lake: Lake, policies: Policies) -> None:
    parts = (
        PartitionField(2, 1000, IdentityTransform(), "ssn"),
        PartitionField(2, 1001, TruncateTransform(2), "start"),
        PartitionField(2, 1002, BucketTransform(8), "bucket"),
        PartitionField(1, 1003, IdentityTransform(), "id"),
    )
    table = make(lake, schema=SECRET, partition_spec=PartitionSpec(*parts))
    values = {"ssn": "123-45-6795", "start": "12", "bucket": 3, "id": 7}
    append_files(lake, name_of(table), partition=values)
    policies(deny("ssn"))
    assert shown(plan(lake, table, "id")) == [{"id": 7}]
    assert "123-45-6795" not in str(plan(lake, table, "id").files.to_pylist())
    policies()
    assert shown(plan(lake, table)) == [values]
    assert shown(plan(lake, table, "id", filter=EqualTo("ssn", "123-45-6795"))) == [values]
    assert shown(plan(lake, table, "id")) == [{"id": 7}]


def test_partition_values_of_a_denied_nested_field_are_not_shown(lake: Lake, policies: Policies) -> None:
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "name"),
        PartitionField(5, 1001, IdentityTransform(), "street"),
    )
    table = make(lake, schema=NESTED, partition_spec=spec)
    append_files(lake, name_of(table), partition={"name": "ann", "street": "elm"})
    policies(deny("person.name"))
    assert shown(plan(lake, table, "person.home")) == [{"street": "elm"}]


def test_partition_values_of_a_denied_column_are_not_shown_by_delete_files(
    lake: Lake, policies: Policies
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "ssn"))
    table = make(lake, schema=SECRET, partition_spec=spec)
    append_files(lake, name_of(table), partition={"ssn": "123-45"})
    attacker = Attacker(lake, ".".join(table.name()), ALICE)
    deletes = data_file(
        f"{attacker.location}/data/d.parquet",
        content=DataFileContent.POSITION_DELETES,
        partition=Record("123-45"),
    )
    attacker.commit_behind(*attacker.appending(entry(deletes), deletes=True))
    policies(deny("ssn"))
    made = plan(lake, table, "id")
    assert made.files["content"].to_pylist() == [0, 1]
    assert shown(made) == [{}, {}]


def test_a_name_that_two_columns_share_by_id_needs_rights_on_both(lake: Lake, policies: Policies) -> None:
    """Readers find columns by id, so a forged second name for an id reads the first one's values."""
    table = make(lake, schema=SECRET)
    append_files(lake, name_of(table))
    attacker = Attacker(lake, ".".join(table.name()), ALICE)
    forged = Schema(*SECRET.fields, NestedField(2, "harmless", StringType()))
    changed = attacker.metadata.model_copy(update={"schemas": [forged]})
    attacker.point(attacker.write_metadata(changed))
    policies(deny("ssn"))
    with pytest.raises((NotAuthorized, RequestInvalid)):
        plan(lake, table, "harmless")


def table_now(lake: Lake, table: Table) -> Table:
    return lake.catalog().load_table(table.name())


def shown(made: Plan) -> list[dict[str, Any]]:
    return [json.loads(text) for text in made.files["partition"].to_pylist()]


@pytest.mark.parametrize("right", ["create", "drop", "unprotect"])
def test_a_right_that_loads_nothing_tells_of_no_table(lake: Lake, policies: Policies, right: str) -> None:
    """The answer is the same whether there is a table or not."""
    free, taken = fresh(), name_of(make(lake, schema=SECRET))
    dave = lake.caller("dave", "spark")
    policies(policy("dave", {"database": ["db"], "table": ["*"]}, {"dave": [right]}))
    answers = []
    for name in (free, taken):
        with pytest.raises(NotAuthorized) as refusal:
            lake.services.planner.plan(dave, name, ScanRequest())
        told = (refusal.value.message, refusal.value.rule, refusal.value.hint)
        answers.append([str(part).replace(str(name), "NAME") for part in told])
    assert answers[0] == answers[1]
    policies(policy("dave", {"database": ["db"], "table": ["*"]}, {"dave": ["select"]}))
    with pytest.raises(NoSuchTable):
        lake.services.planner.plan(dave, free, ScanRequest())
