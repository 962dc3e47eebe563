"""A session policy opens what its prefixes contain, and nothing else, whatever characters are in names."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.storage_access.session_policy import MAX_POLICY_CHARACTERS, Scope, session_policy
from policy.errors import LocationInvalid, NotAuthorized
from policy.location.location import Location
from tests.support.iam_policies import is_allowed

_NAMES = st.one_of(
    st.sampled_from(
        ["t1", "t10", "t*", "*", "**", "t${*}", "${aws:username}", "$", "${", "a}b", "'", '"', "ü"]
    ),
    st.text("t1*$?{}'\"\\:,[]%&é字😀 ", min_size=1, max_size=4),
)
_KEYS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)
_BUCKETS = st.sampled_from(["lake", "lake2"])


def _location(bucket: str, key: str) -> Location | None:
    try:
        return Location.parse(f"s3://{bucket}/{key}")
    except LocationInvalid:
        return None


_LOCATIONS = st.builds(_location, _BUCKETS, st.one_of(_KEYS, st.just(""))).filter(bool)


def _below(locations: list[Location], bucket: str, key: str) -> bool:
    """Containment by whole segments, of any key that a client can ask a store for."""
    asked = (bucket, *key.split("/"))
    return any(asked[: len(each.segments) + 1] == (each.authority, *each.segments) for each in locations)


@settings(report_multiple_bugs=False)
@given(
    st.lists(_LOCATIONS, min_size=1, max_size=3), st.lists(_LOCATIONS, max_size=2), _BUCKETS, _KEYS, st.data()
)
def test_a_policy_opens_what_the_locations_contain(
    reads: list[Location], writes: list[Location], bucket: str, key: str, data: st.DataObject
) -> None:
    near = data.draw(st.sampled_from([*reads, *writes]))
    bucket, key = data.draw(
        st.sampled_from(
            [
                (bucket, key),
                (near.authority, "/".join((*near.segments, key))),
                (near.authority, "/".join(near.segments) + key),
                (bucket, "/".join(near.segments)),
                (near.authority, re.sub(r"[*?$]+", "x", "/".join((*near.segments, key)))),
            ]
        )
    )
    policy = session_policy(Scope(tuple(reads), tuple(writes)))
    resource = f"arn:aws:s3:::{bucket}/{key}"
    assert is_allowed(policy, "s3:GetObject", resource) == _below(reads, bucket, key)
    kept = key.endswith(".metadata.json")
    inside = any(_below([each], bucket, key) and len(each.segments) < len(key.split("/")) for each in writes)
    for action in ("s3:PutObject", "s3:DeleteObject"):
        assert is_allowed(policy, action, resource) == (inside and not kept)
    listed = is_allowed(policy, "s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": f"{key}/"})
    assert listed == _below(writes, bucket, f"{key}/")
    for action in ("s3:PutObjectAcl", "s3:GetObjectVersion", "s3:PutBucketPolicy", "s3:DeleteObjectVersion"):
        assert not is_allowed(policy, action, resource)


def test_a_prefix_without_its_slash_is_not_listed() -> None:
    place = Location.parse("s3://lake/wh/t1")
    policy = session_policy(Scope((place,), (place,)))
    asked = {"wh/t1/": True, "wh/t1/data/": True, "wh/t1": False, "wh/t10/": False, "wh/": False, "": False}
    bucket = "arn:aws:s3:::lake"
    assert {each: is_allowed(policy, "s3:ListBucket", bucket, {"s3:prefix": each}) for each in asked} == asked
    assert not is_allowed(policy, "s3:ListBucket", bucket)
    read_only = session_policy(Scope((place,)))
    assert not any(is_allowed(read_only, "s3:ListBucket", bucket, {"s3:prefix": each}) for each in asked)


def test_metadata_json_is_written_by_the_catalog_alone() -> None:
    place = Location.parse("s3://lake/wh/t1")
    policy = session_policy(Scope((place,), (place,)))
    names = {"metadata/00002-a.metadata.json": False, "metadata/00002-a.gz.metadata.json": False}
    names |= {"metadata/snap-1.avro": True, "data/f.parquet": True}
    for name, writable in names.items():
        for action in ("s3:PutObject", "s3:DeleteObject"):
            assert is_allowed(policy, action, f"arn:aws:s3:::lake/wh/t1/{name}") is writable
        assert is_allowed(policy, "s3:GetObject", f"arn:aws:s3:::lake/wh/t1/{name}")


@pytest.mark.parametrize(
    ("reads", "variables", "said"),
    [
        ((), True, "No location"),
        (("file:///wh/t1",), True, "not in S3"),
        (("s3://lake/wh/t1", "gs://lake/wh/t1"), True, "not in S3"),
        ((f"s3://lake/{'a' * 1000}",), True, "at most 2048"),
        (("s3://lake/wh/t*",), False, "wildcard"),
        (("s3://lake/wh/${x}",), False, "wildcard"),
    ],
)
def test_what_cannot_be_expressed_is_refused(reads: tuple[str, ...], variables: bool, said: str) -> None:
    with pytest.raises(NotAuthorized, match=said) as refusal:
        session_policy(Scope(tuple(map(Location.parse, reads))), variables=variables)
    assert refusal.value.rule == "credential-scope"


def test_a_policy_is_ascii_and_short() -> None:
    places = tuple(Location.parse(f"s3://lake/wh/orders-{'é字' * 4}-{number}") for number in range(2))
    text = session_policy(Scope(places, places[:1]), partition="aws-cn")
    assert text.isascii() and len(text) <= MAX_POLICY_CHARACTERS
    assert "arn:aws-cn:s3:::lake/wh/" in json.dumps(json.loads(text)) and "arn:aws:" not in text
