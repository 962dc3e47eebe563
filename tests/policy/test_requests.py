"""Requests that cannot mean anything cannot be built."""

from __future__ import annotations

import pytest

from policy.errors import LocationInvalid, RequestInvalid
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.requests import ACCESS_TYPES, ALL, ANY, AccessRequest, Resource
from tests.support.vectors import each_row

ANN = Principal("ann")
RESOURCES = [
    Resource.database("a"),
    Resource.table("a", "t"),
    Resource.column("a", "t", "c.d"),
    Resource.url("s3://b/x"),
    Resource.storage("s3://b/x"),
    Resource.key("k"),
    Resource.engine("e"),
    Resource.service("s"),
]


@each_row("resource", RESOURCES, count=8, ids=str)
def test_every_access_type_of_a_resource_can_be_asked(resource: Resource) -> None:
    for access in [*resource.access_types, ANY]:
        assert AccessRequest(ANN, resource, access).access == access


@each_row("resource", RESOURCES, count=8, ids=str)
def test_access_types_of_other_resources_cannot_be_asked(resource: Resource) -> None:
    others = frozenset().union(*ACCESS_TYPES.values()) - resource.access_types
    for access in [*others, "", "SELECT", "*"]:
        with pytest.raises(RequestInvalid, match="has no access type"):
            AccessRequest(ANN, resource, access)


def test_all_is_for_databases_tables_and_columns() -> None:
    for resource in RESOURCES[:3]:
        assert AccessRequest(ANN, resource, ALL).access == "all"
    for resource in RESOURCES[3:]:
        with pytest.raises(RequestInvalid, match="'all'"):
            AccessRequest(ANN, resource, ALL)


def test_a_resource_names_itself() -> None:
    assert [str(resource) for resource in RESOURCES] == [
        "database a",
        "table a.t",
        "column a.t.c.d",
        "url s3://b/x",
        "storage-url s3://b/x",
        "key k",
        "engine e",
        "service s",
    ]


def test_locations_are_canonical_whoever_gives_them() -> None:
    assert Resource.url("s3a://b/x/") == Resource.url(Location.parse("s3n://b/x"))
    assert Resource.storage("file:/a/b").values == ("iceberg", "file:///a/b")


@each_row("text", ["/a/b", "s3://b/../x", ""])
def test_ambiguous_locations_are_refused(text: str) -> None:
    with pytest.raises(LocationInvalid):
        Resource.storage(text)


@each_row("name", ["", "x" * 4097])
def test_names_are_neither_empty_nor_overlong(name: str) -> None:
    with pytest.raises(RequestInvalid, match="1 to 4096"):
        Resource.table("a", name)


@each_row(
    ("levels", "values"),
    [(("table",), ("t",)), ((), ()), (("database", "table"), ("a",)), (("database",), ("a", "b"))],
)
def test_levels_are_those_of_a_hierarchy(levels: tuple[str, ...], values: tuple[str, ...]) -> None:
    with pytest.raises(RequestInvalid, match="No resource has the levels"):
        Resource(levels, values)


@each_row(
    ("build", "told"),
    [
        (
            lambda: Resource(("table", "x"), ("t",)),
            "No resource has the levels table/x. [rule=resource]",
        ),
        (
            lambda: Resource.table("a", "x" * 4097),
            "The table name has 4097 characters. It must have 1 to 4096. [rule=resource]",
        ),
        (
            lambda: Resource.key(""),
            "The key name has 0 characters. It must have 1 to 4096. [rule=resource]",
        ),
        (
            lambda: AccessRequest(ANN, Resource.key("k"), "select"),
            "A key has no access type 'select'. [rule=access-type]"
            " Use one of: destroy, release, rotate, use.",
        ),
        (
            lambda: AccessRequest(ANN, Resource.storage("s3://b"), "read"),
            "A storage-url has no access type 'read'. [rule=access-type] Use one of: rwstorage.",
        ),
    ],
)
def test_each_refusal_says_what_is_wrong(build, told) -> None:
    with pytest.raises(RequestInvalid) as caught:
        build()
    assert str(caught.value) == told


def test_a_name_may_be_as_long_as_the_bound() -> None:
    assert Resource.database("x" * 4096).values == ("x" * 4096,)


def test_nobody_owns_what_is_asked_for_unless_it_is_said() -> None:
    assert AccessRequest(ANN, Resource.key("k"), "use").owner is None
    assert AccessRequest(ANN, Resource.key("k"), "use", "olga").owner == "olga"


@each_row(
    ("kind", "names", "levels", "values"),
    [
        ("database", ("a",), ("database",), ("a",)),
        ("table", ("a", "t"), ("database", "table"), ("a", "t")),
        ("column", ("a", "t", "c.d"), ("database", "table", "column"), ("a", "t", "c.d")),
        ("url", ("s3a://b/x/",), ("url",), ("s3://b/x",)),
        ("storage", ("s3a://b/x/",), ("storage-type", "storage-url"), ("iceberg", "s3://b/x")),
        ("key", ("k",), ("key",), ("k",)),
        ("engine", ("e",), ("engine",), ("e",)),
        ("service", ("s",), ("service",), ("s",)),
    ],
)
def test_each_kind_of_resource_has_its_levels(kind, names, levels, values) -> None:
    resource = getattr(Resource, kind)(*names)
    assert (resource.levels, resource.values) == (levels, values)
    assert str(resource) == f"{levels[-1]} {'.'.join(values if kind != 'storage' else values[1:])}"
