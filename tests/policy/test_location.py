"""What a location is, beyond the shared vectors: parts, family, errors, and what real readers open."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.errors import LocationInvalid
from policy.location import location, schemes
from policy.location.location import Location, shown
from policy.location.schemes import SCHEMES
from policy.location.segments import (
    ORDINARY_NAME,
    decode_fully,
    forbidden_character,
    has_final_dot,
    is_one_name,
    problem_with_name,
)
from tests.support.vectors import each_row

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "locations.json").read_text())
GRANTED = [(entry, case["path"]) for case in VECTORS["cases"] if case["allowed"] for entry in case["entries"]]


@each_row("case", VECTORS["canonical"], count=225, ids=lambda case: ascii(case["text"][:60]))
def test_canonical_vectors(case):
    if case["canonical"] is None:
        with pytest.raises(LocationInvalid):
            Location.parse(case["text"])
    else:
        assert Location.parse(case["text"]).canonical == case["canonical"]


def test_parts_of_an_s3_location():
    location = Location.parse("s3a://bucket/a b/c%2Fd/")
    assert (location.scheme, location.authority) == ("s3", "bucket")
    assert location.segments == ("a b", "c%2Fd")
    assert location.name == "c%2Fd"
    assert location.original == "s3a://bucket/a b/c%2Fd/"
    assert str(location) == location.canonical == "s3://bucket/a b/c%2Fd"


def test_parts_of_a_file_location_and_of_a_bucket():
    location = Location.parse("file:/a/b")
    assert (location.scheme, location.authority, location.segments) == ("file", "", ("a", "b"))
    bucket = Location.parse("s3://bucket")
    assert (bucket.segments, bucket.name) == ((), "")


def test_equality_and_hash_go_by_meaning():
    same = {Location.parse(t) for t in ("s3://b1/a", "s3a://b1/a/", "s3n://b1/a")}
    assert same == {Location.parse("s3://b1/a")}
    assert Location.parse("s3://b1/a") != "s3://b1/a"


def test_a_canonical_form_parses_to_itself():
    for _, path in GRANTED:
        canonical = Location.parse(path).canonical
        assert Location.parse(canonical).canonical == canonical


def test_a_location_contains_itself_and_what_lies_below_by_whole_segments():
    table = Location.parse("file:///a/t1")
    assert table.contains(table)
    assert table.contains(Location.parse("file:///a/t1/data/f"))
    assert not table.contains(Location.parse("file:///a/t10"))
    assert not table.contains(Location.parse("file:///a"))
    assert not table.contains(Location.parse("s3://a/t1"))


def test_a_bucket_does_not_contain_a_bucket_with_a_longer_name():
    assert not Location.parse("s3://buck").contains(Location.parse("s3://bucket/a"))


def test_overlap_goes_both_ways():
    outer, inner, beside = (Location.parse(f"s3://b1/{p}") for p in ("a", "a/b", "ab"))
    assert outer.overlaps(inner) and inner.overlaps(outer) and outer.overlaps(outer)
    assert not outer.overlaps(beside)


def test_child_lies_below_its_parent():
    table = Location.parse("s3://b1/t")
    assert table.child("data", "p=a%2Fb", "f.parquet").canonical == "s3://b1/t/data/p=a%2Fb/f.parquet"
    assert table.contains(table.child("x"))


NAMES = st.text("aZ0_=.%-:2Fe/\\é\u202e ", max_size=6) | st.sampled_from(
    [".", "..", "c:", "C%3a", ".reserved", "t1.", "x" * 255, "x" * 256, "x" * 1030, "é" * 130, "a\udc80"]
)
PARENTS = (
    *(
        "s3://b1",
        "s3a://b1/t",
        f"s3://b1/{'é' * 505}",
        f"s3://b1/{'y' * 900}",
        "gs://b11/x",
        "file:///a",
        "file:/a/b",
    ),
    *("hdfs://n1:8020/d", "abfs://con@acc.dfs.core.windows.net", "abfs://con@acc.dfs.core.windows.net/d"),
)


@given(
    parent=st.sampled_from(PARENTS),
    names=st.lists(NAMES.filter(lambda name: name and "/" not in name), min_size=1, max_size=3),
)
@example(f"s3://b1/{'é' * 505}", ["x" * 255])
def test_a_child_is_what_its_full_name_is(parent: str, names: list[str]) -> None:
    above = Location.parse(parent)
    text = "/".join((above.canonical, *names))
    try:
        whole = Location.parse(text)
    except LocationInvalid as error:
        with pytest.raises(LocationInvalid) as refused:
            above.child(*names)
        assert str(refused.value) == str(error)
        return
    child = above.child(*names)
    assert [getattr(child, each) for each in Location.__slots__] == [
        getattr(whole, each) for each in Location.__slots__
    ]


@each_row("name", ["..", ".", "", "a/b", "/", "%2e%2e", "a?b", "a#b", "a\\b", "a\nb", "x" * 1025])
def test_child_refuses_what_is_no_name(name):
    with pytest.raises(LocationInvalid):
        Location.parse("s3://b1/t").child(name)


HINT = "Write the location in full, such as s3://bucket/warehouse/t1 or file:///warehouse/t1."
RENAME = "Rename the file or directory."
ENCODED = "Percent-encode the character, or rename the file or directory."
ONE_NAME = "Pass each segment as one name."
BUCKET = (
    "After the scheme, write // and a bucket of 1 to 63 lowercase letters, digits, dots, underscores or"
    " hyphens, without user, password or port."
)
REFUSALS = [
    ("", "is missing or not a string", HINT),
    ("s3://b1/" + "x" * 4200, "is longer than 4200 characters", "Use a shorter path."),
    ("s3://b1/a\x7f", "has the control or format character U+007F", "Rename the file or directory."),
    ("s3://b1/a\\b", "has a backslash (\\)", ENCODED),
    ("s3://b1/a#b", "has a fragment (#)", ENCODED),
    ("s3://b1/a?", "has a query (?)", ENCODED),
    ("b1/a", "has no scheme", HINT),
    ("b1/a:b", "has no scheme", HINT),
    (
        "S3://b1/a",
        "has an unsupported scheme",
        "Use one of abfs, abfss, file, gs, hdfs, oss, s3, s3a, s3n, viewfs, wasb, wasbs, in lower case.",
    ),
    ("s3://B1/a", "has an invalid bucket or host", BUCKET),
    ("file:a", "has a relative path", HINT),
    (
        "s3://b1/a ",
        "ends in whitespace",
        "Remove the whitespace. Readers disagree on whether it is part of the name.",
    ),
    ("hdfs://nn/", "names the root of a whole host", "Name a directory below it."),
    ("s3://b1/" + "x" * 1025, "has a path of more than 1024 bytes", "Use a shorter path."),
    ("file:///a/" + "x" * 256, "has a name of more than 255 bytes", "Use a shorter name."),
    ("s3://b1//a", "has an empty path segment", RENAME),
    ("s3://b1/a%00", "has the encoded control or format character U+0000", RENAME),
    (
        "s3://b1/a%ff",
        "has percent-escapes that are not UTF-8 or are encoded too many times",
        RENAME,
    ),
    ("s3://b1/{x,..", "has a dot segment, literally or after decoding", RENAME),
    ("s3://b1/..}", "has a dot segment, literally or after decoding", RENAME),
    ("s3://b1/%2Fa", "has a segment that begins with a slash after decoding", RENAME),
    (
        "abfss://c01@acc.dfs.core.windows.net/a./b",
        "has a name that ends in a dot",
        "Rename it. Some Azure clients drop the dot.",
    ),
    (
        "file:///C:/a",
        "begins with a drive letter",
        "Write the path without a drive letter.",
    ),
    (
        "hdfs://nn/.reserved/raw",
        "begins with .reserved",
        "Use the ordinary path of the file.",
    ),
]


@each_row(("text", "problem", "hint"), REFUSALS, count=24)
def test_each_refusal_says_what_is_wrong_and_what_to_do(text: str, problem: str, hint: str) -> None:
    with pytest.raises(LocationInvalid) as refused:
        Location.parse(text)
    assert (refused.value.message, refused.value.hint) == (f"The location {problem}.", hint)
    assert (refused.value.path, refused.value.rule) == (shown(text), "location-invalid")


def test_what_is_no_text_is_refused_as_missing():
    with pytest.raises(LocationInvalid, match="is missing or not a string") as refused:
        Location.parse(None)
    assert refused.value.path == "" and refused.value.hint == HINT


@each_row("name", ["", "a/b"])
def test_a_child_that_is_not_one_name_is_refused(name: str) -> None:
    with pytest.raises(LocationInvalid) as refused:
        Location.parse("s3://b1/t").child(name)
    assert refused.value.message == "The location has a path segment that is empty or contains a slash."
    assert (refused.value.path, refused.value.hint) == (name, ONE_NAME)


@each_row(
    "text",
    [
        "s3://b1/" + "x" * 1024,
        "s3://b1/" + "é" * 512,
        "file:///a/" + "x" * 255,
        "file:///a/" + "é" * 127 + "x",
        "file:///" + ("x" * 204 + "/") * 19 + "x" * 199,
    ],
)
def test_bounds_are_counted_in_bytes_and_reached(text: str) -> None:
    assert Location.parse(text).canonical == text
    with pytest.raises(LocationInvalid, match="bytes"):
        Location.parse(f"{text}x")


@each_row(
    ("text", "one"),
    [("a", True), ("a b", True), ("a%20b", True), ("a%2Fb", False), ("a\\b", False), ("", False),
     ("..", False), ("%ff", False), ("a\u2215b", False), ("X", True)],
)  # fmt: skip
def test_one_name_has_no_slash_in_any_spelling(text: str, one: bool) -> None:
    assert is_one_name(text) is one


@each_row(
    ("name", "seen"),
    [
        ("a", "a"),
        ("%2561", "a"),
        ("%u0061", "a"),
        ("%U00e9x", "éx"),
        ("ａ", "a"),
        ("100%", "100%"),
        ("%C3%A9", "é"),
        ("%ff", None),
        ("%uD800", None),
        ("%" + "25" * 6 + "61", "a"),
        ("%" + "25" * 7 + "61", None),
    ],
)
def test_a_name_is_seen_as_the_most_decoding_of_all_readers_does(name: str, seen: str | None) -> None:
    assert decode_fully(name) == seen


@each_row(
    ("name", "final"),
    [("a.", True), ("a%2E", True), ("a.%2Fb", True), ("a.b", False), (".a", False), ("%ff", False)],
)
def test_a_final_dot_counts_in_any_spelling(name: str, final: bool) -> None:
    assert has_final_dot(name) is final


@each_row(
    ("text", "found"),
    [
        ("a", None),
        ("a\u00e9", None),
        ("\u200d", "U+200D"),
        ("a\u200db", "U+200D"),
        ("\U0001f468\u200d\U0001f469", None),
        ("\U0001f468\u200d\U0001f469\u200d", "U+200D"),
        ("\ufeff", "U+FEFF"),
        ("\U000e0001", "U+E0001"),
        ("\t", "U+0009"),
    ],
)
def test_the_first_character_that_no_name_may_have(text: str, found: str | None) -> None:
    assert forbidden_character(text) == found


def test_azure_names_its_endpoint_in_any_case():
    # The patterns are made when the module is imported: made again they are the same.
    made = {rules.name: rules.authority for rules in SCHEMES}
    assert made["abfss"] == schemes._azure("dfs", "blob")
    assert made["wasbs"] == schemes._azure("blob", "dfs")
    assert Location.parse("abfs://c01@acc.DfS.core.windows.net/a").authority == "c01@acc.dfs.core.windows.net"
    with pytest.raises(LocationInvalid):
        Location.parse("abfs://c01@acc.d\u017fs.core.windows.net/a")


@each_row("nothing", [None, 1, b"s3://b1/t", ["s3://b1/t"], Path("/a")])
def test_only_text_is_parsed(nothing):
    with pytest.raises(LocationInvalid):
        Location.parse(nothing)


def test_a_location_cannot_be_changed():
    with pytest.raises(AttributeError):
        Location.parse("s3://b1/t").canonical = "s3://b1/other"


def test_a_refusal_names_path_rule_and_what_to_do():
    with pytest.raises(LocationInvalid) as refused:
        Location.parse("s3://b1/t/../u")
    assert refused.value.path == "s3://b1/t/../u"
    assert refused.value.rule == "location-invalid"
    assert "dot segment" in refused.value.message
    assert refused.value.hint


@each_row(
    "text",
    [
        "s3://AKIA:hunter2@bucket/a",
        "s3://bucket/f?X-Amz-Signature=hunter2",
        "https://me:hunter2@host/f?a=hunter2",
    ],
)
def test_a_refusal_shows_no_credentials(text):
    with pytest.raises(LocationInvalid) as refused:
        Location.parse(text)
    assert "hunter2" not in f"{refused.value} {refused.value!r}"


def test_a_refusal_is_one_short_line():
    assert shown("s3://b1/a\nb\x1b[2J\u202e") == "s3://b1/a\\nb\\x1b[2J\\u202e"
    assert len(shown("s3://b1/" + "x" * 5000)) < 400


def test_many_times_encoded_dots_are_refused_quickly_at_any_depth():
    for depth in range(1, 300):
        with pytest.raises(LocationInvalid):
            Location.parse(f"s3://b1/t/%{'25' * depth}2e%{'25' * depth}2e/x")


def test_every_unicode_format_and_control_character_is_forbidden():
    hidden = [
        chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]
    assert [c for c in hidden if forbidden_character(f"a{c}b") is None] == []


def test_ordinary_names_pass_the_careful_check_too(monkeypatch):
    # The short cut must never pass what the careful check refuses: all strings of four tricky pieces.
    from itertools import product
    from re import fullmatch

    from policy.location import segments

    pieces = [
        "a",
        ".",
        "+",
        "%2F",
        "%2f",
        "%20",
        "%3B",
        "%2C",
        "%2E",
        "%25",
        "2e",
        "%5C",
        "%7B",
        "%00",
        "/",
        "%C3%A9",
    ]
    ordinary = [
        name
        for n in (1, 2, 3, 4)
        for name in map("".join, product(pieces, repeat=n))
        if fullmatch(ORDINARY_NAME, name)
    ]
    assert len(ordinary) > 1000
    assert [name for name in ordinary if segments._problem_with_odd.__wrapped__(name)] == []
    assert problem_with_name("a") is None


def test_schemes_have_distinct_spellings():
    spellings = [spelling for rules in SCHEMES for spelling in rules.spellings]
    assert len(spellings) == len(set(spellings))


def test_the_short_cut_answers_as_the_careful_way_does():
    valid = [case["text"] for case in VECTORS["canonical"] if case["canonical"]]
    taken = [text for text in (*valid, *(path for _, path in GRANTED)) if location._split_ordinary(text)]
    assert len(taken) > 200
    assert [text for text in taken if location._split_ordinary(text) != location._split_with_care(text)] == []


def test_a_name_by_itself_is_checked_as_one_in_a_location():
    assert problem_with_name("a\x00") == "has the control or format character U+0000"
    assert problem_with_name("") == "has an empty path segment"


def test_a_location_shows_itself_in_its_one_spelling():
    assert repr(Location.parse("abfs://c01@ACC.dfs.core.windows.net/a/")) == (
        "Location('abfss://c01@acc.dfs.core.windows.net/a')"
    )


@each_row(
    ("text", "seen"),
    [
        ("abfss://data@acme.blob.core.windows.net/a/../b", "abfss://data@acme.blob.core.windows.net/a/../b"),
        ("hdfs://nn:8020/a//b", "hdfs://nn:8020/a//b"),
        ("abfss://data:key@acme.dfs.core.windows.net/a", "abfss://***"),
        ("hdfs://me:word@nn/a", "hdfs://***"),
        ("oss://id:se/cret@bucket/a", "oss://***"),
        ("s3:/id:secret@bucket/a", "s3:/***"),
        ("s3:///id:secret@bucket/a", "s3:///***"),
        ("s3:id:secret@bucket/a", "s3:***"),
        ("s3:id:se/cret@bucket/a", "s3:***"),
        ("s3:\\\\id:secret@bucket/a", "s3:\\\\***"),
        ("//id:secret@bucket/a", "//***"),
        ("id:secret@bucket/a", "id:***"),
        ("jdbc:postgresql://id:secret@host/a", "jdbc:postgresql://***"),
        ("file:/a/10:30@b/../c", "file:/a/10:30@b/../c"),
    ],
)
def test_a_container_and_a_port_are_shown_and_credentials_are_not(text, seen):
    assert shown(text) == seen
