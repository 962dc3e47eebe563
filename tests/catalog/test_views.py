"""Views in the catalog: names, permissions, definers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from catalog.authorization.authorizer import Caller
from catalog.base.errors import (
    CommitConflict,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchView,
    TableExists,
    ViewExists,
)
from catalog.base.identifiers import TableName
from catalog.http.view_models import ViewAnswer
from catalog.tables.view_rules import MAX_TEXT
from catalog.tables.views import ViewDefinition, Views
from policy.errors import NotAuthorized, PropertyInvalid, RequestInvalid
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies, tables
from tests.support.tables import SCHEMA


@pytest.fixture
def views(lake: Lake) -> Views:
    return lake.services.views


@pytest.fixture
def alice(lake: Lake) -> Caller:
    return lake.caller(ALICE)


@pytest.fixture
def new(lake: Lake, alice: Caller) -> Iterator[ViewDefinition]:
    """A view that could be created, in a namespace of its own."""
    namespace = (f"n{uuid4().hex[:10]}",)
    lake.services.namespaces.create(alice, namespace, {})
    name = TableName(namespace, "v")
    yield ViewDefinition(name, SCHEMA, "SELECT 1", None, namespace, {}, {"team": "a"})
    lake.set_policies(standard_policies())


def _let(lake: Lake, new: ViewDefinition, **rights: list[str]) -> None:
    given = policy("view", tables(new.name.database), dict(rights))
    lake.set_policies([*standard_policies(), given])


def test_a_view_and_a_table_never_have_one_name(
    lake: Lake, views: Views, alice: Caller, new: ViewDefinition
) -> None:
    name, other = new.name, TableName(new.name.namespace, "other")
    identifier, taken = (*name.namespace, name.name), (*other.namespace, other.name)
    catalog = lake.catalog()
    catalog.create_table(taken, SCHEMA)
    views.create(alice, new)
    for made in (new, replace(new, name=other)):
        with pytest.raises(ViewExists):
            views.create(alice, made)
    with pytest.raises(TableExists):
        catalog.create_table(identifier, SCHEMA)
    with pytest.raises(TableExists):
        catalog.rename_table(taken, identifier)
    with pytest.raises(ViewExists):
        views.rename(alice, name, other)
    assert lake.services.namespaces.tables(alice, name.namespace) == [other]
    assert views.list(alice, name.namespace) == [name]
    catalog.drop_table(taken)
    with pytest.raises(NamespaceNotEmpty):
        lake.services.namespaces.drop(alice, name.namespace)
    views.rename(alice, name, other)
    catalog.create_table(identifier, SCHEMA)
    views.drop(alice, other)
    with pytest.raises(NoSuchView):
        views.load(alice, other)


def test_who_writes_the_text_is_the_definer_and_properties_change_nothing(
    lake: Lake, views: Views, alice: Caller, new: ViewDefinition
) -> None:
    views.create(alice, new)
    _let(lake, new, **{BOB: ["alter"]})
    bob = lake.caller(BOB)
    described = views.replace(bob, replace(new, properties={"team": "b"}))
    assert (described.owner, described.definer, described.version) == (ALICE, ALICE, 2)
    assert described.metadata.properties == {"team": "b"}
    assert len(described.metadata.versions) == 1
    changed = [
        {"sql": "SELECT 2"},
        {"schema": Schema(*SCHEMA.fields[:1])},
        {"default_namespace": ()},
        {"default_catalog": "other"},
        {"summary": {"spark.sql-configs": "{}"}},
    ]
    for each in changed:
        views.replace(alice, new)
        record = views.replace(bob, replace(new, **each))
        assert (record.owner, record.definer) == (ALICE, BOB), each
    assert record.current.summary == {"spark.sql-configs": "{}", "operation": "replace"}


def test_a_view_is_changed_from_the_state_that_was_read(
    views: Views, alice: Caller, new: ViewDefinition
) -> None:
    record = views.create(alice, new)
    views.replace(alice, replace(new, sql="SELECT 2"), expected=record.version)
    with pytest.raises(CommitConflict):
        views.replace(alice, replace(new, properties={}), expected=record.version)
    assert views.load(alice, new.name).current.representations[0].root.sql == "SELECT 2"


def test_to_read_a_view_takes_select_on_all_of_it(
    lake: Lake, views: Views, alice: Caller, new: ViewDefinition
) -> None:
    views.create(alice, new)
    carol = lake.caller(CAROL)
    with pytest.raises(NotAuthorized):
        views.load(carol, new.name)
    first, *others = (field.name for field in new.schema.fields)
    columns = tables(new.name.database) | {"column": [first]}
    lake.set_policies([*standard_policies(), policy("one", columns, {CAROL: ["select"]})])
    with pytest.raises(NotAuthorized):
        views.load(carol, new.name)
    columns["column"] = [first, *others]
    lake.set_policies([*standard_policies(), policy("all", columns, {CAROL: ["select"]})])
    assert views.load(carol, new.name).name == new.name
    _let(lake, new, **{CAROL: ["update"]})
    with pytest.raises(NotAuthorized):
        views.load(carol, new.name)
    assert views.exists(carol, new.name)


def test_readers_of_a_view_see_none_of_its_former_texts_and_columns(
    lake: Lake, views: Views, alice: Caller, new: ViewDefinition
) -> None:
    views.create(alice, replace(new, sql="SELECT 'former'"))
    first = new.schema.fields[0]
    views.replace(alice, replace(new, schema=Schema(first)))
    columns = tables(new.name.database) | {"column": [first.name]}
    lake.set_policies([*standard_policies(), policy("one", columns, {CAROL: ["select"]})])
    answer = ViewAnswer.of(views.load(lake.caller(CAROL), new.name), CAROL)
    (schema,) = answer.metadata["schemas"]
    assert [field["name"] for field in schema["fields"]] == [first.name]
    assert answer.metadata["current-version-id"] == 2 and "former" not in answer.model_dump_json()


@pytest.mark.parametrize("kind", ["mask", "filter"])
def test_a_mask_or_row_filter_on_a_view_refuses_its_readers(
    lake: Lake, views: Views, alice: Caller, new: ViewDefinition, kind: str
) -> None:
    views.create(alice, new)
    where, carol = tables(new.name.database), lake.caller(CAROL)
    reading = policy("reading", where, {CAROL: ["select"]})
    altering = _altering(new, kind)
    lake.set_policies([*standard_policies(), reading, altering])
    with pytest.raises(NotAuthorized) as refused:
        views.load(carol, new.name)
    assert refused.value.rule == ("mask" if kind == "mask" else "row-filter")


def _altering(new: ViewDefinition, kind: str) -> dict[str, object]:
    database = {"database": {"values": [new.name.database]}, "table": {"values": ["v"]}}
    whom = {"users": [CAROL], "accesses": [{"type": "select"}]}
    made: dict[str, object] = {"name": kind, "service": "lakewarden", "resources": database}
    if kind == "filter":
        rule = whom | {"rowFilterInfo": {"filterExpr": "id = 1"}}
        return made | {"policyType": 2, "rowFilterPolicyItems": [rule]}
    column = database | {"column": {"values": [new.schema.fields[0].name]}}
    rule = whom | {"dataMaskInfo": {"dataMaskType": "MASK_HASH"}}
    return made | {"resources": column, "policyType": 1, "dataMaskPolicyItems": [rule]}


def test_what_cannot_be_stored_is_refused(views: Views, alice: Caller, new: ViewDefinition) -> None:
    for name in ("view.sqlConfig.spark.sql.ansi.enabled", "Table_Type", "owner", "collation", "s3.endpoint"):
        with pytest.raises(PropertyInvalid):
            views.create(alice, replace(new, properties={name: "METRIC_VIEW"}))
    for sql in (" ", "x" * (MAX_TEXT + 1)):
        with pytest.raises(RequestInvalid):
            views.create(alice, replace(new, sql=sql))
    for columns in ([], [""], ["x" * 4097]):
        schema = Schema(*(NestedField(1, each, StringType()) for each in columns))
        with pytest.raises(RequestInvalid):
            views.create(alice, replace(new, schema=schema))
    with pytest.raises(NoSuchNamespace):
        views.create(alice, replace(new, name=TableName(("absent",), "v")))
    assert views.list(alice, new.name.namespace) == []
