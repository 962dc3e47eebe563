"""The service, `policy lint`, `policy test` and `policy check` agree on what a user sees of a table."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

from catalog.cli.policy_lint import facts_of
from policy.decision import Decision
from policy.encryption_rules import EncryptionRules
from policy.errors import NotAuthorized
from policy.explain import Book
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.parse import parse_documents
from policy.sql_lint import LintContext, lint
from policy.testing import Suite, UnderTest, parse_cases
from tests.support import plans
from tests.support.lake import ALICE, MASTER_KEY, Lake, policy, standard_policies
from tests.support.tables import Engine, make, name_of

Json = dict[str, Any]

DAN: Final = "dan"
NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
PERSON = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "salary", LongType()),
    NestedField(4, "home", StructType(NestedField(5, "town", StringType()))),
)
COLUMNS: Final = ("id", "ssn", "salary", "home", "home.town")
PROPERTIES: Final[dict[str, dict[str, str]]] = {
    "plaintext": {"encryption.mechanism": "plaintext"},
    "one key": {"encryption.mechanism": "envelope"},
    "column keys": {"encryption.columns": "pii:ssn,salary;place:home"},
    "masks": {
        "encryption.columns": "pii:ssn;hr:salary;place:home",
        "encryption.masks": "nullify:salary,home",
    },
    "masks under one key": {"encryption.columns": "pii:ssn,salary", "encryption.masks": "nullify:salary"},
}
SELECT: Final = [{"type": "select", "isAllowed": True}]
SHOWN: Final = {"users": [DAN], "accesses": SELECT}


@pytest.fixture(scope="module")
def tables(lake: Lake) -> dict[str, Table]:
    """A table with a file for each encryption."""
    found = {}
    for kind, properties in PROPERTIES.items():
        made = make(lake, schema=PERSON, properties=properties)
        engine = Engine.begin(lake, name_of(made))
        engine.append(engine.file())
        found[kind] = made
    return found


def about(columns: tuple[str, ...], **more: Any) -> Json:
    resources = {"database": ["db"], "table": ["*"], "column": list(columns)}
    return policy(f"{next(iter(more), 'grants')} {columns}", resources, {}, **more)


def columns_of(names: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), unique=True, max_size=3).map(tuple)


@st.composite
def policies_of_dan(draw: st.DrawFn) -> list[Json]:
    made = []
    if granted := draw(st.one_of(st.just(("*",)), columns_of((*COLUMNS, "*")))):
        made.append(about(granted, policyItems=[SHOWN]))
    if denied := draw(st.one_of(st.just(()), columns_of(COLUMNS))):
        made.append(about(denied, denyPolicyItems=[SHOWN]))
    if masked := draw(st.one_of(st.just(()), columns_of(COLUMNS))):
        shown = {**SHOWN, "dataMaskInfo": {"dataMaskType": draw(st.sampled_from(["MASK", "MASK_NONE"]))}}
        made.append(about(masked, policyType=1, dataMaskPolicyItems=[shown]))
    if draw(st.integers(0, 4)) == 0:
        rows = {"database": {"values": ["db"]}, "table": {"values": ["*"]}}
        filtered = {**SHOWN, "rowFilterInfo": {"filterExpr": "id = 1"}}
        made.append({"name": "rows", "policyType": 2, "resources": rows, "rowFilterPolicyItems": [filtered]})
    return made


def word(decision: Decision) -> str:
    if not decision.allowed:
        return "refused"
    return "masked" if any(each.rule == "column-mask" for each in decision.reasons) else "visible"


def of_service(lake: Lake, table: Table, column: str) -> str:
    try:
        header = plans.plan(lake, table, column, user=DAN).header
    except NotAuthorized:
        return "refused"
    return "masked" if PERSON.find_field(column.split(".")[0]).field_id in header.masked else "visible"


def of_lint(lake: Lake, table: Table, documents: dict[str, bytes], column: str) -> str:
    facts = facts_of(lake.services.loader.load(name_of(table)))
    context = LintContext(
        principal=Principal(DAN),
        policies=PolicySet.parse(documents),
        encryption=EncryptionRules.parse({}),
        now=NOW,
        engine="spark",
        master_key_id=MASTER_KEY,
        known=lambda _: facts,
    )
    query = f"SELECT {column} FROM {name_of(table)}"  # noqa: S608
    (answer,) = lint(query, "spark", context)
    return word(answer.decision)


def of_test(table: Table, kind: str, documents: dict[str, bytes], column: str) -> str:
    text = {
        "catalog": {"master_key": MASTER_KEY},
        "tables": {
            str(name_of(table)): {
                "owner": ALICE,
                "columns": ["id", "ssn", "salary", "home.town"],
                "properties": PROPERTIES[kind],
            }
        },
        "cases": [
            {
                "name": "it",
                "user": DAN,
                "access": "select",
                "resource": f"column:{name_of(table)}/{column}",
                "expect": "deny",
            }
        ],
    }
    file = parse_cases("f.yaml", json.dumps(text).encode())
    decision = Suite(file, UnderTest(documents, {})).run(file.cases[0]).decision
    assert decision is not None
    return word(decision)


def of_check(lake: Lake, table: Table, documents: dict[str, bytes], column: str) -> str:
    name = name_of(table)
    resource = Resource.column(name.database, name.name, column)
    request = AccessRequest(Principal(DAN), resource, "select", ALICE)
    known = facts_of(lake.services.loader.load(name)).known
    return word(Book(parse_documents(documents)).consider(request, NOW, known).decision)


@given(kind=st.sampled_from(sorted(PROPERTIES)), column=st.sampled_from(COLUMNS), policies=policies_of_dan())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_four_answers_agree(
    lake: Lake, tables: dict[str, Table], kind: str, column: str, policies: list[Json]
) -> None:
    everything = [*standard_policies(), *policies]
    lake.set_policies(everything)
    documents = {"lake.json": json.dumps({"policies": everything}).encode()}
    table = tables[kind]
    served = of_service(lake, table, column)
    assert of_lint(lake, table, documents, column) == served, "lint"
    assert of_test(table, kind, documents, column) == served, "test"
    assert of_check(lake, table, documents, column) == served, "check"
