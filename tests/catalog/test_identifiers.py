"""Names of namespaces and tables: what is a name, and what could be read in two ways."""

from __future__ import annotations

import pytest

from catalog.base.identifiers import MAX_LEVELS, MAX_NAME_LENGTH, namespace_of, slug, table_name
from policy.errors import RequestInvalid
from tests.support.vectors import each_row


@each_row("name", ["t", "T", "my table", "orders-2024", "été", "表", "*", "%", "'", '"', "a=b", "a,b", "%2e"])
def test_odd_but_unambiguous_names_are_kept_as_typed(name: str) -> None:
    assert table_name(["db"], name).name == name
    assert namespace_of([name]) == (name,)


@each_row(
    "name",
    [
        "",
        ".",
        "..",
        "a.b",
        "a/b",
        "a\\b",
        " a",
        "a ",
        "\ta",
        "a\n",
        "a\x00b",
        "a\x1fb",
        "a\u202eb",
        "a\u200bb",
        "\u00a0a",
        "a\u2028b",
        "\ud800",
        "\ue000",
        "n" * (MAX_NAME_LENGTH + 1),
    ],
)
def test_names_that_could_be_read_in_two_ways_are_refused(name: str) -> None:
    with pytest.raises(RequestInvalid) as as_table:
        table_name(["db"], name)
    with pytest.raises(RequestInvalid) as as_level:
        namespace_of([name])
    assert as_table.value.rule == as_level.value.rule == "identifier"


def test_a_namespace_has_at_least_one_level_and_a_bounded_number() -> None:
    assert len(namespace_of(["n"] * MAX_LEVELS)) == MAX_LEVELS
    for levels in ([], ["n"] * (MAX_LEVELS + 1)):
        with pytest.raises(RequestInvalid):
            namespace_of(levels)


def test_a_namespace_fits_into_the_pointer_store() -> None:
    assert namespace_of(["n" * 127, "n" * 127])
    with pytest.raises(RequestInvalid):
        namespace_of(["n" * 128, "n" * 127])


def test_letter_case_and_composed_letters_make_other_names() -> None:
    assert table_name(["db"], "t") != table_name(["db"], "T")
    assert table_name(["db"], "\u00e9") != table_name(["db"], "e\u0301")


def test_the_dotted_form_joins_the_levels() -> None:
    name = table_name(["a", "b"], "t")
    assert (name.database, str(name)) == ("a.b", "a.b.t")


def test_directory_names_hold_no_character_with_a_meaning() -> None:
    assert slug("my table/../é") == "my_table_____"
    assert slug("Orders_2024-01") == "Orders_2024-01"
