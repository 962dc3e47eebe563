"""Required privileges of operations on namespaces, and properties that a namespace can have."""

from __future__ import annotations

import pytest

from policy.encryption.governed import MAX_PROPERTIES
from policy.errors import LocationInvalid, PropertyInvalid
from policy.principal import Principal
from policy.privileges.namespaces import check_namespace_properties, namespace_requests
from policy.privileges.operations import On
from policy.privileges.requests import AccessRequest, Resource
from tests.support.vectors import each_row

ANN = Principal("ann")
DATABASE = Resource.database("sales.eu")
ON = On.namespace(ANN, ("sales", "eu"))
CREATE = AccessRequest(ANN, DATABASE, "create")
UNPROTECT = AccessRequest(ANN, DATABASE, "unprotect")


@each_row(
    ("updates", "removals", "more"),
    [
        ({}, (), []),
        ({"comment": "allow"}, ("comment",), []),
        ({"lakewarden.unsealed": "forbid"}, (), []),
        ({"lakewarden.unsealed": "allow"}, (), [UNPROTECT]),
        ({}, ("lakewarden.unsealed",), [UNPROTECT]),
        ({"encryption.standard-clients": "refuse"}, (), []),
        ({"encryption.standard-clients": "load"}, (), [UNPROTECT]),
        ({}, ("encryption.standard-clients",), [UNPROTECT]),
        ({"location": "s3a://b/x/"}, (), [AccessRequest(ANN, Resource.storage("s3://b/x"), "rwstorage")]),
        ({}, ("location",), []),
    ],
)
def test_what_an_operation_on_a_namespace_needs(updates, removals, more) -> None:
    assert namespace_requests("namespace.create", ON, updates, removals) == [CREATE, *more]


def test_without_removals_the_operation_alone_is_asked_for() -> None:
    assert namespace_requests("namespace.create", ON, {}) == [CREATE]


def test_a_location_that_is_none_is_refused() -> None:
    with pytest.raises(LocationInvalid):
        namespace_requests("namespace.create", ON, {"location": "/x"})


@each_row(
    ("name", "value"),
    [("n" * 255, "v" * 1000), ("n", ""), ("lakewarden.unsealed", "allow"), ("location", "x")],
)
def test_properties_of_a_namespace_as_long_as_they_may_be(name: str, value: str) -> None:
    check_namespace_properties({name: value, "lakewarden.unsealed": "forbid"} | {name: value})


TOO_LONG = "The namespace property {!r} or its value is too long to be stored. [rule=namespace-property]"
NOTHING = (
    "The namespace property {!a} has no effect, but resembles a governed property. [rule=namespace-property]"
    " On a namespace, set lakewarden.unsealed or encryption.standard-clients."
    " Set table properties on the table."
)
VALUES = {
    "lakewarden.unsealed": "[rule=namespace-property] Use allow or forbid.",
    "encryption.standard-clients": "[rule=namespace-property] Use load or refuse.",
}


@each_row(
    ("name", "value", "told"),
    [
        ("n" * 256, "v", TOO_LONG.format("n" * 80)),
        ("", "v", TOO_LONG.format("")),
        ("n", "v" * 1001, TOO_LONG.format("n")),
        *[
            (known, value, f"{value!a} is not an allowed value of {known}. {told}")
            for known, told in VALUES.items()
            for value in ("Forbid", "")
        ],
        ("Lakewarden.Unsealed", "forbid", NOTHING.format("Lakewarden.Unsealed")),
        ("l\u0430kewarden.unsealed", "forbid", NOTHING.format("l\u0430kewarden.unsealed")),
        ("encryption.mechanism", "envelope", NOTHING.format("encryption.mechanism")),
        ("encryption." + "x" * 90, "", NOTHING.format("encryption." + "x" * 69)),
    ],
)
def test_a_property_that_protects_nothing_or_cannot_be_stored_is_refused(
    name: str, value: str, told: str
) -> None:
    with pytest.raises(PropertyInvalid) as caught:
        check_namespace_properties({"comment": "x", name: value})
    assert str(caught.value) == told


def test_a_namespace_has_no_more_properties_than_a_table() -> None:
    check_namespace_properties({f"p{number}": "" for number in range(MAX_PROPERTIES)})
    with pytest.raises(PropertyInvalid):
        check_namespace_properties({f"p{number}": "" for number in range(MAX_PROPERTIES + 1)})
