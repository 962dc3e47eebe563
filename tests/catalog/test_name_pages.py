"""Lists in pages: every name once, and nothing that the caller does not see."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, insert

from catalog.db.engine import write
from catalog.db.schema import iceberg_tables
from catalog.state.page_tokens import PageTokens
from catalog.state.sql_pointers import SqlPointerStore
from catalog.tables.paging import ListPage, PageRequest, visible_page
from policy.errors import RequestInvalid

T = TypeVar("T")

_ALPHABET = "abAB_-é z%'\U0001f600"
_NAMES = st.text(_ALPHABET, min_size=1, max_size=4).filter(lambda name: name == name.strip())


class _Names:
    """A list of names that changes between two pages."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def page(self, wanted: PageRequest, hidden: set[str]) -> ListPage[str]:
        return visible_page(
            self.read, str, lambda some: [each for each in some if each not in hidden], wanted
        )

    def read(self, after: str | None, limit: int | None) -> list[str]:
        later = sorted(each for each in self.names if after is None or each > after)
        return later[:limit]


@given(
    stay=st.sets(_NAMES, max_size=30),
    come_and_go=st.lists(st.sets(_NAMES, max_size=6), max_size=40),
    hidden=st.sets(_NAMES, max_size=20),
    size=st.integers(1, 7),
)
def test_what_stays_is_listed_once_whatever_comes_and_goes(
    stay: set[str], come_and_go: list[set[str]], hidden: set[str], size: int
) -> None:
    listed, after, changes = [], None, iter(come_and_go)
    names = _Names(set(stay))
    while True:
        page = names.page(PageRequest(after, size), hidden)
        listed += page.entries
        assert len(page.entries) <= size
        if page.following is None:
            break
        # A page is only announced where it has something, and by a name that the caller saw.
        assert len(page.entries) == size and page.following == page.entries[-1]
        after = page.following
        names.names = stay | next(changes, set())
    assert len(listed) == len(set(listed))
    assert listed == sorted(listed)
    assert stay - hidden <= set(listed)
    assert not hidden & set(listed)


@pytest.mark.nightly
@settings(max_examples=15, deadline=None)
@given(
    tables=st.sets(_NAMES, max_size=12),
    nested=st.sets(st.tuples(_NAMES, st.none() | _NAMES), max_size=12),
    size=st.integers(1, 5),
)
def test_pages_of_the_database_make_up_the_whole_list(
    engine: Engine, tables: set[str], nested: set[tuple[str, str | None]], size: int
) -> None:
    catalog = f"lake-{uuid4().hex}"
    pointers = SqlPointerStore(engine, catalog)
    rows = [("top", name) for name in tables]
    rows += [(".".join(filter(None, ("top", *levels))), "t") for levels in nested]
    with write(engine) as connection:
        for namespace, name in rows:
            values = {"catalog_name": catalog, "table_namespace": namespace, "table_name": name}
            connection.execute(insert(iceberg_tables).values(**values, metadata_location="file:///m"))
    assert {each.name for each in pointers.tables(("top",))} == tables
    below = _in_pages(partial(pointers.children, ("top",)), lambda each: each[-1], size)
    assert below == pointers.children(("top",))
    assert set(below) == {("top", level) for level, _ in nested}
    assert set(below) == {each for each in pointers.namespaces() if each[:-1] == ("top",)}
    assert pointers.children(()) == ([("top",)] if rows else [])


def _in_pages(
    read: Callable[[str | None, int | None], list[T]], name_of: Callable[[T], str], size: int
) -> list[T]:
    listed: list[T] = []
    after = None
    while True:
        page = visible_page(read, name_of, list, PageRequest(after, size))
        listed += page.entries
        if page.following is None:
            return listed
        after = page.following


def test_a_page_token_is_for_its_list_and_user(engine: Engine) -> None:
    tokens = PageTokens(engine)
    token = tokens.make("orders é", "/v1/a", "alice")
    assert "orders" not in token
    assert PageTokens(engine).name_in(token, "/v1/a", "alice") == "orders é"
    for listed, principal in (("/v1/b", "alice"), ("/v1/a", "bob"), ("/v1/", "aalice")):
        with pytest.raises(RequestInvalid, match="page token"):
            tokens.name_in(token, listed, principal)


@given(at=st.integers(0, 200), put=st.text("abcXYZ019-_=. é", max_size=3))
def test_a_changed_page_token_is_refused(engine: Engine, at: int, put: str) -> None:
    tokens = PageTokens(engine)
    token = tokens.make("orders", "list", "alice")
    at %= len(token) + 1
    changed = token[:at] + put + token[at + 1 :]
    if changed != token:
        with pytest.raises(RequestInvalid, match="page token"):
            tokens.name_in(changed, "list", "alice")
