"""Writes the reference of privileges as Markdown, from the table of required privileges."""

from __future__ import annotations

from collections.abc import Iterator

from policy.privileges.operations import OPERATIONS, Needs
from policy.privileges.requests import ACCESS_TYPES, ANY
from tools.site import privilege_meanings as meanings

Levels = tuple[str, ...]

_TABLE: Levels = ("database", "table")
_NAMESPACE: Levels = ("database",)
_SERVICE: Levels = ("service",)
#: What an operation is about, by the first word of its name.
_ABOUT: dict[str, Levels] = {
    "table": _TABLE,
    "view": _TABLE,
    "key": _TABLE,
    "namespace": _NAMESPACE,
    "engine": ("engine",),
    "client": _SERVICE,
    "audit": _SERVICE,
    "admin": _SERVICE,
    "door": ("key",),
}
#: Whose first word names something else.
_OTHERWISE: dict[str, Levels] = {
    "key.dropped": _SERVICE,
    "table.list": _NAMESPACE,
    "view.list": _NAMESPACE,
}


def page() -> str:
    """The privileges of each kind of resource, then what each operation requires."""
    return "\n".join((*_privileges(), *_operations()))


def about(operation: str) -> Levels:
    """The levels of the resource that an operation is about."""
    return _OTHERWISE.get(operation) or _ABOUT[operation.partition(".")[0]]


def needed_by(levels: Levels, access: str) -> list[str]:
    """The operations that name a privilege, of those about a resource or about its keys."""
    return [
        name
        for name, needs in OPERATIONS.items()
        if (about(name) == levels and access in needs.access)
        or (levels == ("key",) and needs.on_keys == access)
    ]


def _privileges() -> Iterator[str]:
    for levels, accesses in ACCESS_TYPES.items():
        yield f"## {_kind(levels)}\n\n{meanings.RESOURCES[levels]}\n"
        yield "| privilege | allows | operations that name it |\n|---|---|---|"
        for access in sorted(accesses):
            named = ", ".join(f"`{each}`" for each in needed_by(levels, access))
            yield f"| `{access}` | {meanings.PRIVILEGES[levels, access]} | {named} |"
        yield ""


def _operations() -> Iterator[str]:
    yield "## Operations\n"
    yield (
        "The name of an operation is its action in the audit log. *Any* means that one privilege of any "
        "kind is enough, on the resource or below it.\n"
    )
    yield "| operation | what it does | on | requires |\n|---|---|---|---|"
    for name, needs in OPERATIONS.items():
        yield f"| `{name}` | {meanings.OPERATIONS[name]} | {_kind(about(name))} | {_required(needs)} |"
    yield ""


def _kind(levels: Levels) -> str:
    return f"`{levels[-1]}`"


def _required(needs: Needs) -> str:
    said = ["*any*" if each == ANY else f"`{each}`" for each in needs.access]
    text = (" or " if needs.any_of else " and ").join(said)
    return f"{text}; `{needs.on_keys}` on each master key" if needs.on_keys else text
