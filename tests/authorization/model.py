"""A second opinion on the authorization matrix: sets of rights, and no code of the product.

A need is one right or several of which one is enough: ``select|update|alter``. Rights are bare on tables of
the matrix that exist, ``new:create`` on the name of a table that is to be made, and otherwise say on what:
``db:alter`` a namespace of the matrix, ``far:create`` a name in a namespace where nobody has rights,
``storage`` the directory that was granted, ``far:storage`` one that was not, ``taken:alter`` the table whose
location is overlapped, ``token`` that a user asks at all, ``engine`` that an engine asks,
``own-process`` that none does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tests.authorization.roles import ANONYMOUS, ENGINE_ALONE, GRANTS, THROUGH_ENGINE

#: What no right is enough for.
NEVER: Final = "never"
#: What only an engine with its own token can do.
BOOTSTRAP: Final = "bootstrap"
#: What no right of a user stands in for.
_ENGINE: Final = "engine"

_TABLE: Final = frozenset({"select", "update", "alter", "drop", "create"})
#: What an owner may do with a table that exists; there is no owner of a name that is free.
_OWNED: Final = frozenset({"select", "update", "alter", "drop", "unprotect"})
_ANY_ON_DATABASE: Final = "|".join(f"db:{right}" for right in sorted(_TABLE))
_ALIASES: Final = {"db:any": _ANY_ON_DATABASE, "any": "select|update|alter|drop|create|unprotect"}


def permits(role: str, needs: Collection[str]) -> bool:
    """Whether a role has all of these rights."""
    if BOOTSTRAP in needs:
        return role == ENGINE_ALONE
    held = _rights(role)
    return all(_has(held, need) for need in needs)


def _has(held: frozenset[str] | None, need: str) -> bool:
    alternatives = _ALIASES.get(need, need).split("|")
    if need == NEVER or (need == _ENGINE and held is None):
        return False
    return held is None or any(each in held for each in alternatives)


def _rights(role: str) -> frozenset[str] | None:
    """The rights of a role; None for all that there are."""
    if role in (ANONYMOUS, ENGINE_ALONE):
        return frozenset()
    given = GRANTS[role]
    if "all" in given:
        return None
    on_tables = given & _TABLE
    rights = {"token", *given, *(f"db:{right}" for right in on_tables)}
    rights |= {"new:create"} if "create" in on_tables else set()
    rights |= _OWNED if "owned" in given else set()
    rights |= {"engine"} if role == THROUGH_ENGINE else {"own-process"}
    return frozenset(rights)
