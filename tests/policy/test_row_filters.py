"""Row filters: what can be written, what it means for a user and a schema, and what is refused."""

from __future__ import annotations

from datetime import date

import pytest

from policy.errors import PolicyInvalid
from policy.restrictions.binding import Asker, bind
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.predicate import (
    TRUE,
    Compare,
    Comparison,
    Literal,
    Predicate,
    columns_of,
)
from policy.restrictions.sql import row_filter
from policy.restrictions.syntax import MAX_LENGTH
from policy.restrictions.text import predicate_text
from tests.support.vectors import each_row

TYPES = {
    "flag": "boolean",
    "n": "int",
    "big": "long",
    "f": "float",
    "x": "double",
    "price": "decimal(38,2)",
    "name": "string",
    "day": "date",
    "ts": "timestamp",
    "tz": "timestamptz",
    "ns": "timestamptz_ns",
    "raw": "binary",
}
COLUMNS = TableColumns(
    [
        *(SchemaField(number, (name,), kind) for number, (name, kind) in enumerate(TYPES.items(), 1)),
        SchemaField(20, ("home",), "struct"),
        SchemaField(21, ("home", "town"), "string", above=(20,)),
        SchemaField(22, ("tags",), "list"),
        SchemaField(23, ("tags", "element"), "string", above=(22,), repeated=True),
        SchemaField(30, ("Twice",), "int"),
        SchemaField(31, ("twice",), "int"),
        SchemaField(32, ("a.b",), "int"),
        SchemaField(33, ("session_user",), "string"),
        SchemaField(34, ("größe",), "int"),
        SchemaField(40, ("deep", "b", "c", "d", "e"), "int"),
    ]
)
#: 38 digits.
LONG = "123456789012345678901234567890123456.78"
ANN = Asker("ann", frozenset({"eu"}), date(2026, 3, 31))


def bound(text: str, asker: Asker = ANN) -> Predicate:
    return bind(row_filter(text), asker, COLUMNS)


def shown(text: str, asker: Asker = ANN) -> str:
    """The filter as it is decided, in SQL."""
    return predicate_text(bound(text, asker), lambda field_id: COLUMNS.by_id[field_id].name)


