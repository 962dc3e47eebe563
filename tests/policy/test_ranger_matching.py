"""Patterns, against definitions that are slow and obvious."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from policy.letter_case import fold
from policy.privileges.requests import Resource
from policy.ranger.matching import LevelPattern, Match, Pattern, ResourcePattern, Target
from policy.ranger.patterns import spellings_of
from policy.ranger.roles import Role, RoleGraph, find_cycle
from policy.ranger.servicedef import LEVELS, TABLES, Level, access_types_of, hierarchy_of
from tests.support.vectors import each_row

TABLE = LEVELS["table"]
EXACT = Level("exact", case_sensitive=True)
URL = LEVELS["url"]


def reference(pattern: str, text: str) -> bool:
    """What * and ? mean, by definition."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(reference(pattern[1:], text[start:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and reference(pattern[1:], text[1:])


def location_pattern(value: str, recursive: bool) -> Pattern:
    """The pattern, unless it is one of those that nothing can match, which are refused."""
    try:
        return Pattern.of(value, URL, recursive)
    except ValueError:
        reject()


@settings(deadline=None)
@given(st.text("ab*?", min_size=1, max_size=7), st.text("ab*?", max_size=8))
def test_wildcards_by_definition(pattern: str, text: str) -> None:
    assert Pattern.of(pattern, EXACT).matches((text,), "u") is reference(pattern, text)


@settings(deadline=None)
@given(st.from_regex(r"[ab/*?]{0,4}[ab*?]", fullmatch=True), st.text("ab/", max_size=6))
def test_recursive_location_matches_what_is_below_a_match(pattern: str, text: str) -> None:
    pattern, text = f"s3://bucket{pattern}", f"s3://bucket{text}"
    ends = [found.start() for found in re.finditer("/", text)] + [len(text)]
    expected = any(reference(pattern, text[:end]) for end in ends)
    assert location_pattern(pattern, recursive=True).matches((text,), "u") is expected


@settings(deadline=None)
@given(st.text("ab/*?", min_size=1, max_size=4), st.text("ab", min_size=1, max_size=2), st.booleans())
def test_reaches_below_by_search(pattern: str, name: str, recursive: bool) -> None:
    """Every match below within four characters is foreseen."""
    location = f"s3://bucket{name}"
    found = location_pattern(f"s3://bucket{pattern}", recursive)
    below = ("".join(tail) for length in range(1, 5) for tail in product("ab/", repeat=length))
    if any(found.matches((f"{location}/{tail}",), "u") for tail in below) and not found.matches(
        (location,), "u"
    ):
        assert found.reaches_below((location,), "u")


@each_row(
    ("pattern", "expected"),
    [
        ("s3://b/x", True),
        ("s3://b/a/x", True),
        ("s3://b/*/x", True),
        ("s3://b*", True),
        ("*x", True),
        ("s3://b", False),
        ("s3://bb/x", False),
        ("s3://c/*", False),
        ("s3://b?x/y", True),
        ("s3://b-x/y", False),
        ("s3://{USER}/x", True),
    ],
)
def test_reaches_below(pattern: str, expected: bool) -> None:
    assert Pattern.of(pattern, URL).reaches_below(("s3://b",), "b") is expected


@settings(deadline=None)
@given(st.text("ab/*?", min_size=1, max_size=5), st.text("ab", max_size=2), st.booleans())
def test_what_takes_in_a_tree_matches_all_of_it(pattern: str, name: str, recursive: bool) -> None:
    location = f"s3://bucket{name}"
    found = location_pattern(f"s3://bucket{pattern}", recursive)
    below = ["".join(tail) for length in range(1, 5) for tail in product("ab/", repeat=length)]
    if found.takes_in_below((location,), "u"):
        assert all(found.matches((f"{location}/{tail}",), "u") for tail in below)


@each_row(
    ("pattern", "recursive", "expected"),
    [
        ("s3://lake/home/{USER}", True, True),
        ("s3://lake/home/{USER}", False, False),
        ("s3://lake/home/{USER}*", False, True),
        ("s3://lake/home/{OWNER}", True, False),
        ("*3a://lake/home*", False, True),
        ("s3://lake/home/*.parquet", False, False),
    ],
)
def test_a_location_is_taken_in_with_all_below(pattern: str, recursive: bool, expected: bool) -> None:
    spellings = Target.of(Resource.url("s3://lake/home/ann")).spellings[0]
    assert Pattern.of(pattern, URL, recursive).takes_in_below(spellings, "ann") is expected


