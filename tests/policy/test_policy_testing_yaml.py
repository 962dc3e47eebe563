"""Files of cases mean one thing to every reader of YAML, or are refused with their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import RequestInvalid
from policy.fields import MAX_TEXT_LENGTH, Field
from policy.testing.strict_yaml import MAX_SIZE, parse
from tests.support.vectors import each_row


def refused(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    with pytest.raises(RequestInvalid) as caught:
        parse("f.yaml", data)
    assert caught.value.rule == "policy-test"
    return caught.value.message


def value(text: str) -> Field:
    return parse("f.yaml", text.encode())["a"]


@each_row(
    "word",
    ["no", "No", "ON", "off", "y", "yes", "true", "False", "null", "~", "~x", ".inf", ".NaN", "1e3", "012",
     "0x1F", "1_000", "+1", "-x", "2030-01-31", "12:30:45", ".5", ".", "..", "=", "<<"],
)  # fmt: skip
def test_what_some_reader_takes_for_another_type_stands_in_quotes(word: str) -> None:
    assert refused(f"b: {{a: {word}}}").startswith("f.yaml, line 1, column 8, b.a: ")
    assert refused(f"{word}: b").startswith("f.yaml, line 1, column 1: ")
    assert value(f"a: '{word}'").text() == value(f'a: "{word}"').text() == word


def test_names_and_paths_need_no_quotes() -> None:
    for text in ("table:sales.orders", "s3://lake/x", "../policies", "./x", "noon", "one", "a1e3", "x=1"):
        assert value(f"a: {text}").text() == text


@each_row(
    ("text", "place", "what"),
    [
        ("", "line 1, column 1", "the file is empty"),
        ("# nothing\n", "line 1, column 1", "the file is empty"),
        ("a: b\na: c", "line 2, column 1", "the field 'a' occurs twice"),
        ("a: b\n'a': c", "line 2, column 1", "the field 'a' occurs twice"),
        ("a: &x b", "line 1, column 4", "anchors"),
        ("a: &x [b]", "line 1, column 4", "anchors"),
        ("a: *x", "line 1, column 4", "anchors"),
        ("&x a: b", "line 1, column 1", "anchors"),
        ("a: !!python/object:os.system b", "line 1, column 4", "tags are not supported"),
        ("a: !!str b", "line 1, column 4", "tags are not supported"),
        ("a: !!map {b: c}", "line 1, column 4", "tags are not supported"),
        ("%YAML 1.1\n---\na: b", "line 1, column 1", "directives are not supported"),
        ("%TAG !e! tag:x,2000:\n---\na: b", "line 1, column 1", "directives are not supported"),
        ("--- {a: b}\n--- {a: b}", "line 2, column 1", "a second document"),
        ("? [a]\n: b", "line 1, column 3", "a field name must be a string"),
        ("? {a: b}\n: b", "line 1, column 3", "a field name must be a string"),
        ("a:\nb: c", "line 1, column 3, a", "the value is missing"),
        ("a: [b, ]\nc:\n  - ", "line 3, column 4, c[0]", "the value is missing"),
        ("a: {b: c", "line 1, column 9", "this is not YAML"),
        ("a: b: c", "line 1, column 5", "this is not YAML"),
        ("a: \tb\n\tc: d", "line 1", "this is not YAML"),
        ('a: "\\UFFFFFFFF"', "line 1, column 1", "invalid escape or number"),
        ("%YAML " + "9" * 5000 + ".1\n---\na: b", "line 1, column 1", "invalid escape or number"),
        ("a: b\nc: \u200bd", "line 2, column 4", "the invisible character U+200B"),
        ("a: b\nc: \u202ed", "line 2, column 4", "the invisible character U+202E"),
        ("a: \x00", "line 1, column 4", "the invisible character U+0000"),
        ("[" * 100_000, "line 1, column 10", "nested deeper than 8"),
        ("- " * 50_000, "line 1, column 19", "nested deeper than 8"),
        ("{a: " * 1000, "line 1", "nested deeper than 8"),
        ('"": b', "line 1, column 1", "the string is empty"),
        ('"\\ud800": b', "line 1, column 1", "surrogate"),
        ('"\\u200b": b', "line 1, column 1", "the character U+200B"),
    ],
)
def test_each_refusal_says_where(text: str, place: str, what: str) -> None:
    message = refused(text)
    assert message.startswith(f"f.yaml, {place}") and what in message


def test_bytes_that_are_no_text_and_files_without_measure_are_refused() -> None:
    assert refused(b"a: b\nc: \xff").startswith("f.yaml, line 2, column 1: byte 8 is not UTF-8")
    assert "more than" in refused(b"#" * (MAX_SIZE + 1))


def test_a_byte_order_mark_and_other_line_ends_change_nothing() -> None:
    top = parse("f", b"\xef\xbb\xbfa: b\r\nc:\r\n  - d\r\n")
    assert (top["a"].text(), top["c"].lines(), top["c"].line) == ("b", ("d",), 2)


def test_what_is_invisible_is_written_as_an_escape_and_has_its_place_in_sql_alone() -> None:
    escaped = value('a: "t\\u200bable"')
    assert escaped.text() == "t\u200bable"
    with pytest.raises(RequestInvalid, match=r"U\+200B"):
        escaped.line_of_text()


@each_row(
    ("text", "read", "what"),
    [
        ("a: b", "names", "a: expected an object, got a string"),
        ("a: [b]", "names", "expected an object, got a list"),
        ("a: {}", "names", "the object is empty"),
        ("a: {b: c}", "elements", "expected a list, got an object"),
        ("a: []", "elements", "the list is empty"),
        ("a: [b]", "text", "expected a string, got a list"),
        ("a: ' '", "text", "the string is empty"),
        ('a: "\\ud800"', "text", "surrogate"),
        (f"a: {'x' * (MAX_TEXT_LENGTH + 1)}", "text", "at most 65536"),
        ("a: [b, c, b]", "lines", "a[2]: 'b' is listed twice"),
        ("a: [[b]]", "lines", "a[0]: expected a string, got a list"),
    ],
)
def test_a_value_of_another_type_is_not_converted(text: str, read: str, what: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        list(getattr(value(text), read)())
    assert what in caught.value.message and "line 1, column" in caught.value.message


def test_unknown_names_and_words_are_refused_with_those_that_are_known() -> None:
    top = parse("f", b"a: b\nx: c")
    with pytest.raises(RequestInvalid, match=r"line 2, column 1, x: unknown field .x.*Use one of: a"):
        top.members(frozenset({"a"}))
    with pytest.raises(RequestInvalid, match="'b' is not one of allow, deny"):
        top["a"].choice("allow", "deny")


@given(st.text(max_size=60) | st.text(alphabet="ab:-[]{}&*!|>'\"%#?,\n \t~0.\\u", max_size=60))
def test_whatever_stands_in_a_file_it_is_read_or_refused(text: str) -> None:
    try:
        found = parse("f", text.encode("utf-8", "surrogatepass"))
    except RequestInvalid as error:
        assert error.message.startswith("f, line ")
    else:
        assert isinstance(found, Field)


QUOTES = "Quote the value."
NO_TAG = "tags are not supported. Remove the part that begins with an exclamation mark."
NO_ANCHOR = "anchors and aliases are not supported. Write the value in full."
NO_DIRECTIVE = "directives are not supported."
TOLD = {
    "": "1:1: the file is empty. Add cases, or remove the file.",
    "a: b\na: c": "2:1: the field 'a' occurs twice.",
    f"{'k' * 81}: b\n{'k' * 81}: b": f"2:1: the field {'k' * 80!r} occurs twice.",
    "a: &x b": f"1:4, a: {NO_ANCHOR}",
    "a: [b, *x]": f"1:8, a[1]: {NO_ANCHOR}",
    "a: !!str b": f"1:4, a: {NO_TAG}",
    "a: {b: !!map {c: d}}": f"1:8, a.b: {NO_TAG}",
    "%YAML 1.1\n---\na: b": f"1:1: {NO_DIRECTIVE}",
    "%TAG !e! tag:x,2000:\n---\na: b": f"1:1: {NO_DIRECTIVE}",
    "--- {a: b}\n--- {a: b}": "2:1: the file contains a second document. Move it to another file.",
    "? [a]\n: b": "1:3: a field name must be a string.",
    "a:\nb: c": "1:3, a: the value is missing. Add a value, or omit the field.",
    "a: {b: c, d: no}": f"1:14, a.d: 'no' is not a string to every YAML parser. {QUOTES}",
    f"a: {'9' * 81}": f"1:4, a: {'9' * 80!r} is not a string to every YAML parser. {QUOTES}",
    f"x: {{{'k' * 81}: no}}": f"1:88, x.{'k' * 80}: 'no' is not a string to every YAML parser. {QUOTES}",
    "a: {b: c": "1:9: this is not YAML: expected ',' or '}', but got '<stream end>'.",
    'a: "\\UFFFFFFFF"': "1:1: the file has an invalid escape or number.",
    "\u00e4: b\nc: \u200bd": "2:4: the file contains the invisible character U+200B. Write it as an escape.",
    "\u200ba\nb: c": "1:1: the file contains the invisible character U+200B. Write it as an escape.",
    '"a\\u200b": b': "1:1: the character U+200B is not allowed.",
    "[" * 10 + "]" * 10: "1:10, [0][0][0][0][0][0][0][0][0]: values are nested deeper than 8 levels.",
}


@each_row("text", TOLD, count=21)
def test_each_refusal_is_told_in_these_words(text: str) -> None:
    line, _, told = TOLD[text].partition(":")
    with pytest.raises(RequestInvalid) as caught:
        parse("f.yaml", text.encode())
    shown = str(caught.value).replace(" [rule=policy-test]", "")
    assert shown == f"f.yaml, line {line}, column {told}"


def test_a_file_may_be_as_large_and_as_deep_as_the_bounds() -> None:
    assert parse("f", b"a: b #" + b"x" * (MAX_SIZE - 6))["a"].text() == "b"
    assert parse("f", b"[" * 8 + b"b" + b"]" * 8)
    assert value(f"a: {'x' * MAX_TEXT_LENGTH}").text() == "x" * MAX_TEXT_LENGTH
    with pytest.raises(RequestInvalid) as caught:
        parse("f", b"#" * (MAX_SIZE + 1))
    assert str(caught.value) == (
        "f, line 1, column 1: the file has more than 1048576 bytes. [rule=policy-test] Split it."
    )


def test_the_place_of_a_bad_byte_is_its_line() -> None:
    assert refused(b"\n\n\xff\n") == "f.yaml, line 3, column 1: byte 2 is not UTF-8."
    assert refused(b"\xff\n") == "f.yaml, line 1, column 1: byte 0 is not UTF-8."


@each_row(
    ("text", "read", "told"),
    [
        ("a: b", "names", "expected an object, got a string."),
        ("a: [b]", "names", "expected an object, got a list."),
        ("a: {}", "names", "the object is empty. Omit the field."),
        ("a: {b: c}", "elements", "expected a list, got an object."),
        ("a: []", "elements", "the list is empty. Omit the field."),
        ("a: [b]", "text", "expected a string, got a list."),
        ("a: {b: c}", "text", "expected a string, got an object."),
        ("a: ' '", "text", "the string is empty."),
        ('a: "\\ud800"', "text", "the string contains a lone surrogate."),
        (f"a: {'x' * 65537}", "text", "the string has 65537 characters, but at most 65536 are allowed."),
        ('a: "b\\tc"', "line_of_text", "the character U+0009 is not allowed."),
    ],
)
def test_a_value_that_is_not_what_is_expected_is_told_in_these_words(text: str, read: str, told: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        list(getattr(value(text), read)())
    shown = str(caught.value).replace(" [rule=policy-test]", "")
    assert shown == f"f.yaml, line 1, column 1, a: {told}"


def test_what_is_known_and_what_is_given_twice_are_told_in_these_words() -> None:
    top = parse("f", b"a: " + b"b" * 81 + b"\nx: [c, d, c]")
    for read, told in (
        (
            lambda: top.members(frozenset({"z", "a"})),
            "2, column 1, x: unknown field 'x'. [rule=policy-test] Use one of: a, z.",
        ),
        (
            lambda: top["a"].choice("allow", "deny"),
            f"1, column 1, a: {'b' * 80!r} is not one of allow, deny. [rule=policy-test]",
        ),
        (lambda: top["x"].lines(), "2, column 11, x[2]: 'c' is listed twice. [rule=policy-test]"),
    ):
        with pytest.raises(RequestInvalid) as caught:
            read()
        assert str(caught.value) == f"f, line {told}"


def test_a_field_that_is_left_out_has_the_place_of_the_object_without_it() -> None:
    case = parse("f.yaml", b"z: w\na:\n  b: c\n")["a"]
    assert (case.line, case["b"].line, case["x"].line, case["x"]["y"].line) == (2, 3, 2, 2)
