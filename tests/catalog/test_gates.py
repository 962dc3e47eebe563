"""Which rights locations, keys and properties need."""

from __future__ import annotations

import pytest

from catalog.authorization import privileges
from policy.errors import LocationInvalid, PropertyInvalid
from policy.location.location import Location
from policy.principal import Principal
from tests.support.vectors import each_row

BOB = Principal("bob")
OWN = Location.parse("s3://lake/db/t-1")


def _stated(locations: list[str], exempt: Location | None) -> list[tuple[str, str]]:
    requests = privileges.storage_requests(BOB, map(Location.parse, locations), exempt, "carl")
    return [(request.access, request.resource.values[-1]) for request in requests]


def test_each_location_is_a_storage_request_once() -> None:
    asked = _stated(["s3://b/y", "s3a://b/x", "s3://b/x/", "s3n://b/x"], None)
    assert asked == [("rwstorage", "s3://b/x"), ("rwstorage", "s3://b/y")]


def test_only_the_own_default_location_and_what_lies_in_it_is_exempt() -> None:
    own = ["s3://lake/db/t-1", "s3a://lake/db/t-1/data"]
    foreign = ["s3://lake/db/t-10", "s3://lake/db", "s3://lake/db/t-2/data"]
    assert _stated(own, OWN) == []
    assert [path for _, path in _stated(own + foreign, OWN)] == sorted(foreign)
    assert len(_stated(own, None)) == 2


def test_whose_the_table_is_is_told() -> None:
    (request,) = privileges.storage_requests(BOB, [OWN], None, "carl")
    assert request.owner == "carl"


def test_a_key_is_asked_for_once() -> None:
    requests = privileges.key_requests(BOB, ["b", "a", "b"])
    assert [(request.access, request.resource.values) for request in requests] == [
        ("use", ("a",)),
        ("use", ("b",)),
    ]


def test_every_property_that_sends_writers_somewhere_is_a_location() -> None:
    given = {name: f"s3://b/{number}" for number, name in enumerate(privileges.WRITE_PATHS)}
    assert privileges.write_paths(given | {"write.format.default": "orc"}) == [
        Location.parse(path) for path in given.values()
    ]
    with pytest.raises(LocationInvalid):
        privileges.write_paths({"write.data.path": "not a location"})


@each_row(
    "name",
    [
        "s3.endpoint",
        "S3.Access-Key-Id",
        " s3.endpoint",
        "s3a.endpoint",
        "adls.sas-token.x",
        "gcs.oauth2.token",
        "client.region",
        "io-impl",
        "py-io-impl",
        "IO-IMPL",
        "write.py-location-provider.impl",
        "write.location-provider.impl",
        "fs.s3a.endpoint",
        "header.Authorization",
        "uri",
        "token",
        "credential",
        "rest.sigv4-enabled",
        "hf.token",
        "ecs.s3.endpoint",
        "http-client.proxy-endpoint",
        "auth.manager",
        "ssl.cabundle",
        "oauth2-server-uri",
        "warehouse",
        "DEFAULT_SCHEME",
    ],
)
def test_properties_that_would_configure_the_reader_are_refused(name: str) -> None:
    with pytest.raises(PropertyInvalid) as refused:
        privileges.check_ordinary_properties(["write.format.default", name], "db.t")
    assert refused.value.rule == "reader-configuration"


def test_ordinary_properties_pass() -> None:
    names = [
        "comment",
        "write.format.default",
        "commit.retry.num-retries",
        "s3",
        "tokens",
        "client",
        "x.s3.y",
    ]
    privileges.check_ordinary_properties(names, "db.t")