def test_reaches_below_of_a_user_elsewhere() -> None:
    assert not Pattern.of("s3://{USER}/x", URL).reaches_below(("s3://b",), "c")


@settings(deadline=None)
@given(st.text(max_size=20), st.text(max_size=5))
def test_user_names_are_literal(user: str, other: str) -> None:
    pattern = Pattern.of("a_{USER}*", EXACT)
    assert pattern.matches((f"a_{user}{other}",), user)
    assert pattern.matches((other,), user) is other.startswith(f"a_{user}")


@settings(deadline=None)
@given(st.text(max_size=10))
def test_fold_ignores_case_and_keeps_length(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert len(fold(text)) == len(text)


@each_row(("one", "other"), [("Straße", "STRAßE"), ("ÄÉ", "äé"), ("K", "k"), ("ſ", "S"), ("Σ", "ς")])
def test_fold_makes_equal(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@each_row(("one", "other"), [("ß", "ss"), ("é", "e\u0301"), ("İ", "i\u0307"), ("ﬁ", "fi")])
def test_fold_keeps_apart(one: str, other: str) -> None:
    assert fold(one) != fold(other)


@each_row(
    ("pattern", "text", "expected"),
    [
        ("*a*b*c*d", "xaxbxcxd", True),
        ("*a*b*c*d", "xaxcxbxd", False),
        ("a*b*c*d*", "abcd", True),
        ("a?c*e?", "abcdef", True),
        ("a?c*e?", "acdef", False),
        ("*?", "", False),
        ("?*", "a", True),
    ],
)
def test_several_wildcards(pattern: str, text: str, expected: bool) -> None:
    assert Pattern.of(pattern, EXACT).matches((text,), "u") is expected


def test_a_wildcard_makes_no_location_recursive() -> None:
    once, deep = Pattern.of("s3://lake/?", URL), Pattern.of("s3://lake/?", URL, recursive=True)
    assert once.matches(("s3://lake/a",), "u") and deep.matches(("s3://lake/a",), "u")
    assert deep.matches(("s3://lake/a/b",), "u") and not once.matches(("s3://lake/a/b",), "u")


@each_row(
    ("level", "value", "spellings"),
    [
        (EXACT, "Ab", ("Ab",)),
        (TABLE, "Ab", ("ab",)),
        (URL, "s3://lake/A:b/", ("s3://lake/A:b", "s3a://lake/A:b", "s3n://lake/A:b")),
        (URL, "file:///a/B", ("file:///a/B", "file:/a/B")),
        (URL, "other://x", ("other://x",)),
    ],
)
def test_spellings_that_mean_the_same(level: Level, value: str, spellings: tuple[str, ...]) -> None:
    assert spellings_of(level, value) == spellings


def test_many_wildcards_do_not_take_forever() -> None:
    pattern = Pattern.of("*a" * 200 + "b", EXACT)
    assert not pattern.matches(("a" * 4000,), "u")
    below = Pattern.of("s3://" + "*a" * 200 + "b", URL)
    assert below.reaches_below(("s3://" + "a" * 4000,), "u")


@each_row(
    ("value", "tokens"), [("**", 1), ("a**b", 3), ("?*", 2), ("{USER}", 1), ("a{USER}?", 3), ("abc", 1)]
)
def test_tokens_are_joined(value: str, tokens: int) -> None:
    assert len(Pattern.of(value, TABLE).tokens) == tokens


@each_row(
    ("written", "canonical"),
    [
        ("s3://lake/a", "s3://lake/a"),
        ("S3A://lake/a/", "s3://lake/a"),
        ("s3n://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3://", "s3:/"),
        ("s3a://*", "s3://*"),
        ("s3a://La*/X/Y", "s3://la*/X/Y"),
        ("s3://{USER}/X", "s3://{USER}/X"),
        ("s3://Lake-{USER}-X/Y", "s3://lake-{USER}-x/Y"),
        ("s3://lake/A{OWNER}/*/", "s3://lake/A{OWNER}/*"),
        ("s3://lake/a b=1/%2F*", "s3://lake/a b=1/%2F*"),
        ("file:/a", "file:///a"),
        ("file:///", "file://"),
        ("file:/*", "file:///*"),
        ("file:///a/?", "file:///a/?"),
        ("hdfs://NameNode:8020/", "hdfs://namenode:8020"),
        ("hdfs://NameNode:8020/Apps/*", "hdfs://namenode:8020/Apps/*"),
        ("HDFS://*.Example.COM/Apps", "hdfs://*.example.com/Apps"),
        ("abfs://data@Lake.dfs.core.windows.net/A*", "abfss://data@lake.dfs.core.windows.net/A*"),
        ("hdfs://", "hdfs:/"),
        ("s3*://lake/a:b/", "s3*://lake/a:b"),
        ("*", "*"),
        ("*/", "*"),
        ("?3://lake/a/", "?3://lake/a"),
        ("s3*://lake/a/", "s3*://lake/a"),
        ("{USER}://lake/a/", "{USER}://lake/a"),
        ("S3*://La*/X", "s3*://la*/X"),
        ("*://Lake/X/", "*://lake/X"),
        ("S3{USER}://Lake", "s3{USER}://lake"),
        ("*/Lake/X", "*/Lake/X"),
        ("*//Lake/X", "*//Lake/X"),
        ("*:///X", "*:///X"),
        ("*.Parquet", "*.Parquet"),
        ("fil?:/X", "fil?:/X"),
        # Nothing with another scheme can be asked for.
        ("Other:/a/../B/", "other:/a/../B"),
    ],
)
def test_a_location_is_read_in_the_spelling_that_requests_have(written: str, canonical: str) -> None:
    tokens = Pattern.of(written, URL).tokens
    assert "".join(token if isinstance(token, str) else token.value for token in tokens) == canonical


@each_row(
    ("written", "problem"),
    [
        ("lake/a", "must begin with a scheme"),
        ("X/lake/a", "must begin with a scheme"),
        ("/a*:", "must begin with a scheme"),
        ("s3:lake/a", "the pattern matches no location"),
        ("s3:/lake/a", "the pattern matches no location: The location"),
        ("s3:*", "the pattern matches no location"),
        ("s3://Lake/a", "invalid bucket or host"),
        ("s3://Lake", "invalid bucket or host"),
        ("s3://lake/a/../b", "dot segment"),
        ("s3://lake/a/../b*", "dot segment"),
        ("s3://lake/*/../b", "empty names and dot segments"),
        ("s3://lake/*/./b", "empty names and dot segments"),
        ("s3://lake/{USER}//b", "empty names and dot segments"),
        ("s3://lake//b*", "empty"),
        ("hdfs:///a", "invalid bucket or host"),
        ("s3://*/a//b", "empty names and dot segments"),
        ("hdfs://nn*/a/../b/", "empty names and dot segments"),
        ("s3://lake/a*/%2e%2e/b", "the pattern matches no location: the location has a dot segment"),
        (
            "s3://lake*/a/%2Fb",
            "the pattern matches no location: the location has a segment that begins with a slash",
        ),
        ("s3://lake/a*#b", "backslashes and fragments"),
        ("s3://*/a\\b?", "backslashes and fragments"),
        ("*://lake/a/../b", "empty names and dot segments"),
        ("*//", "empty names and dot segments"),
        ("s3*://", "empty names and dot segments"),
        ("s3*://lake//a", "empty names and dot segments"),
        ("*x//lake/a", "empty names and dot segments"),
        ("*:////a", "empty names and dot segments"),
        ("*/a/./b", "empty names and dot segments"),
        ("?3://lake/%2e%2e/b", "the location has a dot segment"),
        ("*/a/%2Fb", "begins with a slash"),
        ("*://lake/a#b", "backslashes and fragments"),
        ("*://la#ke/a", "backslashes and fragments"),
        ("*a\\b", "backslashes and fragments"),
    ],
)
def test_a_location_that_nothing_can_be_asked_by_is_refused(written: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refusal:
        Pattern.of(written, URL)
    assert not str(refusal.value).endswith(".")


def test_host_case_does_not_hide_a_denial() -> None:
    pattern = Pattern.of("hdfs://NN:8020/secret*", URL)
    assert pattern.matches(Target.of(Resource.url("hdfs://nn:8020/secrets/x")).spellings[0], "u")


def test_every_spelling_of_a_scheme_is_matched_where_the_pattern_leaves_it_open() -> None:
    spelled = Target.of(Resource.url("s3://lake/a")).spellings[0]
    assert spelled == ("s3://lake/a", "s3a://lake/a", "s3n://lake/a")
    assert Target.of(Resource.url("file:/a")).spellings[0] == ("file:///a", "file:/a")
    for value in ("?3a://lake/a", "*3n://lake/a", "*://lake/a"):
        assert Pattern.of(value, URL).matches(spelled, "u")
    assert not Pattern.of("?3b://lake/a", URL).matches(spelled, "u")


@each_row(
    ("value", "user", "owner", "name", "expected"),
    [
        ("{OWNER}", "ann", "bob", "bob", True),
        ("{OWNER}", "ann", "bob", "ann", False),
        ("{OWNER}", "ann", "Bob", "bOB", True),
        ("{OWNER}", "ann", None, "{OWNER}", False),
        ("{OWNER}*", "ann", None, "x", False),
        ("{USER}_{OWNER}", "ann", "bob", "ann_bob", True),
        ("{USER}_{OWNER}", "ann", "bob", "bob_ann", False),
        ("{USER}", "a*", None, "ab", False),
        ("{USER}", "a*", None, "a*", True),
        ("{OWNER}", "ann", "{USER}", "ann", False),
        ("{USER}", "{OWNER}", "bob", "bob", False),
    ],
)
def test_macros_are_names_taken_literally(
    value: str, user: str, owner: str | None, name: str, expected: bool
) -> None:
    spelled = Target.of(Resource.database(name)).spellings[0]
    assert Pattern.of(value, LEVELS["database"]).matches(spelled, user, owner) is expected


def test_below_a_location_of_an_owner() -> None:
    pattern = Pattern.of("s3://lake/{OWNER}/x", URL)
    assert pattern.reaches_below(("s3://lake/bob",), "ann", "bob")
    assert not pattern.reaches_below(("s3://lake/bob",), "ann", "cy")
    assert not pattern.reaches_below(("s3://lake/bob",), "bob")


@each_row("value", ["{", "a}", "{owner}", "{user}", "{USER", "{{USER}}", "{GROUP}"])
def test_other_braces_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="only allowed in the macros"):
        Pattern.of(value, TABLE)


def levels(*values: str, excludes: int | None = None) -> ResourcePattern:
    patterns = [
        LevelPattern.of([Pattern.of(value, level)], excludes == depth)
        for depth, (value, level) in enumerate(zip(values, TABLES, strict=False))
    ]
    return ResourcePattern(TABLES, tuple(patterns))


DATABASE, ORDERS, ID = Resource.database("a"), Resource.table("a", "t"), Resource.column("a", "t", "c")


@each_row(
    ("pattern", "expected"),
    [
        (levels("a"), "SELF ABOVE ABOVE"),
        (levels("a", "*"), "SELF_AND_BELOW SELF ABOVE"),
        (levels("a", "t"), "BELOW SELF ABOVE"),
        (levels("a", "*", "*"), "SELF_AND_BELOW SELF_AND_BELOW SELF"),
        (levels("*", "*", "*"), "SELF_AND_BELOW SELF_AND_BELOW SELF"),
        (levels("a", "t", "*"), "BELOW SELF_AND_BELOW SELF"),
        (levels("a", "*", "c"), "BELOW BELOW SELF"),
        (levels("a", "t", "x"), "BELOW BELOW NONE"),
        (levels("b", "*", "*"), "NONE NONE NONE"),
        (levels("a", "*", excludes=1), "NONE NONE NONE"),
        (levels("a", "u", excludes=1), "BELOW SELF ABOVE"),
        (levels("a", "t", excludes=1), "BELOW NONE NONE"),
        (levels("b", "*", "*", excludes=0), "SELF_AND_BELOW SELF_AND_BELOW SELF"),
    ],
)
def test_match_by_depth(pattern: ResourcePattern, expected: str) -> None:
    found = [pattern.match(Target.of(resource), "u").name for resource in (DATABASE, ORDERS, ID)]
    assert found == expected.split()


@each_row(
    ("kind", "place", "user", "owner", "expected"),
    [
        ("iceberg", "s3://lake/{USER}/x", "ann", None, Match.BELOW),
        ("iceberg", "s3://lake/{USER}/x", "bob", None, Match.NONE),
        ("iceberg", "s3://lake/{OWNER}/x", "bob", "ann", Match.BELOW),
        ("iceberg", "s3://lake/{OWNER}/x", "ann", "bob", Match.NONE),
        ("iceberg", "s3://lake/{OWNER}/x", "ann", None, Match.NONE),
        ("iceberg", "s3://lake/ann", "bob", None, Match.SELF),
        ("iceberg", "s3://lake/ann*", "bob", None, Match.SELF_AND_BELOW),
        ("iceberg", "s3://lake/{USER}*", "ann", None, Match.SELF_AND_BELOW),
        ("iceberg", "s3://lake/{OWNER}", "bob", "ann", Match.SELF),
        ("hive", "s3://lake/ann/x", "ann", None, Match.NONE),
        ("{USER}", "s3://lake/ann/x", "iceberg", "ann", Match.BELOW),
        ("{USER}", "s3://lake/ann/x", "ann", "iceberg", Match.NONE),
        ("{OWNER}", "s3://lake/ann/x", "ann", "iceberg", Match.BELOW),
        ("{OWNER}", "s3://lake/ann/x", "iceberg", "ann", Match.NONE),
    ],
)
def test_what_lies_below_a_location_goes_by_names_too(
    kind: str, place: str, user: str, owner: str | None, expected: Match
) -> None:
    levels = hierarchy_of(frozenset({"storage-type", "storage-url"}))
    assert levels is not None
    said = [Pattern.of(value, level) for value, level in zip((kind, place), levels, strict=True)]
    resources = ResourcePattern(levels, tuple(LevelPattern.of([pattern], False) for pattern in said))
    assert resources.match(Target.of(Resource.storage("s3://lake/ann")), user, owner) is expected


def test_another_hierarchy_does_not_match() -> None:
    assert levels("*").match(Target.of(Resource.key("a")), "u") is Match.NONE


def test_every_level_belongs_to_a_hierarchy_and_all_is_known_everywhere() -> None:
    for name, level in LEVELS.items():
        chain = next(
            found for size in range(1, 4) for found in [hierarchy_of(frozenset(_top(name, size)))] if found
        )
        assert level in chain
        assert "all" in access_types_of(chain)
    assert hierarchy_of(frozenset()) is None


def _top(name: str, size: int) -> list[str]:
    chains = (["database", "table", "column"], ["database", "udf"], ["storage-type", "storage-url"])
    chain = next((found for found in chains if name in found), [name])
    return chain[:size] if name in chain[:size] else []


def role(name: str, *members: str) -> Role:
    return Role(name, frozenset(), frozenset(), frozenset(members))


def test_a_diamond_of_roles_is_no_cycle() -> None:
    roles = {found.name: found for found in (role("a", "b", "c"), role("b", "d"), role("c", "d"), role("d"))}
    assert find_cycle(roles) is None
    held = RoleGraph.of(roles.values()).held_by("u", frozenset(), frozenset({"d"}))
    assert held == {"a", "b", "c", "d"}


def test_a_long_chain_of_roles_is_followed() -> None:
    roles = {str(n): role(str(n), str(n + 1)) for n in range(5000)}
    assert find_cycle(roles) is None
    assert len(RoleGraph.of(roles.values()).held_by("u", frozenset(), frozenset({"5000"}))) == 5001


def test_the_cycle_is_named() -> None:
    cycle = find_cycle({found.name: found for found in (role("x", "a"), role("a", "b"), role("b", "a"))})
    assert cycle is not None
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"a", "b"}
