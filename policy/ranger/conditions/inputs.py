"""Finds what a condition looks at: those for whom that is the same get the same answer.

Rules:
- A member that is named by a text (``USER.dept``) is looked at alone. An object that is used in another way,
  or asked for a computed name, is looked at as a whole.
- What is not known here is everything, so that a new name or function is never passed over.

The store of attributes, the time and the current tag are the same for all users and resources that one policy
is asked about, so they are no inputs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Final, Self

from policy.privileges.requests import Resource
from policy.ranger.circumstances import Subject, Tag
from policy.ranger.conditions.parse import Script
from policy.ranger.conditions.syntax import Constant, Function, Member, Named
from policy.ranger.users import UserStore

_USER: Final = "user"
_GROUPS: Final = "groups"
_ROLES: Final = "roles"
_ATTRIBUTE: Final = "attribute"
_RESOURCE: Final = "resource"
_TAGS: Final = "tags"
_ACCESS: Final = "access"

#: What is looked at: its kind, and a name; an empty one for the whole.
_Input = tuple[str, str]
_EVERYTHING: Final[tuple[_Input, ...]] = tuple(
    (kind, "") for kind in (_USER, _GROUPS, _ROLES, _RESOURCE, _TAGS, _ACCESS)
)
_OBJECTS: Final[Mapping[str, tuple[_Input, ...]]] = MappingProxyType(
    {
        "USER": ((_USER, ""),),
        "UG": ((_GROUPS, ""),),
        "UGA": ((_GROUPS, ""),),
        "UGNAMES": ((_GROUPS, ""),),
        "URNAMES": ((_ROLES, ""),),
        "TAG": (),
        "tagAttr": (),
        "TAGS": ((_TAGS, ""),),
        "TAGNAMES": ((_TAGS, ""),),
        "RES": ((_RESOURCE, ""),),
    }
)
_OF_REQUEST: Final[Mapping[str, tuple[_Input, ...]]] = MappingProxyType(
    {
        "accessType": ((_ACCESS, ""),),
        "user": ((_USER, ""),),
        "userGroups": ((_GROUPS, ""),),
        "userRoles": ((_ROLES, ""),),
        "userAttributes": ((_USER, ""),),
    }
)
_FUNCTIONS: Final[Mapping[str, tuple[_Input, ...]]] = MappingProxyType(
    {
        "isInGroup": ((_GROUPS, ""),),
        "isInRole": ((_ROLES, ""),),
        "isInAnyGroup": ((_GROUPS, ""),),
        "isInAnyRole": ((_ROLES, ""),),
        "hasTag": ((_TAGS, ""),),
        "hasAnyTag": ((_TAGS, ""),),
        "hasTagAttr": ((_TAGS, ""),),
        "hasUserAttr": ((_USER, ""),),
        "hasUgAttr": ((_GROUPS, ""),),
        "userAttr": ((_USER, ""),),
        "getUser": ((_USER, ""),),
    }
)
#: Functions that look at any tag of the resource, and not the current one, if they take two arguments.
_OF_TAGS: Final = frozenset({"getAttributeValue", "isAccessedAfter", "isAccessedBefore"})
#: Functions whose first argument, if it is a text, names all that they look at.
_NAMED: Final[Mapping[str, str]] = MappingProxyType(
    {"isInGroup": _GROUPS, "isInRole": _ROLES, "hasUserAttr": _ATTRIBUTE, "userAttr": _ATTRIBUTE}
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What conditions look at.

    Attributes:
        of_user: what of the user.
        of_resource: which names of the resource, with ``_ownerUser`` for its owner; an empty one for all.
        tags: whether at the tags of the resource.
        access: whether at the access type.
    """

    of_user: frozenset[_Input]
    of_resource: frozenset[str]
    tags: bool
    access: bool

    @classmethod
    def of(cls, scripts: Iterable[Script]) -> Self:
        """What some conditions look at."""
        found = {each for script in scripts for each in _inputs(script.statements)}
        return cls(
            frozenset(each for each in found if each[0] in (_USER, _GROUPS, _ROLES, _ATTRIBUTE)),
            frozenset(name for kind, name in found if kind == _RESOURCE),
            (_TAGS, "") in found,
            (_ACCESS, "") in found,
        )

    def user(self, subject: Subject, users: UserStore) -> Hashable:
        """What they see of a user."""
        return tuple(_of_user(each, subject, users) for each in sorted(self.of_user))

    def resource(self, resource: Resource, owner: str | None, tags: tuple[Tag, ...] | None) -> Hashable:
        """What they see of a resource, its owner and its tags."""
        named = dict(zip(resource.levels, resource.values, strict=True)) | {"_ownerUser": owner}
        seen = (
            (resource, owner)
            if "" in self.of_resource
            else tuple(named.get(each) for each in sorted(self.of_resource))
        )
        return seen, _texts(tags) if self.tags else None


def _texts(tags: tuple[Tag, ...] | None) -> Hashable:
    if tags is None:
        return None
    return tuple((each.type, tuple(each.attributes.items())) for each in tags)


def _of_user(one: _Input, subject: Subject, users: UserStore) -> Hashable:
    kind, name = one
    if kind == _GROUPS:
        return name in subject.groups if name else subject.groups
    if kind == _ROLES:
        return name in subject.roles if name else subject.roles
    if kind == _USER:
        return subject.name
    known = users.users.get(subject.name)
    return None if known is None else (name in known, known.get(name))


def _inputs(node: object) -> Iterator[_Input]:
    """What an expression or a statement, or some of them, look at."""
    match node:
        case Member(Named("REQ"), Constant(str(name))):
            yield from _OF_REQUEST.get(name, _EVERYTHING)
        case Member(Named("RES"), Constant(str(name))):
            yield _RESOURCE, name
        case Member(Named("USER"), Constant(str(name))):
            yield _attribute(name)
        case Named(name):
            yield from _OBJECTS.get(name, _EVERYTHING)
        case Function(name, arguments):
            yield from _of_function(name, arguments)
            yield from _inputs(arguments)
        case tuple():
            for each in node:
                yield from _inputs(each)
        case _ if is_dataclass(node):
            for part in fields(node):
                yield from _inputs(getattr(node, part.name))


def _of_function(name: str, arguments: tuple[object, ...]) -> Iterator[_Input]:
    if name in _NAMED and isinstance(arguments[0], Constant) and isinstance(arguments[0].value, str):
        text = arguments[0].value
        yield _attribute(text) if _NAMED[name] == _ATTRIBUTE else (_NAMED[name], text)
    elif name in _OF_TAGS:
        yield from ((_TAGS, ""),) if len(arguments) > 1 else ()
    else:
        yield from _FUNCTIONS.get(name, _EVERYTHING)


def _attribute(name: str) -> _Input:
    """An attribute of the user; ``_name`` is the user's own name."""
    return (_USER, "") if name == "_name" else (_ATTRIBUTE, name)
