"""Resources as people write them: KIND:NAME."""

from __future__ import annotations

import pytest

from policy.errors import LocationInvalid, RequestInvalid
from policy.identifiers import TableName
from policy.privileges.requests import Resource
from policy.resource_names import resource_named, table_named
from tests.support.vectors import each_row


@each_row(
    ("text", "resource"),
    [
        ("database:sales.eu", Resource.database("sales.eu")),
        ("table:sales.eu.orders", Resource.table("sales.eu", "orders")),
        ("column:sales.eu.orders/customer.email", Resource.column("sales.eu", "orders", "customer.email")),
        ("column:sales.orders/a/b", Resource.column("sales", "orders", "a/b")),
        ("url:s3a://lake/x/", Resource.url("s3://lake/x")),
        ("storage:s3://lake/x", Resource.storage("s3://lake/x")),
        ("key:arn:aws:kms:k", Resource.key("arn:aws:kms:k")),
        ("engine:spark", Resource.engine("spark")),
        ("service:lakewarden", Resource.service("lakewarden")),
    ],
)
def test_each_kind_of_resource_has_a_name(text: str, resource: Resource) -> None:
    assert resource_named(text) == resource


KINDS = (
    "The resource is not in the form KIND:NAME. [rule=resource-name]"
    " Use one of the kinds database, table, column, url, storage, key, engine, service."
)
TABLE = "The table name has no namespace. [rule=resource-name] Write NAMESPACE.TABLE."
COLUMN = "The column name has no table. [rule=resource-name] Write NAMESPACE.TABLE/COLUMN."


@each_row(
    ("text", "told"),
    [
        ("table", KINDS),
        ("", KINDS),
        (":x", KINDS),
        ("Table:a.b", KINDS),
        ("view:a.b", KINDS),
        ("table:orders", TABLE),
        ("column:sales.orders", COLUMN),
        ("column:orders/id", TABLE),
    ],
)
def test_what_names_no_resource_is_refused(text: str, told: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        resource_named(text)
    assert str(caught.value) == told


@each_row("text", ["database:", "table:a.", "table:.t", "column:a.t/", "key:", "table:a.t/c"])
def test_an_empty_or_ambiguous_name_is_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        resource_named(text)


def test_a_location_that_is_none_is_refused() -> None:
    for text in ("url:/x", "storage:s3://lake/../x"):
        with pytest.raises(LocationInvalid):
            resource_named(text)


def test_the_last_dot_ends_the_namespace() -> None:
    assert table_named("a.b.c") == TableName(("a", "b"), "c")
