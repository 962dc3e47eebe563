"""Names of namespaces and tables.

- A name is compared as it was typed; it is never trimmed, folded or decoded.
- Wildcards and quotes in a name are literal characters.
- What could be read in two ways is refused: a dot (the pointer store joins namespace levels with dots), a
  slash, control and format characters, surrounding spaces, `.` and `..`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from policy.errors import RequestInvalid

Namespace: TypeAlias = tuple[str, ...]

MAX_NAME_LENGTH: Final = 128
MAX_LEVELS: Final = 8
#: The longest dotted namespace that the pointer store can hold.
MAX_NAMESPACE_LENGTH: Final = 255

_FORBIDDEN: Final = frozenset("./\\\x1f")
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_NOT_SLUG: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The name of a table inside the catalog."""

    namespace: Namespace
    name: str

    @property
    def database(self) -> str:
        """The namespace as policies and the pointer store know it: levels joined with dots."""
        return ".".join(self.namespace)

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


def namespace_of(levels: Iterable[str]) -> Namespace:
    """Check the levels of a namespace.

    Raises:
        RequestInvalid: no level, too many, or a level that is not a name.
    """
    namespace = tuple(levels)
    if not 1 <= len(namespace) <= MAX_LEVELS:
        raise RequestInvalid(
            f"The namespace has {len(namespace)} levels. It must have 1 to {MAX_LEVELS}.", rule="identifier"
        )
    for level in namespace:
        _check_name("namespace level", level)
    if len(".".join(namespace)) > MAX_NAMESPACE_LENGTH:
        raise RequestInvalid(
            f"The namespace has more than {MAX_NAMESPACE_LENGTH} characters.", rule="identifier"
        )
    return namespace


def table_name(namespace: Iterable[str], name: str) -> TableName:
    """Check the name of a table.

    Raises:
        RequestInvalid: the namespace is missing, or it or the name is not a name.
    """
    _check_name("table name", name)
    levels = tuple(namespace)
    if not levels:
        raise RequestInvalid(
            f"The table name {name!r} has no namespace.",
            rule="identifier",
            hint="Write NAMESPACE.TABLE, such as sales.orders.",
        )
    return TableName(namespace_of(levels), name)


def slug(text: str) -> str:
    """A directory name for `text`; uniqueness comes from the UUID that follows it."""
    return _NOT_SLUG.sub("_", text)


def _check_name(what: str, name: str) -> None:
    if not name or len(name) > MAX_NAME_LENGTH:
        raise RequestInvalid(f"The {what} must have 1 to {MAX_NAME_LENGTH} characters.", rule="identifier")
    if name != name.strip():
        raise RequestInvalid(f"The {what} {name!r} begins or ends with a space.", rule="identifier")
    for character in name:
        if character in _FORBIDDEN or unicodedata.category(character) in _FORBIDDEN_CATEGORIES:
            raise RequestInvalid(
                f"The {what} {name!r} contains the ambiguous character {character!r}.",
                rule="identifier",
                hint="Use a name without dots, slashes, backslashes, control and format characters.",
            )
