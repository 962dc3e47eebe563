"""Scopes of tokens: what a token is limited to, whatever its user is granted.

A scope is a text of items with one space between them, as in OAuth 2.0: ``read-only namespace:sales
table:hr.people``. Namespaces and tables together are what the token is limited to; without any, it is limited
to reading alone. In a name, a space is written ``%20`` and a percent sign ``%25``. Names are those of the
catalog, compared as they are. What a scope refuses is decided in `policy.privileges.token_scopes`.

Source: RFC 6749, section 3.3, for the form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from policy.errors import RequestInvalid
from policy.identifiers import MAX_NAMESPACE_LENGTH, Namespace, TableName, namespace_of, table_name

MAX_SCOPE_NAMES: Final = 100
"""Most namespaces and tables in a scope."""

_READ_ONLY: Final = "read-only"
_NAMESPACE: Final = "namespace:"
_TABLE: Final = "table:"


@dataclass(frozen=True, slots=True)
class TokenScope:
    """What a token is limited to.

    Attributes:
        read_only: whether it can read alone.
        namespaces: namespaces, each with everything below it.
        tables: tables and views.

    Raises:
        RequestInvalid: it limits nothing, or has too many names.
    """

    read_only: bool = False
    namespaces: frozenset[Namespace] = frozenset()
    tables: frozenset[TableName] = frozenset()

    def __post_init__(self) -> None:
        if not (self.read_only or self.is_limited_by_name):
            raise _refused("It limits nothing.")
        if len(self.namespaces) + len(self.tables) > MAX_SCOPE_NAMES:
            raise _refused(f"It has more than {MAX_SCOPE_NAMES} names.")

    @classmethod
    def of_names(cls, read_only: bool, namespaces: Iterable[str], tables: Iterable[str]) -> Self:
        """Return the scope with these dotted names.

        Raises:
            RequestInvalid: a name is not valid, or as for the class.
        """
        return cls(read_only, frozenset(map(_namespace, namespaces)), frozenset(map(_table, tables)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the scope that a text means.

        Raises:
            RequestInvalid: an item is unknown or given twice, a name is not valid, or as for the class.
        """
        items = text.split(" ")
        if len(set(items)) != len(items):
            raise _refused("An item is given twice.")
        scope = cls.of_names(_READ_ONLY in items, _names(items, _NAMESPACE), _names(items, _TABLE))
        if sorted(scope._items()) != sorted(items):
            raise _refused("An item is unknown.")
        return scope

    @property
    def is_limited_by_name(self) -> bool:
        """Whether the token is limited to namespaces or tables."""
        return bool(self.namespaces or self.tables)

    def __str__(self) -> str:
        return " ".join(self._items())

    def _items(self) -> Iterator[str]:
        if self.read_only:
            yield _READ_ONLY
        yield from sorted(_NAMESPACE + _escaped(".".join(each)) for each in self.namespaces)
        yield from sorted(_TABLE + _escaped(str(each)) for each in self.tables)


def _names(items: Iterable[str], kind: str) -> list[str]:
    return [_unescaped(item.removeprefix(kind)) for item in items if item.startswith(kind)]


def _namespace(name: str) -> Namespace:
    with _naming(_NAMESPACE, name):
        return namespace_of(name.split("."))


def _table(name: str) -> TableName:
    *namespace, last = name.split(".")
    with _naming(_TABLE, name):
        return table_name(namespace, last)


@contextmanager
def _naming(kind: str, name: str) -> Iterator[None]:
    try:
        yield
    except RequestInvalid as error:
        raise _refused(f"{kind}{name[:MAX_NAMESPACE_LENGTH]!a} is no name: {error.message}") from None


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace(" ", "%20")


def _unescaped(name: str) -> str:
    return name.replace("%20", " ").replace("%25", "%")


def _refused(why: str) -> RequestInvalid:
    return RequestInvalid(
        f"The scope of the token is not valid. {why}",
        rule="token-scope",
        hint="Write items with one space between them: read-only, namespace:NAME, table:NAMESPACE.TABLE.",
    )
