"""JSON that two readers could understand differently is refused."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy import strict_json
from policy.errors import MetadataInvalid, RequestInvalid
from policy.strict_json import MAX_DEPTH, parse
from tests.support.vectors import each_row


def refusal(text: bytes | str) -> str:
    with pytest.raises(RequestInvalid) as refused:
        parse(text, what="The body")
    assert refused.value.rule == "json"
    assert refused.value.hint
    return refused.value.message


def test_plain_json_is_what_it_says() -> None:
    assert parse(b'{"a": [1, 2.5, "x", null, true], "b": {}}', what="The body") == {
        "a": [1, 2.5, "x", None, True],
        "b": {},
    }


@each_row("text", ['{"a": 1, "a": 1}', '[{"x": {"a": 1, "b": 2, "a": 3}}]', '{"a": 1, "\\u0061": 2}'])
def test_a_name_given_twice_is_refused_at_every_depth(text: str) -> None:
    assert "'a' occurs twice" in refusal(text)


@each_row("text", ["NaN", "[Infinity]", "[1e999]", "-1e400", '{"a": -Infinity}'])
def test_numbers_that_json_has_not_are_refused(text: str) -> None:
    assert "not a JSON number" in refusal(text)


def test_nesting_is_bounded_and_brackets_in_strings_do_not_count() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH, what="The body")
    assert "nests deeper" in refusal("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert "nests deeper" in refusal("[" * 200_000)
    assert parse('["' + "[" * 1000 + '\\"' + "{" * 1000 + '"]', what="The body")
    assert parse("[" + "[]," * 5000 + "1]", what="The body")


@each_row("text", [b"\xff{}", b'{"a": "\xc3"}', "{", "", "{} {}", "{'a': 1}", "[1,]"])
def test_what_is_not_json_is_refused_with_the_position(text: bytes | str) -> None:
    message = refusal(text)
    assert "byte" in message or "line" in message


def test_a_number_that_is_too_long_is_refused() -> None:
    assert "too long" in refusal("9" * 10_000)


def test_the_error_is_of_the_kind_asked_for_and_names_the_text() -> None:
    with pytest.raises(MetadataInvalid, match="The table metadata is not JSON"):
        parse("{", what="The table metadata", error=MetadataInvalid)


def test_a_name_given_twice_among_very_many_is_found_in_one_pass() -> None:
    """Attack: three hundred thousand names, the last one twice; found by counting, it took hours."""
    names = ",".join(f'"{number:x}":0' for number in range(300_000))
    assert "'493df' occurs twice" in refusal(f'{{{names},"493df":0}}')


@each_row(
    ("text", "line"),
    [
        ('{"a": 1, "a": 2}', 1),
        ('{"a": {"b": 1,\n"c": "b"},\n "d": ["a", "a"],\n "\\u0061" : 2}', 4),
        ('[{"x}": "{,]",\n "a": [], "b": {}, "a": {}}]', 2),
        ('{"x": {"a": 1,\n "a": 2}, "x": 3}', 2),
        ('{"a": "\\"", "b": -1.5e3, "c": null,\n\n"a": true}', 3),
    ],
)
def test_the_line_of_a_repetition_is_named(text: str, line: int) -> None:
    assert f"'a' occurs twice in one object, the second time in line {line}." in refusal(text)


def test_the_first_repetition_is_named() -> None:
    assert "'b' occurs twice" in refusal('{"a": 1, "b": 2, "b": 3, "a": 4}')


MEND = "Correct the text there. JSON has no comments and no trailing commas."
ONCE = "Use each name once in an object."


@each_row(
    ("text", "problem", "hint"),
    [
        (b"a\xff", "is not UTF-8: byte 1 does not decode.", "Save the text in UTF-8."),
        (
            '{"a":\n 1,}',
            "is not JSON: Expecting property name enclosed in double quotes at line 2, column 4.",
            MEND,
        ),
        ("[NaN]", "is ambiguous: NaN is not a JSON number.", MEND),
        ("[" * 65, "is ambiguous: it nests deeper than 64 levels.", MEND),
        ("9" * 5000, "contains a number that is too long.", MEND),
        (
            '{"b": {"a": 1},\n"a": [{"b": 1}, "a"], "c": "a",\n"a": 2}',
            "is ambiguous: the name 'a' occurs twice in one object, the second time in line 3.",
            ONCE,
        ),
        (
            '{"a": "\\"", "' + "x" * 81 + '": 1,\n"' + "x" * 81 + '": 2}',
            f"is ambiguous: the name {'x' * 80!r} occurs twice in one object, the second time in line 2.",
            ONCE,
        ),
        (
            '[["a", "a"], {"a": ["a", "a"], "a": 1}]',
            "is ambiguous: the name 'a' occurs twice in one object, the second time in line 1.",
            ONCE,
        ),
        (
            '{"a": [],\n"b": [{"x": 1}, {"x": 1}],\n"b": 1}',
            "is ambiguous: the name 'b' occurs twice in one object, the second time in line 3.",
            ONCE,
        ),
    ],
)
def test_each_refusal_says_what_is_wrong_where_and_what_to_do(
    text: bytes | str, problem: str, hint: str
) -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse(text, what="The body")
    assert str(caught.value) == f"The body {problem} [rule=json] {hint}"


@each_row("pair", ["[]", "{}"])
def test_depth_counts_what_is_open_at_once(pair: str) -> None:
    """Brackets that are closed again, or that stand in a string, do not count."""
    one = pair if pair == "[]" else '{"a":1}'
    assert parse("[" + ",".join([one] * 100) + "]", what="The body")
    nested = {"[]": ("[", "]"), "{}": ('{"a":', "}")}[pair]
    assert parse(nested[0] * 64 + "1" + nested[1] * 64, what="The body")
    assert parse("[" + ",".join(["[" * 63 + "]" * 63] * 2) + "]", what="The body")
    with pytest.raises(RequestInvalid, match="nests deeper than 64"):
        parse(nested[0] * 65 + "1" + nested[1] * 65, what="The body")
    assert parse('["' + "[{" * 100 + '", "\\\\", "\\"' + "{[" * 100 + '"]', what="The body")


@each_row(
    ("text", "name", "line"),
    [
        ('\n{"a": 1,\n"a": 2}\n\n', "a", 3),
        ('[["b",\n"b"],\n{"a": 1, "a": 1}]', "a", 3),
        ('{"x": ["a", "a"],\n"a": [{"a": 1}],\n"a": 1}', "a", 3),
    ],
)
def test_the_name_that_is_given_twice_is_told_with_its_line(text: str, name: str, line: int) -> None:
    assert refusal(text).endswith(
        f"the name {name!r} occurs twice in one object, the second time in line {line}."
    )


def test_what_is_closed_makes_room_for_as_much() -> None:
    for deep in ("[" * 64 + "]" + "[" * 2, "[" * 63 + '{"a":{}}' + '{"a":[', "[" * 60 + "]" * 10 + "[" * 15):
        assert "nests deeper" in refusal(deep)
    assert "is not JSON" in refusal("[" * 60 + "]" * 10 + "[" * 14)


def test_what_ends_too_early_is_no_json() -> None:
    for text in ('{"a', '["' + "[" * 65, "[" * 40 + "{" * 25 + '"'):
        with pytest.raises(RequestInvalid) as caught:
            parse(text, what="The body")
        assert caught.value.rule == "json"


@each_row(
    ("text", "elements"),
    [
        ("[]", 1),
        ("[1]", 1),
        ("[1,2]", 2),
        ('{"a":1}', 2),
        ('{"a":[1,2],"b":{}}', 7),
        ('["a,b:c[{"]', 1),
        (r'["\",,,,,\\"]', 1),
    ],
)
def test_elements_are_brackets_and_separators_outside_of_strings(text: str, elements: int) -> None:
    assert parse(text, what="It", max_elements=elements) is not None
    with pytest.raises(RequestInvalid) as refusal:
        parse(text, what="It", max_elements=elements - 1)
    assert refusal.value.rule == "json-elements"


VALUES = st.recursive(
    st.none() | st.integers(0, 9) | st.text('[]{}",:\\\\a'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\\\{a'), inner, max_size=3),
)


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _elements(value: object) -> int:
    """Brackets and separators, as a text of the value has them."""
    if isinstance(value, dict):
        return max(2 * len(value), 1) + sum(map(_elements, value.values()))
    return max(len(value), 1) + sum(map(_elements, value)) if isinstance(value, list) else 0


@given(VALUES, st.booleans())
def test_depth_and_elements_are_those_of_the_value(value: object, ascii_only: bool) -> None:
    text, depth, elements = json.dumps(value, ensure_ascii=ascii_only), _depth(value), _elements(value)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strict_json, "MAX_DEPTH", depth)
        assert parse(text, what="It", max_elements=elements) == value
        for bound, fewer in ((depth - 1, elements), (depth, elements - 1)):
            patched.setattr(strict_json, "MAX_DEPTH", bound)
            if min(bound, fewer) >= 0:
                with pytest.raises(RequestInvalid, match=r"nests deeper|has more than"):
                    parse(text, what="It", max_elements=fewer)


def _met(text: str) -> int:
    """The depth that a decoder meets, which stops at a backslash outside of a string."""
    depth = most = 0
    inside, marks = False, iter(text)
    for mark in marks:
        if mark == '"':
            inside = not inside
        elif mark == "\\" and not inside:
            break
        elif mark == "\\":
            next(marks, None)
        elif not inside:
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
            most = max(most, depth)
    return most


@given(st.text('[[[{"\\\\]:a,', max_size=30))
@example('[["\\\\\\"]","\\\\",[[')
def test_a_decoder_never_meets_more_than_the_bound(text: str) -> None:
    """Attack: a text that is no JSON, in which strings end elsewhere for those who count."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strict_json, "MAX_DEPTH", 2)
        with pytest.raises(RequestInvalid) if _met(text) > 2 else suppress(RequestInvalid) as refused:
            parse(text, what="It")
    if _met(text) > 2:
        assert "nests deeper" in refused.value.message


EXPENSIVE = {
    "numbers": "[" + "1," * 100_000,
    "strings without separators": "[]" * 70 + '""' * 100_000,
    "names": "{" + '"":' * 100_000,
}


@pytest.mark.parametrize("text", EXPENSIVE.values(), ids=EXPENSIVE.keys())
def test_elements_are_counted_before_anything_is_built(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a text that costs far more than its bytes; it is refused although it is no JSON at its end."""
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(RequestInvalid) as refusal:
        parse(text, what="It", max_elements=100)
    assert refusal.value.rule == "json-elements"


@given(
    text=st.text('\\\\"[]{},:a', max_size=40).map(lambda some: "[" * 60 + some),
    size=st.integers(1, 5),
    most=st.sampled_from([70, 1000]),
)
def test_bounds_are_counted_alike_in_pieces_of_each_size(text: str, size: int, most: int) -> None:
    def is_refused() -> bool:
        try:
            strict_json._check_bounds(text, most, lambda: None)
        except ValueError:
            return True
        return False

    whole = is_refused()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strict_json, "_PIECE", size)
        assert is_refused() is whole