@each_row(
    ("text", "meaning"),
    [
        ("name = 'x'", "name = 'x'"),
        ("'x' = NAME", "name = 'x'"),
        ("5 < n", "n > 5"),
        ("n between 1 and 3", "n >= 1 AND n <= 3"),
        ("not (n = 1 or n = 2) and big != -3", "NOT (n = 1 OR n = 2) AND big <> -3"),
        ("n in (1, 2, 1)", "n IN (1, 2)"),
        ("n not in (1)", "NOT (n IN (1))"),
        ("name is null or name is not null", "name IS NULL OR NOT (name IS NULL)"),
        ("isnull(n) or isnotnull(n) or isnan(x)", "n IS NULL OR NOT (n IS NULL) OR isnan(x)"),
        ("name <=> 'x'", "NOT (name IS NULL) AND name = 'x'"),
        ("name <=> null", "name IS NULL"),
        ("flag and not flag", "flag = TRUE AND NOT (flag = TRUE)"),
        ("flag = false", "flag = FALSE"),
        ("name like 'ab%'", "startswith(name, 'ab')"),
        ("name like 'ab'", "name = 'ab'"),
        ("name not like 'ab%' and n = 1", "NOT (startswith(name, 'ab')) AND n = 1"),
        ("name = '${{USER._name}}'", "name = 'ann'"),
        ("name in ('bob', '${{ USER._name }}')", "name IN ('bob', 'ann')"),
        ("startswith(name, current_user)", "startswith(name, 'ann')"),
        ("home.town = 'a /* b */ \" -- c; [d]'", "home.town = 'a /* b */ \" -- c; [d]'"),
        ("`Session_User` = 'x' or `größe` = 1", "session_user = 'x' OR größe = 1"),
        ("`a.b` = 1", "a.b = 1"),
        ("price = 1.5", "price = 1.50"),
        (
            "price > 123456789012345678901234567890123456.78",
            "price > 123456789012345678901234567890123456.78",
        ),
        (
            "price = -123456789012345678901234567890123456.78",
            "price = -123456789012345678901234567890123456.78",
        ),
        ("x > 0.1", "x > 0.1"),
        ("f > 0.5", "f > 0.5"),
        ("x = 1e3 or f > -5e-1", "x = 1000.0 OR f > -0.5"),
        ("day = '2026-01-31'", "day = DATE '2026-01-31'"),
        ("day = date '0001-01-01'", "day = DATE '0001-01-01'"),
        ("day >= current_date", "day >= DATE '2026-03-31'"),
        ("day >= current_date() - interval 30 days", "day >= DATE '2026-03-01'"),
        ("day >= current_date() - interval '1' month", "day >= DATE '2026-02-28'"),
        ("day >= current_date() + interval '-30 days'", "day >= DATE '2026-03-01'"),
        ("ts = timestamp_ntz '2026-01-31 00:00:00'", "ts = TIMESTAMP '2026-01-31 00:00:00'"),
        ("day >= interval 1 year + current_date()", "day >= DATE '2027-03-31'"),
        ("day >= add_months(date_add(current_date(), 1), -1)", "day >= DATE '2026-03-01'"),
        ("day >= current_date - 3", "day >= DATE '2026-03-28'"),
        ("ts > '2026-01-31 01:02:03.5'", "ts > TIMESTAMP '2026-01-31 01:02:03.500000'"),
        ("ts > date '2026-01-31'", "ts > TIMESTAMP '2026-01-31 00:00:00'"),
        ("tz > current_date", "tz > TIMESTAMP '2026-03-31 00:00:00+00:00'"),
        ("tz > timestamp '2026-01-31T01:00:00+01:00'", "tz > TIMESTAMP '2026-01-31 00:00:00+00:00'"),
        ("name = current_user() and is_member('eu')", "name = 'ann'"),
        ("is_member('us') or name = 'x'", "name = 'x'"),
        ("is_member('us')", "FALSE"),
        ("not is_member('public')", "FALSE"),
        ("current_user in ('ann', 'bob') or n = 1", "TRUE"),
        ("session_user() = user() and 1 < 2 and true", "TRUE"),
        ("session_user() = 'ann'", "TRUE"),
        ("current_date > date '2026-03-30' and not false", "TRUE"),
        ("((n)) = (1)", "n = 1"),
        ("(name) is null and (home.town) = 'x'", "name IS NULL AND home.town = 'x'"),
        ("'ann' <=> current_user()", "TRUE"),
        ("day >= date_sub(current_date, 1)", "day >= DATE '2026-03-30'"),
        ("deep.b.c.d.e = 1", "deep.b.c.d.e = 1"),
        ("a -- the 'first'\n = 1 or n = 1".replace("a ", "n "), "n = 1"),
    ],
)
def test_a_filter_is_decided_for_a_user_and_a_schema(text: str, meaning: str) -> None:
    assert shown(text) == meaning


