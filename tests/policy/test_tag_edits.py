"""Edits of a document of tags."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import RequestInvalid
from policy.letter_case import fold
from policy.privileges.requests import Resource
from policy.ranger.tag_edits import TagDocument, about

NAMES = st.sampled_from(["a", "A", "b", "c.d"])
RESOURCES = st.lists(NAMES, min_size=1, max_size=3).map(
    lambda names: Resource(("database", "table", "column")[: len(names)], tuple(names))
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["set", "remove"]),
        RESOURCES,
        st.sampled_from(["PII", "KEY"]),
        st.dictionaries(st.just("level"), st.sampled_from(["1", "2"])),
    ),
    max_size=12,
)


@given(EDITS)
def test_a_document_says_what_the_edits_made_of_it(
    edits: list[tuple[str, Resource, str, dict[str, str]]],
) -> None:
    wanted: dict[tuple[tuple[str, ...], str], dict[str, str]] = {}
    text: str | None = None
    for what, resource, tag, attributes in edits:
        document = TagDocument("tags/catalog", text)
        key = (tuple(map(fold, resource.values)), tag)
        if what == "set":
            document.set(resource, [tag], attributes)
            wanted[key] = attributes
        elif key in wanted:
            document.remove(resource, [tag])
            del wanted[key]
        else:
            with pytest.raises(RequestInvalid, match="does not have the tag"):
                document.remove(resource, [tag])
            continue
        text = document.text
    found = TagDocument("tags/catalog", text)
    said = {(tuple(map(fold, each.resource.values())), each.type): dict(each.attributes) for each in found}
    assert said == wanted
    assert found.is_empty is (not wanted)
    assert len(json.loads(found.text)["tags"]) == len(wanted)


def test_tags_of_a_table_are_those_of_its_columns_too() -> None:
    document = TagDocument("tags/catalog", None)
    document.set(Resource.column("s", "t", "c"), ["PII"], {})
    (tag,) = document
    assert tag.title == "column:s.t/c"
    assert about(tag, Resource.table("S", "t")) and not about(tag, Resource.table("s", "u"))


@pytest.mark.parametrize("resource", [Resource.table("s", "t*"), Resource.url("s3://lake/x")])
def test_a_pattern_or_a_location_is_not_tagged_by_name(resource: Resource) -> None:
    with pytest.raises(RequestInvalid, match="cannot have tags"):
        TagDocument("tags/catalog", None).set(resource, ["PII"], {})


TWICE = {
    "tags": {
        "1": {"type": "PII", "validityPeriods": [{"endTime": "2030/01/01 00:00:00"}]},
        "2": {"type": "PII"},
    },
    "serviceResources": [
        {"id": 1, "resourceElements": {"database": {"values": ["s"]}}},
        {"id": 2, "resourceElements": {"database": {"values": ["S"]}}},
    ],
    "resourceToTagIds": {"1": [1], "2": [2]},
}


def test_a_tag_is_removed_from_each_entry_of_its_resource() -> None:
    document = TagDocument("tags/catalog", json.dumps(TWICE))
    document.remove(Resource.database("s"), ["PII"])
    assert document.is_empty and not list(TagDocument("tags/catalog", document.text))


def test_a_tag_that_ends_does_not_last_longer_because_it_is_set_again() -> None:
    document = TagDocument("tags/catalog", json.dumps(TWICE))
    document.set(Resource.database("s"), ["PII"], {"level": "1"})
    found = [(dict(each.attributes), each.is_timed) for each in TagDocument("tags/catalog", document.text)]
    assert found == [({"level": "1"}, True), ({"level": "1"}, False)]
