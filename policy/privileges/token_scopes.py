"""Decides what the scope of a token refuses, before any policy is asked.

- A scope grants nothing: what it lets pass is decided by policies.
- No token with a scope administers the catalog or its policies, and none runs code in an engine, where code
  can read what the engine reads.
- A token that is limited to namespaces or tables has these, and what is below them. Of the namespaces above,
  it sees that they are there, and their properties. It has no location, since a location is in no namespace.
- A token for reading alone selects, lists, and has keys released for what it reads.
- Keys are in no namespace either. A token with a scope uses them, where a table is authorized too, and does
  not see, rotate or destroy them.
"""

from __future__ import annotations

from typing import Final

from policy.decision import Decision, Reason
from policy.identifiers import Namespace
from policy.privileges.requests import ANY, AccessRequest, Resource
from policy.token_scope import TokenScope

RULE: Final = "token-scope"

#: What changes nothing: of catalog objects, of locations, of keys.
_READING: Final = frozenset({"select", ANY, "read", "release"})
_ON_KEYS: Final = frozenset({"use", "release"})
#: By the top level of a resource.
_CATALOG: Final = "database"
_KEY: Final = "key"
_LOCATIONS: Final = frozenset({"url", "storage-type"})


def refused_by_scope(request: AccessRequest) -> Decision | None:
    """Return the refusal of a request by the scope of the principal's token; None if it lets it pass."""
    scope = request.principal.scope
    if scope is None or _lets_pass(scope, request.resource, request.access):
        return None
    access = "any privilege" if request.access == ANY else request.access
    return scope_refusal(scope, f"{access} on {request.resource}")


def scope_refusal(scope: TokenScope, what: str) -> Decision:
    """Return the refusal of what no policy can grant to a token of this scope."""
    return Decision.deny(Reason(RULE, f"The scope of the token does not include {what}. It is {scope}."))


def _lets_pass(scope: TokenScope, resource: Resource, access: str) -> bool:
    if scope.read_only and access not in _READING:
        return False
    kind = resource.levels[0]
    if kind == _CATALOG:
        return not scope.is_limited_by_name or _covers(scope, resource, access)
    if kind == _KEY:
        return access in _ON_KEYS
    return kind in _LOCATIONS and not scope.is_limited_by_name


def _covers(scope: TokenScope, resource: Resource, access: str) -> bool:
    database, *below = resource.values
    levels = tuple(database.split("."))
    if any(_is_in(levels, each) for each in scope.namespaces):
        return True
    if below:
        return any((each.database, each.name) == (database, below[0]) for each in scope.tables)
    named = [*scope.namespaces, *(each.namespace for each in scope.tables)]
    return access == ANY and any(_is_in(each, levels) for each in named)


def _is_in(inner: Namespace, outer: Namespace) -> bool:
    """Whether a namespace is another one, or below it."""
    return inner[: len(outer)] == outer
