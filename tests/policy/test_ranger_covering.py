"""Which resources of a policy cover those of another, and which have something in common."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policy.privileges.requests import Resource
from policy.ranger.covering import covers, overlaps
from policy.ranger.matching import LevelPattern, Match, ResourcePattern, Target
from policy.ranger.patterns import Pattern
from policy.ranger.servicedef import TABLES, hierarchy_of
from tests.support.vectors import each_row

Json = dict[str, Any]


def resources(said: Json) -> ResourcePattern:
    hierarchy = hierarchy_of(frozenset(said))
    assert hierarchy is not None
    return ResourcePattern(
        hierarchy,
        tuple(
            LevelPattern.of(
                [Pattern.of(value, level, said[level.name].get("isRecursive", False)) for value in values],
                said[level.name].get("isExcludes", False),
            )
            for level in hierarchy[: len(said)]
            for values in [said[level.name]["values"]]
        ),
    )


def url(*values: str, recursive: bool = False) -> ResourcePattern:
    return resources({"url": {"values": list(values), "isRecursive": recursive}})


@each_row(
    ("wide", "narrow", "expected"),
    [
        (url("s3://lake/a"), url("s3a://lake/a/"), True),
        (url("s3://lake/a"), url("s3://lake/a", recursive=True), False),
        (url("s3://lake/a", recursive=True), url("s3://lake/a", recursive=True), True),
        (url("s3://lake/a", recursive=True), url("s3://lake/a/b", recursive=True), True),
        (url("s3://lake/a", recursive=True), url("s3://lake/ab"), False),
        (url("s3://lake/a", recursive=True), url("s3://lake"), False),
        (url("s3://lake/a*"), url("s3://lake/a", recursive=True), True),
        (url("s3://lake/a/*"), url("s3://lake/a", recursive=True), False),
        (url("s3://lake/a/*", "s3://lake/a"), url("s3://lake/a", recursive=True), True),
        (url("s3://lake/?"), url("s3://lake/?"), True),
        (url("s3://lake/?"), url("s3://lake/*"), False),
        (url("s3://lake/*"), url("s3://lake/?*"), True),
        (url("s3://lake/?*"), url("s3://lake/*"), False),
        (url("*"), url("s3://lake/a", recursive=True), True),
        (url("s3://lake/{USER}", recursive=True), url("s3://lake/ann/x"), True),
        (url("s3://lake/{USER}", recursive=True), url("s3://lake/{USER}"), False),
        (url("s3://lake/{OWNER}", recursive=True), url("s3://lake/ann"), False),
        (url("s3://lake/*"), url("s3://lake/{USER}", "s3://lake/{OWNER}"), True),
    ],
)
def test_covering_of_locations(wide: ResourcePattern, narrow: ResourcePattern, expected: bool) -> None:
    assert covers(wide, narrow, "ann") is expected


@each_row(
    ("wide", "narrow", "expected"),
    [
        (("a",), ("a",), True),
        (("a", "b"), ("a",), True),
        (("a",), ("a", "b"), False),
        (("a*",), ("a", "ab", "a?c*"), True),
        (("a*",), ("a", "b"), False),
        # Values that are excluded.
        (("!a",), ("!a",), True),
        (("!a",), ("!a", "!b"), True),
        (("!a", "!b"), ("!a",), False),
        (("!a", "!b"), ("!a", "!b"), True),
        (("!a",), ("!a*",), True),
        (("!a*",), ("!a",), False),
        (("!a",), ("b",), True),
        (("!a",), ("b", "A"), False),
        (("!a",), ("b*",), False),
        (("!{USER}",), ("bob",), True),
        (("!{USER}",), ("ann",), False),
        (("!{OWNER}",), ("bob",), False),
        (("!ann",), ("!{USER}",), False),
        (("!{USER}",), ("!{USER}",), False),
        (("!{USER}",), ("!*",), True),
        (("*",), ("!a",), True),
        (("a",), ("!b",), False),
        (("!*",), ("!*",), False),
        (("!*",), ("a",), False),
    ],
)
def test_covering_of_names(wide: tuple[str, ...], narrow: tuple[str, ...], expected: bool) -> None:
    def said(values: tuple[str, ...]) -> ResourcePattern:
        names = [value.removeprefix("!") for value in values]
        return resources({"database": {"values": names, "isExcludes": values[0].startswith("!")}})

    assert covers(said(wide), said(narrow), "ann") is expected


def test_a_level_that_is_left_out_is_covered_by_everything_only() -> None:
    database = resources({"database": {"values": ["a"]}})

    def wide(table: str, excludes: bool) -> ResourcePattern:
        return resources(
            {"database": {"values": ["a"]}, "table": {"values": [table], "isExcludes": excludes}}
        )

    assert covers(wide("*", False), database, "ann")
    assert not covers(wide("*", True), database, "ann")
    assert not covers(wide("t", False), database, "ann")
    assert not covers(wide("t", True), database, "ann")


VALUES = st.sampled_from(["a", "b", "ab", "a*", "?", "*b", "*", "{USER}", "a?"])
LEVEL = st.fixed_dictionaries(
    {"values": st.lists(VALUES, min_size=1, max_size=2), "isExcludes": st.booleans()}
)
TABLE_RESOURCES = st.one_of(
    st.fixed_dictionaries({"database": LEVEL}), st.fixed_dictionaries({"database": LEVEL, "table": LEVEL})
)
NAMES = ("a", "b", "ab", "ann", "bob", "abb")


@given(TABLE_RESOURCES, TABLE_RESOURCES)
def test_what_is_covered_matches_nothing_outside_and_what_is_apart_nothing_common(
    one: Json, other: Json
) -> None:
    wide, narrow = resources(one), resources(other)
    targets = [Target.of(Resource.database(name)) for name in NAMES]
    targets += [Target.of(Resource.table(*names)) for names in product(NAMES, repeat=2)]
    relevant = (Match.SELF, Match.SELF_AND_BELOW, Match.BELOW)
    covered, meets = covers(wide, narrow, "ann"), overlaps(wide, narrow, "ann")
    for target in targets:
        ours = wide.match(target, "ann")
        theirs = [narrow.match(target, user) for user in NAMES]
        if covered and any(match.covers for match in theirs):
            assert ours.covers
        if not meets:
            assert ours not in relevant or not any(match.covers for match in theirs)
    assert (
        meets
        or not covered
        or not any(
            match.covers for target in targets for match in (narrow.match(target, user) for user in NAMES)
        )
    )


PATHS = st.sampled_from(["", "/a", "/a/b", "/a*", "/*/b", "/?", "/ab"]).map(lambda path: f"s3://lake{path}")
PLACES = [f"s3://lake{path}" for path in ("", "/a", "/b", "/ab", "/a/b", "/b/b", "/a/a", "/a/b/b", "/ab/b")]


@given(PATHS, PATHS, st.booleans(), st.booleans())
def test_covering_of_locations_is_sound(one: str, other: str, deep: bool, also: bool) -> None:
    wide, narrow = url(one, recursive=deep), url(other, recursive=also)
    covered, meets = covers(wide, narrow, "ann"), overlaps(wide, narrow, "ann")
    for target in (Target.of(Resource.url(place)) for place in PLACES):
        ours, theirs = wide.match(target, "ann"), narrow.match(target, "ann")
        assert not (covered and theirs.covers) or ours.covers
        assert meets or ours is Match.NONE or not theirs.covers


@each_row(
    ("one", "other", "expected"),
    [
        (url("s3://lake/a"), url("s3://lake/a"), True),
        (url("s3://lake/a"), url("s3://lake/b"), False),
        (url("s3://lake/a"), url("s3://lake"), True),
        (url("s3://lake"), url("s3://lake/a"), False),
        (url("s3://lake", recursive=True), url("s3://lake/a"), True),
        (url("s3://lake/a/x"), url("s3://lake/a", recursive=True), True),
        (url("s3://lake/b"), url("s3://lake/a*"), True),
        (url("s3://lake/a*"), url("s3://lake/b"), False),
        (url("s3://lake/{OWNER}"), url("s3://lake/b"), True),
        (url("s3://lake/{USER}"), url("s3://lake/bob"), False),
        (url("s3://lake/{USER}"), url("s3://lake/ann"), True),
        (url("s3://lake/{USER}/x"), url("s3://lake/ann"), True),
        (url("s3://lake/ann/x"), url("s3://lake/ann", recursive=True), True),
        (url("s3?://lake/a"), url("s3://lake/a"), True),
        (url("s3a*://lake/a/x"), url("s3://lake/a"), True),
        (url("s3?://lake/b"), url("s3://lake/a"), False),
        (url("*:/etc"), url("file:///etc"), True),
        (url("s3://lake/b"), resources({"key": {"values": ["b"]}}), False),
        (resources({"database": {"values": ["a"]}}), resources({"database": {"values": ["b*"]}}), False),
        (resources({"database": {"values": ["a"]}}), resources({"database": {"values": ["{USER}"]}}), True),
        (resources({"database": {"values": ["a*"]}}), resources({"database": {"values": ["b*"]}}), True),
        (
            resources({"database": {"values": ["a"], "isExcludes": True}}),
            resources({"database": {"values": ["a"]}}),
            True,
        ),
        (
            resources({"database": {"values": ["a"]}, "table": {"values": ["t"]}}),
            resources({"database": {"values": ["a"]}, "table": {"values": ["u"]}}),
            False,
        ),
        (
            resources({"database": {"values": ["a"]}, "table": {"values": ["t"]}}),
            resources({"database": {"values": ["a"]}}),
            True,
        ),
        (
            resources({"database": {"values": ["a"]}, "udf": {"values": ["*"]}}),
            resources({"database": {"values": ["a"]}, "table": {"values": ["t"]}}),
            False,
        ),
    ],
)
def test_overlapping(one: ResourcePattern, other: ResourcePattern, expected: bool) -> None:
    assert overlaps(one, other, "ann") is expected


def test_functions_do_not_cover_tables() -> None:
    functions = resources({"database": {"values": ["*"]}, "udf": {"values": ["*"]}})
    assert not covers(functions, resources({"database": {"values": ["a"]}}), "ann")
    assert functions.hierarchy != TABLES
