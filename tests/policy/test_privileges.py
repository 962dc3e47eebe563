"""Required privileges of operations, locations and keys, and properties that nobody can set."""

from __future__ import annotations

import pytest

from policy.errors import LocationInvalid, PropertyInvalid
from policy.identifiers import TableName
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.operations import OPERATIONS, On, key_requests, required, storage_requests
from policy.privileges.requests import ACCESS_TYPES, ANY, AccessRequest, Resource
from policy.privileges.tables import (
    MAX_TABLE_LOCATION,
    check_ordinary_properties,
    check_table_location,
    configures_readers,
    refuse_location_property,
    write_paths,
)
from tests.support.vectors import each_row

ANN = Principal("ann")
HOME = Location.parse("s3://lake/db/t")
BOBS = On.table(ANN, TableName(("db",), "t"), "bob")
NAME = On.table(ANN, TableName(("db",), "t"))
LONG = "x" * 119 + "yz"
"""A name of 121 characters: an error shows 120."""


def at(*texts: str) -> list[Location]:
    return [Location.parse(text) for text in texts]


def test_each_location_outside_of_the_tables_own_needs_rwstorage_once_and_in_order() -> None:
    wanted = at("s3://b/z", "s3://a/y", "s3a://b/z", "s3://lake/db/t/data", "s3://lake/db")
    assert storage_requests(BOBS, wanted, HOME) == [
        AccessRequest(ANN, Resource.storage(text), "rwstorage", owner="bob")
        for text in ("s3://a/y", "s3://b/z", "s3://lake/db")
    ]


def test_without_a_default_location_none_is_exempt() -> None:
    assert storage_requests(NAME, [HOME]) == [
        AccessRequest(ANN, Resource.storage("s3://lake/db/t"), "rwstorage")
    ]
    assert storage_requests(BOBS, [HOME], HOME) == []


def test_an_operation_on_a_table_names_its_owner() -> None:
    table, key = Resource.table("db", "t"), Resource.key("pii")
    assert required("table.reseal", BOBS) == [
        AccessRequest(ANN, table, "alter", owner="bob"),
        AccessRequest(ANN, table, "update", owner="bob"),
    ]
    assert required("table.create", NAME) == [AccessRequest(ANN, table, "create")]
    assert required("key.rotate", BOBS, ["pii"]) == [
        AccessRequest(ANN, table, "alter", owner="bob"),
        AccessRequest(ANN, key, "rotate"),
    ]


def test_every_operation_requires_access_types_that_exist() -> None:
    known = {each for types in ACCESS_TYPES.values() for each in types} | {ANY}
    for operation, needs in OPERATIONS.items():
        assert needs.access, operation
        assert known.issuperset(needs.access), operation
        assert needs.on_keys in {None, *ACCESS_TYPES["key",]}, operation


def test_each_master_key_needs_use_once_and_in_order() -> None:
    asked = key_requests(ANN, ["pii", "lake", "pii"])
    assert asked == [AccessRequest(ANN, Resource.key(key), "use") for key in ("lake", "pii")]
    assert key_requests(ANN, ["pii"], "rotate") == [AccessRequest(ANN, Resource.key("pii"), "rotate")]


def test_a_tables_location_leaves_room_for_the_names_of_its_metadata() -> None:
    longest = "s3://b/" + "x" * (MAX_TABLE_LOCATION - len("s3://b/"))
    check_table_location(Location.parse(longest), "db.t")
    with pytest.raises(LocationInvalid) as caught:
        check_table_location(Location.parse(longest + "x"), "db.t")
    assert str(caught.value) == (
        "The table location has more than 800 characters. [table=db.t, rule=location-length]"
        " Use a shorter location."
    )


def test_write_paths_are_the_locations_that_writers_are_sent_to() -> None:
    properties = {
        "write.metadata.path": "s3://b/m",
        "write.data.path": "s3a://b/d",
        "write.folder-storage.path": "s3://b/f",
        "write.object-storage.path": "s3://b/o",
        "write.other.path": "no location",
    }
    assert write_paths(properties) == at("s3://b/d", "s3://b/m", "s3://b/o", "s3://b/f")
    assert write_paths({}) == []
    with pytest.raises(LocationInvalid):
        write_paths({"write.data.path": "no location"})


@each_row(
    "name",
    [
        *("s3.endpoint", " S3.Endpoint ", "S3.Access-Key-Id", "s3a.endpoint", "io-impl", "IO-IMPL\t"),
        *("py-io-impl", "write.py-location-provider.impl", "write.location-provider.impl", "uri", "Token"),
        *("fs.s3a.access.key", "adls.sas-token.x", "gcs.oauth2.token", "client.region", "header.x"),
        *("credential", "rest.sigv4-enabled", "hf.token", "ecs.s3.endpoint", "http-client.proxy-endpoint"),
        *("auth.manager", "ssl.cabundle", "oauth2-server-uri", "warehouse", "DEFAULT_SCHEME"),
    ],
)
def test_what_configures_readers_is_no_property_of_a_table(name: str) -> None:
    assert configures_readers(name)
    with pytest.raises(PropertyInvalid) as caught:
        check_ordinary_properties(["owner", name], "db.t")
    assert str(caught.value) == (
        f"The table property {name!r} configures how readers access storage."
        " [table=db.t, rule=reader-configuration]"
        " Set it in the configuration of the client or engine instead."
    )


@each_row(
    "name",
    [
        *("owner", "s3", "my.s3.endpoint", "urin", "token.x", "tokens", "client", "", "comment"),
        *("write.format.default", "commit.retry.num-retries"),
    ],
)
def test_other_properties_configure_no_reader(name: str) -> None:
    assert not configures_readers(name)
    check_ordinary_properties([name], "db.t")


@each_row("name", ["location", " Location", "LOCATION\n"])
def test_a_location_as_property_is_refused(name: str) -> None:
    refuse_location_property(["owner", "locations", "location.x"], "db.t")
    with pytest.raises(PropertyInvalid) as caught:
        refuse_location_property(["owner", name], "db.t")
    assert str(caught.value) == (
        f"The table property {name!r} does not move the table. [table=db.t, rule=location-property]"
        " Set the location when you create the table, or update its location."
    )


def test_an_error_shows_the_beginning_of_a_long_name() -> None:
    with pytest.raises(PropertyInvalid) as caught:
        check_ordinary_properties([f"s3.{LONG}"[:121]], "db.t")
    assert f"'s3.{LONG}"[:121] + "'" in caught.value.message
    with pytest.raises(PropertyInvalid) as caught:
        refuse_location_property(["location" + " " * 113], "db.t")
    assert f"'location{' ' * 112}'" in caught.value.message