@each_row(
    ("text", "problem"),
    [
        ("", "not a predicate"),
        ("n = ", "not a predicate"),
        ("n = 1; n = 2", "';' is not supported"),
        ("n = 1;", "';' is not supported"),
        ("n = 1 group by n", "not supported"),
        ("n = 1 n = 2", "not a predicate"),
        ("n = 1 /* or n = 2 */", "'/* or n = 2 */' is not supported"),
        ("n = 1 /* /* */ or n = 2 */", "not supported"),
        ("n = /*+ hint */ 1", "not supported"),
        ("n = 1 {# or n = 2 #}", "not supported"),
        ("n\u00a0= 1", "not supported"),
        ("n = 1 -- c\x85", "the character U+0085"),
        ("name = 'a\x00b'", "the character U+0000"),
        ("name = '\ud83d'", "the character U+D83D"),
        ("\"name\" <> 'x'", "is a string or a column"),
        ('name = "x"', "is a string or a column"),
        ("current_u\u017fer = 'ann'", "'current_u\\u017fer' is not supported"),
        ("n \u0131s null", "not supported"),
        ("name ~~ 'a%'", "not supported"),
        ("n in [1]", "not supported"),
        ("day > current_date - interval '- 30 days'", "not an interval"),
        ("day > current_date - interval 'x30 days'", "not an interval"),
        ("day > current_date - interval '1' year to month", "not an interval"),
        ("day > current_date - interval '1' day(3)", "not an interval"),
        ("ts = timestamp(3) '2026-01-31 00:00:00'", "not supported"),
        ("tz = timestamp_ntz '2026-01-31 00:00:00Z'", "a zone, which Spark passes over"),
        ("tz = cast('2026-01-31 00:00:00Z' as timestamp_ntz)", "a zone, which Spark passes over"),
        ("select 1", ""),
        ("n in (select 1)", "not supported"),
        ("exists (select 1)", "not supported"),
        ("n in ()", "no list"),
        ("n = big", "columns n and big with each other"),
        ("n in (1, big)", "column in its list"),
        ("n + 1 = 2", "current_date alone"),
        ("upper(name) = 'X'", "is not a supported function"),
        ("rand() < 0.5", "not a supported function"),
        ("now() > tz", "not a supported function"),
        ("name rlike 'a'", "not supported"),
        ("name ilike 'a%'", "not supported"),
        ("name like '%a'", "not a prefix"),
        ("name like 'a_%'", "not a prefix"),
        ("name like '%'", "not a prefix"),
        ("name like 'a%' escape '!'", "not supported"),
        ("startswith(name, '')", "not empty"),
        ("case when flag then true else false end", "not supported"),
        ("n = null", "NULL is never true"),
        ("n in (1, null)", "NULL is never true"),
        ("flag is true", "not supported"),
        ("n = 1 = true", "not supported"),
        ("n = :p", "not supported"),
        ("n = ?", "not supported"),
        ("n = 10L", "not supported"),
        ("n = cast('1' as int)", "not supported"),
        ("name = 'a' 'b'", "not supported"),
        ("name = 'it''s'", "not supported"),
        ("name = 'it\\'s'", "backslash"),
        ("name = r'x'", "not supported"),
        ("raw = X'00'", "not supported"),
        ("name = '{USER}'", "macro"),
        ("name = '${{USER.dept}}'", "macro"),
        ("name = 'x${{USER._name}}'", "macro"),
        ("name = '${{user._name}}'", "macro"),
        ("name = '${{USER._name}} ${{USER._name}}'", "macro"),
        ("name = ${{USER._name}}", "macro"),
        ("name in (${{GET_UG_NAMES_Q()}})", "macro"),
        ("name = {USER}", "macro"),
        ("is_member('${{USER._name}}')", "name of a group"),
        ("day = date '${{USER._name}}'", "not supported"),
        ("tags[0] = 'x'", "not supported"),
        ("is_member(name)", "name of a group"),
        ("is_member('a', 'b')", "not a supported function"),
        ("name like n", "no string"),
        ("isnull(1)", "not a column"),
        ("isnull(home.f(1))", "not"),
        ("-name = 'x'", "not supported"),
        ("day > current_date - 10000000", "too large"),
        ("ts = timestamp '2026-02-30 00:00:00'", "does not exist"),
        ("n = 1_0", "columns n and 1_0 with each other"),
        ("n = 1e", "not a number"),
        ("isnull(home.*)", "not supported"),
        ("day = date '2026-02-30'", "does not exist"),
        ("day = date 'tomorrow'", "not a date"),
        ("ts = timestamp '2026-01-01'", "not a timestamp"),
        ("day > date_add(day, 1)", "current_date alone"),
        ("day > current_date - interval 3 hours", "not an interval"),
        ("day > current_date - 1.5", "not a whole number"),
        ("n = 1e999999999", "too large"),
        ("n" * (MAX_LENGTH + 1), "characters"),
        ("(" * 70 + "n = 1" + ")" * 70, ""),
        ("n in (" + ",".join(map(str, range(2_000))) + ")", "too long"),
    ],
)
def test_a_filter_that_cannot_be_decided_is_refused_when_it_is_read(text: str, problem: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        row_filter(text)
    assert problem in refused.value.message
    assert refused.value.rule == "row-filter" and refused.value.hint


@each_row(
    ("text", "problem"),
    [
        ("gone = 1", "the column gone does not exist"),
        ("home.gone = 'x'", "home.gone does not exist"),
        ("TWICE = 1", "several columns"),
        ("home is null", "not a single value"),
        ("tags.element = 'x'", "not a single value"),
        ("n", "no condition"),
        ("n = 'x'", "not a value of the column n, type int"),
        ("n = 1.5", "not a value"),
        ("n = 2147483648", "not a value"),
        ("big = 9223372036854775808", "not a value"),
        ("f = 0.1", "not a value"),
        ("f = 1e300", "not a value"),
        ("x = 1e390", "not a value"),
        ("price = 1.005", "not a value"),
        ("price = 10000000000000000000000000000000000000", "not a value"),
        ("price > 1e20", "compares the column price with '1E+20' as doubles"),
        ("big = -9007199254740993e0", "as doubles"),
        ("session_user = 'ann'", "session_user is a column of the table"),
        ("name in ('x', SESSION_USER)", "session_user is a column of the table"),
        ("startswith(name, session_user)", "session_user is a column of the table"),
        ("name = 1", "not a value"),
        ("day = 1", "not a value"),
        ("day = timestamp '2026-01-01 00:00:00'", "not a value"),
        ("day = '2026-1-1'", "not a date"),
        ("ts = '2026-01-01 00:00:00Z'", "not a value"),
        ("tz = '2026-01-01 00:00:00'", "not a value"),
        ("tz > '0001-01-01 00:00:00+10:00'", "before the year 1 or after 9999 in UTC"),
        ("tz < timestamp '9999-12-31 23:59:59-10:00'", "before the year 1 or after 9999 in UTC"),
        ("flag > false", "not by ="),
        ("flag = 1", "not a value"),
        ("raw = 'x'", "not a value"),
        ("startswith(day, '2026-01-01')", "begins with no string"),
        ("isnan(n)", "floating-point"),
        ("is_member('us') and gone = 1", "does not exist"),
        ("1 = 'x'", "of another type"),
        ("timestamp '2026-01-01 00:00:00' < timestamp '2026-01-01 00:00:00Z'", "of another type"),
        ("add_months(current_date, 999999) > day", "arithmetic"),
    ],
)
def test_a_filter_that_does_not_fit_the_schema_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        bound(text)
    assert problem in refused.value.message


@each_row(("word", "kind"), [("current_user", "string"), ("current_date", "date")])
def test_a_function_without_parentheses_is_no_column(word: str, kind: str) -> None:
    today, named = SchemaField(1, ("day",), "date"), SchemaField(2, (word.upper(),), kind)
    compared = {"current_user": "'ann'", "current_date": "DATE '2026-03-31'"}[word]
    assert bind(row_filter(f"{word} = {compared}"), ANN, TableColumns([today])) == TRUE
    for text in (f"{word} = {compared}", f"day > {word} - 1" if kind == "date" else f"{word} <=> 'ann'"):
        with pytest.raises(PolicyInvalid, match=f"{word} is a column of the table") as refused:
            bind(row_filter(text), ANN, TableColumns([today, named]))
        assert f"{word}()" in (refused.value.hint or "")
    assert bind(row_filter(f"{word}() = {compared}"), ANN, TableColumns([today, named])) == TRUE
    assert columns_of(bind(row_filter(f"`{word}` = {compared}"), ANN, TableColumns([today, named]))) == {2}


@each_row(
    ("text", "problem"),
    [
        ("home.town = 'x'", "home.town is the column town of the table, too"),
        ("Home.Town is null", "Home.Town is the column Town of the table, too"),
        ("db.home.town = 'x'", "db.home.town is the column town of the table, too"),
        ("home.n = 1", None),
        ("`home.town` = 'x'", "does not exist"),
        ("db.n = 1", "does not exist"),
        ("town = 'x'", None),
    ],
)
def test_a_name_behind_the_tables_name_is_read_in_one_way(text: str, problem: str | None) -> None:
    home = [SchemaField(1, ("home",), "struct"), SchemaField(2, ("home", "town"), "string", above=(1,))]
    more = [SchemaField(3, ("home", "n"), "int", above=(1,)), SchemaField(4, ("town",), "string")]
    columns = TableColumns([*home, *more])
    if problem is None:
        assert bind(row_filter(text), ANN, columns, table=("db", "home"))
        return
    with pytest.raises(PolicyInvalid, match=problem):
        bind(row_filter(text), ANN, columns, table=("db", "home"))
    if "too" in problem and "db" not in text:
        assert columns_of(bind(row_filter(text), ANN, columns, table=("db", "t"))) == {2}


def test_a_filter_is_typed_by_the_schema_that_is_read() -> None:
    earlier = TableColumns([SchemaField(2, ("n",), "long")])
    assert bind(row_filter("n = 3000000000"), ANN, COLUMNS, earlier) == Compare(
        Comparison.EQ, 2, Literal("long", 3_000_000_000)
    )
    with pytest.raises(PolicyInvalid, match="does not exist in the schema of the snapshot"):
        bind(row_filter("big = 1"), ANN, COLUMNS, earlier)


def test_a_rename_takes_the_filter_to_the_column_of_the_name() -> None:
    assert columns_of(bound("n = 1 or home.town = 'x' or not isnan(x)")) == {2, 5, 21}


def test_a_filter_names_its_columns() -> None:
    filtered = row_filter("n = 1 and (flag or isnan(x)) and not home.town is null or name in ('a') and true")
    names = ["flag", "home.town", "n", "name", "x"]
    assert sorted(map(str, filtered.columns)) == names
