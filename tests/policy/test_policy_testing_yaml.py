"""Files of cases mean one thing to every reader of YAML, or are refused with their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import RequestInvalid
from policy.testing.strict_yaml import MAX_SIZE, MAX_TEXT, Node, parse


def refused(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    with pytest.raises(RequestInvalid) as caught:
        parse("f.yaml", data)
    assert caught.value.rule == "policy-test"
    return caught.value.message


def value(text: str) -> Node:
    return parse("f.yaml", text.encode()).members()["a"]


@pytest.mark.parametrize(
    "word",
    ["no", "No", "ON", "off", "y", "yes", "true", "False", "null", "~", "~x", ".inf", ".NaN", "1e3", "012",
     "0x1F", "1_000", "+1", "-x", "2030-01-31", "12:30:45", ".5", ".", "..", "=", "<<"],
)  # fmt: skip
def test_what_some_reader_takes_for_another_type_stands_in_quotes(word: str) -> None:
    assert refused(f"b: {{a: {word}}}").startswith("f.yaml, line 1, column 8: b.a: ")
    assert refused(f"{word}: b").startswith("f.yaml, line 1, column 1: ")
    assert value(f"a: '{word}'").text() == value(f'a: "{word}"').text() == word


def test_names_and_paths_need_no_quotes() -> None:
    for text in ("table:sales.orders", "s3://lake/x", "../policies", "./x", "noon", "one", "a1e3", "x=1"):
        assert value(f"a: {text}").text() == text


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", "line 1, column 1", "the file is empty"),
        ("# nothing\n", "line 1, column 1", "the file is empty"),
        ("a: b\na: c", "line 2, column 1", "'a' is given twice"),
        ("a: b\n'a': c", "line 2, column 1", "'a' is given twice"),
        ("a: &x b", "line 1, column 4", "anchors"),
        ("a: &x [b]", "line 1, column 4", "anchors"),
        ("a: *x", "line 1, column 4", "anchors"),
        ("&x a: b", "line 1, column 1", "anchors"),
        ("a: !!python/object:os.system b", "line 1, column 4", "a tag"),
        ("a: !!str b", "line 1, column 4", "a tag"),
        ("a: !!map {b: c}", "line 1, column 4", "a tag"),
        ("%YAML 1.1\n---\na: b", "line 1, column 1", "a directive"),
        ("%TAG !e! tag:x,2000:\n---\na: b", "line 1, column 1", "a directive"),
        ("--- {a: b}\n--- {a: b}", "line 2, column 1", "a second document"),
        ("? [a]\n: b", "line 1, column 3", "a name in a mapping is a text"),
        ("? {a: b}\n: b", "line 1, column 3", "a name in a mapping is a text"),
        ("a:\nb: c", "line 1, column 3", "a: nothing stands here"),
        ("a: [b, ]\nc:\n  - ", "line 3, column 4", "c[0]: nothing stands here"),
        ("a: {b: c", "line 1, column 9", "this is not YAML"),
        ("a: b: c", "line 1, column 5", "this is not YAML"),
        ("a: \tb\n\tc: d", "line 1", "this is not YAML"),
        ('a: "\\UFFFFFFFF"', "line 1, column 1", "means nothing"),
        ("%YAML " + "9" * 5000 + ".1\n---\na: b", "line 1, column 1", "means nothing"),
        ("a: b\nc: \u200bd", "line 2, column 4", "the character U+200B"),
        ("a: b\nc: \u202ed", "line 2, column 4", "the character U+202E"),
        ("a: \x00", "line 1, column 4", "the character U+0000"),
        ("[" * 100_000, "line 1, column 10", "nests deeper than 8"),
        ("- " * 50_000, "line 1, column 19", "nests deeper than 8"),
        ("{a: " * 1000, "line 1", "nests deeper than 8"),
        ('"": b', "line 1, column 1", "an empty text"),
        ('"\\ud800": b', "line 1, column 1", "surrogates"),
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
    top = parse("f", b"\xef\xbb\xbfa: b\r\nc:\r\n  - d\r\n").members()
    assert (top["a"].text(), top["c"].texts(), top["c"].line) == ("b", ("d",), 2)


def test_what_is_invisible_is_written_as_an_escape_and_has_its_place_in_sql_alone() -> None:
    escaped = value('a: "t\\u200bable"')
    assert escaped.text() == "t\u200bable"
    with pytest.raises(RequestInvalid, match=r"U\+200B"):
        escaped.line_of_text()


@pytest.mark.parametrize(
    ("text", "read", "what"),
    [
        ("a: b", "members", "a: a mapping is expected, not a text"),
        ("a: [b]", "members", "a mapping is expected, not a list"),
        ("a: {}", "members", "an empty mapping"),
        ("a: {b: c}", "elements", "a list is expected, not a mapping"),
        ("a: []", "elements", "an empty list"),
        ("a: [b]", "text", "a text is expected, not a list"),
        ("a: ' '", "text", "an empty text"),
        ('a: "\\ud800"', "text", "surrogates"),
        (f"a: {'x' * (MAX_TEXT + 1)}", "text", "at most"),
        ("a: [b, c, b]", "texts", "a[2]: 'b' is given twice"),
        ("a: [[b]]", "texts", "a[0]: a text is expected, not a list"),
    ],
)
def test_a_value_of_another_type_is_not_converted(text: str, read: str, what: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        getattr(value(text), read)()
    assert what in caught.value.message and "line 1, column" in caught.value.message


def test_unknown_names_and_words_are_refused_with_those_that_are_known() -> None:
    top = parse("f", b"a: b\nx: c")
    with pytest.raises(RequestInvalid, match=r"line 2, column 1: x: the name is unknown here.*Known are: a"):
        top.fields("a")
    with pytest.raises(RequestInvalid, match="'b' is none of allow, deny"):
        top.members()["a"].choice("allow", "deny")


@given(st.text(max_size=60) | st.text(alphabet="ab:-[]{}&*!|>'\"%#?,\n \t~0.\\u", max_size=60))
def test_whatever_stands_in_a_file_it_is_read_or_refused(text: str) -> None:
    try:
        found = parse("f", text.encode("utf-8", "surrogatepass"))
    except RequestInvalid as error:
        assert error.message.startswith("f, line ")
    else:
        assert isinstance(found, Node)
