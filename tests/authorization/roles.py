"""Who asks in the authorization matrix, with which rights, and the policies that give these rights.

One table for both sides: `GRANTS` is what the model reads, and what the policies of the lake are made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.support.lake import policy, tables

#: Namespaces of the matrix: those with this prefix are where rights are given; nobody but the steward has
#: any right in another one.
OWN: Final = "m"
ELSEWHERE: Final = "elsewhere"

#: By role: what policies give it.
#:   a bare access type: on every table of the own namespaces, and on these namespaces
#:   owned: everything on the tables that the role owns; it owns those of the matrix
#:   storage: RWStorage on the directory `granted`
#:   use, release, rotate, destroy: on the master keys
#:   admin, audit: on the service
#:   delegate: administers the policies on the master key `delegated`
#:   all: everything everywhere
GRANTS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        role: frozenset(rights.split())
        for role, rights in {
            "nobody": "",
            "reader": "select",
            "writer": "select update",
            "alterer": "alter storage",
            "owner": "owned storage rotate destroy",
            "creator": "create storage",
            "dropper": "drop",
            "keeper": "alter create storage",
            "mason": "alter create use",
            "storer": "storage",
            "releaser": "select update create use release rotate destroy",
            "sparked": "select update create use",
            "admin": "admin",
            "auditor": "audit",
            "delegate": "delegate",
            "steward": "all",
        }.items()
    }
)

#: Asks through an engine, which has the keys released without the user's right to them.
THROUGH_ENGINE: Final = "sparked"
#: Without a token of a user: nothing at all, and the token of an engine alone.
ANONYMOUS: Final = "anonymous"
ENGINE_ALONE: Final = "engine"
STEWARD: Final = "steward"
OWNER: Final = "owner"

WITH_TOKEN: Final = tuple(GRANTS)
ROLES: Final = (ANONYMOUS, ENGINE_ALONE, *WITH_TOKEN)

_ON_TABLES: Final = ("select", "update", "create", "drop", "alter")
_ON_KEYS: Final = ("use", "release", "rotate", "destroy")


def policies(root: Path, service: str) -> list[dict[str, Any]]:
    """Ranger policies that give each role its rights, in a lake that lies in `root`."""
    where = tables(OWN) | {"database": [OWN, f"{OWN}-*"]}
    granted = {"storage-type": ["iceberg"], "storage-url": [f"file://{root}/granted"]}
    given = [
        policy("tables", where, _holders(_ON_TABLES)),
        policy("owners", where, {"{OWNER}": ["all"]}),
        policy("storage", granted, _holders(("storage",), "rwstorage")),
        policy("keys", {"key": ["*"]}, _holders(_ON_KEYS)),
        policy("service", {"service": [service]}, _holders(("admin", "audit"))),
        policy("engines", {"engine": ["*"]}, {"spark": ["act"]}),
        policy("steward-tables", tables("*"), {STEWARD: ["all"]}),
        policy("steward-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {STEWARD: ["rwstorage"]}),
        policy("steward-keys", {"key": ["*"]}, {STEWARD: [*_ON_KEYS]}),
        policy("steward-service", {"service": ["*"]}, {STEWARD: ["admin", "audit"]}),
    ]
    delegated = policy("delegated", {"key": ["delegated"]}, _holders(("delegate",), "use"))
    delegated["policyItems"][0]["delegateAdmin"] = True
    given.append(delegated)
    given[2]["resources"]["storage-url"]["isRecursive"] = True
    return given


def _holders(rights: tuple[str, ...], access: str | None = None) -> dict[str, list[str]]:
    found = {role: sorted(grants.intersection(rights)) for role, grants in GRANTS.items()}
    return {role: [access] if access else held for role, held in found.items() if held}
