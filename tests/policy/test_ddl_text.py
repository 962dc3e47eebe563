"""Text becomes statements where every reader would see the same ones; places are right; nothing gets out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policy.sql_lint import Dialect
from policy.sql_lint.lexer import MAX_CHARACTERS, MAX_TOKENS, Kind, tokens_of
from policy.sql_lint.parse import MAX_STATEMENTS
from policy.sql_lint.problems import Problem
from tests.support.ddl import answers, needs, rule, the_answer
from tests.support.vectors import each_row

DIALECTS: tuple[Dialect, ...] = ("spark", "hive")

#: Pieces that scripts are made of, and those that make trouble.
WORDS = (
    "CREATE TABLE ALTER DROP SET UNSET TBLPROPERTIES OPTIONS LOCATION SELECT FROM WHERE INSERT INTO VALUES "
    "WITH AS USING iceberg lake db t ( ) , . ; = * ' ` -- /* */ /*+ ${ {{ 1 1.5 'a' 'k'='v' "
    "read.allowed.data.paths 's3://x/y' encryption.mechanism"
)
PIECES = st.sampled_from(
    [*WORDS.split(), '"', '"b"', "\\", "\n", "\r\n", "\r", "\u017f", "\u00a0", "\ufeff", "é"]
)
STRINGS = st.text(
    st.characters(exclude_characters="\\'$", exclude_categories=("Cs", "Cc")), max_size=20
).filter(lambda text: not any(mark in text for mark in ("{{", "{%", "{#")))


def _repeated(start: str, piece: str, times: int) -> str:
    return start + piece * times


@given(st.lists(PIECES, max_size=30).map(" ".join), st.sampled_from(DIALECTS))
def test_whatever_a_script_says_is_answered(text: str, dialect: Dialect) -> None:
    for answer in answers(text, dialect=dialect):
        assert answer.decision.reasons
        assert 1 <= answer.line <= text.count("\n") + 1
        assert answer.column >= 1


@given(st.text(max_size=40), st.sampled_from(DIALECTS))
def test_nothing_but_blanks_and_comments_is_passed_over(text: str, dialect: Dialect) -> None:
    try:
        tokens = list(tokens_of(text, hive=dialect == "hive"))
    except Problem as problem:
        assert 0 <= problem.at <= len(text)
        return
    at = 0
    for start, end in [*((each.start, each.end) for each in tokens), (len(text), len(text))]:
        between = text[at:start].removeprefix("\ufeff") if at == 0 else text[at:start]
        assert not between.strip(" \t\r\n") or "--" in between or "/*" in between
        at = end


@given(STRINGS, STRINGS)
def test_a_string_holds_whatever_is_in_it(value: str, other: str) -> None:
    sql = "SELECT a AS x FROM lake.s.t WHERE b = 'VALUE'; DROP TABLE lake.s.t -- '"
    first, second = answers(sql.replace("VALUE", value))
    assert needs(first) == ["select table s.t", "select column s.t.a", "select column s.t.b"]
    assert needs(second) == ["drop table s.t"]
    commented = the_answer(f"COMMENT ON TABLE lake.s.t IS '{value}''{other}'")
    assert needs(commented) == ["alter table s.t"]


@given(
    st.integers(0, 5),
    st.integers(0, 9),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "-- c", "/* c */"]),
)
def test_places_are_lines_and_columns(lines: int, blanks: int, end: str, comment: str) -> None:
    sql = (comment + end) * lines + " " * blanks + "DROP TABLE lake.s.t"
    answer = the_answer(sql)
    assert (answer.line, answer.column) == (lines + 1, blanks + 1)
    refused = the_answer(f"{sql} NOW")
    assert (refused.line, refused.column) == (lines + 1, blanks + 21)


@given(
    st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="`/\\."),
        min_size=1,
        max_size=12,
    )
)
def test_a_name_in_backticks_is_literal(name: str) -> None:
    if any(mark in name for mark in ("${", "{{", "{%", "{#")):
        assert rule(the_answer(f"DROP TABLE lake.s.`{name}`")) == "filled-in"
        return
    assert needs(the_answer(f"DROP TABLE lake.s.`{name}`")) == [f"drop table s.{name}"]


@each_row(
    ("sql", "expected", "at"),
    [
        ("-- see \\\nDROP TABLE lake.s.t", "comment", (1, 8)),
        ("SELECT 1 -- a\rDROP TABLE lake.s.t", "comment", (1, 14)),
        ("/* /* */ DROP TABLE lake.s.t -- */", "comment", (1, 1)),
        ("SELECT 1 /* open", "comment", (1, 10)),
        ("SELECT 'open; DROP TABLE lake.s.t", "string", (1, 8)),
        ("SELECT r'\\'; DROP TABLE lake.s.t -- '", "string", (1, 8)),
        ("SELECT `open", "name", (1, 8)),
        ("\u017fELECT 1", "character", (1, 1)),
        ("DROP\u00a0TABLE lake.s.t", "character", (1, 5)),
        ("DROP TABLE lake.s.größe", "character", (1, 21)),
        ("SELECT 1;\ufeffSELECT 2", "character", (1, 10)),
        ("SELECT 1\x00", "character", (1, 9)),
        ("DROP TABLE lake.s.${t}", "filled-in", (1, 19)),
        ("SELECT 1 -- ${t}", "filled-in", (1, 10)),
        ("SELECT '{{ t }}'", "filled-in", (1, 8)),
        ("SELECT {% raw %} 1", "filled-in", (1, 8)),
        ("SELECT /*+ BROADCAST('x') */ 1", "hint", (1, 8)),
    ],
)
def test_what_readers_read_differently_ends_the_reading(sql: str, expected: str, at: tuple[int, int]) -> None:
    *_, last = answers(f"{sql}\n; DROP TABLE lake.s.other")
    assert rule(last) == expected
    assert (last.line, last.column) == at


@each_row("comment", ["/* a; b */", "SELECT 1 -- a; b"])
def test_a_semicolon_in_a_comment_ends_a_statement_for_some_readers_of_hive(comment: str) -> None:
    assert rule(the_answer(comment, dialect="hive")) == "comment"
    assert all(each.decision.allowed for each in answers(comment, dialect="spark"))
    assert the_answer("-- a; b\nSELECT 1", dialect="hive").decision.allowed


def test_a_mark_at_the_beginning_of_the_text_is_no_text() -> None:
    answer = the_answer("\ufeffDROP TABLE lake.s.t")
    assert needs(answer) == ["drop table s.t"]


@each_row(
    "query",
    [
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "NOT " * 5_000 + "true",
        "SELECT " + "- " * 5_000 + "1",
        _repeated("SELECT a FROM lake.s.t WHERE b", ".a", 5_000),
        "SELECT " + "CASE WHEN a THEN " * 1_000 + "1" + " END" * 1_000,
        _repeated("SELECT a FROM lake.s.t WHERE a = 1", " AND a = 1", 2_000),
        " UNION ALL ".join(["SELECT 1"] * 1_000),
        "SELECT " + "1, " * 20_000 + "1",
    ],
    ids=lambda query: query[:20],
)
def test_what_is_too_long_or_too_deep_is_denied(query: str) -> None:
    assert rule(the_answer(query)) == "query"


def test_deep_types_and_explanations_are_denied() -> None:
    nested = "ARRAY<" * 500 + "INT" + ">" * 500
    assert rule(the_answer(f"CREATE TABLE lake.s.t (a {nested})")) == "syntax"
    assert rule(the_answer("EXPLAIN " * 2_000 + "SELECT 1")) == "syntax"


def test_a_text_has_an_end() -> None:
    assert rule(the_answer(" " * (MAX_CHARACTERS + 1))) == "too-long"
    *_, last = answers("USE x;" * (MAX_STATEMENTS + 2))
    assert rule(last) == "too-long"
    assert rule(the_answer("a " * (MAX_TOKENS + 1))) == "too-long"


def test_tokens_are_cut_as_spark_cuts_them() -> None:
    tokens = list(tokens_of("a1.`b``c` 'd\\'e' \"f\" 1.5 2L 1a /*+ x(y) */", hive=False))
    assert [(each.kind, each.text) for each in tokens] == [
        (Kind.WORD, "a1"),
        (Kind.SYMBOL, "."),
        (Kind.QUOTED, "b`c"),
        (Kind.STRING, "d\\'e"),
        (Kind.STRING, "f"),
        (Kind.NUMBER, "1.5"),
        (Kind.WORD, "2L"),
        (Kind.WORD, "1a"),
        (Kind.HINT, "/*+ x(y) */"),
    ]
    assert [each.plain for each in tokens if each.kind is Kind.STRING] == [False, True]
