"""What a client tells of the lake: names, schemas, snapshots, and what its user can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import lakewarden
from policy.errors import NotAuthorized, RequestInvalid
from tests.support.lake import CAROL, policy, standard_policies, tables
from tests.support.service import Service

Make = Callable[..., str]

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))
ROWS = pa.table({"id": [1, 2], "ssn": ["x", "y"]})
SELECT = [{"type": "select", "isAllowed": True}]


@pytest.fixture(autouse=True)
def policies_as_they_were(served: Service) -> Iterator[None]:
    yield
    served.lake.set_policies(standard_policies())


@pytest.fixture
def carol(served: Service) -> lakewarden.Connection:
    """Carol's own process."""
    return lakewarden.connect(served.url, served.token(CAROL))


def filled(make: Make, alice: lakewarden.Connection, **properties: str) -> str:
    name = make(SCHEMA, properties=properties)
    alice.table(name).append(ROWS)
    return name


def on_ssn(kind: str, **more: object) -> dict:
    return policy(kind, {"database": ["db"], "table": ["*"], "column": ["ssn"]}, {}, **more)


DENIED = on_ssn("no-ssn", denyPolicyItems=[{"users": [CAROL], "accesses": SELECT}])
MASKED = on_ssn(
    "ssn-is-masked",
    policyType=1,
    dataMaskPolicyItems=[
        {"users": [CAROL], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": "MASK_SHOW_LAST_4"}}
    ],
)
FILTERED = policy(
    "one-row",
    {"database": ["db"], "table": ["*"]},
    {},
    policyType=2,
    rowFilterPolicyItems=[
        {"users": [CAROL], "accesses": SELECT, "rowFilterInfo": {"filterExpr": "ssn = 'secret'"}}
    ],
)


@pytest.mark.nightly
def test_only_names_that_the_user_sees_are_listed(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    name = make(SCHEMA)
    catalog = served.lake.catalog()
    for namespace in ("hidden", "deep", "deep.er"):
        catalog.create_namespace(namespace)
    catalog.create_table("deep.er.t", SCHEMA)
    assert {"db", "hidden", "deep", "deep.er"} <= set(alice.namespaces())
    assert {name, "deep.er.t"} <= set(alice.tables())
    assert alice.tables("deep.er") == ["deep.er.t"]
    assert carol.namespaces() == ["db"]
    assert name in carol.tables() and carol.tables() == carol.tables("db")
    with pytest.raises(NotAuthorized):
        carol.tables("hidden")


@pytest.mark.nightly
def test_schema_and_snapshots_are_those_of_the_table(make: Make, alice: lakewarden.Connection) -> None:
    table = alice.table(filled(make, alice))
    assert table.schema().column_names == ["id", "ssn"]
    first, second = table.snapshots()["snapshot_id"].to_pylist()[0], table.append(ROWS)
    assert table.snapshots()["snapshot_id"].to_pylist() == [first, second]
    files = table.inspect("files", ["record_count"], snapshot_id=first)
    assert files.to_pylist() == [{"record_count": 2}]
    with pytest.raises(RequestInvalid):
        table.inspect("no_such_table")


def test_access_says_read_masked_and_refused_with_the_rule(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    name = filled(make, alice)
    assert carol.table(name).access().readable == ["id", "ssn"]
    served.lake.set_policies([*standard_policies(), DENIED])
    found = carol.table(name).access()
    with pytest.raises(NotAuthorized) as refused:
        carol.table(name).scan(columns=["ssn"]).to_arrow()
    ssn = found.columns[1]
    assert (found.readable, ssn.access, ssn.rule) == (["id"], "refused", refused.value.rule)
    assert ssn.message == refused.value.message
    assert "ssn" in str(found) and str(refused.value.rule) in str(found)


def test_access_of_an_engine_names_masks_and_the_policy_of_a_row_filter_alone(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    name = filled(make, alice)
    served.lake.set_policies([*standard_policies(), MASKED, FILTERED])
    engine = lakewarden.connect(served.url, served.token(CAROL), engine_token=served.engine_token())
    found = engine.table(name).access()
    assert [(each.access, each.masks) for each in found.columns] == [
        ("read", {}),
        ("masked", {"ssn": "hive-show-last-4"}),
    ]
    assert (found.row_filters, found.engine) == (("one-row",), "spark")
    assert "secret" not in str(found) + repr(found)
    own = carol.table(name).access()
    assert [each.access for each in own.columns] == ["refused", "refused"]
    assert {each.rule for each in own.columns} == {"row-filter", "mask"}
    assert "secret" not in str(own) + repr(own)
    assert "rows: none" in str(own)


def test_a_question_about_access_is_recorded_once_and_as_no_refusal(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    name = filled(make, alice)
    served.lake.set_policies([*standard_policies(), DENIED])
    carol.table(name).access()
    with served.client() as client:
        records = client.get("/admin/v1/audit", params={"table": name, "principal": CAROL}).json()["records"]
    assert [(each["action"], each["allowed"]) for each in records] == [("table.explain", True)]


def test_access_is_told_to_users_with_a_permission_on_the_table_alone(
    make: Make, alice: lakewarden.Connection, carol: lakewarden.Connection, served: Service
) -> None:
    name = filled(make, alice)
    served.lake.set_policies(
        [each for each in standard_policies() if each["name"] != "carol-reads"]
        + [policy("elsewhere", tables("other"), {CAROL: ["select"]})]
    )
    for asked in (name, "db.there_is_none"):
        with pytest.raises(NotAuthorized):
            carol.table(asked).access()


@pytest.mark.parametrize(
    ("filter", "columns", "nearest"),
    [
        ("sssn = 'x'", None, "ssn"),
        (None, ["id", "sn"], "ssn"),
        (None, ["ID"], "id"),
        ("zzzz = 1", None, None),
    ],
)
def test_an_unknown_column_is_named_with_the_nearest_one(
    make: Make,
    alice: lakewarden.Connection,
    filter: str | None,
    columns: list[str] | None,
    nearest: str | None,
) -> None:
    with pytest.raises(RequestInvalid) as refused:
        alice.table(make(SCHEMA)).scan(filter, columns).to_arrow()
    assert refused.value.rule == "column"
    assert (f"Did you mean {nearest!r}?" in str(refused.value)) is (nearest is not None)


def test_a_column_that_cannot_be_appended_is_named_with_the_nearest_one(
    make: Make, alice: lakewarden.Connection
) -> None:
    with pytest.raises(RequestInvalid, match=r"no column snn\. Did you mean 'ssn'\?"):
        alice.table(make(SCHEMA)).append(pa.table({"snn": ["x"]}))


def test_a_filter_of_another_type_names_the_column(make: Make, alice: lakewarden.Connection) -> None:
    with pytest.raises(RequestInvalid, match="the column 'id' with a value of another type"):
        alice.table(make(SCHEMA)).scan("ssn = 'x' and id > 'y'").to_arrow()
