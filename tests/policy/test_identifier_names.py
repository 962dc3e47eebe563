"""Names of namespaces and tables: compared as typed, and never to be read in two ways."""

from __future__ import annotations

import pytest

from policy.errors import RequestInvalid
from policy.identifiers import TableName, namespace_of, slug, table_name
from tests.support.vectors import each_row

HINT = " Use a name without dots, slashes, backslashes, control and format characters."


def told(*levels: str, table: str | None = None) -> str:
    with pytest.raises(RequestInvalid) as caught:
        if table is None:
            namespace_of(levels)
        else:
            table_name(levels, table)
    assert caught.value.rule == "identifier"
    return str(caught.value).replace(" [rule=identifier]", "")


@each_row("name", ["a", "x" * 128, "A b", "*", "%", "'\"`", "{USER}", "ä说明", "a-b_c", "a=1,b", "~"])
def test_a_name_is_kept_as_it_was_typed(name: str) -> None:
    assert namespace_of([name]) == (name,)
    found = table_name((name, "b"), name)
    assert found == TableName((name, "b"), name)
    assert (found.database, str(found)) == (f"{name}.b", f"{name}.b.{name}")


def test_names_that_differ_in_case_are_different() -> None:
    assert table_name(("a",), "T") != table_name(("a",), "t")
    assert sorted([table_name(("b",), "a"), table_name(("a",), "b")])[0].namespace == ("a",)


@each_row(
    "character", [".", "/", "\\", "\x1f", "\x00", "\n", "\u200b", "\u2028", "\ue000", "\ud800", "\u0378"]
)
def test_a_character_that_could_be_read_in_two_ways_is_refused(character: str) -> None:
    name = f"a{character}b"
    problem = f"{name!r} contains the ambiguous character {character!r}.{HINT}"
    assert told(name) == f"The namespace level {problem}"
    assert told("a", table=name) == f"The table name {problem}"


def test_bounds_of_names_and_namespaces() -> None:
    assert told() == "The namespace has 0 levels. It must have 1 to 8."
    assert namespace_of("abcdefgh") == tuple("abcdefgh")
    assert told(*"abcdefghi") == "The namespace has 9 levels. It must have 1 to 8."
    assert told("a", "") == told("a", "x" * 129) == "The namespace level must have 1 to 128 characters."
    assert (
        told("a", table="") == told("a", table="x" * 129) == "The table name must have 1 to 128 characters."
    )
    assert namespace_of(["x" * 127, "y" * 127])
    assert told("x" * 128, "y" * 127) == "The namespace has more than 255 characters."


@each_row("name", [" a", "a ", "\u00a0a", "a\u3000", "\ta"])
def test_a_space_around_a_name_is_refused(name: str) -> None:
    assert told(name) == f"The namespace level {name!r} begins or ends with a space."
    assert told("a", table=name) == f"The table name {name!r} begins or ends with a space."


def test_a_table_needs_a_namespace() -> None:
    hint = "Write NAMESPACE.TABLE, such as sales.orders."
    assert told(table="t") == f"The table name 't' has no namespace. {hint}"


def test_a_directory_is_called_after_what_is_plain_in_a_name() -> None:
    assert slug("aZ09_-") == "aZ09_-"
    assert slug("a b/ä.c*") == "a_b___c_"
