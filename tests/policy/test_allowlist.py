"""The allow-list: the shared vectors, its property text, and the vectorized form against the scalar one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.errors import InvalidInput, LocationInvalid, PropertyInvalid
from policy.location import allow_list
from policy.location.allow_list import MAX_ENTRIES, AllowList, shared_directories
from policy.location.location import Location
from tests.locations.spellings import ENTRIES, paths
from tests.support.vectors import each_row

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "locations.json").read_text())
LIST = AllowList.of(["s3://b1/t", "file:///d/e"])


def decide_many(allowed, column):
    """The answers for a column, which are the same path by path and by patterns."""
    found = allowed.decide_many(column)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(allow_list, "_FEW", 0)
        assert allowed.decide_many(column).equals(found)
    return found


@each_row("case", VECTORS["cases"], count=1631, ids=lambda case: f"{case['group']}-{case['path'][:50]!a}")
def test_vectors(case):
    assert AllowList.of(case["entries"]).decide(case["path"]).allowed is case["allowed"]


def test_vectors_vectorized():
    for case in VECTORS["cases"]:
        try:
            column = pa.array([case["path"]])
        except UnicodeEncodeError:
            continue  # a lone surrogate cannot stand in an Arrow column
        assert decide_many(AllowList.of(case["entries"]), column).to_pylist() == [case["allowed"]], case


@each_row("case", VECTORS["properties"], count=35, ids=lambda case: ascii(case["text"][:50]))
def test_property_vectors(case):
    if case["entries"] is None:
        with pytest.raises(InvalidInput):
            AllowList.parse(case["text"])
    else:
        parsed = AllowList.parse(case["text"])
        assert [entry.canonical for entry in parsed.entries] == case["entries"]
        assert AllowList.parse(parsed.to_property()) == parsed


def test_there_are_enough_vectors_and_every_group_names_its_reader():
    assert len(VECTORS["cases"]) >= 200
    assert {case["group"] for case in VECTORS["cases"]} == set(VECTORS["groups"])
    assert all(VECTORS["groups"].values())


def test_a_decision_says_which_rule_and_entry():
    granted = LIST.decide("s3a://b1/t/f")
    assert granted and granted.reasons[0].rule == "allowed-paths" and "s3://b1/t" in granted.explanation
    assert LIST.decide("s3://b1/u/f").reasons[0].rule == "allowed-paths"
    assert LIST.decide("s3://b1/t/../u/f").reasons[0].rule == "location-invalid"


def test_a_refusal_does_not_repeat_the_foreign_path():
    assert "secret" not in LIST.decide("s3://other/secret").explanation


def test_a_parsed_location_is_decided_like_its_text():
    assert LIST.decide(Location.parse("file:/d/e/f"))
    assert not LIST.decide(Location.parse("file:/d/ef"))


def test_a_bucket_is_covered_but_is_no_object():
    bucket = AllowList.of(["s3://b1"])
    assert bucket.covers(Location.parse("s3://b1"))
    assert not bucket.decide("s3://b1/")


def test_covers_directories():
    assert LIST.covers(Location.parse("s3://b1/t"))
    assert LIST.covers(Location.parse("s3://b1/t/u"))
    assert not LIST.covers(Location.parse("s3://b1"))


def test_the_empty_list_allows_nothing():
    for empty in (AllowList.of([]), AllowList.parse(""), AllowList.parse("[]")):
        assert not empty.decide("s3://b1/t/f")
        assert not empty.covers(Location.parse("s3://b1/t"))
        assert decide_many(empty, pa.array(["s3://b1/t/f", None])).to_pylist() == [False, False]
        assert empty.to_property() == "[]"


def test_too_many_entries_are_refused():
    assert len(AllowList.of(f"s3://b1/t{i}" for i in range(MAX_ENTRIES)).entries) == MAX_ENTRIES
    with pytest.raises(PropertyInvalid):
        AllowList.of(f"s3://b1/t{i}" for i in range(MAX_ENTRIES + 1))
    with pytest.raises(PropertyInvalid):
        AllowList.parse("s3://b1/t," * 500_000)


def test_a_single_string_is_no_collection():
    with pytest.raises(PropertyInvalid):
        AllowList.of("s3://b1/t")


def test_an_empty_entry_is_a_fault_of_the_list():
    with pytest.raises(PropertyInvalid):
        AllowList.parse("s3://b1/a,,s3://b1/c")


def test_one_bad_entry_refuses_the_list():
    with pytest.raises(LocationInvalid):
        AllowList.of(["s3://b1/t", "s3://b1/../u"])


def test_an_entry_with_a_comma_goes_round_as_json():
    listed = AllowList.of(["s3://b1/a,b", 's3://b1/quote"d'])
    assert listed.to_property().startswith("[")
    assert AllowList.parse(listed.to_property()) == listed


@each_row(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_every_arrow_string_type_is_decided(kind):
    paths = ["s3://b1/t/f", None, "s3://b1/u/f", "file:/d/e/ä", "s3://b1/t/f"]
    column = pa.array(paths).cast(kind)
    assert decide_many(LIST, column).to_pylist() == [True, False, False, True, True]
    assert decide_many(LIST, column.slice(2, 2)).to_pylist() == [False, True]
    assert decide_many(LIST, pa.chunked_array([column, column.slice(3)])).to_pylist() == [
        True, False, False, True, True, True, True,
    ]  # fmt: skip


def test_nothing_but_nulls_and_nothing_at_all():
    assert decide_many(LIST, pa.nulls(3)).to_pylist() == [False] * 3
    assert decide_many(LIST, pa.chunked_array([], pa.string())).to_pylist() == []
    assert decide_many(LIST, pa.array([], pa.string())).type == pa.bool_()


def test_other_columns_are_a_programming_error():
    with pytest.raises(TypeError):
        decide_many(LIST, pa.array([1, 2]))


def test_malformed_utf8_in_a_column_is_refused():
    raw = pa.array([b"s3://b1/t/\xff", b"s3://b1/t/f", b"\xff", b"s3://b1/t/\xc0\xae\xc0\xae/f"])
    column = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    assert decide_many(LIST, column).to_pylist() == [False, True, False, False]


def test_more_entries_than_one_pattern_holds():
    many = AllowList.of([f"s3://b1/t{i}" for i in range(300)] + ["s3://b2"])
    paths = ["s3://b1/t0/f", "s3a://b1/t299/f", "s3://b1/t300/f", "s3://b2/f", "s3://b2", "s3://b1/t299/../f"]
    assert decide_many(many, pa.array(paths)).to_pylist() == [True, True, False, True, False, False]


def test_bounds_hold_in_the_vectorized_form():
    paths = ["file:///d/e/" + "x" * n for n in (240, 244, 255, 256)] + [
        "s3://b1/t/" + "x" * n for n in (1022, 1023)
    ]
    assert decide_many(LIST, pa.array(paths)).to_pylist() == [True, True, True, False, True, False]


@st.composite
def _columns(draw: st.DrawFn) -> tuple[list[str], list[str | None]]:
    """Entries, and a column of paths in which directories and names occur again, in every combination."""
    entries = draw(st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=4))
    found = draw(st.lists(st.sampled_from(entries).flatmap(paths), min_size=2, max_size=5))
    names = draw(
        st.lists(st.sampled_from(["f", "f.", "C:x", "x" * 250, "", "..", "a b"]) | st.text(), max_size=3)
    )
    column = [*found, *(f"{path}/{name}" for path in (*found, *entries) for name in names)]
    return entries, draw(st.permutations([*column, *column, None, *entries]))


@settings(
    max_examples=settings.default.max_examples,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(_columns())
def test_vectorized_and_scalar_form_agree(drawn):
    entries, column = drawn
    allowed = AllowList.of(entries)
    encodable = [path for path in column if path is None or not re.search("[\ud800-\udfff]", path)]
    scalar = [path is not None and allowed.decide(path).allowed for path in encodable]
    assert decide_many(allowed, pa.array(encodable, pa.string())).to_pylist() == scalar


@settings(
    max_examples=settings.default.max_examples,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(_columns(), st.integers(1, 4))
def test_directories_decide_for_all_of_their_paths_or_for_none(drawn, count):
    entries, column = drawn
    allowed = AllowList.of(entries)
    encodable = [path for path in column if path is not None and not re.search("[\ud800-\udfff]", path)]
    for some in (encodable, encodable[:count], [*encodable[:1], *(f"{each}/f" for each in entries)]):
        paths = pa.chunked_array([pa.array(some, pa.string())])
        directories = shared_directories(paths, 100)
        if directories is not None and allowed.allows_directories(directories):
            assert decide_many(allowed, paths).true_count == len(some)


def test_directories_of_ordinary_names_decide():
    paths = pa.chunked_array([["s3://b1/t/a/f.parquet", "s3://b1/t/b/g.parquet", "s3://b1/t/a/h"]])
    assert shared_directories(paths, 2) == ("s3://b1/t/a", "s3://b1/t/b")
    assert shared_directories(paths, 1) is None
    assert AllowList.of(["s3://b1/t"]).allows_directories(["s3://b1/t/a", "s3://b1/t/b"])
    assert not AllowList.of(["s3://b1/t/a"]).allows_directories(["s3://b1/t/a", "s3://b1/t/b"])
    for odd in ("s3://b1/t/..", "f", "", "s3://b1/t/a b", None):
        assert shared_directories(pa.chunked_array([[*paths.to_pylist(), odd]], pa.string()), 9) is None


def test_the_file_that_is_an_entry_is_found_beside_others_of_its_directory():
    one = AllowList.of(["hdfs://nn:8020/d \u6771/f", "s3://b1/%25/g"])
    column = [
        "hdfs://NN:8020/d \u6771/f",
        "hdfs://nn:8020/d \u6771/g",
        "s3a://b1/%25/g",
        "s3://b1/%25/h",
        "s3://b1/%25/",
    ]
    assert decide_many(one, pa.array(column * 2)).to_pylist() == [True, False, True, False, False] * 2


def test_an_odd_directory_with_bytes_that_are_no_text_is_refused():
    raw = pa.array(
        [b"s3://b1/t/\xe9 x/f", "s3://b1/t/\u00e9 x/f".encode(), b"s3://b1/t/a b/\xff", b"s3://b1/t/a b/f"]
    )
    column = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    assert decide_many(LIST, column).to_pylist() == [False, True, False, True]


LIST_HINT = "Write locations separated by commas, or a JSON array of strings if a path contains a comma."


@each_row(
    ("build", "problem", "hint"),
    [
        (
            lambda: AllowList.of("s3://b1/t"),
            "is one string instead of a collection",
            "Use AllowList.parse for a text.",
        ),
        (
            lambda: AllowList.of(["s3://b1/t"] * 1001),
            "has more than 1000 entries",
            "List common parent directories instead.",
        ),
        (
            lambda: AllowList.parse("s" * 4_000_001),
            "is longer than 4000000 characters",
            "List common parent directories instead.",
        ),
        (lambda: AllowList.parse("s3://b1/a,,s3://b1/c"), "has an empty entry between commas", LIST_HINT),
        (lambda: AllowList.parse('["s3://b1/a", 7]'), "is not a JSON array of strings", LIST_HINT),
    ],
)
def test_each_refusal_says_what_is_wrong_and_what_to_do(build, problem, hint):
    with pytest.raises(PropertyInvalid) as refused:
        build()
    assert str(refused.value) == (
        f"The list of allowed locations (`read.allowed.data.paths`) {problem}. [rule=allowed-paths] {hint}"
    )


def test_a_list_that_is_no_json_is_refused_as_such():
    with pytest.raises(PropertyInvalid) as refused:
        AllowList.parse('["s3://b1/a"')
    assert refused.value.message.startswith(
        "The list of allowed locations (`read.allowed.data.paths`) is not JSON:"
    )


def test_a_list_may_be_as_long_as_the_bound():
    text = "s3://b1/a" + " " * (4_000_000 - 9)
    assert AllowList.parse(text) == AllowList.of(["s3://b1/a"])


def test_blanks_around_entries_are_ignored_and_no_others():
    assert AllowList.parse(" s3://b1/a\t,\r\ns3://b1/c\n") == AllowList.of(["s3://b1/a", "s3://b1/c"])
    with pytest.raises(LocationInvalid):
        AllowList.parse("s3://b1/a,\u00a0s3://b1/c")
    with pytest.raises(LocationInvalid):
        AllowList.parse("s3://b1/a\u00a0,s3://b1/c")


@each_row(
    ("entries", "text"),
    [
        (["s3a://b1/a/", "s3://b1/c"], "s3://b1/a,s3://b1/c"),
        (["s3://b1/a", "s3://b1/c,d"], '["s3://b1/a", "s3://b1/c,d"]'),
        (["s3://b1/\u00e4,"], '["s3://b1/\u00e4,"]'),
    ],
)
def test_a_list_is_written_plainly_unless_an_entry_has_a_comma(entries, text):
    assert AllowList.of(entries).to_property() == text


@each_row(
    ("path", "rule", "detail"),
    [
        (
            "s3a://b1/t/f",
            "allowed-paths",
            "The location is in the entry s3://b1/t of `read.allowed.data.paths`.",
        ),
        (
            "s3://b1/u/f",
            "allowed-paths",
            "The location is outside of every entry of `read.allowed.data.paths`.",
        ),
        ("s3://b1", "location-invalid", "The location names a bucket, not an object."),
        ("b1/t/f", "location-invalid", "The location has no scheme."),
    ],
)
def test_a_decision_says_why(path, rule, detail):
    (reason,) = LIST.decide(path).reasons
    assert (reason.rule, reason.detail) == (rule, detail)


def test_the_first_entry_that_contains_a_path_is_named():
    nested = AllowList.of(["s3://b1/t/u", "s3://b1/t", "s3://b1"])
    assert "entry s3://b1/t of" in nested.decide("s3://b1/t/f").explanation
    assert "entry s3://b1/t/u of" in nested.decide("s3://b1/t/u/f").explanation


def test_columns_longer_than_a_slice_are_decided_row_by_row(monkeypatch):
    monkeypatch.setattr(allow_list, "_ROWS", 2)
    monkeypatch.setattr(allow_list, "_BATCH", 2)
    many = AllowList.of([f"s3://b1/t{number}" for number in range(5)])
    paths = [f"s3://b1/t{number}/f" for number in range(7)]
    assert decide_many(many, pa.array(paths)).to_pylist() == [True] * 5 + [False] * 2


def test_ordinary_paths_need_no_closer_look(monkeypatch):
    """Speed depends on it: a path of ordinary names in an entry is decided by a pattern alone."""
    monkeypatch.setattr(
        AllowList, "_decide_with_care", lambda self, paths: pytest.fail(f"a closer look at {paths}")
    )
    some = AllowList.of(["s3://b1/t", "s3://b2", "file:///d/e", "s3://b1/a b", "hdfs://NN:8020/x"])
    paths = ["s3a://b1/t", "s3n://b1/t/x=1/f.parquet", "s3://b2/f", "file:/d/e/f", "file:///d/e/f/",
             "s3://b1/a b/c%2Fd", "hdfs://nn:8020/x/y", "s3://b1/t/" + "x" * 1000]  # fmt: skip
    assert decide_many(some, pa.array(paths)).to_pylist() == [True] * len(paths)


def test_a_directory_in_an_entry_is_looked_at_once(monkeypatch):
    """Speed depends on it: odd names in the directory do not make each file be parsed."""
    parsed = []
    real = Location.parse
    monkeypatch.setattr(allow_list.Location, "parse", lambda text: parsed.append(text) or real(text))
    paths = [f"s3://b1/t/a b/f{number}" for number in range(50)]
    assert LIST.decide_many(pa.array(paths)).to_pylist() == [True] * 50
    assert parsed == ["s3://b1/t/a b/x"]
