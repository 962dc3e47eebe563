"""Principals: a user or an engine, with the groups and roles that count for it, and the scope of its token.

The code that authenticates a principal makes it; this package only reads it. A name is compared as it is,
case included, and cannot contain control characters, so that it cannot forge a line of a log or an audit
record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from policy.errors import RequestInvalid
from policy.location.segments import forbidden_character
from policy.token_scope import TokenScope

PUBLIC: Final = "public"
"""The group of everyone.

Source: Apache Ranger, `RangerPolicyEngine.GROUP_PUBLIC`.
"""

MAX_NAME_CHARACTERS = 255
"""Longest name of a principal, group or role."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated user or engine.

    Attributes:
        name: the principal's name, unique in its realm.
        groups: names of the groups it belongs to.
        roles: names of the roles it holds.
        scope: what the token that it came with is limited to; None for no limit.

    Raises:
        RequestInvalid: a name is empty, blank, too long, or holds control or format characters.
    """

    name: str
    groups: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    scope: TokenScope | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", _names("group", self.groups))
        object.__setattr__(self, "roles", _names("role", self.roles))
        _check_name("principal", self.name)

    @property
    def unscoped(self) -> Principal:
        """The principal with whatever token it has: for dangers that the scope of this one does not avert."""
        return self if self.scope is None else replace(self, scope=None)


def _names(kind: str, names: Iterable[str]) -> frozenset[str]:
    # A bare string would become the set of its letters.
    if isinstance(names, str):
        raise RequestInvalid(
            f"The {kind}s of a principal are one string instead of a set.",
            rule="principal-name",
            hint=f"Pass a set of {kind} names.",
        )
    checked = frozenset(names)
    for name in checked:
        _check_name(kind, name)
    return checked


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise RequestInvalid(
            f"A {kind} name is empty or blank.",
            rule="principal-name",
            hint=f"Use a {kind} name that is not blank.",
        )
    if len(name) > MAX_NAME_CHARACTERS or forbidden_character(name) is not None:
        raise RequestInvalid(
            f"A {kind} name is longer than {MAX_NAME_CHARACTERS} characters or contains a control character.",
            rule="principal-name",
            hint="Use a shorter name of printable characters.",
        )
