"""The service, `policy lint`, `policy test` and `policy check` agree on what a user sees of a table."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from catalog.planning.request import READ_RESTRICTIONS, ScanRequest
from catalog.reports.table_facts import facts_of
from policy.decision import Decision
from policy.encryption_rules import EncryptionRules
from policy.errors import NotAuthorized
from policy.explain import Book
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.ranger import PolicySet
from policy.ranger.parse import parse_documents
from policy.restrictions.model import Restriction
from policy.restrictions.standard import standard_action
from policy.sql_lint import LintContext, lint
from policy.testing import Suite, UnderTest, parse_cases
from tests.support import plans
from tests.support.lake import ALICE, MASTER_KEY, Lake, policy, standard_policies
from tests.support.tables import Engine, make, name_of

Json = dict[str, Any]

DAN: Final = "dan"
ENFORCED: Final = frozenset({READ_RESTRICTIONS})
NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
PERSON = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "salary", LongType()),
    NestedField(4, "home", StructType(NestedField(5, "town", StringType()))),
)
COLUMNS: Final = ("id", "ssn", "salary", "home", "home.town")
ASKED: Final = (*COLUMNS, "SALARY", "Home.TOWN")
NAMES = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "a", LongType()),
    NestedField(3, "a.b", LongType()),
    NestedField(
        4, "tags", ListType(5, StructType(NestedField(6, "x", StringType())), element_required=False)
    ),
    NestedField(7, "props", MapType(8, StringType(), 9, StructType(NestedField(10, "y", StringType())))),
)
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
    return {kind: filled(lake, properties) for kind, properties in PROPERTIES.items()}


@pytest.fixture(scope="module")
def renamed(lake: Lake) -> dict[str, Table]:
    """Tables where `tag` was `ssn`."""
    lake.set_policies(standard_policies())
    found = {kind: filled(lake, PROPERTIES[kind]) for kind in ("plaintext", "one key", "column keys")}
    for table in found.values():
        with table.update_schema() as update:
            update.rename_column("ssn", "tag")
    return found


@pytest.fixture(scope="module")
def names_table(lake: Lake) -> Table:
    """A table of which some fields have names that policies do not tell apart by dots."""
    lake.set_policies(standard_policies())
    return make(lake, schema=NAMES)


def filled(lake: Lake, properties: dict[str, str]) -> Table:
    made = make(lake, schema=PERSON, properties=properties)
    engine = Engine.begin(lake, name_of(made))
    engine.append(engine.file())
    return made


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
        kinds = st.sampled_from(["MASK", "MASK_NULL", "MASK_NONE", "show-last-4"])
        shown = {**SHOWN, "dataMaskInfo": {"dataMaskType": draw(kinds)}}
        made.append(about(masked, policyType=1, dataMaskPolicyItems=[shown]))
    if draw(st.integers(0, 3)) == 0:
        made.append(filtering(draw(st.sampled_from(FILTERS))))
    if draw(st.integers(0, 4)) == 0:
        made.append(WHOLE)
    if draw(st.integers(0, 3)) == 0:
        made.append(CODE)
    return made


def word(decision: Decision) -> str:
    if not decision.allowed:
        return "refused"
    return "masked" if any(each.rule in ("column-mask", "mask") for each in decision.reasons) else "visible"


def of_service(lake: Lake, table: Table, column: str, through: Through = Through.ENGINE) -> str:
    try:
        if through is Through.STANDARD_CLIENT:
            caller = replace(lake.caller(DAN), standard=True)
            _, restriction = lake.services.access.load_restricted(caller, name_of(table))
            return "masked" if restriction.masks else "visible"
        engine = "spark" if through is Through.ENGINE else None
        asked = {"user": DAN, "engine": engine, "case_sensitive": False, "enforces": ENFORCED}
        header = plans.plan(lake, table, column, **asked).header
    except NotAuthorized:
        return "refused"
    if header.restriction.masks:
        return "masked"
    return "masked" if header.masked and _outer(column).field_id in header.masked else "visible"


def _outer(column: str) -> NestedField:
    return PERSON.find_field(column.split(".")[0], case_sensitive=False)


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
        "catalog": {"master_key": MASTER_KEY, "engine": "spark"},
        "tables": {
            str(name_of(table)): {
                "owner": ALICE,
                "columns": {"id": "long", "ssn": "string", "salary": "long", "home.town": "string"},
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


def of_check(
    lake: Lake,
    table: Table,
    documents: dict[str, bytes],
    column: str,
    through: Through = Through.ENGINE,
) -> str:
    name = name_of(table)
    return check(lake, table, documents, Resource.column(name.database, name.name, column), through)


def check(lake: Lake, table: Table, documents: dict[str, bytes], resource: Resource, through: Through) -> str:
    name = name_of(table)
    request = AccessRequest(Principal(DAN), resource, "select", ALICE)
    known = replace(facts_of(lake.services.loader.load(name)).known, service=lake.settings.catalog.name)
    engine = "spark" if through is Through.ENGINE else None
    return word(Book(parse_documents(documents)).consider(request, NOW, known, through, engine).decision)


def put(lake: Lake, policies: list[Json]) -> dict[str, bytes]:
    everything = [*standard_policies(), *policies]
    lake.set_policies(everything)
    return {"lake.json": json.dumps({"policies": everything}).encode()}


ALL: Final = about(("*",), policyItems=[SHOWN])
ROWS: Final = {
    "name": "rows",
    "policyType": 2,
    "resources": {"database": {"values": ["db"]}, "table": {"values": ["*"]}},
    "rowFilterPolicyItems": [{**SHOWN, "rowFilterInfo": {"filterExpr": "id = 1"}}],
}


def filtering(text: str) -> Json:
    return {**ROWS, "rowFilterPolicyItems": [{**SHOWN, "rowFilterInfo": {"filterExpr": text}}]}


SALARIES: Final = filtering("salary IS NULL OR salary = 1")
#: It filters others alone.
OTHERS: Final = filtering("salary = 1 OR current_user() = 'dan'")
FILTERS: Final = (
    "id = 1",
    "salary IS NULL",
    "salary = 1 OR current_user() = 'dan'",
    "id = 1 OR is_member('nobody')",
)
CODE: Final = policy("code", {"engine": ["spark"]}, {DAN: ["code"]})

UPDATE: Final = policy("update", {"database": ["db"], "table": ["*"]}, {DAN: ["update"]})
WHOLE: Final = policy("whole", {"database": ["db"], "table": ["*"]}, {}, denyPolicyItems=[SHOWN])


def hiding(column: str) -> Json:
    return about((column,), denyPolicyItems=[SHOWN])


def masking(column: str, mask: str = "MASK") -> Json:
    shown = {**SHOWN, "dataMaskInfo": {"dataMaskType": mask}}
    return about((column,), policyType=1, dataMaskPolicyItems=[shown])


NULLED: Final = about(
    ("id", "ssn"),
    policyType=1,
    dataMaskPolicyItems=[{**SHOWN, "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}],
)


@pytest.mark.nightly
@given(kind=st.sampled_from(sorted(PROPERTIES)), column=st.sampled_from(ASKED), policies=policies_of_dan())
@example("column keys", "SALARY", [ALL, hiding("ssn")])
@example("masks", "SALARY", [ALL, hiding("salary")])
@example("masks", "Home.TOWN", [ALL, hiding("home.town")])
@example("plaintext", "id", [ALL, ROWS])
@example("plaintext", "id", [ALL, ROWS, CODE])
@example("plaintext", "id", [ALL, OTHERS, CODE])
@example("column keys", "id", [ALL, OTHERS, hiding("salary")])
@example("column keys", "salary", [ALL, masking("ssn"), CODE])
@example("column keys", "id", [ALL, masking("home", "mask-to-fixed-value")])
@example("one key", "id", [ALL, masking("home", "mask-to-fixed-value"), ROWS])
@example("plaintext", "ssn", [ALL, masking("ssn")])
@example("masks", "id", [ALL, SALARIES, hiding("salary")])
@example("plaintext", "id", [ALL, WHOLE])
@example("plaintext", "home", [ALL, hiding("home.town")])
@example("one key", "id", [ALL, hiding("ssn")])
@example("column keys", "salary", [ALL, hiding("ssn")])
@example("column keys", "salary", [ALL, masking("ssn")])
@example("column keys", "salary", [ALL, masking("ssn", "MASK_NULL")])
@example("column keys", "ssn", [ALL, masking("ssn", "MASK_NULL")])
@example("column keys", "home.town", [ALL, masking("home.town", "MASK_NULL")])
@example("column keys", "home", [ALL, masking("home.town", "MASK_NULL")])
@example("masks", "salary", [ALL, hiding("salary")])
@example("masks", "salary", [ALL, hiding("salary"), hiding("id")])
@example("masks under one key", "ssn", [ALL, hiding("salary")])
@example("masks", "salary", [about(("id", "ssn", "home"), policyItems=[SHOWN])])
@settings(
    max_examples=settings.default.max_examples * 2 // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_four_answers_agree(
    lake: Lake, tables: dict[str, Table], kind: str, column: str, policies: list[Json]
) -> None:
    documents, table = put(lake, policies), tables[kind]
    served = of_service(lake, table, column)
    assert of_lint(lake, table, documents, column) == served, "lint"
    assert of_test(table, kind, documents, column) == served, "test"
    assert of_check(lake, table, documents, column) == served, "check"


def scanned(lake: Lake, table: Table, columns: tuple[str, ...], engine: str | None) -> str:
    """What a plan says of the last of some columns."""
    try:
        asked = {"user": DAN, "engine": engine, "enforces": ENFORCED}
        header = plans.plan(lake, table, *columns, **asked).header
    except NotAuthorized as refusal:
        return f"refused by {refusal.rule}"
    field = PERSON.find_field(columns[-1])
    inside = {field.field_id, *(each.field_id for each in getattr(field.field_type, "fields", ()))}
    return "read" if inside.isdisjoint({*header.masked, *header.restriction.masks}) else "masked"


@given(
    kind=st.sampled_from(sorted(PROPERTIES)),
    engine=st.sampled_from(["spark", None]),
    policies=policies_of_dan(),
    keys=st.lists(st.sampled_from([MASTER_KEY, "pii", "hr", "place"]), unique=True),
)
@example("masks", "spark", [ALL, hiding("salary")], [])
@example("masks", "spark", [ALL, hiding("salary"), hiding("id"), hiding("ssn")], [])
@example("column keys", None, [ALL, masking("ssn", "MASK_NULL")], [MASTER_KEY])
@example("one key", None, [ALL, hiding("ssn")], [MASTER_KEY])
@example("plaintext", "spark", [ALL, masking("home.town"), ROWS], [])
@settings(
    max_examples=settings.default.max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_an_explanation_says_of_each_column_what_a_scan_of_it_says(
    lake: Lake,
    tables: dict[str, Table],
    kind: str,
    engine: str | None,
    policies: list[Json],
    keys: list[str],
) -> None:
    release = policy("release", {"key": keys}, {DAN: ["release"]})
    put(lake, [*policies, *([release] if keys else [])])
    caller, table = lake.caller(DAN, engine), tables[kind]
    names = [each.name for each in PERSON.fields]
    alone = {name: scanned(lake, table, (name,), engine) for name in names}
    beside = next((name for name in names if "refused" not in alone[name]), None)
    request = ScanRequest(enforces=ENFORCED)
    try:
        found = lake.services.explainer.explain(caller, name_of(table), request).columns
    except NotAuthorized:
        assert all("refused" in each for each in alone.values())
        return
    for each in found:
        name = each.field.name
        expected = alone[name]
        if "refused" in expected and beside is not None:
            expected = scanned(lake, table, (beside, name), engine)
        told = f"refused by {each.refusal.rule}" if each.refusal else "masked" if each.masks else "read"
        assert told == expected, name


@pytest.mark.nightly
@given(
    through=st.sampled_from([Through.PROCESS, Through.STANDARD_CLIENT]),
    kind=st.sampled_from(sorted(PROPERTIES)),
    column=st.sampled_from(COLUMNS),
    policies=policies_of_dan(),
    keys=st.lists(st.sampled_from([MASTER_KEY, "pii", "hr", "place"]), unique=True),
    trusted=st.booleans(),
)
@example(Through.PROCESS, "one key", "id", [ALL], [], False)
@example(Through.PROCESS, "one key", "id", [ALL], [MASTER_KEY], False)
@example(Through.PROCESS, "one key", "id", [ALL, hiding("ssn")], [MASTER_KEY], False)
@example(Through.PROCESS, "column keys", "ssn", [ALL], [MASTER_KEY], False)
@example(Through.PROCESS, "column keys", "ssn", [ALL], [MASTER_KEY, "pii"], False)
@example(Through.PROCESS, "column keys", "ssn", [ALL, masking("ssn", "MASK_NULL")], [MASTER_KEY], False)
@example(
    Through.PROCESS, "column keys", "home", [ALL, masking("home.town", "MASK_NULL")], [MASTER_KEY], False
)
@example(Through.PROCESS, "column keys", "ssn", [ALL, masking("ssn", "MASK_NULL"), ROWS], [MASTER_KEY], False)
@example(Through.PROCESS, "one key", "ssn", [ALL, masking("ssn", "MASK_NULL")], [MASTER_KEY], False)
@example(Through.PROCESS, "column keys", "ssn", [ALL, NULLED], [MASTER_KEY], False)
@example(Through.PROCESS, "plaintext", "id", [ALL, OTHERS], [], False)
@example(Through.PROCESS, "plaintext", "id", [ALL, masking("ssn", "MASK_NULL"), OTHERS], [], False)
@example(
    Through.PROCESS, "column keys", "ssn", [ALL, masking("ssn", "MASK_NULL"), OTHERS], [MASTER_KEY], False
)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, OTHERS], [], False)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, OTHERS], [], True)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL], [], False)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, hiding("ssn")], [], False)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, ROWS], [], False)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, WHOLE], [], False)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, WHOLE, UPDATE], [], False)
@example(Through.STANDARD_CLIENT, "one key", "id", [ALL], [], False)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, ROWS], [], True)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, masking("ssn")], [], True)
@example(Through.STANDARD_CLIENT, "plaintext", "id", [ALL, masking("ssn"), hiding("salary")], [], True)
@settings(
    max_examples=settings.default.max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_answers_agree_however_a_table_is_read(
    lake: Lake,
    tables: dict[str, Table],
    through: Through,
    kind: str,
    column: str,
    policies: list[Json],
    keys: list[str],
    trusted: bool,
) -> None:
    granted = [policy("release", {"key": keys}, {DAN: ["release"]})] if keys else []
    granted += [policy("enforce", {"service": ["*"]}, {DAN: ["enforce"]})] if trusted else []
    documents, table = put(lake, [*policies, *granted]), tables[kind]
    served = of_service(lake, table, column, through)
    assert of_check(lake, table, documents, column, through) == served
    if through is Through.STANDARD_CLIENT:
        name = name_of(table)
        assert check(lake, table, documents, Resource.table(name.database, name.name), through) == served


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("column", "policies"),
    [
        ("a.b", [about(("a",), policyItems=[SHOWN])]),
        ("a.b", [about(("a.b",), policyItems=[SHOWN])]),
        ("a.b", [ALL, hiding("a")]),
        ("a", [ALL, hiding("a.b")]),
        ("tags.x", [ALL, hiding("tags.element.x")]),
        ("tags.element.x", [ALL, hiding("tags.x")]),
        ("tags.x", [ALL, masking("tags.element")]),
        ("props.key", [ALL, hiding("props.value.y")]),
        ("props.value.y", [ALL, hiding("props.key")]),
        ("props.key", [ALL, masking("props.value.y")]),
    ],
)
def test_every_name_of_a_column_counts(
    lake: Lake, names_table: Table, column: str, policies: list[Json]
) -> None:
    documents = put(lake, policies)
    assert of_check(lake, names_table, documents, column) == of_service(lake, names_table, column)


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("kind", ["plaintext", "one key", "column keys"])
@pytest.mark.parametrize("through", Through)
@pytest.mark.parametrize("hides", [hiding("ssn"), masking("ssn", "MASK_HASH"), masking("ssn", "MASK_NULL")])
def test_a_name_that_a_column_had_counts(
    lake: Lake, renamed: dict[str, Table], kind: str, through: Through, hides: Json
) -> None:
    documents = put(lake, [ALL, hides, policy("release", {"key": ["*"]}, {DAN: ["release"]})])
    for column in ("id", "tag", "salary"):
        served = of_service(lake, renamed[kind], column, through)
        assert of_check(lake, renamed[kind], documents, column, through) == served


def test_a_mask_on_a_column_that_the_table_had_refuses_trusted_clients(lake: Lake) -> None:
    lake.set_policies(standard_policies())
    table = filled(lake, PROPERTIES["plaintext"])
    with table.update_schema() as update:
        update.delete_column("ssn")
    with table.update_schema() as update:
        update.add_column("ssn", StringType())
    enforce = policy("enforce", {"service": ["*"]}, {DAN: ["enforce"]})
    for column, expected in (("salary", "masked"), ("ssn", "refused")):
        documents = put(lake, [ALL, enforce, masking(column)])
        assert of_service(lake, table, "id", Through.STANDARD_CLIENT) == expected
        assert of_check(lake, table, documents, "id", Through.STANDARD_CLIENT) == expected


def test_check_shows_the_actions_that_a_standard_client_gets(lake: Lake, tables: dict[str, Table]) -> None:
    enforce = policy("enforce", {"service": ["*"]}, {DAN: ["enforce"]})
    documents = put(lake, [ALL, enforce, masking("ssn", "MASK_SHOW_LAST_4"), ROWS])
    name, table = name_of(tables["plaintext"]), tables["plaintext"]
    caller = replace(lake.caller(DAN), standard=True)
    _, served = lake.services.access.load_restricted(caller, name)
    known = facts_of(lake.services.loader.load(name)).known
    resource = Resource.table(name.database, name.name)
    request = AccessRequest(Principal(DAN), resource, "select", ALICE)
    book = Book(parse_documents(documents))
    shown = book.consider(request, NOW, known, Through.STANDARD_CLIENT).restriction
    assert (shown.row_filter, shown.masks) == (served.row_filter, served.masks)
    assert word(book.consider(request, NOW, known, Through.STANDARD_CLIENT).decision) == "refused"
    assert check(lake, table, documents, resource, Through.STANDARD_CLIENT) == "masked"


def enforced_by_engine(lake: Lake, table: Table, *columns: str) -> Restriction | None:
    try:
        asked = {"user": DAN, "engine": "spark", "enforces": ENFORCED}
        return plans.plan(lake, table, *columns, **asked).header.restriction
    except NotAuthorized:
        return None


@st.composite
def masks_of_dan(draw: st.DrawFn) -> list[Json]:
    """Masks on columns, and on names that they had."""
    kinds = st.sampled_from(["MASK", "MASK_NULL", "MASK_HASH", "MASK_SHOW_LAST_4", "mask-to-fixed-value"])
    names = draw(st.lists(st.sampled_from(["ssn", "tag", "salary", "home.town"]), unique=True, max_size=2))
    return [
        {**masking(each, draw(kinds)), "name": f"more {each}", "policyPriority": draw(st.integers(0, 1))}
        for each in names
    ]


@given(had=st.booleans(), policies=policies_of_dan(), masks=masks_of_dan())
@example(True, [ALL], [masking("ssn", "MASK_HASH")])
@example(True, [ALL], [masking("ssn", "MASK_HASH"), masking("salary")])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_plan_and_each_load_restrict_a_column_alike(
    lake: Lake,
    tables: dict[str, Table],
    renamed: dict[str, Table],
    had: bool,
    policies: list[Json],
    masks: list[Json],
) -> None:
    table = (renamed if had else tables)["plaintext"]
    enforce = policy("enforce", {"service": ["*"]}, {DAN: ["enforce"]})
    put(lake, [*(each for each in policies if each is not CODE), enforce, *masks])
    whole = enforced_by_engine(lake, table)
    try:
        caller = replace(lake.caller(DAN), standard=True)
        _, served = lake.services.access.load_restricted(caller, name_of(table))
    except NotAuthorized:
        served = None
    if served is not None:
        assert whole is not None and served.row_filter == whole.row_filter
        shown = {key: standard_action(mask.action, required=False) for key, mask in whole.masks.items()}
        assert {key: mask.action for key, mask in served.masks.items()} == shown
    for column in lake.catalog().load_table(table.name()).schema().fields if whole else ():
        one = enforced_by_engine(lake, table, column.name)
        assert one is not None and one.masks.get(column.field_id) == whole.masks.get(column.field_id)
